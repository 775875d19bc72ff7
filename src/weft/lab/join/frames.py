"""Define the signed frames of the connection of a joined host.

    length of the body, channel, kind     9 bytes, little-endian
    body
    seal                                  16 bytes of HMAC-SHA256: of how many frames went before, and of this one

    OPEN      a program has come to a door of the joining machine; one byte says to which
    DATA      bytes of its stream, either way
    CREDIT    so many bytes were taken: so many more may come
    CLOSE     its stream has ended
    ACK       so many frames of the kinds above have come since the host joined; also a sign of life
    BYE       the host leaves, or the lab ends: text says why
    NOTICE    text from the lab for the user of the host

A connection has a key for each direction, derived from the token and the handshake (`handshake`): without the token a
frame cannot be added, changed or repeated. Frames are signed, not encrypted.
"""

from __future__ import annotations

import hmac
import socket
import struct
import time
from collections import deque
from enum import IntEnum
from typing import NamedTuple

HEADER = struct.Struct("<IIB")
NUMBER = struct.Struct("<Q")
SEAL_BYTES = 16
BODY_BYTES = 1 << 16  # the most of one
FULL_BYTES = 1 << 20  # that wait for the connection, before streams have to
_READ_BYTES = 1 << 18


class Kind(IntEnum):
    OPEN = 1
    DATA = 2
    CREDIT = 3
    CLOSE = 4
    ACK = 5
    BYE = 6
    NOTICE = 7


KEPT = frozenset((Kind.OPEN, Kind.DATA, Kind.CREDIT, Kind.CLOSE))  # until they are acknowledged
_LENGTHS = {Kind.OPEN: 1, Kind.CREDIT: NUMBER.size, Kind.CLOSE: 0, Kind.ACK: NUMBER.size}


class Frame(NamedTuple):
    kind: Kind
    channel: int
    body: bytes


class Cut(Exception):
    """The connection is gone."""


class Forged(Exception):
    """A frame whose sender does not know the token, or is another version of weft."""


def pack(kind: Kind, channel: int = 0, body: bytes = b"") -> bytes:
    """Return a frame without its signature."""
    return HEADER.pack(len(body), channel, kind) + body


class FrameSigner:
    """A signer of the frames of one direction of a connection."""

    def __init__(self, key: bytes) -> None:
        self._key, self._count = key, 0

    def seal(self, frame: bytes) -> bytes:
        """Return the signature of the next frame."""
        self._count += 1
        return hmac.digest(self._key, NUMBER.pack(self._count) + frame, "sha256")[:SEAL_BYTES]


class Reader:
    """A parser of signed frames from a stream."""

    def __init__(self, key: bytes, received: bytes = b"") -> None:
        self._sealer, self._received = FrameSigner(key), bytearray(received)

    def read(self, data: bytes) -> list[Frame]:
        received, frames, at = self._received, [], 0
        received += data
        while len(received) - at >= HEADER.size:
            length, _, _ = HEADER.unpack_from(received, at)
            if length > BODY_BYTES:
                raise Forged(f"a frame of {length} bytes; the most are {BODY_BYTES}")
            end = at + HEADER.size + length
            if len(received) < end + SEAL_BYTES:
                break
            frames.append(self._checked(bytes(received[at:end]), bytes(received[end : end + SEAL_BYTES])))
            at = end + SEAL_BYTES
        del received[:at]
        return frames

    def _checked(self, frame: bytes, seal: bytes) -> Frame:
        if not hmac.compare_digest(self._sealer.seal(frame), seal):
            raise Forged("a frame has the wrong seal")
        length, channel, kind = HEADER.unpack_from(frame)
        if kind not in Kind.__members__.values() or _LENGTHS.get(Kind(kind), length) != length:
            raise Forged(f"a frame of kind {kind} with {length} bytes")
        return Frame(Kind(kind), channel, frame[HEADER.size :])


class Wire:
    """An end of an authenticated connection. It never blocks."""

    def __init__(self, connection: socket.socket, send_key: bytes, receive_key: bytes, received: bytes = b"") -> None:
        connection.setblocking(False)
        self.socket = connection
        self._sealer, self._reader = FrameSigner(send_key), Reader(receive_key, received)
        self._unsent: deque[memoryview] = deque()
        self.unsent_bytes = 0
        self.heard_s = time.monotonic()

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def is_full(self) -> bool:
        return self.unsent_bytes > FULL_BYTES

    def put(self, frame: bytes) -> None:
        self.say(frame + self._sealer.seal(frame))

    def say(self, data: bytes) -> None:
        """Send raw data: the end of the handshake."""
        self._unsent.append(memoryview(data))
        self.unsent_bytes += len(data)

    def flush(self) -> None:
        """Send as much as the socket accepts."""
        unsent = self._unsent
        try:
            while unsent:
                sent = self.socket.send(unsent[0])
                self.unsent_bytes -= sent
                if sent == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = unsent[0][sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            raise Cut(error.strerror or "it cannot be written") from None

    def take(self) -> list[Frame]:
        """Return the frames that have arrived."""
        try:
            data = self.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise Cut(error.strerror or "it cannot be read") from None
        if not data:
            raise Cut("the other end has closed it")
        self.heard_s = time.monotonic()
        return self._reader.read(data)

    def rest(self) -> list[Frame]:
        """Return frames that arrived together with the end of the handshake."""
        return self._reader.read(b"")

    def close(self) -> None:
        self.socket.close()
