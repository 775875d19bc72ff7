"""Ranges in a lab file: `h1..16` is h1, h2, ... h16; `leaf1/33..48` is sixteen ports; `n001..128` keeps its zeros."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError

RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})", re.ASCII)
_MAX_NAMES = 65_536
_MAX_DIGITS = 17
_DIGITS = re.compile(r"(\d+)", re.ASCII)


def expand(text: str) -> list[str]:
    """Return the names of a text with at most one range."""
    before, *rest = RANGE.split(text, maxsplit=1)
    if not rest:
        return [text]
    first, last, after = rest
    if after.startswith("..") or RANGE.search(after):
        raise ConfigError(f"{text} has two ranges: use one, over the node or over the port")
    count = int(last) - int(first) + 1
    if not 0 < count <= _MAX_NAMES:
        raise ConfigError(f"range {text} has {count:,} names: it must increase and have at most {_MAX_NAMES:,}")
    return [f"{before}{number:0{len(first)}d}{after}" for number in range(int(first), int(last) + 1)]


def compress(first: str, last: str) -> str:
    """Return the range between two names that differ in one number, or the name if they are the same."""
    if first == last:
        return first
    parts = [a if a == b else f"{a}..{b}" for a, b in zip(_DIGITS.split(first), _DIGITS.split(last), strict=True)]
    return "".join(parts)


def runs(columns: Sequence[Sequence[str]], same: Sequence[str]) -> list[tuple[int, int]]:
    """Split rows of names into runs (first, last) in which each column counts up in one number, and `same` is equal."""
    if not same:
        return []
    codes = np.zeros(len(same) - 1, np.int64)  # of each row and the next: the numbers that count up; -1: none
    ends = np.fromiter(map(str.__ne__, same, same[1:]), bool, len(codes))
    for column in columns:
        steps = _steps(column, ~ends)
        ends |= steps < 0
        codes = codes << 8 | steps
    codes[ends] = -1
    result, first, counting = [], 0, -1
    for index, code in enumerate(codes.tolist(), start=1):
        if code < 0 or (code != counting and first != index - 1) or index - first == _MAX_NAMES:
            result.append((first, index - 1))
            first = index
        counting = code
    return [*result, (first, len(codes))]


def _steps(names: Sequence[str], needed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return [n - 1] -> the part of a name that counts up by one in the next, which is otherwise the same; else -1.

    Pairs that are not `needed` may have any value.
    """
    result = np.full(len(names) - 1, -1)
    if all(map(str.isascii, names)):
        pairs = _count_last_digits(np.array(names, np.bytes_), result)
    else:
        pairs = np.arange(len(result))
    for index in pairs[needed[pairs]].tolist():
        result[index] = _step(names[index], names[index + 1])
    return result


def _count_last_digits(names: NDArray[np.bytes_], result: NDArray[np.int64]) -> NDArray[np.intp]:
    """Fill in the steps of names that differ in one character, nearly all; return the other pairs that differ."""
    length = names.dtype.itemsize
    letters = np.concatenate((names.view(np.uint8).reshape(-1, length), np.zeros((len(names), 1), np.uint8)), axis=1)
    before, after = letters[:-1], letters[1:]
    different = before != after
    n_different, place, pair = different.sum(axis=1), different.argmax(axis=1), np.arange(len(result))
    is_digit = (letters >= ord("0")) & (letters <= ord("9"))
    begins = is_digit & ~np.roll(is_digit, 1, axis=1)  # the column that was added has no digit
    small = np.int16 if length < 1 << 14 else np.int32  # half of the time goes into these two arrays
    parts = 2 * np.cumsum(begins, axis=1, dtype=small) - 1
    begin = np.maximum.accumulate(np.where(begins, np.arange(length + 1, dtype=small), small(0)), axis=1)
    digits = is_digit[:-1]
    counts = (
        (n_different == 1)
        & (after[pair, place] == before[pair, place] + 1)
        & digits[pair, place]
        & is_digit[1:][pair, place]
        & ~digits[pair, place + 1]
        & (place - begin[pair, place] < _MAX_DIGITS)
    )
    result[counts] = parts[:-1][pair, place][counts]
    return np.flatnonzero(n_different > 1)


def _step(name: str, following: str) -> int:
    """Return the part of a name that counts up by one in the following name, or -1."""
    parts, others = _DIGITS.split(name), _DIGITS.split(following)
    if len(parts) != len(others):
        return -1
    places = [place for place, (a, b) in enumerate(zip(parts, others, strict=True)) if a != b]
    place = places[0] if len(places) == 1 else 0
    return place if place % 2 and _counts_up(parts[place], others[place]) else -1


def _counts_up(digits: str, following: str) -> bool:
    return len(digits) <= _MAX_DIGITS and following == str(int(digits) + 1).zfill(len(digits))
