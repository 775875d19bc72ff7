"""A request carried out at once by who posts it, in the memory of both ends: kernels.

    post(words, request) -> code    what the request says, at the other end, as its adapter would do it

Only what succeeds is done here. `SLOW` says that something is not as it should be, a key, a state, a receive request
that is not there; nothing has happened then, and `requester` sends packets, which find out what and tell everybody.
PSNs go on as if packets had been sent, so that both ways can follow each other.

The words of a path are those of `PathRecord` and what it points to. All else is in `layout`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

import numpy as np
from numba.core import types

from weft.ids import p_keys_match
from weft.jit import Kernel, part, quick_kernel
from weft.verbs import enums as e
from weft.verbs.hca.copying import copy
from weft.verbs.hca.elements import LOCAL_WRITE, copy_all, element, find_elements, found, opened_there, sge
from weft.verbs.hca.segment import MESSAGE_MAX_BYTES, OWN_Q_KEY, Service
from weft.verbs.hca.work import OPS
from weft.verbs.shm import layout
from weft.verbs.shm.atomic import acquire, move, release, take, view, where
from weft.verbs.shm.meter import count, now_ns, takes_time, wait
from weft.verbs.shm.requests import (
    ADD,
    ANSWERED,
    ATOMICS,
    BUSY,
    CARRIED,
    CLOSED,
    DONE,
    READ,
    RECEIVED,
    REQUEST_MAX_BYTES,
    RING,
    SEND,
    SEND_IMM,
    SLOW,
    UNTOLD,
    WAKE,
    WRITE,
    WRITE_IMM,
)
from weft.verbs.shm.rings import bytes_behind, completion_at, completion_queue, queue_pair, receive_at, receive_queue
from weft.wire.headers import DETH, GRH, ImmDt

# By opcode, WRITE to ADD: what its completion is called, and what it needs of the other's memory
_TOLD = tuple(int(OPS[opcode][1]) for opcode in CARRIED)
_NEEDED = (e.IBV_ACCESS_REMOTE_WRITE,) * 4 + (e.IBV_ACCESS_REMOTE_READ,) + (e.IBV_ACCESS_REMOTE_ATOMIC,) * 2
_ACCESS = tuple(int(access) for access in _NEEDED)
_WC_RECV, _WC_RECV_IMM = int(e.IBV_WC_RECV), int(e.IBV_WC_RECV_RDMA_WITH_IMM)
_WITH_IMM = int(e.IBV_WC_WITH_IMM)
_SIGNALED, _SOLICITED = int(e.IBV_SEND_SIGNALED), int(e.IBV_SEND_SOLICITED)
_RTR, _RTS, _SQD, _SQE = int(e.IBV_QPS_RTR), int(e.IBV_QPS_RTS), int(e.IBV_QPS_SQD), int(e.IBV_QPS_SQE)
_RC, _UD = int(Service.RC), int(Service.UD)
_GRH_BYTES, _IMM_BYTES, _DETH_BYTES = GRH.size, ImmDt.size, DETH.size
_LONG_BYTES = 1 << 15
_TELLING_TRIES = 2000
_PSN_MASK = 0xFF_FFFF
_REQUEST_BYTES, _SGE_BYTES, _WORD_BYTES = layout.SendRequest.size, layout.SgeRecord.size, layout.Word.size
_RECEIVE_BYTES = layout.ReceiveRequest.size
_VALUES = layout.Scratch.offset("before")

_let_others: Kernel = types.ExternalFunction("PyEval_SaveThread", types.uint64())
_go_on: Kernel = types.ExternalFunction("PyEval_RestoreThread", types.void(types.uint64))

_fit = part(p_keys_match)
path_at, request_at = view(layout.PathRecord), view(layout.SendRequest)
_receive_request, _scratch = view(layout.ReceiveRequest), view(layout.Scratch)
_header, _meter = view(layout.Header), view(layout.MeterRecord)


@part
def _put(path, far: int, size: int, skipped: int) -> bool:
    """Copy bytes of the message as `copy_all`; a datagram is contiguous."""
    if path.staged != 0:
        return copy(path, path.staged + skipped, far, size, True)
    return copy_all(path, far, size, skipped, True)


@part
def _stage(path, request, size: int) -> None:
    """Put a datagram together: its route, and its data."""
    to = path.staged + _GRH_BYTES
    for n in range(request.num_sge):
        length = element(path, n).length
        move(to, found(path, n).value, length)
        to += length
    if path.wc_flags != 0:
        length = path.length + (size + 3) // 4 * 4 + (_IMM_BYTES if request.opcode == SEND_IMM else 0)
        _scratch(path.scratch).before = length >> 8 | (length & 0xFF) << 8
        move(path.staged + path.length_at, path.scratch + _VALUES, 2)


@part
def _takes_datagram(path, request, own, far) -> bool:
    """Return whether the peer accepts a datagram."""
    state, q_key = far.state, own.q_key if request.rkey & OWN_Q_KEY else request.rkey
    if state != _RTR and state != _RTS and state != _SQD and state != _SQE:
        return False
    if far.number != path.dest_qp or far.service != _UD or far.q_key != q_key:
        return False
    return _fit(own.p_key, far.p_key)


@part
def _is_ready(path, own, far) -> bool:
    """Return whether the peer accepts the next request."""
    state = far.state
    if state != _RTS and state != _SQD and state != _RTR:
        return False
    if far.number != own.dest_qp or far.dest_qp != own.number or far.source != path.source:
        return False
    if far.service != own.service or far.is_midway != 0 or far.expected_psn != own.next_psn:
        return False
    return _fit(own.p_key, far.p_key)


@part
def _has_room(queue) -> bool:
    """Return whether a completion queue has a free slot."""
    return queue.is_broken == 0 and queue.head - acquire(queue, "tail") < queue.capacity


@part
def _begin_to_tell(address: int, qp, wr_id: int, opcode: int, size: int):
    """Write a new completion to a queue with a free slot; its lock is held."""
    queue = completion_queue(address)
    done = completion_at(address, queue, queue.head)
    done.wr_id, done.qp_num, done.opcode, done.byte_len = wr_id, qp.number, opcode, size
    done.status = done.immediate = done.wc_flags = done.src_qp = done.slid = done.sl = done.pkey_index = 0
    done.dlid_path_bits = done.vendor_err = done.solicited = done.time_ns = done.posted = done.place = 0
    return done


@part
def _tell(path, queue, done) -> None:
    """Publish the completion."""
    if queue.stamps != 0:
        done.time_ns = now_ns(path.scratch)
    release(queue, "head", queue.head + 1)


@part
def _can_take(queue) -> bool:
    """Return whether there is a receive request that can be taken without an event."""
    if queue.limit != 0 or queue.returned != 0:
        return False
    return acquire(queue, "head") != queue.tail


@part
def _receive_element(work: int, n: int):
    """Return an element of the receive request at an address."""
    return sge(work + _RECEIVE_BYTES + n * _SGE_BYTES)


@part
def _place(path, work: int, n: int) -> int:
    """Return the address of element n of a receive request in the other process; -1 if its key gives no access."""
    one, domain = _receive_element(work, n), queue_pair(path.far_qp).receive_domain
    length = one.length
    return opened_there(path, domain, 0, one.lkey, one.address, length, LOCAL_WRITE, True) if length else 0


@part
def _place_of_short(path, size: int, work: int) -> int:
    """Return the destination of a short message that is stored behind its completion; 0 if it is copied at once."""
    if size == 0 or size > layout.SHORT_BYTES or _receive_element(work, 0).length < size:
        return 0
    place = _place(path, work, 0)
    if (path.own_is_on_gpu | place) & layout.ON_GPU:
        return 0
    offset = place - path.far_begin
    return 0 if offset >= 0 and offset + size <= path.far_length else place  # as quickly


@part
def _put_behind(path, request, address: int, queue, size: int) -> None:
    """Copy the message behind the next completion."""
    to = bytes_behind(address, queue, queue.head)
    if path.staged != 0:
        move(to, path.staged, size)
        return
    for n in range(request.num_sge):
        length = element(path, n).length
        move(to, found(path, n).value, length)
        to += length


@part
def _receive(path, size: int, work: int) -> bool:
    """Put a message where a receive request wants it, if that is right and large enough."""
    room, done, count = 0, 0, _receive_request(work).num_sge
    for n in range(count):
        if _place(path, work, n) == -1:
            return False
        room += _receive_element(work, n).length
    if count != 0 and _place_of_short(path, size, work) != 0:
        return True
    for n in range(count if room >= size else 0):
        here = min(_receive_element(work, n).length, size - done)
        if here and not _put(path, _place(path, work, n), here, done):
            return False
        done += here
    return done == size and room >= size


@part
def _atomic(path, request, address: int) -> bool:
    """Execute an atomic operation on a word; its lock is held."""
    at, values = path.scratch + _VALUES, _scratch(path.scratch)
    if not copy(path, at, address, _WORD_BYTES, False):
        return False
    before, adds = values.before, request.opcode == ADD
    if adds or before == request.compare:
        values.after = before + request.compare if adds else request.swap
        if not copy(path, at + _WORD_BYTES, address, _WORD_BYTES, True):
            return False
    move(found(path, 0).value, at, _WORD_BYTES)
    return True


@part
def _do(path, request, qp, size: int) -> bool:
    """Execute the memory access of a request; return False if the peer does not allow it."""
    op = request.opcode
    if op in RECEIVED:
        at = path.far + qp.receive_queue
        queue = receive_queue(at)
        if not _can_take(queue) or not _has_room(completion_queue(path.far + qp.receive_cq)):
            return False
        if op != WRITE_IMM:
            return _receive(path, size, receive_at(at, queue, queue.tail))
    access = _ACCESS[op]
    if qp.access & access == 0 or (op in ANSWERED and qp.max_dest_rd_atomic == 0):
        return False
    if size == 0:
        return True
    address = opened_there(path, qp.domain, qp.number, request.rkey, request.va, size, access, False)
    if address == -1:
        return False
    if op in ATOMICS:
        is_on_gpu = (path.own_is_on_gpu | address) & layout.ON_GPU != 0
        return not is_on_gpu and request.va % _WORD_BYTES == 0 and _atomic(path, request, address)
    return copy_all(path, address, size, 0, op != READ)


@part
def _tell_far(path, request, qp, size: int) -> int:
    """Take the used receive request and report it. Return RING if a thread waits there."""
    op, at = request.opcode, path.far + qp.receive_queue
    queue = receive_queue(at)
    work = receive_at(at, queue, queue.tail)
    wr_id = _receive_request(work).wr_id
    place = _place_of_short(path, size, work) if op != WRITE_IMM and _receive_request(work).num_sge != 0 else 0
    release(queue, "tail", queue.tail + 1)
    told = completion_queue(path.far + qp.receive_cq)
    done = _begin_to_tell(path.far + qp.receive_cq, qp, wr_id, _WC_RECV_IMM if op == WRITE_IMM else _WC_RECV, size)
    if place != 0:
        done.place = place
        _put_behind(path, request, path.far + qp.receive_cq, told, size)
    done.wc_flags, done.slid, done.sl = path.wc_flags, path.slid, path.sl
    if op != SEND:
        done.wc_flags, done.immediate = path.wc_flags | _WITH_IMM, request.immediate
    solicited = 1 if request.flags & _SOLICITED else 0
    done.solicited, done.src_qp, done.pkey_index = solicited, queue_pair(path.own_qp).number, qp.pkey_index
    _tell(path, told, done)
    armed = told.armed
    if armed == layout.ARMED_FOR_ALL or (armed == layout.ARMED_FOR_SOLICITED and solicited == 1):
        told.armed, told.bell = 0, 1
        return RING
    return DONE


@part
def _is_signaled(request, qp) -> bool:
    return request.flags & _SIGNALED != 0 or qp.signals_all != 0


@part
def _is_telling(qp) -> bool:
    """Return whether the other end has still not completed a request that is complete here: no reply overtakes it."""
    for _ in range(_TELLING_TRIES):  # noqa: SIM110 - kernels have no generators
        if acquire(qp, "telling") == 0:
            return False
    return True


@part
def _tell_own(path, request, qp, size: int) -> int:
    """Complete the request here. UNTOLD if that takes more than a kernel does, WAKE if a thread waits for it."""
    memory = _header(path.own)
    if not take(memory, path.own_process):
        return UNTOLD
    queue = completion_queue(path.own + qp.send_cq)
    code = UNTOLD
    if _has_room(queue):
        done = _begin_to_tell(path.own + qp.send_cq, qp, request.wr_id, _TOLD[request.opcode], size)
        done.posted = request.number if request.number != 0 else qp.posted
        _tell(path, queue, done)
        code = DONE
        if queue.armed == layout.ARMED_FOR_ALL:
            queue.armed, queue.bell, code = 0, 1, WAKE
        release(qp, "telling", 0)
    release(memory, "lock", 0)
    return code


@part
def carry_out(path) -> int:
    """Execute one work request on the peer: see the module."""
    request, own, far = request_at(path.request), queue_pair(path.own_qp), queue_pair(path.far_qp)
    meter, memory, op = _meter(path.meter), _header(path.far), request.opcode
    if acquire(meter, "is_open") == 0 or memory.process == 0:
        return CLOSED
    if own.state != _RTS or op < WRITE or op > ADD:
        return SLOW
    if request.number == 0 and own.posted - own.polled >= own.max_send_wr:  # polling does not order other operations
        return SLOW
    answered, is_datagram = op in ANSWERED, own.service == _UD
    size = find_elements(path, request, answered)
    if size < 0 or size > MESSAGE_MAX_BYTES or (answered and (own.max_rd_atomic == 0 or own.service != _RC)):
        return SLOW
    if op in ATOMICS and (size != _WORD_BYTES or element(path, 0).length != _WORD_BYTES):
        return SLOW
    if is_datagram:
        if size > own.mtu_bytes or (op != SEND and op != SEND_IMM) or path.own_is_on_gpu != 0:
            return SLOW
        _stage(path, request, size)
    if op in RECEIVED:
        if acquire(far, "unacked") != 0:
            return SLOW  # packets stay behind the acknowledgements that were sent before them
        if _is_telling(far):
            return BUSY
    wait(meter, path.scratch, op, size)
    if not take(memory, path.own_process):
        return BUSY
    ready = _takes_datagram(path, request, own, far) if is_datagram else _is_ready(path, own, far)
    there = size + _GRH_BYTES if is_datagram else size
    if not ready or not _do(path, request, far, there):
        release(memory, "lock", 0)
        return SLOW
    packets = 1 if op in ATOMICS else max(1, -(-size // own.mtu_bytes))
    next_psn = (own.next_psn + packets) & _PSN_MASK
    is_signaled, code = _is_signaled(request, own), DONE
    if op in RECEIVED:
        if is_signaled:
            release(own, "telling", 1)
        code = _tell_far(path, request, far, there)
    if far.state == _RTR and far.is_established == 0 and not is_datagram:
        far.is_established, code = layout.ESTABLISHED_BY_PATH, code | RING
    if not is_datagram:
        far.msn = (far.msn + 1) & _PSN_MASK
        far.expected_psn = next_psn
    release(memory, "lock", 0)
    own.next_psn = next_psn
    if request.number == 0:
        own.posted += 1
    count(meter, op, size, packets, _DETH_BYTES if is_datagram else 0, own.service == _RC)
    return code | _tell_own(path, request, own, size) if is_signaled else code


@part
def _takes_long(path) -> bool:
    size = 0
    for n in range(request_at(path.request).num_sge):
        size += element(path, n).length
    return size > _LONG_BYTES or takes_time(_meter(path.meter))


@quick_kernel
def post(words, request) -> int:
    """Execute a packed request, from Python; an empty one repeats the last request.

    Python's other threads run meanwhile if it takes long: to let them costs as much as a short one.
    """
    path = path_at(where(words))
    if len(request) > REQUEST_MAX_BYTES:
        return SLOW
    move(path.request, where(request), len(request))
    takes_long = _takes_long(path)
    thread = _let_others() if takes_long else np.uint64(0)
    code = carry_out(path)
    if takes_long:
        _go_on(thread)
    return code


@quick_kernel
def post_at(address: int) -> int:
    """Execute the request of the path at an address, from C."""
    return carry_out(path_at(address))
