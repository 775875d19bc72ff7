"""Define the requests in the queues of a queue pair, their progress, and their operations on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from weft.verbs.enums import IBV_SEND_SOLICITED, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.segment import Nak, Op, Segment, Service, psn_after
from weft.verbs.shm.memory import Payload, Place, total

_W, _C = ibv_wr_opcode, ibv_wc_opcode


class Control(IntEnum):
    """A request that the adapter itself posts."""

    RESYNC = -1


OPS: dict[int, tuple[Op, ibv_wc_opcode]] = {
    _W.IBV_WR_SEND: (Op.SEND, _C.IBV_WC_SEND),
    _W.IBV_WR_SEND_WITH_IMM: (Op.SEND, _C.IBV_WC_SEND),
    _W.IBV_WR_SEND_WITH_INV: (Op.SEND, _C.IBV_WC_SEND),
    _W.IBV_WR_RDMA_WRITE: (Op.WRITE, _C.IBV_WC_RDMA_WRITE),
    _W.IBV_WR_RDMA_WRITE_WITH_IMM: (Op.WRITE, _C.IBV_WC_RDMA_WRITE),
    _W.IBV_WR_RDMA_READ: (Op.READ, _C.IBV_WC_RDMA_READ),
    _W.IBV_WR_ATOMIC_CMP_AND_SWP: (Op.COMPARE_SWAP, _C.IBV_WC_COMP_SWAP),
    _W.IBV_WR_ATOMIC_FETCH_AND_ADD: (Op.FETCH_ADD, _C.IBV_WC_FETCH_ADD),
    _W.IBV_WR_FLUSH: (Op.FLUSH, _C.IBV_WC_FLUSH),
    _W.IBV_WR_ATOMIC_WRITE: (Op.ATOMIC_WRITE, _C.IBV_WC_ATOMIC_WRITE),
    Control.RESYNC: (Op.RESYNC, _C.IBV_WC_SEND),
}
LOCAL: dict[int, ibv_wc_opcode] = {  # executed without a packet
    _W.IBV_WR_LOCAL_INV: _C.IBV_WC_LOCAL_INV,
    _W.IBV_WR_BIND_MW: _C.IBV_WC_BIND_MW,
}
HAVE_IMMEDIATE = (_W.IBV_WR_SEND_WITH_IMM, _W.IBV_WR_RDMA_WRITE_WITH_IMM)
DATA = (Op.SEND, Op.WRITE)  # carry data in any number of packets
ATOMICS = (Op.COMPARE_SWAP, Op.FETCH_ADD)
ANSWERED = (*ATOMICS, Op.READ, Op.FLUSH, Op.ATOMIC_WRITE)  # completed by their own response only
NAK_STATUS = {
    Nak.INVALID_REQUEST: ibv_wc_status.IBV_WC_REM_INV_REQ_ERR,
    Nak.REMOTE_ACCESS_ERROR: ibv_wc_status.IBV_WC_REM_ACCESS_ERR,
    Nak.REMOTE_OPERATIONAL_ERROR: ibv_wc_status.IBV_WC_REM_OP_ERR,
    Nak.INVALID_RD_REQUEST: ibv_wc_status.IBV_WC_REM_INV_RD_REQ_ERR,
}
RNR_MS = (
    655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92,
    2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
)  # fmt: skip
FOR_EVER = 7  # RNR retry count without a limit
WORD_BYTES = 8  # atomic operand


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
