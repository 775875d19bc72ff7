"""Service levels and lanes of tables as the checks read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.fabric.forwarding import DATA_VLS
from weft.fabric.model import Fabric
from weft.fabric.tables import SERVICE_LEVELS
from weft.routing.graph import SwitchGraph
from weft.routing.kernels import walk
from weft.wire.port_info import PortInfo, PortState

_FOUR_BITS = np.uint8(15)  # mask of a service level or a lane


def by_lid(table: NDArray[Any], top_lid: int, empty: int) -> NDArray[Any]:
    """Transpose a table so that the entries of one LID are contiguous, with as many rows as there are LIDs."""
    turned = np.full((top_lid + 1, len(table)), empty, table.dtype)
    n_rows = min(top_lid + 1, table.shape[1])
    turned[:n_rows] = table[:, :n_rows].T
    return turned


def service_levels(
    fabric: Fabric, graph: SwitchGraph, ports: NDArray[np.int64], top_lid: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], int]:
    """Return the SL of each path, SL to VL and the number of lanes; both tables are empty if there is one lane."""
    tables, nothing = fabric.tables, np.empty((0, 0), np.uint8)
    if "sl2vl" not in vars(tables) and not tables.runs:
        return nothing, nothing, 1
    path_sl = tables.path_sl & _FOUR_BITS if "path_sl" in vars(tables) else nothing
    in_use = _values(path_sl) if path_sl.size else np.zeros(1, np.intp)
    sl2vl = _vls_in_use(fabric)
    rows = np.zeros(len(sl2vl), bool)
    for first, width in zip(tables.first_pair[graph.switches].tolist(), ports.tolist(), strict=True):
        rows[first : first + width**2] = True
    vls = _values(sl2vl[rows][:, in_use])
    if not vls.any():
        return nothing, nothing, 1
    levels = by_lid(path_sl, top_lid, 0) if path_sl.size else nothing
    return levels, sl2vl, int(vls[vls != walk.DROP].max(initial=0)) + 1


def _vls_in_use(fabric: Fabric) -> NDArray[np.uint8]:
    """Return SL to VL, with DROP for SLs that a port or its adapter does not send."""
    tables, ports = fabric.tables, fabric.ports
    sl2vl: NDArray[np.uint8] = (tables if "sl2vl" in vars(tables) else tables.like()).sl2vl & _FOUR_BITS
    first_pair, width = tables.first_pair, fabric.nodes.n_ports.astype(np.int64) + 1
    is_switch = tables.switch_row >= 0
    if tables.runs:
        vls = np.array(DATA_VLS)[tables.of_ports(PortInfo.operational_vls)]
        vls[tables.of_ports(PortInfo.port_state) != PortState.ACTIVE] = 0
        vls[ports.peer < 0] = walk.DROP  # no cable: a different failure
        ends = zip(first_pair, fabric.first_port, width, np.where(is_switch, width**2, width), strict=True)
        for begin, first, wide, rows in ends:
            pairs = sl2vl[begin : begin + rows].reshape(-1, wide, SERVICE_LEVELS)
            pairs[pairs >= vls[first : first + wide, None]] = walk.DROP
    own = np.flatnonzero((ports.peer >= 0) & ~is_switch[ports.node])
    own = own[is_switch[ports.node[ports.peer[own]]]]
    drops = sl2vl[first_pair[ports.node[own]] + ports.number[own]] == walk.DROP
    leaf, number = ports.node[ports.peer[own]], ports.number[ports.peer[own]]
    begin = first_pair[leaf] + number * width[leaf]
    for index in np.flatnonzero(drops.any(axis=1)):
        sl2vl[begin[index] : begin[index] + width[leaf[index]], drops[index]] = walk.DROP
    return sl2vl


def _values(table: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Return the values that occur in a table of bytes, faster than by sorting."""
    return np.flatnonzero(np.bincount(table.ravel(), minlength=1))
