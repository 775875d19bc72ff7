"""The cable schedule for technicians, with one line for each cable.

to_csv(cabling)     for people and spreadsheets: both labels, both positions, length, medium, route, bundle
to_ndt(cabling)     for UFM: its long form, with racks and heights; `weft.load` reads the same cables back
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from weft.fabric.files.ndt import LONG, spell_ports
from weft.fabric.rates import speeds
from weft.plan.floor.cables import Cabling
from weft.plan.floor.trays import spell
from weft.plan.size import tier_name

COLUMNS = (
    *("cable", "tier", "label_a", "label_b", "port_a", "rack_a", "u_a", "port_b", "rack_b", "u_b"),
    *("speed", "medium", "part", "length_m", "route_m", "route", "bundle"),
)

_SPECIAL = frozenset(',"\r\n')


def tier_names(cabling: Cabling) -> list[str]:
    """Return the tiers of each cable: `server-leaf`, `leaf-spine`; a switch above cores is `tier4`."""
    tier = cabling.racks.tier.astype(np.int64)
    tiers = int(tier.max(initial=0)) + 1
    names = [name_tiers(*divmod(ends, tiers)) for ends in range(tiers * tiers)]
    return [names[ends] for ends in (tier[cabling.low_box] * tiers + tier[cabling.high_box]).tolist()]


def name_tiers(low: int, high: int) -> str:
    """Return the name of cables between two tiers: `server-leaf`."""
    return "-".join(tier_name(tier) if tier else "server" for tier in (low, high))


def to_csv(cabling: Cabling) -> str:
    """Return the schedule as CSV; `a` is the end nearer the servers, and labels name their own end first."""
    racks = cabling.racks
    ports = [_ports(cabling, slots) for slots in (cabling.low_slot, cabling.high_slot)]
    place = [racks.position(box) for box in range(len(racks.boxes))]
    ends = [
        [f"{place[box]} {port}" for box, port in zip(boxes.tolist(), names, strict=True)]
        for boxes, names in zip((cabling.low_box, cabling.high_box), ports, strict=True)
    ]
    columns = (
        list(map(str, range(1, len(cabling) + 1))),
        tier_names(cabling),
        [f"{a} > {b}" for a, b in zip(*ends, strict=True)],
        [f"{b} > {a}" for a, b in zip(*ends, strict=True)],
        ports[0],
        *_positions(cabling, cabling.low_box),
        ports[1],
        *_positions(cabling, cabling.high_box),
        _speeds(cabling),
        _of_part(cabling, [part.medium.name for part in cabling.parts]),
        _of_part(cabling, [part.name for part in cabling.parts]),
        _formatted(cabling.length_m, "g"),
        _formatted(cabling.route_m, ".2f"),
        _ways(cabling),
        list(map(str, (cabling.bundle + 1).tolist())),
    )
    return _write(COLUMNS, columns)


def to_ndt(cabling: Cabling) -> str:
    """Return the schedule as a UFM plan, with rack and lowest unit as device location."""
    racks = cabling.racks
    ends = [spell_ports(cabling.fabric, slots.tolist()) for slots in (cabling.low_slot, cabling.high_slot)]
    place = [racks.position(box) for box in range(len(racks.boxes))]
    labels = _speeds(cabling)
    rate_mbit_s = np.rint(cabling.fabric.link_rate_gbit_s[cabling.link] * 1000).astype(np.int64)
    blank = [""] * len(cabling)
    (racks_low, units_low), (_, units_high) = (_positions(cabling, end) for end in (cabling.low_box, cabling.high_box))
    by_name = {
        "rack #": racks_low,
        "U height": units_low,
        "StartDevice": [device for device, _ in ends[0]],
        "StartPort": [port for _, port in ends[0]],
        "StartDeviceLocation": [place[box] for box in cabling.low_box.tolist()],
        "EndDevice": [device for device, _ in ends[1]],
        "EndPort": [port for _, port in ends[1]],
        "EndDeviceLocation": [place[box] for box in cabling.high_box.tolist()],
        "U height_1": units_high,
        "LinkType": ["Data"] * len(cabling),
        "Speed": list(map(str, rate_mbit_s.tolist())),
        "_2": [f"{label} cable" for label in labels],
        "Cable Length": _formatted(cabling.length_m, "g"),
        "State": ["Active"] * len(cabling),
        "Domain": ["In-Scope"] * len(cabling),
    }
    return _write(LONG, [by_name.get(name.removeprefix("#Fields:"), blank) for name in LONG])


def _write(header: tuple[str, ...], columns: Iterable[list[str]]) -> str:
    """Return the columns as CSV."""
    rows = zip(*map(_quote_cells, columns), strict=True)
    return "".join([f"{line}\n" for line in (",".join(header), *map(",".join, rows))])


def _quote_cells(cells: list[str]) -> list[str]:
    """Return the cells of a column, with those in quotes that have a comma, a quote or a line break."""
    text = "".join(cells)
    if not any(letter in text for letter in _SPECIAL):
        return cells
    quote = cache(lambda cell: '"' + cell.replace('"', '""') + '"' if _SPECIAL.intersection(cell) else cell)
    return list(map(quote, cells))


def _formatted(values: NDArray[np.float64], form: str) -> list[str]:
    """Format numbers, each distinct one once."""
    distinct, place = np.unique(values, return_inverse=True)
    texts = [format(value, form) for value in distinct.tolist()]
    return [texts[i] for i in place.tolist()]


def _ports(cabling: Cabling, slots: NDArray[np.int32]) -> list[str]:
    ports, names = cabling.fabric.ports, cabling.fabric.nodes.name
    ends = zip(ports.node[slots].tolist(), ports.number[slots].tolist(), strict=True)
    return [f"{names[node]}/{number}" for node, number in ends]


def _positions(cabling: Cabling, boxes: NDArray[np.int32]) -> tuple[list[str], list[str]]:
    racks = cabling.racks
    return [racks.names[rack] for rack in racks.rack[boxes].tolist()], list(map(str, racks.u[boxes].tolist()))


def _speeds(cabling: Cabling) -> list[str]:
    links = cabling.fabric.links
    kinds = zip(links.speed[cabling.link].tolist(), links.width[cabling.link].tolist(), strict=True)
    labels: dict[tuple[int, int], str] = {}
    return [labels.get(kind) or labels.setdefault(kind, speeds()[kind[0]].label(kind[1])) for kind in kinds]


def _of_part(cabling: Cabling, names: list[str]) -> list[str]:
    return [names[part] for part in cabling.part.tolist()]


def _ways(cabling: Cabling) -> list[str]:
    """Return the route of each cable; all cables between two racks take the same route."""
    racks = cabling.racks
    _, first = np.unique(cabling.bundle, return_index=True)
    low, high = racks.rack[cabling.low_box], racks.rack[cabling.high_box]
    ways = [spell(racks, int(low[i]), int(high[i]), int(cabling.cross[i])) for i in first]
    return [ways[bundle] for bundle in cabling.bundle.tolist()]
