"""Run a routing kernel over a subnet: the kernels fill tables by destination, which are then transposed."""

from __future__ import annotations

import numpy as np

from weft.fabric.tables import NO_ROUTE, Tables
from weft.routing.engine import Subnet
from weft.routing.islands import explain_islands
from weft.routing.kernels.balance import route_by_trunks, route_least_loaded
from weft.routing.orientation import Orientation


def fill_tables(subnet: Subnet, way: Orientation | None, *, trunks: bool = False) -> Tables:
    """Return tables by shortest paths, or with an orientation by the up/down rule.

    With previous tables, entries that are still allowed are kept, and trunks are not used.
    """
    graph, tables = subnet.graph, subnet.new_tables()
    edges = graph if way is None else way
    middle = edges.first[:-1] if way is None else way.middle
    from_top = np.empty(0, np.int32) if way is None else way.from_top
    column = np.full(tables.lft.shape[::-1], NO_ROUTE, np.uint8)
    arguments = (edges.first, middle, edges.far, edges.port, from_top, graph.lid, graph.at, graph.out)
    if trunks and way is not None and subnet.previous is None:
        cut_off = route_by_trunks(*arguments, way.near, way.far_port, graph.is_host, graph.hosts, column)
    else:
        cut_off = route_least_loaded(*arguments, graph.is_host, graph.hosts, subnet.previous_by_lid, column)
    if cut_off >= 0:
        raise explain_islands(subnet)
    tables.lft = np.ascontiguousarray(column.T)
    return tables
