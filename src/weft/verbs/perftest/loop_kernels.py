"""The loops of `compiled_loop`, over rings of completions and receive requests, and requests that are done at once.

Both kernels can leave at any point and go on later: all that they know is in `state`. They leave when all is done, when
nothing comes for a while, and when Python must do something: `execute` says what.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

from numba.core import types

from weft.jit import Kernel, kernel, part
from weft.verbs.enums import IBV_SEND_SIGNALED
from weft.verbs.hca.execute import BUSY, CLOSED, PATH_BYTES, SLOW, carry_out, path_at, request_at
from weft.verbs.shm.atomic import Word, acquire, release, view, where
from weft.verbs.shm.meter import SEND, now_ns
from weft.verbs.shm.rings import completion_at, completion_queue, put_in_place, queue_pair, receive_queue

FINISHED, WAITING, FAILED = 0, 64, 128  # why a kernel returned; else a code of `execute`
# Of a test, in words: addresses of rings, and numbers
SEND_CQ, RECEIVE_CQ, CLOCK, COUNT, DEPTH, TOGETHER, SENDS, RECEIVES, BEGINS, OUT_BYTE, IN_BYTE, RING, POLLS = range(13)
SETUP_WORDS = 13
# How far it is
POSTED, DONE, CAME, AT, TURN, PHASE = range(6)
STATE_WORDS = 6
BEFORE, POST, TOLD, AFTER = range(4)  # phases of a turn

_SIGNALED = int(IBV_SEND_SIGNALED)
_UNDONE = SLOW | BUSY | CLOSED
_BUSY_TRIES = 1_000

_word = view(Word)
_yield: Kernel = types.ExternalFunction("sched_yield", types.int32())


@part
def _waiting(queue) -> int:
    """Completions that nobody took."""
    return acquire(queue, "head") - queue.tail


@part
def _oldest(address: int):
    """The completion that is to be taken next."""
    queue = completion_queue(address)
    return completion_at(address, queue, queue.tail)


@part
def _take(address: int) -> None:
    queue = completion_queue(address)
    put_in_place(address, queue, queue.tail)
    release(queue, "tail", queue.tail + 1)


@part
def _take_own(address: int, qp: int) -> None:
    """A completion of what this queue pair sent: its place is free again, and those of all before it."""
    queue_pair(qp).polled = _oldest(address).posted
    _take(address)


@part
def _post_again(address: int) -> None:
    """The receive request that was used: all of a ring are alike, and are still there."""
    queue = receive_queue(address)
    release(queue, "head", queue.head + 1)


@part
def _is_awaited(path) -> bool:
    """Whether the other end has a place for a message; it may have one soon."""
    if request_at(path.request).opcode != SEND:
        return True
    queue = receive_queue(path.far + queue_pair(path.far_qp).receive_queue)
    return acquire(queue, "head") != queue.tail


@part
def _path(paths, qp: int):
    """That of a queue pair, by its index."""
    return path_at(where(paths) + qp * PATH_BYTES)


@part
def _carry_out(path) -> int:
    """As `execute`; who has a lock may have been interrupted, and needs a processor."""
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
    """One message of each queue pair that may send one; -1 if none could."""
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
        code = _carry_out(path)
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
    """Completions of what was sent: each speaks for all before it. -1 if there was none."""
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
    """-1 if nothing came."""
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
    """Send and receive `COUNT` messages of each queue pair, as far as `SENDS` and `RECEIVES` say so."""
    total, idle = setup[COUNT] * len(posted_of), 0
    while True:
        idle += 1
        if setup[SENDS] != 0:
            code = _send(paths, setup, state, posted_of, done_of, posted_ns)
            if code > 0:
                return code
            told = _take_sent(paths, setup, state, done_of, done_ns)
            if told > 0:
                return told
            if code == 0 or told == 0:
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
    """Of a word that nobody else writes."""
    shift = (address & 7) * 8
    word = _word(address & ~7)
    word.value = word.value & ~(0xFF << shift) | value << shift


@part
def _came(setup, turn: int) -> int:
    """-1 if the other's message of this turn is not here yet."""
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
def _told(queue: int, qp: int) -> int:
    """-1 if nothing says yet that the own message is done."""
    if _waiting(completion_queue(queue)) == 0:
        return -1
    if _oldest(queue).status != 0:
        return FAILED
    _take_own(queue, qp)
    return 0


@part
def _post(path, setup, state, stamps) -> int:
    """-1 if the other end is not ready."""
    turn = state[TURN]
    if not _is_awaited(path):
        return -1
    stamps[turn - 1] = now_ns(setup[CLOCK])
    if setup[OUT_BYTE] != 0:
        _set_byte(setup[OUT_BYTE], turn & 0xFF)
    return _carry_out(path)


@kernel
def take_turns(paths, setup, state, stamps) -> int:
    """A message there and one back, `COUNT` times; or if none comes back, one after the other."""
    path, idle = _path(paths, 0), 0
    while state[TURN] <= setup[COUNT]:
        phase, code = state[PHASE], 0
        if phase == BEFORE and setup[RECEIVES] != 0 and setup[BEGINS] == 0:
            code = _came(setup, state[TURN])
        elif phase == POST:
            code = _post(path, setup, state, stamps)
        elif phase == TOLD:
            code = _told(setup[SEND_CQ], path.own_qp)
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
