"""Slurm's hostlists: `h[1-8,12]` for h1, h2, ... h8, h12; `n[001-128]` keeps its zeros."""

from __future__ import annotations

import re
from collections.abc import Iterable

# At most 18 digits: Slurm counts in 64 bits.
_NUMBERED = re.compile(r"(.*?[^0-9])([0-9]{1,18})")


def compress(names: Iterable[str]) -> str:
    """The shortest usual spelling, in natural order."""
    literal: list[str] = []
    numbers: dict[str, list[str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            literal.append(name)
        else:
            numbers.setdefault(match[1], []).append(match[2])
    return ",".join([*sorted(literal), *(prefix + _brackets(numbers[prefix]) for prefix in sorted(numbers))])


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """A key to sort by: h2 before h10."""
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
    """The next number, with zeros up to `width`."""
    return str(int(digits) + 1).zfill(width)
