"""Copies from the memory of other processes of this machine, by several threads.

    workers.take(process, far, own, length, PUT)      from an address there to one here
    workers.take(process, far, own, length, kind)     added to what is here, as numbers of a kind: `job.KINDS`

The system copies page by page at the speed of one processor; summands pass through a block that stays in a cache. So
long copies are cut into as many parts as there are threads. A helper waits for parts in a kernel, without Python's
lock; after some idle milliseconds it sleeps until the next call.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

import numpy as np

from weft.collectives.live.job import BLOCK_BYTES, CALLED, OUT, PUT, Job

_SHARED_BYTES = 1 << 20  # from this size on helpers take part
_HELPERS_MAX = 3  # memory is hardly quicker with more


def kernels() -> tuple[Callable[..., bool], Callable[[int], None]]:
    """Return `take` and `help_out`, compiled."""
    from weft.collectives.live.kernels import help_out, take
    from weft.jit import overload_for

    return overload_for(take, *(0,) * 7), overload_for(help_out, 0)


def read_word(process: int, address: int) -> int | None:
    """Read a word of another process; None if it cannot be read."""
    job, word = Job(), ctypes.c_uint64()
    take, _ = kernels()
    is_read = take(ctypes.addressof(job), 1, process, address, ctypes.addressof(word), ctypes.sizeof(word), PUT)
    return word.value if is_read else None


class CopyWorkers:
    """The copy threads of an endpoint, which one thread uses at a time; with helpers if there are cores for them.

    ranks: those of this machine, which share its cores.
    """

    def __init__(self, ranks: int) -> None:
        n_helpers = max(0, min(_HELPERS_MAX, len(os.sched_getaffinity(0)) // ranks - 1))
        self._jobs = (Job * (1 + n_helpers))()
        self._blocks = np.empty((1 + n_helpers, BLOCK_BYTES), np.uint8)
        for job, block in zip(self._jobs, self._blocks, strict=True):
            job.block = block.ctypes.data
        self._address = ctypes.addressof(self._jobs)
        self._take, help_out = kernels()
        self._calls: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(n_helpers)]
        for n, calls in enumerate(self._calls, 1):
            at = self._address + n * Job.size
            threading.Thread(target=_wait_for_calls, args=(calls, help_out, at, self._jobs), daemon=True).start()

    def take(self, process: int, far: int, own: int, length: int, kind: int) -> bool:
        """Copy or add; return False if the memory cannot be read or the process has ended."""
        n_jobs = 1
        if length >= _SHARED_BYTES:
            n_jobs += len(self._calls)
            for job, calls in zip(self._jobs[1:], self._calls, strict=True):
                if job.state == OUT:
                    job.state = CALLED
                    calls.put(True)
        return bool(self._take(self._address, n_jobs, process, far, own, length, kind))

    def close(self) -> None:
        for calls in self._calls:
            calls.put(False)


def _wait_for_calls(calls: SimpleQueue[bool], help_out: Callable[[int], None], at: int, jobs: object) -> None:
    """Run a helper thread; `jobs` must outlive it."""
    while calls.get():
        help_out(at)
