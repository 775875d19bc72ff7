"""Programs by name: the collective as PyTorch, MPI or NCCL call it, the algorithm as NCCL_ALGO or MPI libraries do.

    program("all_reduce", "hierarchical", nodes=4, gpus=8)
    program("AllGather", "PAT", nodes=512)

With several GPUs in a node `ring` and `tree` are NCCL's: one ring for each rail, and chains inside the nodes with a
double binary tree on each rail between them. Others ignore nodes, unless their name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from weft.collectives.kinds import Algorithm, Collective
from weft.collectives.kinds import collective as find
from weft.collectives.schedules.all_to_all import (
    bruck_all_to_all,
    hierarchical_all_to_all,
    linear_gather,
    linear_scatter,
    shift_send_recv,
)
from weft.collectives.schedules.folded import rabenseifner_all_reduce, rabenseifner_reduce
from weft.collectives.schedules.hierarchical import (
    Inside,
    Parts,
    chain,
    direct,
    direct_exchange,
    hierarchical_all_gather,
    hierarchical_all_reduce,
    hierarchical_reduce_scatter,
    rail_rings,
    two_levels,
)
from weft.collectives.schedules.knomial import binomial_broadcast, binomial_reduce, knomial_broadcast, knomial_reduce
from weft.collectives.schedules.nvls import nvls, nvls_tree_all_reduce
from weft.collectives.schedules.pat import bruck_all_gather, pat_all_gather, pat_reduce_scatter
from weft.collectives.schedules.program import Program
from weft.collectives.schedules.recursive import (
    dissemination_barrier,
    doubling_all_gather,
    doubling_all_reduce,
    halving_doubling_all_reduce,
    halving_reduce_scatter,
    pairwise_all_to_all,
)
from weft.collectives.schedules.sharp import sharp
from weft.collectives.schedules.tree import double_tree_all_reduce, tree_broadcast, tree_reduce
from weft.errors import ConfigError, UnknownName
from weft.plugins import Registry

Writer = Callable[[int, int, int], Program]  # (nodes, GPUs in each, root) -> program


def program(collective: str, algorithm: str, *, nodes: int, gpus: int = 1, root: int = 0) -> Program:
    """Return the program of a collective by one of its `algorithms`."""
    kind = find(collective)
    algorithm_name = {_bare(name): name for name in ALGORITHMS}.get(_bare(algorithm))
    if algorithm_name is None or kind not in ALGORITHMS[algorithm_name]:
        raise UnknownName(f"algorithm of {kind}", algorithm, algorithms(kind))
    if nodes < 1 or gpus < 1:
        raise ConfigError(f"{algorithm_name} {kind} on {nodes} nodes of {gpus} GPUs: give one or more of each")
    return replace(ALGORITHMS[algorithm_name][kind](nodes, gpus, root), gpus=gpus)


def algorithms(collective: str) -> Iterator[str]:
    """Yield the algorithms of a collective."""
    kind = find(collective)
    return (name for name, writers in ALGORITHMS.working().items() if kind in writers)


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _rings(kind: Collective) -> Writer:
    return lambda nodes, gpus, root: rail_rings(kind, nodes, gpus, root)


def _flat(write: Callable[[int], Program]) -> Writer:
    return lambda nodes, gpus, _root: write(nodes * gpus)


def _flat_rooted(write: Callable[..., Program]) -> Writer:
    return lambda nodes, gpus, root: write(nodes * gpus, root=root)


def _levels(write: Callable[[int, int], Program]) -> Writer:
    return lambda nodes, gpus, _root: write(nodes, gpus)


def _switches(kind: Collective, name: str, inside: Callable[[Parts], Inside] = direct) -> Writer:
    return lambda nodes, gpus, _root: sharp(kind, nodes, gpus, name=name, inside=inside)


def _one_gpu(write: Callable[[int], Program]) -> Writer:
    def write_flat(nodes: int, gpus: int, _root: int) -> Program:
        if gpus > 1:
            raise ConfigError(f"PAT is for nodes with one GPU, not {gpus}: use ring or hierarchical")
        return write(nodes)

    return write_flat


def _tree_all_reduce(nodes: int, gpus: int, _root: int) -> Program:
    outside = double_tree_all_reduce
    return two_levels("tree all-reduce", Collective.ALL_REDUCE, nodes, gpus, outside=outside, inside=chain)


_ALL_REDUCE, _ALL_GATHER, _REDUCE_SCATTER = Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER
_THREE = (_ALL_REDUCE, _ALL_GATHER, _REDUCE_SCATTER)
_OWN: dict[str, dict[str, Writer]] = {
    Algorithm.RING: {kind: _rings(kind) for kind in (*_THREE, Collective.BROADCAST, Collective.REDUCE)},
    Algorithm.TREE: {
        _ALL_REDUCE: _tree_all_reduce,
        Collective.BROADCAST: _flat_rooted(tree_broadcast),
        Collective.REDUCE: _flat_rooted(tree_reduce),
    },
    Algorithm.COLLNET_DIRECT: {kind: _switches(kind, "CollNetDirect") for kind in _THREE},
    Algorithm.COLLNET_CHAIN: {_ALL_REDUCE: _switches(_ALL_REDUCE, "CollNetChain", inside=chain)},
    Algorithm.NVLS: {kind: _levels(partial(nvls, kind)) for kind in _THREE},
    Algorithm.NVLS_TREE: {_ALL_REDUCE: _levels(nvls_tree_all_reduce)},
    Algorithm.PAT: {_ALL_GATHER: _one_gpu(pat_all_gather), _REDUCE_SCATTER: _one_gpu(pat_reduce_scatter)},
    "sharp": {kind: _switches(kind, "SHARP") for kind in _THREE},
    "pairwise": {Collective.ALL_TO_ALL: _flat(pairwise_all_to_all)},
    "direct": {kind: _flat(partial(direct_exchange, kind)) for kind in _THREE},
    "hierarchical": {
        _ALL_REDUCE: _levels(hierarchical_all_reduce),
        _ALL_GATHER: _levels(hierarchical_all_gather),
        _REDUCE_SCATTER: _levels(hierarchical_reduce_scatter),
        Collective.ALL_TO_ALL: _levels(hierarchical_all_to_all),
    },
    "hierarchical-tree": {_ALL_REDUCE: _levels(partial(hierarchical_all_reduce, outside=double_tree_all_reduce))},
    "halving-doubling": {_ALL_REDUCE: _flat(halving_doubling_all_reduce)},
    "recursive-doubling": {_ALL_REDUCE: _flat(doubling_all_reduce), _ALL_GATHER: _flat(doubling_all_gather)},
    "recursive-halving": {_REDUCE_SCATTER: _flat(halving_reduce_scatter)},
    "rabenseifner": {
        _ALL_REDUCE: _flat(rabenseifner_all_reduce),
        Collective.REDUCE: _flat_rooted(rabenseifner_reduce),
    },
    "binomial": {
        Collective.BROADCAST: _flat_rooted(binomial_broadcast),
        Collective.REDUCE: _flat_rooted(binomial_reduce),
    },
    "k-nomial": {
        Collective.BROADCAST: _flat_rooted(knomial_broadcast),
        Collective.REDUCE: _flat_rooted(knomial_reduce),
    },
    "bruck": {_ALL_GATHER: _flat(bruck_all_gather), Collective.ALL_TO_ALL: _flat(bruck_all_to_all)},
    "linear": {Collective.GATHER: _flat_rooted(linear_gather), Collective.SCATTER: _flat_rooted(linear_scatter)},
    "shift": {Collective.SEND_RECV: _flat(shift_send_recv)},
    "dissemination": {Collective.BARRIER: _flat(dissemination_barrier)},
}
ALGORITHMS: Registry[dict[str, Writer]] = Registry(
    "weft.collectives",
    _OWN,
    'a dict of functions of (nodes, gpus, root) that return programs: {"all_reduce": write}',
    lambda _, writers: (
        isinstance(writers, dict) and set(writers) <= set(Collective) and all(map(callable, writers.values()))
    ),
)
