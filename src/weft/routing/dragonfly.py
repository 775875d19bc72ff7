"""Dragonfly and Dragonfly+: within a group, over one global link to the destination's group, and within that.

Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly topology", 2008; Shpiner et al., "Dragonfly+:
low cost topology for scaling datacenters", 2017. Groups are detected from the cabling: all-to-all or leaf-spine.
Of several links or paths to a group, the least loaded is taken.

A host's first LID is routed that way. With LMC its other LIDs lead through an intermediate group (Valiant 1982), each
through a different one, if possible with a link to the destination's own switch. Such a detour is longer, but traffic
between two groups then does not share the few links between them.

A minimal path ends on its own local lane, so that arriving packets never wait behind departing ones:

    local 0 -> global 0 -> local 1, with detours 2                                   service level 0: minimal

Lanes of detours follow the numbers of the groups. A packet that comes up from a lower group stays on lane 0, one that
comes down goes on by local lane 1, and may only go further down:

    local 0 -> global 0, up -> local 0 -> global 0, up or down -> local 0 or 1       service level 2
    local 0 -> global 0, down -> local 1 -> global 0, down     -> local 1            service level 2
    local 0 -> global 1, down -> local 1 -> global 1, up       -> local 2            service level 1: dips

So all paths follow one order of channels; docs/design/0007-virtual-lanes.md has the proof, and the lanes of spines.

Guarantee: at most one global link, two by detour, and shortest paths to and from it; no deadlock. Two lanes; with
detours three in a dragonfly and four in a Dragonfly+.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import SERVICE_LEVELS, Tables
from weft.routing.engine import CannotRoute, Options, Subnet, require_vls, turned
from weft.routing.graph import SwitchGraph
from weft.routing.islands import require_one_island
from weft.routing.kernels.balance import route_least_loaded
from weft.routing.kernels.dragonfly import find_cliques, route_by_groups
from weft.routing.kernels.product import components_without
from weft.routing.layers import fill_sl2vl
from weft.routing.orientation import orient
from weft.routing.product import Neighbours, find_neighbours

_WAY_OUT = '\n  Route with engine="dfsssp", or "up-down".'
_MINIMAL, _DIPS, _OTHER_DETOURS, _FALLS, _TO_SPINE = range(5)  # service levels


class Dragonfly:
    name = "dragonfly"
    guarantee = "one global link, or two by detour with LMC; no deadlock; two lanes, or up to four with detours"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        require_one_island(subnet)
        graph = subnet.graph
        net = find_neighbours(graph)
        spine = _find_spines(graph, net)
        group = find_groups(subnet)
        through = _intermediate_groups(graph, net, group)
        has_detours = bool((through != group[graph.at]).any())
        needed = 2 + has_detours * (2 if spine.any() else 1)
        require_vls(subnet, options, self.name, needed, ", or without LMC" if has_detours else "")
        tables = _fill(subnet, options, group, spine, through)
        if options.paths_only:
            return tables
        _set_vls(subnet, tables, group, spine, has_detours)
        if has_detours or spine.any():
            _set_service_levels(graph, tables, group, spine, through)
        return tables


# -- groups -----------------------------------------------------------------------------------------------------------


def find_groups(subnet: Subnet) -> NDArray[np.int32]:
    """Return the group of each switch; raise CannotRoute if they do not form a dragonfly."""
    net = find_neighbours(subnet.graph)
    spine = _find_spines(subnet.graph, net)
    group = _leaf_spine_groups(subnet, net, spine) if spine.any() else find_cliques(net.first, net.far)
    _check_groups(subnet, net, group)
    return group


def _find_spines(graph: SwitchGraph, net: Neighbours) -> NDArray[np.bool_]:
    """Return the spines of a Dragonfly+ ([switch]): switches without hosts, if no two with hosts are connected."""
    leaf = graph.hosts > 0
    return ~leaf & ~(leaf[net.near] & leaf[net.far]).any()


def _leaf_spine_groups(subnet: Subnet, net: Neighbours, spine: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return the group of each switch: the components without the links between spines."""
    is_local = spine[net.near] != spine[net.far]
    group: NDArray[np.int32] = components_without(net.first, net.far, is_local, False)
    for switch in np.flatnonzero(spine & (np.bincount(group)[group] == 1)).tolist():
        raise CannotRoute(
            f"dragonfly routing cannot use {subnet.switch_name(switch)}, which has neither hosts nor leaves: "
            f"{subnet.fabric.spec} is not a dragonfly"
            '\n  Route with engine="fat-tree", or "dfsssp".'
        )
    above = np.bincount(group[spine])[group] - np.diff(net.first)
    for switch in np.flatnonzero(~spine & (above > 0)).tolist():
        lost = np.setdiff1d(np.flatnonzero(spine & (group == group[switch])), net.far[net.near == switch])
        raise _lost_link(subnet, switch, int(lost[0]))
    return group


def _check_groups(subnet: Subnet, net: Neighbours, group: NDArray[np.int32]) -> None:
    """Raise CannotRoute unless there are several groups with a link between every two."""
    size = np.bincount(group)
    n_groups = len(size)
    joined = np.eye(n_groups, dtype=bool)
    joined[group[net.near], group[net.far]] = True
    if n_groups < 2:
        raise CannotRoute(
            f"dragonfly routing needs several groups, and {subnet.fabric.spec} has one"
            '\n  Route with engine="fat-tree", or a full mesh with "dimension-order".'
        )
    pairs, met = n_groups * (n_groups - 1) // 2, int(joined.sum() - n_groups) // 2
    if 2 * met < pairs:
        raise CannotRoute(
            f"dragonfly routing needs a link between every two groups: the switches of {subnet.fabric.spec} form "
            f"{n_groups:,} groups that are all-to-all inside, and only {met:,} of {pairs:,} pairs of them have a link"
            f"{_WAY_OUT}"
        )
    if met < pairs:
        apart = np.argwhere(~joined)
        first, second = apart[np.argmin(size[apart[:, 0]])].tolist()
        ends = [subnet.switch_name(int(np.argmax(group == g))) for g in (first, second)]
        raise _lost_local_link(subnet, net, group, first) or CannotRoute(
            f"dragonfly routing does not reach all of {subnet.fabric.spec}: the groups of {ends[0]} and {ends[1]} "
            f"have no link between them{_WAY_OUT}"
        )


def _lost_local_link(subnet: Subnet, net: Neighbours, group: NDArray[np.int32], number: int) -> CannotRoute | None:
    """Return the error for a missing link that keeps a switch out of a larger group, or None."""
    size = np.bincount(group)
    for switch in np.flatnonzero(group == number).tolist():
        beside = net.far[net.near == switch]
        links = np.bincount(group[beside], minlength=len(size))
        for nearly in np.flatnonzero((size > size[number]) & (2 * links > size)).tolist():
            return _lost_link(subnet, switch, int(np.setdiff1d(np.flatnonzero(group == nearly), beside)[0]))
    return None


def _lost_link(subnet: Subnet, first: int, second: int) -> CannotRoute:
    return CannotRoute(
        f"dragonfly routing does not reach all of {subnet.fabric.spec}: {subnet.switch_name(first)} and "
        f"{subnet.switch_name(second)}, in the same group, have no link between them{_WAY_OUT}"
    )


# -- ways -------------------------------------------------------------------------------------------------------------


def _intermediate_groups(graph: SwitchGraph, net: Neighbours, group: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the intermediate group of each destination; its own group for a minimal path."""
    through = group[graph.at]
    detour = np.zeros(len(through), bool)
    detour[1:] = (np.diff(graph.at) == 0) & (np.diff(graph.out) == 0)  # not the first LID of its port
    n_groups = int(group.max()) + 1
    if n_groups < 3:
        return through
    for switch in np.unique(graph.at[detour]).tolist():
        mine = np.flatnonzero(detour & (graph.at == switch))
        home = int(group[switch])
        groups = np.setdiff1d(group[net.far[net.first[switch] : net.first[switch + 1]]], home)
        if not len(groups):  # a leaf of a Dragonfly+: all groups, with a different first one for each switch
            groups = np.roll(np.setdiff1d(np.arange(n_groups), home), -switch)
        through[mine] = groups[np.arange(len(mine)) % len(groups)]
    return through


def _fill(
    subnet: Subnet, options: Options, group: NDArray[np.int32], spine: NDArray[np.bool_], through: NDArray[np.int32]
) -> Tables:
    """Return forwarding tables: by groups to the hosts and their switches, by the up/down rule to spines."""
    graph, tables = subnet.graph, subnet.new_tables()
    column = np.full(tables.lft.shape[::-1], tables.no_route, tables.lft.dtype)
    to_spine = spine[graph.at]
    lid, at, out, is_host = (part[~to_spine] for part in (graph.lid, graph.at, graph.out, graph.is_host))
    ways = (graph.first, graph.far, graph.port, group, through[~to_spine])
    load = np.zeros(len(graph.far), np.int64)
    route_by_groups(*ways, lid, at, out, is_host, graph.hosts, subnet.previous_by_lid, column, load, load, False)
    if to_spine.any():
        way = orient(graph, subnet.root(options))
        lid, at, out, is_host = (part[to_spine] for part in (graph.lid, graph.at, graph.out, graph.is_host))
        up_down = (way.first, way.middle, way.far, way.port, way.from_top)
        route_least_loaded(*up_down, lid, at, out, is_host, graph.hosts, subnet.previous_by_lid, column)
    tables.lft = turned(column)
    return tables


# -- virtual lanes ----------------------------------------------------------------------------------------------------


def _set_vls(
    subnet: Subnet, tables: Tables, group: NDArray[np.int32], spine: NDArray[np.bool_], has_detours: bool
) -> None:
    graph, fabric = subnet.graph, subnet.fabric
    start, spine_start, local, spine_local, below, above = range(6)  # origin of an incoming packet
    to_end, to_local, to_global = range(3)
    in_kind, out_kind = np.full(len(fabric.ports), start, np.intp), np.full(len(fabric.ports), to_end, np.intp)
    in_kind[fabric.first_port[graph.switches[spine]]] = spine_start
    slots = fabric.first_port[graph.switches[graph.near]] + graph.port
    near, far = group[graph.near], group[graph.far]
    from_local = np.where(spine[graph.near], spine_local, local)
    in_kind[slots] = np.select([far < near, far > near], [below, above], from_local)
    out_kind[slots] = np.where(near == far, to_local, to_global)

    vls = np.zeros((6, 3, SERVICE_LEVELS), np.uint8)
    if not has_detours and not spine.any():
        vls[[below, above], to_local] = 1
    if has_detours:
        vls[above, to_local] = 1
        vls[local, to_local, [_DIPS, _FALLS]] = 1
        vls[spine_local, to_local] = 2
        vls[below, to_local, _DIPS] = 2
        vls[:, to_global, _DIPS] = 1
        vls[[below, above], to_local, _MINIMAL] = 2
    vls[spine_start, to_local] = vls[:, 1:, _TO_SPINE] = 3 if has_detours else 1
    fill_sl2vl(fabric, tables, in_kind, out_kind, vls)


def _set_service_levels(
    graph: SwitchGraph,
    tables: Tables,
    group: NDArray[np.int32],
    spine: NDArray[np.bool_],
    through: NDArray[np.int32],
) -> None:
    """Set service levels by the direction of the two global links of a detour, and for paths that end at a spine."""
    home = group[graph.at]
    is_detour = through != home
    comes_down = group[:, None] > through  # on the first link; irrelevant for paths within the group
    sl = np.where(is_detour, np.where(comes_down & (through < home), _DIPS, _OTHER_DETOURS), _MINIMAL).astype(np.uint8)
    if spine.any():
        sl[comes_down & (through > home)] = _FALLS
        sl[:, spine[graph.at]] = _TO_SPINE
    tables.path_sl[:, graph.lid] = sl
