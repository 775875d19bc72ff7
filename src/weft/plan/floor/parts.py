"""The parts to order for the cabling: cables by length, transceivers, fibres by length.

A twin-port cable or a splitter carries two links in one plug. A transceiver at a switch fills a cage of two ports, one
at an adapter serves one port, in all its planes. Every link between transceivers has its own fibre.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.catalog import Cable
from weft.fabric.kinds import NodeKind
from weft.plan.floor.cables import Cabling


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A line of an order."""

    kind: str  # cable, fibre, transceiver
    name: str  # as it is ordered
    length_m: float | None  # None: a transceiver
    count: int
    entry: str  # in the catalog
    ends: int = 0  # ends of links in which it draws power; 0 for a fibre
    at_adapters: int = 0  # those of the ends that are in adapters

    def __str__(self) -> str:
        return f"{self.count:,} × {self.name}" + (f" of {self.length_m:g} m" if self.length_m else "")


def list_parts(cabling: Cabling) -> tuple[Part, ...]:
    """Return the parts by medium, the shortest first."""
    parts: list[Part] = []
    for index, entry in enumerate(cabling.parts):
        mine = np.flatnonzero(cabling.part == index)
        kind = "cable" if entry.transceivers is None else "fibre"
        parts += _transceivers(cabling, entry, mine)
        for length_m in np.unique(cabling.length_m[mine]).tolist():
            cables = mine[cabling.length_m[mine] == length_m]
            count = len(np.unique(cabling.joint[cables])) if entry.links > 1 else len(cables)
            draws = _draws(cabling, cables) if kind == "cable" else {}
            parts.append(Part(kind=kind, name=entry.part, length_m=length_m, count=count, entry=entry.name, **draws))
    return tuple(parts)


def _transceivers(cabling: Cabling, entry: Cable, cables: NDArray[np.intp]) -> Iterator[Part]:
    """Yield the transceivers for cages of switches, for two-port cages of servers, and for adapters."""
    if entry.transceivers is None:
        return
    slots, at_switch = _ends(cabling, cables)
    of_plane_1 = np.where(at_switch, 0, cabling.fabric.ports.number[slots] - 1)  # planes of an adapter have one cage
    cage = cabling.cage[slots - of_plane_1]
    twin = ~at_switch & (np.bincount(cabling.cage)[cage] > 1)
    at_server = entry.flat_transceiver or entry.transceivers[0]
    names = (entry.transceivers[0], at_server, entry.transceivers[1])
    kind = np.where(at_switch, 0, np.where(twin, 1, 2))
    for name in dict.fromkeys(names):
        selected = np.array([other == name for other in names])[kind]
        if selected.any():
            count = int(np.count_nonzero(np.bincount(cage[selected])))
            counts = {"count": count, "ends": int(selected.sum()), "at_adapters": int(np.sum(selected & ~at_switch))}
            yield Part(kind="transceiver", name=name, length_m=None, entry=entry.name, **counts)


def _draws(cabling: Cabling, cables: NDArray[np.intp]) -> dict[str, int]:
    _, at_switch = _ends(cabling, cables)
    return {"ends": len(at_switch), "at_adapters": int(np.sum(~at_switch))}


def _ends(cabling: Cabling, cables: NDArray[np.intp]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return both port slots of each cable, and whether they belong to a switch."""
    fabric = cabling.fabric
    slots = np.concatenate((cabling.low_slot[cables], cabling.high_slot[cables]))
    return slots, fabric.nodes.kind[fabric.ports.node[slots]] == NodeKind.SWITCH
