"""Ranges in a lab file: `h1..16` is h1, h2, ... h16; `leaf1/33..48` is sixteen ports; `n001..128` keeps its zeros."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError

RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})", re.ASCII)
_MAX_NAMES = 65_536
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
    parts = [a if a == b else f"{a}..{b}" for a, b in zip(_DIGITS.split(first), _DIGITS.split(last), strict=True)]
    return "".join(parts)


def runs(columns: Sequence[Sequence[str]], same: Sequence[str]) -> list[tuple[int, int]]:
    """Split rows of names into runs (first, last) in which each column counts up in one number, and `same` is equal."""
    if not same:
        return []
    codes = np.zeros(len(same) - 1, np.int64)  # of each row and the next: the numbers that count up; -1: none
    ends = np.fromiter(map(str.__ne__, same, same[1:]), bool, len(codes))
    for column in columns:
        steps = _steps(column)
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


def _steps(names: Sequence[str]) -> NDArray[np.int64]:
    """Return [n - 1] -> the part of a name that counts up by one in the next, which is otherwise the same; else -1."""
    parts = [_DIGITS.split(name) for name in names]
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    result, different = np.full(len(parts) - 1, -1), np.zeros(len(parts) - 1, np.int64)
    for place, texts in enumerate(zip_longest(*parts, fillvalue="")):
        changed = np.fromiter(map(str.__ne__, texts, texts[1:]), bool, len(result))
        different += changed
        if place % 2:
            result[[i for i in np.flatnonzero(changed).tolist() if _counts_up(texts[i], texts[i + 1])]] = place
    result[(different != 1) | (lengths[1:] != lengths[:-1])] = -1
    return result


def _counts_up(digits: str, following: str) -> bool:
    return 0 < len(digits) < 18 and following == str(int(digits) + 1).zfill(len(digits))
