"""The time of a collective of MPI: the program that a library chooses, run by the clocks of its ranks.

`weft osu`, `weft advise` and jobs share it, so that their answers agree.
"""

from __future__ import annotations

from weft.collectives.kinds import Collective
from weft.collectives.mpi import clock
from weft.collectives.mpi.choose import choose
from weft.collectives.mpi.interconnect import Interconnect
from weft.collectives.mpi.libraries import Choice, Library, library
from weft.collectives.mpi.message import Floats, Messages


def after_barrier(messages: Messages, chosen: Library, coll: str = "") -> Floats:
    """Return the begin of each rank after the barrier of OSU's programs, which ranks leave one by one."""
    return clock.run(_choice(Collective.BARRIER, 0, messages, chosen, coll).steps, messages)


def collective_us(
    kind: Collective, size_bytes: int, messages: Messages, chosen: Library, begun: Floats, coll: str = ""
) -> tuple[Floats, str]:
    """Return the microseconds of each rank, and the name of the algorithm."""
    choice = _choice(kind, size_bytes, messages, chosen, coll)
    return clock.run(choice.steps, messages, begun) - begun, choice.name


def all_reduce_us(interconnect: Interconnect, size_bytes: int) -> float:
    """Return the mean over all ranks, as `weft osu allreduce` prints it."""
    chosen = library("openmpi")
    messages = Messages(interconnect=interconnect, rules=chosen.message_rules())
    took_us, _ = collective_us(
        Collective.ALL_REDUCE, size_bytes, messages, chosen, begun=after_barrier(messages, chosen)
    )
    return float(took_us.mean())


def _choice(kind: Collective, size_bytes: int, messages: Messages, chosen: Library, coll: str) -> Choice:
    interconnect = messages.interconnect
    return choose(chosen, kind, nodes=interconnect.n_servers, ppn=interconnect.ppn, size_bytes=size_bytes, coll=coll)
