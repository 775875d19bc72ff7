"""Connect a program to the lab of its host by a stream socket with frames.

    length of the body, kind        6 bytes, little-endian
    QUESTION, ANSWER                number, JSON; a file may come with an answer
    PACKETS                         one after the other, each with its length before it: whole packets from LRH to VCRC
    PORT                            the settings of the port by the subnet manager: PortInfo, GUIDs, P_Keys; see `Facts`
    EVENT                           one byte, for other events
    RING                            GUID of a port and number of a program there, which has something in its queues
    BAD_KEY                         1 for a wrong Q_Key, 0 for a P_Key; the packet that a queue pair dropped for it

The lab removes a program when its connection ends.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import json
import os
import select
import socket
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

from weft import runtime
from weft.compiler import structure
from weft.errors import ConfigError, SubnetError

SUFFIX = ".verbs"  # follows the name of the lab in the path of the socket
QUEUE_PAIR_BITS = 16  # low bits of a queue pair's number; the bits above are the number of the program
METERS = 4096  # per program: see weft.lab.metered_paths
GUIDS_BYTES = 64  # GUIDInfo
_FRAME = ("u32 length", "u16 kind")
FRAME = structure("weft_frame", *_FRAME)[0]
NUMBER = struct.Struct("=I")
FRAME_IN_C = structure("weft_frame", *_FRAME, "u32 number", packed=True)[1]  # of a question or an answer
BELL = struct.Struct("<QI")
LENGTH = struct.Struct("<H")
MOST_BYTES = 16 << 20  # limit of unsent bytes; more packets are lost, as on a wire
READ_BYTES = 1 << 20
_TIMEOUT_S = 10.0
_SLICE_S = 0.01  # poll interval: another thread may have read the answer


class Kind(IntEnum):
    QUESTION = 1
    ANSWER = 2
    PACKETS = 3
    PORT = 4
    EVENT = 5
    RING = 6
    BAD_KEY = 7


class Event(IntEnum):
    """The event in a frame of kind EVENT."""

    CLIENT_REREGISTER = 1
    RING = 2
    CUT = 3  # the joined machine has lost its lab; the next frame of kind PORT has the state


def frame(kind: Kind, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return FRAME.pack(len(body), kind) + body


def packets_frame(packets: Iterable[bytes]) -> bytes:
    return frame(Kind.PACKETS, *(part for packet in packets for part in (LENGTH.pack(len(packet)), packet)))


def packets_in(body: bytes) -> Iterator[bytes]:
    """Yield the packets of a frame. A truncated packet at its end is ignored."""
    at = 0
    while at + LENGTH.size <= len(body):
        (length,) = LENGTH.unpack_from(body, at)
        at += LENGTH.size
        if at + length <= len(body):
            yield body[at : at + length]
        at += length


def frames_in(received: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield the complete frames, and remove them from the received bytes."""
    at = 0
    while len(received) - at >= FRAME.size:
        length, kind = FRAME.unpack_from(received, at)
        end = at + FRAME.size + length
        if len(received) < end:
            break
        yield kind, bytes(received[at + FRAME.size : end])
        at = end
    del received[:at]


class Line:
    """A program's end of the connection, for any thread. `is_down`: the lab has ended; `is_closed`: by the program."""

    def __init__(self, path: str) -> None:
        self.path, self.is_down, self.is_closed = path, False, False
        try:
            self._socket = runtime.dial(Path(path), _TIMEOUT_S)
        except OSError as error:
            raise _gone(path) from error
        self._socket.setblocking(False)
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._pollers = 0  # threads that poll the files: the last closes them if the line was closed meanwhile
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # the inbox has frames
        self._readable = array.array("i", [0])  # bytes
        self._received = bytearray()
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._answers: dict[int, tuple[dict[str, Any], int]] = {}
        self._open_questions: set[int] = set()  # numbers of open questions
        self._files: list[int] = []
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """Close this process's files as soon as no thread polls them: their numbers may be used again at once.

        A forked process closes its own copies. It has no other thread, and the lock may have been held.
        """
        if self._process != os.getpid():
            self._lock, self._pollers = threading.RLock(), 0
        with self._lock:
            if self.is_closed:
                return
            if self._pollers:
                self._ring()
            self.is_down = self.is_closed = True
            self._unsent.clear()
            self._close_unused()

    def _close_unused(self) -> None:
        if self.is_closed and not self._pollers:
            self._socket.close()
            os.close(self._bell)

    # -- out ----------------------------------------------------------------------------------------------------------

    def put(self, packets: Iterable[bytes]) -> None:
        with self._lock:
            if self._unsent_bytes < MOST_BYTES:
                self._put(packets_frame(packets))

    def wake(self, guid: int, program: int) -> None:
        """Wake another program at the port with this GUID."""
        with self._lock:
            self._put(frame(Kind.RING, BELL.pack(guid, program)))

    def report_bad_key(self, packet: bytes, *, is_q_key: bool) -> None:
        with self._lock:
            if self._unsent_bytes < MOST_BYTES:
                self._put(frame(Kind.BAD_KEY, bytes((is_q_key,)), packet))

    def _put(self, data: bytes) -> None:
        if self.is_down:
            return
        self._unsent.append(memoryview(data))
        self._unsent_bytes += len(data)
        self._flush()

    def _flush(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                sent = self._socket.send(unsent[0])
                self._unsent_bytes -= sent
                if sent == len(unsent[0]):
                    unsent.popleft()
                else:
                    unsent[0] = unsent[0][sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._end()

    def _end(self) -> None:
        self.is_down = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._ring()

    # -- in -----------------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """The property that `take` would return nothing. Only `wait` notices the end of the lab."""
        if self._inbox or self._unsent or self.is_down:
            return False
        try:
            fcntl.ioctl(self._socket, termios.FIONREAD, self._readable)
        except (OSError, ValueError):  # closed by another thread
            return False
        return not self._readable[0]

    def take(self) -> list[tuple[int, bytes]]:
        """Return the received frames, without waiting."""
        with self._lock:
            self._flush()
            self._read()
            if not self.is_closed:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            came = list(self._inbox)
            self._inbox.clear()
        return came

    def _read(self) -> None:
        while not self.is_down:
            try:
                data, files, _, _ = socket.recv_fds(self._socket, READ_BYTES, 1)
            except BlockingIOError:
                break
            except OSError:
                data, files = b"", []
            self._files += files
            if not data:
                self._end()
                break
            self._received += data
        for kind, body in frames_in(self._received):
            if kind == Kind.ANSWER:
                (number,) = NUMBER.unpack_from(body)
                answer = json.loads(body[NUMBER.size :])
                file = self._files.pop(0) if answer.pop("has_file", False) and self._files else -1
                if number in self._open_questions:
                    self._answers[number] = answer, file
                elif file >= 0:
                    os.close(file)
            else:
                self._inbox.append((kind, body))

    def wait(self, seconds: float) -> None:
        """Wait until frames may have arrived, at most `seconds`. The end of the lab is noticed here."""
        if self._poll(seconds, self._bell):
            with self._lock:
                self._read()

    def ring(self) -> None:
        """Wake the waiting threads of this process."""
        with self._lock:
            self._ring()

    def _ring(self) -> None:
        if not self.is_closed:
            os.eventfd_write(self._bell, 1)

    def _poll(self, seconds: float, *files: int) -> bool:
        """Wait for the socket and files; return whether the lab closed the connection."""
        poller = select.poll()  # one per thread
        with self._lock:
            if self.is_closed:
                return False
            self._pollers += 1
            for file in files:
                poller.register(file, select.POLLIN)
            if not self.is_down:
                poller.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        try:
            return any(event & select.POLLHUP for _, event in poller.poll(seconds * 1e3))
        finally:
            with self._lock:
                self._pollers -= 1
                self._close_unused()

    # -- questions ----------------------------------------------------------------------------------------------------

    def ask(self, do: str, timeout_s: float = _TIMEOUT_S, **words: Any) -> dict[str, Any]:
        return self.ask_for_file(do, timeout_s, **words)[0]

    def ask_for_file(self, do: str, timeout_s: float = _TIMEOUT_S, **words: Any) -> tuple[dict[str, Any], int]:
        """Return the answer and its file, or -1. Raise ConfigError if the lab refuses."""
        number = next(self._numbers)
        self._open_questions.add(number)
        try:
            return self._ask(number, do, timeout_s, words)
        finally:
            with self._lock:
                self._open_questions.discard(number)

    def _ask(self, number: int, do: str, timeout_s: float, words: dict[str, Any]) -> tuple[dict[str, Any], int]:
        with self._lock:
            self._put(frame(Kind.QUESTION, NUMBER.pack(number), json.dumps({"do": do, **words}).encode()))
        until_s = time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._flush()
                self._read()
                answer = self._answers.pop(number, None)
                if self._inbox:
                    self._ring()  # wake other waiting threads
            if answer is not None:
                break
            left_s = until_s - time.monotonic()
            if self.is_down or left_s <= 0:
                raise _gone(self.path)
            self._poll(min(left_s, _SLICE_S))
        if "error" in answer[0]:
            raise ConfigError(answer[0]["error"])
        return answer


def _gone(path: str) -> SubnetError:
    name = os.path.basename(path).removesuffix(SUFFIX)
    return SubnetError(f"lab {name} does not answer: start it with `weft up SPEC --sm --daemon --name {name}`")
