"""Buffers in mpi4py's forms: numpy arrays and other objects with the buffer protocol, optionally with count and type.

x    [x, n]    [x, MPI.DOUBLE]    [x, n, MPI.DOUBLE]    [x, (counts, displacements)]    [x, counts, displs, MPI.DOUBLE]
"""
# ruff: noqa: N802 - the names are mpi4py's

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError

Items = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Datatype:
    """An MPI datatype and its numpy dtype."""

    name: str
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return self.dtype.itemsize

    extent = size

    def Get_size(self) -> int:
        return self.size

    def Get_name(self) -> str:
        return self.name


_CODES = (
    "BYTE u1  CHAR i1  SIGNED_CHAR i1  UNSIGNED_CHAR u1  SHORT h  UNSIGNED_SHORT H  INT i  UNSIGNED I  UNSIGNED_INT I  "
    "LONG l  UNSIGNED_LONG L  LONG_LONG q  UNSIGNED_LONG_LONG Q  FLOAT f  DOUBLE d  LONG_DOUBLE g  BOOL ?  C_BOOL ?  "
    "INT8_T i1  INT16_T i2  INT32_T i4  INT64_T i8  UINT8_T u1  UINT16_T u2  UINT32_T u4  UINT64_T u8  "
    "COMPLEX F  C_FLOAT_COMPLEX F  DOUBLE_COMPLEX D  C_DOUBLE_COMPLEX D  C_LONG_DOUBLE_COMPLEX G"
)
DATATYPES = {
    name: Datatype(f"MPI_{name}", np.dtype(code)) for name, code in (pair.split() for pair in _CODES.split("  "))
}


class InPlace:
    """The type of IN_PLACE: passed as send buffer, it means that the receive buffer holds the input."""

    def __repr__(self) -> str:
        return "IN_PLACE"


IN_PLACE = InPlace()


def is_in_place(buffer: Any) -> bool:
    """Return whether the buffer is IN_PLACE or None, which means the same."""
    return buffer is None or buffer is IN_PLACE


def items(buffer: Any, name: str, *, is_written: bool = False, blocks: int = 1) -> Items:
    """Return the items of a buffer as a flat view. A count in the buffer is the length of one of `blocks` blocks."""
    data, counts, displs = _read(buffer, name, is_written)
    if counts is None:
        if len(data) % blocks:
            raise ConfigError(f"{name} has {len(data)} items; give a multiple of {blocks}, the number of ranks")
        return data
    if isinstance(counts, tuple) or displs is not None:
        raise ConfigError(f"{name} has counts {counts}; give one count, or use the call that ends in v")
    return _slice(data, 0, counts * blocks, name)


def parts(buffer: Any, name: str, n: int, *, is_written: bool = False) -> list[Items]:
    """Return the part of each rank, by counts and displacements; without displacements the parts are contiguous."""
    data, counts, displs = _read(buffer, name, is_written)
    if counts is None:
        more = len(data) % n
        counts = tuple(len(data) // n + (rank < more) for rank in range(n))
    elif isinstance(counts, int):
        counts = (counts,) * n
    if len(counts) != n:
        raise ConfigError(f"{name} has {len(counts)} counts; give one for each of {n} ranks")
    if displs is None:
        displs = tuple(int(end) - count for end, count in zip(np.cumsum(counts), counts, strict=True))
    elif isinstance(displs, int):  # the stride
        displs = tuple(rank * displs for rank in range(n))
    if len(displs) != n:
        raise ConfigError(f"{name} has {len(displs)} displacements; give one for each of {n} ranks")
    return [_slice(data, begin, count, name) for begin, count in zip(displs, counts, strict=True)]


def described(data: Items) -> str:
    return f"{len(data):,} {data.dtype}"


def same(sent: Items, received: Items, call: str) -> Items:
    """Return `sent` if it has the type and length of `received`; raise ConfigError otherwise."""
    if sent.dtype != received.dtype or len(sent) != len(received):
        raise ConfigError(
            f"{call}: sendbuf has {described(sent)}, recvbuf has {described(received)}; give the same count and type"
        )
    return sent


def _slice(data: Items, begin: int, count: int, name: str) -> Items:
    if begin < 0 or count < 0 or begin + count > len(data):
        raise ConfigError(f"{name} has {len(data)} items, too few for {count} items at displacement {begin}")
    return data[begin : begin + count]


def _read(buffer: Any, name: str, is_written: bool) -> tuple[Items, int | tuple[int, ...] | None, Any]:
    """Return all items, the count (or one for each rank), and the displacements."""
    if not isinstance(buffer, list | tuple):
        return _memory(buffer, name, is_written, None), None, None
    if not 1 <= len(buffer) <= 4:
        raise ConfigError(f"{name} is a list of {len(buffer)}; give [data], [data, count] or [data, count, type]")
    data, *rest = buffer
    datatype = rest.pop() if rest and isinstance(rest[-1], Datatype | str | np.dtype) else None
    if rest and rest[-1] is None:
        rest.pop()
    counts, displs = rest[0] if rest else None, rest[1] if len(rest) > 1 else None
    if isinstance(counts, tuple) and len(counts) == 2:  # counts alone are a list
        counts, displs = counts
    kind = datatype.dtype if isinstance(datatype, Datatype) else _dtype(datatype, name)
    return _memory(data, name, is_written, kind), _whole(counts, name), _whole(displs, name)


def _dtype(code: Any, name: str) -> np.dtype[Any] | None:
    try:
        return None if code is None else np.dtype(code)
    except TypeError:
        raise ConfigError(
            f"{name}: {code!r} is not a type; give an MPI type such as MPI.DOUBLE, or a numpy type"
        ) from None


def _whole(counts: Any, name: str) -> int | tuple[int, ...] | None:
    if counts is None or isinstance(counts, int | np.integer):
        return None if counts is None else int(counts)
    return _each(counts, name)


def _each(numbers: Any, name: str) -> tuple[int, ...] | None:
    if numbers is None:
        return None
    try:
        return tuple(int(number) for number in numbers)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}: {numbers!r} is not a list of whole numbers; give one for each rank") from None


def _memory(data: Any, name: str, is_written: bool, kind: np.dtype[Any] | None) -> Items:
    if data is None:
        data = np.empty(0, np.uint8)
    try:
        array = data if isinstance(data, np.ndarray) else np.asarray(memoryview(data))
    except (TypeError, ValueError):
        raise ConfigError(
            f"{name} is a {type(data).__name__}, not a buffer; give a numpy array, or use the lower-case call, which "
            "takes any object"
        ) from None
    if array.dtype.hasobject:
        raise ConfigError(f"{name} is an array of Python objects; use the lower-case call, which takes any object")
    if not array.flags.c_contiguous and not array.flags.f_contiguous:
        raise ConfigError(
            f"{name} is not contiguous (shape {array.shape}); give a copy, as numpy.ascontiguousarray makes it"
        )
    if is_written and not array.flags.writeable:
        raise ConfigError(f"{name} is read-only and cannot receive; give a copy")
    row = (array if array.flags.c_contiguous else array.T).reshape(-1)
    if kind is None or kind == row.dtype:
        return row
    if row.nbytes % kind.itemsize:
        raise ConfigError(f"{name} has {row.nbytes} bytes, not a multiple of {kind.itemsize}, the size of {kind}")
    return row.view(kind)
