"""Define the requests in the queues of a queue pair, and their progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from weft.verbs.enums import IBV_SEND_SOLICITED, ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.opcodes import ANSWERED, DATA, HAVE_IMMEDIATE, OPS, Control
from weft.verbs.hca.segment import Op, Segment, Service, psn_after
from weft.verbs.shm.memory import Payload, Place, total


class Refused(Exception):
    """A request that is refused with an errno."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Binding(Protocol):
    """A bind request of a memory window."""

    def execute(self, pd: object, qp_num: int) -> ibv_wc_status: ...


@dataclass(slots=True, kw_only=True)
class SendWork:
    """A send request. The fields from `psn` on are set when it is sent."""

    wr_id: int
    opcode: ibv_wr_opcode | Control
    places: Sequence[Place] = ()
    flags: int = 0
    inline: bytes | None = None  # copied when posted
    immediate: int | None = None
    invalidate: int | None = None
    va: int = 0
    rkey: int = 0
    compare: int = 0
    swap: int = 0
    flush: int = 0  # placement type of a FLUSH
    selectivity: int = 0
    length: int = 0  # length of a FLUSH
    ah: object = None  # destination of a datagram; EE context number of a reliable datagram
    remote_qp: int = 0
    q_key: int = 0
    srq: int = 0  # XRC: shared receive queue of the peer
    window: Binding | None = None  # bind request
    psn: int = -1  # first PSN; -1: not sent yet
    count: int = 0  # number of PSNs
    sent: int = 0  # packets sent
    received: int = 0  # received bytes of a READ
    response_psn: int = -1  # next response of a READ
    done: bool = False
    posted: int = 0  # number in its queue pair, from 1
    op: Op | None = field(init=False)  # on the wire; None for local requests
    is_answered: bool = field(init=False)  # completed by its own response only

    def __post_init__(self) -> None:
        self.op = OPS[self.opcode][0] if self.opcode in OPS else None
        self.is_answered = self.op in ANSWERED

    @property
    def size(self) -> int:
        return len(self.inline) if self.inline is not None else total(self.places)

    def next_part(self, count: int, payload: Payload, mtu_bytes: int, *, service: Service, dest_qp: int) -> Segment:
        """Return the next `count` packets to send; for READs one request packet for `count` response packets."""
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
