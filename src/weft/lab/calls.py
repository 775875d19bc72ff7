"""Work that other threads hand to one that sleeps in epoll."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from weft.errors import SubnetError

_TIMEOUT_S = 30.0
T = TypeVar("T")


class Calls:
    """A queue of calls into a thread; `fileno` is ready when `run` has work."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._event

    def call(self, work: Callable[[], T]) -> T:
        """Run work in the loop's thread and return its result; called from another thread.

        Work that does not start in time is cancelled; work that has started is waited for, however long it takes.
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
            return future.result(timeout=_TIMEOUT_S)
        except TimeoutError:
            if not future.cancel():  # it is begun, or done, and may itself have raised this
                return future.result()
            raise SubnetError(
                f"the lab has not come to it within {_TIMEOUT_S:g} s, so busy it is:"
                " `weft ps` says with what; try again"
            ) from None

    def wake(self) -> None:
        """Wake the loop, also from a signal handler; do nothing after it has ended."""
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
