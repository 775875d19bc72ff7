"""A fabric's summary: nodes, tiers, links per speed, and cabling warnings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric import catalog
from weft.fabric.build import MAX_PORTS
from weft.fabric.cabling_warnings import CablingWarning, find_cabling_warnings
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import NO_LEVEL, levels
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds

_TIER_NAMES = ("hosts", "leaf", "spine", "core")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """The switches of one level, and the bandwidth below and above them."""

    level: int
    name: str
    switches: int
    models: dict[str, int]
    hca_links: int
    down_gbit_s: float
    up_gbit_s: float
    free_ports: int

    @property
    def oversubscription(self) -> float | None:
        """The bandwidth to the level below divided by that to the level above; None at the top."""
        return self.down_gbit_s / self.up_gbit_s if self.up_gbit_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkGroup:
    """The links of one speed between two tiers."""

    between: str
    label: str
    rate_gbit_s: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    spec: str
    changes: tuple[str, ...]
    planes: int  # counts and rates are those of all planes together
    servers: int
    boxes: int  # switches as they are sold: a Q3400 is one box with a chip in each of four planes
    nodes: dict[str, int]
    tiers: tuple[Tier, ...]
    links: tuple[LinkGroup, ...]
    cabling_warnings: tuple[CablingWarning, ...]


def summarise(fabric: Fabric) -> Summary:
    def copies(kind: int) -> int:
        return fabric.multiplicity if kind == NodeKind.SWITCH else 1

    level = levels(fabric)
    kinds = Counter(sorted(fabric.nodes.kind.tolist()))
    return Summary(
        spec=fabric.spec,
        changes=fabric.changes,
        planes=fabric.planes,
        servers=len(fabric.servers),
        boxes=count_boxes(fabric),
        nodes={NodeKind(kind).label: count * copies(kind) for kind, count in kinds.items()},
        tiers=_tiers(fabric, level),
        links=_link_groups(fabric, level),
        cabling_warnings=find_cabling_warnings(fabric, level),
    )


def count_boxes(fabric: Fabric) -> int:
    """Return the number of switch boxes, of which some hold a chip for each plane."""
    chips = {switch.name: switch.planes for switch in catalog.switches()}
    model, count = np.unique(fabric.nodes.model[fabric.of_kind(NodeKind.SWITCH)], return_counts=True)
    names = [fabric.models[index] if index >= 0 else "" for index in model.tolist()]
    per_box = [chips.get(name, 1) if fabric.planes > 1 else 1 for name in names]
    return sum(-(-n * fabric.multiplicity // each) for n, each in zip(count.tolist(), per_box, strict=True))


def tier_name(level: int) -> str:
    """Return the name of a level: `leaf`, `spine`, `core`, then `level 4`."""
    if level == NO_LEVEL:
        return "cut off"
    return _TIER_NAMES[level] if level < len(_TIER_NAMES) else f"level {level}"


def _tiers(fabric: Fabric, level: NDArray[np.int16]) -> tuple[Tier, ...]:
    switches, planes = fabric.of_kind(NodeKind.SWITCH), fabric.multiplicity
    below, above = np.zeros(len(level)), np.zeros(len(level))
    hca_links, free = np.zeros(len(level), np.int64), _free_ports(fabric)
    ends = fabric.link_nodes
    for near, far in (ends, ends[::-1]):
        to_hca = np.isin(fabric.nodes.kind[far], (NodeKind.HCA, NodeKind.ROUTER))
        to_agent = fabric.nodes.kind[far] == NodeKind.AGGREGATION
        down = ~to_agent & (to_hca | (level[far] < level[near]))
        np.add.at(below, near[down], fabric.link_rate_gbit_s[down])
        np.add.at(above, near[level[far] > level[near]], fabric.link_rate_gbit_s[level[far] > level[near]])
        np.add.at(hca_links, near[to_hca], 1)
    tiers = []
    for number in sorted(set(level[switches].tolist())):
        members = switches[level[switches] == number]
        model, count = np.unique(fabric.nodes.model[members], return_counts=True)
        models = {
            fabric.models[m] if m >= 0 else "unknown": n * planes
            for m, n in zip(model.tolist(), count.tolist(), strict=True)
        }
        tiers.append(
            Tier(
                level=number,
                name=tier_name(number),
                switches=len(members) * planes,
                models=models,
                hca_links=int(hca_links[members].sum()) * planes,
                down_gbit_s=float(below[members].sum()) * planes,
                up_gbit_s=float(above[members].sum()) * planes,
                free_ports=int(free[members].sum()) * planes,
            )
        )
    return tuple(tiers)


def _free_ports(fabric: Fabric) -> NDArray[np.int64]:
    """Return the number of free front ports of each node. The port beyond them, 41 of 40, is the aggregation node's."""
    front = {switch.name: switch.ports for switch in catalog.switches()}
    # the last entry serves -1
    of_model = np.array([*(front.get(model, MAX_PORTS) for model in fabric.models), MAX_PORTS])[fabric.nodes.model]
    split = fabric.nodes.n_ports > of_model + 1  # cages
    of_node = np.where(split, fabric.nodes.n_ports, of_model)
    ports = fabric.ports
    is_free = (ports.peer < 0) & (ports.number > 0) & (ports.number <= of_node[ports.node])
    free = np.bincount(ports.node[is_free], minlength=len(fabric.nodes))
    rates = {switch.name: switch.rate_gbit_s for switch in catalog.switches()}
    whole_gbit_s = np.array([*(rates.get(model, np.inf) for model in fabric.models), np.inf])[fabric.nodes.model]
    for node in fabric.link_nodes:  # a link at the rate of a port that is not split takes all of its parts
        whole = node[split[node] & (fabric.link_rate_gbit_s >= whole_gbit_s[node])]
        np.subtract.at(free, whole, fabric.nodes.n_ports[whole] // of_model[whole] - 1)
    return free


def _link_groups(fabric: Fabric, level: NDArray[np.int16]) -> tuple[LinkGroup, ...]:
    """Return the groups of links, from the hosts up, then those inside servers."""
    side = _sides(fabric, level)
    a, b = fabric.link_nodes
    low, high = np.minimum(side[a], side[b]), np.maximum(side[a], side[b])
    columns = (~fabric.network_links, high - NO_LEVEL, low - NO_LEVEL, fabric.links.speed, fabric.links.width)
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    keys, counts = np.unique(np.ravel_multi_index(columns, sizes), return_counts=True)  # rows sorted as numbers are
    groups = []
    for (inside, *ends, speed, width), count in zip(
        np.stack(np.unravel_index(keys, sizes), axis=1).tolist(), counts.tolist(), strict=True
    ):
        line, (top, bottom) = speeds()[speed], (end + NO_LEVEL for end in ends)
        groups.append(
            LinkGroup(
                between=f"{_side_name(bottom)} - {_side_name(top)}",
                label=line.label(width),
                rate_gbit_s=line.rate_gbit_s(width),
                count=count if inside else count * fabric.multiplicity,
            )
        )
    return tuple(groups)


# The end of a link, for grouping: a level of the network, or (from _BOX up) a kind of node inside a server.
_BOX = 100


def _sides(fabric: Fabric, level: NDArray[np.int16]) -> NDArray[np.int64]:
    kind = fabric.nodes.kind.astype(np.int64)
    side = np.where(kind == NodeKind.SWITCH, level, _BOX + kind)
    return np.where(np.isin(kind, (NodeKind.HCA, NodeKind.ROUTER)), 0, side)


def _side_name(side: int) -> str:
    if side >= _BOX:
        return NodeKind(side - _BOX).label
    return "HCA" if side == 0 else tier_name(side)
