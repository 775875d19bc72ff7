"""Which way is up: an order of the switches that makes up/down paths complete, and, in trees, shortest.

Up/down routing needs an acyclic direction for every link and one switch, the root, that everybody can climb to. The
usual root is a spine or core; then two leaves may only meet below that one root, and the rest of a fat tree's
bandwidth lies idle. Here the root of a tree is a **leaf**: climbing from any leaf towards another leaf's pod and
down again, through any spine or core of the right plane, is then still up first and down after:

        core   core   core         height by distance from the root leaf r:
       /  |     |  \\   |           r (top) > spines of its pod > cores and the other leaves of its pod
    spine spine    spine spine       > spines of other pods > their leaves
      |  X  |        |  X  |
      r    leaf    leaf  leaf      leaf -> spine -> core climbs, core -> spine -> leaf falls, everywhere.

What must still turn at the root is traffic between cores or between spines: management, and SHARP aggregation nodes.
So one virtual lane serves hosts and switches alike, all of them, which rank-based fat-tree routing cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.routing.graph import SwitchGraph
from weft.routing.kernels.orientation import sort_edges


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orientation:
    """The edges of a graph, sorted so that each switch's edges up stand before its edges down."""

    first: NDArray[np.int32]  # [switch + 1] -> first edge
    middle: NDArray[np.int32]  # [switch] -> first edge down
    near: NDArray[np.int32]  # [edge], as in the graph, in the new order
    far: NDArray[np.int32]
    port: NDArray[np.int32]
    from_top: NDArray[np.int32]  # the switches by falling height


def orient(graph: SwitchGraph, root: int) -> Orientation:
    """Up is towards the root: fewer hops to it, and among equals the lower index."""
    from_top, middle, near, far, port = sort_edges(graph.first, graph.far, graph.port, root)
    return Orientation(first=graph.first, middle=middle, near=near, far=far, port=port, from_top=from_top)


def hops_from(graph: SwitchGraph, root: int) -> NDArray[np.int32]:
    """[switch] -> hops to the root; unreached ones are farther than all."""
    hops = np.full(graph.n_switches, graph.n_switches, np.int32)
    hops[root] = 0
    here = 0
    while True:
        reached = graph.far[hops[graph.near] == here]
        reached = reached[hops[reached] > here + 1]
        if not len(reached):
            return hops
        here += 1
        hops[reached] = here


def default_root(graph: SwitchGraph) -> int:
    """In a tree a leaf with most links; where every switch has hosts, one in the middle."""
    leaves = np.flatnonzero(graph.hosts > 0)
    degree = np.diff(graph.first)
    if 0 < len(leaves) < graph.n_switches:
        return int(leaves[np.argmax(degree[leaves])])
    candidates = np.flatnonzero(degree == degree.max())[:16]
    return int(min(candidates, key=lambda switch: (int(hops_from(graph, int(switch)).sum()), switch)))


def kept_root(graph: SwitchGraph, root: int, *, links: int) -> int:
    """The root after a fault, which had so many links: itself, or in a tree that took one away the nearest full leaf.

    What hangs on a spine that the root has lost would stand below its own leaves: nobody could climb to it any more,
    and it would lie idle. Another leaf as root changes the ways to switches alone, and few of them.
    """
    degree, leaf = np.diff(graph.first), graph.hosts > 0
    if degree[root] >= links or leaf.all() or not leaf.any():
        return root
    full = np.flatnonzero(leaf & (degree == degree[leaf].max()))
    return int(full[np.argmin(hops_from(graph, root)[full])])
