"""Rings: every rank sends to the next one only.

An all-reduce of n ranks takes 2 (n - 1) rounds of 1/n of the buffer: first each chunk goes round once and is added up,
then once more to tell. Each rank sends 2 (n - 1) / n of the buffer, which no algorithm can beat (Patarasuk and Yuan,
2009); its latency grows with n.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError


def ring_all_reduce(n_ranks: int, order: Sequence[int] | None = None) -> Program:
    """Return a ring all-reduce; `order` lists the ranks around the ring."""
    ring = _ring(n_ranks, order)
    place = np.arange(n_ranks)

    def make_round(number: int) -> Sends:
        adds = number < n_ranks - 1
        back = number + 1 if adds else number - (n_ranks - 1)  # how far behind the sender the chunk's owner is
        return Sends.make(ring, np.roll(ring, -1), ring[(place - back) % n_ranks], add=adds)

    return Program.of("ring all-reduce", Collective.ALL_REDUCE, n_ranks, (n_ranks - 1, n_ranks - 1), make_round)


def ring_reduce_scatter(n_ranks: int, order: Sequence[int] | None = None) -> Program:
    """Return a ring reduce-scatter."""
    ring = _ring(n_ranks, order)
    place = np.arange(n_ranks)

    def make_round(number: int) -> Sends:
        return Sends.make(ring, np.roll(ring, -1), ring[(place - number - 1) % n_ranks], add=True)

    return Program.of("ring reduce-scatter", Collective.REDUCE_SCATTER, n_ranks, (n_ranks - 1,), make_round)


def ring_all_gather(n_ranks: int, order: Sequence[int] | None = None) -> Program:
    """Return a ring all-gather."""
    ring = _ring(n_ranks, order)
    place = np.arange(n_ranks)

    def make_round(number: int) -> Sends:
        return Sends.make(ring, np.roll(ring, -1), ring[(place - number) % n_ranks], add=False)

    return Program.of("ring all-gather", Collective.ALL_GATHER, n_ranks, (n_ranks - 1,), make_round)


def chain_broadcast(n_ranks: int, slices: int = 8, root: int = 0) -> Program:
    """Return a broadcast down a chain, slice after slice."""
    chain = (np.arange(n_ranks) + root) % n_ranks
    return _chain("chain broadcast", Collective.BROADCAST, chain, slices, root, add=False)


def chain_reduce(n_ranks: int, slices: int = 8, root: int = 0) -> Program:
    """Return a reduce up a chain, slice after slice."""
    chain = (np.arange(n_ranks) + root + 1) % n_ranks  # the root is last
    return _chain("chain reduce", Collective.REDUCE, chain, slices, root, add=True)


def _ring(n_ranks: int, order: Sequence[int] | None) -> NDArray[np.int64]:
    ring = np.arange(n_ranks) if order is None else np.asarray(order, np.int64)
    if sorted(ring.tolist()) != list(range(n_ranks)):
        raise ConfigError(f"the order of a ring of {n_ranks} ranks must name each of 0 to {n_ranks - 1} once")
    return ring


def _chain(
    name: str, collective: Collective, chain: NDArray[np.int64], slices: int, root: int, *, add: bool
) -> Program:
    n_ranks = len(chain)

    def make_round(number: int) -> Sends:
        place = np.arange(max(0, number - slices + 1), min(number, n_ranks - 2) + 1)
        return Sends.make(chain[place], chain[place + 1], number - place, add=add)

    fill = min(slices, n_ranks - 1) - 1  # rounds until all that ever send at once do
    steady = abs(slices - (n_ranks - 1)) + 1
    same = (steady,) if slices >= n_ranks - 1 else (1,) * steady  # a short train moves on along a long chain
    runs = (*(1,) * fill, *same, *(1,) * fill)
    return Program.of(name, collective, n_ranks, runs, make_round, n_chunks=slices, root=root)
