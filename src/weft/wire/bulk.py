"""Arrays of records: n headers or n answers at once, in the bytes that `Format` writes one by one.

    rows = pack_rows(BTH, 1000, opcode=Opcode.RC_SEND_ONLY, psn=np.arange(1000))      # uint8[1000, 12]
    column(rows, BTH.psn)                                                             # uint64[1000]
    fill(rows, BTH.dest_qp, 7)

A row may be longer than the format: `base` is the byte where the format starts in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import ConfigError, UnknownName
from weft.wire.fields import Bits, Field, Wide, unfit
from weft.wire.format import Format
from weft.wire.kernels import icrc_rows, read_column, vcrc_rows, write_column

if TYPE_CHECKING:
    from weft.wire.crc import Route

Rows = NDArray[np.uint8]


def pack_rows(form: type[Format], count: int, **columns: ArrayLike) -> Rows:
    """Return `count` records; each field is one value for all or an array with one for each."""
    rows = np.empty((count, form.size), np.uint8)
    rows[:] = np.frombuffer(form.blank, np.uint8)
    for name, values in columns.items():
        if name not in form.fields:
            raise UnknownName(f"field of {form.__name__}", name, form.fields)
        fill(rows, form.fields[name], values)
    return rows


def fill(rows: Rows, field: Field[Any], values: ArrayLike, base: int = 0) -> None:
    """Write a field of every row."""
    _check_is_number(field)
    numbers = np.atleast_1d(np.asarray(values))
    if numbers.dtype.kind not in "iub" or numbers.size not in (1, len(rows)):
        raise ConfigError(f"{field} takes one whole number or {len(rows)}, not {numbers.size} of {numbers.dtype}")
    for value in (int(numbers.min()), int(numbers.max())) if numbers.size else ():
        if value >> field.width:
            raise unfit(field, value)
    write_column(rows, 8 * base + field.bit, field.width, numbers.astype(np.uint64).view(np.int64))


def column(rows: Rows, field: Field[Any], base: int = 0) -> NDArray[np.uint64]:
    """Return a field of every row."""
    _check_is_number(field)
    out = np.empty(len(rows), np.int64)
    read_column(rows, 8 * base + field.bit, field.width, out)
    return out.view(np.uint64)


def icrc(route: Route, rows: Rows, ends: ArrayLike, first: int = 0) -> NDArray[np.uint32]:
    """Return the ICRC of every row, from byte `first` (14 behind Ethernet) to the end of its padding."""
    from weft.wire.crc import MASKS, SEEDS  # imported late: MADs, the most frequent use, have no ICRC

    ends, mask = _ends(rows, ends, first + len(MASKS[route])), np.frombuffer(MASKS[route], np.uint8)
    out = np.empty(len(rows), np.int64)
    icrc_rows(rows, first, ends, mask, SEEDS[route], out)
    return out.astype(np.uint32)


def vcrc(rows: Rows, ends: ArrayLike, first: int = 0) -> NDArray[np.uint16]:
    """Return the VCRC of every row, from byte `first` to the end of its ICRC."""
    out = np.empty(len(rows), np.int64)
    vcrc_rows(rows, first, _ends(rows, ends, first), out)
    return out.astype(np.uint16)


def _ends(rows: Rows, ends: ArrayLike, least: int) -> NDArray[np.int64]:
    full = np.broadcast_to(np.asarray(ends, np.int64), len(rows)).copy()
    if len(rows) and (full.min() < least or full.max() > rows.shape[1]):
        raise ConfigError(f"rows of {rows.shape[1]} bytes end at {least} or later, not at {full.min()} to {full.max()}")
    return full


def _check_is_number(field: Field[Any]) -> None:
    if not isinstance(field, Bits) or isinstance(field, Wide):
        raise ConfigError(f"{field} is not a number of up to 64 bits: write its bytes in the rows instead")
