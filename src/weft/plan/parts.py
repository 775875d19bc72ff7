"""What to order for the cables: cables by length, transceivers, fibres by length.

A twin-port cable or a splitter carries two links in one plug; a transceiver at a switch fills a cage of two ports, one
at an adapter serves one; every link between transceivers has a fibre of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.plan.cables import Cabling
from weft.plan.runs import cages


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A line of an order."""

    kind: str  # cable, fibre, transceiver
    name: str  # as it is ordered
    length_m: float | None  # None: a transceiver
    count: int
    entry: str  # of the catalog, which it belongs to

    def __str__(self) -> str:
        return f"{self.count:,} × {self.name}" + (f" of {self.length_m:g} m" if self.length_m else "")


def list_parts(cabling: Cabling) -> tuple[Part, ...]:
    """Medium by medium, the shortest first."""
    found: list[Part] = []
    for index, entry in enumerate(cabling.parts):
        mine = np.flatnonzero(cabling.part == index)
        kind = "cable"
        if entry.links > 1:
            _, first = np.unique(cabling.joint[mine], return_index=True)
            mine = mine[first]
        if entry.transceivers is not None:
            kind = "fibre"
            ends = _plugs(cabling, mine)
            for name in dict.fromkeys(entry.transceivers):
                count = sum(n for one, n in zip(entry.transceivers, ends, strict=True) if one == name)
                if count:
                    found.append(Part(kind="transceiver", name=name, length_m=None, count=count, entry=entry.name))
        for length_m, count in sorted(Counter(cabling.length_m[mine].tolist()).items()):
            found.append(Part(kind=kind, name=entry.part, length_m=length_m, count=count, entry=entry.name))
    return tuple(found)


def _plugs(cabling: Cabling, cables: NDArray[np.intp]) -> tuple[int, int]:
    """Cages of switches, and ports of adapters, that these cables end in."""
    fabric = cabling.fabric
    slots = np.concatenate((cabling.low_slot[cables], cabling.high_slot[cables]))
    at_switch = fabric.nodes.kind[fabric.ports.node[slots]] == NodeKind.SWITCH
    return len(np.unique(cages(fabric)[slots[at_switch]])), int(np.sum(~at_switch))
