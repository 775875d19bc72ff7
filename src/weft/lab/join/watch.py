"""An epoll, and what to do when a file of it is ready."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Protocol

IN, OUT = select.EPOLLIN, select.EPOLLOUT


class HasFile(Protocol):
    def fileno(self) -> int: ...


class Watch:
    """An epoll with handlers; it has a file descriptor, so that another loop can watch it."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        self._handlers: dict[int, Callable[[int], None]] = {}

    def fileno(self) -> int:
        return self._epoll.fileno()

    def set(self, file: HasFile | int, mask: int, handler: Callable[[int], None]) -> None:
        """Call the handler with the ready part of the mask; stop watching the file for an empty mask.

        Linux reports a hangup for any mask: a file without a reader must not be watched.
        """
        number = file if isinstance(file, int) else file.fileno()
        before = self._masks.get(number, 0)
        if mask == before:
            return
        if not mask:
            self._epoll.unregister(number)
            del self._masks[number], self._handlers[number]
            return
        (self._epoll.modify if before else self._epoll.register)(number, mask)
        self._masks[number], self._handlers[number] = mask, handler

    def forget(self, file: HasFile | int) -> None:
        self.set(file, 0, lambda mask: None)

    def step(self, seconds: float) -> None:
        """Wait so long at most, and do what is to be done."""
        for number, mask in self._epoll.poll(seconds):
            handler = self._handlers.get(number)
            if handler is not None:  # else one before it in this round has let go of it
                handler(mask)

    def close(self) -> None:
        self._epoll.close()
