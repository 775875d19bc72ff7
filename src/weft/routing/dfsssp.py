"""DFSSSP: shortest paths over the least loaded links, and enough virtual lanes to avoid deadlock.

Domke, Hoefler and Nagel, "Deadlock-free oblivious routing for arbitrary topologies", 2011. For one destination after
the other, every switch takes the shortest path with the smallest sum of loads; then the traffic of all hosts to that
destination is added to the links of its path. `layers` distributes the paths over lanes, both directions of a pair of
switches on one service level, as in LASH and unlike the original DFSSSP.

That needs more lanes; if there are too few, paths that need fewer are chosen, at the price of a less even load:

    by LID        every LID has its own tree of shortest paths
    by switch     all LIDs of a switch share one
    by weights    links have fixed weights, the same in both directions, so that most paths return as they came;
                  weights are raised on busy links and all is routed again, several times, and the best result is used

Guarantee: shortest paths, even load, no deadlock in either direction, in any connected fabric whose ports have enough
lanes. docs/design/0062-both-directions.md has the lanes and the loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import Tables
from weft.routing.engine import MOST_VLS, NO_PREVIOUS, Options, Subnet, require_vls, turned
from weft.routing.islands import explain_islands
from weft.routing.kernels.dragonfly import route_by_groups
from weft.routing.layers import find_layers, set_layers

_ROUNDS = 20  # rounds of routing by weights; more gain little
_WEIGHT = 1_000_000  # added in the first round to a link with average load


class Dfsssp:
    name = "dfsssp"
    guarantee = "shortest paths, even load, no deadlock in either direction; takes as many lanes as that needs"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        tables, needed = subnet.new_tables(), MOST_VLS + 1
        for lft in _candidates(subnet):
            tables.lft = lft
            if options.paths_only:
                return tables
            layer = find_layers(subnet.graph, lft)
            needed = min(needed, int(layer.max(initial=0)) + 1)
            if needed <= options.max_vls:
                break
        require_vls(subnet, options, self.name, needed, ", or allow more lanes")
        set_layers(tables, subnet.graph, layer, options.max_vls)
        return tables


def _candidates(subnet: Subnet) -> Iterator[NDArray[np.uint8]]:
    """Yield forwarding tables by LID, then those that need fewer lanes, the more even ones first."""
    yield _route_by_load(subnet, per_switch=False)[1]
    with_fewer_lanes = _route_by_load(subnet, per_switch=True), _route_by_weights(subnet)
    yield from (lft for _, lft in sorted(with_fewer_lanes, key=itemgetter(0)))


def _route(
    subnet: Subnet,
    weight: NDArray[np.int64],
    load: NDArray[np.int64],
    previous: NDArray[np.uint8],
    *,
    per_switch: bool,
) -> NDArray[np.uint8]:
    """Return forwarding tables by shortest paths of least weight, and add the load of each link to `load`."""
    graph = subnet.graph
    tables = subnet.new_tables()
    column = np.full(tables.lft.shape[::-1], tables.no_route, tables.lft.dtype)
    one_group, through = np.zeros(graph.n_switches, np.int32), np.zeros(len(graph.lid), np.int32)
    ways = (graph.first, graph.far, graph.port, one_group, through)
    ends = (graph.lid, graph.at, graph.out, graph.is_host, graph.hosts)
    if route_by_groups(*ways, *ends, previous, column, weight, load, per_switch) >= 0:
        raise explain_islands(subnet)
    return turned(column)


def _route_by_load(subnet: Subnet, *, per_switch: bool) -> tuple[int, NDArray[np.uint8]]:
    """Return the load of the busiest link, and tables that use the least loaded links."""
    load = np.zeros(len(subnet.graph.far), np.int64)
    lft = _route(subnet, load, load, subnet.previous_by_lid, per_switch=per_switch)
    return int(load.max(initial=0)), lft


def _route_by_weights(subnet: Subnet) -> tuple[int, NDArray[np.uint8]]:
    """Return the best of several rounds of weights, which are equal in both directions."""
    graph = subnet.graph
    # random, to make equal path weights rare
    weight = np.random.default_rng(0).integers(1, _WEIGHT // 1000, len(graph.far))
    weight += weight[graph.back]
    rounds = []
    for number in range(1, _ROUNDS + 1):
        load = np.zeros(len(graph.far), np.int64)
        lft = _route(subnet, weight, load, NO_PREVIOUS, per_switch=True)
        rounds.append((int(load.max(initial=0)), lft))
        share = (load + load[graph.back]) / max(load.mean(), 1)
        weight += (share * _WEIGHT / number).astype(np.int64)
    return min(rounds, key=itemgetter(0))
