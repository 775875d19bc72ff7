"""Copies of a shared-memory path where one side at least is the memory of a GPU: its driver makes them.

A kernel that finds such memory asks for them here (`copying`), with the lock of the other end, as for any other copy:
nobody takes the memory away meanwhile. The other process has left in the memory of its queues how its allocation is
reached (`gpu.publish`), and this one maps it. Memory that cannot be mapped is sent in packets.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

from weft.verbs.gpudirect.cuda import CudaError, Driver, in_use
from weft.verbs.gpudirect.gpu import SHOWN_BYTES, reach
from weft.verbs.shm.layout import ON_GPU, PathRecord

_Function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)


class Mapping(Protocol):
    """The memory of the other end's queues."""

    @property
    def is_alive(self) -> bool:
        """Whether whose it is still is."""


class GpuCopies:
    """Of one path; `address` is where kernels find the function."""

    def __init__(self, path: PathRecord, far: Mapping) -> None:
        self._path, self._far = path, far
        self._is_here = path.own == path.far
        self._function = _Function(self._copy)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _copy(self, own: int, far: int, size: int, outward: int) -> int:
        """1 if it is done."""
        driver = in_use()
        if driver is None:
            return 0  # this process uses no GPU
        try:
            found = self._reach(driver, own, far, size)
            if found is None:
                return 0
            context, there = found
            kinds = "DH"[not own & ON_GPU], "DH"[not far & ON_GPU]
            (source, to), ends = ((own & ~ON_GPU, there), kinds) if outward else ((there, own & ~ON_GPU), kinds[::-1])
            driver.copy("to".join(ends), context, to, source, size)
        except CudaError:
            return 0
        return 1

    def _reach(self, driver: Driver, own: int, far: int, size: int) -> tuple[int, int] | None:
        """The context to copy in, and where the other end's bytes are in this process."""
        path = self._path
        if self._is_here:
            near = far & ~ON_GPU
            return driver.context_of(near if far & ON_GPU else own & ~ON_GPU), near
        if far & ON_GPU:
            if not self._far.is_alive:
                return None  # what it has left is not to be touched
            allocation, there = reach(ctypes.string_at(path.far + path.far_reference, SHOWN_BYTES), far & ~ON_GPU)
            return allocation.context, there
        offset = far - path.far_begin
        if offset < 0 or offset + size > path.far_length:
            return None
        return driver.context_of(own & ~ON_GPU), path.far + offset
