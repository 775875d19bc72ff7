"""Work that other threads hand to one that sleeps in epoll."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from weft.errors import SubnetError

_PATIENCE_S = 30.0
T = TypeVar("T")


class Calls:
    """`fileno` is ready when `run` has something to do."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._event

    def call(self, work: Callable[[], T]) -> T:
        """From another thread: what the work returns or raises.

        Work that is not begun in time is never begun; what is begun takes as long as it takes, and its answer is true.
        """
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except Exception as error:  # whatever it is, it belongs to the caller
                future.set_exception(error)

        self._waiting.append(run)
        self.wake()
        try:
            return future.result(timeout=_PATIENCE_S)
        except TimeoutError:
            if not future.cancel():  # it is begun, or done, and may itself have raised this
                return future.result()
            raise SubnetError(
                f"the lab has not come to it within {_PATIENCE_S:g} s, so busy it is:"
                " `weft ps` says with what; try again"
            ) from None

    def wake(self) -> None:
        """Also from a signal handler; who has ended need not be woken."""
        with contextlib.suppress(OSError, ValueError):
            os.eventfd_write(self._event, 1)

    def run(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        while self._waiting:
            self._waiting.popleft()()

    def close(self) -> None:
        event, self._event = self._event, -1
        os.close(event)
