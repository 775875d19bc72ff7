"""Recursive halving and doubling, pairwise exchange, and dissemination: rounds by the bits of the rank.

Halving, then doubling, is an all-reduce in 2 log2(n) rounds that sends as little as a ring does (Rabenseifner, 2004);
partners are far apart, so that in a network with long ways its large exchanges meet.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError


def halving_doubling_all_reduce(n_ranks: int) -> Program:
    """Return an all-reduce by recursive halving, then doubling."""
    bits = _bits("halving-doubling all-reduce", n_ranks)

    def make_round(number: int) -> Sends:
        return _halve(n_ranks, number) if number < bits else _double(n_ranks, number - bits)

    return Program.of("halving-doubling all-reduce", Collective.ALL_REDUCE, n_ranks, (1,) * (2 * bits), make_round)


def doubling_all_reduce(n_ranks: int) -> Program:
    """Return an all-reduce by doubling with the whole buffer, in half as many rounds, for small buffers.

    Both partners send the chunk that they add to: a real one receives into a second buffer and adds afterwards, as MPI.
    """
    bits = _bits("doubling all-reduce", n_ranks)
    rank = np.arange(n_ranks)

    def make_round(number: int) -> Sends:
        return Sends.make(rank, rank ^ (1 << number), 0, add=True)

    return Program.of("doubling all-reduce", Collective.ALL_REDUCE, n_ranks, (1,) * bits, make_round, n_chunks=1)


def halving_reduce_scatter(n_ranks: int) -> Program:
    """Return a reduce-scatter by recursive halving."""
    runs = (1,) * _bits("halving reduce-scatter", n_ranks)
    return Program.of("halving reduce-scatter", Collective.REDUCE_SCATTER, n_ranks, runs, partial(_halve, n_ranks))


def doubling_all_gather(n_ranks: int) -> Program:
    """Return an all-gather by recursive doubling."""
    runs = (1,) * _bits("doubling all-gather", n_ranks)
    return Program.of("doubling all-gather", Collective.ALL_GATHER, n_ranks, runs, partial(_double, n_ranks))


def pairwise_all_to_all(n_ranks: int) -> Program:
    """Return a pairwise all-to-all: in round k each rank sends to the one k places on.

    The buffer has the parts to send, by receiver, followed by the received parts, by sender.
    """
    rank = np.arange(n_ranks)

    def make_round(number: int) -> Sends:
        to = (rank + number + 1) % n_ranks
        return Sends.make(rank, to, to, to=n_ranks + rank, add=False)

    room = {"n_chunks": 2 * n_ranks, "n_beside": n_ranks}
    return Program.of("pairwise all-to-all", Collective.ALL_TO_ALL, n_ranks, (1,) * (n_ranks - 1), make_round, **room)


def dissemination_barrier(n_ranks: int) -> Program:
    """Return a barrier in ceil(log2 n) rounds of empty messages (Hensgen, Finkel and Manber, 1988)."""
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
    """Return the sends of a halving: each rank sends its partner's half."""
    rank = np.arange(n_ranks)
    half = n_ranks >> (number + 1)
    partner = rank ^ half
    return Sends.make(rank, partner, partner // half * half, n=half, add=True)


def _double(n_ranks: int, number: int) -> Sends:
    """Return the sends of a doubling: each rank sends its part to its partner."""
    rank = np.arange(n_ranks)
    have = 1 << number
    return Sends.make(rank, rank ^ have, rank // have * have, n=have, add=False)
