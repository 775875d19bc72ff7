"""A loop of one thread over file descriptors; other threads hand it work through `call`."""

from __future__ import annotations

import select
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from weft.lab.calls import Calls
from weft.lab.error_counts import ErrorCounts
from weft.lab.fast_path import FastPath
from weft.mad.subnet import Subnet

T = TypeVar("T")


class EventLoop(ABC):
    """An epoll with a handler for each file descriptor. `serve` runs in one thread; others go through `call`."""

    def __init__(self, subnet: Subnet, errors: ErrorCounts | None = None) -> None:
        self.errors = errors or ErrorCounts()
        self._stopped = self._serving = False
        self._calls = Calls()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._epoll = select.epoll()
        self.fast_path = FastPath(subnet, self._epoll)
        self._watch(self._calls.fileno(), lambda mask: self._calls.run())

    @abstractmethod
    def _timeout_s(self) -> float:
        """Return how long to wait for events at most."""

    @abstractmethod
    def _after_events(self) -> None:
        """Do what is due after each batch of events, and after each timeout."""

    def serve(self) -> None:
        """Handle events until `stop`."""
        self._serving = True
        try:
            while not self._stopped:
                self._serve_once()
        finally:
            self._serving = False
            self._calls.run()

    def _serve_once(self) -> None:
        try:
            for fd, mask in self.fast_path.wait(self._timeout_s()):
                handler = self._handlers.get(fd)
                if handler is not None:  # else a handler before it in this batch dropped it
                    handler(mask)
            self._after_events()
        except Exception as error:  # any defect is logged, and the lab keeps running
            self.errors.note(f"the server failed on an event: {type(error).__name__}", str(error), error)

    def stop(self) -> None:
        """Stop from any thread, or from a signal handler."""
        self._stopped = True
        self._calls.wake()

    def call(self, work: Callable[[], T]) -> T:
        """Run work in the loop's thread, between two MADs, and return its result; run it here if the loop is idle."""
        return self._calls.call(work) if self._serving else work()

    def close(self) -> None:
        self.fast_path.close()
        self._epoll.close()
        self._calls.close()

    def stop_when_closed(self, fd: int) -> None:
        """Stop when the other end of this pipe is closed."""
        self._watch(fd, lambda mask: self.stop())

    def _watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        del self._handlers[fd]
        self._epoll.unregister(fd)
