"""Inside a program: what the library calls. Python is never ended; the library says at the end that nobody is here."""

from __future__ import annotations

import ctypes

import numpy as np

from weft.jit import c_function, entry
from weft.verbs.c import operations as operations  # so that all are declared
from weft.verbs.c.calls import caller
from weft.verbs.hca import execute
from weft.verbs.shm import atomic, rings
from weft.verbs.shm.queue_memory import Lock, QueueMemory
from weft.verbs.shm.record import Record, record, u64

_Call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_void_p)
_kept: list[object] = []  # what C has the address of


@record
class Door(Record):
    call: u64
    post: u64


def load() -> int:
    """Kernels, compiled or from the cache: later somebody waits. The address of the one that C calls."""
    memory = QueueMemory(can_be_shared=False)
    memory.is_shared = True
    with Lock(memory):
        atomic.publish(memory.address, atomic.load(memory.address))
    rings.load()
    entry(execute.post, np.zeros(1, np.int64), b"")
    return c_function(execute.post_at)


def start(address: int) -> None:
    """Open the door at an address of the library."""
    call = _Call(caller())
    _kept.append(call)
    door = Door.from_address(address)
    door.post = load()
    door.call = ctypes.cast(call, ctypes.c_void_p).value or 0
