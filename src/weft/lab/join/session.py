"""Streams of many programs over one connection, which may be cut and made again.

    program <-> socket <-> Session <== connection ==> Session <-> socket <-> lab

A stream has a window: its bytes are read from one socket only as fast as the other takes them, so a program that
does not read holds up itself alone, and nothing here grows without end. Frames are kept until the other end has them;
when the connection has been made again each end says how many it has, and gets the rest. So a stream loses nothing:
what a program sees of a cut is what the lab makes of it, a port that goes down and comes up again.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from weft.lab.join.frames import BODY_BYTES, KEPT, NUMBER, Cut, Forged, Frame, Kind, Wire, pack

WINDOW_BYTES = 1 << 20  # in flight per stream
CHANNELS = 1024  # at a time
ALIVE_S = 0.5  # not more signs of life than one in this time
SILENT_S = 8.0  # a silent peer is disconnected after this
_ACK_FRAMES, _ACK_BYTES = 64, 1 << 18


@dataclass(slots=True, eq=False)
class Channel:
    """A stream. `unsent` waits for the socket here, `window` is what the peer accepts."""

    number: int
    door: int
    socket: socket.socket
    window: int = WINDOW_BYTES
    taken: int = 0  # received and not acknowledged
    unsent: bytearray = field(default_factory=bytearray)
    is_ending: bool = False  # when all of it is sent
    on_data: Callable[[bytes], None] = lambda data: None


class Session:
    """An end of a session. `accept` returns the socket of a stream that the peer opens, or None."""

    def __init__(
        self,
        watch: Watch,
        *,
        accept: Callable[[int], socket.socket | None] = lambda door: None,
        on_cut: Callable[[str], None],
        on_bye: Callable[[str], None],
        on_notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._watch, self._accept, self._on_cut, self._on_bye = watch, accept, on_cut, on_bye
        self._on_notice = on_notice
        self.wire: Wire | None = None
        self.channels: dict[int, Channel] = {}
        self.received = 0  # frames of kinds that are kept
        self._next = 1
        self._acknowledged = 0  # by the other end
        self._kept: deque[bytes] = deque()  # that are not
        self._owed = 0  # bytes that came, since the last acknowledgement of ours
        self._owed_frames = 0
        self._said_s = 0.0

    # -- the connection -----------------------------------------------------------------------------------------------

    def connect(self, wire: Wire, received: int) -> None:
        """Continue over a new connection; the peer has received this number of our frames."""
        self._forget(received)
        self.wire = wire
        for frame in self._kept:
            wire.put(frame)
        self._say_alive()
        self._flush()
        self._on_frames(wire, wire.rest)
        for channel in self.channels.values():
            self._look(channel)

    def disconnect(self) -> None:
        """Close the connection; streams pause."""
        if self.wire is not None:
            self._watch.forget(self.wire)
            self.wire.close()
            self.wire = None
            for channel in self.channels.values():
                self._look(channel)

    def end(self, why: str = "") -> None:
        """End the session for good, and notify the peer."""
        if self.wire is not None:
            self.wire.put(pack(Kind.BYE, body=why.encode()[:BODY_BYTES]))
            with suppress(Cut):
                self.wire.flush()
        self.disconnect()
        for channel in list(self.channels.values()):
            self._drop(channel)

    def notify(self, text: str) -> None:
        """Send the peer a text; it is lost if the connection is."""
        if self.wire is not None:
            self.wire.put(pack(Kind.NOTICE, body=text.encode()[:BODY_BYTES]))
            self._flush()

    def on_timer(self) -> None:
        """Give a sign of life, and look for one. To be called every second or two."""
        if self.wire is None:
            return
        now_s = time.monotonic()
        if now_s - self.wire.heard_s > SILENT_S:
            self._cut(f"nothing has been heard for {SILENT_S:g} s")
        elif now_s - self._said_s >= ALIVE_S:
            self._say_alive()
            self._flush()

    def _say_alive(self) -> None:
        self._owed = self._owed_frames = 0
        self._said_s = time.monotonic()
        if self.wire is not None:
            self.wire.put(pack(Kind.ACK, body=NUMBER.pack(self.received)))

    def _cut(self, why: str) -> None:
        self.disconnect()
        self._on_cut(why)

    def _forget(self, received: int) -> None:
        """Drop frames that the peer has acknowledged."""
        more = received - self._acknowledged
        if not 0 <= more <= len(self._kept):
            raise Forged(f"frame {received} is acknowledged, the last sent is {self._acknowledged + len(self._kept)}")
        for _ in range(more):
            self._kept.popleft()
        self._acknowledged = received

    # -- frames out ---------------------------------------------------------------------------------------------------

    def _send(self, kind: Kind, channel: Channel, body: bytes = b"") -> None:
        frame = pack(kind, channel.number, body)
        self._kept.append(frame)
        if self.wire is not None:
            self.wire.put(frame)

    def _flush(self) -> None:
        wire = self.wire
        if wire is None:
            return
        was_full = wire.is_full
        try:
            wire.flush()
        except Cut as cut:
            self._cut(str(cut))
            return
        self._watch.set(wire, IN | (OUT if wire.unsent_bytes else 0), self._on_wire)
        if was_full != wire.is_full:
            for channel in self.channels.values():
                self._look(channel)

    # -- frames in ----------------------------------------------------------------------------------------------------

    def _on_wire(self, mask: int) -> None:
        assert self.wire is not None
        if mask & ~OUT:
            self._on_frames(self.wire, self.wire.take)
        self._flush()

    def _on_frames(self, wire: Wire, take: Callable[[], list[Frame]]) -> None:
        try:
            for frame in take():
                self._on_frame(frame)
                if self.wire is not wire:
                    return  # it said good-bye
        except (Cut, Forged) as error:
            self._cut(str(error))
            return
        if self._owed >= _ACK_BYTES or self._owed_frames >= _ACK_FRAMES:
            self._say_alive()

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind in KEPT:
            self.received += 1
            self._owed_frames += 1
            self._owed += len(frame.body)
        if frame.kind == Kind.ACK:
            self._forget(*NUMBER.unpack(frame.body))
        elif frame.kind == Kind.BYE:
            self.disconnect()
            self._on_bye(frame.body.decode(errors="replace"))
        elif frame.kind == Kind.NOTICE:
            self._on_notice(frame.body.decode(errors="replace"))
        elif frame.kind == Kind.OPEN:
            self._on_open(frame.channel, frame.body[0])
        elif (channel := self.channels.get(frame.channel)) is None:
            pass  # it was closed here while this was under way
        elif frame.kind == Kind.DATA:
            self._on_data(channel, frame.body)
        elif frame.kind == Kind.CREDIT:
            channel.window = min(WINDOW_BYTES, channel.window + NUMBER.unpack(frame.body)[0])
            self._look(channel)
        else:
            channel.is_ending = True
            self._pour(channel)

    def _on_open(self, number: int, door: int) -> None:
        if number in self.channels:
            raise Forged(f"stream {number} is open already")
        connection = self._accept(door) if len(self.channels) < CHANNELS else None
        if connection is None:
            frame = pack(Kind.CLOSE, number)
            self._kept.append(frame)
            if self.wire is not None:
                self.wire.put(frame)
        else:
            self._add(Channel(number, door, connection))

    def _on_data(self, channel: Channel, data: bytes) -> None:
        if len(channel.unsent) + len(data) > 2 * WINDOW_BYTES:  # `tell` takes room too
            raise Forged(f"stream {channel.number} has more under way than its window")
        channel.unsent += data
        channel.on_data(data)
        self._pour(channel)

    # -- streams ------------------------------------------------------------------------------------------------------

    def open(self, door: int, connection: socket.socket) -> Channel:
        """Open a stream for a program that connected at this end."""
        channel = Channel(self._next, door, connection)
        self._next += 1
        self._send(Kind.OPEN, channel, bytes((door,)))
        self._add(channel)
        self._flush()
        return channel

    def tell(self, channel: Channel, data: bytes) -> None:
        """Send a program data that the peer did not send."""
        channel.unsent += data
        self._pour(channel)

    def _add(self, channel: Channel) -> None:
        self.channels[channel.number] = channel
        self._look(channel)

    def _look(self, channel: Channel) -> None:
        """Set the events that a socket is watched for."""
        reads = self.wire is not None and not self.wire.is_full and channel.window > 0 and not channel.is_ending
        mask = (IN if reads else 0) | (OUT if channel.unsent else 0)
        self._watch.set(channel.socket, mask, lambda ready: self._on_socket(channel, ready))

    def _on_socket(self, channel: Channel, ready: int) -> None:
        if channel.unsent:
            self._pour(channel)
        if self.channels.get(channel.number) is channel and ready & ~OUT:
            self._read(channel)
        self._flush()

    def _read(self, channel: Channel) -> None:
        if self.wire is None or channel.window <= 0 or channel.is_ending:
            return
        try:
            data = channel.socket.recv(min(BODY_BYTES, channel.window))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            channel.window -= len(data)
            self._send(Kind.DATA, channel, data)
            self._look(channel)
        else:
            self._close(channel)

    def _pour(self, channel: Channel) -> None:
        """Write received data to the socket."""
        try:
            sent = channel.socket.send(channel.unsent) if channel.unsent else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(channel)
            return
        del channel.unsent[:sent]
        channel.taken += sent
        if channel.is_ending and not channel.unsent:
            self._drop(channel)
            return
        if channel.taken >= WINDOW_BYTES // 4:
            self._send(Kind.CREDIT, channel, NUMBER.pack(channel.taken))
            channel.taken = 0
        self._look(channel)

    def _close(self, channel: Channel) -> None:
        """Close a stream whose socket here has ended."""
        if not channel.is_ending:
            self._send(Kind.CLOSE, channel)
        self._drop(channel)

    def _drop(self, channel: Channel) -> None:
        if self.channels.pop(channel.number, None) is not None:
            self._watch.forget(channel.socket)
            channel.socket.close()


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
