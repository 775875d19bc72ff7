"""The words: collectives, and NCCL's algorithms and protocols for them."""

from __future__ import annotations

import enum

from weft.errors import UnknownName


class Collective(enum.StrEnum):
    """What a group of ranks does together. The names are PyTorch's and nccl-tests'."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_TO_ALL = "all_to_all"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND_RECV = "send_recv"
    BARRIER = "barrier"

    @property
    def mpi(self) -> str:
        """MPI's name of it."""
        return _MPI[self]

    @property
    def nccl(self) -> str:
        """NCCL's name of it, empty where NCCL has none."""
        return _NCCL.get(self, "")

    def bus_factor(self, ranks: int) -> float:
        """Bus over algorithm bandwidth: what a rank must send at least, over the size, which nccl-tests counts as
        the larger of the two buffers (nccl-tests, doc/PERFORMANCE.md). A barrier has no bytes.
        """
        if self == Collective.ALL_REDUCE:
            return 2 * (ranks - 1) / ranks
        if self in _PARTS:
            return (ranks - 1) / ranks
        return 0.0 if self == Collective.BARRIER else 1.0


_MPI = {
    Collective.ALL_REDUCE: "MPI_Allreduce",
    Collective.ALL_GATHER: "MPI_Allgather",
    Collective.REDUCE_SCATTER: "MPI_Reduce_scatter_block",
    Collective.BROADCAST: "MPI_Bcast",
    Collective.REDUCE: "MPI_Reduce",
    Collective.ALL_TO_ALL: "MPI_Alltoall",
    Collective.GATHER: "MPI_Gather",
    Collective.SCATTER: "MPI_Scatter",
    Collective.SEND_RECV: "MPI_Sendrecv",
    Collective.BARRIER: "MPI_Barrier",
}
_NCCL = {
    Collective.ALL_REDUCE: "ncclAllReduce",
    Collective.ALL_GATHER: "ncclAllGather",
    Collective.REDUCE_SCATTER: "ncclReduceScatter",
    Collective.BROADCAST: "ncclBroadcast",
    Collective.REDUCE: "ncclReduce",
    Collective.ALL_TO_ALL: "ncclAlltoAll",
    Collective.GATHER: "ncclGather",
    Collective.SCATTER: "ncclScatter",
    Collective.SEND_RECV: "ncclSend",
}
# Of which a rank keeps one part in n and moves the others.
_PARTS = frozenset(
    {
        Collective.ALL_GATHER,
        Collective.REDUCE_SCATTER,
        Collective.ALL_TO_ALL,
        Collective.GATHER,
        Collective.SCATTER,
    }
)


def collective(name: str) -> Collective:
    """The collective that PyTorch, MPI, NCCL or nccl-tests calls so, in any case: `AllReduce`, `all_reduce_perf`."""
    wanted = _bare(name)
    for one in Collective:
        if wanted in (_bare(one), _bare(one.mpi), _bare(one.nccl)):
            return one
    raise UnknownName("collective", name, list(Collective))


def _bare(name: str) -> str:
    bare = name.lower().replace("_", "").replace("-", "")
    return bare.removeprefix("mpi").removeprefix("nccl").removesuffix("perf")


class Algorithm(enum.StrEnum):
    """How NCCL lays a collective over the ranks, in the order in which it tries them."""

    TREE = "tree"
    RING = "ring"
    COLLNET_DIRECT = "collnet-direct"
    COLLNET_CHAIN = "collnet-chain"
    NVLS = "nvls"
    NVLS_TREE = "nvls-tree"
    PAT = "pat"

    @property
    def label(self) -> str:
        """As NCCL_ALGO takes it: `NVLSTree`."""
        return _ALGORITHM_LABELS[self]


_ALGORITHM_LABELS = {
    Algorithm.TREE: "Tree",
    Algorithm.RING: "Ring",
    Algorithm.COLLNET_DIRECT: "CollNetDirect",
    Algorithm.COLLNET_CHAIN: "CollNetChain",
    Algorithm.NVLS: "NVLS",
    Algorithm.NVLS_TREE: "NVLSTree",
    Algorithm.PAT: "PAT",
}


class Protocol(enum.StrEnum):
    """How a receiver learns that data is there: a flag in every 8 bytes, in every 128, or a counter for a slice."""

    LL = "ll"
    LL128 = "ll128"
    SIMPLE = "simple"

    @property
    def label(self) -> str:
        """As NCCL_PROTO takes it."""
        return "Simple" if self == Protocol.SIMPLE else self.upper()
