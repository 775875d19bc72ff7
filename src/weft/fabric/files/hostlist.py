"""Slurm's hostlists: `h[1-8,12]` for h1, h2, ... h8, h12; `n[001-128]` keeps its zeros."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable

from weft.errors import ConfigError

_MAX_NAMES = 65_536
_COMMA = re.compile(r",(?![^\[]*\])")  # outside of brackets
_BRACKETS = re.compile(r"\[([0-9, -]+)\]")
_RANGE = re.compile(r" *([0-9]{1,18})(?:-([0-9]{1,18}))? *")
# At most 18 digits: Slurm counts in 64 bits.
_NUMBERED = re.compile(r"(.*?[^0-9])([0-9]{1,18})")


def compress(names: Iterable[str]) -> str:
    """Return the shortest usual spelling, in natural order."""
    literal: list[str] = []
    numbers: dict[str, list[str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            literal.append(name)
        else:
            numbers.setdefault(match[1], []).append(match[2])
    return ",".join([*sorted(literal), *(prefix + _brackets(numbers[prefix]) for prefix in sorted(numbers))])


def split(text: str) -> list[str]:
    """Split at commas outside of brackets: `h[1-2,9],gw` is h[1-2,9] and gw."""
    return [word.strip() for word in _COMMA.split(text)]


def expand(text: str) -> list[str]:
    """Return the names of a hostlist, each once, in its order: `h[1-2,9],gw` is h1, h2, h9, gw."""
    names: dict[str, None] = {}
    n_left = _MAX_NAMES
    for word in split(text):
        plain, *rest = _BRACKETS.split(word)
        if not word or set("".join([plain, *rest[1::2]])) & set("[], "):
            raise ConfigError(f"invalid {word[:80]!r} in hostlist {text[:80]!r}: write names as h[1-8,12],gw")
        runs = [_runs(text, inside) for inside in rest[::2]]
        n_left -= math.prod(sum(last - first + 1 for first, last, _ in run) for run in runs)
        if n_left < 0:
            raise ConfigError(f"hostlist {text[:80]!r} has more than {_MAX_NAMES:,} names")
        numbers = ([f"{n:0{width}d}" for first, last, width in run for n in range(first, last + 1)] for run in runs)
        for chosen in itertools.product(*numbers):
            tail = itertools.chain.from_iterable(zip(chosen, rest[1::2], strict=True))
            names[plain + "".join(tail)] = None
    return list(names)


def _runs(text: str, inside: str) -> list[tuple[int, int, int]]:
    """Return first, last and digits of each range within brackets."""
    runs = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(f"invalid [{part}] in hostlist {text[:80]!r}: write increasing numbers as [1-8,12]")
        runs.append((int(match[1]), int(match[2] or match[1]), len(match[1])))
    return runs


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key for natural sorting: h2 before h10."""
    return tuple((text, int(digits or -1)) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name))


def _brackets(numbers: list[str]) -> str:
    runs: list[list[str]] = []  # first and last of each
    for number in sorted(numbers, key=lambda digits: (int(digits), len(digits))):
        if runs and number == successor(runs[-1][-1], len(runs[-1][0])):
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    spelled = ["-".join(run) for run in runs]
    return spelled[0] if len(numbers) == 1 else f"[{','.join(spelled)}]"


def successor(digits: str, width: int) -> str:
    """Return the next number, with zeros up to `width`."""
    return str(int(digits) + 1).zfill(width)
