"""The choice of a program for a call: few rounds for small sizes, few bytes for large ones."""

from __future__ import annotations

from functools import lru_cache

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program
from weft.collectives.schedules.writers import program

SMALL_BYTES = 1 << 15  # here the latency of a ring's rounds equals the time that its fewer bytes save
DIRECT_MAX_RANKS = 8  # that all send to each other: as many bytes as by a ring, in two rounds, over a link to each
_DIRECT = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)


def choose(kind: Collective, n_ranks: int, size_bytes: int, root: int = 0, *, direct: bool = True) -> Program:
    """Return the program of a call; `size_bytes` is the larger of the two buffers, as in nccl-tests.

    direct: few ranks may all send to each other, unlike in MPI and NCCL; on GPUs these links need memory.
    """
    is_small = size_bytes <= SMALL_BYTES
    if direct and kind in _DIRECT and not is_small and n_ranks <= DIRECT_MAX_RANKS:
        return _direct(kind, n_ranks)
    return _program(kind, n_ranks, is_small, root)


@lru_cache(maxsize=64)
def _direct(kind: Collective, n_ranks: int) -> Program:
    return program(kind, "direct", nodes=n_ranks)


@lru_cache(maxsize=64)
def _program(kind: Collective, n_ranks: int, is_small: bool, root: int) -> Program:
    algorithms = {
        Collective.ALL_REDUCE: "recursive-doubling" if is_small and not n_ranks & (n_ranks - 1) else "ring",
        Collective.ALL_GATHER: "ring",
        Collective.REDUCE_SCATTER: "ring",
        Collective.BROADCAST: "tree" if is_small else "ring",
        Collective.REDUCE: "tree" if is_small else "ring",
        Collective.ALL_TO_ALL: "pairwise",
        Collective.GATHER: "linear",
        Collective.SCATTER: "linear",
        Collective.SEND_RECV: "shift",
        Collective.BARRIER: "dissemination",
    }
    return program(kind, algorithms[kind], nodes=n_ranks, root=root)
