"""Allocate, read and write memory of this process by address, with the C library.

Addresses are not checked, as in C: a wrong address ends the process.
"""

from __future__ import annotations

import ctypes
import mmap as _mmap
import struct

from weft.verbs.attributes.objects import PyverbsRDMAErrno

PROT_EXEC_, PROT_READ_, PROT_WRITE_, PROT_NONE_ = _mmap.PROT_EXEC, _mmap.PROT_READ, _mmap.PROT_WRITE, 0
MAP_PRIVATE_, MAP_SHARED_, MAP_ANONYMOUS_ = _mmap.MAP_PRIVATE, _mmap.MAP_SHARED, _mmap.MAP_ANONYMOUS
# From Linux' <asm-generic/mman.h>; Python's mmap module lacks some of them.
MAP_FIXED_, MAP_GROWSDOWN_, MAP_LOCKED_, MAP_NORESERVE_ = 0x10, 0x100, 0x2000, 0x4000
MAP_POPULATE_, MAP_STACK_, MAP_HUGETLB_ = 0x8000, 0x20000, 0x40000
_MADV_DONTNEED = 4
_MAP_FAILED = ctypes.c_void_p(-1).value

_c = ctypes.CDLL(None, use_errno=True)
_c.malloc.restype, _c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_c.free.restype, _c.free.argtypes = None, [ctypes.c_void_p]
_c.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
_c.mmap.restype = ctypes.c_void_p
_c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_c.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def malloc(size: int) -> int:
    address: int | None = _c.malloc(int(size))
    if not address:
        raise MemoryError("Failed to allocate memory")
    return address


def posix_memalign(size: int, alignment: int = 8) -> int:
    """Allocate zeroed memory at a multiple of `alignment`."""
    pointer = ctypes.c_void_p()
    code = _c.posix_memalign(ctypes.byref(pointer), alignment, int(size))
    if code or pointer.value is None:
        raise MemoryError(f"Failed to allocate memory ({code})")
    ctypes.memset(pointer.value, 0, int(size))
    return pointer.value


def free(ptr: int) -> None:
    _c.free(ptr)


def mmap(
    addr: int = 0,
    length: int = 100,
    prot: int = PROT_READ_ | PROT_WRITE_,
    flags: int = MAP_PRIVATE_ | MAP_ANONYMOUS_,
    fd: int = 0,
    offset: int = 0,
) -> int:
    address: int = _c.mmap(addr, int(length), prot, flags, fd, offset) or 0
    if address == _MAP_FAILED:
        raise MemoryError("Failed to mmap memory")
    return address


def munmap(addr: int, length: int) -> None:
    if _c.munmap(addr, int(length)):
        raise MemoryError("Failed to munmap requested memory")


def madvise(addr: int, length: int, flags: int = _MADV_DONTNEED) -> None:
    if _c.madvise(addr, int(length), flags):
        raise PyverbsRDMAErrno("Failed to madvise memory")


def write(addr: int, data: str | bytes, length: int, offset: int = 0) -> None:
    """Write the first `length` bytes of text or bytes."""
    ctypes.memmove(addr + offset, first_bytes(data, length), length)


def first_bytes(data: str | bytes, length: int) -> bytes:
    """Return the first `length` bytes of data to write. Raise ValueError if there are fewer."""
    raw = data.encode() if isinstance(data, str) else bytes(data)
    if length > len(raw):
        raise ValueError(f"write() of {length} bytes was given {len(raw)}")
    return raw[:length]


def read(addr: int, length: int, offset: int = 0) -> bytes:
    return ctypes.string_at(addr + offset, length)


def writebe32(addr: int, val: int, offset: int = 0) -> None:
    """Write one number of 32 bits, big-endian; `offset` counts such numbers."""
    write(addr, struct.pack(">I", val), 4, 4 * offset)


def writebe64(addr: int, val: int, offset: int = 0) -> None:
    """Write one number of 64 bits, big-endian; `offset` counts such numbers."""
    write(addr, struct.pack(">Q", val), 8, 8 * offset)


def read32(addr: int, offset: int = 0) -> int:
    """Read one number of 32 bits in this machine's order; `offset` counts such numbers."""
    return int(struct.unpack("=I", read(addr, 4, 4 * offset))[0])


def read64(addr: int, offset: int = 0) -> int:
    """Read one number of 64 bits in this machine's order; `offset` counts such numbers."""
    return int(struct.unpack("=Q", read(addr, 8, 8 * offset))[0])
