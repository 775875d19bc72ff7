"""What was posted to a queue pair, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from weft.verbs.enums import IBV_SEND_SOLICITED, ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.opcodes import ANSWERED, DATA, HAVE_IMMEDIATE, OPS, Control
from weft.verbs.hca.segment import Op, Segment, Service, psn_after
from weft.verbs.shm.memory import Payload, Place, total


class Refused(Exception):
    """What verbs answer with an errno."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Binding(Protocol):
    """Of a window: what is bound to what."""

    def execute(self, pd: object, qp_num: int) -> ibv_wc_status: ...


@dataclass(slots=True, kw_only=True)
class SendWork:
    """A send request; of those below `psn` some are filled in when it is sent first."""

    wr_id: int
    opcode: ibv_wr_opcode | Control
    places: Sequence[Place] = ()
    flags: int = 0
    inline: bytes | None = None  # copied when it was posted
    immediate: int | None = None
    invalidate: int | None = None
    va: int = 0
    rkey: int = 0
    compare: int = 0
    swap: int = 0
    flush: int = 0  # placement type, and what is flushed
    selectivity: int = 0
    length: int = 0  # of a FLUSH
    ah: object = None  # of a datagram: where to; of a reliable one the number of an EE context
    remote_qp: int = 0
    q_key: int = 0
    srq: int = 0  # of XRC: the other's shared receive queue
    window: Binding | None = None  # of a bind
    psn: int = -1  # first of it; -1: not sent yet
    count: int = 0  # PSNs that it takes
    sent: int = 0  # packets that were sent, from the first
    received: int = 0  # bytes of a READ that came
    response_psn: int = -1  # next one of a READ
    done: bool = False
    posted: int = 0  # which one of its queue pair it is, counted from 1
    op: Op | None = field(init=False)  # on the wire; None of what never leaves
    is_answered: bool = field(init=False)  # complete by its own answer only

    def __post_init__(self) -> None:
        self.op = OPS[self.opcode][0] if self.opcode in OPS else None
        self.is_answered = self.op in ANSWERED

    @property
    def size(self) -> int:
        return len(self.inline) if self.inline is not None else total(self.places)

    def next_part(self, count: int, payload: Payload, mtu_bytes: int, *, service: Service, dest_qp: int) -> Segment:
        """So many packets after those that are sent; what asks for an answer is one packet, for so many of it."""
        assert self.op is not None
        part = Segment(op=self.op, service=service, dest_qp=dest_qp, psn=psn_after(self.psn, self.sent))
        part.ack_request, part.rkey, part.srq, part.payload = True, self.rkey, self.srq, payload
        if self.op in DATA:
            part.va, part.length = self.va, self.size
            part.count, part.first, part.last = count, self.sent == 0, self.sent + count == self.count
            if part.last:
                part.solicited = bool(self.flags & IBV_SEND_SOLICITED)
                part.immediate = self.immediate if self.opcode in HAVE_IMMEDIATE else None
                part.invalidate = self.invalidate if self.opcode == ibv_wr_opcode.IBV_WR_SEND_WITH_INV else None
        else:
            begin = self.sent * mtu_bytes
            part.va, part.length = self.va + begin, min(self.size - begin, count * mtu_bytes)
            part.compare, part.swap = self.compare, self.swap
            if self.op == Op.FLUSH:
                part.length, part.flush, part.selectivity = self.length, self.flush, self.selectivity
        return part


@dataclass(slots=True, kw_only=True)
class ReceiveWork:
    wr_id: int
    places: Sequence[Place] = ()

    @property
    def size(self) -> int:
        return total(self.places)
