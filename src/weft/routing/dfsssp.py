"""DFSSSP: shortest paths over the links that carry least so far, and as many virtual lanes as keep them from deadlock.

Domke, Hoefler and Nagel, "Deadlock-free oblivious routing for arbitrary topologies", 2011. Destination by destination,
every switch takes, among its shortest paths, the one with the least sum of loads; then all hosts' traffic to that
destination is added to the links on its way. The paths are spread over lanes by `layers`.

Guarantee: shortest paths, even load, no deadlock, in any connected fabric whose ports have lanes enough.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.tables import NO_ROUTE, Tables
from weft.routing.engine import Options, Subnet
from weft.routing.islands import explain_islands
from weft.routing.kernels.dragonfly import route_by_groups
from weft.routing.layers import spread_over_vls


class Dfsssp:
    name = "dfsssp"
    guarantee = "shortest paths, even load, no deadlock; takes as many lanes as that needs"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        graph, tables = subnet.graph, subnet.new_tables()
        column = np.full(tables.lft.shape[::-1], NO_ROUTE, np.uint8)
        one_group, through = np.zeros(graph.n_switches, np.int32), np.zeros(len(graph.lid), np.int32)
        ways = (graph.first, graph.far, graph.port, one_group, through)
        ends = (graph.lid, graph.at, graph.out, graph.is_host, graph.hosts)
        cut_off = route_by_groups(*ways, *ends, subnet.previous_by_lid, column)
        if cut_off >= 0:
            raise explain_islands(subnet)
        tables.lft = np.ascontiguousarray(column.T)
        spread_over_vls(subnet, options, tables, self.name)
        return tables
