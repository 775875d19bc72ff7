"""Programs by name: the collective as PyTorch, MPI or NCCL call it, the algorithm as NCCL_ALGO or MPI libraries do.

    program("all_reduce", "hierarchical", nodes=4, gpus=8)
    program("AllGather", "PAT", nodes=512)

With several GPUs in a node `ring` and `tree` are NCCL's: one ring for each rail, and chains inside the nodes with a
double binary tree on each rail between them. The others know no nodes, if not by their name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from weft.collectives.all_to_all import (
    bruck_all_to_all,
    hierarchical_all_to_all,
    linear_gather,
    linear_scatter,
    shift_send_recv,
)
from weft.collectives.hierarchical import (
    Inside,
    Parts,
    chain,
    direct,
    hierarchical_all_gather,
    hierarchical_all_reduce,
    hierarchical_reduce_scatter,
    rail_rings,
    two_levels,
)
from weft.collectives.kinds import Algorithm, Collective
from weft.collectives.kinds import collective as find
from weft.collectives.nvls import nvls, nvls_tree_all_reduce
from weft.collectives.pat import bruck_all_gather, pat_all_gather, pat_reduce_scatter
from weft.collectives.program import Program
from weft.collectives.recursive import (
    dissemination_barrier,
    doubling_all_gather,
    doubling_all_reduce,
    halving_doubling_all_reduce,
    halving_reduce_scatter,
    pairwise_all_to_all,
)
from weft.collectives.sharp import sharp
from weft.collectives.tree import double_tree_all_reduce, tree_broadcast, tree_reduce
from weft.errors import ConfigError, UnknownName

Writer = Callable[[int, int, int], Program]  # of nodes, GPUs in each, and the root


def program(collective: str, algorithm: str, *, nodes: int, gpus: int = 1, root: int = 0) -> Program:
    """The program of a collective by an algorithm; `algorithms` says which there are."""
    which = find(collective)
    writers = _WRITERS[which]
    wanted = {_bare(name): name for name in writers}.get(_bare(algorithm))
    if wanted is None:
        raise UnknownName(f"algorithm of {which}", algorithm, writers)
    if nodes < 1 or gpus < 1:
        raise ConfigError(f"{wanted} {which} on {nodes} nodes of {gpus} GPUs: give one or more of each")
    return replace(writers[wanted](nodes, gpus, root), gpus=gpus)


def algorithms(collective: str) -> tuple[str, ...]:
    """What `program` knows for a collective."""
    return tuple(_WRITERS[find(collective)])


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
    def made(nodes: int, gpus: int, _root: int) -> Program:
        if gpus > 1:
            raise ConfigError(f"PAT is for nodes with one GPU, not {gpus}: use ring or hierarchical")
        return write(nodes)

    return made


def _tree_all_reduce(nodes: int, gpus: int, _root: int) -> Program:
    outside = double_tree_all_reduce
    return two_levels("tree all-reduce", Collective.ALL_REDUCE, nodes, gpus, outside=outside, inside=chain)


_ALL_REDUCE, _ALL_GATHER, _REDUCE_SCATTER = Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER
_WRITERS: dict[Collective, dict[str, Writer]] = {
    _ALL_REDUCE: {
        Algorithm.RING: _rings(_ALL_REDUCE),
        Algorithm.TREE: _tree_all_reduce,
        Algorithm.COLLNET_DIRECT: _switches(_ALL_REDUCE, "CollNetDirect"),
        Algorithm.COLLNET_CHAIN: _switches(_ALL_REDUCE, "CollNetChain", inside=chain),
        Algorithm.NVLS: _levels(partial(nvls, _ALL_REDUCE)),
        Algorithm.NVLS_TREE: _levels(nvls_tree_all_reduce),
        "sharp": _switches(_ALL_REDUCE, "SHARP"),
        "hierarchical": _levels(hierarchical_all_reduce),
        "hierarchical-tree": _levels(partial(hierarchical_all_reduce, outside=double_tree_all_reduce)),
        "halving-doubling": _flat(halving_doubling_all_reduce),
        "recursive-doubling": _flat(doubling_all_reduce),
    },
    _ALL_GATHER: {
        Algorithm.RING: _rings(_ALL_GATHER),
        Algorithm.COLLNET_DIRECT: _switches(_ALL_GATHER, "CollNetDirect"),
        Algorithm.NVLS: _levels(partial(nvls, _ALL_GATHER)),
        Algorithm.PAT: _one_gpu(pat_all_gather),
        "sharp": _switches(_ALL_GATHER, "SHARP"),
        "hierarchical": _levels(hierarchical_all_gather),
        "recursive-doubling": _flat(doubling_all_gather),
        "bruck": _flat(bruck_all_gather),
    },
    _REDUCE_SCATTER: {
        Algorithm.RING: _rings(_REDUCE_SCATTER),
        Algorithm.COLLNET_DIRECT: _switches(_REDUCE_SCATTER, "CollNetDirect"),
        Algorithm.NVLS: _levels(partial(nvls, _REDUCE_SCATTER)),
        Algorithm.PAT: _one_gpu(pat_reduce_scatter),
        "sharp": _switches(_REDUCE_SCATTER, "SHARP"),
        "hierarchical": _levels(hierarchical_reduce_scatter),
        "recursive-halving": _flat(halving_reduce_scatter),
    },
    Collective.BROADCAST: {
        Algorithm.RING: _rings(Collective.BROADCAST),
        Algorithm.TREE: _flat_rooted(tree_broadcast),
    },
    Collective.REDUCE: {
        Algorithm.RING: _rings(Collective.REDUCE),
        Algorithm.TREE: _flat_rooted(tree_reduce),
    },
    Collective.ALL_TO_ALL: {
        "pairwise": _flat(pairwise_all_to_all),
        "bruck": _flat(bruck_all_to_all),
        "hierarchical": _levels(hierarchical_all_to_all),
    },
    Collective.GATHER: {"linear": _flat_rooted(linear_gather)},
    Collective.SCATTER: {"linear": _flat_rooted(linear_scatter)},
    Collective.SEND_RECV: {"shift": _flat(shift_send_recv)},
    Collective.BARRIER: {"dissemination": _flat(dissemination_barrier)},
}
