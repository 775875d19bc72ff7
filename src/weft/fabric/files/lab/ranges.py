"""Ranges in a lab file: `h1..16` is h1, h2, ... h16; `leaf1/33..48` is sixteen ports; `n001..128` keeps its zeros."""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def runs(rows: Sequence[tuple[str, ...]]) -> list[tuple[int, int]]:
    """Split rows of names into runs (first, last) in which every column counts up in one number."""
    cut: list[tuple[int, int]] = []
    counting: list[int] = []  # which number of each column
    before: list[list[str]] = []
    for index, row in enumerate(rows):
        parts = [_DIGITS.split(name) for name in row]
        steps = list(map(_step, before, parts)) or [-1]
        if min(steps) >= 0 and (steps == counting or cut[-1][0] == index - 1):
            cut[-1], counting = (cut[-1][0], index), steps
        else:
            cut.append((index, index))
        before = parts
    return cut


def _step(parts: list[str], following: list[str]) -> int:
    """Return the index of the part that counts up by one if the names are otherwise the same; else -1."""
    if len(parts) != len(following):
        return -1
    different = [i for i, (a, b) in enumerate(zip(parts, following, strict=True)) if a != b]
    if len(different) != 1 or different[0] % 2 == 0:
        return -1
    digits = parts[different[0]]
    counts_up = len(digits) < 18 and following[different[0]] == str(int(digits) + 1).zfill(len(digits))
    return different[0] if counts_up else -1
