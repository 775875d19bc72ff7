"""The order in which a technician walks: row by row, rack by rack, top to bottom, then by port; else by name.

A01, A02, ... B01, ... Z09, AA01: of two runs of letters the shorter is first, and numbers go by their value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Order = tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a box stands: rack, and the lowest unit that it fills; 0 where nobody says."""

    rack: str
    u: int = 0

    def __str__(self) -> str:
        return f"{self.rack}-U{self.u}" if self.u else self.rack


def natural(text: str) -> Order:
    """leaf2 before leaf10, Z before AA."""
    return tuple((int(run), 0, "") if run.isdecimal() else (-1, len(run), run) for run in re.findall(r"\d+|\D+", text))


def by_walk(position: Position | None, port: str) -> tuple[bool, Order, int, Order]:
    """What to sort by; devices that nobody says a place of come last."""
    rack, u = (position.rack, position.u) if position else ("", 0)
    return position is None, natural(rack), -u, natural(port)
