"""Memory regions: memory of this process that the adapter may use, and others through it.

It is the region's own, at an address, or an object's, and checked before it is registered.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap as _mmap
from numbers import Integral
from typing import Any

from weft.verbs import enums as e
from weft.verbs.attributes.objects import PyverbsCM, table
from weft.verbs.attributes.text import rereg_error_to_str
from weft.verbs.errors import PyverbsError, PyverbsRDMAError, PyverbsUserError
from weft.verbs.gpudirect.cuda import Allocation, CudaError, allocation_at
from weft.verbs.gpudirect.gpu import DeviceBytes, Part, Span
from weft.verbs.hca.regions import WHOLE_SPACE, Region
from weft.verbs.pyverbs import mem_alloc
from weft.verbs.pyverbs.buffers import is_writable, span
from weft.verbs.pyverbs.pd import PD
from weft.verbs.shm.queue_memory import Block, QueueMemory

HUGE_PAGE_SIZE = 0x200000
_MS_ASYNC = 1
_SIZE_MAX = (1 << 64) - 1
_REREG = e.IBV_REREG_MR_CHANGE_TRANSLATION | e.IBV_REREG_MR_CHANGE_PD | e.IBV_REREG_MR_CHANGE_ACCESS
# Rights for which a connection identifier adds IBV_ACCESS_LOCAL_WRITE (rdma_reg_write, rdma_reg_read).
_OF_CONNECTION = (e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_READ)
_c = ctypes.CDLL(None, use_errno=True)
_c.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Buffer:
    """The memory that a region allocates: memory that other processes can reach, or huge pages."""

    def __init__(self, memory: QueueMemory, length: int, *, huge: bool) -> None:
        self.length, self.is_huge = length, huge
        try:
            if huge:
                self.length = -(-length // HUGE_PAGE_SIZE) * HUGE_PAGE_SIZE
                flags = mem_alloc.MAP_PRIVATE_ | mem_alloc.MAP_ANONYMOUS_ | mem_alloc.MAP_HUGETLB_
                self.address = mem_alloc.mmap(length=self.length, flags=flags, fd=-1)
            else:
                self._block = Block(memory, length)
                self.address = self._block.address
        except MemoryError as error:
            raise PyverbsError(f"Failed to allocate MR buffer of size {length}") from error

    def free(self) -> None:
        """Free huge pages. Other memory is freed with this object."""
        if self.is_huge:
            mem_alloc.munmap(self.address, self.length)


def check_access(action: str, access: int) -> None:
    """Raise unless remote write access comes with local write access (InfiniBand Architecture, "Register MR")."""
    if access & (e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC) and not access & e.IBV_ACCESS_LOCAL_WRITE:
        raise PyverbsRDMAError(action, errno.EINVAL, "remote write and remote atomic need IBV_ACCESS_LOCAL_WRITE")


def memory_of(address: Any) -> Span | None:
    """Return the memory of an object; None for an address or None."""
    is_number = address is None or type(address) is int or isinstance(address, Integral)  # the last takes long
    return None if is_number else span(address)


def locate(address: Any, length: int, memory: Span | None) -> tuple[int, int]:
    """Return the address and length of an object's memory, or the given ones without an object."""
    if memory is None:
        return int(address or 0), length
    if not 0 < (length or memory.nbytes) <= memory.nbytes:
        raise PyverbsUserError(f"MR of {length} bytes, but the object has {memory.nbytes}")
    return memory.address, length or memory.nbytes


def check_memory(
    action: str,
    access: int,
    address: int,
    length: int,
    memory: Span | None,
    *,
    libraries: int = 0,
    writable: bool = False,
) -> Allocation | None:
    """Raise if memory is not mapped or not writable: using it would end the process. Return a GPU's allocation.

    `libraries` and `writable` save a question to the system: see `MR`.
    """
    try:
        device = allocation_at(address, length, libraries) if memory is None else memory.device
    except CudaError as error:
        raise PyverbsRDMAError(action, error.code, str(error)) from error
    may_write = memory is None or memory.writable
    if memory is None and device is None:
        if access & e.IBV_ACCESS_ON_DEMAND:
            return None
        may_write = access & e.IBV_ACCESS_LOCAL_WRITE != 0 and (writable or is_writable(address, length))
        if not may_write:
            _check_mapped(action, address, length)
    if access & e.IBV_ACCESS_LOCAL_WRITE and not may_write:
        reason = "the memory is read-only: register a copy (bytearray(it), it.copy()) or without IBV_ACCESS_LOCAL_WRITE"
        raise PyverbsRDMAError(action, errno.EFAULT, reason)
    return device


def _check_mapped(action: str, address: int, length: int) -> None:
    """Raise if a range is not mapped. msync() with MS_ASYNC checks this and changes nothing."""
    first = address // _mmap.PAGESIZE * _mmap.PAGESIZE
    if length and _c.msync(first, address + length - first, _MS_ASYNC):
        raise PyverbsRDMAError(action, errno.EFAULT, f"not all of {length} bytes at {address:#x} are mapped")


class MR(PyverbsCM):
    """A memory region of a protection domain, or of that of a connection identifier.

    It is at `address`, or in memory that it allocates. `implicit` registers the whole address space, on demand. With
    `handle` it is imported from another context, and `address` is only used to read and write. `region` is the
    adapter's entry. `address` may also be an object with memory, such as a numpy array or a tensor (see `buffers`):
    without `length` all of it is registered, and it is kept alive while the region is open.
    """

    region: Region
    _action = "Failed to register a MR"
    _libraries, _is_writable = 0, False  # facts that the caller knows: see `cuda.loaded` and `buffers.is_writable`
    _iova: int | None = None  # remote address of the first byte; None: its address

    def __init__(
        self,
        creator: Any,
        length: float = 0,
        access: int = 0,
        address: Any = None,
        implicit: bool = False,
        *,
        handle: int | None = None,
    ) -> None:
        self.pd: PD | None = creator if isinstance(creator, PD) else creator.pd
        assert self.pd is not None
        if not isinstance(creator, PD) and access in _OF_CONNECTION:
            access |= e.IBV_ACCESS_LOCAL_WRITE
        self._object_memory, self._handles = memory_of(address), self.pd.ctx.handles
        self.buf, self._size = locate(address, int(length), self._object_memory)
        self._own: Buffer | None = None
        self._is_imported = handle is not None
        if handle is not None:
            self._import(handle)
        else:
            self._allocate(access)
            try:
                self._register(access, implicit=implicit)
            except PyverbsRDMAError:
                self._free()
                raise
        creator.add_ref(self)

    @functools.cached_property
    def handle(self) -> int:
        """The number by which another context of the same device imports the region; few are imported."""
        return self._handles.add(self)

    @property
    def lkey(self) -> int:
        return self.region.key

    @property
    def rkey(self) -> int:
        return self.region.key

    @property
    def length(self) -> int:
        return min(self.region.length, _SIZE_MAX)

    def __str__(self) -> str:
        return f"{type(self).__name__}:\n" + table(
            lkey=self.lkey, rkey=self.rkey, length=self.length, buf=self.buf, handle=self.handle
        )

    # -- open and close -----------------------------------------------------------------------------------------------

    def _allocate(self, access: int) -> None:
        if not self.buf and self._size > 0:
            assert self.pd is not None
            self._own = Buffer(self.pd.ctx.adapter.memory, self._size, huge=bool(access & e.IBV_ACCESS_HUGETLB))
            self.buf = self._own.address

    def _free(self) -> None:
        if self._own is not None:
            self._own.free()
            self._own = None

    def _register(self, access: int, *, implicit: bool) -> None:
        action = f"{self._action}. length: {self._size}, access flags: {access}"
        assert self.pd is not None
        check_access(action, access)
        regions = self.pd.ctx.adapter.regions
        if implicit:
            if not access & e.IBV_ACCESS_ON_DEMAND:
                raise PyverbsRDMAError(action, errno.EINVAL, "an implicit region needs IBV_ACCESS_ON_DEMAND")
            self.region = regions.register(self.pd.key, 0, WHOLE_SPACE, access, 0)
            return
        device = None
        if self._own is None:
            device = check_memory(
                action,
                access,
                self.buf,
                self._size,
                self._object_memory,
                libraries=self._libraries,
                writable=self._is_writable,
            )
        self.region = regions.register(self.pd.key, self.buf, self._size, access, self._iova, device)

    def _import(self, handle: int) -> None:
        assert self.pd is not None
        origin = self.pd.ctx.handles.find(handle, MR, "region")
        if not origin.region.is_open or origin.region.pd is not self.pd.key:
            raise PyverbsRDMAError(
                "Failed to import MR", errno.EINVAL, f"the protection domain has no open region with handle {handle}"
            )
        self.handle, self.region, self._size = handle, origin.region, origin._size

    def unimport(self) -> None:
        self.close()

    def _release(self) -> None:
        assert self.pd is not None
        if not self._is_imported:
            with self.pd.ctx.adapter.lock:
                self._check_unbound("Failed to dereg MR")
                self.pd.ctx.adapter.regions.drop(self.region)
            self._free()
        self.pd, self.buf, self._object_memory = None, 0, None

    def _check_unbound(self, action: str) -> None:
        if self.region.windows:
            raise PyverbsRDMAError(
                action, errno.EBUSY, f"{self.region.windows} memory windows are bound to it: close them first"
            )

    # -- use ----------------------------------------------------------------------------------------------------------

    def write(self, data: str | bytes, length: int, offset: int = 0) -> None:
        self._check_bytes(length, offset)
        if self.region.device is not None:
            self.region.device.put(self.buf + offset, mem_alloc.first_bytes(data, length))
            return
        mem_alloc.write(self.buf, data, length, offset)

    def read(self, length: int, offset: int) -> bytes:
        self._check_bytes(length, offset)
        if self.region.device is not None:
            return bytes(DeviceBytes((Part(self.region.device, self.buf + offset, length),)))
        return mem_alloc.read(self.buf, length, offset)

    def _check_bytes(self, length: int, offset: int) -> None:
        if offset < 0:
            raise PyverbsUserError(f"Invalid offset {offset}")
        if not self.buf or length < 0 or offset + length > self._size:
            raise PyverbsUserError(
                f"The MR buffer isn't allocated or length {length} is invalid: {self._size} bytes are at {self.buf:#x}"
            )

    def rereg(self, flags: int, pd: PD | None = None, addr: Any = 0, length: int = 0, access: int = 0) -> None:
        """Change the parts that `flags` name. The keys stay. Memory that the region allocated is freed if it moves."""
        if self.pd is None:
            raise PyverbsRDMAError("Failed to rereg MR", errno.EINVAL, "it is closed")
        with self.pd.ctx.adapter.lock:
            self._rereg(flags, pd, addr, length, access)

    def _rereg(self, flags: int, pd: PD | None, addr: Any, length: int, access: int) -> None:
        action = f"Failed to rereg MR: {rereg_error_to_str(e.IBV_REREG_MR_ERR_INPUT)}"
        self._check_unbound(action)
        if not flags or flags & ~_REREG:
            raise PyverbsRDMAError(action, errno.EINVAL, f"flags {flags:#x} are empty or outside of {_REREG:#x}")
        if flags & e.IBV_REREG_MR_CHANGE_PD and pd is None:
            raise PyverbsRDMAError(action, errno.EINVAL, "IBV_REREG_MR_CHANGE_PD needs pd")
        new_access = access if flags & e.IBV_REREG_MR_CHANGE_ACCESS else self.region.access
        check_access(action, new_access)
        own, memory, address, size = self._own, self._object_memory, self.buf, self._size
        device = self.region.device
        if flags & e.IBV_REREG_MR_CHANGE_TRANSLATION:
            own, memory = None, memory_of(addr)
            address, size = locate(addr, length, memory)
            if not address or size <= 0:
                raise PyverbsRDMAError(action, errno.EINVAL, "IBV_REREG_MR_CHANGE_TRANSLATION needs addr and length")
        if own is None and address:
            device = check_memory(action, new_access, address, size, memory)
        if flags & e.IBV_REREG_MR_CHANGE_TRANSLATION:
            self._move(address, size, zero_based=bool(new_access & e.IBV_ACCESS_ZERO_BASED))
            self._object_memory, self.region.device = memory, device
        self.region.access = new_access
        if flags & e.IBV_REREG_MR_CHANGE_PD:
            assert pd is not None
            assert self.pd is not None
            self.pd.remove_ref(self)
            self.pd, self.region.pd = pd, pd.key
            pd.add_ref(self)

    def _move(self, addr: int, length: int, *, zero_based: bool) -> None:
        self._free()
        self.buf, self._size = addr, length
        self.region.address, self.region.length = addr, length
        self.region.base = 0 if zero_based else addr
