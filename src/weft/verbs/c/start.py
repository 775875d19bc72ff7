"""The functions that the C library calls in a program. Python is never finalised; the library announces the end."""

from __future__ import annotations

import ctypes

from weft.verbs.shm import native
from weft.verbs.shm.record import Record, u64

_Call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_void_p)
_kept: list[object] = []  # objects whose addresses C has


class EntryPoint(Record):
    """The addresses that the library and Python give each other."""

    call: u64  # written by Python: see `calls.caller`
    kernels: u64  # address of a native.Linked
    operations: u64  # address of their names, as written by `header`


def start(address: int) -> None:
    """Write the function for all operations to the entry point at an address of the library."""
    entry = EntryPoint.from_address(address)
    native.link(native.Linked.from_address(entry.kernels))  # before anything is imported that would use numba's

    from weft.verbs.c.calls import caller

    call = _Call(caller(ctypes.string_at(entry.operations).decode().splitlines()))
    _kept.append(call)
    entry.call = ctypes.cast(call, ctypes.c_void_p).value or 0
