"""Every cable with its route, its length, and the cheapest medium that reaches.

The route goes from port to port: inside a rack straight up or down; to another rack up to the trays, along them and
down; with slack at both ends. The length is the next longer one on sale. `runs` chooses the part, `trays` the route.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.levels import keep_levels
from weft.fabric.model import Fabric
from weft.plan.floor.racks import Racks, place
from weft.plan.floor.runs import NONE, Runs, choose, find_runs, sold_m
from weft.plan.floor.trays import Trays, load, measure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cabling:
    """The cabling of a floor plan. A cable is one link; two of them may share a plug."""

    racks: Racks
    fabric: Fabric  # with length and medium of each network link
    link: NDArray[np.int32]  # [cable] -> index in fabric.links
    low_box: NDArray[np.int32]  # [cable] the end nearer the servers
    high_box: NDArray[np.int32]  # [cable] the other
    low_slot: NDArray[np.int32]  # [cable] port slots of the same two ends
    high_slot: NDArray[np.int32]
    route_m: NDArray[np.float64]  # [cable] along racks and trays, with slack
    length_m: NDArray[np.float64]  # [cable] as sold: the next longer
    part: NDArray[np.int16]  # [cable] -> index in parts
    parts: tuple[catalog.Cable, ...]
    cage: NDArray[np.int64]  # [port] -> slot of the first port in its cage, which takes one plug
    joint: NDArray[np.int32]  # [cable] those with the same number are joined by plugs
    cross: NDArray[np.int32]  # [cable] -> cross tray, NO_CROSS
    bundle: NDArray[np.int32]  # [cable] those with the same number join the same two racks
    trays: Trays

    def __len__(self) -> int:
        return len(self.link)

    @property
    def optical(self) -> NDArray[np.bool_]:
        """The optical cables: [cable]."""
        return np.array([part.optical for part in self.parts], bool)[self.part]

    @property
    def bundles(self) -> int:
        return int(self.bundle.max(initial=-1)) + 1


def cable(racks: Racks) -> Cabling:
    """Return the cabling of racks; raise ConfigError for a cable that no medium reaches."""
    runs = find_runs(racks.fabric, racks.box_of, racks.tier)
    low, high = racks.rack[runs.low_box], racks.rack[runs.high_box]
    route_m, cross = _routes(racks, runs)
    pick, parts = choose(runs, route_m)
    if (pick == NONE).any():
        _refuse(racks, runs, route_m, int(np.where(pick == NONE, route_m, -1).argmax()))
    length_m = sold_m(runs, route_m, pick, parts)
    racks_of = np.minimum(low, high).astype(np.int64) * len(racks.names) + np.maximum(low, high)
    _, bundle = np.unique(racks_of, return_inverse=True)
    return Cabling(
        racks=racks,
        fabric=_bought(racks.fabric, runs.link, np.array([part.medium for part in parts], np.int8)[pick], length_m),
        link=runs.link,
        low_box=runs.low_box,
        high_box=runs.high_box,
        low_slot=runs.low_slot,
        high_slot=runs.high_slot,
        route_m=route_m,
        length_m=length_m,
        part=pick,
        parts=parts,
        cage=runs.cage,
        joint=runs.joint,
        cross=cross,
        bundle=bundle.astype(np.int32),
        trays=load(racks, low, high, cross),
    )


def _routes(racks: Racks, runs: Runs) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return the metres of each cable, to the millimetre, and its cross tray."""
    low, high = racks.rack[runs.low_box], racks.rack[runs.high_box]
    along_m, cross = measure(racks, low, high)
    low_m, high_m = racks.port_m[runs.low_box], racks.port_m[runs.high_box]
    upright_m = np.where(low == high, np.abs(low_m - high_m), 2 * racks.room.tray_m - low_m - high_m)
    return np.round(along_m + upright_m + 2 * racks.room.slack_m, 3), cross


def _bought(fabric: Fabric, link: NDArray[np.int32], medium: NDArray[np.int8], length_m: NDArray[np.float64]) -> Fabric:
    links = replace(fabric.links, medium=fabric.links.medium.copy(), length_m=fabric.links.length_m.copy())
    links.medium[link], links.length_m[link] = medium, length_m
    return keep_levels(fabric, replace(fabric, links=links.freeze()))


def _refuse(racks: Racks, runs: Runs, route_m: NDArray[np.float64], worst: int) -> NoReturn:
    parts = next(parts for mask, parts in runs.kinds() if mask[worst])
    longest = max(parts, key=lambda part: part.reach_m)
    link = racks.fabric.link(int(runs.link[worst]))
    low, high = (racks.position(int(box[worst])) for box in (runs.low_box, runs.high_box))
    raise ConfigError(
        f"the cable {link} from {low} to {high} is {route_m[worst]:.1f} m long, and the longest {link.speed.name} "
        f"cable, {longest.name}, reaches {longest.reach_m:g} m.\n  {_nearest(racks)}"
    )


def _nearest(racks: Racks) -> str:
    """Return the smallest change of the room with which every cable is possible."""
    room, count = racks.room, len(racks.names)
    square = max(1, round((count * room.row_pitch_m / room.rack_width_m) ** 0.5))
    for change in (
        {"switches": "middle"},
        {"cross_trays": max(5, room.cross_trays)},
        {"racks_per_row": min(square, 9_999)},
        {"switches": "middle", "racks_per_row": min(square, 9_999), "cross_trays": max(5, room.cross_trays)},
    ):
        other = place(racks.fabric, msgspec.structs.replace(room, **change))
        runs = find_runs(other.fabric, other.box_of, other.tier)
        if (choose(runs, _routes(other, runs)[0])[0] != NONE).all():
            return "It is in reach with " + ", ".join(f"{name} = {value}" for name, value in change.items())
    return f"{count:,} racks are too many for one hall; split the fabric, or set narrower aisles and rows"
