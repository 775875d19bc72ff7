"""Route a fabric: pick the engine, give LIDs, fill the tables.

routing = route(weft.load("selene.txt"))
routing.fabric.tables.lft        uint8[switch, lid] -> out port
routing.engine, routing.notes    which engine, and why
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.errors import UnknownName
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE, Tables
from weft.routing.adaptive import add_port_groups
from weft.routing.auto import pick
from weft.routing.dfsssp import Dfsssp
from weft.routing.dimension_order import DimensionOrder
from weft.routing.dragonfly import Dragonfly
from weft.routing.engine import CannotRoute, Options, Subnet
from weft.routing.fat_tree import FatTree
from weft.routing.lids import assign_lids
from weft.routing.min_hop import MinHop
from weft.routing.up_down import UpDown

if TYPE_CHECKING:
    from weft.routing.engine import RoutingEngine

ENGINES: dict[str, RoutingEngine] = {
    engine.name: engine for engine in (DimensionOrder(), Dragonfly(), FatTree(), Dfsssp(), UpDown(), MinHop())
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Routing:
    """A routed fabric and how it came about."""

    fabric: Fabric  # with the new tables
    engine: str  # the one that was used
    options: Options
    notes: tuple[str, ...]  # why this engine, and why not others
    changed_entries: int | None = None  # after a fault: forwarding entries that differ from before

    @property
    def tables(self) -> Tables:
        return self.fabric.tables


def route(fabric: Fabric, options: Options | None = None) -> Routing:
    """Complete tables by the engine of the options; `auto` picks one whose tables are proved free of deadlock."""
    options = options or Options()
    lid, lmc = assign_lids(fabric, options.lmc)
    return _route(Subnet(fabric=fabric, lid=lid, lmc=lmc), options)


def reroute(fabric: Fabric, before: Routing) -> Routing:
    """Tables for a fabric after a fault, by the engine and root of before, changing as few entries as possible."""
    lid, lmc = assign_lids(fabric, before.options.lmc)
    previous = _carried_over(fabric, before.fabric, int(lid.max(initial=0)) + 1)
    options = replace(before.options, engine=before.engine, root=_kept_root(fabric, before))
    routing = _route(Subnet(fabric=fabric, lid=lid, lmc=lmc, previous=previous), options)
    return replace(routing, changed_entries=_count_changes(routing.tables.lft, previous))


def _route(subnet: Subnet, options: Options) -> Routing:
    if not subnet.graph.n_switches:
        raise CannotRoute(f"{subnet.fabric.spec} has no switch: there is nothing to route, adapters need no tables")
    if options.root:
        subnet.find_switch(options.root)
    if options.engine == "auto":
        name, tables, notes = pick(subnet, options, ENGINES)
    elif options.engine in ENGINES:
        name, tables, notes = options.engine, ENGINES[options.engine].route(subnet, options), ()
    else:
        raise UnknownName("routing engine", options.engine, ["auto", *ENGINES])
    if options.adaptive:
        add_port_groups(subnet, options, name, tables)
    return Routing(fabric=subnet.fabric.configured(tables), engine=name, options=options, notes=notes)


def _kept_root(fabric: Fabric, before: Routing) -> str:
    """The root of before, if it is still there: another one would turn half the tables over."""
    tables = before.tables
    subnet = Subnet(fabric=before.fabric, lid=tables.lid, lmc=tables.lmc)
    name = subnet.switch_name(subnet.root(before.options))
    return name if name in fabric else ""


def _carried_over(fabric: Fabric, before: Fabric, n_lids: int) -> NDArray[np.uint8]:
    """The old forwarding tables, row by row for the switches that are left, as wide as the new ones."""
    rows = fabric.tables.switch_row
    old_row = {name: int(row) for name, row in zip(before.nodes.name, before.tables.switch_row, strict=True)}
    carried = np.full((int(rows.max(initial=-1)) + 1, n_lids), NO_ROUTE, np.uint8)
    old = before.tables.lft
    width = min(n_lids, old.shape[1])
    for name, row in zip(fabric.nodes.name, rows.tolist(), strict=True):
        if row >= 0 and old_row.get(name, -1) >= 0:
            carried[row, :width] = old[old_row[name], :width]
    return carried


def _count_changes(lft: NDArray[np.uint8], previous: NDArray[np.uint8]) -> int:
    """Entries that lead somewhere now and led elsewhere, or nowhere, before."""
    return int(((lft != previous) & (lft != NO_ROUTE)).sum())
