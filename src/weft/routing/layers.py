"""Virtual lanes by layers: paths that would form a cycle of dependencies go to different lanes.

    layer 0    a -> b -> c -> d            the paths added first: a packet that holds a waits for b, ...
    layer 1                   d -> a       this one would have closed the cycle

All paths between two switches, in both directions, go to the first layer in which the channel dependencies (Dally and
Seitz
1987) form no cycle with them, and stay there: the layer is their service level, and every port maps service level n
to lane n.
LASH fills its layers in this way (Skeie, Lysne and Theiss, "Layered shortest path (LASH) routing in irregular system
area
networks", 2002), and a reply on the service level of its request is in the right layer. Between two switches without
hosts,
where only the agents of the switches send, the directions may differ: on a large tree such pairs are the majority,
and would
take as many lanes again. The authors of DFSSSP found layers slow to fill and break cycles afterwards instead; with an
incrementally maintained order of channels filling layers is faster (docs/design/0007-virtual-lanes.md).

Guarantee: no cycle in any layer, for any complete forwarding tables. The number of layers is known only afterwards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import SERVICE_LEVELS, Tables
from weft.routing.engine import MOST_VLS
from weft.routing.graph import SwitchGraph
from weft.routing.kernels.layers import fill_layer, find_edges, path_hops


def set_layers(tables: Tables, graph: SwitchGraph, layer: NDArray[np.uint8], vls: int) -> None:
    """Write layers into the tables as service levels and lanes; with one layer, nothing."""
    if layer.any():
        tables.path_sl[:, graph.lid] = layer[:, graph.at]
        # Unused service levels map to some lane that the ports have.
        tables.sl2vl[:] = np.arange(SERVICE_LEVELS) % vls


def find_layers(graph: SwitchGraph, lft: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the layer of all paths between two switches, uint8[switch, switch]; MOST_VLS: too many."""
    n = graph.n_switches
    via = np.empty((len(graph.lid), n), np.int32)
    find_edges(graph.first, graph.port, graph.lid, graph.at, lft, via)
    first_to = np.searchsorted(graph.at, np.arange(n + 1))
    base = np.concatenate(([0], np.cumsum(np.diff(graph.first)[graph.far])))
    hops = np.zeros((n, n), np.int32)
    path_hops(graph.far, via, first_to, hops)
    pairs = _pairs_in_order(graph.hosts > 0, np.maximum(hops, hops.T))
    layer = np.zeros((n, n), np.uint8)
    for current in range(MOST_VLS):
        if not fill_layer(graph.first, graph.near, graph.far, graph.back, base, via, first_to, *pairs, layer, current):
            break
    return layer


def _pairs_in_order(
    has_hosts: NDArray[np.bool_], hops: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """Return the two switches of each pair, and whether its directions share a layer.

    Pairs with more hosts come first, and among them those farthest apart: the order that needs the fewest layers.
    """
    hosts = has_hosts[:, None].astype(np.int8) + has_hosts
    first, second = np.nonzero(np.triu(hosts > 0, 1) | ((hosts == 0) & ~np.eye(len(hosts), dtype=bool)))
    order = np.lexsort((-hops[first, second], -hosts[first, second]))
    first, second = first[order], second[order]
    return first.astype(np.int32), second.astype(np.int32), hosts[first, second] > 0


def fill_sl2vl(
    fabric: Fabric,
    tables: Tables,
    in_kind: NDArray[np.intp],
    out_kind: NDArray[np.intp],
    vls: NDArray[np.uint8],
) -> None:
    """Fill SL to VL of all switches by the kinds of the two ports: vls[in kind, out kind, sl]. Adapters stay on lane 0.

    A packet that a switch itself sends comes in by port 0.
    """
    for node in fabric.of_kind(NodeKind.SWITCH).tolist():
        ports = int(fabric.nodes.n_ports[node]) + 1
        slots = slice(int(fabric.first_port[node]), int(fabric.first_port[node]) + ports)
        rows = slice(int(tables.first_pair[node]), int(tables.first_pair[node]) + ports**2)
        tables.sl2vl[rows] = vls[in_kind[slots, None], out_kind[None, slots]].reshape(-1, SERVICE_LEVELS)
