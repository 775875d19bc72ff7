"""The kind of a time: the properties by which published times are compared with it."""

from __future__ import annotations

from weft.collectives.kinds import Collective
from weft.collectives.nccl.estimate import Estimate

_LATENCY_BYTES, _LARGE_BYTES = 64 << 10, 256 << 20
_SERVER_GPUS = 8  # more are a rack


def kind_of(estimate: Estimate) -> tuple[str, ...]:
    """Return the properties that define a kind, the most important first: size, algorithm, network, scale."""
    size_bytes, nodes = estimate.size_bytes, estimate.cluster.nodes
    size = "small" if size_bytes <= _LATENCY_BYTES else "large" if size_bytes >= _LARGE_BYTES else "middle"
    return (
        f"{size} messages {'between nodes' if nodes > 1 else 'in one node'}",
        _algorithm(estimate),
        estimate.transport or estimate.fabric,
        {1: "one node", 2: "two nodes"}.get(nodes, "more than two nodes"),
    )


def _algorithm(estimate: Estimate) -> str:
    """Return the algorithm; the open ring of broadcast and reduce counts as another one."""
    is_open = estimate.collective in (Collective.BROADCAST, Collective.REDUCE)
    return "Line" if is_open else estimate.name.partition("/")[0]


def rare_property(estimate: Estimate) -> str:
    """Return a property with few published times: a kernel, a transport, a board, or in one node the GPUs."""
    cluster = estimate.cluster
    board = (
        "rack" if cluster.gpus > _SERVER_GPUS else "" if cluster.nvswitch or cluster.gpus == 1 else cluster.joined_by
    )
    return estimate.kernel or estimate.transport or board or (f"sm_{cluster.sm}" if cluster.nodes == 1 else "")
