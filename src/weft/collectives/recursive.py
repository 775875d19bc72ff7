"""Recursive halving and doubling, pairwise exchange, and dissemination: rounds by the bits of the rank.

Halving, then doubling, is an all-reduce in 2 log2(n) rounds that sends as little as a ring does (Rabenseifner, 2004);
partners are far apart, so that in a network with long ways its large exchanges meet.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.program import Program, Sends
from weft.errors import ConfigError


def halving_doubling_all_reduce(n_ranks: int) -> Program:
    """Every rank ends with the sum of all buffers."""
    bits = _bits("halving-doubling all-reduce", n_ranks)

    def make_round(number: int) -> Sends:
        return _halve(n_ranks, number) if number < bits else _double(n_ranks, number - bits)

    return Program.of("halving-doubling all-reduce", Collective.ALL_REDUCE, n_ranks, (1,) * (2 * bits), make_round)


def doubling_all_reduce(n_ranks: int) -> Program:
    """Every rank ends with the sum of all buffers, in half as many rounds and of all of it: for small ones.

    Both partners send what they add to: a real one receives beside its buffer and adds afterwards, as MPI's does.
    """
    bits = _bits("doubling all-reduce", n_ranks)
    rank = np.arange(n_ranks)

    def make_round(number: int) -> Sends:
        return Sends.make(rank, rank ^ (1 << number), 0, add=True)

    return Program.of("doubling all-reduce", Collective.ALL_REDUCE, n_ranks, (1,) * bits, make_round, n_chunks=1)


def halving_reduce_scatter(n_ranks: int) -> Program:
    """Every rank ends with the sum of its own part of the buffers."""
    runs = (1,) * _bits("halving reduce-scatter", n_ranks)
    return Program.of("halving reduce-scatter", Collective.REDUCE_SCATTER, n_ranks, runs, partial(_halve, n_ranks))


def doubling_all_gather(n_ranks: int) -> Program:
    """Every rank ends with the parts of all."""
    runs = (1,) * _bits("doubling all-gather", n_ranks)
    return Program.of("doubling all-gather", Collective.ALL_GATHER, n_ranks, runs, partial(_double, n_ranks))


def pairwise_all_to_all(n_ranks: int) -> Program:
    """Every rank sends a part of its own to every other: in round k to the one k places on.

    The buffer is what a rank sends, by receiver, and after it what it receives, by sender.
    """
    rank = np.arange(n_ranks)

    def make_round(number: int) -> Sends:
        to = (rank + number + 1) % n_ranks
        return Sends.make(rank, to, to, to=n_ranks + rank, add=False)

    room = {"n_chunks": 2 * n_ranks, "n_beside": n_ranks}
    return Program.of("pairwise all-to-all", Collective.ALL_TO_ALL, n_ranks, (1,) * (n_ranks - 1), make_round, **room)


def dissemination_barrier(n_ranks: int) -> Program:
    """Nobody goes on before all have come: ceil(log2 n) rounds of empty messages (Hensgen, Finkel and Manber, 1988)."""
    rank = np.arange(n_ranks)

    def make_round(number: int) -> Sends:
        return Sends.make(rank, (rank + (1 << number)) % n_ranks, 0, add=True)

    runs = (1,) * (n_ranks - 1).bit_length()
    return Program.of("dissemination barrier", Collective.BARRIER, n_ranks, runs, make_round, n_chunks=1)


def _bits(name: str, n_ranks: int) -> int:
    if n_ranks < 2 or n_ranks & (n_ranks - 1):
        raise ConfigError(f"{name} needs a power of two of ranks, not {n_ranks}: use a ring")
    return n_ranks.bit_length() - 1


def _halve(n_ranks: int, number: int) -> Sends:
    """Half of what a rank still has to add goes to its partner, whose half it is."""
    rank = np.arange(n_ranks)
    half = n_ranks >> (number + 1)
    partner = rank ^ half
    return Sends.make(rank, partner, partner // half * half, n=half, add=True)


def _double(n_ranks: int, number: int) -> Sends:
    """What a rank has goes to its partner, and then both have twice as much."""
    rank = np.arange(n_ranks)
    have = 1 << number
    return Sends.make(rank, rank ^ have, rank // have * have, n=have, add=False)
