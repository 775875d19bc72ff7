"""PAT and Bruck: all-gather and reduce-scatter of any number of ranks in log2(n) rounds.

    Bruck (1997), near first      PAT (Jeaugey, 2025), far first       what rank 0 of 8 has of ranks
    0 1                           0 4                                  after a round
    0 1 2 3                       0 2 4 6
    0 1 2 3 4 5 6 7               0 1 2 3 4 5 6 7

Both tell rank r - d, r - 2 d ... of everything: all ranks are roots of binomial trees of the same form, each moved on
by one. Near first sends half of the buffer to the far end of the machine; far first sends one part there, and half of
the buffer to the neighbour. A reduce-scatter is the same backwards.

A message carries the parts of as many trees as a buffer has room for (`most` parts). With less room than for all, PAT
does the far rounds together, and then walks through what is left of the trees, one edge after the other: depth first
with all-gather, from the last one backwards with reduce-scatter. Peers, parts and their order are those of NCCL's
`PatAGAlgorithm` and `PatRSAlgorithm`. NCCL takes `most` from the size of its buffers and cuts what does not fit into
several messages, and it repeats all for each piece of a large buffer.
"""

from __future__ import annotations

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError


def bruck_all_gather(n_ranks: int) -> Program:
    """Return Bruck's all-gather: every round doubles the number of neighbours whose parts a rank has."""

    def make_round(number: int) -> Sends:
        distance = 1 << number
        return _tell(n_ranks, distance, 0, min(distance, n_ranks - distance), 1)

    n_rounds = (n_ranks - 1).bit_length()
    return Program.of("Bruck all-gather", Collective.ALL_GATHER, n_ranks, (1,) * n_rounds, make_round, aggregated=True)


def pat_all_gather(n_ranks: int, most: int | None = None) -> Program:
    """Return an all-gather by PAT, with up to `most` parts in a message."""
    step = _step(n_ranks, most)
    edges = _far(n_ranks, step) + [(node, step) for node in _depth_first(step)[1:] if node < n_ranks]

    def make_round(number: int) -> Sends:
        return _edge(n_ranks, *edges[number])

    return Program.of("PAT all-gather", Collective.ALL_GATHER, n_ranks, (1,) * len(edges), make_round, aggregated=True)


def pat_reduce_scatter(n_ranks: int, most: int | None = None) -> Program:
    """Return a reduce-scatter by PAT, with up to `most` parts in a message."""
    step = _step(n_ranks, most)
    edges = [(node, step) for node in range(min(step, n_ranks) - 1, 0, -1)] + _far(n_ranks, step)[::-1]

    def make_round(number: int) -> Sends:
        sends = _edge(n_ranks, *edges[number])
        return Sends.make(sends.dst, sends.src, sends.src_chunk, n=sends.n_chunks, stride=sends.stride, add=True)

    runs = (1,) * len(edges)
    return Program.of("PAT reduce-scatter", Collective.REDUCE_SCATTER, n_ranks, runs, make_round, aggregated=True)


def _step(n_ranks: int, most: int | None) -> int:
    """Return the distance of ranks whose parts share a message after the far rounds: a power of two."""
    if most is not None and most < 1:
        raise ConfigError(f"PAT with {most} parts in a message: give one or more")
    bits = (n_ranks - 1).bit_length()
    return 1 if most is None else 1 << max(0, bits + 1 - most.bit_length())


def _far(n_ranks: int, step: int) -> list[tuple[int, int]]:
    """Return the rounds in which all trees use the same edge: the longest first, down to `step`."""
    bits = (n_ranks - 1).bit_length()
    return [(1 << bit, 2 << bit) for bit in range(bits - 1, step.bit_length() - 2, -1)]


def _depth_first(below: int) -> list[int]:
    """Return the nodes of a binomial tree in depth-first order, the farthest child first."""
    if below == 1:
        return [0]
    half = _depth_first(below // 2)
    return [0, *(below // 2 + node for node in half), *half[1:]]


def _edge(n_ranks: int, node: int, step: int) -> Sends:
    """Return the sends of all trees from the parent to this node, and to those `step`, 2 `step` ... after it."""
    distance = node & -node
    return _tell(n_ranks, distance, node - distance, -(-(n_ranks - node) // step), step)


def _tell(n_ranks: int, distance: int, first: int, count: int, stride: int) -> Sends:
    """Return sends to the rank `distance` before, with the parts of `count` ranks from `first` after the sender on."""
    rank = np.arange(n_ranks)
    begin = (rank + first) % n_ranks
    n_head = np.minimum(count, -(-(n_ranks - begin) // stride))  # up to the end of the buffer; then from its beginning
    rest = np.flatnonzero(n_head < count)
    return Sends.make(
        np.concatenate((rank, rest)),
        (np.concatenate((rank, rest)) - distance) % n_ranks,
        np.concatenate((begin, (begin + n_head * stride)[rest] - n_ranks)),
        n=np.concatenate((n_head, count - n_head[rest])),
        stride=stride,
        add=False,
    )
