"""DFSSSP: shortest paths over the links that carry least so far, and as many virtual lanes as keep them from deadlock.

Domke, Hoefler and Nagel, "Deadlock-free oblivious routing for arbitrary topologies", 2011. Destination by destination,
every switch takes, among its shortest paths, the one with the least sum of loads; then all hosts' traffic to that
destination is added to the links on its way. The paths are spread over lanes by `layers`, both directions of a pair of
switches on one service level, as LASH does and DFSSSP's authors do not.

That takes more lanes, so where they are too few paths are chosen that need fewer, at the price of a less even load:

    by LID        every LID has a tree of shortest paths of its own
    by switch     all LIDs of a switch share one
    by weights    links have fixed weights, the same in both directions, so that most paths come back as they went;
                  weights are raised on crowded links and all is routed again, several times, and the best is kept

Guarantee: shortest paths, even load, no deadlock in either direction, in any connected fabric whose ports have lanes
enough. docs/design/0062-both-directions.md has the lanes and the loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import NO_ROUTE, Tables
from weft.routing.engine import MOST_VLS, NO_PREVIOUS, Options, Subnet, require_vls
from weft.routing.islands import explain_islands
from weft.routing.kernels.dragonfly import route_by_groups
from weft.routing.layers import find_layers, set_layers

_ROUNDS = 20  # of routing by weights; more gain little
_WEIGHT = 1_000_000  # of a link with the average load, added in the first round


class Dfsssp:
    name = "dfsssp"
    guarantee = "shortest paths, even load, no deadlock in either direction; takes as many lanes as that needs"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        needed = MOST_VLS + 1
        for lft in _candidates(subnet):
            layer = find_layers(subnet.graph, lft)
            needed = min(needed, int(layer.max(initial=0)) + 1)
            if needed <= options.max_vls:
                break
        require_vls(subnet, options, self.name, needed, ", or allow more lanes")
        tables = subnet.new_tables()
        tables.lft = lft
        set_layers(tables, subnet.graph, layer, options.max_vls)
        return tables


def _candidates(subnet: Subnet) -> Iterator[NDArray[np.uint8]]:
    """Yield forwarding tables by LID, then those that need fewer lanes, the more even ones first."""
    yield _route_by_load(subnet, per_switch=False)[1]
    others = _route_by_load(subnet, per_switch=True), _route_by_weights(subnet)
    yield from (lft for _, lft in sorted(others, key=itemgetter(0)))


def _route(
    subnet: Subnet,
    weight: NDArray[np.int64],
    load: NDArray[np.int64],
    previous: NDArray[np.uint8],
    *,
    per_switch: bool,
) -> NDArray[np.uint8]:
    """Return forwarding tables by shortest paths of least weight, and count in `load` what they put on each link."""
    graph = subnet.graph
    column = np.full(subnet.new_tables().lft.shape[::-1], NO_ROUTE, np.uint8)
    one_group, through = np.zeros(graph.n_switches, np.int32), np.zeros(len(graph.lid), np.int32)
    ways = (graph.first, graph.far, graph.port, one_group, through)
    ends = (graph.lid, graph.at, graph.out, graph.is_host, graph.hosts)
    if route_by_groups(*ways, *ends, previous, column, weight, load, per_switch) >= 0:
        raise explain_islands(subnet)
    return np.ascontiguousarray(column.T)


def _route_by_load(subnet: Subnet, *, per_switch: bool) -> tuple[int, NDArray[np.uint8]]:
    """Return the load of the fullest link, and tables that take the links that carry least so far."""
    load = np.zeros(len(subnet.graph.far), np.int64)
    lft = _route(subnet, load, load, subnet.previous_by_lid, per_switch=per_switch)
    return int(load.max(initial=0)), lft


def _route_by_weights(subnet: Subnet) -> tuple[int, NDArray[np.uint8]]:
    """Return the same of the best of several rounds of weights, which are alike in both directions."""
    graph = subnet.graph
    weight = np.random.default_rng(0).integers(1, _WEIGHT // 1000, len(graph.far))  # so that paths are rarely alike
    weight += weight[graph.back]
    rounds = []
    for number in range(1, _ROUNDS + 1):
        load = np.zeros(len(graph.far), np.int64)
        lft = _route(subnet, weight, load, NO_PREVIOUS, per_switch=True)
        rounds.append((int(load.max(initial=0)), lft))
        share = (load + load[graph.back]) / max(load.mean(), 1)
        weight += (share * _WEIGHT / number).astype(np.int64)
    return min(rounds, key=itemgetter(0))
