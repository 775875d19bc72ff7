"""Port groups for adaptive routing: the ports among which a switch may choose on the path to a destination.

For an up/down engine, every next hop that its rule allows: whatever the switches choose, packet by packet, paths stay
as short
and cannot form a cycle. For min-hop, every port that is equally near. The other engines prove their lanes path by
path, so a
group consists of the links parallel to the one in the forwarding table.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.tables import NO_ROUTE, Tables
from weft.routing.engine import Options, Subnet
from weft.routing.kernels.adaptive import group_next_hops, group_parallel
from weft.routing.orientation import orient


def add_port_groups(subnet: Subnet, options: Options, engine: str, tables: Tables) -> None:
    """Fill `ar_group` and `ar_ports` of tables made by this engine."""
    graph = subnet.graph
    if engine in ("fat-tree", "up-down"):
        way = orient(graph, subnet.root(options))
        masks, group_of = group_next_hops(way.first, way.middle, way.far, way.port, way.from_top)
    elif engine == "min-hop":
        masks, group_of = group_next_hops(graph.first, graph.first, graph.far, graph.port, np.empty(0, np.int32))
    else:
        masks, group_of = group_parallel(graph.first, graph.far, graph.port)
    groups = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little").astype(np.bool_)
    tables.ar_ports = groups[:, : NO_ROUTE + 1]
    if engine in ("fat-tree", "up-down", "min-hop"):
        away = graph.at[None, :] != np.arange(graph.n_switches)[:, None]
        tables.ar_group[:, graph.lid] = np.where(away, group_of[:, graph.at], -1)
    else:  # [switch, port] -> the group of its parallel links
        rows = np.arange(graph.n_switches)[:, None]
        tables.ar_group[:, graph.lid] = group_of[rows, tables.lft[:, graph.lid]]
