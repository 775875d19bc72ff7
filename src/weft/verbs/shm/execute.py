"""A request carried out at once by who posts it, in the memory of both ends: kernels.

    post(path) -> code          what `path` says, at the other end, as its adapter would: nothing there needs to run

Only what succeeds is done here. `SLOW` says that something is not as it should be, a key, a state, a receive request
that is not there; nothing has happened then, and `requester` sends packets, which find out what and tell everybody.
PSNs go on as if packets had been sent, so that both ways can follow each other.

The words of a path are below: where both memories are, and the request. All else is in `layout`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

import numpy as np
from numba.core import types

from weft.ids import p_keys_match
from weft.jit import Kernel, part, quick_kernel
from weft.verbs import enums as e
from weft.verbs.hca.opcodes import OPS
from weft.verbs.hca.segment import MESSAGE_MAX_BYTES
from weft.verbs.shm import layout
from weft.verbs.shm.atomic import acquire, move, peek, poke, release, take, where
from weft.verbs.shm.meter import (
    ADD,
    ANSWERED,
    ATOMICS,
    CARRIED,
    IS_OPEN,
    READ,
    RECEIVED,
    SEND,
    WRITE,
    WRITE_IMM,
    count,
    now_ns,
    takes_time,
    wait,
)

PLACES_MAX = 32
# Where: addresses in this process, unless it says otherwise
OWN, FAR, FAR_BEGIN, FAR_SIZE, OWN_QP, FAR_QP, FAR_PROCESS, OWN_PROCESS, SOURCE, METER, SELF = range(11)
COUNT_MAX, INLINE_MAX = 11, 12  # elements of a request, and bytes that may be inline
# What: `layout.SEND_FORM`, then elements. NUMBER is 0, or of one that was posted before: which one of its queue pair
OPCODE, FLAGS, WR_ID, IMMEDIATE, VA, RKEY, COMPARE, SWAP, COUNT, NUMBER = range(16, 26)
PLACES = 26  # address, length, lkey of each
_FOUND = PLACES + 3 * PLACES_MAX  # address of each in this process
_VECTORS = _FOUND + PLACES_MAX  # for system calls
PATH_WORDS = _VECTORS + 8

DONE, RING, UNTOLD, SLOW, BUSY, CLOSED = 0, 1, 2, 4, 8, 16  # RING and UNTOLD: done, and there is something left to do

# By opcode, WRITE to ADD: what its completion is called, and what it needs of the other's memory
_TOLD = tuple(int(OPS[opcode][1]) for opcode in CARRIED)
_NEEDED = (e.IBV_ACCESS_REMOTE_WRITE,) * 4 + (e.IBV_ACCESS_REMOTE_READ,) + (e.IBV_ACCESS_REMOTE_ATOMIC,) * 2
_ACCESS = tuple(int(access) for access in _NEEDED)
_WC_RECV, _WC_RECV_IMM = int(e.IBV_WC_RECV), int(e.IBV_WC_RECV_RDMA_WITH_IMM)
_WITH_IMM = int(e.IBV_WC_WITH_IMM)
_SIGNALED, _SOLICITED, _INLINE = int(e.IBV_SEND_SIGNALED), int(e.IBV_SEND_SOLICITED), int(e.IBV_SEND_INLINE)
_LOCAL_WRITE = int(e.IBV_ACCESS_LOCAL_WRITE)
_RTR, _RTS, _SQD = int(e.IBV_QPS_RTR), int(e.IBV_QPS_RTS), int(e.IBV_QPS_SQD)
_LONG_BYTES = 1 << 15
_REGION = 1  # R_OPEN of a region; a window, which is for others only, has 2
_PSN_MASK = 0xFF_FFFF
_WORD = 8
_REQUEST_MAX_BYTES = layout.SEND_FORM.size + PLACES_MAX * layout.PLACE_FORM.size

_process_vm = types.int64(types.int32, types.int64, types.uint64, types.int64, types.uint64, types.uint64)
_write_to: Kernel = types.ExternalFunction("process_vm_writev", _process_vm)
_read_from: Kernel = types.ExternalFunction("process_vm_readv", _process_vm)
_let_others: Kernel = types.ExternalFunction("PyEval_SaveThread", types.uint64())
_go_on: Kernel = types.ExternalFunction("PyEval_RestoreThread", types.void(types.uint64))

_fit, _region_at = part(p_keys_match), part(layout.region_at)


@part
def _opened(memory: int, domain: int, qp: int, key: int, va: int, length: int, access: int, local: bool) -> int:
    """Where the bytes are in the process that the key is of; -1 if it does not open them."""
    at = memory + _region_at(key) * _WORD
    if peek(at, layout.R_KEY) != key or peek(at, layout.R_DOMAIN) != domain:
        return -1
    kind = peek(at, layout.R_OPEN)
    if kind == 0 or (local and kind != _REGION) or peek(at, layout.R_ACCESS) & access != access:
        return -1
    only = peek(at, layout.R_QUEUE_PAIR)
    offset, size = va - peek(at, layout.R_FIRST), peek(at, layout.R_LENGTH)
    if (only != 0 and only != qp) or offset < 0 or offset > size or length > size - offset:  # sums could turn over
        return -1
    return peek(at, layout.R_ADDRESS) + offset


@part
def _own_places(path, write: bool) -> int:
    """Find all elements of the request; how many bytes they are, or -1."""
    own, size, is_inline = path[OWN], 0, path[FLAGS] & _INLINE != 0
    if path[COUNT] > path[COUNT_MAX] or (is_inline and write):
        return -1
    domain = peek(path[OWN_QP], layout.Q_DOMAIN)
    access = _LOCAL_WRITE if write else 0
    for n in range(path[COUNT]):
        address, length, key = path[PLACES + 3 * n], path[PLACES + 3 * n + 1], path[PLACES + 3 * n + 2]
        if length and not is_inline:
            address = _opened(own, domain, 0, key, address, length, access, True)
            if address == -1:
                return -1
        path[_FOUND + n] = address
        size += length
    return -1 if is_inline and size > path[INLINE_MAX] else size


@part
def _copy(path, own: int, far: int, size: int, outward: bool) -> bool:
    """Between an address here and one of the other process; False if the system does not allow it."""
    offset = far - path[FAR_BEGIN]
    if offset >= 0 and offset + size <= path[FAR_SIZE]:
        if outward:
            move(path[FAR] + offset, own, size)
        else:
            move(own, path[FAR] + offset, size)
        return True
    at = path[SELF] + _VECTORS * _WORD
    path[_VECTORS], path[_VECTORS + 1], path[_VECTORS + 2], path[_VECTORS + 3] = own, size, far, size
    if outward:
        return _write_to(path[FAR_PROCESS], at, 1, at + 2 * _WORD, 1, 0) == size
    return _read_from(path[FAR_PROCESS], at, 1, at + 2 * _WORD, 1, 0) == size


@part
def _copy_all(path, far: int, size: int, skipped: int, outward: bool) -> bool:
    """Bytes `skipped` to `skipped + size` of the elements here, and as many in one piece there."""
    n = 0
    while size > 0:
        length = path[PLACES + 3 * n + 1]
        if skipped < length:
            here = min(length - skipped, size)
            if not _copy(path, path[_FOUND + n] + skipped, far, here, outward):
                return False
            far, size, skipped = far + here, size - here, 0
        else:
            skipped -= length
        n += 1
    return True


@part
def _is_ready(path) -> bool:
    """Whether the other end takes the next request of this one."""
    own, far = path[OWN_QP], path[FAR_QP]
    state = peek(far, layout.Q_STATE)
    if state != _RTS and state != _SQD and (state != _RTR or peek(far, layout.Q_IS_ESTABLISHED) == 0):
        return False
    if peek(far, layout.Q_NUMBER) != peek(own, layout.Q_DEST_QP):
        return False
    if peek(far, layout.Q_DEST_QP) != peek(own, layout.Q_NUMBER) or peek(far, layout.Q_SOURCE) != path[SOURCE]:
        return False
    if peek(far, layout.Q_SERVICE) != peek(own, layout.Q_SERVICE) or peek(far, layout.Q_IS_MIDWAY) != 0:
        return False
    if peek(far, layout.Q_EXPECTED) != peek(own, layout.Q_NEXT_PSN):
        return False
    return _fit(peek(own, layout.Q_P_KEY), peek(far, layout.Q_P_KEY))


@part
def _has_place(path) -> bool:
    """Whether the send queue takes it; one that was posted before is in it."""
    own = path[OWN_QP]
    unpolled = peek(own, layout.Q_POSTED) - peek(own, layout.Q_POLLED)  # what is polled orders nothing else
    return path[NUMBER] != 0 or unpolled < peek(own, layout.Q_SENDS_MAX)


@part
def _has_room(ring: int) -> bool:
    """Whether a queue takes a completion without more ado."""
    waiting = peek(ring, layout.CQ_HEAD) - acquire(ring, layout.CQ_TAIL)
    return peek(ring, layout.CQ_IS_BROKEN) == 0 and waiting < peek(ring, layout.CQ_CAPACITY)


@part
def _begin_to_tell(ring: int, qp: int, wr_id: int, opcode: int, size: int) -> int:
    """Address of a new completion in a queue that has room, whose lock is held."""
    slot = peek(ring, layout.CQ_HEAD) % peek(ring, layout.CQ_CAPACITY)
    at = ring + (layout.CQ_ENTRIES + slot * layout.CQ_ENTRY_WORDS) * _WORD
    for n in range(layout.CQ_ENTRY_WORDS):
        poke(at, n, 0)
    poke(at, layout.C_WR_ID, wr_id)
    poke(at, layout.C_QP_NUM, peek(qp, layout.Q_NUMBER))
    poke(at, layout.C_OPCODE, opcode)
    poke(at, layout.C_BYTE_LEN, size)
    return at


@part
def _tell(path, ring: int, at: int) -> None:
    """It is complete."""
    if peek(ring, layout.CQ_STAMPS) != 0:
        poke(at, layout.C_TIME_NS, now_ns(path[SELF] + _VECTORS * _WORD))
    release(ring, layout.CQ_HEAD, peek(ring, layout.CQ_HEAD) + 1)


@part
def _can_take(ring: int) -> bool:
    """Whether a receive request is there, and nobody must be told when it is taken."""
    if peek(ring, layout.RQ_LIMIT) != 0 or peek(ring, layout.RQ_RETURNED) != 0:
        return False
    return acquire(ring, layout.RQ_HEAD) != peek(ring, layout.RQ_TAIL)


@part
def _next_receive(ring: int) -> int:
    """Address of the oldest receive request."""
    words = 2 + 3 * peek(ring, layout.RQ_PLACES_MAX)
    slot = peek(ring, layout.RQ_TAIL) % peek(ring, layout.RQ_CAPACITY)
    return ring + (layout.RQ_ENTRIES + slot * words) * _WORD


@part
def _place(path, work: int, n: int) -> int:
    """Where element n of a receive request is in the other process; -1 if its key does not open it."""
    at = work + (2 + 3 * n) * _WORD
    domain = peek(path[FAR_QP], layout.Q_RECEIVE_DOMAIN)
    va, length, key = peek(at, 0), peek(at, 1), peek(at, 2)
    return _opened(path[FAR], domain, 0, key, va, length, _LOCAL_WRITE, True) if length else 0


@part
def _receive(path, size: int, work: int) -> bool:
    """Put a message where a receive request wants it, if that is right and large enough."""
    room, done, count = 0, 0, peek(work, 1)
    for n in range(count):
        if _place(path, work, n) == -1:
            return False
        room += peek(work, 3 + 3 * n)
    for n in range(count if room >= size else 0):
        here = min(peek(work, 3 + 3 * n), size - done)
        if here and not _copy_all(path, _place(path, work, n), here, done, True):
            return False
        done += here
    return done == size and room >= size


@part
def _atomic(path, address: int) -> bool:
    """On one word, whose lock everybody holds who does this."""
    word = path[SELF] + (_VECTORS + 4) * _WORD
    if not _copy(path, word, address, _WORD, False):
        return False
    before = path[_VECTORS + 4]
    if path[OPCODE] == ADD or before == path[COMPARE]:
        path[_VECTORS + 5] = before + path[COMPARE] if path[OPCODE] == ADD else path[SWAP]
        if not _copy(path, word + _WORD, address, _WORD, True):
            return False
    move(path[_FOUND], word, _WORD)
    return True


@part
def _do(path, size: int) -> bool:
    """What the request wants of the other's memory. False if anything there does not allow it."""
    op, qp = path[OPCODE], path[FAR_QP]
    if op in RECEIVED:
        ring = path[FAR] + peek(qp, layout.Q_RECEIVES) * _WORD
        if not _can_take(ring) or not _has_room(path[FAR] + peek(qp, layout.Q_RECEIVE_CQ) * _WORD):
            return False
        if op != WRITE_IMM:
            return _receive(path, size, _next_receive(ring))
    access = _ACCESS[op]
    if peek(qp, layout.Q_ACCESS) & access == 0 or (op in ANSWERED and peek(qp, layout.Q_READS_MAX) == 0):
        return False
    if size == 0:
        return True
    number, domain = peek(qp, layout.Q_NUMBER), peek(qp, layout.Q_DOMAIN)
    address = _opened(path[FAR], domain, number, path[RKEY], path[VA], size, access, False)
    if address == -1:
        return False
    if op in ATOMICS:
        return path[VA] % _WORD == 0 and _atomic(path, address)
    return _copy_all(path, address, size, 0, op != READ)


@part
def _tell_far(path, size: int) -> int:
    """Take the receive request that was used, and tell of it. RING if somebody waits there."""
    qp, op = path[FAR_QP], path[OPCODE]
    ring = path[FAR] + peek(qp, layout.Q_RECEIVES) * _WORD
    told = path[FAR] + peek(qp, layout.Q_RECEIVE_CQ) * _WORD
    wr_id = peek(_next_receive(ring), 0)
    release(ring, layout.RQ_TAIL, peek(ring, layout.RQ_TAIL) + 1)
    at = _begin_to_tell(told, qp, wr_id, _WC_RECV_IMM if op == WRITE_IMM else _WC_RECV, size)
    if op != SEND:
        poke(at, layout.C_FLAGS, _WITH_IMM)
        poke(at, layout.C_IMMEDIATE, path[IMMEDIATE])
    solicited = 1 if path[FLAGS] & _SOLICITED else 0
    poke(at, layout.C_SOLICITED, solicited)
    poke(at, layout.C_SRC_QP, peek(qp, layout.Q_DEST_QP))
    poke(at, layout.C_PKEY_INDEX, peek(qp, layout.Q_P_KEY_INDEX))
    _tell(path, told, at)
    armed = peek(told, layout.CQ_ARMED)
    if armed == layout.ARMED_FOR_ALL or (armed == layout.ARMED_FOR_SOLICITED and solicited == 1):
        poke(told, layout.CQ_ARMED, 0)
        poke(told, layout.CQ_BELL, 1)
        return RING
    return DONE


@part
def _tell_own(path, size: int) -> int:
    """UNTOLD if that takes more than a kernel does."""
    qp = path[OWN_QP]
    if not path[FLAGS] & _SIGNALED and peek(qp, layout.Q_SIGNALS_ALL) == 0:
        return DONE
    lock = path[OWN] + layout.LOCK * _WORD
    if not take(lock, path[OWN_PROCESS]):
        return UNTOLD
    ring = path[OWN] + peek(qp, layout.Q_SEND_CQ) * _WORD
    can = peek(ring, layout.CQ_ARMED) == 0 and _has_room(ring)
    if can:
        at = _begin_to_tell(ring, qp, path[WR_ID], _TOLD[path[OPCODE]], size)
        poke(at, layout.C_POSTED, path[NUMBER] if path[NUMBER] != 0 else peek(qp, layout.Q_POSTED))
        _tell(path, ring, at)
    release(lock, 0, 0)
    return DONE if can else UNTOLD


@part
def carry_out(path) -> int:
    """One request; see the module."""
    own, op = path[OWN_QP], path[OPCODE]
    if acquire(path[METER], IS_OPEN) == 0 or peek(path[FAR], layout.PROCESS) == 0:
        return CLOSED
    if peek(own, layout.Q_STATE) != _RTS or op < WRITE or op > ADD:
        return SLOW
    if not _has_place(path):
        return SLOW
    answered = op in ANSWERED
    size = _own_places(path, answered)
    if size < 0 or size > MESSAGE_MAX_BYTES or (answered and peek(own, layout.Q_OWN_READS_MAX) == 0):
        return SLOW
    if op in ATOMICS and (size != _WORD or path[PLACES + 1] != _WORD):
        return SLOW
    wait(path[METER], path[SELF] + _VECTORS * _WORD, op, size)
    lock = path[FAR] + layout.LOCK * _WORD
    if not take(lock, path[OWN_PROCESS]):
        return BUSY
    if not _is_ready(path) or not _do(path, size):
        release(lock, 0, 0)
        return SLOW
    far = path[FAR_QP]
    packets = 1 if op in ATOMICS else max(1, -(-size // peek(own, layout.Q_MTU_BYTES)))
    next_psn = (peek(own, layout.Q_NEXT_PSN) + packets) & _PSN_MASK
    code = _tell_far(path, size) if op in RECEIVED else DONE
    poke(far, layout.Q_MSN, (peek(far, layout.Q_MSN) + 1) & _PSN_MASK)
    poke(far, layout.Q_EXPECTED, next_psn)
    release(lock, 0, 0)
    poke(own, layout.Q_NEXT_PSN, next_psn)
    if path[NUMBER] == 0:
        poke(own, layout.Q_POSTED, peek(own, layout.Q_POSTED) + 1)
    count(path[METER], op, size, packets)
    return code | _tell_own(path, size)


@part
def _takes_long(path) -> bool:
    size = 0
    for n in range(path[COUNT]):
        size += path[PLACES + 3 * n + 1]
    return size > _LONG_BYTES or takes_time(path[METER])


@quick_kernel
def post(path, request) -> int:
    """A request as a program packs it, from Python; an empty one is that of before.

    Python's other threads run meanwhile if it takes long: to let them costs as much as a short one.
    """
    if len(request) > _REQUEST_MAX_BYTES:
        return SLOW
    move(path[SELF] + OPCODE * _WORD, where(request), len(request))
    takes_long = _takes_long(path)
    thread = _let_others() if takes_long else np.uint64(0)
    code = carry_out(path)
    if takes_long:
        _go_on(thread)
    return code
