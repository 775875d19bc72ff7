"""Composition of programs: in parallel, each on its part of the buffer, and in sequence.

    rank            0    1    2    3         two nodes of two GPUs: a ring of two ranks on each rail
    channel 0       0 -------- 1             is the program of one ring, twice
    channel 1            0 -------- 1

What is added or gathered part by part (reduce-scatter, all-gather) fixes which rank has which chunk: there channels
share the buffer chunk by chunk, and elsewhere each has a piece of its own.

    apart           a a a a b b b b          woven      a b a b a b a b
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends

WOVEN = frozenset({Collective.ALL_GATHER, Collective.REDUCE_SCATTER})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stage:
    """The rounds of a program under construction, and how many in a row repeat."""

    runs: tuple[int, ...]
    make_round: Callable[[int], Sends]

    @property
    def n_rounds(self) -> int:
        return sum(self.runs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Channel:
    """A program with the ranks that execute it."""

    program: Program
    ranks: NDArray[np.int64]  # [rank of the program, then its reducers] -> rank or reducer of the whole


def side_by_side(channels: Sequence[Channel]) -> Stage:
    """Run programs of one shape in parallel; the buffer has the chunks of all."""
    n = len(channels)
    first = channels[0].program

    def make_round(number: int) -> Sends:
        return Sends.join([_placed(channel, at, n, number) for at, channel in enumerate(channels)])

    return Stage(runs=tuple(run.n_rounds for run in first.runs), make_round=make_round)


def _placed(channel: Channel, at: int, n_channels: int, number: int) -> Sends:
    program, sends = channel.program, channel.program.make_round(number)
    woven = program.collective in WOVEN
    scale, shift = (n_channels, at) if woven else (1, at * program.n_chunks)
    return Sends.make(
        channel.ranks[sends.src],
        channel.ranks[sends.dst],
        sends.src_chunk * scale + shift,
        to=sends.dst_chunk * scale + shift,
        n=sends.n_chunks,
        stride=sends.stride * scale,
        add=sends.add,
    )


def one_after_another(stages: Sequence[Stage]) -> Stage:
    """Join the rounds of stages in sequence."""
    ends = list(accumulate(stage.n_rounds for stage in stages))

    def make_round(number: int) -> Sends:
        at = next(at for at, end in enumerate(ends) if number < end)
        return stages[at].make_round(number - ends[at] + stages[at].n_rounds)

    return Stage(runs=tuple(run for stage in stages for run in stage.runs), make_round=make_round)
