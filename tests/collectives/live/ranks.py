"""Ranks as threads of one process, each with its own endpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from weft.collectives.live.group import Group
from weft.collectives.live.link import Endpoint

T = TypeVar("T")


class Board:
    """A store for threads."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, timeout_s: float) -> bytes:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_s):
                raise TimeoutError(key)
            return self._values[key]


def together(n: int, do: Callable[[Group], T], *, announced_bytes: int = 1 << 16, timeout_s: float = 300) -> list[T]:
    """Return the result of each of n ranks; raise the first error."""
    return as_ranks(
        n, lambda end, board, rank: do(Group(end, board, "test", rank, n, timeout_s)), announced_bytes=announced_bytes
    )


def as_ranks(
    n: int, do: Callable[[Endpoint, Board, int], T], *, fragment_bytes: int = 1 << 10, announced_bytes: int = 1 << 16
) -> list[T]:
    board = Board()

    def rank(number: int) -> T:
        end = Endpoint(fragment_bytes=fragment_bytes, announced_bytes=announced_bytes)
        try:
            return do(end, board, number)
        finally:
            done.wait()  # no rank ends before all have received its data
            end.close()

    done = threading.Barrier(n)
    with ThreadPoolExecutor(n) as pool:
        return [item.result() for item in [pool.submit(rank, number) for number in range(n)]]
