"""How far each node stands from the hosts: the tiers of a fat tree, read off the cabling.

    3   core     o   o           a switch's level is one more than that of its nearest neighbour below;
    2   spine   o o o o          leaves, the switches that hosts plug into, have level 1, hosts level 0.
    1   leaf    o o o o          In a torus or a dragonfly every switch with hosts is a leaf.
    0   hosts   ::::::::

A leaf whose hosts are all gone is still a leaf: by distance alone it would stand above its spines, as a core does, but
a core joins spines of several pods, and no leaf reaches all of those. The same holds one level up for a spine that no
leaf is plugged into.

Aggregation nodes sit inside their switch and do not make it a leaf.
"""

from __future__ import annotations

from collections import defaultdict

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
    between = is_switch[a] & is_switch[b] & (a != b)
    _lower_bare(level, a[between], b[between])
    for near, far in ((a, b), (b, a)):
        inside = (kind[near] == NodeKind.AGGREGATION) & is_switch[far]
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


def _lower_bare(level: NDArray[np.int16], a: NDArray[np.int32], b: NDArray[np.int32]) -> None:
    """Switches that stand above others for want of hosts only take the level of their likes, in place.

    Such a switch is plugged into switches of one level alone, the one below it, and some switch below those reaches all
    of them, and hardly more: they are over half of its own. Without this a core left with one pod would be a leaf.
    The level that it is plugged into must be a tier, with half of those below plugged into it: an appendix is none. And
    what is plugged into one switch alone says nothing: leaf, spine and core of a tree of one pod may stand in a chain.
    """
    highest = np.full(len(level), NO_LEVEL, np.int16)
    for near, far in ((a, b), (b, a)):
        np.maximum.at(highest, near, level[far])
    is_tier = [2 * np.sum(highest[level == low] > low) >= np.sum(level == low) for low in range(level.max(initial=0))]
    bare = np.flatnonzero((level > 2) & (highest < level))
    joined: dict[int, set[int]] = defaultdict(set)
    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        joined[one].add(other)
        joined[other].add(one)
    found = level.tolist()
    for switch in bare.tolist():
        above, here = joined[switch], found[switch] - 2
        if len(above) > 1 and is_tier[here]:
            likes = [like for like in set.intersection(*map(joined.__getitem__, above)) if found[like] == here]
            if any(2 * len(above) > sum(found[far] > here for far in joined[like]) for like in likes):
                level[switch] = here


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
