"""The memory of an adapter's queues, and of regions that it allocates: one piece, which other processes may map.

Like the memory that a driver shares with its hardware, it holds what the two sides need of each other: which queue
pairs there are, in what state, what they can receive, who may touch which memory (`layout`). It belongs to no file
system: when the last process that has it ends, however it ends, it is gone.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import mmap
import os
import sys
import threading
import time
from collections import deque
from types import TracebackType

from weft import runtime
from weft.verbs.shm import layout, native
from weft.verbs.shm.record import Record

_PAGE_BYTES = mmap.PAGESIZE
_SHARED_BYTES = (
    1 << 38,
    1 << 34,
    1 << 31,
)  # address space, the first size that is available; only written pages use memory
_PRIVATE_BYTES = (1 << 28,)
_NO_RESERVE, _FIXED = 0x4000, 0x10  # MAP_NORESERVE and MAP_FIXED of Linux
_PUNCH_HOLE, _KEEP_SIZE = 2, 1  # flags of fallocate
_HOLDER_S = 0.05  # after so long it is time to ask whether the holder of the lock lives


class QueueMemory:
    """The memory of queues. `bytes` have the layout of `layout`; `address` is their address in this process."""

    def __init__(self, *, can_be_shared: bool) -> None:
        self.can_be_shared = can_be_shared and sys.platform == "linux"
        self.is_shared = False  # another process has it too
        self._is_copy = False
        self.file = -1  # mapped by other processes
        self._map_most()
        self._free = [(layout.BLOCKS // _PAGE_BYTES + 1, self.size // _PAGE_BYTES)]  # pages from, to
        self._given_back: deque[tuple[int, int]] = deque()
        self._allocating = threading.Lock()
        self.queue_pairs: dict[int, layout.QueuePairRecord] = {}  # by number, those that there are
        self._header = layout.Header.from_buffer(self.bytes)
        self._header.process, self._header.begin, self._header.length = os.getpid(), self.address, self.size

    def _map_most(self) -> None:
        sizes = _SHARED_BYTES if self.can_be_shared else _PRIVATE_BYTES
        flags = mmap.MAP_SHARED if self.can_be_shared else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        for self.size in sizes:
            if self.can_be_shared:
                self.file = runtime.memory("verbs", self.size)
            try:
                self.bytes = mmap.mmap(self.file, self.size, flags | _NO_RESERVE)
                break
            except OSError:  # the user may have fewer addresses (ulimit -v)
                if self.size == sizes[-1]:
                    raise
                os.close(self.file)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))

    @property
    def is_alive(self) -> bool:
        """The property that the memory is not closed."""
        return bool(self._header.process)

    def close(self) -> None:
        """Mark the memory as closed for other processes."""
        self._header.process = 0

    def leave(self) -> None:
        """Replace the shared memory by a private copy, in a forked process."""
        if self.can_be_shared:
            _map_at(self.address, self.size, mmap.MAP_PRIVATE | _NO_RESERVE, self.file)
            self.is_shared, self._is_copy = False, True

    # -- blocks -------------------------------------------------------------------------------------------------------

    def allocate(self, size_bytes: int) -> int:
        """Allocate a zeroed block of whole pages; return its offset. Raise MemoryError if there is none."""
        pages = max(1, -(-size_bytes // _PAGE_BYTES))
        with self._allocating:
            while self._given_back:
                self._take_back(*self._given_back.popleft())
            for index, (begin, end) in enumerate(self._free):
                if end - begin >= pages:
                    self._free[index : index + 1] = [(begin + pages, end)] if end - begin > pages else []
                    return begin * _PAGE_BYTES
        raise MemoryError

    def give_back(self, at: int, size_bytes: int) -> None:
        """Free a block. It may be called from anywhere, also from destructors."""
        self._given_back.append((at // _PAGE_BYTES, max(1, -(-size_bytes // _PAGE_BYTES))))

    def _take_back(self, begin: int, pages: int) -> None:
        self._empty(begin * _PAGE_BYTES, pages * _PAGE_BYTES)
        index = bisect.bisect(self._free, (begin, 0))
        self._free.insert(index, (begin, begin + pages))
        for near in (index, index - 1):  # join with the next, and with the one before
            if 0 <= near < len(self._free) - 1 and self._free[near][1] == self._free[near + 1][0]:
                self._free[near : near + 2] = [(self._free[near][0], self._free[near + 1][1])]

    def _empty(self, at: int, size_bytes: int) -> None:
        if self._is_copy:
            return  # the other's memory is not ours to empty
        if self.can_be_shared:
            runtime.libc().fallocate(self.file, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_long(at), ctypes.c_long(size_bytes))
        else:
            self.bytes.madvise(mmap.MADV_DONTNEED, at, size_bytes)

    def __del__(self) -> None:
        if self.file >= 0:
            os.close(self.file)


def publish(record: Record, name: str, value: int) -> None:
    """Write a field so that another process that sees it sees all that was written before."""
    native.publish(ctypes.addressof(record) + record.offset(name), value)


def published(record: Record, name: str) -> int:
    """Read a field, and all that another process wrote before it."""
    return int(native.load(ctypes.addressof(record) + record.offset(name)))


class Block:
    """A block of the memory, freed with this object."""

    def __init__(self, memory: QueueMemory, size_bytes: int) -> None:
        self._memory, self._size_bytes = memory, size_bytes
        self.at = memory.allocate(size_bytes)

    @property
    def address(self) -> int:
        return self._memory.address + self.at

    def __del__(self) -> None:
        if hasattr(self, "at"):
            self._memory.give_back(self.at, self._size_bytes)


def _map_at(address: int, size_bytes: int, flags: int, file: int) -> None:
    """Map memory over the existing mapping; records and addresses stay the same."""
    call, protection = runtime.libc().mmap, mmap.PROT_READ | mmap.PROT_WRITE
    call.restype = ctypes.c_void_p
    begin, size, offset = ctypes.c_void_p(address), ctypes.c_size_t(size_bytes), ctypes.c_long(0)
    if call(begin, size, protection, flags | _FIXED, file, offset) != address:
        raise OSError(ctypes.get_errno(), "the memory of queues cannot be copied")


@functools.cache
def of_process() -> QueueMemory:
    """Return the memory for queues of adapters that share nothing."""
    return QueueMemory(can_be_shared=False)


class Lock:
    """A lock on an adapter's state, against threads of this process and, if the memory is shared, other processes.

    A process that was killed while it had the lock leaves everything whole: it may have used up a receive request.
    """

    def __init__(self, memory: QueueMemory) -> None:
        self.threads = threading.RLock()
        self._memory = memory
        self._depth = 0
        self._has_memory = False
        self.holder = 0  # the thread that has it; 0: none

    @property
    def is_mine(self) -> bool:
        """The property that this thread holds the lock."""
        return self.holder == threading.get_ident()

    def __enter__(self) -> None:
        self.threads.acquire()
        self._depth += 1
        if self._depth == 1:
            self.holder = threading.get_ident()
            if self._memory.is_shared:
                self._take()
                self._has_memory = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._depth == 1:
            self.holder = 0
            if self._has_memory:
                self._has_memory = False
                native.unlock(self._memory.address)
        self._depth -= 1
        self.threads.release()

    def _take(self) -> None:
        began_s = time.monotonic()
        while not native.lock(self._memory.address, os.getpid()):
            if time.monotonic() - began_s > _HOLDER_S:
                break_lock(self._memory.address)
                began_s = time.monotonic()
            time.sleep(0)


def break_lock(address: int) -> None:
    """Take the lock of the memory there from a process that is gone."""
    process = native.load(address + layout.Header.offset("lock"))
    if process and not lives(process):
        native.free_from(address, process)


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(process)


def _is_zombie(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return False
