"""Several subnets as one fabric with addresses of its own: what models of traffic follow from end to end.

LIDs belong to a subnet, so a packet to another one cannot be followed by its DLID alone. `join_subnets` gives every end
port of all subnets an address that no other has, makes each router a switch, and fills the tables of the whole:

    switch of subnet s, port in s       the entry of its own table
    switch of subnet s, port in t       the entry for the LID of the router that leads to t (`choose_router`)
    router, port in t                   the router's port in t

Port slots, names and cables stay the same. `Tables.subnet` tells messages that cross a router, whose packets have a
global route header. Only adjacent subnets are reached, as in a lab. Planes that differ are joined each by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.merged_tables import merge_tables
from weft.fabric.model import Fabric
from weft.fabric.planes import split_planes
from weft.fabric.subnets import SubnetPart, choose_router, subnets_of
from weft.fabric.tables import NO_ROUTE, Tables
from weft.wire.smp import SwitchInfo

_BY_SLOT = ("port_info", "vl_arbitration", "pkey", "fdr10", "congestion")
_BY_ROW = {"lft": NO_ROUTE, "path_sl": 0, "ar_group": -1}  # tables of switches, with their entry for no route


def join_subnets(fabric: Fabric) -> Fabric:
    """Return a routed fabric of several subnets with addresses and tables of its own; one subnet as it is."""
    parts = subnets_of(fabric)
    if len(parts) == 1 or fabric.tables.subnet is not None or "lft" not in vars(fabric.tables):
        return fabric
    if fabric.expanded:
        return _join_planes(fabric)
    whole = _with_routers_as_switches(fabric)
    tables = whole.tables
    _copy_tables(fabric, tables)
    tables.subnet = np.zeros(len(fabric.ports), np.int32)
    for part in parts:
        tables.subnet[np.isin(fabric.ports.node, part.nodes)] = part.number
        tables.subnet[part.router_ports] = part.number
    addresses = _Addresses(fabric, tables.subnet)
    tables.addresses = addresses.first
    _fill(fabric, tables, parts, addresses)
    return whole


def _join_planes(fabric: Fabric) -> Fabric:
    """Return the fabric with the subnets of each plane joined."""
    planes = split_planes(fabric)
    for _, part in planes:  # an adapter has a LID at its port in every plane, and a cable at one
        part.tables.lid[(part.ports.peer < 0) & (part.ports.number > 0)] = 0
    whole = _with_routers_as_switches(fabric)
    tables = merge_tables(whole, [keep for keep, _ in planes], [join_subnets(part).tables for _, part in planes])
    return replace(whole, tables=tables)


def _with_routers_as_switches(fabric: Fabric) -> Fabric:
    """Return the fabric with empty tables and its routers as switches."""
    is_router = fabric.nodes.kind == NodeKind.ROUTER
    kinds = np.where(is_router, NodeKind.SWITCH, fabric.nodes.kind).astype(np.int8)
    nodes = replace(fabric.nodes, kind=kinds).freeze()
    tables = Tables(nodes.n_ports, np.flatnonzero(kinds == NodeKind.SWITCH).astype(np.int32))
    return replace(fabric, nodes=nodes, tables=tables)


class _Addresses:
    """The addresses of all end ports: blocks of as many as the port has LIDs, the largest blocks first."""

    def __init__(self, fabric: Fabric, subnet: NDArray[np.int32]) -> None:
        old = fabric.tables.lid.astype(np.int64)
        in_router = fabric.nodes.kind[fabric.ports.node] == NodeKind.ROUTER
        slots = np.flatnonzero((old > 0) & ~in_router)
        count = 1 << fabric.tables.lmc[slots].astype(np.int64)
        order = np.argsort(-count, kind="stable")
        slots, count = slots[order], count[order]
        begin = int(count.max(initial=1)) + np.cumsum(count) - count  # blocks stay aligned: the sizes are powers of two
        self.first = np.zeros(len(fabric.ports), np.int32)
        self.first[slots] = begin
        self.address = np.repeat(begin, count) + _places(count)
        self.slot = np.repeat(slots, count)
        self.offset = _places(count)
        self.lid = old[self.slot] + self.offset
        self.subnet = subnet[self.slot]

    @property
    def end(self) -> int:
        """The first address that no port has."""
        return int(self.address.max(initial=0)) + 1


def _places(count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, ... count - 1 for each entry, one after the other."""
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)


def _copy_tables(fabric: Fabric, tables: Tables) -> None:
    """Copy the tables that have a row for each port, and the lanes: a router's output port decides its VL."""
    old = vars(fabric.tables)
    for name in _BY_SLOT:
        if name in old:
            setattr(tables, name, old[name])
    if "ar_ports" in old:
        tables.ar_ports = old["ar_ports"]
    if "switch_info" in old:  # of a running fabric, whose switches forward LIDs up to LinearFDBTop
        top = SwitchInfo.linear_fdb_top.bit // 8
        tables.switch_info = old["switch_info"].copy()
        tables.switch_info[:, top : top + 2] = 0xFF
    if "sl2vl" not in old:
        return
    before, ends = fabric.tables.first_pair, np.append(fabric.tables.first_pair, len(old["sl2vl"]))
    for node in range(len(fabric.nodes)):
        rows = old["sl2vl"][before[node] : ends[node + 1]]
        first = int(tables.first_pair[node])
        if fabric.nodes.kind[node] == NodeKind.ROUTER:
            rows = np.tile(rows, (len(rows), 1))
        tables.sl2vl[first : first + len(rows)] = rows


def _fill(fabric: Fabric, tables: Tables, parts: tuple[SubnetPart, ...], addresses: _Addresses) -> None:
    """Fill the tables of switches and routers."""
    old, row = vars(fabric.tables), tables.switch_row
    for name, nothing in _BY_ROW.items():
        if name in old:
            setattr(tables, name, np.full((int(row.max()) + 1, addresses.end), nothing, old[name].dtype))
    ports = {part.number: _router_ports(fabric, part) for part in parts}
    for part in parts:
        rows = part.nodes[fabric.tables.switch_row[part.nodes] >= 0]
        for far in parts:
            mine = np.flatnonzero(addresses.subnet == far.number)
            lids = addresses.lid[mine]
            if far is not part:
                lids, routers = _lids_of_routers(fabric, addresses, mine, ports[part.number], ports[far.number])
                for router in np.unique(routers[routers >= 0]).tolist():
                    out = fabric.ports.number[ports[far.number][router]]
                    tables.lft[row[router], addresses.address[mine[routers == router]]] = out
            _copy_entries(fabric, tables, rows, addresses.address[mine], lids)
    _refuse_levels(fabric, tables)


def _router_ports(fabric: Fabric, part: SubnetPart) -> dict[int, int]:
    """Return the port in this subnet of each router that has a LID there, routers in the order of their GUIDs."""
    slots = part.router_ports[fabric.tables.lid[part.router_ports] > 0]
    nodes = fabric.ports.node[slots]
    order = np.argsort(fabric.nodes.guid[nodes], kind="stable")
    return dict(zip(nodes[order].tolist(), slots[order].tolist(), strict=True))


def _lids_of_routers(
    fabric: Fabric, addresses: _Addresses, mine: NDArray[np.intp], near: dict[int, int], far: dict[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the LID of the router to each address of another subnet, 0 if there is none, and the router."""
    both = [router for router in near if router in far]
    if not both:
        return np.zeros(len(mine), np.int64), np.full(len(mine), -1)
    guids = fabric.ports.guid[addresses.slot[mine]].tolist()
    routers = np.array([both[choose_router(guid, len(both))] for guid in guids], np.int64)
    slots = np.array([near[router] for router in routers.tolist()], np.intp)
    lmc = fabric.tables.lmc[slots].astype(np.int64)
    return fabric.tables.lid[slots].astype(np.int64) + addresses.offset[mine] % (1 << lmc), routers


def _copy_entries(
    fabric: Fabric, tables: Tables, switches: NDArray[np.int32], address: NDArray[np.int64], lid: NDArray[np.int64]
) -> None:
    """Copy the entries of these LIDs in the tables of a subnet's switches to addresses."""
    old_rows, new_rows = fabric.tables.switch_row[switches], tables.switch_row[switches]
    for name in _BY_ROW:
        if name in vars(fabric.tables):
            existing = vars(fabric.tables)[name]
            known = (lid > 0) & (lid < existing.shape[1])
            vars(tables)[name][np.ix_(new_rows, address[known])] = existing[np.ix_(old_rows, lid[known])]


def _refuse_levels(fabric: Fabric, tables: Tables) -> None:
    """Raise ConfigError if a path needs another service level behind a router than before it."""
    if "path_sl" not in vars(tables) or not tables.path_sl.any():
        return
    raise ConfigError(
        f"{fabric.spec} is routed with several service levels, and a router changes the level of a packet, which is "
        "not simulated: use a routing engine with one lane, --routing-engine up-down"
    )
