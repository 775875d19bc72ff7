"""What to order for the cables: cables by length, transceivers, fibres by length.

A twin-port cable or a splitter carries two links in one plug; a transceiver at a switch fills a cage of two ports, one
at an adapter serves one; every link between transceivers has a fibre of its own.
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
    entry: str  # of the catalog, which it belongs to
    ends: int = 0  # of links that it serves: what draws power there is in it; a fibre draws none
    at_adapters: int = 0  # of these, in adapters

    def __str__(self) -> str:
        return f"{self.count:,} × {self.name}" + (f" of {self.length_m:g} m" if self.length_m else "")


def list_parts(cabling: Cabling) -> tuple[Part, ...]:
    """Medium by medium, the shortest first."""
    found: list[Part] = []
    for index, entry in enumerate(cabling.parts):
        mine = np.flatnonzero(cabling.part == index)
        kind = "cable" if entry.transceivers is None else "fibre"
        found += _transceivers(cabling, entry, mine)
        for length_m in np.unique(cabling.length_m[mine]).tolist():
            these = mine[cabling.length_m[mine] == length_m]
            count = len(np.unique(cabling.joint[these])) if entry.links > 1 else len(these)
            draws = _draws(cabling, these) if kind == "cable" else {}
            found.append(Part(kind=kind, name=entry.part, length_m=length_m, count=count, entry=entry.name, **draws))
    return tuple(found)


def _transceivers(cabling: Cabling, entry: Cable, cables: NDArray[np.intp]) -> Iterator[Part]:
    """For cages of switches, for those of servers with two ports, and for adapters; one line for each part."""
    if entry.transceivers is None:
        return
    slots, at_switch = _ends(cabling, cables)
    cage = cabling.cage[slots]
    twin = ~at_switch & (np.bincount(cabling.cage)[cage] > 1)
    at_server = entry.flat_transceiver or entry.transceivers[0]
    names = np.where(at_switch, entry.transceivers[0], np.where(twin, at_server, entry.transceivers[1]))
    for name in dict.fromkeys((entry.transceivers[0], at_server, entry.transceivers[1])):
        here = names == name
        if here.any():
            count = len(np.unique(cage[here]))
            made = {"count": count, "ends": int(here.sum()), "at_adapters": int(np.sum(here & ~at_switch))}
            yield Part(kind="transceiver", name=name, length_m=None, entry=entry.name, **made)


def _draws(cabling: Cabling, cables: NDArray[np.intp]) -> dict[str, int]:
    _, at_switch = _ends(cabling, cables)
    return {"ends": len(at_switch), "at_adapters": int(np.sum(~at_switch))}


def _ends(cabling: Cabling, cables: NDArray[np.intp]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Both port slots of each, and whether they are a switch's."""
    fabric = cabling.fabric
    slots = np.concatenate((cabling.low_slot[cables], cabling.high_slot[cables]))
    return slots, fabric.nodes.kind[fabric.ports.node[slots]] == NodeKind.SWITCH
