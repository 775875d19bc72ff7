"""Bytes at addresses of this process, and lists of such places.

Addresses are numbers, as in verbs. Whoever uses them has looked into `regions` first: a wrong one ends the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

_move = ctypes.memmove


@dataclass(frozen=True, slots=True)
class Place:
    """A scatter/gather element."""

    address: int
    length: int
    lkey: int


def view(address: int, length: int) -> memoryview:
    """The memory itself: reading sees what is written later."""
    if not length:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * length).from_address(address)).cast("B")


def write(address: int, data: bytes | memoryview) -> None:
    if len(data):
        view(address, len(data))[:] = data


def total(places: Sequence[Place]) -> int:
    return sum(place.length for place in places)


def gather(places: Sequence[Place], offset: int, length: int) -> bytes | memoryview:
    """Bytes `offset` to `offset + length` of a list; without a copy where one place has them all."""
    parts = list(_parts(places, offset, length))
    if len(parts) == 1:
        return view(*parts[0])
    return b"".join(view(*part) for part in parts)


def scatter(places: Sequence[Place], offset: int, data: bytes | memoryview) -> None:
    """Write data at `offset` of a list, which is long enough."""
    done = 0
    for address, length in _parts(places, offset, len(data)):
        write(address, data[done : done + length])
        done += length


def _parts(places: Sequence[Place], offset: int, length: int) -> list[tuple[int, int]]:
    """Addresses and lengths."""
    found = []
    for place in places:
        if length <= 0:
            break
        if offset >= place.length:
            offset -= place.length
            continue
        here = min(place.length - offset, length)
        found.append((place.address + offset, here))
        offset, length = 0, length - here
    return found
