"""Run the measurement loops in compiled code, if every queue pair has a shared-memory path (`hca.shm_path`).

Python executes the requests that a kernel cannot: a request that does not fit the path is sent as packets.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from weft.errors import SubnetError
from weft.verbs.enums import IBV_SEND_SIGNALED
from weft.verbs.hca.carrier import MemoryPath
from weft.verbs.hca.execute import post
from weft.verbs.perftest import loop_kernels as kernels
from weft.verbs.perftest.endpoint import Endpoint
from weft.verbs.perftest.kinds import Verb
from weft.verbs.perftest.loop import Batch, Loop, Watch, check
from weft.verbs.perftest.plan import Atomic
from weft.verbs.perftest.report import Times
from weft.verbs.shm import native
from weft.verbs.shm.layout import MeterRecord, SendRequest, SgeRecord
from weft.verbs.shm.requests import BUSY, CLOSED, SLOW, fill_in

Words = npt.NDArray[np.int64]
# Empty polls before the processor is yielded: about 100 us, or 5 us if the peer seems to need the processor.
_PATIENT, _HASTY = 20_000, 1_000
_STEPS = 8  # fewer steps than this between two pauses mean that it does
_CHECK_EVERY = 16  # pauses


def load(end: Endpoint) -> None:
    """Load the kernels that a path needs before the peer requests one: it does not wait long."""
    native.load(end.port.ctx.adapter.memory.address)


def compiled_loop(end: Endpoint, watch: Watch) -> Loop | None:
    """Return a compiled loop; None if a queue pair has no shared-memory path."""
    if any(queue.comp_channel is not None for queue in (end.send_cq, end.recv_cq)):
        return None  # an end that waits for events does not poll
    paths = [qp.core.find_shm_path(at_once=True) or qp.core.find_shm_path(at_once=True) for qp in end.qps]
    present = [path for path in paths if path is not None]
    return CompiledLoop(end, watch, present) if len(present) == len(paths) else None


class CompiledLoop:
    engine = "compiled"

    def __init__(self, end: Endpoint, watch: Watch, paths: list[MemoryPath]) -> None:
        self.end, self._has_failed, self._paths = end, watch, paths
        self._memory = end.port.ctx.adapter.memory
        self._requests = np.stack([path.words for path in paths])  # int64[queue pair, word of a path]
        self._records = [fill_in(words) for words in self._requests]
        self._rings = np.array([self._address(qp.core.receives.at) for qp in end.qps], np.int64)
        self._clock = np.zeros(2, np.int64)
        self._quiet_since_s, self._progress = 0.0, -1
        self._pauses, self._paused_at = 0, 0
        self._compile()

    def _compile(self) -> None:
        """Compile the kernels before the measurement: run no messages, and a request over a closed path."""
        closed, meter = self._requests[0].copy(), MeterRecord()
        fill_in(closed).meter = ctypes.addressof(meter)
        assert post(closed, b"") == CLOSED
        setup, state = self._setup(Batch(number=0, size_bytes=self.end.sizes[0], iterations=0))
        empty, stamps = np.zeros(0, np.int64), np.zeros(1, np.int64)
        if self.end.plan.test.is_latency:
            kernels.take_turns(self._requests, setup, state, stamps)
        else:
            kernels.stream(self._requests, self._rings, setup, state, empty, empty, empty, empty)

    def _address(self, at: int) -> int:
        return self._memory.address + at

    def _request(self, index: int) -> SendRequest:
        return SendRequest.from_address(self._records[index].request)

    def _setup(self, batch: Batch) -> tuple[Words, Words]:
        """Return the setup of a batch and its initial state."""
        end, setup, state = self.end, np.zeros(kernels.SETUP_WORDS, np.int64), np.zeros(kernels.STATE_WORDS, np.int64)
        setup[kernels.SEND_CQ], setup[kernels.RECEIVE_CQ] = (
            self._address(cq.core.at) for cq in (end.send_cq, end.recv_cq)
        )
        setup[kernels.CLOCK], setup[kernels.COUNT] = self._clock.ctypes.data, batch.iterations
        setup[kernels.DEPTH] = end.plan.depth
        setup[kernels.TOGETHER] = end.plan.messages_per_completion(batch.size_bytes)
        setup[kernels.RING], setup[kernels.POLLS] = self._rings[0], _PATIENT
        state[kernels.TURN] = 1
        for index in range(len(end.qps)):
            self._ask(index, batch.size_bytes)
        self._progress = self._paused_at = -_STEPS
        return setup, state

    def _ask(self, index: int, size_bytes: int) -> None:
        """Write the request of a queue pair to its path."""
        work, request = self.end.work(index, size_bytes, signaled=True), self._request(index)
        (place,) = work.places
        adds = self.end.plan.verb is Verb.ATOMIC and self.end.plan.atomic is Atomic.FETCH_AND_ADD
        request.opcode, request.flags, request.wr_id = work.opcode, work.send_flags, work.wr_id
        request.va, request.rkey = work.remote_addr, work.remote_rkey
        request.compare, request.swap = work.compare_add, work.compare_add if adds else work.swap
        request.num_sge, request.number = 1, 0
        element = SgeRecord.from_address(ctypes.addressof(request) + request.size)
        element.address, element.length, element.lkey = place.address, place.length, place.lkey

    # -- bandwidth ----------------------------------------------------------------------------------------------------

    def bandwidth(self, batch: Batch, *, sends: bool, receives: bool) -> tuple[Times | None, int]:
        setup, state = self._setup(batch)
        setup[kernels.SENDS], setup[kernels.RECEIVES] = sends, receives
        qps = len(self.end.qps)
        posted_of, done_of = np.zeros(qps, np.int64), np.zeros(qps, np.int64)
        posted_ns, done_ns = (np.zeros(qps * batch.iterations * sends, np.int64) for _ in range(2))
        words = (self._requests, self._rings, setup, state, posted_of, done_of, posted_ns, done_ns)
        while (code := kernels.stream(*words)) != kernels.FINISHED:
            at = int(state[kernels.AT])
            if self._needs_packets(code, at, setup, int(state[[kernels.POSTED, kernels.DONE, kernels.CAME]].sum())):
                posted_of[at] += 1
                state[kernels.POSTED] += 1
                signaled = bool(self._request(at).flags & IBV_SEND_SIGNALED)
                self._send_packets(at, batch.size_bytes, signaled=signaled, meanwhile=lambda: self._receive(words))
        return (Times(posted_ns=posted_ns, done_ns=done_ns) if sends else None), int(state[kernels.CAME])

    def _receive(self, words: tuple[Words, ...]) -> None:
        """Receive the messages that have arrived."""
        setup = words[2]
        sends, setup[kernels.SENDS] = int(setup[kernels.SENDS]), 0
        if setup[kernels.RECEIVES]:
            kernels.stream(*words)
        setup[kernels.SENDS] = sends

    # -- latency ------------------------------------------------------------------------------------------------------

    def pingpong(self, batch: Batch, *, begins: bool) -> npt.NDArray[np.int64]:
        setup, state = self._setup(batch)
        setup[kernels.RECEIVES], setup[kernels.BEGINS] = 1, begins
        if self.end.plan.verb is Verb.WRITE:
            last = self.end.mr.buf + batch.size_bytes - 1
            setup[kernels.OUT_BYTE], setup[kernels.IN_BYTE] = last + self.end.outgoing(0), last + self.end.incoming(0)
        return self._take_turns(batch, setup, state)

    def roundtrips(self, batch: Batch) -> npt.NDArray[np.int64]:
        return self._take_turns(batch, *self._setup(batch))

    def _take_turns(self, batch: Batch, setup: Words, state: Words) -> npt.NDArray[np.int64]:
        stamps = np.zeros(batch.iterations + 1, np.int64)
        while (code := kernels.take_turns(self._requests, setup, state, stamps)) != kernels.FINISHED:
            if self._needs_packets(code, 0, setup, int(state[kernels.TURN] * 4 + state[kernels.PHASE])):
                self._send_packets(0, batch.size_bytes, signaled=True, meanwhile=lambda: None)
                state[kernels.PHASE] = kernels.COMPLETE
        return stamps

    # -- work for Python ----------------------------------------------------------------------------------------------

    def _needs_packets(self, code: int, index: int, setup: Words, progress: int) -> bool:
        """Handle the return code of a kernel; return whether its request must be sent as packets."""
        if progress != self._progress:
            self._quiet_since_s, self._progress = time.monotonic(), progress
        if code == kernels.WAITING:
            setup[kernels.POLLS] = _HASTY if progress - self._paused_at < _STEPS else _PATIENT
            self._paused_at = progress
            self._wait()
        elif code == kernels.FAILED:
            for queue in (self.end.send_cq, self.end.recv_cq):
                for done in queue.poll(1)[1]:
                    check(done)
        elif code & (SLOW | BUSY | CLOSED):
            return True
        else:
            path = self._paths[index]
            size = SendRequest.size + SgeRecord.size
            ctypes.memmove(ctypes.addressof(path.request), self._records[index].request, size)
            path.finish(code)
        return False

    def _wait(self) -> None:
        os.sched_yield()
        self._pauses += 1
        if self._pauses % _CHECK_EVERY:
            return
        self.end.port.ctx.adapter.progress()
        if self._has_failed(time.monotonic() - self._quiet_since_s):
            raise SubnetError("a message was lost, and this transport does not repeat it: use -c RC")

    def _send_packets(self, index: int, size_bytes: int, *, signaled: bool, meanwhile: Callable[[], None]) -> None:
        """Send a request as packets and wait for its acknowledgement. The peer may do the same: receive meanwhile."""
        qp = self.end.qps[index]
        qp.post_send(self.end.work(index, size_bytes, signaled=signaled))
        while qp.core.sends:
            meanwhile()
            self.end.port.ctx.adapter.progress()
            self._wait()
