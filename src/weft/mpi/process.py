"""This process as an MPI rank: one that `weft run` started, or a single process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from weft.collectives.live.group import Group
from weft.collectives.live.link import Endpoint
from weft.collectives.live.message_queue import MessageQueue, Sending
from weft.collectives.live.rendezvous import Store
from weft.collectives.live.store import VARIABLE, JobStore
from weft.errors import ConfigError

RANK, WORLD_SIZE = "RANK", "WORLD_SIZE"
# MPI has no time limit: a rank may wait while another computes. Broken links are detected separately.
_TIMEOUT_S = 7 * 24 * 3600


class Process:
    """The endpoint of a rank and the message queues of all its groups; waiting in one group progresses all of them."""

    def __init__(self, end: Endpoint, store: Store, timeout_s: float = _TIMEOUT_S) -> None:
        self._end, self._store, self._timeout_s = end, store, timeout_s
        self._queues: list[MessageQueue] = []
        self._left: list[tuple[MessageQueue, Sending]] = []  # eager copies that are still being sent
        self.is_closed = False

    def group(self, name: str, rank: int, size: int) -> Group:
        group = Group(self._end, self._store, name, rank, size, self._timeout_s)
        self._queues.append(group.message_queue)
        group.message_queue.rendezvous.on_idle = self._go_on
        return group

    def leave(self, queue: MessageQueue, sending: Sending) -> None:
        """Keep a send that completes in the background."""
        self._left = [(owner, earlier) for owner, earlier in self._left if not earlier.is_done]
        if not sending.is_done:
            self._left.append((queue, sending))

    def flush(self, queue: MessageQueue | None = None) -> None:
        """Wait until background sends are complete: those of one group, or all."""
        for owner, sending in self._left:
            if queue is None or owner is queue:
                owner.wait(sending)

    def forget(self, group: Group) -> None:
        self._queues.remove(group.message_queue)
        group.close()

    def close(self) -> None:
        self.is_closed = True
        self._queues.clear()
        self._end.close()

    def _go_on(self) -> bool:
        return sum(queue.go_on() for queue in self._queues) > 0  # all of them


class _EmptyStore:
    """A store for a single process, which has no peers to exchange keys with."""

    def set(self, key: str, value: bytes) -> None:
        """Ignore the key."""

    def get(self, key: str, timeout_s: float) -> bytes:
        raise TimeoutError(key)


def from_environment(variables: Mapping[str, str] = os.environ) -> tuple[Process, int, int]:
    """Return the process, its rank and the number of ranks."""
    rank, size = (_whole(variables, name, default) for name, default in ((RANK, 0), (WORLD_SIZE, 1)))
    if size < 1 or not 0 <= rank < size:
        raise ConfigError(
            f"{RANK}={rank} is not below {WORLD_SIZE}={size}; start ranks with `weft run -n N program.py`"
        )
    if size == 1:
        return Process(Endpoint(), _EmptyStore()), 0, 1
    if VARIABLE not in variables:
        raise ConfigError(
            f"{WORLD_SIZE}={size} but {VARIABLE} is not set; start the ranks with `weft run -n {size} program.py`, or "
            f"unset {RANK} and {WORLD_SIZE} to run a single rank"
        )
    return Process(Endpoint(), JobStore(variables[VARIABLE])), rank, size


def _whole(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name, str(default))
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(f"{name}={text} is not a whole number; `weft run` sets it")
    return int(text)
