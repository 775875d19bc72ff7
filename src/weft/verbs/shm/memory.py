"""Bytes at addresses of this process, and lists of such places.

Addresses are numbers, as in verbs. Callers look into `regions` first. Hardware pins the pages of a region; here the
program may have unmapped them since, so each copy checks them: MemoryFault, where the processor would end the process.
Memory of a GPU has addresses too, but only the GPU's driver copies from and to them: see `gpu`.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

from weft.runtime import libc
from weft.verbs.gpudirect.cuda import Allocation
from weft.verbs.gpudirect.gpu import DeviceBytes, Part

Payload = bytes | memoryview | DeviceBytes
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # advice for madvise, since Linux 5.14
_MS_ASYNC = 1


class MemoryFault(Exception):
    """An access to memory of this process that is not mapped, or is read-only."""


@dataclass(frozen=True, slots=True)
class Place:
    """A scatter/gather element."""

    address: int
    length: int
    lkey: int
    device: Allocation | None = None  # on a GPU


def view(address: int, length: int) -> memoryview:
    """Return a view of memory, not a copy."""
    if not length:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * length).from_address(address)).cast("B")


def write(address: int, data: Payload, device: Allocation | None = None) -> None:
    if isinstance(data, DeviceBytes):
        data.copy_to(address, device)
    elif device is not None:
        device.put(address, data)
    elif len(data):
        require(address, len(data), write=True)
        view(address, len(data))[:] = data


def require(address: int, length: int, *, write: bool) -> None:
    """Raise MemoryFault if a copy from or to there would end the process."""
    if not is_there(address, length, write=write):
        raise MemoryFault


def is_there(address: int, length: int, *, write: bool) -> bool:
    """Return whether memory is mapped, and writable for `write`; pages that come on demand come now."""
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    begin, size = ctypes.c_void_p(first), ctypes.c_size_t(address + length - first)
    if address + length > 1 << 64:
        return False
    if not _can_populate():
        return bool(libc().msync(begin, size, _MS_ASYNC) == 0)
    return bool(libc().madvise(begin, size, _POPULATE_WRITE if write else _POPULATE_READ) == 0)


@functools.cache
def _can_populate() -> bool:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return bool(libc().madvise(ctypes.c_void_p(at), ctypes.c_size_t(len(page)), _POPULATE_READ) == 0)


def address_of(data: bytes | memoryview) -> int:
    """Return the address of bytes or of a writable view, valid while they are referenced; 0 for an empty view."""
    if isinstance(data, memoryview):
        return ctypes.addressof(ctypes.c_char.from_buffer(data)) if len(data) else 0
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def total(places: Sequence[Place]) -> int:
    return sum(place.length for place in places)


def gather(places: Sequence[Place], offset: int, length: int) -> Payload:
    """Return bytes `offset` to `offset + length` of a list, without a copy if one place or GPUs have them all."""
    parts = _parts(places, offset, length)
    for address, size, device in parts:
        if device is None:
            require(address, size, write=False)
    on_devices = tuple(Part(device, address, size) for address, size, device in parts if device is not None)
    if on_devices and len(on_devices) == len(parts):
        return DeviceBytes(on_devices)
    if len(parts) == 1:
        return view(*parts[0][:2])
    return b"".join(
        view(address, size) if device is None else DeviceBytes((Part(device, address, size),)).to_host()
        for address, size, device in parts
    )


def kept(data: Payload) -> bytes | DeviceBytes:
    """Return a copy of host memory. Data on a GPU is not copied: its receiver copies it once."""
    return data if isinstance(data, DeviceBytes) else bytes(data)


def scatter(places: Sequence[Place], offset: int, data: Payload) -> None:
    """Write data at `offset` of a list, which is long enough."""
    done = 0
    for address, length, device in _parts(places, offset, len(data)):
        write(address, data[done : done + length], device)
        done += length


def _parts(places: Sequence[Place], offset: int, length: int) -> list[tuple[int, int, Allocation | None]]:
    """Return the addresses, lengths and GPUs of a range of a list."""
    found = []
    for place in places:
        if length <= 0:
            break
        if offset >= place.length:
            offset -= place.length
            continue
        here = min(place.length - offset, length)
        found.append((place.address + offset, here, place.device))
        offset, length = 0, length - here
    return found
