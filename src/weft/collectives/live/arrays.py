"""Memory of numpy for programs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.collectives.live.job import KINDS

Bytes = NDArray[np.uint8]


class Array:
    """A numpy array for a program, with scratch memory if needed; `reduce` is np.add, np.maximum or another.

    A rank with one block of the data gives only that: `block` of `n_blocks`.
    """

    def __init__(
        self,
        data: NDArray[np.generic],
        beside: NDArray[np.generic] | None = None,
        reduce: np.ufunc = np.add,
        *,
        block: int = 0,
        n_blocks: int = 1,
    ) -> None:
        self.size_bytes, self.item_bytes = n_blocks * data.nbytes, data.itemsize
        self._type, self._reduce = data.dtype, reduce
        self.sums = KINDS.get(data.dtype) if reduce is np.add else None
        self._data, self._first = flat(data), block * data.nbytes
        self._beside = flat(beside) if beside is not None else np.empty(0, np.uint8)

    def address(self, begin: int) -> int:
        part, offset = self._part(begin)
        return part.ctypes.data + offset

    def put(self, begin: int, data: Bytes) -> None:
        part, offset = self._part(begin)
        part[offset : offset + len(data)] = data

    def add(self, begin: int, data: Bytes) -> None:
        part, offset = self._part(begin)
        target = part[offset : offset + len(data)].view(self._type)
        self._reduce(target, data.view(self._type), out=target)

    def _part(self, begin: int) -> tuple[Bytes, int]:
        if begin < self.size_bytes:
            return self._data, begin - self._first
        return self._beside, begin - self.size_bytes


def flat(data: NDArray[np.generic]) -> Bytes:
    """Return the bytes of an array without a copy."""
    return data.reshape(-1).view(np.uint8)
