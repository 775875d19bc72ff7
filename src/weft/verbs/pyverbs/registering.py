"""Memory that is to be registered: the region's own, an address, or an object; and what is checked before.

Using a page that is not there, or writing to one that is read-only, would end the process.
"""

from __future__ import annotations

import ctypes
import errno
import mmap as _mmap
from numbers import Integral
from typing import Any

from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_WRITE,
)
from weft.verbs.errors import PyverbsError, PyverbsRDMAError, PyverbsUserError
from weft.verbs.gpudirect.cuda import Allocation, CudaError, allocation_at
from weft.verbs.gpudirect.gpu import Span
from weft.verbs.pyverbs.buffers import is_writable, span
from weft.verbs.pyverbs.mem_alloc import MAP_ANONYMOUS_, MAP_HUGETLB_, MAP_PRIVATE_, mmap, munmap
from weft.verbs.shm.queue_memory import Block, QueueMemory

HUGE_PAGE_SIZE = 0x200000
_MS_ASYNC = 1
_c = ctypes.CDLL(None, use_errno=True)
_c.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Buffer:
    """Memory that a region allocated for itself, of the kind that other processes can reach, or of huge pages."""

    def __init__(self, memory: QueueMemory, length: int, *, huge: bool) -> None:
        self.length, self.is_huge = length, huge
        try:
            if huge:
                self.length = -(-length // HUGE_PAGE_SIZE) * HUGE_PAGE_SIZE
                flags = MAP_PRIVATE_ | MAP_ANONYMOUS_ | MAP_HUGETLB_
                self.address = mmap(length=self.length, flags=flags, fd=-1)
            else:
                self._block = Block(memory, length)
                self.address = self._block.address
        except MemoryError as error:
            raise PyverbsError(f"Failed to allocate MR buffer of size {length}") from error

    def free(self) -> None:
        """What is not of huge pages goes with this object."""
        if self.is_huge:
            munmap(self.address, self.length)


def check_access(what: str, access: int) -> None:
    """Who lets others write must be able to write itself (InfiniBand Architecture volume 1, "Register MR")."""
    if access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) and not access & IBV_ACCESS_LOCAL_WRITE:
        raise PyverbsRDMAError(what, errno.EINVAL, "remote write and remote atomic need IBV_ACCESS_LOCAL_WRITE")


def given_memory(address: Any) -> Span | None:
    """The memory of an object; None if it is an address, or nothing."""
    return None if address is None or isinstance(address, Integral) else span(address)


def whereabouts(address: Any, length: int, given: Span | None) -> tuple[int, int]:
    """Address and length."""
    if given is None:
        return int(address or 0), length
    if not 0 < (length or given.nbytes) <= given.nbytes:
        raise PyverbsUserError(f"MR of {length} bytes, of an object that has {given.nbytes}")
    return given.address, length or given.nbytes


def check_memory(what: str, access: int, address: int, length: int, given: Span | None) -> Allocation | None:
    """Using a page that is not there, or writing to one that is read-only, would end the process.

    Gives the allocation, if it is on a GPU.
    """
    try:
        device = allocation_at(address, length) if given is None else given.device
    except CudaError as error:
        raise PyverbsRDMAError(what, error.code, str(error)) from error
    writable = given is None or given.writable
    if given is None and device is None:
        if access & IBV_ACCESS_ON_DEMAND:
            return None
        _check_mapped(what, address, length)
        writable = not access & IBV_ACCESS_LOCAL_WRITE or is_writable(address, length)
    if access & IBV_ACCESS_LOCAL_WRITE and not writable:
        reason = "the memory is read-only: register a copy (bytearray(it), it.copy()) or without IBV_ACCESS_LOCAL_WRITE"
        raise PyverbsRDMAError(what, errno.EFAULT, reason)
    return device


def _check_mapped(what: str, address: int, length: int) -> None:
    """msync() asks the kernel and changes nothing."""
    first = address // _mmap.PAGESIZE * _mmap.PAGESIZE
    if length and _c.msync(first, address + length - first, _MS_ASYNC):
        raise PyverbsRDMAError(what, errno.EFAULT, f"not all of {length} bytes at {address:#x} are mapped")
