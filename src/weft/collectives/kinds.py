"""Names of collectives, and of NCCL's algorithms and protocols."""

from __future__ import annotations

import enum
from typing import Self

from weft.errors import UnknownName


class Collective(enum.StrEnum):
    """A collective operation, with the names of PyTorch and nccl-tests."""

    mpi: str  # MPI's name of it
    nccl: str  # NCCL's, empty where it has none

    ALL_REDUCE = "all_reduce", "MPI_Allreduce", "ncclAllReduce"
    ALL_GATHER = "all_gather", "MPI_Allgather", "ncclAllGather"
    REDUCE_SCATTER = "reduce_scatter", "MPI_Reduce_scatter_block", "ncclReduceScatter"
    BROADCAST = "broadcast", "MPI_Bcast", "ncclBroadcast"
    REDUCE = "reduce", "MPI_Reduce", "ncclReduce"
    ALL_TO_ALL = "all_to_all", "MPI_Alltoall", "ncclAlltoAll"
    GATHER = "gather", "MPI_Gather", "ncclGather"
    SCATTER = "scatter", "MPI_Scatter", "ncclScatter"
    SEND_RECV = "send_recv", "MPI_Sendrecv", "ncclSend"
    BARRIER = "barrier", "MPI_Barrier", ""

    def __new__(cls, name: str, mpi: str, nccl: str) -> Self:
        member = str.__new__(cls, name)
        member._value_, member.mpi, member.nccl = name, mpi, nccl
        return member

    def bus_factor(self, ranks: int) -> float:
        """Return bus over algorithm bandwidth: the least bytes that a rank sends, over the size.

        nccl-tests counts the larger of the two buffers as size (doc/PERFORMANCE.md). A barrier has no bytes.
        """
        if self == Collective.ALL_REDUCE:
            return 2 * (ranks - 1) / ranks
        if self in PARTED:
            return (ranks - 1) / ranks
        return 0.0 if self == Collective.BARRIER else 1.0


# A rank keeps one part in n and moves the other parts.
PARTED = frozenset(
    (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER)
)


def collective(name: str) -> Collective:
    """Find a collective by its name in PyTorch, MPI, NCCL or nccl-tests: `AllReduce`, `all_reduce_perf`."""
    bare_name = _bare(name)
    for kind in Collective:
        if bare_name in (_bare(kind), _bare(kind.mpi), _bare(kind.nccl)):
            return kind
    raise UnknownName("collective", name, list(Collective))


def _bare(name: str) -> str:
    bare = name.lower().replace("_", "").replace("-", "")
    return bare.removeprefix("mpi").removeprefix("nccl").removesuffix("perf")


class Algorithm(enum.StrEnum):
    """An algorithm of NCCL, in the order in which NCCL compares them."""

    label: str  # as NCCL_ALGO takes it

    TREE = "tree", "Tree"
    RING = "ring", "Ring"
    COLLNET_DIRECT = "collnet-direct", "CollNetDirect"
    COLLNET_CHAIN = "collnet-chain", "CollNetChain"
    NVLS = "nvls", "NVLS"
    NVLS_TREE = "nvls-tree", "NVLSTree"
    PAT = "pat", "PAT"

    def __new__(cls, name: str, label: str) -> Self:
        member = str.__new__(cls, name)
        member._value_, member.label = name, label
        return member


class Protocol(enum.StrEnum):
    """A protocol of NCCL: a flag in every 8 bytes, in every 128 bytes, or a counter for each slice."""

    LL = "ll"
    LL128 = "ll128"
    SIMPLE = "simple"

    @property
    def label(self) -> str:
        """Return the name in NCCL_PROTO."""
        return "Simple" if self == Protocol.SIMPLE else self.upper()
