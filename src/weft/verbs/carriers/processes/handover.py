"""Exchange the memory of queues between processes, over a socket in the folder of both.

    peers = PeerMemories(path, adapter)     a thread hands the memory of this process to others
    peers.peer(path, ...)                   the memory of another process, or of this one; None if there is no process

The connection stays open while both processes run. When it ends, the other process has ended, and all paths to it are
closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from weft import runtime
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.carrier import MemoryPeer, Sender
from weft.verbs.shm import native
from weft.verbs.shm.layout import Header, MeterRecord
from weft.verbs.shm.queue_memory import QueueMemory

_ANSWER_S = 10.0  # the other may have to load its kernels first
_TURN_S = 5e-4
_HELLO = b"weft verbs 1"


class PeerMemory:
    """The mapped memory of another process, at `address`."""

    def __init__(self, process: int, connection: socket.socket, file: int) -> None:
        self.process, self._connection = process, connection
        self.uncounted = MeterRecord(is_open=1)  # never read: no time passes on this path
        try:
            self._mapped = mmap.mmap(file, os.fstat(file).st_size, mmap.MAP_SHARED)
        finally:
            os.close(file)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapped))

    @property
    def file(self) -> int:
        """A file that is readable when the process has ended."""
        return self._connection.fileno()

    @property
    def is_alive(self) -> bool:
        return Header.from_buffer(self._mapped).process != 0 and not has_ended(self._connection)

    def close(self) -> None:
        """Release the memory; it stays mapped while it is used."""
        self._connection.close()


class PeerMemories:
    """The memories of other processes' adapters, and the socket that hands out the memory of this process.

    `ring_here` wakes the waiting threads of this process.
    """

    def __init__(self, path: Path, adapter: Adapter, ring_here: Callable[[], None]) -> None:
        self._path, self.adapter, self._ring_here = path, adapter, ring_here
        runtime.clear(path.parent)
        self._listener = runtime.Listener(path)
        self._takers: list[socket.socket] = []  # connections of processes that have this memory
        self._known: dict[Path, PeerMemory] = {}
        self._taking = threading.Lock()  # threads that connect at the same time map a peer's memory once
        self._uncounted = MeterRecord(is_open=1)
        self._meters: dict[Path, dict[int, MeterRecord]] = {}  # by address; closed when it is gone
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # there is one more to watch, or it is over
        self._is_open = True
        threading.Thread(target=self._work, name=f"handover of {path.stem}", daemon=True).start()

    def _work(self) -> None:
        """Accept other processes in a thread of its own: it may have to wait until kernels are loaded."""
        while self._is_open:
            poller = select.poll()
            peers = (*(taker.fileno() for taker in self._takers), *(far.file for far in list(self._known.values())))
            for file in (self._news, self._listener.fileno(), *peers):
                if file >= 0:
                    poller.register(file, select.POLLIN)
            poller.poll()
            if self._is_open:
                self._tend()

    def _tend(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._news)
        self._serve()
        for path, far in list(self._known.items()):
            if not far.is_alive:
                self._forget(path)

    def _serve(self) -> None:
        """Hand the memory to processes that connect, and drop connections that ended."""
        while (taker := self._listener.accept()) is not None:
            self._takers.append(taker)
            runtime.allow_tracing(self._takers)
            self._share()
            with contextlib.suppress(OSError):
                socket.send_fds(taker, [_HELLO], [self.adapter.memory.file])
        ended = [taker for taker in self._takers if has_ended(taker)]
        for taker in ended:
            taker.close()
            self._takers.remove(taker)
        if ended:
            runtime.allow_tracing(self._takers)

    def _share(self) -> None:
        """Mark the memory as shared: from now on changes are ordered for other processes."""
        if not self.adapter.memory.is_shared:
            with self.adapter.loading():
                _load_kernels()  # now, not with the lock held
            with self.adapter.lock:
                self.adapter.memory.is_shared = True

    def peer(
        self, path: Path, *, sender: Sender, ring: Callable[[], None], meter: MeterRecord | None = None
    ) -> MemoryPeer | None:
        """Return the memory of the process at a socket, or of this one; `ring` wakes the process."""
        from weft.verbs.hca.shm_path import ShmPeer

        if path == self._path:
            mapping: QueueMemory | PeerMemory = self.adapter.memory
            address, process, ring, used = self.adapter.memory.address, os.getpid(), self._rung, self._uncounted
        else:
            far = self.far(path)
            if far is None:
                return None
            mapping, address, process, used = far, far.address, far.process, far.uncounted
            counted = meter or used
            self._meters.setdefault(path, {})[ctypes.addressof(counted)] = counted
        return ShmPeer(
            address=address,
            process=process,
            mapping=mapping,
            sender=sender,
            meter=meter or used,
            is_counted=meter is not None,
            ring=ring,
        )

    def _rung(self) -> None:
        self.adapter.on_bell()
        self._ring_here()

    def far(self, path: Path) -> PeerMemory | None:
        """Return the memory of the process at a socket, mapped now if it is not; None if no process answers there."""
        with self._taking:
            memory = self._known.get(path)
            if memory is not None and not memory.is_alive:  # another process may have its name already
                self._forget(path)
                memory = None
            if memory is None and (memory := take_memory(path)) is not None:
                self._known[path] = memory
                os.eventfd_write(self._news, 1)
            return memory

    def _forget(self, path: Path) -> None:
        for meter in self._meters.pop(path, {}).values():
            meter.is_open = 0
        if (far := self._known.pop(path, None)) is not None:
            far.close()

    def close(self) -> None:
        self._is_open = False
        os.eventfd_write(self._news, 1)
        self._listener.close()
        for taker in self._takers:
            taker.close()
        for path in list(self._known):
            self._forget(path)


def _load_kernels() -> None:
    """Load kernels with a short thread switch interval: beside a computing thread an import would take long."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        native.prepare()
    finally:
        sys.setswitchinterval(usual_s)


def take_memory(path: Path) -> PeerMemory | None:
    """Map the memory of the process at a socket."""
    try:
        connection = runtime.dial(path, _ANSWER_S)
    except OSError:
        return None
    try:
        greeting, files, _, _ = socket.recv_fds(connection, len(_HELLO), 1)
    except OSError:
        greeting, files = b"", []
    if greeting != _HELLO or len(files) != 1:
        connection.close()
        for file in files:
            os.close(file)
        return None
    connection.setblocking(False)
    return PeerMemory(runtime.peer(connection).pid, connection, files[0])


def has_ended(connection: socket.socket) -> bool:
    try:
        return not connection.recv(64)
    except BlockingIOError:
        return False
    except OSError:
        return True
