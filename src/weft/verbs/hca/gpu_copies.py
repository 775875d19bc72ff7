"""Copy over a shared-memory path from or to memory of a GPU with its driver.

A kernel calls this (`copying`) with the lock of the peer held, as for any other copy, so that the memory stays
registered. The peer has published its allocation in the memory of its queues (`gpu.publish`), and this process maps
it. Memory that cannot be mapped is sent in packets.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

from weft.verbs.gpudirect.cuda import CudaError, Driver, in_use
from weft.verbs.gpudirect.gpu import SHOWN_BYTES, reach
from weft.verbs.shm.layout import ON_GPU, PathRecord

_Function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)


class Mapping(Protocol):
    """The mapped memory of the peer's queues."""

    @property
    def is_alive(self) -> bool:
        """The property that the peer's process is alive."""


class GpuCopies:
    """The GPU copies of one path; `address` is the address of the C function for kernels."""

    def __init__(self, path: PathRecord, far: Mapping) -> None:
        self._path, self._far = path, far
        self._is_here = path.own == path.far
        self._function = _Function(self._copy)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _copy(self, own: int, far: int, size: int, outward: int) -> int:
        """Copy; return 1 on success."""
        driver = in_use()
        if driver is None:
            return 0  # this process uses no GPU
        try:
            reached = self._reach(driver, own, far, size)
            if reached is None:
                return 0
            context, mapped = reached
            kinds = "DH"[not own & ON_GPU], "DH"[not far & ON_GPU]
            (source, to), ends = ((own & ~ON_GPU, mapped), kinds) if outward else ((mapped, own & ~ON_GPU), kinds[::-1])
            driver.copy("to".join(ends), context, to, source, size)
        except CudaError:
            return 0
        return 1

    def _reach(self, driver: Driver, own: int, far: int, size: int) -> tuple[int, int] | None:
        """Return the context for the copy, and the address of the peer's bytes in this process."""
        path = self._path
        if self._is_here:
            near = far & ~ON_GPU
            return driver.context_of(near if far & ON_GPU else own & ~ON_GPU), near
        if far & ON_GPU:
            if not self._far.is_alive:
                return None  # its memory must not be used any more
            allocation, mapped = reach(ctypes.string_at(path.far + path.far_reference, SHOWN_BYTES), far & ~ON_GPU)
            return allocation.context, mapped
        offset = far - path.far_begin
        if offset < 0 or offset + size > path.far_length:
            return None
        return driver.context_of(own & ~ON_GPU), path.far + offset
