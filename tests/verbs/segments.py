"""Inject segments at the end `b` of a `Wire`, and inspect the segments that `b` sent."""

from __future__ import annotations

from collections.abc import Callable

from tests.verbs.wires import Wire, taken

from weft.verbs.enums import ibv_event_type
from weft.verbs.hca.carrier import Arrival
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.segment import REQUESTS, Op, Segment
from weft.verbs.shm.layout import CompletionRecord


def arrive(wire: Wire, segment: Segment, source: str = "a") -> None:
    """Deliver a segment as if it came from `source`."""
    wire.ends["b"].inbox.append(Arrival(segment=segment, source=source))
    wire.run()


def request(b: QueuePair, op: Op, psn: int, payload: bytes = b"", **fields) -> Segment:
    return Segment(op=op, service=b.service, dest_qp=b.number, psn=psn, ack_request=True, payload=payload, **fields)


def answers(wire: Wire) -> list[tuple[Op, int, int]]:
    """Return operation, PSN and syndrome of each response that `b` sent."""
    return [(item.op, item.psn, item.syndrome) for item in wire.ends["b"].sent if item.op not in REQUESTS]


def naks(wire: Wire) -> list[tuple[int, int]]:
    """Return PSN and syndrome of each NAK that `b` sent."""
    return [(psn, syndrome) for op, psn, syndrome in answers(wire) if op == Op.ACKNOWLEDGE and syndrome >= 0x60]


def lose(*psns: int, op: Op = Op.SEND) -> Callable[[Segment], list[Segment]]:
    """Return a packet fault that loses the first packet of each of these PSNs."""
    left = list(psns)

    def fate(packet: Segment) -> list[Segment]:
        if packet.op == op and packet.psn in left:
            left.remove(packet.psn)
            return []
        return [packet]

    return fate


def events(qp: QueuePair) -> list[ibv_event_type]:
    """Return all later events."""
    observed: list[ibv_event_type] = []
    qp.on_event = observed.append
    return observed


def completions(wire: Wire) -> list[CompletionRecord]:
    return taken(wire.b.cq, 100)
