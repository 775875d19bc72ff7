"""Post the send requests that the library cannot execute itself, as for a program in Python."""

from __future__ import annotations

import ctypes
import sys

from weft.verbs import enums as e
from weft.verbs.c.calls import operation
from weft.verbs.c.objects import find, find_or_none
from weft.verbs.c.pairs import ProgramQP
from weft.verbs.enums import ibv_wr_opcode
from weft.verbs.hca.segment import Service
from weft.verbs.hca.work import WORD_BYTES, SendWork
from weft.verbs.pyverbs.addr import AH
from weft.verbs.pyverbs.mr import MR, MW, MWBindInfo
from weft.verbs.pyverbs.wr import SendWR
from weft.verbs.shm.layout import SendRequest, SgeRecord
from weft.verbs.shm.record import Record, u32, u64

_W = ibv_wr_opcode


class PostSend(Record):
    qp: u32
    request: u64  # a SendRequest, and its elements
    ah: u32  # datagram
    remote_qpn: u32
    remote_qkey: u32
    place: u32  # in the library's cache of paths
    remote_srqn: u32  # XRC
    mw: u32  # bind request: the window, its new key, and the part of a region
    key: u32
    mr: u32
    address: u64
    length: u64
    access: u32
    path: u64  # out: the PathRecord for the next request
    is_queued: u32  # out: requests are in flight, and later ones must wait


@operation(PostSend)
def post_send(call: PostSend) -> None:
    qp = find(call.qp, ProgramQP)
    try:
        if (work := _rare(SendRequest.from_address(call.request))) is not None:
            with qp.core.adapter.lock:
                qp._ready(work)
                qp.core.post_send(work)
            qp._go()
        elif qp.core.service == Service.UD:
            call.path = _post_datagram(qp, call)
        else:
            qp.post_send(_request(call))
    finally:
        call.is_queued = bool(qp.core.sends)
        if qp.core.service != Service.UD:
            call.path = qp.path()


def _post_datagram(qp: ProgramQP, call: PostSend) -> int:
    """Post a datagram; return the address of the path for the next one, or 0."""
    wr = _request(call)
    if wr.ah is not None:
        attr, address_of = wr.ah.attr, qp.ctx.hardware.address_vector
        path = qp.datagrams.find(call.place, call.ah, call.remote_qpn, lambda: address_of(attr))
        if path is not None and path.post(wr.raw):
            return path.address
    qp.post_send(wr)
    qp.datagrams.sent_packets(call.place)
    return 0


def _rare(request: SendRequest) -> SendWork | None:
    """Return the work of an ATOMIC_WRITE or FLUSH, whose other fields are in `compare` and `swap`; else None."""
    if request.opcode not in (_W.IBV_WR_ATOMIC_WRITE, _W.IBV_WR_FLUSH):
        return None
    work = SendWork(wr_id=request.wr_id, opcode=_W(request.opcode), flags=request.flags & ~e.IBV_SEND_INLINE)
    work.rkey, work.va = request.rkey, request.va
    if request.opcode == _W.IBV_WR_ATOMIC_WRITE:
        work.inline = request.compare.to_bytes(WORD_BYTES, sys.byteorder)
    else:
        work.length, work.flush, work.selectivity = request.compare, request.swap & 0xFFFF_FFFF, request.swap >> 32
    return work


def _request(call: PostSend) -> SendWR:
    """Return the request as a `SendWR`."""
    wr, head = object.__new__(SendWR), SendRequest.from_address(call.request)
    wr.next_wr = None
    wr.raw = ctypes.string_at(call.request, SendRequest.size + head.num_sge * SgeRecord.size)
    wr.ah, wr.remote_qpn, wr.remote_qkey = find_or_none(call.ah, AH), call.remote_qpn, call.remote_qkey
    wr.remote_srqn = call.remote_srqn
    if call.mw:
        wr.mw, wr.rkey = find(call.mw, MW), call.key
        wr.bind_info = MWBindInfo(find(call.mr, MR), call.address, call.length, call.access)
    return wr


class FinishSend(Record):
    qp: u32
    code: u32  # from hca.execute
    place: u32  # datagram
    is_done: u32
    path: u64


@operation(FinishSend)
def finish_send(call: FinishSend) -> None:
    qp = find(call.qp, ProgramQP)
    call.is_done, call.path = qp.finish(call.code, call.place)
