"""Route a fabric: pick the engine, assign LIDs, fill the tables.

routing = route(weft.load("selene.txt"))
routing.fabric.tables.lft        uint8[switch, lid] -> output port
routing.engine, routing.notes    the engine, and the reasons for it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SimulationBug, UnknownName, WeftError
from weft.fabric.kinds import NodeKind
from weft.fabric.merged_tables import merge_tables
from weft.fabric.model import Fabric
from weft.fabric.planes import expand, split_planes
from weft.fabric.subnets import fingerprint, plugged_router_ports, subnets_of, take_subnet
from weft.fabric.tables import Tables, no_route
from weft.routing import ENGINES, OPENSM_ENGINES
from weft.routing.check import TableCheck, check
from weft.routing.engine import CannotRoute, EngineFailed, Options, Subnet
from weft.routing.islands import require_one_island
from weft.routing.kernels.adaptive import group_next_hops, group_parallel
from weft.routing.lids import assign_lids
from weft.routing.orientation import default_root, orient, surviving_root


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Routing:
    """A routed fabric, with the engine and options used."""

    fabric: Fabric  # with the new tables
    engine: str  # the one that was used
    options: Options
    notes: tuple[str, ...]  # reasons for this engine and against others
    changed_entries: int | None = None  # forwarding entries that differ from the previous ones, if there were any
    verdict: TableCheck | None = None  # the proof by which `auto` chose the engine
    root: str = ""  # the root switch that `reroute` kept; empty: as in the options

    @property
    def tables(self) -> Tables:
        return self.fabric.tables


def route(fabric: Fabric, options: Options | None = None, previous: NDArray[Any] | None = None) -> Routing:
    """Return complete tables by the engine of the options; `auto` picks one whose tables are proved free of deadlock.

    `previous`: forwarding tables of the switches, [row of the switch, lid], `no_route` for unknown entries. Entries
    that the engine still allows are kept, and those that differ are counted.
    """
    options = options or Options()
    if parts := _split(fabric):
        return _join(fabric, parts, _route_parts([part for _, part in parts], options))
    return _route(_subnet(fabric, options, previous), options)


def _route_parts(parts: Sequence[Fabric], options: Options) -> list[Routing]:
    """Return the routing of each plane or subnet; that of equal subnets is computed once.

    Lanes of routers are by port, a root has a name, and plugins may read names: those are routed one by one.
    """
    engine = OPENSM_ENGINES.get(options.engine, options.engine)
    may_copy = not options.root and (engine == "auto" or ENGINES.is_own(engine))
    routings: list[Routing] = []
    known: dict[bytes, Routing] = {}
    for part in parts:
        key = fingerprint(part)
        like = known.get(key) if may_copy else None
        if like is None or "sl2vl" in vars(like.tables):
            routings.append(route(part, options))
            known.setdefault(key, routings[-1])
        else:
            routings.append(replace(like, fabric=part.configured(_copy_tables(like.fabric, part))))
    return routings


def _copy_tables(like: Fabric, part: Fabric) -> Tables:
    """Return the tables of a subnet for an equal one; the ports of its routers may have other numbers."""
    tables, old = part.tables.like(), like.tables
    for name in {"lft", "path_sl", "ar_group", "ar_ports", "addresses"} & vars(old).keys():
        setattr(tables, name, vars(old)[name])
    tables.port_info[:] = old.port_info
    tables.port_info[plugged_router_ports(like)] = 0
    tables.port_info[plugged_router_ports(part)] = old.port_info[plugged_router_ports(like)]
    return tables


def reroute(fabric: Fabric, before: Routing, previous: NDArray[Any] | None = None) -> Routing:
    """Return tables for a fabric after a fault, with the same engine and root, changing as few entries as possible.

    Switches are matched by GUID: names and order may differ. `previous`, as in `route`, is needed if the switches
    hold other
    tables than `before`. If `auto` chose the engine and it cannot route the remaining fabric, another one is chosen.
    """
    if parts := _split(fabric):
        old = [part for _, part in _split(expand(before.fabric))]
        return _join(fabric, parts, [reroute(part, _part_before(part, before, old)) for _, part in parts])
    subnet = _subnet(fabric, before.options, _carried_over(fabric, before.fabric) if previous is None else previous)
    options = replace(before.options, engine=before.engine, root=_choose_root(subnet, before))
    try:
        routing = _route(subnet, options)
    except CannotRoute:
        if before.options.engine != "auto":
            raise
        routing = _route(subnet, replace(options, engine="auto"))
    return replace(routing, options=before.options, root=options.root)


def _split(fabric: Fabric) -> list[tuple[NDArray[np.bool_], Fabric]]:
    """Return the planes or the subnets of a fabric, each with a mask of its nodes; none if it is one subnet."""
    if fabric.expanded:
        return split_planes(fabric)
    parts = subnets_of(fabric)
    return [take_subnet(fabric, part) for part in parts] if len(parts) > 1 else []


def _part_before(part: Fabric, before: Routing, old: Sequence[Fabric]) -> Routing:
    """Return the routing that a plane or a subnet had before."""
    guids = part.nodes.guid[part.of_kind(NodeKind.SWITCH)]
    return replace(before, fabric=max(old, key=lambda plane: int(np.isin(plane.nodes.guid, guids).sum())))


def _join(fabric: Fabric, parts: Sequence[tuple[NDArray[np.bool_], Fabric]], routings: Sequence[Routing]) -> Routing:
    """Return the routing of a whole fabric from those of its planes or subnets."""
    tables = merge_tables(fabric, [keep for keep, _ in parts], [routing.tables for routing in routings])
    changed = [routing.changed_entries for routing in routings if routing.changed_entries is not None]
    return replace(
        routings[0],
        fabric=fabric.configured(tables),
        changed_entries=sum(changed) if changed else None,
        verdict=None,
        root="",
    )


def _subnet(fabric: Fabric, options: Options, previous: NDArray[Any] | None) -> Subnet:
    """Return the fabric with LIDs, and the previous tables in the width that these need."""
    lid, lmc = assign_lids(fabric, options.lmc)
    subnet = Subnet(fabric=fabric, lid=lid, lmc=lmc)
    if previous is None or (previous == no_route(previous)).all():
        return subnet
    fitted = subnet.new_tables().lft
    if len(previous) != len(fitted):
        raise ConfigError(
            f"previous tables of {len(previous)} switches do not fit {fabric.spec}, which has {len(fitted)}; "
            "give a row for each, in the order of the nodes"
        )
    width = min(previous.shape[1], fitted.shape[1])
    fitted[:, :width] = previous[:, :width]
    return replace(subnet, previous=fitted)


def _route(subnet: Subnet, options: Options) -> Routing:
    if not subnet.graph.n_switches:
        raise CannotRoute(f"{subnet.fabric.spec} has no switch, so there is nothing to route")
    if options.root:
        subnet.find_switch(options.root)
    verdict: TableCheck | None = None
    name = OPENSM_ENGINES.get(options.engine, options.engine)
    if name == "auto":
        name, tables, notes, verdict = pick(subnet, options)
    elif name in ENGINES:
        tables, notes = _run_engine(name, subnet, options), ()
    else:
        raise UnknownName("routing engine", options.engine, ["auto", *ENGINES])
    if options.adaptive:
        add_port_groups(subnet, options, name, tables)
    changed = None
    if subnet.previous is not None:  # entries with a route now that had another one, or none, before
        changed = int(((tables.lft != subnet.previous) & (tables.lft != tables.no_route)).sum())
    fabric = subnet.fabric.configured(tables)
    return Routing(fabric=fabric, engine=name, options=options, notes=notes, changed_entries=changed, verdict=verdict)


def _run_engine(name: str, subnet: Subnet, options: Options) -> Tables:
    """Return the tables of one engine; report an exception of a plugin as an error of the plugin."""
    engine = ENGINES[name]
    try:
        return engine.route(subnet, options)
    except WeftError:
        raise
    except Exception as error:
        if ENGINES.is_own(name):
            raise
        raise EngineFailed(
            f"routing engine {name} failed: {type(error).__name__}: {error}\n  Fix the plugin."
        ) from error


def _choose_root(subnet: Subnet, before: Routing) -> str:
    """Return the root of the options if it exists, else that of before: another would change many entries."""
    if before.options.root in subnet.fabric.node_index or not subnet.graph.n_switches:
        return before.options.root
    old = Subnet(fabric=before.fabric, lid=before.tables.lid, lmc=before.tables.lmc)
    top = old.find_switch(before.root) if before.root else old.root(before.options)
    guid = old.fabric.nodes.guid[old.graph.switches[top]]
    rows = np.flatnonzero(subnet.fabric.nodes.guid[subnet.graph.switches] == guid)
    if not len(rows):
        return subnet.switch_name(default_root(subnet.graph))
    return subnet.switch_name(surviving_root(subnet.graph, int(rows[0]), links=int(np.diff(old.graph.first)[top])))


def _carried_over(fabric: Fabric, before: Fabric) -> NDArray[Any]:
    """Return the old forwarding tables in the current rows of the switches; `no_route` for new switches."""
    new, old = (each.nodes.guid[each.of_kind(NodeKind.SWITCH)] for each in (fabric, before))
    _, row, old_row = np.intersect1d(new, old, return_indices=True)
    lft = before.tables.lft
    carried = np.full((len(new), lft.shape[1]), before.tables.no_route, lft.dtype)
    carried[row] = lft[old_row]
    return carried


# Auto: pick the engine that suits the cabling, and check its tables.
#
# Engines are tried in this order: dimension-order (for a grid), dragonfly, fat-tree (for a tree), dfsssp (any fabric,
# if the ports have enough lanes), up-down (any fabric). An engine that cannot route the fabric gives a reason; tables
# that the check finds incomplete or prone to deadlock are discarded, with the reason in the notes. The result is
# therefore always complete and free of deadlock.

ORDER = ("dimension-order", "dragonfly", "fat-tree", "dfsssp", "up-down")


def pick(subnet: Subnet, options: Options) -> tuple[str, Tables, tuple[str, ...], TableCheck | None]:
    """Return the name of the engine, its tables, the reasons, and the proof unless paths alone are asked for."""
    require_one_island(subnet)
    notes: list[str] = []
    for name in ORDER:
        try:
            tables = ENGINES[name].route(subnet, options)
        except CannotRoute as reason:
            notes.append(f"not {name}: {str(reason).splitlines()[0]}")
            continue
        if options.paths_only:
            return name, tables, (*notes, f"{name}: paths alone, without lanes"), None
        verdict = check(subnet.fabric.configured(tables))
        if verdict.ok:
            return name, tables, (*notes, f"{name}: {ENGINES[name].guarantee}"), verdict
        notes.append(f"not {name}: {verdict.explain().splitlines()[0]}")
    raise SimulationBug(f"no engine routes {subnet.fabric.spec}: {'; '.join(notes)}")


# Port groups for adaptive routing: the ports among which a switch may choose on the path to a destination.
#
# For an up/down engine, every next hop that its rule allows: whatever the switches choose, packet by packet, paths stay
# as short and cannot form a cycle. For min-hop, every port that is equally near. The other engines prove their lanes
# path by path, so a group consists of the links parallel to the one in the forwarding table.


def add_port_groups(subnet: Subnet, options: Options, engine: str, tables: Tables) -> None:
    """Fill `ar_group` and `ar_ports` of tables made by this engine."""
    graph, words = subnet.graph, -(-tables.port_numbers // 64)
    if engine in ("fat-tree", "up-down"):
        way = orient(graph, subnet.root(options))
        masks, group_of = group_next_hops(way.first, way.middle, way.far, way.port, way.from_top, words)
    elif engine == "min-hop":
        masks, group_of = group_next_hops(graph.first, graph.first, graph.far, graph.port, np.empty(0, np.int32), words)
    else:
        masks, group_of = group_parallel(graph.first, graph.far, graph.port, words)
    groups = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
    tables.ar_ports = groups[:, : tables.port_numbers]
    if engine in ("fat-tree", "up-down", "min-hop"):
        away = graph.at[None, :] != np.arange(graph.n_switches)[:, None]
        tables.ar_group[:, graph.lid] = np.where(away, group_of[:, graph.at], -1)
    else:  # [switch, port] -> the group of its parallel links
        rows = np.arange(graph.n_switches)[:, None]
        tables.ar_group[:, graph.lid] = group_of[rows, tables.lft[:, graph.lid]]
