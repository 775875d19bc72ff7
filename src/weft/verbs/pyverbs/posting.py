"""From work requests as programs write them to what the adapter keeps."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from weft.verbs.attributes.text import qp_type_to_str
from weft.verbs.enums import IBV_SEND_INLINE, ibv_qp_type, ibv_wr_opcode
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.gpudirect.cuda import in_use
from weft.verbs.hca.segment import MESSAGE_MAX_BYTES
from weft.verbs.hca.work import ReceiveWork, Refused, SendWork
from weft.verbs.pyverbs.windows import Binding
from weft.verbs.pyverbs.wr import RecvWR, SendWR
from weft.verbs.shm import memory

_W, _T = ibv_wr_opcode, ibv_qp_type
_SENDS = {_W.IBV_WR_SEND, _W.IBV_WR_SEND_WITH_IMM}
_WRITES = {_W.IBV_WR_RDMA_WRITE, _W.IBV_WR_RDMA_WRITE_WITH_IMM}
_HERE = {_W.IBV_WR_LOCAL_INV, _W.IBV_WR_BIND_MW}
_ATOMICS = {_W.IBV_WR_ATOMIC_CMP_AND_SWP, _W.IBV_WR_ATOMIC_FETCH_AND_ADD}
_ANSWERED = {_W.IBV_WR_RDMA_READ, *_ATOMICS, _W.IBV_WR_SEND_WITH_INV, _W.IBV_WR_FLUSH, _W.IBV_WR_ATOMIC_WRITE}
OPCODES = {
    _T.IBV_QPT_RC: _SENDS | _WRITES | _HERE | _ANSWERED,
    _T.IBV_QPT_UC: _SENDS | _WRITES | _HERE | {_W.IBV_WR_SEND_WITH_INV},
    _T.IBV_QPT_UD: _SENDS,
    _T.IBV_QPT_RD: _SENDS | _WRITES | _HERE | _ATOMICS | {_W.IBV_WR_RDMA_READ},
    _T.IBV_QPT_XRC_SEND: _SENDS | _WRITES | _HERE | _ANSWERED,
    _T.IBV_QPT_XRC_RECV: set(),
}
_WITHOUT_INLINE = _HERE | _ATOMICS | {_W.IBV_WR_RDMA_READ, _W.IBV_WR_FLUSH}
W = TypeVar("W", RecvWR, SendWR)


def post_chain(post: Callable[[W], None], first: W, bad_wr: W | None, action: str) -> None:
    """Post a list of requests. The first that is refused ends it, and `bad_wr` becomes a copy of it."""
    wr: W | None = first
    while wr is not None:
        try:
            post(wr)
        except Refused as refused:
            if bad_wr is not None:
                bad_wr.__dict__ = dict(wr.__dict__)
            raise PyverbsRDMAError(action, refused.code, str(refused)) from refused
        wr = wr.next_wr


def receive_work(wr: RecvWR) -> ReceiveWork:
    return ReceiveWork(wr_id=wr.wr_id, places=tuple(wr.places))


def send_work(wr: SendWR) -> SendWork:
    """Return the work of a request, without the parts that depend on the type of queue pair."""
    work = SendWork(wr_id=wr.wr_id, opcode=_opcode(wr.opcode), places=tuple(wr.places), flags=wr.send_flags)
    work.va, work.rkey, work.srq = wr.remote_addr, wr.remote_rkey, wr.remote_srqn
    if work.opcode in (_W.IBV_WR_SEND_WITH_INV, _W.IBV_WR_LOCAL_INV):
        work.invalidate = wr.imm_data
    elif work.opcode in (_W.IBV_WR_SEND_WITH_IMM, _W.IBV_WR_RDMA_WRITE_WITH_IMM):
        work.immediate = wr.imm_data
    elif work.opcode == _W.IBV_WR_ATOMIC_CMP_AND_SWP:
        work.compare, work.swap = wr.compare_add, wr.swap
    elif work.opcode == _W.IBV_WR_ATOMIC_FETCH_AND_ADD:
        work.swap = wr.compare_add
    elif work.opcode == _W.IBV_WR_BIND_MW:
        if wr.mw is None or wr.bind_info is None:
            raise Refused(errno.EINVAL, "no window to bind: call set_bind_wr")
        work.window = Binding(wr.mw, wr.bind_info, wr.rkey)
    return work


def _opcode(number: int) -> ibv_wr_opcode:
    try:
        return _W(number)
    except ValueError as error:
        raise Refused(errno.EINVAL, f"unknown opcode {number}") from error


def prepare(work: SendWork, kind: ibv_qp_type, inline_max_bytes: int) -> None:
    """Check a request for a type of queue pair, and copy the data of IBV_SEND_INLINE, whose memory may be reused."""
    if work.opcode not in OPCODES[kind]:
        raise Refused(errno.EINVAL, f"a queue pair of type {qp_type_to_str(kind)} does not support {work.opcode.name}")
    if work.size > MESSAGE_MAX_BYTES:
        raise Refused(errno.EINVAL, f"{work.size} bytes exceed the largest message, {MESSAGE_MAX_BYTES}")
    if work.flags & IBV_SEND_INLINE and work.inline is None:
        if work.opcode in _WITHOUT_INLINE:
            raise Refused(errno.EINVAL, f"{work.opcode.name} has no data to send inline")
        if work.size > inline_max_bytes:
            raise Refused(errno.EINVAL, f"{work.size} bytes exceed the inline limit of {inline_max_bytes}")
        if (gpus := in_use()) is not None and any(gpus.has(place.address) for place in work.places):
            raise Refused(errno.EINVAL, "memory of a GPU cannot be sent inline: the processor cannot read it")
        try:
            work.inline = bytes(memory.gather(work.places, 0, work.size))
        except memory.MemoryFault:
            raise Refused(errno.EFAULT, "the inline data is not mapped") from None
