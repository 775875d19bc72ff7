"""Collectives in two levels, as in MPI libraries: one process of each node, the leader, communicates between nodes.

    node 0   0 <- 1, 2, 3 ┐                         ┌ 0 -> 1, 2, 3     inside a node, through shared memory
    node 1   4 <- 5, 6, 7 ┴ 0 and 4 talk, between ──┴ 4 -> 5, 6, 7     over the network

Rank = node * ppn + process.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.schedules.channels import Stage, one_after_another
from weft.collectives.schedules.program import Program, Sends
from weft.errors import ConfigError

UP = frozenset((Collective.ALL_REDUCE, Collective.REDUCE, Collective.BARRIER))
DOWN = frozenset((Collective.ALL_REDUCE, Collective.BROADCAST, Collective.BARRIER))


def with_leaders(leaders: Program, ppn: int, *, up: Program, down: Program) -> Program:
    """Combine a program of leaders with a reduction `up` before it and a broadcast `down` after it.

    Both run among the processes of each node, on the whole buffer. Only root 0 is supported.
    """
    kind, chunks = leaders.collective, leaders.n_chunks
    if kind not in UP | DOWN or leaders.root:
        raise ConfigError(f"{leaders.name} with root {leaders.root}: leaders reduce, broadcast or meet, with root 0")
    if not up.n_ranks == down.n_ranks == ppn or up.n_chunks != 1 or down.n_chunks != 1:
        raise ConfigError(f"{leaders.name}: what {ppn} processes of a node do must be of {ppn} ranks, in one piece")
    first = np.arange(leaders.n_ranks) * ppn

    def within(program: Program, number: int) -> Sends:
        sends = program.make_round(number)
        ends = [(first[:, None] + end).ravel() for end in (sends.src, sends.dst)]
        add = np.tile(sends.add | (kind is Collective.BARRIER), leaders.n_ranks)
        return Sends.make(ends[0], ends[1], 0, n=chunks, add=add)

    def between(number: int) -> Sends:
        sends = leaders.make_round(number)
        return Sends(
            src=(sends.src * ppn).astype(np.int32),
            dst=(sends.dst * ppn).astype(np.int32),
            src_chunk=sends.src_chunk,
            dst_chunk=sends.dst_chunk,
            n_chunks=sends.n_chunks,
            stride=sends.stride,
            add=sends.add,
        )

    stages: Sequence[Stage] = [
        *([Stage(runs=(1,) * up.n_rounds, make_round=lambda number: within(up, number))] if kind in UP else []),
        Stage(runs=tuple(run.n_rounds for run in leaders.runs), make_round=between),
        *([Stage(runs=(1,) * down.n_rounds, make_round=lambda number: within(down, number))] if kind in DOWN else []),
    ]
    whole = one_after_another(stages)
    name = f"two-level {leaders.name}"
    return Program.of(
        name, kind, leaders.n_ranks * ppn, whole.runs, whole.make_round, chunks, aggregated=leaders.aggregated
    )
