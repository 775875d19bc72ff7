"""How a process gets the memory of another one's queues: from a socket with a name of Linux's abstract kind.

    neighbours = Neighbours(name, adapter)      `tend` lets others in, when one of `files` can be read
    neighbours.far(name)                        the memory of another; None if nobody is there
    neighbours.watch(name, meter)               close a way when the other is gone

The connection stays open as long as both live: when it ends the other process is gone, however it went, and all ways
to it are closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
import struct

import numpy as np
import numpy.typing as npt

from weft.verbs.transport import layout
from weft.verbs.transport.adapter import Adapter

_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid
_ANSWER_S = 5.0  # the other may have to load its kernels first
_WORD = struct.Struct("=Q")
_HELLO = b"weft verbs 1"


class Doorway:
    """Of one adapter."""

    def __init__(self, name: str, adapter: Adapter) -> None:
        self._adapter = adapter
        self._guests: list[socket.socket] = []
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._door.bind(_address(name))
        self._door.listen()

    @property
    def files(self) -> list[int]:
        return [self._door.fileno(), *(guest.fileno() for guest in self._guests)]

    def serve(self) -> None:
        """Let in who waits, and forget who left."""
        while True:
            try:
                guest, _ = self._door.accept()
            except BlockingIOError:
                break
            if _peer(guest)[1] not in (0, os.geteuid()):
                guest.close()
                continue
            self._share()
            with contextlib.suppress(OSError):
                socket.send_fds(guest, [_HELLO], [self._adapter.memory.file])
            guest.setblocking(False)
            self._guests.append(guest)
        for guest in [one for one in self._guests if has_ended(one)]:
            guest.close()
            self._guests.remove(guest)

    def _share(self) -> None:
        """From now on all that is changed is changed so that others may look at any time."""
        if not self._adapter.memory.is_shared:
            from weft.verbs.transport import atomic

            atomic.load(self._adapter.memory.address)  # compiled now, not with the lock held
            with self._adapter.lock:
                self._adapter.memory.is_shared = True

    def close(self) -> None:
        for one in (self._door, *self._guests):
            one.close()


class FarMemory:
    """That of another process, at `address` here."""

    def __init__(self, process: int, connection: socket.socket, file: int) -> None:
        self.process, self._connection = process, connection
        try:
            self._mapped = mmap.mmap(file, os.fstat(file).st_size, mmap.MAP_SHARED)
        finally:
            os.close(file)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapped))

    @property
    def file(self) -> int:
        """Readable when the process is gone."""
        return self._connection.fileno()

    @property
    def is_alive(self) -> bool:
        closed = _WORD.unpack_from(self._mapped, layout.PROCESS * layout.WORD_BYTES)[0] == 0
        return not closed and not has_ended(self._connection)

    def close(self) -> None:
        """The memory stays mapped until nobody has an address of it."""
        self._connection.close()


class Neighbours:
    """The adapters of other processes whose memory this one has, and the door for those who want this one's."""

    def __init__(self, name: str, adapter: Adapter) -> None:
        self._door = Doorway(name, adapter)
        self._known: dict[str, FarMemory] = {}
        self._meters: dict[str, list[npt.NDArray[np.int64]]] = {}

    @property
    def files(self) -> list[int]:
        return [*self._door.files, *(far.file for far in list(self._known.values()))]

    def tend(self) -> None:
        self._door.serve()
        for name, far in list(self._known.items()):
            if not far.is_alive:
                self._forget(name)

    def far(self, name: str) -> FarMemory | None:
        if name not in self._known:
            made = enter(name)
            if made is None:
                return None
            self._known[name] = made
        return self._known[name]

    def watch(self, name: str, meter: npt.NDArray[np.int64]) -> None:
        """Close it when the process is gone."""
        self._meters.setdefault(name, []).append(meter)

    def _forget(self, name: str) -> None:
        for meter in self._meters.pop(name, ()):
            meter[0] = 0
        self._known.pop(name).close()

    def close(self) -> None:
        self._door.close()
        for name in list(self._known):
            self._forget(name)


def enter(name: str) -> FarMemory | None:
    """The memory of the process behind a name."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_S)
    try:
        connection.connect(_address(name))
        said, files, _, _ = socket.recv_fds(connection, len(_HELLO), 1)
    except OSError:
        connection.close()
        return None
    process, user = _peer(connection)
    if said != _HELLO or len(files) != 1 or user not in (0, os.geteuid()):
        connection.close()
        for file in files:
            os.close(file)
        return None
    connection.setblocking(False)
    return FarMemory(process, connection, files[0])


def has_ended(connection: socket.socket) -> bool:
    try:
        return not connection.recv(64)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _address(name: str) -> str:
    return f"\0{name}-memory"


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user."""
    process, user, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return process, user
