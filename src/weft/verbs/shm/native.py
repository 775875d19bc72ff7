"""The kernels that Python itself calls, compiled by numba or taken from the library of programs in C.

That library has them linked in. Where it gives their addresses (`link`) neither numba nor numpy is imported, which
would take half a second of processor time at the start of each program.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

from weft.verbs.shm import layout
from weft.verbs.shm.memory import address_of
from weft.verbs.shm.record import Record, u64

Numbers = tuple[int, ...]
_ARGUMENTS = {"lock": 2, "unlock": 1, "load": 1, "publish": 2, "free_from": 2, "take": 2, "add": 3, "vcrc": 2}
linked: dict[str, Callable[..., int]] = {}  # by name; empty where numba compiles them
lock: Callable[[int, int], bool]
unlock: Callable[[int], None]
load: Callable[[int], int]
publish: Callable[[int, int], None]
free_from: Callable[[int, int], None]


class Linked(Record):
    """The addresses of C functions; all arguments and results are 64-bit numbers."""

    lock: u64
    unlock: u64
    load: u64
    publish: u64
    free_from: u64
    take: u64
    add: u64
    post: u64
    vcrc: u64
    send_train: u64  # these two: carriers.roce.kernels
    receive_burst: u64


def link(kernels: Linked) -> None:
    """Use the kernels of a library. Short ones keep Python's lock: other threads do not run in between."""
    number = ctypes.c_int64
    for name, count in _ARGUMENTS.items():
        linked[name] = ctypes.PYFUNCTYPE(number, *[number] * count)(getattr(kernels, name))
    for name in ("post", "send_train", "receive_burst"):
        linked[name] = ctypes.CFUNCTYPE(number, number)(getattr(kernels, name))
    globals().update({name: linked[name] for name in ("lock", "unlock", "load", "publish", "free_from")})


def __getattr__(name: str) -> Any:
    """Take numba's on first use if no library has given any."""
    if name not in _ARGUMENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from weft.verbs.shm import atomic

    found = getattr(atomic, name)
    globals()[name] = found
    return found


def adder(memory: mmap.mmap, memory_address: int, at: int) -> tuple[Any, Callable[[Any, bytes], bool]]:
    """Return a receive queue, and the function that adds a request to it."""
    if not linked:
        from weft.verbs.shm import rings

        return rings.adder(memory, at)
    add = linked["add"]
    return memory_address + at, lambda queue, request: bool(add(queue, address_of(request), len(request)))


def taker(memory_address: int, at: int, *, frees: bool) -> tuple[Any, Callable[[Any], Numbers | None]]:
    """Return a completion queue, and the function that takes from it. `frees`: the places of send requests as well."""
    if not linked:
        from weft.verbs.shm import rings

        return rings.taker(memory_address, at, frees=frees)
    take, form = linked["take"], layout.CompletionRecord.form
    box = layout.Box(memory_address + at, memory_address if frees else 0)

    def take_one(box: layout.Box) -> Numbers | None:
        taken = ctypes.create_string_buffer(form.size)
        return form.unpack(taken) if take(ctypes.addressof(box), ctypes.addressof(taken)) else None

    return box, take_one


def vcrc(packet: bytes) -> int:
    """Return the VCRC of a packet, as `weft.wire.crc.vcrc` does byte by byte in Python."""
    if linked:
        return linked["vcrc"](address_of(packet), len(packet))
    import numpy as np

    from weft.wire.kernels import vcrc_rows

    out = np.empty(1, np.int64)
    rows = np.frombuffer(bytearray(packet), np.uint8).reshape(1, -1)
    vcrc_rows(rows, 0, np.array([len(packet)], np.int64), out)
    return int(out[0])


def prepare() -> None:
    """Load all of them now: later another process would wait."""
    if not linked:
        from weft.verbs.shm import atomic, rings

        word = layout.Header()
        atomic.publish(ctypes.addressof(word), atomic.load(ctypes.addressof(word)))
        rings.load()
