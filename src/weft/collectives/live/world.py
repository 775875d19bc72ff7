"""All ranks of a job of `weft run`, with collectives and messages on numpy arrays.

    with join_world() as world:
        world.all_reduce(gradients)                  # in place, with the algorithms that the simulators time

Arrays are contiguous, and have the same size and type on all ranks; if ranks make different calls, all of them raise
the same error. A program that needs more of MPI runs on MPI itself: docs/mpi.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.live.arrays import Array, flat
from weft.collectives.live.calls import choose
from weft.collectives.live.group import Group
from weft.collectives.live.link import Endpoint
from weft.collectives.live.rendezvous import Store
from weft.collectives.live.store import VARIABLE, JobStore
from weft.errors import ConfigError

RANK, WORLD_SIZE = "RANK", "WORLD_SIZE"
# Without a time limit: a rank may wait while another computes. Broken links are detected separately.
_TIMEOUT_S = 7 * 24 * 3600
Items = NDArray[np.generic]


class World:
    """The ranks of a job; `name` is unique among the groups of its ranks."""

    def __init__(
        self, end: Endpoint, store: Store, rank: int, size: int, name: str = "world", timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.rank, self.size = rank, size
        self._end, self._store, self._timeout_s = end, store, timeout_s
        self._group = Group(end, store, name, rank, size, timeout_s)

    def copy(self, name: str) -> World:
        """Return the same ranks as another group, with its own record (`weft run --record`)."""
        return World(self._end, self._store, self.rank, self.size, name, self._timeout_s)

    def all_reduce(self, data: Items, reduce: np.ufunc = np.add) -> None:
        """Replace the data of each rank by the sum over all ranks, or by another reduction of numpy."""
        self._run(Collective.ALL_REDUCE, f"all_reduce by {reduce.__name__}", data, reduce=reduce)

    def all_gather(self, own: Items, every: Items) -> None:
        """Write the data of all ranks to `every`, in the order of the ranks."""
        if every.nbytes != own.nbytes * self.size:
            raise ConfigError(f"all_gather: `every` has {every.nbytes:,} bytes, not {self.size} × {own.nbytes:,}")
        flat(every).reshape(self.size, -1)[self.rank] = flat(own)
        self._run(Collective.ALL_GATHER, "all_gather", every)

    def broadcast(self, data: Items, root: int = 0) -> None:
        """Replace the data of all ranks by that of the root."""
        if not 0 <= root < self.size:
            raise ConfigError(f"broadcast from rank {root}; give a rank from 0 to {self.size - 1}")
        self._run(Collective.BROADCAST, "broadcast", data, root)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._run(Collective.BARRIER, "barrier", np.empty(0, np.uint8))

    def send(self, data: Items, to: int) -> None:
        queue = self._group.message_queue
        queue.wait(queue.send(to, flat(data)))

    def receive(self, data: Items, source: int) -> None:
        queue = self._group.message_queue
        queue.wait(queue.receive(flat(data), source))

    def exchange(self, data: Items, to: int, place: Items, source: int) -> None:
        """Send to a rank while receiving from a rank."""
        queue = self._group.message_queue
        receiving = queue.receive(flat(place), source)
        queue.wait(queue.send(to, flat(data)))
        queue.wait(receiving)

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for all ranks, unless this one failed: `weft run` then ends the others."""
        if kind is None:
            self.barrier()
            self._end.close()

    def _run(self, kind: Collective, call: str, data: Items, root: int = 0, reduce: np.ufunc = np.add) -> None:
        if self.size > 1:
            program = choose(kind, self.size, data.nbytes, root)
            self._group.run(program, Array(data, reduce=reduce), f"{call} of {data.size:,} {data.dtype}, root {root}")


def join_world(variables: Mapping[str, str] = os.environ) -> World:
    """Join the ranks of a job that `weft run` started; without it, this process is the only rank."""
    rank, size = (_number(variables, name, default) for name, default in ((RANK, 0), (WORLD_SIZE, 1)))
    if size < 1 or not 0 <= rank < size:
        raise ConfigError(
            f"{RANK}={rank} is not below {WORLD_SIZE}={size}; start ranks with `weft run -n N program.py`"
        )
    if size > 1 and VARIABLE not in variables:
        raise ConfigError(
            f"{WORLD_SIZE}={size} but {VARIABLE} is not set; start the ranks with `weft run -n {size} program.py`, or "
            f"unset {RANK} and {WORLD_SIZE} to run a single rank"
        )
    return World(Endpoint(), JobStore(variables.get(VARIABLE, "")), rank, size)


def _number(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name, str(default))
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(f"{name}={text} is not a whole number; `weft run` sets it")
    return int(text)
