"""A loop of one thread over file descriptors, deadlines and services; other threads hand it work through `call`."""

from __future__ import annotations

import contextlib
import os
import select
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from weft.errors import SubnetError
from weft.lab.fast_path import FastPath
from weft.lab.streams import ErrorCounts, Service
from weft.mad.subnet import Subnet

_TIMEOUT_S = 30.0


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


TICK_S = 0.02  # between two ticks while there are deadlines
IDLE_S = 2.0  # between two ticks otherwise
T = TypeVar("T")


class EventLoop(ABC):
    """An epoll with a handler for each file descriptor. `serve` runs in one thread; others go through `call`.

    A round: handlers of ready descriptors; `on_timer` of services and `_on_tick`, if a tick is due; `after_round` of
    services; `_end_round`.
    """

    def __init__(self, subnet: Subnet, errors: ErrorCounts | None = None) -> None:
        self.errors = errors or ErrorCounts()
        self._stopped = self._serving = False
        self._calls = Calls()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._services: list[Service] = []
        self._tick_at_s = 0.0
        self._epoll = select.epoll()
        self.fast_path = FastPath(subnet, self._epoll)
        self._watch(self._calls.fileno(), lambda mask: self._calls.run())

    @abstractmethod
    def _has_deadlines(self) -> bool:
        """Return whether `_on_tick` is needed every `TICK_S`."""

    @abstractmethod
    def _on_tick(self, now_s: float) -> None:
        """Do work that is due at a time of time.monotonic."""

    @abstractmethod
    def _end_round(self) -> None:
        """Do work at the end of each round."""

    def add_service(self, service: Service) -> None:
        """Run another service in this loop, and close it with the loop."""
        self._services.append(service)
        self.fast_path.add_nested(service.fileno())
        self._watch(service.fileno(), lambda mask: service.on_ready())

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
            now_s = time.monotonic()
            if now_s >= self._tick_at_s:
                self._tick_at_s = now_s + TICK_S
                for service in self._services:
                    service.on_timer()
                self._on_tick(now_s)
            for service in self._services:
                service.after_round()
            self._end_round()
        except Exception as error:  # any defect is logged, and the lab keeps running
            self.errors.note(f"the server failed on an event: {type(error).__name__}", str(error), error)

    def _timeout_s(self) -> float:
        is_due = self._has_deadlines() or any(service.next_deadline_s() is not None for service in self._services)
        return TICK_S if is_due else IDLE_S

    def stop(self) -> None:
        """Stop from any thread, or from a signal handler."""
        self._stopped = True
        self._calls.wake()

    def call(self, work: Callable[[], T]) -> T:
        """Run work in the loop's thread, between two MADs, and return its result; run it here if the loop is idle."""
        return self._calls.call(work) if self._serving else work()

    def close(self) -> None:
        for service in self._services:
            service.close()
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
