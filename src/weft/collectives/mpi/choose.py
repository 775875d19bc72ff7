"""The algorithm that a library chooses for a collective of one size.

choose(library("openmpi"), Collective.ALL_REDUCE, nodes=4, ppn=36, size_bytes=8, coll="han")
"""

from __future__ import annotations

from weft.collectives.kinds import Collective
from weft.collectives.mpi.han import han
from weft.collectives.mpi.libraries import Choice, Library, mvapich2, tuned
from weft.errors import ConfigError, find_named

COLLS = ("tuned", "han")  # the components of Open MPI that weft has; the first one where none is asked for
_NOT_PUBLISHED = ("hcoll", "ucc")


def find_coll(chosen: Library, coll: str) -> str:
    """Return the deciding component of a library; "" is the usual one."""
    if chosen.name != "openmpi":
        if coll:
            raise ConfigError(f"--coll {coll}: components are Open MPI's, {chosen.name} has one way: leave it out")
        return ""
    if coll.lower() in _NOT_PUBLISHED:
        raise ConfigError(
            f"--coll {coll}: its choices are not written down here. What Open MPI does without it: --coll tuned, or "
            f"han from 5.0 on"
        )
    return find_named("component", coll or COLLS[0], {name: name for name in COLLS})


def choose(chosen: Library, kind: Collective, *, nodes: int, ppn: int, size_bytes: int, coll: str = "") -> Choice:
    """Return the choice of a library. `size_bytes` as in OSU's program: for all-to-all the bytes to each rank."""
    if chosen.name != "openmpi":
        return mvapich2(kind, nodes, ppn, size_bytes)
    by_han = han(kind, nodes, ppn, size_bytes) if coll == "han" else None
    return by_han or tuned(kind, nodes, ppn, size_bytes)
