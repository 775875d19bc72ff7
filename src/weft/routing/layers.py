"""Virtual lanes by layers: paths that would wait for each other in a circle go to different lanes.

    layer 0    a -> b -> c -> d            the paths that came first: whoever holds a waits for b, ...
    layer 1                   d -> a       this one would have closed the circle

Every path goes to the first layer where the channel dependencies (Dally and Seitz 1987) close no circle with it, and
stays there all the way: the layer is its service level, and every port maps service level n to lane n. So LASH fills
its layers (Skeie, Lysne and Theiss, "Layered shortest path (LASH) routing in irregular system area networks", 2002).
DFSSSP's authors found it slow and rather break circles afterwards; with an order that is kept up to date it is the
faster way, and takes fewer lanes (docs/design/0007-virtual-lanes.md has the figures).

Guarantee: no circle in any layer, for whatever complete forwarding tables. How many layers that takes is known only
afterwards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import SERVICE_LEVELS, Tables
from weft.routing.engine import MOST_VLS, Options, Subnet, require_vls
from weft.routing.graph import SwitchGraph
from weft.routing.kernels.layers import fill_layer, find_edges


def spread_over_vls(subnet: Subnet, options: Options, tables: Tables, engine: str) -> None:
    """Give every path of complete forwarding tables a service level, so that none can deadlock. One is left unsaid."""
    layer = find_layers(subnet.graph, tables.lft)
    needed = int(layer.max(initial=0)) + 1
    require_vls(subnet, options, engine, needed, ", or allow more lanes")
    if needed > 1:
        tables.path_sl[:, subnet.graph.lid] = layer.T
        # A service level that no path has maps to some lane that the ports have.
        tables.sl2vl[:] = np.arange(SERVICE_LEVELS) % options.max_vls


def find_layers(graph: SwitchGraph, lft: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8[destination, switch] -> layer of the path from there; MOST_VLS means that there are not enough."""
    via = np.empty((len(graph.lid), graph.n_switches), np.int32)
    find_edges(graph.first, graph.port, graph.lid, graph.at, lft, via)
    degree = np.diff(graph.first)
    base = np.concatenate(([0], np.cumsum(degree[graph.far])))
    layer = np.zeros(via.shape, np.uint8)
    for current in range(MOST_VLS):
        if not fill_layer(graph.first, graph.near, graph.far, graph.back, base, via, layer, current):
            break
    return layer


def fill_sl2vl(
    fabric: Fabric,
    tables: Tables,
    in_kind: NDArray[np.intp],
    out_kind: NDArray[np.intp],
    vls: NDArray[np.uint8],
) -> None:
    """SL to VL of all switches by the kinds of the two ports: vls[in kind, out kind, sl]. Adapters stay on lane 0.

    A packet that a switch sends itself comes in by port 0.
    """
    for node in fabric.of_kind(NodeKind.SWITCH).tolist():
        ports = int(fabric.nodes.n_ports[node]) + 1
        slots = slice(int(fabric.first_port[node]), int(fabric.first_port[node]) + ports)
        rows = slice(int(tables.first_pair[node]), int(tables.first_pair[node]) + ports**2)
        tables.sl2vl[rows] = vls[in_kind[slots, None], out_kind[None, slots]].reshape(-1, SERVICE_LEVELS)
