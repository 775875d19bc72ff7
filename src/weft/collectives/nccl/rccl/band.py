"""The band around a time of RCCL, by the errors of published times with their machine left out."""

from __future__ import annotations

from functools import cache

from weft.calibration.band import BEYOND, Band
from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.rccl.calibration import kind_of, published_bands, runs


def band_of(cluster: Cluster, collective: Collective, size_bytes: int) -> Band:
    """Return the band around a predicted time."""
    return published_bands().band_for(kind_of(cluster, size_bytes), unlike=_unlike(cluster, collective))


def _unlike(cluster: Cluster, collective: Collective) -> tuple[str, ...]:
    """Return the properties that no published time has, in words."""
    collectives, architectures, most = _published()
    words = []
    if str(collective) not in collectives:
        words.append(f"no published run of {collective} on AMD's GPUs")
    if cluster.gcn not in architectures:
        words.append(f"no published run of GPUs of {cluster.gcn}")
    if cluster.nodes > BEYOND * most:
        words.append(f"{cluster.nodes:,} nodes, and the most that is published is {most:,}")
    return tuple(words)


@cache
def _published() -> tuple[set[str], set[str], int]:
    """Return the published collectives and architectures, and the most nodes."""
    clusters = [run.cluster for run in runs()]
    return (
        {str(run.collective) for run in runs()},
        {cluster.gcn for cluster in clusters},
        max(cluster.nodes for cluster in clusters),
    )
