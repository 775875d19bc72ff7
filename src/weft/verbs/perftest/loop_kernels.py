"""Define the kernels of `compiled_loop`, over rings of completions and receive requests.

Both kernels can return at any point and continue later: their state is in `state`. They return when all messages are
done, when nothing arrives for a while, and when Python must act: the code is that of `execute`.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

from numba.core import types

from weft.jit import Kernel, kernel, part
from weft.verbs.enums import IBV_SEND_SIGNALED
from weft.verbs.hca.execute import carry_out, path_at, request_at
from weft.verbs.shm.atomic import acquire, release, view, where
from weft.verbs.shm.layout import Word
from weft.verbs.shm.meter import now_ns
from weft.verbs.shm.requests import BUSY, CLOSED, PATH_BYTES, SEND, SLOW
from weft.verbs.shm.rings import completion_at, completion_queue, put_in_place, queue_pair, receive_queue

FINISHED, WAITING, FAILED = 0, 64, 128  # return codes of a kernel; others are codes of `execute`
# Words of the setup of a test: addresses of rings, and numbers
SEND_CQ, RECEIVE_CQ, CLOCK, COUNT, DEPTH, TOGETHER, SENDS, RECEIVES, BEGINS, OUT_BYTE, IN_BYTE, RING, POLLS = range(13)
SETUP_WORDS = 13
# Words of the state
POSTED, DONE, CAME, AT, TURN, PHASE = range(6)
STATE_WORDS = 6
BEFORE, POST, COMPLETE, AFTER = range(4)  # phases of a turn

_SIGNALED = int(IBV_SEND_SIGNALED)
_UNDONE = SLOW | BUSY | CLOSED
_BUSY_TRIES = 1_000

_word = view(Word)
_yield: Kernel = types.ExternalFunction("sched_yield", types.int32())


@part
def _waiting(queue) -> int:
    """Return the number of completions in a queue."""
    return acquire(queue, "head") - queue.tail


@part
def _oldest(address: int):
    """Return the oldest completion of a queue."""
    queue = completion_queue(address)
    return completion_at(address, queue, queue.tail)


@part
def _take(address: int) -> None:
    queue = completion_queue(address)
    put_in_place(address, queue, queue.tail)
    release(queue, "tail", queue.tail + 1)


@part
def _take_own(address: int, qp: int) -> None:
    """Take a send completion: the places of its request and of all before it are free."""
    queue_pair(qp).polled = _oldest(address).posted
    _take(address)


@part
def _post_again(address: int) -> None:
    """Post the receive request that was used again: all requests of a ring are equal and stay in it."""
    queue = receive_queue(address)
    release(queue, "head", queue.head + 1)


@part
def _is_awaited(path) -> bool:
    """Return whether the peer has a receive request for a message."""
    if request_at(path.request).opcode != SEND:
        return True
    queue = receive_queue(path.far + queue_pair(path.far_qp).receive_queue)
    return acquire(queue, "head") != queue.tail


@part
def _path(paths, qp: int):
    """Return the path of a queue pair by its index."""
    return path_at(where(paths) + qp * PATH_BYTES)


@part
def _execute(path) -> int:
    """Execute a request; while its lock is taken, yield the processor to the holder."""
    code, tries = BUSY, 0
    while code == BUSY and tries < _BUSY_TRIES:
        if tries != 0:
            _yield()
        code = carry_out(path)
        tries += 1
    return code


# -- bandwidth --------------------------------------------------------------------------------------------------------


@part
def _send(paths, setup, state, posted_of, done_of, posted_ns) -> int:
    """Send one message on each queue pair that can send; return -1 if none can."""
    n, result = setup[COUNT], -1
    for qp in range(len(posted_of)):
        path = _path(paths, qp)
        if posted_of[qp] == n or posted_of[qp] - done_of[qp] >= setup[DEPTH] or not _is_awaited(path):
            continue
        number = posted_of[qp] + 1
        signaled = number % setup[TOGETHER] == 0 or number == n
        request = request_at(path.request)
        request.flags = request.flags & ~_SIGNALED | (_SIGNALED if signaled else 0)
        posted_ns[state[POSTED]] = now_ns(setup[CLOCK])
        code = _execute(path)
        if code & _UNDONE == 0:
            posted_of[qp] = number
            state[POSTED] += 1
        if code != 0:
            state[AT] = qp
            return code
        result = 0
    return result


@part
def _take_sent(paths, setup, state, done_of, done_ns) -> int:
    """Take send completions, each of which covers all messages before it; return -1 if there are none."""
    queue, result = setup[SEND_CQ], -1
    while _waiting(completion_queue(queue)) != 0:
        done = _oldest(queue)
        if done.status != 0:
            return FAILED
        qp = done.wr_id
        count = min(setup[TOGETHER], setup[COUNT] - done_of[qp])
        time_ns = now_ns(setup[CLOCK])
        for n in range(state[DONE], state[DONE] + count):
            done_ns[n] = time_ns
        done_of[qp] += count
        state[DONE] += count
        _take_own(queue, _path(paths, qp).own_qp)
        result = 0
    return result


@part
def _take_received(rings, setup, state) -> int:
    """Take receive completions; return -1 if there are none."""
    queue, result = setup[RECEIVE_CQ], -1
    while _waiting(completion_queue(queue)) != 0:
        done = _oldest(queue)
        if done.status != 0:
            return FAILED
        qp = done.wr_id
        _take(queue)
        _post_again(rings[qp])
        state[CAME] += 1
        result = 0
    return result


@kernel
def stream(paths, rings, setup, state, posted_of, done_of, posted_ns, done_ns) -> int:
    """Send (if `SENDS`) and receive (if `RECEIVES`) `COUNT` messages on each queue pair."""
    total, idle = setup[COUNT] * len(posted_of), 0
    while True:
        idle += 1
        if setup[SENDS] != 0:
            code = _send(paths, setup, state, posted_of, done_of, posted_ns)
            if code > 0:
                return code
            taken = _take_sent(paths, setup, state, done_of, done_ns)
            if taken > 0:
                return taken
            if code == 0 or taken == 0:
                idle = 0
        if setup[RECEIVES] != 0:
            code = _take_received(rings, setup, state)
            if code > 0:
                return code
            if code == 0:
                idle = 0
        if (setup[SENDS] == 0 or state[DONE] >= total) and (setup[RECEIVES] == 0 or state[CAME] >= total):
            return FINISHED
        if idle >= setup[POLLS]:
            return WAITING


# -- latency ----------------------------------------------------------------------------------------------------------


@part
def _byte(address: int) -> int:
    return acquire(_word(address & ~7), "value") >> (address & 7) * 8 & 0xFF


@part
def _set_byte(address: int, value: int) -> None:
    """Set a byte of a word that has no other writer."""
    shift = (address & 7) * 8
    word = _word(address & ~7)
    word.value = word.value & ~(0xFF << shift) | value << shift


@part
def _came(setup, turn: int) -> int:
    """Take the peer's message of a turn; return -1 if it has not arrived."""
    if setup[IN_BYTE] != 0:
        return 0 if _byte(setup[IN_BYTE]) == turn & 0xFF else -1
    queue = setup[RECEIVE_CQ]
    if _waiting(completion_queue(queue)) == 0:
        return -1
    if _oldest(queue).status != 0:
        return FAILED
    _take(queue)
    _post_again(setup[RING])
    return 0


@part
def _complete(queue: int, qp: int) -> int:
    """Take the completion of the own message; return -1 if there is none yet."""
    if _waiting(completion_queue(queue)) == 0:
        return -1
    if _oldest(queue).status != 0:
        return FAILED
    _take_own(queue, qp)
    return 0


@part
def _post(path, setup, state, stamps) -> int:
    """Post a message; return -1 if the peer is not ready."""
    turn = state[TURN]
    if not _is_awaited(path):
        return -1
    stamps[turn - 1] = now_ns(setup[CLOCK])
    if setup[OUT_BYTE] != 0:
        _set_byte(setup[OUT_BYTE], turn & 0xFF)
    return _execute(path)


@kernel
def take_turns(paths, setup, state, stamps) -> int:
    """Exchange `COUNT` messages with the peer in turns, or run `COUNT` operations one after the other."""
    path, idle = _path(paths, 0), 0
    while state[TURN] <= setup[COUNT]:
        phase, code = state[PHASE], 0
        if phase == BEFORE and setup[RECEIVES] != 0 and setup[BEGINS] == 0:
            code = _came(setup, state[TURN])
        elif phase == POST:
            code = _post(path, setup, state, stamps)
        elif phase == COMPLETE:
            code = _complete(setup[SEND_CQ], path.own_qp)
        elif phase == AFTER and setup[RECEIVES] != 0 and setup[BEGINS] != 0:
            code = _came(setup, state[TURN])
        if code == -1:
            idle += 1
            if idle >= setup[POLLS]:
                return WAITING
            continue
        if code & (_UNDONE | FAILED) == 0:
            idle = 0
            state[PHASE] = (phase + 1) % 4
            state[TURN] += phase == AFTER
        if code != 0:
            return code
    stamps[setup[COUNT]] = now_ns(setup[CLOCK])
    return FINISHED
