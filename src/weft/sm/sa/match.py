"""Which records a query means: compared in its component mask, all records at once."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from weft.wire.fields import Bits
from weft.wire.format import Format
from weft.wire.sa_query import component_mask, covered_bits

Rows = NDArray[np.uint8]


@lru_cache(maxsize=1000)  # masks come from outside
def _covered(form: type[Format], mask: int) -> tuple[NDArray[np.intp], Rows]:
    """Return the bytes of a record that a mask covers, and which of their bits."""
    bits = np.frombuffer(covered_bits(form, mask).to_bytes(form.size, "big"), np.uint8)
    at = np.flatnonzero(bits)
    return at, bits[at]


def matching(form: type[Format], rows: Rows, query: bytes, mask: int) -> NDArray[np.intp]:
    """Return the indices of records that equal the query in all components of the mask."""
    at, bits = _covered(form, mask)
    if not len(at):
        return np.arange(len(rows))
    expected = np.frombuffer(query, np.uint8)[at] & bits
    matches = np.flatnonzero(rows[:, at[0]] & bits[0] == expected[0])  # one byte alone leaves few
    same: NDArray[np.bool_] = (rows[np.ix_(matches, at)] & bits == expected).all(axis=1)
    return matches[same]


@cache
def bit_of(form: type[Format], name: str) -> int:
    """Return the bit of a component in the mask."""
    return component_mask(form, name)


def without_component(form: type[Format], mask: int, name: str) -> int:
    """Return the mask without a component."""
    return mask & ~bit_of(form, name)


def has_component(form: type[Format], mask: int, name: str) -> bool:
    return bool(mask & bit_of(form, name))


def bits_set(rows: Rows, field: Bits, query: bytes, base: int = 0) -> NDArray[np.bool_]:
    """Return [row] -> whether all bits set in this field of the query are set in the row."""
    at = slice(base + field.bit // 8, base + (field.bit + field.width) // 8)
    required = np.frombuffer(query[at], np.uint8)
    same: NDArray[np.bool_] = (rows[:, at] & required == required).all(axis=1)
    return same
