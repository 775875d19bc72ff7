"""The level of each node above the hosts: the tiers of a fat tree, derived from the cabling.

    3   core     o   o           a switch's level is one more than that of its nearest neighbour below;
    2   spine   o o o o          leaves, the switches that hosts plug into, have level 1, hosts level 0.
    1   leaf    o o o o          In a torus or a dragonfly every switch with hosts is a leaf.
    0   hosts   ::::::::

A leaf that has lost all its hosts is still a leaf: by distance alone it would be above its spines, as a core is, but a
core joins spines of several pods, and no leaf reaches all of those. The same holds one level up for a spine without
leaves.

Aggregation nodes are inside their switch and do not make it a leaf; nor do routers, which may be cabled to any tier.
"""

from __future__ import annotations

from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric

NO_LEVEL = -1  # no host can be reached from here
_KNOWN: WeakKeyDictionary[Fabric, NDArray[np.int16]] = WeakKeyDictionary()  # the cabling of a fabric never changes
_NODES = np.int64(1 << 32)  # more than a fabric has, so that two nodes fit into one number


def levels(fabric: Fabric) -> NDArray[np.int16]:
    """Return the level of each node over network links, its switch's for aggregation nodes; NO_LEVEL for others."""
    if fabric not in _KNOWN:
        _KNOWN[fabric] = _find_levels(fabric)
    return _KNOWN[fabric]


def keep_levels(fabric: Fabric, same: Fabric) -> Fabric:
    """Return a fabric whose links have the ends of another's, with its levels if they are known."""
    if fabric in _KNOWN:
        _KNOWN[same] = _KNOWN[fabric]
    return same


def _find_levels(fabric: Fabric) -> NDArray[np.int16]:
    a, b = (end[fabric.network_links] for end in fabric.link_nodes)
    kind = fabric.nodes.kind
    level = np.full(len(kind), NO_LEVEL, np.int16)
    plugged = np.zeros(len(kind), np.bool_)
    plugged[a] = plugged[b] = True
    level[plugged & (kind == NodeKind.HCA)] = 0
    is_switch = kind == NodeKind.SWITCH
    spread(level, a, b, is_switch)
    between = is_switch[a] & is_switch[b] & (a != b)
    _lower_bare(level, a[between], b[between])
    for near, far in ((a, b), (b, a)):
        inside = (kind[near] == NodeKind.AGGREGATION) & is_switch[far]
        level[near[inside]] = level[far[inside]]
    level[plugged & (kind == NodeKind.ROUTER)] = 0
    level.setflags(write=False)
    return level


def spread(level: NDArray[np.int16], a: NDArray[np.int32], b: NDArray[np.int32], into: NDArray[np.bool_]) -> None:
    """Spread levels breadth first over links a-b, in place, to the nodes of `into` that have none."""
    current = 0
    while True:
        reached = np.concatenate((b[level[a] == current], a[level[b] == current]))
        reached = reached[(level[reached] == NO_LEVEL) & into[reached]]
        if not len(reached):
            return
        current += 1
        level[reached] = current


def _lower_bare(level: NDArray[np.int16], a: NDArray[np.int32], b: NDArray[np.int32]) -> None:
    """Lower switches that are too high only for lack of hosts to the level of their kind, in place.

    Such a switch is connected only to switches of one level, the one below it, and some switch below those reaches all
    of them and few others: they are over half of its own. Without this rule a core left with one pod would become a
    leaf. The level that it is connected to must be a tier, with half of the switches below connected to it; an appendix
    is not a tier. A switch with a single neighbour is not lowered: leaf, spine and core of a one-pod tree may form a
    chain.
    """
    highest = np.full(len(level), NO_LEVEL, np.int16)
    for near, far in ((a, b), (b, a)):
        np.maximum.at(highest, near, level[far])
    is_tier = [2 * np.sum(highest[level == low] > low) >= np.sum(level == low) for low in range(level.max(initial=0))]
    bare = np.flatnonzero((level > 2) & (highest < level))
    if not len(bare):
        return
    near, far = np.divmod(np.sort(np.concatenate((a * _NODES + b, b * _NODES + a), dtype=np.int64)), _NODES)
    edges, ends = np.searchsorted(near, np.arange(len(level) + 1)).tolist(), far.tolist()
    joined = cache(lambda switch: frozenset(ends[edges[switch] : edges[switch + 1]]))
    current = level.tolist()
    for switch in bare.tolist():
        above, lowered = joined(switch), current[switch] - 2
        if len(above) > 1 and is_tier[lowered]:
            peers = [peer for peer in frozenset.intersection(*map(joined, above)) if current[peer] == lowered]
            if any(2 * len(above) > sum(current[far] > lowered for far in joined(peer)) for peer in peers):
                level[switch] = lowered


def islands(fabric: Fabric) -> list[NDArray[np.int32]]:
    """Return the nodes of each connected part of the network, largest first; other nodes are omitted."""
    a, b = (end[fabric.network_links] for end in fabric.link_nodes)
    label = components(len(fabric.nodes), a, b)
    plugged = np.union1d(a, b)
    names, inverse = np.unique(label[plugged], return_inverse=True)
    parts = [plugged[inverse == i].astype(np.int32) for i in range(len(names))]
    return sorted(parts, key=len, reverse=True)


def components(size: int, a: NDArray[np.integer], b: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the lowest index in each element's component, over links a-b."""
    label = np.arange(size)
    while not np.array_equal(label[a], label[b]):  # hook the higher root under the lower, then point all to their root
        low, high = np.minimum(label[a], label[b]), np.maximum(label[a], label[b])
        np.minimum.at(label, high, low)
        while not np.array_equal(label, root := label[label]):
            label = root
    return label
