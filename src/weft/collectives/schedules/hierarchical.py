"""Collectives in two levels: NVLink inside the nodes, and one ring, tree or switch on each rail between them.

    node 0   a0 b0 ──┐ each GPU sends every other of its node the part that is its own, which adds it up
             a1 b1 ──┘
                │  │   on the rail of GPU 0 the nodes reduce `a` alone, on the rail of GPU 1 `b`
    node 1   a0 b0
             a1 b1     and then each GPU tells its part to the others of its node

An all-reduce of S bytes on n nodes of g GPUs sends 2 (g-1)/g S from each GPU over NVLink, and 2 (n-1)/n S/g over its
rail: all rails are used, each for 1/g of the buffer. Rank = node * g + GPU; rail r joins the GPUs r of all nodes.

NCCL's own rings and trees are of the same kind: a ring takes in all GPUs of a node before it goes on to the next, one
ring for each rail; a tree is a chain through the GPUs of a node, and a double binary tree on each rail. NCCL cuts the
buffer into slices that follow each other through all stages; here a GPU sends its part inside the node in one piece,
so that the times inside and between the nodes add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.schedules.channels import WOVEN, Channel, Stage, one_after_another, side_by_side
from weft.collectives.schedules.program import Program, Sends
from weft.collectives.schedules.ring import (
    chain_broadcast,
    chain_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from weft.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of the buffer that the GPUs of a node own: `n` chunks, `stride` apart."""

    n_nodes: int
    gpus: int
    n: int
    woven: bool

    @property
    def stride(self) -> int:
        return self.gpus if self.woven else 1

    @property
    def begin(self) -> int:
        """Return the distance between the begins of two GPUs' parts."""
        return 1 if self.woven else self.n


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inside:
    """The exchange inside each node: parts are reduced, each at its GPU, and sent to all."""

    scatter: Stage
    gather: Stage
    n_reducers: int = 0


def direct(parts: Parts) -> Inside:
    """Return an exchange in which each GPU sends to every other at once, as NVSwitches allow."""
    g = parts.gpus
    rank = np.repeat(np.arange(parts.n_nodes * g), g - 1)
    own = rank % g
    other = (own + np.tile(np.arange(1, g), parts.n_nodes * g)) % g
    peer = rank - own + other

    def scatter(_number: int) -> Sends:
        return Sends.make(rank, peer, other * parts.begin, n=parts.n, stride=parts.stride, add=True)

    def gather(_number: int) -> Sends:
        return Sends.make(rank, peer, own * parts.begin, n=parts.n, stride=parts.stride, add=False)

    return Inside(scatter=Stage(runs=(1,), make_round=scatter), gather=Stage(runs=(1,), make_round=gather))


def chain(parts: Parts) -> Inside:
    """Return an exchange in which each GPU sends to the next: a part passes all, and ends at its own GPU."""
    g = parts.gpus
    rank = np.arange(parts.n_nodes * g)
    own = rank % g
    peer = rank - own + (own + 1) % g

    def scatter(number: int) -> Sends:
        part = (own - number - 1) % g
        return Sends.make(rank, peer, part * parts.begin, n=parts.n, stride=parts.stride, add=True)

    def gather(number: int) -> Sends:
        part = (own - number) % g
        return Sends.make(rank, peer, part * parts.begin, n=parts.n, stride=parts.stride, add=False)

    return Inside(scatter=Stage(runs=(g - 1,), make_round=scatter), gather=Stage(runs=(g - 1,), make_round=gather))


def two_levels(
    name: str,
    collective: Collective,
    n_nodes: int,
    gpus: int,
    *,
    outside: Callable[[int], Program],
    inside: Callable[[Parts], Inside] = direct,
) -> Program:
    """Combine the exchange inside nodes with `outside`, the program of each rail for the same collective.

    Reducers are numbered from the last rank on: first those inside, node by node, then those outside, rail by rail.
    """
    if n_nodes < 1 or gpus < 1:
        raise ConfigError(f"{name} on {n_nodes} nodes of {gpus} GPUs: there is one or more of each")
    rail = outside(n_nodes) if n_nodes > 1 else None
    n_parts = rail.n_chunks if rail else 1
    within = inside(Parts(n_nodes=n_nodes, gpus=gpus, n=n_parts, woven=collective in WOVEN)) if gpus > 1 else None
    n_inside = within.n_reducers if within else 0
    stages = [within.scatter] if within and collective is not Collective.ALL_GATHER else []
    if rail:
        stages.append(side_by_side([_on_rail(rail, number, gpus, n_inside) for number in range(gpus)]))
    if within and collective is not Collective.REDUCE_SCATTER:
        stages.append(within.gather)
    whole = one_after_another(stages)
    return Program.of(
        name,
        collective,
        n_nodes * gpus,
        whole.runs,
        whole.make_round,
        n_chunks=n_parts * gpus,
        n_reducers=n_inside + (rail.n_reducers * gpus if rail else 0),
        gpus=gpus,
        aggregated=rail.aggregated if rail else False,
    )


def _on_rail(rail: Program, number: int, gpus: int, n_inside: int) -> Channel:
    first_reducer = rail.n_ranks * gpus + n_inside + number * rail.n_reducers
    reducers = first_reducer + np.arange(rail.n_reducers)
    return Channel(program=rail, ranks=np.concatenate((np.arange(rail.n_ranks) * gpus + number, reducers)))


def hierarchical_all_reduce(n_nodes: int, gpus: int, *, outside: Callable[[int], Program] = ring_all_reduce) -> Program:
    """Return a hierarchical all-reduce."""
    return two_levels("hierarchical all-reduce", Collective.ALL_REDUCE, n_nodes, gpus, outside=outside)


def hierarchical_reduce_scatter(n_nodes: int, gpus: int) -> Program:
    """Return a hierarchical reduce-scatter."""
    outside = ring_reduce_scatter
    return two_levels("hierarchical reduce-scatter", Collective.REDUCE_SCATTER, n_nodes, gpus, outside=outside)


def hierarchical_all_gather(n_nodes: int, gpus: int) -> Program:
    """Return a hierarchical all-gather."""
    return two_levels("hierarchical all-gather", Collective.ALL_GATHER, n_nodes, gpus, outside=ring_all_gather)


def direct_exchange(collective: Collective, n_ranks: int) -> Program:
    """Return a direct exchange: each rank sends every other its part, and then the sum of its own."""
    name = f"direct {collective.replace('_', '-')}"
    return replace(two_levels(name, collective, 1, n_ranks, outside=ring_all_reduce), gpus=1)  # it knows no nodes


def rail_rings(collective: Collective, n_nodes: int, gpus: int, root: int = 0, slices: int = 8) -> Program:
    """Return a ring for each rail, as NCCL builds them: each enters and leaves a node once, by different rails.

    Every other node is passed through backwards, so that a cable joins GPUs of one rail (NCCL_CROSS_NIC=2); with an
    odd number of nodes the ring closes across two rails.
    """
    channels = [_ring(collective, _round_trip(n_nodes, gpus, first), root, slices) for first in range(gpus)]
    whole = side_by_side(channels)
    ring = channels[0].program
    return replace(ring, n_chunks=ring.n_chunks * gpus, make_round=whole.make_round, root=root, gpus=gpus)


def _round_trip(n_nodes: int, gpus: int, first: int) -> list[int]:
    """Return all ranks in the order of a ring that enters the first node at this GPU."""
    within = (np.arange(gpus) + first) % gpus
    node = np.arange(n_nodes)[:, None]
    order: list[int] = (node * gpus + np.where(node % 2, within[::-1], within)).ravel().tolist()
    return order


def _ring(collective: Collective, order: list[int], root: int, slices: int) -> Channel:
    n_ranks = len(order)
    if not 0 <= root < n_ranks:
        raise ConfigError(f"root {root} of a {collective} is not from 0 to {n_ranks - 1}")
    if collective in _RINGS:
        return Channel(program=_RINGS[collective](n_ranks, order), ranks=np.arange(n_ranks))
    return Channel(program=_CHAINS[collective](n_ranks, slices, order.index(root)), ranks=np.array(order))


_RINGS: dict[Collective, Callable[[int, list[int]], Program]] = {
    Collective.ALL_REDUCE: ring_all_reduce,
    Collective.ALL_GATHER: ring_all_gather,
    Collective.REDUCE_SCATTER: ring_reduce_scatter,
}
_CHAINS: dict[Collective, Callable[[int, int, int], Program]] = {
    Collective.BROADCAST: chain_broadcast,
    Collective.REDUCE: chain_reduce,
}
