"""Many datagrams of one kind by one system call: sendmmsg and recvmmsg of Linux, over arrays.

    line = Datagrams(socket, kind)         `kind` is the dtype of one datagram
    line.outbox[:3] = ...                  kind[BATCH]
    sent = line.send(3)                    how many of them the socket took
    inbox = line.receive()                 kind[n]: what is there, BATCH at most; stands until the next call

A call of `socket.send` from Python costs more than the kernel's part of it; here a batch shares one.
"""

from __future__ import annotations

import ctypes
import errno
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH = 128
_SPARE_BYTES = 8  # behind each place of the inbox: what is too long is seen
_IOVEC = np.dtype([("at", np.uint64), ("bytes", np.uint64)])
# struct mmsghdr of 64-bit Linux: a msghdr of 56 bytes, then what was moved
_MESSAGE = np.dtype(
    {
        "names": ["iovec", "iovecs", "moved"],
        "formats": [np.uint64, np.uint64, np.uint32],
        "offsets": [16, 24, 56],
        "itemsize": 64,
    }
)


class Datagrams:
    """A batch sender and receiver over a connected, non-blocking socket; OSError is an error of the socket."""

    def __init__(self, line: socket.socket, kind: np.dtype[Any]) -> None:
        self._socket, self._kind = line, kind
        self._library = ctypes.CDLL(None, use_errno=True)
        self._library.sendmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int]
        self._library.recvmmsg.argtypes = [*self._library.sendmmsg.argtypes, ctypes.c_void_p]
        fields: Mapping[str, Any] = kind.fields or {}
        spacious: Any = {
            "names": list(fields),
            "formats": [field[0] for field in fields.values()],
            "offsets": [field[1] for field in fields.values()],
            "itemsize": kind.itemsize + _SPARE_BYTES,
        }
        self.outbox, self._inbox = np.zeros(BATCH, kind), np.zeros(BATCH, np.dtype(spacious))
        self._out_messages, self._in_messages = _Messages(self.outbox), _Messages(self._inbox)

    def send(self, count: int) -> int:
        """Send datagrams from the start of the outbox and return how many; fewer if the socket is full."""
        return self._moved(self._library.sendmmsg(self._socket.fileno(), self._out_messages.address, count, 0))

    def receive(self) -> NDArray[Any]:
        number, address = self._socket.fileno(), self._in_messages.address
        count = self._moved(self._library.recvmmsg(number, address, BATCH, socket.MSG_DONTWAIT, None))
        right = self._in_messages.moved[:count] == self._kind.itemsize
        return self._inbox[:count] if right.all() else self._inbox[:count][right]

    def _moved(self, count: int) -> int:
        """Return the count of a system call, 0 if it would block; raise OSError if it failed."""
        if count >= 0:
            return count
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            raise OSError(number, "the other end does not take part")
        return 0


class _Messages:
    """The headers of messages, each with one part: an element of `box`."""

    def __init__(self, box: NDArray[Any]) -> None:
        self._parts, self._headers = np.zeros(len(box), _IOVEC), np.zeros(len(box), _MESSAGE)
        self._parts["at"], self._parts["bytes"] = _places(box), box.itemsize
        self._headers["iovec"], self._headers["iovecs"] = _places(self._parts), 1
        self.moved, self.address = self._headers["moved"], self._headers.ctypes.data


def _places(array: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the memory address of each element."""
    return (np.arange(len(array)) * array.itemsize + array.ctypes.data).astype(np.uint64)
