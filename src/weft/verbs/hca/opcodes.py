"""Map the requests of verbs to operations on the wire, completions, errors and RNR delays."""

from __future__ import annotations

from enum import IntEnum

from weft.verbs.enums import ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.segment import Nak, Op

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
