"""Collectives of a trace as programs over some ranks of a job."""

from __future__ import annotations

from weft.collectives.kinds import Algorithm, Collective
from weft.collectives.live.calls import choose
from weft.collectives.program import Program
from weft.collectives.ranks import Ranks
from weft.collectives.writers import program
from weft.training.traces.link import Meeting

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


def write(meeting: Meeting, ranks: Ranks) -> tuple[Program, int]:
    """The program of a collective on these ranks, and its size: a byte for each part at least.

    Where each has a server of its own that is what MPI and live groups take: few rounds for what is small.
    """
    kind = meeting.collective
    root = sorted(meeting.members).index(meeting.members[meeting.root])
    if ranks.per_server == 1 and kind in (Collective.ALL_REDUCE, Collective.BROADCAST, Collective.REDUCE):
        made = choose(kind, len(ranks.servers), meeting.size_bytes, root, direct=False)
    else:
        made = program(kind, ALGORITHMS[kind], nodes=len(ranks.servers), gpus=ranks.per_server, root=root)
    return made, max(meeting.size_bytes, made.n_parts)
