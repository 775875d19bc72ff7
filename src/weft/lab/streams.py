"""Serve the stream sockets of many programs without blocking.

What a program does not take is queued up to `MOST_BYTES`; beyond that, what may be lost is lost, as a receive queue of
an adapter overruns. One that asks and asks and takes no answer, or begins a message that never ends, is cut off.

`fileno` is an epoll of all sockets: whoever serves watches it, calls `on_ready` when it is ready, and `on_timer` when
`next_deadline_s` has come.
"""

from __future__ import annotations

import array
import fcntl
import select
import socket
import termios
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from weft import runtime

MOST_BYTES = 16 << 20  # that wait for a program, before the last message
_LONGEST_BYTES = 256 << 20  # per message; all paths of the largest subnet are less
_READ_BYTES = 1 << 18


class Service(Protocol):
    """A service that a lab runs beside ibsim's protocol."""

    def fileno(self) -> int: ...

    def on_ready(self) -> None: ...

    def after_round(self) -> None:
        """Handle changes after a MAD, a command or a packet."""

    def next_deadline_s(self) -> float | None:
        """Return when `on_timer` has work, on time.monotonic; None if it has none."""

    def on_timer(self) -> None:
        """Do work that is due; called at least every two seconds."""

    def slots(self) -> list[int]:
        """Return the slot of every port that a program has open."""

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class Stream:
    socket: socket.socket
    host: str = ""  # the only one that it may act as: it comes from another machine
    received: bytearray = field(default_factory=bytearray)
    unsent: deque[tuple[memoryview, list[int]]] = field(default_factory=deque)  # with files
    unsent_bytes: int = 0
    is_full: bool = False  # its socket takes no more for now


S = TypeVar("S", bound=Stream)


class Streams(ABC, Generic[S]):
    """A server of streams at a socket path, which it creates and removes."""

    def __init__(self, path: Path, new: Callable[[socket.socket], S]) -> None:
        self._new = new
        self._open: dict[int, S] = {}
        self._listener = runtime.Listener(path)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)

    @abstractmethod
    def _take(self, one: S) -> None:
        """Look at what it has received."""

    @abstractmethod
    def _forget(self, one: S) -> None:
        """Clean up after a stream that has ended."""

    @abstractmethod
    def slots(self) -> list[int]: ...

    def after_round(self) -> None:
        pass

    def next_deadline_s(self) -> float | None:
        return None

    def on_timer(self) -> None:
        pass

    def __iter__(self) -> Iterator[S]:
        return iter(self._open.values())

    def __contains__(self, one: S) -> bool:
        return self._open.get(one.socket.fileno()) is one

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        for one in list(self):
            self.drop(one)
        self._listener.close()
        self._epoll.close()

    def on_ready(self) -> None:
        for fd, events in self._epoll.poll(0):
            one = self._open.get(fd)
            if one is not None:
                if events & select.EPOLLOUT:
                    self._flush(one)
                if events & ~select.EPOLLOUT:
                    self._read(one)
            elif fd == self._listener.fileno() and (made := self._listener.accept()) is not None:
                self.admit(made)

    def admit(self, made: socket.socket, host: str = "") -> None:
        """Admit a program; `host` is set if it runs on another machine."""
        one = self._open[made.fileno()] = self._new(made)
        one.host = host
        self._epoll.register(made, select.EPOLLIN)

    def drop(self, one: S) -> None:
        if one in self:
            del self._open[one.socket.fileno()]
            one.socket.close()
            self._forget(one)

    def _read(self, one: S) -> None:
        try:
            chunk = one.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        one.received += chunk
        if chunk:
            self._take(one)
        if not chunk or len(one.received) > _LONGEST_BYTES:
            self.drop(one)

    def write(self, one: S, data: bytes, files: list[int] | None = None) -> None:
        """Send data that must not be lost."""
        if one.unsent_bytes > 2 * MOST_BYTES:
            self.drop(one)
        if one in self:
            one.unsent.append((memoryview(data), files or []))
            one.unsent_bytes += len(data)
            if not one.is_full:
                self._flush(one)

    def push(self, one: S, data: bytes) -> bool:
        """Send data that may be lost; return False if it is."""
        if one.unsent_bytes > MOST_BYTES:
            return False
        self.write(one, data)
        return True

    def unread_bytes(self, one: S) -> int:
        """Return how many bytes a program has not read."""
        unread = array.array("i", [0])
        fcntl.ioctl(one.socket, termios.TIOCOUTQ, unread)
        return one.unsent_bytes + unread[0]

    def _flush(self, one: S) -> None:
        unsent = one.unsent
        try:
            while unsent:
                data, files = unsent[0]
                sent = socket.send_fds(one.socket, [data], files) if files else one.socket.send(data)
                one.unsent_bytes -= sent
                if sent == len(data):
                    unsent.popleft()
                else:
                    unsent[0] = data[sent:], []
        except BlockingIOError:
            self._set_full(one, True)
        except OSError:
            unsent.clear()  # the program is gone: reading will tell
            one.unsent_bytes = 0
            self._set_full(one, False)
        else:
            self._set_full(one, False)

    def _set_full(self, one: S, is_full: bool) -> None:
        if one.is_full != is_full:
            one.is_full = is_full
            self._epoll.modify(one.socket, select.EPOLLIN | (select.EPOLLOUT if is_full else 0))
