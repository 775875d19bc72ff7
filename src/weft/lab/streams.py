"""Serve the stream sockets of many programs without blocking, and count errors of received packets by kind.

Data that a program does not read is queued up to `MOST_BYTES`; beyond that, data that may be lost is dropped, as when a
receive queue of an adapter overruns. A program that never reads its answers, or never ends a message, is disconnected.

`fileno` is an epoll of all sockets: the event loop watches it, calls `on_ready` when it is ready, and `on_timer` when
`next_deadline_s` has come.
"""

from __future__ import annotations

import array
import fcntl
import logging
import select
import socket
import termios
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from weft import runtime
from weft.fabric.counters import Counter as PortCounter
from weft.mad.carrier import SMP_CLASSES
from weft.mad.devices import Devices

log = logging.getLogger("weft.lab")


class ErrorCounts:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, detail: str, error: Exception | None = None) -> None:
        """Count an error, and log the first of its kind; `kind` is general, `detail` the instance."""
        self.counts[kind] += 1
        if self.counts[kind] == 1:
            log.warning("%s: %s (the next ones are counted, not logged)", kind, detail, exc_info=error)

    def overrun(self, devices: Devices, slot: int, mgmt_class: int) -> None:
        """Count a MAD that is lost because the program at a port does not read."""
        self.note("a program does not read its MADs", f"the one at {devices.name(slot)}; more for it are lost")
        if mgmt_class in SMP_CLASSES:
            devices.fabric.counters[slot, PortCounter.VL15_DROPPED] += 1


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
    def _take(self, stream: S) -> None:
        """Look at what it has received."""

    @abstractmethod
    def _forget(self, stream: S) -> None:
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

    def __contains__(self, stream: S) -> bool:
        return self._open.get(stream.socket.fileno()) is stream

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        for stream in list(self):
            self.drop(stream)
        self._listener.close()
        self._epoll.close()

    def on_ready(self) -> None:
        for fd, events in self._epoll.poll(0):
            stream = self._open.get(fd)
            if stream is not None:
                if events & select.EPOLLOUT:
                    self._flush(stream)
                if events & ~select.EPOLLOUT:
                    self._read(stream)
            elif fd == self._listener.fileno() and (accepted := self._listener.accept()) is not None:
                self.admit(accepted)

    def admit(self, connection: socket.socket, host: str = "") -> None:
        """Admit a program; `host` is set if it runs on another machine."""
        stream = self._open[connection.fileno()] = self._new(connection)
        stream.host = host
        self._epoll.register(connection, select.EPOLLIN)

    def drop(self, stream: S) -> None:
        if stream in self:
            del self._open[stream.socket.fileno()]
            stream.socket.close()
            self._forget(stream)

    def _read(self, stream: S) -> None:
        try:
            chunk = stream.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        stream.received += chunk
        if chunk:
            self._take(stream)
        if not chunk or len(stream.received) > _LONGEST_BYTES:
            self.drop(stream)

    def write(self, stream: S, data: bytes, files: list[int] | None = None) -> None:
        """Send data that must not be lost."""
        if stream.unsent_bytes > 2 * MOST_BYTES:
            self.drop(stream)
        if stream in self:
            stream.unsent.append((memoryview(data), files or []))
            stream.unsent_bytes += len(data)
            if not stream.is_full:
                self._flush(stream)

    def push(self, stream: S, data: bytes) -> bool:
        """Send data that may be lost; return False if it is."""
        if stream.unsent_bytes > MOST_BYTES:
            return False
        self.write(stream, data)
        return True

    def unread_bytes(self, stream: S) -> int:
        """Return how many bytes a program has not read."""
        unread = array.array("i", [0])
        fcntl.ioctl(stream.socket, termios.TIOCOUTQ, unread)
        return stream.unsent_bytes + unread[0]

    def _flush(self, stream: S) -> None:
        unsent = stream.unsent
        try:
            while unsent:
                data, files = unsent[0]
                sent = socket.send_fds(stream.socket, [data], files) if files else stream.socket.send(data)
                stream.unsent_bytes -= sent
                if sent == len(data):
                    unsent.popleft()
                else:
                    unsent[0] = data[sent:], []
        except BlockingIOError:
            self._set_full(stream, True)
        except OSError:
            unsent.clear()  # the program is gone: reading will tell
            stream.unsent_bytes = 0
            self._set_full(stream, False)
        else:
            self._set_full(stream, False)

    def _set_full(self, stream: S, is_full: bool) -> None:
        if stream.is_full != is_full:
            stream.is_full = is_full
            self._epoll.modify(stream.socket, select.EPOLLIN | (select.EPOLLOUT if is_full else 0))
