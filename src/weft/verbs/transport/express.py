"""A request carried out at once by who posts it, in the memory of both ends: kernels.

    post(lane) -> code          what `lane` says, at the other end, as its adapter would: nothing there needs to run

Only what succeeds is done here. `SLOW` says that something is not as it should be, a key, a state, a receive request
that is not there; nothing has happened then, and `requester` sends packets, which find out what and tell everybody.
PSNs go on as if packets had been sent, so that both ways can follow each other.

The words of a lane are below: where both memories are, and the request. All else is in `layout`.
"""

from __future__ import annotations

import numpy as np
from numba.core import types

from weft.ids import p_keys_match
from weft.jit import Kernel, part, quick_kernel
from weft.verbs import enums as e
from weft.verbs.transport import layout
from weft.verbs.transport.atomic import acquire, move, peek, poke, release, take, where
from weft.verbs.transport.layout import (
    ARMED_FOR_ALL,
    ARMED_FOR_SOLICITED,
    C_BYTE_LEN,
    C_FLAGS,
    C_IMMEDIATE,
    C_OPCODE,
    C_PKEY_INDEX,
    C_POSTED,
    C_QP_NUM,
    C_SOLICITED,
    C_SRC_QP,
    C_TIME_NS,
    C_WR_ID,
    CQ_ARMED,
    CQ_BELL,
    CQ_CAPACITY,
    CQ_ENTRIES,
    CQ_ENTRY_WORDS,
    CQ_HEAD,
    CQ_IS_BROKEN,
    CQ_STAMPS,
    CQ_TAIL,
    Q_ACCESS,
    Q_DEST_QP,
    Q_DOMAIN,
    Q_EXPECTED,
    Q_IS_ESTABLISHED,
    Q_IS_MIDWAY,
    Q_MSN,
    Q_MTU_BYTES,
    Q_NEXT_PSN,
    Q_NUMBER,
    Q_OWN_READS_MAX,
    Q_P_KEY,
    Q_P_KEY_INDEX,
    Q_POLLED,
    Q_POSTED,
    Q_READS_MAX,
    Q_RECEIVE_CQ,
    Q_RECEIVE_DOMAIN,
    Q_RECEIVES,
    Q_SEND_CQ,
    Q_SENDS_MAX,
    Q_SERVICE,
    Q_SIGNALS_ALL,
    Q_SOURCE,
    Q_STATE,
    R_ACCESS,
    R_ADDRESS,
    R_DOMAIN,
    R_FIRST,
    R_KEY,
    R_LENGTH,
    R_OPEN,
    R_QUEUE_PAIR,
    RQ_CAPACITY,
    RQ_ENTRIES,
    RQ_HEAD,
    RQ_LIMIT,
    RQ_PLACES_MAX,
    RQ_RETURNED,
    RQ_TAIL,
)
from weft.verbs.transport.segment import MESSAGE_MAX_BYTES

PLACES_MAX = 32
# Where: addresses in this process, unless it says otherwise
OWN, FAR, FAR_BEGIN, FAR_SIZE, OWN_QP, FAR_QP, FAR_PROCESS, OWN_PROCESS, SOURCE, METER, SELF = range(11)
COUNT_MAX, INLINE_MAX = 11, 12  # elements of a request, and bytes that may be inline
# What: `layout.SEND_FORM`, then elements. NUMBER is 0, or of one that was posted before: which one of its queue pair
OPCODE, FLAGS, WR_ID, IMMEDIATE, VA, RKEY, COMPARE, SWAP, COUNT, NUMBER = range(16, 26)
PLACES = 26  # address, length, lkey of each
_FOUND = PLACES + 3 * PLACES_MAX  # address of each in this process
_VECTORS = _FOUND + PLACES_MAX  # for system calls
LANE_WORDS = _VECTORS + 8

DONE, RING, UNTOLD, SLOW, BUSY, CLOSED = 0, 1, 2, 4, 8, 16  # RING and UNTOLD: done, and there is something left to do

# Of a meter, in words
IS_OPEN, REQUESTS, REQUEST_BYTES, RESPONSES, RESPONSE_BYTES, LATENCY_NS, BYTE_PS, FREE_NS = range(8)
METER_WORDS = 8

_WRITE, _WRITE_IMM = int(e.IBV_WR_RDMA_WRITE), int(e.IBV_WR_RDMA_WRITE_WITH_IMM)
_SEND, _SEND_IMM = int(e.IBV_WR_SEND), int(e.IBV_WR_SEND_WITH_IMM)
_READ, _SWAP, _ADD = int(e.IBV_WR_RDMA_READ), int(e.IBV_WR_ATOMIC_CMP_AND_SWP), int(e.IBV_WR_ATOMIC_FETCH_AND_ADD)
_RECEIVED, _WITH_IMMEDIATE, _WRITES = (_SEND, _SEND_IMM, _WRITE_IMM), (_SEND_IMM, _WRITE_IMM), (_WRITE, _WRITE_IMM)
_ATOMICS, _ANSWERED = (_SWAP, _ADD), (_READ, _SWAP, _ADD)
_TOLD = (e.IBV_WC_SEND, e.IBV_WC_RDMA_WRITE, e.IBV_WC_RDMA_READ, e.IBV_WC_COMP_SWAP, e.IBV_WC_FETCH_ADD)
_WC_SEND, _WC_WRITE, _WC_READ, _WC_SWAP, _WC_ADD = (int(one) for one in _TOLD)
_WC_RECV, _WC_RECV_IMM = int(e.IBV_WC_RECV), int(e.IBV_WC_RECV_RDMA_WITH_IMM)
_WITH_IMM = int(e.IBV_WC_WITH_IMM)
_SIGNALED, _SOLICITED, _INLINE = int(e.IBV_SEND_SIGNALED), int(e.IBV_SEND_SOLICITED), int(e.IBV_SEND_INLINE)
_LOCAL_WRITE, _REMOTE_WRITE = int(e.IBV_ACCESS_LOCAL_WRITE), int(e.IBV_ACCESS_REMOTE_WRITE)
_REMOTE_READ, _REMOTE_ATOMIC = int(e.IBV_ACCESS_REMOTE_READ), int(e.IBV_ACCESS_REMOTE_ATOMIC)
_RTR, _RTS, _SQD = int(e.IBV_QPS_RTR), int(e.IBV_QPS_RTS), int(e.IBV_QPS_SQD)
_REGIONS, _REGIONS_MAX, _REGION_WORDS = layout.REGIONS, layout.REGIONS_MAX, layout.REGION_WORDS
_LOCK = layout.LOCK
_PROCESS = layout.PROCESS
_MONOTONIC = 1  # clock of Linux
_LONG_BYTES = 1 << 15
_REGION = 1  # R_OPEN of a region; a window, which is for others only, has 2
_PSN_MASK = 0xFF_FFFF
_WORD = 8
_REQUEST_MAX_BYTES = layout.SEND_FORM.size + PLACES_MAX * layout.PLACE_FORM.size
_HEADERS, _RETH, _IMM, _AETH, _ATOMIC_ETH, _VALUE = 16, 16, 4, 4, 28, 8  # BTH and ICRC; others, bytes

_process_vm = types.int64(types.int32, types.int64, types.uint64, types.int64, types.uint64, types.uint64)
_write_to: Kernel = types.ExternalFunction("process_vm_writev", _process_vm)
_read_from: Kernel = types.ExternalFunction("process_vm_readv", _process_vm)
_let_others: Kernel = types.ExternalFunction("PyEval_SaveThread", types.uint64())
_go_on: Kernel = types.ExternalFunction("PyEval_RestoreThread", types.void(types.uint64))
_clock: Kernel = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))


_fit = part(p_keys_match)


@part
def now_ns(scratch: int) -> int:
    _clock(_MONOTONIC, scratch)
    return peek(scratch) * 1_000_000_000 + peek(scratch + _WORD)  # type: ignore[no-any-return]


@part
def _opened(memory: int, domain: int, qp: int, key: int, va: int, length: int, access: int, local: bool) -> int:
    """Where the bytes are in the process that the key is of; -1 if it does not open them."""
    at = memory + (_REGIONS + (key >> 8) % _REGIONS_MAX * _REGION_WORDS) * _WORD
    if peek(at + R_KEY * _WORD) != key or peek(at + R_DOMAIN * _WORD) != domain:
        return -1
    kind = peek(at + R_OPEN * _WORD)
    if kind == 0 or (local and kind != _REGION) or peek(at + R_ACCESS * _WORD) & access != access:
        return -1
    only = peek(at + R_QUEUE_PAIR * _WORD)
    offset, size = va - peek(at + R_FIRST * _WORD), peek(at + R_LENGTH * _WORD)
    if (only != 0 and only != qp) or offset < 0 or offset > size or length > size - offset:  # sums could turn over
        return -1
    return peek(at + R_ADDRESS * _WORD) + offset  # type: ignore[no-any-return]


@part
def _own_places(lane, write: bool) -> int:  # type: ignore[no-untyped-def]
    """Find all elements of the request; how many bytes they are, or -1."""
    own, size, is_inline = lane[OWN], 0, lane[FLAGS] & _INLINE != 0
    if lane[COUNT] > lane[COUNT_MAX] or (is_inline and write):
        return -1
    domain = peek(lane[OWN_QP] + Q_DOMAIN * _WORD)
    access = _LOCAL_WRITE if write else 0
    for n in range(lane[COUNT]):
        address, length, key = lane[PLACES + 3 * n], lane[PLACES + 3 * n + 1], lane[PLACES + 3 * n + 2]
        if length and not is_inline:
            address = _opened(own, domain, 0, key, address, length, access, True)
            if address == -1:
                return -1
        lane[_FOUND + n] = address
        size += length
    return -1 if is_inline and size > lane[INLINE_MAX] else size


@part
def _copy(lane, own: int, far: int, size: int, outward: bool) -> bool:  # type: ignore[no-untyped-def]
    """Between an address here and one of the other process; False if the system does not allow it."""
    offset = far - lane[FAR_BEGIN]
    if offset >= 0 and offset + size <= lane[FAR_SIZE]:
        if outward:
            move(lane[FAR] + offset, own, size)
        else:
            move(own, lane[FAR] + offset, size)
        return True
    at = lane[SELF] + _VECTORS * _WORD
    lane[_VECTORS], lane[_VECTORS + 1], lane[_VECTORS + 2], lane[_VECTORS + 3] = own, size, far, size
    if outward:
        return _write_to(lane[FAR_PROCESS], at, 1, at + 2 * _WORD, 1, 0) == size  # type: ignore[no-any-return]
    return _read_from(lane[FAR_PROCESS], at, 1, at + 2 * _WORD, 1, 0) == size  # type: ignore[no-any-return]


@part
def _copy_all(lane, far: int, size: int, skipped: int, outward: bool) -> bool:  # type: ignore[no-untyped-def]
    """Bytes `skipped` to `skipped + size` of the elements here, and as many in one piece there."""
    n = 0
    while size > 0:
        length = lane[PLACES + 3 * n + 1]
        if skipped < length:
            here = min(length - skipped, size)
            if not _copy(lane, lane[_FOUND + n] + skipped, far, here, outward):
                return False
            far, size, skipped = far + here, size - here, 0
        else:
            skipped -= length
        n += 1
    return True


@part
def _is_ready(lane) -> bool:  # type: ignore[no-untyped-def]
    """Whether the other end takes the next request of this one."""
    own, far = lane[OWN_QP], lane[FAR_QP]
    state = peek(far + Q_STATE * _WORD)
    if state != _RTS and state != _SQD and (state != _RTR or peek(far + Q_IS_ESTABLISHED * _WORD) == 0):
        return False
    if peek(far + Q_NUMBER * _WORD) != peek(own + Q_DEST_QP * _WORD):
        return False
    if peek(far + Q_DEST_QP * _WORD) != peek(own + Q_NUMBER * _WORD) or peek(far + Q_SOURCE * _WORD) != lane[SOURCE]:
        return False
    if peek(far + Q_SERVICE * _WORD) != peek(own + Q_SERVICE * _WORD) or peek(far + Q_IS_MIDWAY * _WORD) != 0:
        return False
    if peek(far + Q_EXPECTED * _WORD) != peek(own + Q_NEXT_PSN * _WORD):
        return False
    return _fit(peek(own + Q_P_KEY * _WORD), peek(far + Q_P_KEY * _WORD))  # type: ignore[no-any-return]


@part
def _has_place(lane) -> bool:  # type: ignore[no-untyped-def]
    """Whether the send queue takes it; one that was posted before is in it."""
    own = lane[OWN_QP]
    unpolled = peek(own + Q_POSTED * _WORD) - peek(own + Q_POLLED * _WORD)  # what is polled orders nothing else
    return lane[NUMBER] != 0 or unpolled < peek(own + Q_SENDS_MAX * _WORD)  # type: ignore[no-any-return]


@part
def _has_room(ring: int) -> bool:
    """Whether a queue takes a completion without more ado."""
    waiting = peek(ring + CQ_HEAD * _WORD) - acquire(ring + CQ_TAIL * _WORD)
    return peek(ring + CQ_IS_BROKEN * _WORD) == 0 and waiting < peek(ring + CQ_CAPACITY * _WORD)  # type: ignore[no-any-return]


@part
def _tell(  # type: ignore[no-untyped-def]
    lane,
    ring: int,
    qp: int,
    wr_id: int,
    opcode: int,
    size: int,
    flags: int,
    immediate: int,
    src: int,
    solicited: int,
    posted: int,
) -> None:
    """Add a completion to a queue that has room, whose lock is held."""
    head = peek(ring + CQ_HEAD * _WORD)
    at = ring + (CQ_ENTRIES + head % peek(ring + CQ_CAPACITY * _WORD) * CQ_ENTRY_WORDS) * _WORD
    for n in range(CQ_ENTRY_WORDS):
        poke(at + n * _WORD, 0)
    poke(at + C_WR_ID * _WORD, wr_id)
    poke(at + C_QP_NUM * _WORD, peek(qp + Q_NUMBER * _WORD))
    poke(at + C_OPCODE * _WORD, opcode)
    poke(at + C_BYTE_LEN * _WORD, size)
    poke(at + C_FLAGS * _WORD, flags)
    poke(at + C_IMMEDIATE * _WORD, immediate)
    poke(at + C_SRC_QP * _WORD, src)
    poke(at + C_SOLICITED * _WORD, solicited)
    poke(at + C_POSTED * _WORD, posted)
    if opcode >= _WC_RECV:
        poke(at + C_PKEY_INDEX * _WORD, peek(qp + Q_P_KEY_INDEX * _WORD))
    if peek(ring + CQ_STAMPS * _WORD) != 0:
        poke(at + C_TIME_NS * _WORD, now_ns(lane[SELF] + _VECTORS * _WORD))
    release(ring + CQ_HEAD * _WORD, head + 1)


@part
def _can_take(ring: int) -> bool:
    """Whether a receive request is there, and nobody must be told when it is taken."""
    if peek(ring + RQ_LIMIT * _WORD) != 0 or peek(ring + RQ_RETURNED * _WORD) != 0:
        return False
    return acquire(ring + RQ_HEAD * _WORD) != peek(ring + RQ_TAIL * _WORD)  # type: ignore[no-any-return]


@part
def _next_receive(ring: int) -> int:
    """Address of the oldest receive request."""
    words = 2 + 3 * peek(ring + RQ_PLACES_MAX * _WORD)
    slot = peek(ring + RQ_TAIL * _WORD) % peek(ring + RQ_CAPACITY * _WORD)
    return ring + (RQ_ENTRIES + slot * words) * _WORD  # type: ignore[no-any-return]


@part
def _place(lane, work: int, n: int) -> int:  # type: ignore[no-untyped-def]
    """Where element n of a receive request is in the other process; -1 if its key does not open it."""
    at = work + (2 + 3 * n) * _WORD
    domain = peek(lane[FAR_QP] + Q_RECEIVE_DOMAIN * _WORD)
    va, length, key = peek(at), peek(at + _WORD), peek(at + 2 * _WORD)
    return _opened(lane[FAR], domain, 0, key, va, length, _LOCAL_WRITE, True) if length else 0


@part
def _receive(lane, size: int, work: int) -> bool:  # type: ignore[no-untyped-def]
    """Put a message where a receive request wants it, if that is right and large enough."""
    room, done, count = 0, 0, peek(work + _WORD)
    for n in range(count):
        if _place(lane, work, n) == -1:
            return False
        room += peek(work + (3 + 3 * n) * _WORD)
    for n in range(count if room >= size else 0):
        here = min(peek(work + (3 + 3 * n) * _WORD), size - done)
        if here and not _copy_all(lane, _place(lane, work, n), here, done, True):
            return False
        done += here
    return done == size and room >= size


@part
def _atomic(lane, address: int) -> bool:  # type: ignore[no-untyped-def]
    """On one word, whose lock everybody holds who does this."""
    word = lane[SELF] + (_VECTORS + 4) * _WORD
    if not _copy(lane, word, address, _WORD, False):
        return False
    before = lane[_VECTORS + 4]
    if lane[OPCODE] == _ADD or before == lane[COMPARE]:
        lane[_VECTORS + 5] = before + lane[COMPARE] if lane[OPCODE] == _ADD else lane[SWAP]
        if not _copy(lane, word + _WORD, address, _WORD, True):
            return False
    move(lane[_FOUND], word, _WORD)
    return True


@part
def _do(lane, size: int) -> bool:  # type: ignore[no-untyped-def]
    """What the request wants of the other's memory. False if anything there does not allow it."""
    op, qp = lane[OPCODE], lane[FAR_QP]
    if op in _RECEIVED:
        ring = lane[FAR] + peek(qp + Q_RECEIVES * _WORD) * _WORD
        if not _can_take(ring) or not _has_room(lane[FAR] + peek(qp + Q_RECEIVE_CQ * _WORD) * _WORD):
            return False
        if op != _WRITE_IMM:
            return _receive(lane, size, _next_receive(ring))  # type: ignore[no-any-return]
    allowed = peek(qp + Q_ACCESS * _WORD)
    access = _REMOTE_WRITE
    if op == _READ:
        access = _REMOTE_READ
    elif op in _ATOMICS:
        access = _REMOTE_ATOMIC
    if allowed & access == 0:
        return False
    if access != _REMOTE_WRITE and peek(qp + Q_READS_MAX * _WORD) == 0:
        return False
    if size == 0:
        return True
    number, domain = peek(qp + Q_NUMBER * _WORD), peek(qp + Q_DOMAIN * _WORD)
    address = _opened(lane[FAR], domain, number, lane[RKEY], lane[VA], size, access, False)
    if address == -1:
        return False
    if access == _REMOTE_ATOMIC:
        return lane[VA] % _WORD == 0 and _atomic(lane, address)  # type: ignore[no-any-return]
    return _copy_all(lane, address, size, 0, op != _READ)  # type: ignore[no-any-return]


@part
def _tell_far(lane, size: int) -> int:  # type: ignore[no-untyped-def]
    """Take the receive request that was used, and tell of it. RING if somebody waits there."""
    qp, op = lane[FAR_QP], lane[OPCODE]
    ring = lane[FAR] + peek(qp + Q_RECEIVES * _WORD) * _WORD
    told = lane[FAR] + peek(qp + Q_RECEIVE_CQ * _WORD) * _WORD
    wr_id = peek(_next_receive(ring))
    release(ring + RQ_TAIL * _WORD, peek(ring + RQ_TAIL * _WORD) + 1)
    has_immediate = op != _SEND
    solicited = 1 if lane[FLAGS] & _SOLICITED else 0
    _tell(
        lane,
        told,
        qp,
        wr_id,
        _WC_RECV_IMM if op == _WRITE_IMM else _WC_RECV,
        size,
        _WITH_IMM if has_immediate else 0,
        lane[IMMEDIATE] if has_immediate else 0,
        peek(qp + Q_DEST_QP * _WORD),
        solicited,
        0,
    )
    armed = peek(told + CQ_ARMED * _WORD)
    if armed == ARMED_FOR_ALL or (armed == ARMED_FOR_SOLICITED and solicited == 1):
        poke(told + CQ_ARMED * _WORD, 0)
        poke(told + CQ_BELL * _WORD, 1)
        return RING
    return DONE


@part
def _tell_own(lane, size: int) -> int:  # type: ignore[no-untyped-def]
    """UNTOLD if that takes more than a kernel does."""
    qp, op = lane[OWN_QP], lane[OPCODE]
    if not lane[FLAGS] & _SIGNALED and peek(qp + Q_SIGNALS_ALL * _WORD) == 0:
        return DONE
    opcode = _WC_SEND
    if op in _WRITES:
        opcode = _WC_WRITE
    elif op == _READ:
        opcode = _WC_READ
    elif op == _SWAP:
        opcode = _WC_SWAP
    elif op == _ADD:
        opcode = _WC_ADD
    lock = lane[OWN] + _LOCK * _WORD
    if not take(lock, lane[OWN_PROCESS]):
        return UNTOLD
    ring = lane[OWN] + peek(qp + Q_SEND_CQ * _WORD) * _WORD
    can = peek(ring + CQ_ARMED * _WORD) == 0 and _has_room(ring)
    if can:
        posted = lane[NUMBER] if lane[NUMBER] != 0 else peek(qp + Q_POSTED * _WORD)
        _tell(lane, ring, qp, lane[WR_ID], opcode, size, 0, 0, 0, 0, posted)
    release(lock, 0)
    return DONE if can else UNTOLD


@part
def _padded(size: int, packets: int) -> int:
    return (size + 3) // 4 * 4 + packets * _HEADERS


@part
def _count(lane, size: int, packets: int) -> None:  # type: ignore[no-untyped-def]
    """What would have gone over the wire, there and back."""
    op, meter = lane[OPCODE], lane[METER]
    sent, there, came, back = packets, _padded(size, packets), 1, _HEADERS + _AETH
    if op == _READ:
        sent, there = 1, _HEADERS + _RETH
        came, back = packets, _padded(size, packets) + min(packets, 2) * _AETH
    elif op in _ATOMICS:
        there, back = _HEADERS + _ATOMIC_ETH, _HEADERS + _AETH + _VALUE
    else:
        if op in _WRITES:
            there += _RETH
        if op in _WITH_IMMEDIATE:
            there += _IMM
    poke(meter + REQUESTS * _WORD, peek(meter + REQUESTS * _WORD) + sent)
    poke(meter + REQUEST_BYTES * _WORD, peek(meter + REQUEST_BYTES * _WORD) + there)
    poke(meter + RESPONSES * _WORD, peek(meter + RESPONSES * _WORD) + came)
    poke(meter + RESPONSE_BYTES * _WORD, peek(meter + RESPONSE_BYTES * _WORD) + back)


@part
def _wait(lane, size: int) -> None:  # type: ignore[no-untyped-def]
    """Until the message would have arrived, on links that take time."""
    meter, clock = lane[METER], lane[SELF] + _VECTORS * _WORD
    latency_ns, byte_ps = peek(meter + LATENCY_NS * _WORD), peek(meter + BYTE_PS * _WORD)
    if latency_ns == 0 and byte_ps == 0:
        return
    begin_ns = max(now_ns(clock), peek(meter + FREE_NS * _WORD))
    end_ns = begin_ns + size * byte_ps // 1000
    poke(meter + FREE_NS * _WORD, end_ns)
    answered = lane[OPCODE] in _ANSWERED
    arrives_ns = end_ns + (2 * latency_ns if answered else latency_ns)
    while now_ns(clock) < arrives_ns:
        pass


@part
def carry_out(lane) -> int:  # type: ignore[no-untyped-def]
    """One request; see the module."""
    own, op = lane[OWN_QP], lane[OPCODE]
    if acquire(lane[METER] + IS_OPEN * _WORD) == 0 or peek(lane[FAR] + _PROCESS * _WORD) == 0:
        return CLOSED
    if peek(own + Q_STATE * _WORD) != _RTS or op < _WRITE or op > _ADD:
        return SLOW
    if not _has_place(lane):
        return SLOW
    answered = op in _ANSWERED
    size = _own_places(lane, answered)
    if size < 0 or size > MESSAGE_MAX_BYTES or (answered and peek(own + Q_OWN_READS_MAX * _WORD) == 0):
        return SLOW
    if op in _ATOMICS and (size != _WORD or lane[PLACES + 1] != _WORD):
        return SLOW
    _wait(lane, size)
    lock = lane[FAR] + _LOCK * _WORD
    if not take(lock, lane[OWN_PROCESS]):
        return BUSY
    if not _is_ready(lane) or not _do(lane, size):
        release(lock, 0)
        return SLOW
    far = lane[FAR_QP]
    packets = 1 if op in _ATOMICS else max(1, -(-size // peek(own + Q_MTU_BYTES * _WORD)))
    next_psn = (peek(own + Q_NEXT_PSN * _WORD) + packets) & _PSN_MASK
    code = _tell_far(lane, size) if op in _RECEIVED else DONE
    poke(far + Q_MSN * _WORD, (peek(far + Q_MSN * _WORD) + 1) & _PSN_MASK)
    poke(far + Q_EXPECTED * _WORD, next_psn)
    release(lock, 0)
    poke(own + Q_NEXT_PSN * _WORD, next_psn)
    if lane[NUMBER] == 0:
        poke(own + Q_POSTED * _WORD, peek(own + Q_POSTED * _WORD) + 1)
    _count(lane, size, packets)
    return code | _tell_own(lane, size)  # type: ignore[no-any-return]


@part
def _takes_long(lane) -> bool:  # type: ignore[no-untyped-def]
    size, meter = 0, lane[METER]
    for n in range(lane[COUNT]):
        size += lane[PLACES + 3 * n + 1]
    return size > _LONG_BYTES or peek(meter + LATENCY_NS * _WORD) != 0 or peek(meter + BYTE_PS * _WORD) != 0


@quick_kernel
def post(lane, request) -> int:  # type: ignore[no-untyped-def]
    """A request as a program packs it, from Python; an empty one is that of before.

    Python's other threads run meanwhile if it takes long: to let them costs as much as a short one.
    """
    if len(request) > _REQUEST_MAX_BYTES:
        return SLOW
    move(lane[SELF] + OPCODE * _WORD, where(request), len(request))
    takes_long = _takes_long(lane)
    thread = _let_others() if takes_long else np.uint64(0)
    code = carry_out(lane)
    if takes_long:
        _go_on(thread)
    return code  # type: ignore[no-any-return]
