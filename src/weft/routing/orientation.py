"""The orientation of links: an order of the switches that makes up/down paths complete and, in trees, shortest.

Up/down routing needs an acyclic direction for every link and one switch, the root, that all others can climb to. The
usual root is a spine or core; then two leaves may only meet below that one root, and the rest of a fat tree's
bandwidth is unused. Here the root of a tree is a **leaf**: climbing from any leaf towards another leaf's pod and
down again, through any spine or core of the right plane, is then still up first and down after:

        core   core   core         height by distance from the root leaf r:
       /  |     |  \\   |           r (top) > spines of its pod > cores and the other leaves of its pod
    spine spine    spine spine       > spines of other pods > their leaves
      |  X  |        |  X  |
      r    leaf    leaf  leaf      leaf -> spine -> core climbs, core -> spine -> leaf falls, everywhere.

Only traffic between cores or between spines must turn at the root: management, and SHARP aggregation nodes.
So one virtual lane serves all hosts and switches, which rank-based fat-tree routing cannot do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.routing.graph import SwitchGraph
from weft.routing.kernels.orientation import sort_edges


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orientation:
    """The edges of a graph, sorted so that the edges up of each switch come before its edges down."""

    first: NDArray[np.int32]  # [switch + 1] -> first edge
    middle: NDArray[np.int32]  # [switch] -> first edge down
    near: NDArray[np.int32]  # [edge], as in the graph, in the new order
    far: NDArray[np.int32]
    port: NDArray[np.int32]
    far_port: NDArray[np.int32]  # [edge] -> port number that it enters by
    from_top: NDArray[np.int32]  # the switches from highest to lowest


def orient(graph: SwitchGraph, root: int) -> Orientation:
    """Orient the edges towards the root: up means fewer hops to it, and among equals the lower index."""
    from_top, middle, near, far, port, far_port = sort_edges(graph.first, graph.far, graph.port, graph.back, root)
    return Orientation(
        first=graph.first, middle=middle, near=near, far=far, port=port, far_port=far_port, from_top=from_top
    )


def hops_from(graph: SwitchGraph, root: int) -> NDArray[np.int32]:
    """Return the hops from each switch to the root; unreachable switches are farther than all others."""
    hops = np.full(graph.n_switches, graph.n_switches, np.int32)
    hops[root] = 0
    distance = 0
    while True:
        reached = graph.far[hops[graph.near] == distance]
        reached = reached[hops[reached] > distance + 1]
        if not len(reached):
            return hops
        distance += 1
        hops[reached] = distance


def default_root(graph: SwitchGraph) -> int:
    """Return the default root: in a tree a leaf with most links; if every switch has hosts, a central one."""
    leaves = np.flatnonzero(graph.hosts > 0)
    degree = np.diff(graph.first)
    if 0 < len(leaves) < graph.n_switches:
        return int(leaves[np.argmax(degree[leaves])])
    candidates = np.flatnonzero(degree == degree.max())[:16]
    return int(min(candidates, key=lambda switch: (int(hops_from(graph, int(switch)).sum()), switch)))


def surviving_root(graph: SwitchGraph, root: int, *, links: int) -> int:
    """Return the root after a fault: the old one, or in a tree that took one of its `links`, the nearest complete leaf.

    A spine that the root has lost would be ordered below its own leaves: no path could climb to it, and it would be
    unused. Another leaf as root changes only the paths to switches, and few of them.
    """
    degree, leaf = np.diff(graph.first), graph.hosts > 0
    if degree[root] >= links or leaf.all() or not leaf.any():
        return root
    full = np.flatnonzero(leaf & (degree == degree[leaf].max()))
    return int(full[np.argmin(hops_from(graph, root)[full])])
