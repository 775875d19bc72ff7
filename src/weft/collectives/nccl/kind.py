"""The kind of a time: the properties by which published times are compared with it."""

from __future__ import annotations

from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.estimate import SERVER_GPUS, Estimate

_LATENCY_BYTES, _LARGE_BYTES = 64 << 10, 256 << 20


def kind_of(estimate: Estimate) -> tuple[str, ...]:
    """Return the properties that define a kind, the most important first: class, size, algorithm."""
    size_bytes = estimate.size_bytes
    size = "small" if size_bytes <= _LATENCY_BYTES else "large" if size_bytes >= _LARGE_BYTES else "middle"
    return class_of(estimate), f"{size} messages", _algorithm(estimate)


def class_of(estimate: Estimate) -> str:
    """Return the class of a time: the machine in one server or rack, else the servers or the network between them."""
    cluster = estimate.cluster
    if estimate.kernel:
        return f"symmetric kernels of {_place(cluster)}"
    if cluster.nodes == 1 or cluster.gpus > SERVER_GPUS:
        return _place(cluster)
    if estimate.transport:
        return estimate.transport
    if cluster.gpus == 1:
        return f"servers with one GPU over {estimate.fabric}"
    return f"{'' if cluster.nvlink else 'PCIe servers over '}{estimate.fabric}"


def _place(cluster: Cluster) -> str:
    if cluster.gpus > SERVER_GPUS:
        return "one rack" if cluster.nodes == 1 else "several racks"
    joined = "" if cluster.nvswitch else f" with {cluster.joined_by}"
    return f"{'one server' if cluster.nodes == 1 else 'servers'}{joined}"


def _algorithm(estimate: Estimate) -> str:
    """Return the algorithm; the open ring of broadcast and reduce counts as another one."""
    is_open = estimate.collective in (Collective.BROADCAST, Collective.REDUCE)
    return "Line" if is_open else estimate.name.partition("/")[0]
