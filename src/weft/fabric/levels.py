"""How far each node stands from the hosts: the tiers of a fat tree, read off the cabling.

    3   core     o   o           a switch's level is one more than that of its nearest neighbour below;
    2   spine   o o o o          leaves, the switches that hosts plug into, have level 1, hosts level 0.
    1   leaf    o o o o          In a torus or a dragonfly every switch with hosts is a leaf.
    0   hosts   ::::::::

Aggregation nodes sit inside their switch and do not make it a leaf.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric

NO_LEVEL = -1  # no host can be reached from here


def levels(fabric: Fabric) -> NDArray[np.int16]:
    """int16[node] -> level over network links; aggregation nodes share their switch's; NO_LEVEL off the network."""
    a, b = (end[fabric.network_links] for end in fabric.link_nodes)
    kind = fabric.nodes.kind
    level = np.full(len(kind), NO_LEVEL, np.int16)
    plugged = np.union1d(a, b)
    level[plugged[np.isin(kind[plugged], (NodeKind.HCA, NodeKind.ROUTER))]] = 0
    is_switch = kind == NodeKind.SWITCH
    spread(level, a, b, is_switch)
    for near, far in ((a, b), (b, a)):
        inside = kind[near] == NodeKind.AGGREGATION
        level[near[inside]] = level[far[inside]]
    return level


def spread(level: NDArray[np.int16], a: NDArray[np.int32], b: NDArray[np.int32], into: NDArray[np.bool_]) -> None:
    """Breadth first over links a-b, from the nodes that have a level to those of `into` that have none, in place."""
    here = 0
    while True:
        reached = np.concatenate((b[level[a] == here], a[level[b] == here]))
        reached = reached[(level[reached] == NO_LEVEL) & into[reached]]
        if not len(reached):
            return
        here += 1
        level[reached] = here


def islands(fabric: Fabric) -> list[NDArray[np.int32]]:
    """The nodes of each connected part of the network, largest first; nodes with no network link are left out."""
    a, b = (end[fabric.network_links] for end in fabric.link_nodes)
    label = components(len(fabric.nodes), a, b)
    plugged = np.union1d(a, b)
    names, inverse = np.unique(label[plugged], return_inverse=True)
    parts = [plugged[inverse == i].astype(np.int32) for i in range(len(names))]
    return sorted(parts, key=len, reverse=True)


def components(size: int, a: NDArray[np.integer], b: NDArray[np.integer]) -> NDArray[np.int64]:
    """[thing] -> the lowest of those that links a-b join it with."""
    label = np.arange(size)
    while not np.array_equal(label[a], label[b]):  # hook the higher root under the lower, then point all to their root
        low, high = np.minimum(label[a], label[b]), np.maximum(label[a], label[b])
        np.minimum.at(label, high, low)
        while not np.array_equal(label, root := label[label]):
            label = root
    return label
