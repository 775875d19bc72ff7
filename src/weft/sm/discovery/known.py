"""Track the tables that devices are known to have: those written and accepted.

A device that we never wrote to, or that has restarted since, is not known: a switch tells by the top of its forwarding
table, which is 0 after a restart, an adapter by a port that is not Active any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE, Tables
from weft.mad.walk import Rows
from weft.sm.discovery.view import View, ranges
from weft.wire.bulk import column
from weft.wire.port_info import PortState
from weft.wire.smp import SwitchInfo

BLOCK = 64  # LIDs in a block of a forwarding table


@dataclass(slots=True, eq=False, kw_only=True)
class Known:
    """The contents of the devices as far as known. `tables` are for the nodes of `fabric`; unknown parts are empty."""

    fabric: Fabric
    tables: Tables
    fresh: NDArray[np.bool_]  # [node] -> is it new to us, or has it restarted?
    routes: NDArray[np.bool_]  # [node] -> is its forwarding table known?
    groups: NDArray[np.bool_]  # [node] -> its multicast forwarding table?
    vl_tables: NDArray[np.bool_]  # [node] -> SL to VL, VL arbitration?
    keys: NDArray[np.bool_]  # [slot] -> P_Keys?
    top: NDArray[np.int64]  # [node] -> LinearFDBTop that we set
    alias_lid: NDArray[np.int64]  # [slot] -> LID in the alias GUID that we set, 0 for none
    told: Rows  # uint8[slot, 64]: PortInfo as we last asked for it, zeros where we did not,
    said: Rows  # and what the port said that it is now: not all take all


def carried_over(before: Known | None, view: View) -> Known:
    """Return the contents that are still valid for a new view."""
    fabric = view.fabric
    n = len(fabric.nodes)
    contents = Known(
        fabric=fabric,
        tables=fabric.tables.like(),
        fresh=np.ones(n, bool),
        routes=np.zeros(n, bool),
        groups=np.zeros(n, bool),
        vl_tables=np.zeros(n, bool),
        keys=np.zeros(len(fabric.ports), bool),
        top=np.zeros(n, np.int64),
        alias_lid=np.zeros(len(fabric.ports), np.int64),
        told=np.zeros_like(view.port_info),
        said=np.zeros_like(view.port_info),
    )
    if before is None:
        return contents
    new, old = _same_nodes(fabric, before.fabric)
    top = column(view.switch_info, SwitchInfo.linear_fdb_top).astype(np.int64)
    is_valid = np.where(view.is_switch[new], top[new] == before.top[old], _all_active(view)[new])
    new, old = new[is_valid], old[is_valid]
    contents.fresh[new] = False
    for name in ("routes", "groups", "vl_tables", "top"):
        getattr(contents, name)[new] = getattr(before, name)[old]
    slots, slots_before = _spans(fabric, new), _spans(before.fabric, old)
    for name in ("keys", "alias_lid", "told", "said"):
        getattr(contents, name)[slots] = getattr(before, name)[slots_before]
    _copy(before, contents, old, new)
    return contents


def _same_nodes(fabric: Fabric, before: Fabric) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of nodes that are in both fabrics; a node with another number of ports is another node."""
    _, new, old = np.intersect1d(fabric.nodes.guid, before.nodes.guid, assume_unique=True, return_indices=True)
    same = fabric.nodes.n_ports[new] == before.nodes.n_ports[old]
    return new[same], old[same]


def _all_active(view: View) -> NDArray[np.bool_]:
    """Return [node] -> whether all its plugged ports are Active."""
    waiting = np.zeros(len(view.fabric.nodes), bool)
    waiting[view.fabric.ports.node[view.plugged[view.state[view.plugged] != PortState.ACTIVE]]] = True
    return ~waiting


def _copy(before: Known, contents: Known, old: NDArray[np.intp], new: NDArray[np.intp]) -> None:
    source, target = before.tables, contents.tables
    rows_old, rows_new = source.switch_row[old], target.switch_row[new]
    rows_old, rows_new = rows_old[rows_old >= 0], rows_new[rows_new >= 0]
    awake = vars(source)
    if "lft" in awake:
        target.lft = np.full((int(target.switch_row.max(initial=-1)) + 1, source.lft.shape[1]), NO_ROUTE, np.uint8)
        target.lft[rows_new] = source.lft[rows_old]
    if "mft" in awake:
        groups, words = source.mft.shape[1], min(source.mft.shape[2], target.mft.shape[2])  # the widest may have gone
        target.mft = np.zeros((len(target.mft), groups, target.mft.shape[2]), np.uint16)
        target.mft[rows_new, :, :words] = source.mft[rows_old, :, :words]
    slots_old, slots_new = _spans(before.fabric, old), _spans(contents.fabric, new)
    for name in ("vl_arbitration", "pkey"):
        if name in awake:
            getattr(target, name)[slots_new] = getattr(source, name)[slots_old]
    if "sl2vl" in awake:
        target.sl2vl[_pairs(target, contents.fabric, new)] = source.sl2vl[_pairs(source, before.fabric, old)]


def _spans(fabric: Fabric, nodes: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return the slots of nodes, one node after the other."""
    return ranges(fabric.first_port[nodes], fabric.nodes.n_ports[nodes].astype(np.int64) + 1)


def _pairs(tables: Tables, fabric: Fabric, nodes: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return the rows of nodes in `sl2vl`, one node after the other."""
    ports = fabric.nodes.n_ports[nodes].astype(np.int64) + 1
    return ranges(tables.first_pair[nodes], np.where(tables.switch_row[nodes] >= 0, ports**2, ports))
