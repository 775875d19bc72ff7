"""Check a change of forwarding tables: no credit loop while some switches have the old tables and some the new ones.

loop = find_mixed_loop(before, after)       () if there is none

Old and new tables may each be free of credit loops and a mix of them have one. A packet that meets an old entry at one
switch and a new one at the next uses a path of neither table. The dependencies of all such paths together contain those
of every mix of entries, so if they have no cycle, no order of writes can deadlock (Duato, Lysne, Pang and Pinkston, "A
theory for deadlock-free dynamic network reconfiguration", 2005). Paths are those between adapters, as in ibdmchk.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import Tables
from weft.routing.check import TableWalker
from weft.routing.kernels import walk
from weft.routing.kernels.mixed import add_mixed

LANES_CHANGE = "the service levels or virtual lanes of switches change"


def find_mixed_loop(before: Fabric, after: Fabric) -> tuple[str, ...]:
    """Return the ports of a credit loop of old and new entries, on the switches and cables of `after`; () for none.

    Switches are matched by GUID, and LIDs must be the same. The only entry is `LANES_CHANGE` if nothing can be proved,
    because the lanes of the two differ.
    """
    old, new = (TableWalker(fabric, hosts_only=True) for fabric in (after.configured(_carry(before, after)), after))
    if old.n_vls != new.n_vls or not np.array_equal(old.sl2vl, new.sl2vl):
        return (LANES_CHANGE,)
    graph, n_vls = new.graph, new.n_vls
    levels = [np.zeros_like(new.routes) if n_vls > 1 and not len(sl) else sl for sl in (old.path_sl, new.path_sl)]
    depends = np.zeros((len(graph.far) * n_vls, (new.edge_at.shape[1] * n_vls + 7) // 8), np.uint8)
    add_mixed(
        *(new.edge_at, graph.far, graph.port[graph.back], new.ports, new.source, new.source_port, new.lid),
        *(old.routes, new.routes, *levels, new.sl2vl, new.first_pair, n_vls, depends),
    )
    cycle = walk.find_cycle(depends, new.edge_at, graph.far, n_vls)
    return tuple(new.name_channel(channel) for channel in cycle.tolist())


def _carry(before: Fabric, after: Fabric) -> Tables:
    """Return the tables of before in the rows of after's switches; a switch without a row drops all packets."""
    tables = after.tables.unrouted()
    switches = [fabric.of_kind(NodeKind.SWITCH) for fabric in (before, after)]
    guids = [fabric.nodes.guid[nodes] for fabric, nodes in zip((before, after), switches, strict=True)]
    _, old_row, row = np.intersect1d(guids[0], guids[1], return_indices=True)
    width = min(before.tables.lft.shape[1], tables.lft.shape[1])
    tables.lft[row, :width] = before.tables.lft[old_row, :width]
    if "path_sl" in vars(before.tables):
        tables.path_sl[row, :width] = before.tables.path_sl[old_row, :width]
    if "sl2vl" in vars(before.tables):
        _, old_nodes, nodes = np.intersect1d(before.nodes.guid, after.nodes.guid, return_indices=True)
        rows = np.append(before.tables.first_pair, len(before.tables.sl2vl))
        begins = zip(rows[old_nodes].tolist(), rows[old_nodes + 1].tolist(), strict=True)
        for first, (begin, end) in zip(tables.first_pair[nodes].tolist(), begins, strict=True):
            tables.sl2vl[first : first + end - begin] = before.tables.sl2vl[begin:end]
    return tables
