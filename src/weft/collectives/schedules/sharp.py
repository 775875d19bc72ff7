r"""SHARP: the switches between the nodes add (Graham and others, 2016).

           6            up: every node sends its buffer to its switch, which adds and passes on one sum;
         /   \          down: the sum comes back the same way, copied at every switch
        4     5
       / \   / \        each node sends S and receives S, however many there are, in as many hops as the tree is high
      0   1 2   3

An aggregation tree is an array: [node, then switch] -> the switch above it, -1 for the one at the top. Node i is
rank i, and switch k is the reducer `n_ranks` + k. With several GPUs in a node there is a tree on each rail, and inside
the node what `hierarchical` does: directly (NCCL's CollNetDirect), along a chain (CollNetChain) or over NVSwitches
(`nvls`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.collectives.kinds import Collective
from weft.collectives.schedules.hierarchical import Inside, Parts, direct, two_levels
from weft.collectives.schedules.program import Program, Sends
from weft.collectives.schedules.tree import Tree, levels
from weft.errors import ConfigError

RADIX = 32  # nodes under a leaf of a switch with 64 ports that is not blocking


def aggregation_tree(n_nodes: int, radix: int = RADIX) -> NDArray[np.int64]:
    """Return a tree in which up to `radix` neighbours share a switch, level by level, up to one switch."""
    if radix < 2 or n_nodes < 1:
        raise ConfigError(
            f"an aggregation tree of {n_nodes} nodes, {radix} under a switch: give a node and a 2 at least"
        )
    parents: list[NDArray[np.int64]] = []
    begin, width = 0, n_nodes
    while width > 1 or not parents:
        parents.append(begin + width + np.arange(width) // radix)
        begin, width = begin + width, -(-width // radix)
    return np.concatenate([*parents, [-1]])


def sharp_all_reduce(n_ranks: int, parents: ArrayLike | None = None, slices: int = 8) -> Program:
    """Return an all-reduce by SHARP, slice after slice, with one rank for each node."""
    above = _tree(n_ranks, parents)
    tree = Tree(above, 0, slices)

    def make_round(number: int) -> Sends:
        return Sends.join([tree.up(number), tree.down(number - tree.top)])

    runs, n_reducers = (1,) * (slices + tree.top + tree.bottom - 1), len(above) - n_ranks
    return Program.of(
        "SHARP all-reduce", Collective.ALL_REDUCE, n_ranks, runs, make_round, n_chunks=slices, n_reducers=n_reducers
    )


def sharp_reduce_scatter(n_ranks: int, parents: ArrayLike | None = None) -> Program:
    """Return a reduce-scatter by SHARP: all parts go up, and each goes down only to its rank."""
    above = _tree(n_ranks, parents)
    height, depth = levels(above)
    top, way = int(height.max()), _paths_down(above, n_ranks)

    def make_round(number: int) -> Sends:
        if number < top:
            child = np.flatnonzero(height == number)
            return Sends.make(child, above[child], 0, n=n_ranks, add=True)
        src, dst = way[number - top], way[number - top + 1]
        node = np.flatnonzero(dst >= 0)
        return Sends.make(src[node], dst[node], node, add=False)

    runs, n_reducers = (1,) * (top + int(depth.max())), len(above) - n_ranks
    return Program.of(
        "SHARP reduce-scatter", Collective.REDUCE_SCATTER, n_ranks, runs, make_round, n_reducers=n_reducers
    )


def sharp_all_gather(n_ranks: int, parents: ArrayLike | None = None) -> Program:
    """Return an all-gather by SHARP: each part goes up alone, and all go down to all ranks."""
    above = _tree(n_ranks, parents)
    depth = levels(above)[1]
    bottom, way = int(depth.max()), _paths_down(above, n_ranks)

    def make_round(number: int) -> Sends:
        if number < bottom:
            src, dst = way[bottom - number], way[bottom - number - 1]
            node = np.flatnonzero(src >= 0)
            return Sends.make(src[node], dst[node], node, add=False)
        child = np.flatnonzero(depth == number - bottom + 1)
        return Sends.make(above[child], child, 0, n=n_ranks, add=False)

    runs, n_reducers = (1,) * (2 * bottom), len(above) - n_ranks
    return Program.of("SHARP all-gather", Collective.ALL_GATHER, n_ranks, runs, make_round, n_reducers=n_reducers)


# One rank for each node, on the default tree or a given one.
ALONE: dict[Collective, Callable[..., Program]] = {
    Collective.ALL_REDUCE: sharp_all_reduce,
    Collective.REDUCE_SCATTER: sharp_reduce_scatter,
    Collective.ALL_GATHER: sharp_all_gather,
}


def sharp(
    collective: Collective,
    n_nodes: int,
    gpus: int = 1,
    *,
    parents: ArrayLike | None = None,
    inside: Callable[[Parts], Inside] = direct,
    name: str = "SHARP",
) -> Program:
    """Return a collective with a tree of switches on each rail; `parents` is the tree of one rail.

    Switch k of rail r is the reducer `n_ranks` + (those inside the nodes) + r * (switches of a rail) + k.
    """
    if n_nodes < 2:
        raise ConfigError(f"{name} adds in the switches between nodes, and there is one node: use nvls or a ring")
    title = f"{name} {collective.replace('_', '-')}"
    alone = ALONE[collective]
    return two_levels(title, collective, n_nodes, gpus, outside=lambda n: alone(n, parents), inside=inside)


def _tree(n_ranks: int, parents: ArrayLike | None) -> NDArray[np.int64]:
    """Return the tree. Raise ConfigError unless every node is under a switch, and all under one."""
    above = aggregation_tree(n_ranks) if parents is None else np.asarray(parents, np.int64)
    if len(above) <= n_ranks or (above[:n_ranks] < n_ranks).any() or (above >= len(above)).any():
        raise ConfigError(
            f"an aggregation tree of {n_ranks} nodes has {len(above)} rows: it gives the switch above each node, and "
            f"then above each switch, from {n_ranks} on"
        )
    switches = above[n_ranks:]
    if (switches < 0).sum() != 1 or ((switches >= 0) & (switches < n_ranks)).any():
        raise ConfigError(f"an aggregation tree has one switch at the top, marked -1, not {int((switches < 0).sum())}")
    reached = above
    for _ in range(len(switches)):
        reached = np.where(reached >= 0, above[reached], -1)
    if (lost := np.flatnonzero(reached >= 0)).size:
        raise ConfigError(f"an aggregation tree goes in circles above {lost[0]}")
    return above


def _paths_down(above: NDArray[np.int64], n_ranks: int) -> NDArray[np.int64]:
    """Return the switches on the path from the top to each node as [depth, node]; -1 below the node."""
    depth = levels(above)[1][:n_ranks]
    way = np.full((int(depth.max()) + 1, n_ranks), -1, np.int64)
    at, node = np.arange(n_ranks), np.arange(n_ranks)
    for step in range(len(way)):
        still = depth >= step
        way[depth[still] - step, node[still]] = at[still]
        at = np.where(still, above[at], -1)
    return way
