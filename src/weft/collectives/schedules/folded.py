"""MPI's recursive algorithms for any number of ranks, and broadcasts that scatter first.

Recursive halving and doubling need a power of two, p. Each of the n - p extra ranks sends its buffer to a neighbour
before, and receives the result from it afterwards (Thakur, Rabenseifner and Gropp, Optimization of Collective
Communication Operations in MPICH, 2005):

    rank      0 <- 1   2 <- 3   4   5         six ranks: 1 and 3 give to 0 and 2
    of four   0        1        2   3         0, 2, 4 and 5 reduce
              0 -> 1   2 -> 3   4   5         and send the result to 1 and 3

Rabenseifner's halving, as Open MPI and MPICH have it, begins with the nearest partner: the large halves stay inside a
node, and what goes far is small. (`recursive` has the other order, which leaves every rank with its own part.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.schedules.channels import Channel, Stage, one_after_another, side_by_side
from weft.collectives.schedules.knomial import turned
from weft.collectives.schedules.pat import bruck_all_gather
from weft.collectives.schedules.program import Program, Sends
from weft.collectives.schedules.recursive import dissemination_barrier, doubling_all_gather, doubling_all_reduce
from weft.collectives.schedules.ring import ring_all_gather


def folded_doubling_all_reduce(n_ranks: int) -> Program:
    """Return an all-reduce that sends the whole buffer in each of the log2 n rounds, for small buffers."""
    return _folded("recursive doubling all-reduce", Collective.ALL_REDUCE, n_ranks, doubling_all_reduce)


def rabenseifner_all_reduce(n_ranks: int) -> Program:
    """Return an all-reduce by recursive halving, then doubling."""
    return _folded("Rabenseifner all-reduce", Collective.ALL_REDUCE, n_ranks, _halve_and_double)


def folded_doubling_barrier(n_ranks: int) -> Program:
    """Return a barrier by exchanges with partners at distances 1, 2, 4 ..."""
    return _folded("recursive doubling barrier", Collective.BARRIER, n_ranks, _meetings)


def rabenseifner_reduce(n_ranks: int, root: int = 0) -> Program:
    """Return a reduce by recursive halving, then a gather over a binomial tree."""
    return turned(_folded("Rabenseifner reduce", Collective.REDUCE, n_ranks, _halve_and_gather, tell=False), root)


def scatter_broadcast(n_ranks: int, root: int = 0, *, ring: bool = False) -> Program:
    """Return a broadcast by a binomial scatter and an all-gather, for large buffers (van de Geijn)."""
    power = n_ranks & (n_ranks - 1) == 0
    gather = (ring_all_gather if ring else doubling_all_gather if power else bruck_all_gather)(n_ranks)
    levels = (n_ranks - 1).bit_length()

    def scatter(number: int) -> Sends:
        half = 1 << (levels - 1 - number)
        child = np.arange(half, n_ranks, 2 * half)
        return Sends.make(child - half, child, child, n=np.minimum(half, n_ranks - child), add=False)

    then = Stage(runs=tuple(run.n_rounds for run in gather.runs), make_round=gather.make_round)
    whole = one_after_another([Stage(runs=(1,) * levels, make_round=scatter), then])
    name = f"scatter and {'ring ' if ring else ''}all-gather broadcast"
    program = Program.of(
        name, Collective.BROADCAST, n_ranks, whole.runs, whole.make_round, aggregated=gather.aggregated
    )
    return turned(program, root)


def _folded(
    name: str, kind: Collective, n_ranks: int, write: Callable[[int], Program], *, tell: bool = True
) -> Program:
    """Apply `write` to the largest power of two; extra ranks send to the previous rank and receive the result."""
    power = 1 << (n_ranks.bit_length() - 1)
    n_extra = n_ranks - power
    if power == 1:
        power, n_extra = n_ranks, 0  # the program itself says that there are too few
    inner = write(power)
    of_power = np.arange(power)
    real = np.where(of_power < n_extra, 2 * of_power, of_power + n_extra)
    odd = 2 * np.arange(n_extra) + 1
    stages = [side_by_side([Channel(program=inner, ranks=real)])]
    if n_extra:
        whole = inner.n_chunks

        def give(_number: int) -> Sends:
            return Sends.make(odd, odd - 1, 0, n=whole, add=True)

        def send_back(_number: int) -> Sends:
            return Sends.make(odd - 1, odd, 0, n=whole, add=kind is Collective.BARRIER)

        stages.insert(0, Stage(runs=(1,), make_round=give))
        if tell:
            stages.append(Stage(runs=(1,), make_round=send_back))
    program = one_after_another(stages)
    return Program.of(name, kind, n_ranks, program.runs, program.make_round, n_chunks=inner.n_chunks)


def _meetings(n_ranks: int) -> Program:
    """Return exchanges as in dissemination, but in both directions between the same two ranks."""
    rank, barrier = np.arange(n_ranks), dissemination_barrier(n_ranks)

    def make_round(number: int) -> Sends:
        return Sends.make(rank, rank ^ (1 << number), 0, add=True)

    runs = tuple(run.n_rounds for run in barrier.runs)
    return Program.of("recursive doubling barrier", Collective.BARRIER, n_ranks, runs, make_round, n_chunks=1)


def _halve_and_double(n_ranks: int) -> Program:
    bits = n_ranks.bit_length() - 1

    def make_round(number: int) -> Sends:
        return _halve(n_ranks, number) if number < bits else _back(n_ranks, 2 * bits - 1 - number)

    return Program.of("Rabenseifner all-reduce", Collective.ALL_REDUCE, n_ranks, (1,) * (2 * bits), make_round)


def _halve_and_gather(n_ranks: int) -> Program:
    bits = n_ranks.bit_length() - 1

    def make_round(number: int) -> Sends:
        if number < bits:
            return _halve(n_ranks, number)
        level = 2 * bits - 1 - number
        child = (1 << level) + np.arange(1 << level)  # ranks with higher bits 0: the other ranks have sent their sums
        begin, held = _begin(child, n_ranks, level + 1), n_ranks >> level + 1
        return Sends.make(child, child - (1 << level), begin, n=held, add=False)

    return Program.of("Rabenseifner reduce", Collective.REDUCE, n_ranks, (1,) * (2 * bits), make_round)


def _begin(rank: NDArray[np.int64], n_ranks: int, levels: int) -> NDArray[np.int64]:
    """Return the begin of a rank's part after `levels` halvings: the lowest bit selects the half, and so on."""
    begin = np.zeros_like(rank)
    for level in range(levels):
        begin += (rank >> level & 1) * (n_ranks >> level + 1)
    return begin


def _halve(n_ranks: int, level: int) -> Sends:
    """Return the sends of a halving: each rank sends its partner's half."""
    rank = np.arange(n_ranks)
    partner = rank ^ (1 << level)
    return Sends.make(rank, partner, _begin(partner, n_ranks, level + 1), n=n_ranks >> level + 1, add=True)


def _back(n_ranks: int, level: int) -> Sends:
    """Return the sends of a doubling: each rank sends its part to its partner."""
    rank = np.arange(n_ranks)
    return Sends.make(rank, rank ^ (1 << level), _begin(rank, n_ranks, level + 1), n=n_ranks >> level + 1, add=False)
