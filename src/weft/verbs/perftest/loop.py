"""Run the measurement loops of perftest with post_send and poll.

    bandwidth     keep a number of messages in flight, and receive
    pingpong      one message there, one back; WRITE waits for the memory to change, SEND for a completion
    roundtrips    one READ or atomic after the other

Each end runs its own `Loop`, chosen in `engines`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weft.errors import SubnetError
from weft.verbs.enums import IBV_WC_SUCCESS
from weft.verbs.perftest.endpoint import Endpoint
from weft.verbs.perftest.kinds import Verb
from weft.verbs.perftest.report import Times
from weft.verbs.pyverbs.cq import CQ, WC
from weft.verbs.pyverbs.wc import cqe_status_to_str

_POLL = 16  # completions at a time; perftest's CQE Poll Batch
_CHECK_EVERY = 1024  # empty polls between two readings of the clock
_SWITCH_S = 20e-6  # thread switch interval: with Python's default the adapter's thread would add 5 ms of latency
_now_ns: Callable[[], int] = time.perf_counter_ns
Wait = Callable[[int], None]  # waits for the peer's message of a turn
# Called by a loop that receives nothing, with the seconds since the last progress: True if no message will come.
Watch = Callable[[float], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A run of messages of one size on both ends."""

    number: int
    size_bytes: int
    iterations: int  # of each queue pair


class Loop(Protocol):
    engine: str

    def bandwidth(self, batch: Batch, *, sends: bool, receives: bool) -> tuple[Times | None, int]:
        """Send and receive; return the times of sent messages, and the number of received ones."""
        ...

    def pingpong(self, batch: Batch, *, begins: bool) -> NDArray[np.int64]:
        """Return when each message was sent, and the end, in nanoseconds: int64[iterations + 1]."""
        ...

    def roundtrips(self, batch: Batch) -> NDArray[np.int64]:
        """Return the times as `pingpong` does, of operations for which the peer does nothing."""
        ...


class PythonLoop:
    engine = "python"

    def __init__(self, end: Endpoint, watch: Watch) -> None:
        self.end, self._has_failed = end, watch
        self._idle, self._since_ns = 0, 0
        sys.setswitchinterval(_SWITCH_S)

    # -- bandwidth ----------------------------------------------------------------------------------------------------

    def bandwidth(self, batch: Batch, *, sends: bool, receives: bool) -> tuple[Times | None, int]:
        n = len(self.end.qps) * batch.iterations
        out = _Outgoing(self.end, batch) if sends else None
        came = 0
        while (out is not None and out.done < n) or (receives and came < n):
            moved = 0
            if out is not None:
                moved = out.post() + self._each(self.end.send_cq, out.on_done)
            if receives:
                got = self._each(self.end.recv_cq, self._repost)
                came += got
                moved += got
            if moved:
                self._idle = 0
            elif self._is_over():
                break
        return (out.times() if out is not None else None), came

    def _each(self, cq: CQ, act: Callable[[WC], None]) -> int:
        count, completions = cq.poll(_POLL)
        for done in completions:
            check(done)
            act(done)
        return count

    def _repost(self, done: WC) -> None:
        self.end.qps[done.wr_id].post_recv(self.end.receive(done.wr_id))

    # -- latency ------------------------------------------------------------------------------------------------------

    def pingpong(self, batch: Batch, *, begins: bool) -> NDArray[np.int64]:
        wait = self._wait_for_byte(batch) if self.end.plan.verb is Verb.WRITE else self._wait_for_message
        return self._take_turns(batch, after=wait) if begins else self._take_turns(batch, before=wait)

    def roundtrips(self, batch: Batch) -> NDArray[np.int64]:
        return self._take_turns(batch)

    def _take_turns(self, batch: Batch, before: Wait | None = None, after: Wait | None = None) -> NDArray[np.int64]:
        end = self.end
        post, work = end.qps[0].post_send, end.work(0, batch.size_bytes, signaled=True)
        last = end.outgoing(0) + batch.size_bytes - 1
        counts = end.plan.verb is Verb.WRITE
        stamps = np.zeros(batch.iterations + 1, np.int64)
        for turn in range(1, batch.iterations + 1):
            if before is not None:
                before(turn)
            stamps[turn - 1] = _now_ns()
            if counts:
                end.memory[last] = turn & 0xFF
            post(work)
            self._take(end.send_cq)
            if after is not None:
                after(turn)
        stamps[-1] = _now_ns()
        return stamps

    def _wait_for_byte(self, batch: Batch) -> Wait:
        """Return a wait for the last byte of a message, a counter modulo 256. Polling drives the adapter meanwhile."""
        memory, cq = self.end.memory, self.end.recv_cq
        at = self.end.incoming(0) + batch.size_bytes - 1

        def wait(turn: int) -> None:
            while memory[at] != turn & 0xFF:
                cq.poll(1)
                self._give_up_if_over()
            self._idle = 0

        return wait

    def _wait_for_message(self, turn: int) -> None:
        self._repost(self._take(self.end.recv_cq))

    def _take(self, cq: CQ) -> WC:
        """Wait for the next completion and return it."""
        while True:
            completions = cq.poll(1)[1] or self._await(cq)
            if completions:
                self._idle = 0
                check(completions[0])
                return completions[0]

    def _await(self, cq: CQ) -> list[WC]:
        """Return and poll again, or wait for an event of the queue's channel."""
        if cq.comp_channel is None:
            self._give_up_if_over()
            return []
        cq.req_notify()
        completions = cq.poll(1)[1]  # one may have arrived before the request
        if not completions:
            cq.comp_channel.get_cq_event(cq)
            cq.ack_events(1)
        return completions

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Count an empty poll; return whether no message will come any more."""
        self._idle += 1
        if self._idle == 1:
            self._since_ns = _now_ns()
        time.sleep(0)  # let the adapter's thread run
        if self._idle % _CHECK_EVERY:
            return False
        return self._has_failed((_now_ns() - self._since_ns) / 1e9)

    def _give_up_if_over(self) -> None:
        if self._is_over():
            raise SubnetError("a message was lost, and this transport does not repeat it: use -c RC")


def check(done: WC) -> None:
    """Raise SubnetError for a completion with an error."""
    if done.status != IBV_WC_SUCCESS:
        raise SubnetError(
            f"completion with error: status {done.status} ({cqe_status_to_str(done.status)}) "
            f"on queue pair {done.qp_num:#08x}, vendor error {done.vendor_err:#x}"
        )


class _Outgoing:
    """The messages in flight, over all queue pairs in turn."""

    def __init__(self, end: Endpoint, batch: Batch) -> None:
        self.end, self.n = end, batch.iterations
        self.together = end.plan.messages_per_completion(batch.size_bytes)
        indices = range(len(end.qps))
        self._works = [
            [end.work(qp, batch.size_bytes, signaled=signaled) for signaled in (False, True)] for qp in indices
        ]
        self._posted_of, self._done_of = [0] * len(end.qps), [0] * len(end.qps)
        self.posted = self.done = 0
        self._posted_ns, self._done_ns = (np.zeros(self.n * len(end.qps), np.int64) for _ in range(2))

    def post(self) -> int:
        """Post as many messages as fit; return how many."""
        before, depth = self.posted, self.end.plan.depth
        for index, qp in enumerate(self.end.qps):
            while self._posted_of[index] < self.n and self._posted_of[index] - self._done_of[index] < depth:
                self._posted_of[index] += 1
                number = self._posted_of[index]
                signaled = number % self.together == 0 or number == self.n
                self._posted_ns[self.posted] = _now_ns()
                qp.post_send(self._works[index][signaled])
                self.posted += 1
        return self.posted - before

    def on_done(self, done: WC) -> None:
        """Count a completion, which covers all messages before it."""
        index = done.wr_id
        count = min(self.together, self.n - self._done_of[index])
        self._done_of[index] += count
        self._done_ns[self.done : self.done + count] = _now_ns()
        self.done += count

    def times(self) -> Times:
        return Times(posted_ns=self._posted_ns, done_ns=self._done_ns)
