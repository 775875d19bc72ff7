"""Open MPI's coll/han: inside the nodes first, then between their first processes, and inside again.

    all-reduce   reduce | reduce, broadcast | broadcast        inside by coll/tuned, between by coll/libnbc
    broadcast             broadcast | broadcast                between by coll/tuned, of what follows by coll/libnbc
    reduce       reduce | reduce
    barrier      barrier | barrier | barrier
    all-gather   gather | all-gather | broadcast               in one piece

Its priority is 35 in Open MPI 5.0, before tuned's 30, and was 0 in 4.1. What is longer than 64 KiB goes in segments:
while one is between the nodes, the next is inside them. Nodes with one process and jobs on one node it leaves to
coll/tuned, as it does all-to-all. (ompi/mca/coll/han/coll_han_allreduce.c and its neighbours, and
coll/libnbc/nbc_ireduce.c and nbc_ibcast.c, v5.0.8.)
"""

from __future__ import annotations

import numpy as np

from weft.collectives.kinds import Collective
from weft.collectives.mpi.clock import Part, Step
from weft.collectives.mpi.libraries import ELEMENT_BYTES, Choice, tuned
from weft.collectives.schedules.channels import Stage, one_after_another
from weft.collectives.schedules.folded import rabenseifner_reduce
from weft.collectives.schedules.knomial import binomial_broadcast, binomial_reduce, linear_broadcast
from weft.collectives.schedules.leaders import with_leaders
from weft.collectives.schedules.program import Program, Sends

SEGMENT_BYTES = 65_536
_LINEAR_NODES = 4  # up to which libnbc's broadcast is linear


def han(kind: Collective, nodes: int, ppn: int, size_bytes: int) -> Choice | None:
    """Return the choice of coll/han; None if it delegates to coll/tuned."""
    if nodes == 1 or ppn == 1 or kind is Collective.ALL_TO_ALL:
        return None
    if kind is Collective.ALL_GATHER:
        return _all_gather(nodes, ppn, size_bytes)
    segment_bytes = min(size_bytes, SEGMENT_BYTES)
    up, down = (_inside(part_kind, ppn, segment_bytes) for part_kind in _ENDS.get(kind, (kind, kind)))
    name, between, parts = _between(kind, nodes, segment_bytes)
    program = with_leaders(between, ppn, up=up[1], down=down[1])
    inside = [f"{words} " for words in (up[0], down[0])]
    stages = [
        Part(n_rounds=up[1].n_rounds, inside=True),
        *(Part(n_rounds=n, inside=False) for n in parts),
        Part(n_rounds=down[1].n_rounds, inside=True),
    ]
    if kind is Collective.BROADCAST:
        stages, inside[0] = stages[1:], ""
    if kind is Collective.REDUCE:
        stages, inside[1] = stages[:-1], ""
    step = Step(
        program=program,
        size_bytes=segment_bytes,
        parts=tuple(stages),
        segments=max(-(-size_bytes // SEGMENT_BYTES), 1),
        by_level=True,
    )
    return Choice(name=f"han: {inside[0]}| {name} | {inside[1]}".rstrip(" |"), steps=(step,))


_ENDS = {
    Collective.ALL_REDUCE: (Collective.REDUCE, Collective.BROADCAST),
    Collective.REDUCE: (Collective.REDUCE, Collective.BROADCAST),
    Collective.BROADCAST: (Collective.REDUCE, Collective.BROADCAST),
}


def _inside(kind: Collective, ppn: int, size_bytes: int) -> tuple[str, Program]:
    """Return the program of the processes of a node."""
    choice = tuned(kind, 1, ppn, size_bytes)
    return choice.name, choice.steps[0].program


def _between(kind: Collective, nodes: int, size_bytes: int) -> tuple[str, Program, tuple[int, ...]]:
    """Return the program of the first processes of all nodes, and the rounds of each of its parts."""
    if kind is Collective.BARRIER or kind is Collective.BROADCAST:
        name, program = _inside(kind, nodes, size_bytes)
        return name, program, (program.n_rounds,)
    scattered = nodes > 2 and size_bytes // ELEMENT_BYTES >= 1 << (nodes.bit_length() - 1)
    reduce = (rabenseifner_reduce if scattered else binomial_reduce)(nodes)
    reduced = "rabenseifner" if scattered else "binomial"
    if kind is Collective.REDUCE:
        return reduced, reduce, (reduce.n_rounds,)
    linear = nodes <= _LINEAR_NODES
    broadcast = (linear_broadcast if linear else binomial_broadcast)(nodes)

    def broadcast_result(number: int) -> Sends:
        sends = broadcast.make_round(number)
        return Sends.make(sends.src, sends.dst, 0, n=reduce.n_chunks, add=False)

    whole = one_after_another([_stage(reduce), Stage(runs=(1,) * broadcast.n_rounds, make_round=broadcast_result)])
    name = f"{reduced} and {'linear' if linear else 'binomial'}"
    program = Program.of(name, kind, nodes, whole.runs, whole.make_round, reduce.n_chunks)
    return name, program, (reduce.n_rounds, broadcast.n_rounds)


def _stage(program: Program) -> Stage:
    return Stage(runs=tuple(run.n_rounds for run in program.runs), make_round=program.make_round)


def _all_gather(nodes: int, ppn: int, size_bytes: int) -> Choice:
    """Return an all-gather: a binomial gather in each node, an exchange of first processes, and a broadcast."""
    n = nodes * ppn
    first = np.arange(nodes)[:, None] * ppn
    exchange = tuned(Collective.ALL_GATHER, nodes, 1, size_bytes * ppn)
    broadcast_name, broadcast = _inside(Collective.BROADCAST, ppn, size_bytes * n)
    between, piece = exchange.steps[0].program, n // broadcast.n_chunks

    def gathered(number: int) -> Sends:
        half = 1 << number
        child = np.arange(half, ppn, 2 * half)
        count = np.tile(np.minimum(half, ppn - child), nodes)
        sender = (first + child).ravel()
        return Sends.make(sender, sender - half, sender, n=count, add=False)

    def exchanged(number: int) -> Sends:
        sends = between.make_round(number)
        ends = sends.src * ppn, sends.dst * ppn
        return Sends.make(*ends, sends.src_chunk * ppn, to=sends.dst_chunk * ppn, n=sends.n_chunks * ppn, add=False)

    def broadcast_result(number: int) -> Sends:
        sends = broadcast.make_round(number)
        src, dst = ((first + end).ravel() for end in (sends.src, sends.dst))
        chunk, count = (np.tile(column, nodes) * piece for column in (sends.src_chunk, sends.n_chunks))
        return Sends.make(src, dst, chunk, n=count, add=False)

    whole = one_after_another(
        [
            Stage(runs=(1,) * (ppn - 1).bit_length(), make_round=gathered),
            Stage(runs=tuple(run.n_rounds for run in between.runs), make_round=exchanged),
            Stage(runs=tuple(run.n_rounds for run in broadcast.runs), make_round=broadcast_result),
        ]
    )
    name = f"han: binomial | {exchange.name} | {broadcast_name}"
    aggregated = between.aggregated or broadcast.aggregated
    program = Program.of(name, Collective.ALL_GATHER, n, whole.runs, whole.make_round, aggregated=aggregated)
    return Choice(name=name, steps=(Step(program=program, size_bytes=size_bytes * n, by_level=True),))
