"""The walking order of a technician: by row, rack, unit from the top, then port; without positions by name.

A01, A02, ... B01, ... Z09, AA01: shorter runs of letters come first, and numbers sort by value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Order = tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a box: rack and lowest unit; 0 if the unit is unknown."""

    rack: str
    u: int = 0

    def __str__(self) -> str:
        return f"{self.rack}-U{self.u}" if self.u else self.rack


def natural(text: str) -> Order:
    """Return a key for natural order: leaf2 before leaf10, Z before AA."""
    return tuple((int(run), 0, "") if run.isdecimal() else (-1, len(run), run) for run in re.findall(r"\d+|\D+", text))


def by_walk(position: Position | None, port: str) -> tuple[bool, Order, int, Order]:
    """Return a key for walking order; devices of unknown position come last."""
    rack, u = (position.rack, position.u) if position else ("", 0)
    return position is None, natural(rack), -u, natural(port)
