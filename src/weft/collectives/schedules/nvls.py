"""NVLS: the NVSwitches of a node add and multicast.

    GPU 0 ──┐               ┌── GPU 0 reads part 0 of all through the switch, which adds them on the way
    GPU 1 ──┤ NVSwitch ─────┤
    GPU 2 ──┘               └── ... the nodes add up each part on its rail ...
    GPU 0 ── writes part 0 ── NVSwitch ──┬── to all

A GPU sends S to be added and S/g of the result, instead of 2 (g-1)/g S, and in half as many steps. Reducer `n_ranks` +
a stands for the NVSwitches of node a.

Between nodes NCCL has two ways: SHARP, or a double binary tree on the rail of each head (NVLSTree). Here every GPU is
a head; NCCL takes those which have an adapter of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.schedules.channels import Stage
from weft.collectives.schedules.hierarchical import Inside, Parts, two_levels
from weft.collectives.schedules.program import Program, Sends
from weft.collectives.schedules.sharp import ALONE
from weft.collectives.schedules.tree import double_tree_all_reduce
from weft.errors import ConfigError


def switched(parts: Parts) -> Inside:
    """Return an exchange over one reducer in each node, its NVSwitches."""
    g, n_chunks = parts.gpus, parts.n * parts.gpus
    rank = np.arange(parts.n_nodes * g)
    switch = len(rank) + rank // g
    own = rank % g * parts.begin

    def scatter(number: int) -> Sends:
        if number == 0:
            return Sends.make(rank, switch, 0, n=n_chunks, add=True)
        return Sends.make(switch, rank, own, n=parts.n, stride=parts.stride, add=False)

    def gather(number: int) -> Sends:
        if number == 0:
            return Sends.make(rank, switch, own, n=parts.n, stride=parts.stride, add=False)
        return Sends.make(switch, rank, 0, n=n_chunks, add=False)

    scattered, gathered = (Stage(runs=(1, 1), make_round=make) for make in (scatter, gather))
    return Inside(scatter=scattered, gather=gathered, n_reducers=parts.n_nodes)


def nvls(collective: Collective, n_nodes: int, gpus: int) -> Program:
    """Return an all-reduce, all-gather or reduce-scatter by NVLS; between nodes with SHARP on each rail, as NCCL."""
    return _over_nvswitches("NVLS", collective, n_nodes, gpus, outside=ALONE[collective])


def nvls_tree_all_reduce(n_nodes: int, gpus: int, slices: int = 8) -> Program:
    """Return an all-reduce by NVLS, with a double binary tree on the rail of each GPU."""
    if n_nodes < 2:
        raise ConfigError("NVLSTree is for two nodes or more: use nvls for one")
    tree = partial(double_tree_all_reduce, slices=slices)
    return _over_nvswitches("NVLSTree", Collective.ALL_REDUCE, n_nodes, gpus, outside=tree)


def _over_nvswitches(
    name: str, collective: Collective, n_nodes: int, gpus: int, *, outside: Callable[[int], Program]
) -> Program:
    if gpus < 2:
        raise ConfigError(f"{name} adds in the NVSwitches of a node, and {gpus} GPU has none: use a ring")
    title = f"{name} {collective.replace('_', '-')}"
    return two_levels(title, collective, n_nodes, gpus, outside=outside, inside=switched)
