"""Inside a program: what the library calls. Python is never ended; the library says at the end that nobody is here."""

from __future__ import annotations

import ctypes

from weft.verbs.shm import native
from weft.verbs.shm.record import Record, record, u64

_Call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_void_p)
_kept: list[object] = []  # objects whose addresses C has


@record
class Door(Record):
    call: u64  # out
    kernels: u64  # address of a native.Linked
    operations: u64  # address of their names, as written by `header`


def start(address: int) -> None:
    """Open the door at an address of the library."""
    door = Door.from_address(address)
    native.link(native.Linked.from_address(door.kernels))  # before anything is imported that would use numba's

    from weft.verbs.c.calls import caller

    call = _Call(caller(ctypes.string_at(door.operations).decode().splitlines()))
    _kept.append(call)
    door.call = ctypes.cast(call, ctypes.c_void_p).value or 0
