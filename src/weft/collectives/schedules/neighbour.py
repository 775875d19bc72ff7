"""Neighbour exchange: an all-gather in n / 2 rounds, in which a rank talks to the two beside it in turn.

    round 0     0 <-> 1    2 <-> 3    4 <-> 5     each pair has both parts
    round 1     5 <-> 0    1 <-> 2    3 <-> 4     tells the pair beside it
    round 2     0 <-> 1    2 <-> 3    4 <-> 5     and what it heard last goes on, two parts at a time

It sends what a ring sends, in half as many rounds (Chen, Sun, Xue and Zhang, 2005). Open MPI takes it for middle sizes.
"""

from __future__ import annotations

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError


def neighbour_all_gather(n_ranks: int) -> Program:
    """Return an all-gather by neighbour exchange, for an even number of ranks."""
    if n_ranks < 2 or n_ranks % 2:
        raise ConfigError(f"neighbour exchange all-gather needs an even number of ranks, not {n_ranks}: use a ring")
    rank = np.arange(n_ranks)
    pair, side = rank // 2, np.where(rank % 2 == 0, 1, -1)

    def make_round(number: int) -> Sends:
        if number == 0:
            return Sends.make(rank, rank + side, rank, add=False)
        peer = (rank - side if number % 2 else rank + side) % n_ranks
        heard = number - 1  # in the round before; the pair's own at first
        far = heard // 2 if heard % 2 == 0 else -(heard + 1) // 2
        last = (pair + side * far) % (n_ranks // 2)
        return Sends.make(rank, peer, 2 * last, n=2, add=False)

    runs = (1,) * (n_ranks // 2)
    return Program.of("neighbour exchange all-gather", Collective.ALL_GATHER, n_ranks, runs, make_round)
