"""Collectives of a trace as programs over some ranks of a job."""

from __future__ import annotations

from weft.collectives.kinds import Algorithm, Collective
from weft.collectives.live.calls import choose
from weft.collectives.ranks import Ranks
from weft.collectives.schedules.program import Program
from weft.collectives.schedules.writers import program
from weft.training.traces.link import CollectiveMatch

# As NCCL does large ones where no switch helps; MPI's for what NCCL has not.
ALGORITHMS: dict[Collective, str] = {
    Collective.ALL_REDUCE: Algorithm.RING,
    Collective.ALL_GATHER: Algorithm.RING,
    Collective.REDUCE_SCATTER: Algorithm.RING,
    Collective.BROADCAST: Algorithm.RING,
    Collective.REDUCE: Algorithm.RING,
    Collective.ALL_TO_ALL: "pairwise",
    Collective.GATHER: "linear",
    Collective.SCATTER: "linear",
    Collective.BARRIER: "dissemination",
}


def write(meeting: CollectiveMatch, ranks: Ranks) -> tuple[Program, int]:
    """Return the program of a collective on these ranks, and its size: at least a byte for each part."""
    if ranks.per_server == 1:
        return flat(meeting)
    algorithm = ALGORITHMS[meeting.collective]
    nodes, gpus = len(ranks.servers), ranks.per_server
    made = program(meeting.collective, algorithm, nodes=nodes, gpus=gpus, root=_root(meeting))
    return made, max(meeting.size_bytes, made.n_parts)


def flat(meeting: CollectiveMatch) -> tuple[Program, int]:
    """Return the program for ranks on servers of their own, as MPI and live groups choose it: few rounds if small."""
    made = choose(meeting.collective, len(meeting.members), meeting.size_bytes, _root(meeting), direct=False)
    return made, max(meeting.size_bytes, made.n_parts)


def _root(meeting: CollectiveMatch) -> int:
    """Return the root's number in a program, whose ranks are in the job's order."""
    return sorted(meeting.members).index(meeting.members[meeting.root])
