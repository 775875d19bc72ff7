"""How a process gets the memory of another one's queues: from a socket with a name of Linux's abstract kind.

    neighbours = Neighbours(name, adapter)      a thread of its own lets others in
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
import select
import socket
import struct
import sys
import threading

import numpy as np
import numpy.typing as npt

from weft.verbs.transport import layout
from weft.verbs.transport.adapter import Adapter

_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid
_ANSWER_S = 10.0  # the other may have to load its kernels first
_TURN_S = 5e-4
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
            with self._adapter.loading():
                _load_kernels(self._adapter.memory.address)  # now, not with the lock held
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
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # there is one more to watch, or it is over
        self._is_open = True
        threading.Thread(target=self._work, name=f"door of {name}", daemon=True).start()

    def _work(self) -> None:
        """Not in the thread that answers packets: letting somebody in may take until kernels are loaded."""
        while self._is_open:
            poller = select.poll()
            for file in (self._news, *self._door.files, *(far.file for far in list(self._known.values()))):
                if file >= 0:
                    poller.register(file, select.POLLIN)
            poller.poll()
            if self._is_open:
                self._tend()

    def _tend(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._news)
        self._door.serve()
        for name, far in list(self._known.items()):
            if not far.is_alive:
                self._forget(name)

    def far(self, name: str) -> FarMemory | None:
        if name in self._known and not self._known[name].is_alive:  # another process may have its name already
            self._forget(name)
        if name not in self._known:
            made = enter(name)
            if made is None:
                return None
            self._known[name] = made
            os.eventfd_write(self._news, 1)
        return self._known[name]

    def watch(self, name: str, meter: npt.NDArray[np.int64]) -> None:
        """Close it when the process is gone."""
        self._meters.setdefault(name, []).append(meter)

    def _forget(self, name: str) -> None:
        for meter in self._meters.pop(name, ()):
            meter[0] = 0
        if (far := self._known.pop(name, None)) is not None:
            far.close()

    def close(self) -> None:
        self._is_open = False
        os.eventfd_write(self._news, 1)
        self._door.close()
        for name in list(self._known):
            self._forget(name)


def _load_kernels(address: int) -> None:
    """Threads take turns more often meanwhile: next to one that computes, an import with its many reads takes long."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        from weft.verbs.transport import atomic, rings

        atomic.load(address)
        rings.load()
    finally:
        sys.setswitchinterval(usual_s)


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
