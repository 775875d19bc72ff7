"""The boxes in racks: servers and switches of a fabric with height, power, and the unit that they belong to.

A unit is a set of servers on the same leaves: a scalable unit of a SuperPOD, the servers of one leaf of a fat tree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds

NO_UNIT = -1  # spines and cores


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boxes:
    """The boxes: servers in the fabric's order, then switches, then adapters of unknown servers."""

    names: tuple[str, ...]
    models: tuple[str, ...]  # [box] catalog name, "" unknown
    tier: NDArray[np.int16]  # [box] as `levels`: 0 server, 1 leaf
    box_of: NDArray[np.int32]  # [node] -> box
    height_u: NDArray[np.int16]
    power_w: NDArray[np.float64]  # maximum power, of a switch with its plugs; nan unknown
    is_rack: NDArray[np.bool_]  # delivered as a whole rack, with its own power
    unit: NDArray[np.int32]  # [box]
    group: NDArray[np.int32]  # [box] -> fabric.groups, -1 none
    assumed: tuple[str, ...]  # assumptions where fabric and catalog have no data


def find_boxes(fabric: Fabric) -> Boxes:
    box_of, first_node = _number(fabric)
    count = len(first_node)
    chips = np.bincount(box_of[fabric.of_kind(NodeKind.SWITCH)], minlength=count)
    tier = _tiers(fabric, box_of, count)
    models = _models(fabric, box_of, count)
    adapters = np.bincount(box_of[fabric.of_kind(NodeKind.HCA)], minlength=count)
    entries = {name: _of_catalog(name, chips=bool(chips[models.index(name)])) for name in set(models) - {""}}
    racks = {name for name, entry in entries.items() if isinstance(entry, catalog.Server) and entry.is_rack}
    unknown_u = np.maximum(adapters, 1)
    height_u = [_height_u(entries[name], chips[box]) if name else unknown_u[box] for box, name in enumerate(models)]
    own_w = np.array([entries[name].power_w if name else None for name in models], np.float64)
    plugs_w, silent = _plugs(fabric, box_of, count)
    group = np.full(count, -1, np.int32)
    np.maximum.at(group, box_of[box_of >= 0], fabric.nodes.group[box_of >= 0])
    return Boxes(
        names=tuple(_names(fabric, first_node, chips)),
        models=tuple(models),
        tier=tier,
        box_of=box_of,
        height_u=np.array(height_u, np.int16),
        power_w=own_w * np.maximum(chips, 1) + plugs_w,
        is_rack=np.array([name in racks for name in models], bool),
        unit=_units(fabric, box_of, tier),
        group=group,
        assumed=(*_assumptions(models, chips, adapters, own_w), *silent),
    )


def _number(fabric: Fabric) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Return the box of each node (-1: none) and a node of each box. The chips of a director are one box."""
    nodes = fabric.nodes
    box_of = nodes.server.copy()
    switches = fabric.of_kind(NodeKind.SWITCH)
    _, first, inverse = np.unique(nodes.system_guid[switches], return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))
    box_of[switches] = len(fabric.servers) + order[inverse]
    alone = np.flatnonzero((box_of < 0) & np.isin(nodes.kind, (NodeKind.HCA, NodeKind.ROUTER)))
    box_of[alone] = len(fabric.servers) + len(first) + np.arange(len(alone))
    a, b = fabric.link_nodes
    for near, far in ((a, b), (b, a)):
        inside = nodes.kind[near] == NodeKind.AGGREGATION
        box_of[near[inside]] = box_of[far[inside]]
    placed = np.flatnonzero(box_of >= 0)
    _, first_of_box = np.unique(box_of[placed], return_index=True)
    return box_of, placed[first_of_box]


def _tiers(fabric: Fabric, box_of: NDArray[np.int32], count: int) -> NDArray[np.int16]:
    """Return the tier of each box: of a director the lowest of its chips, of a switch without hosts below it 1."""
    level = levels(fabric)
    switches = fabric.of_kind(NodeKind.SWITCH)
    tier = np.full(count, np.iinfo(np.int16).max, np.int16)
    np.minimum.at(tier, box_of[switches], np.maximum(level[switches], 1))
    return np.where(tier == np.iinfo(np.int16).max, 0, tier).astype(np.int16)


def _models(fabric: Fabric, box_of: NDArray[np.int32], count: int) -> list[str]:
    """Return the model of each box: of servers by their boards, of plain hosts by their only adapter."""
    nodes = fabric.nodes
    plain = {entry.compute_adapter: entry.name for entry in catalog.servers() if not entry.gpus and entry.rails == 1}
    models = [""] * count
    for node in fabric.of_kind(NodeKind.CPU, NodeKind.SWITCH).tolist():
        if nodes.model[node] >= 0 and box_of[node] >= 0:
            models[box_of[node]] = fabric.models[nodes.model[node]]
    for node in fabric.of_kind(NodeKind.HCA).tolist():
        server = nodes.server[node]
        if server >= 0 and nodes.model[node] >= 0 and nodes.name[node] == fabric.servers[server]:
            models[server] = plain.get(fabric.models[nodes.model[node]], "")
    switches = {entry.name for entry in catalog.switches()}
    return [name if box < len(fabric.servers) or name in switches else "" for box, name in enumerate(models)]


def _height_u(entry: catalog.Switch | catalog.Server, chips: int) -> int:
    """Return the height of a box: that of the chassis for a director, one switch for each chip if it is unknown."""
    chassis = entry.chassis if isinstance(entry, catalog.Switch) else None
    return entry.height_u * max(chips, 1) if chassis is None else chassis.height_u


def _of_catalog(name: str, *, chips: bool) -> catalog.Switch | catalog.Server:
    return catalog.switch(name) if chips else catalog.server(name)


def _plugs(fabric: Fabric, box_of: NDArray[np.int32], count: int) -> tuple[NDArray[np.float64], list[str]]:
    """Return the maximum power of the plugs in each switch, and notes on speeds with unknown plugs.

    The power of a server includes its plugs.
    """
    ends = [box_of[end] for end in fabric.link_nodes]
    cabled = fabric.network_links & (ends[0] != ends[1])
    names, cage_of = [entry.name for entry in speeds()], {entry.name: (entry.cage,) for entry in catalog.switches()}
    used = np.unique(fabric.links.speed[cabled]).tolist()
    each_w = np.zeros((len(fabric.models) + 1, len(names)))  # [model, speed]; the last model serves index -1
    for model, name in enumerate((*fabric.models, "")):
        each_w[model, used] = [catalog.plug_power_w(names[speed], cage_of.get(name, ())) or 0.0 for speed in used]
    drawn_w = np.zeros(count)
    for node, box in zip(fabric.link_nodes, ends, strict=True):
        at_switch = cabled & (fabric.nodes.kind[node] == NodeKind.SWITCH)
        plug_w = each_w[fabric.nodes.model[node[at_switch]], fabric.links.speed[at_switch]]
        drawn_w += np.bincount(box[at_switch], plug_w, minlength=count)
    silent = [names[speed] for speed in used if not each_w[:, speed].any()]
    rule = "they are not counted in the power of racks"
    return drawn_w, [f"the catalog has no power for {name} optics: {rule}" for name in silent]


def _names(fabric: Fabric, first_node: NDArray[np.intp], chips: NDArray[np.intp]) -> Iterator[str]:
    yield from fabric.servers
    for box in range(len(fabric.servers), len(first_node)):
        name = fabric.nodes.name[first_node[box]]
        yield re.sub(r"(-[A-Z]\d+)+$", "", name) if chips[box] > 1 else name  # dir1-L16-U2 becomes dir1


def _units(fabric: Fabric, box_of: NDArray[np.int32], tier: NDArray[np.int16]) -> NDArray[np.int32]:
    """Return the unit of each box, in the order of the first servers. Servers on the same leaves form a unit.

    A leaf belongs to the unit of most of its servers, and a server to the unit with most of its cables, so that a
    single wrong cable does not merge units.
    """
    a, b = (box_of[end[fabric.network_links]] for end in fabric.link_nodes)
    down = np.concatenate((a, b))
    up = np.concatenate((b, a))
    hosted = (down >= 0) & (up >= 0) & (tier[down] == 0) & (tier[up] == 1)
    server, leaf = down[hosted], up[hosted]
    home = np.arange(len(tier))  # of a leaf: the lowest leaf that its servers are on as well
    lowest = np.full(len(tier), len(tier))
    np.minimum.at(lowest, server, leaf)
    home[leaf] = _most_common(leaf, lowest[server], len(tier))[leaf]
    unit = np.full(len(tier), NO_UNIT)
    unit[tier == 1] = home[tier == 1]
    unit[server] = _most_common(server, home[leaf], len(tier))[server]
    unit[(tier == 0) & (unit == NO_UNIT)] = len(tier)  # without cables: together, at the end
    of_units = np.flatnonzero(unit != NO_UNIT)
    _, first, inverse = np.unique(unit[of_units], return_index=True, return_inverse=True)
    unit[of_units] = np.argsort(np.argsort(first))[inverse]
    return unit.astype(np.int32)


def _most_common(of: NDArray[np.integer], value: NDArray[np.integer], count: int) -> NDArray[np.int64]:
    """Return the most frequent value for each key, the lowest of equally frequent ones; 0 without values."""
    pairs, times = np.unique(np.stack((of, value)), axis=1, return_counts=True)
    best = np.lexsort((-pairs[1], times))  # the last write wins
    most_common = np.zeros(count, np.int64)
    most_common[pairs[0][best]] = pairs[1][best]
    return most_common


def _assumptions(
    models: list[str], chips: NDArray[np.intp], adapters: NDArray[np.intp], power_w: NDArray[np.float64]
) -> Iterator[str]:
    unknown = np.array([not name for name in models], bool)
    if servers := int(np.sum(unknown & (chips == 0))):
        rule = "as many U high as they have adapters; their power is not counted"
        yield f"{servers:,} servers of unknown model are {rule}"
    if switches := int(np.sum(unknown & (chips > 0))):
        yield f"{switches:,} switches of unknown model are 1U high; their power is not counted"
    flat = {entry.name for entry in catalog.switches() if entry.chassis is None}
    if directors := int(np.sum((chips > 1) & np.array([not name or name in flat for name in models], bool))):
        yield f"{directors:,} directors of unknown model have the height of one switch for each chip"
    silent = Counter(name for name, watts in zip(models, power_w, strict=True) if name and np.isnan(watts))
    for name, count in silent.items():
        yield f"the catalog has no power for a {name}: {count:,} of them are not counted in the power of racks"
