"""The band around a predicted time, by the errors of published times (`weft.calibration.conformal`).

Errors are those with the cluster of the time left out. A class without published times, and a time unlike any published
one in another property, has the band of an unseen class. No time is shorter than the transfer of the bytes that every
GPU must receive over its NVLinks. `weft nccl calibration` shows how many bands hold on clusters that have no part in
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from weft.calibration.band import BEYOND, Band
from weft.calibration.conformal import Bands
from weft.collectives.nccl.calibration import compare_all
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.estimate import Estimate
from weft.collectives.nccl.kind import kind_of
from weft.collectives.nccl.rccl import band as rccl
from weft.collectives.nccl.refit import left_out_figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """The error of a published time without the host's time for each call."""

    cluster: str
    kind: tuple[str, ...]
    slowdown: float


@cache
def published_bands() -> Bands:
    """Return the bands by all published times."""
    return Bands.of(
        Error(
            cluster=figure.cluster,
            kind=figure.kind,
            slowdown=(figure.measured - figure.call_us) / figure.estimate.time_us,
        )
        for figure in left_out_figures()
    )


def band_of(estimate: Estimate, bands: Bands | None = None) -> Band:
    """Return the band around a predicted time, by all published times or by some."""
    if estimate.cluster.gcn:
        return rccl.band_of(estimate.cluster, estimate.collective, estimate.size_bytes)
    basis = published_bands() if bands is None else bands
    band = basis.band_for(kind_of(estimate), unlike=_unlike(estimate))
    shortest = min(_least_us(estimate) / estimate.time_us, 1.0)
    return replace(band, low=max(band.low, shortest))


def describe(estimate: Estimate, band: Band) -> str:
    """Return the band in words: its ends, the published times behind it, and doubts."""
    low_us, high_us = band.around(estimate.time_us)
    far = "".join(f"; far from anything published: {why}" for why in band.far)
    return f"{low_us:,.1f} to {high_us:,.1f} us, by {band.clusters} clusters with {band.kind}{far}"


def _least_us(estimate: Estimate) -> float:
    """Return the least time in one node: that of the bytes that a GPU must receive on its NVLinks."""
    cluster = estimate.cluster
    if cluster.nodes > 1 or not cluster.nvswitch:
        return 0.0
    line = cluster.nvlink_gbyte_s / cluster.link_gbyte_s * constants().of_sm(cluster.sm).nvlink_line_gbyte_s
    return min(1.0, estimate.collective.bus_factor(cluster.ranks)) * estimate.size_bytes / line / 1000


_PROPERTIES: tuple[tuple[str, Callable[[Estimate], object]], ...] = (
    ("{}", lambda estimate: estimate.collective),
    ("{}", lambda estimate: estimate.name.partition("/")[0]),
    ("GPUs of sm_{}", lambda estimate: estimate.cluster.sm),
)
_COUNTS: tuple[tuple[str, Callable[[Estimate], int]], ...] = (
    ("nodes", lambda estimate: estimate.cluster.nodes),
    ("GPUs in a node", lambda estimate: estimate.cluster.gpus),
    ("bytes", lambda estimate: estimate.size_bytes),
)


def _unlike(estimate: Estimate) -> tuple[str, ...]:
    """Return the properties that no published time has, in words."""
    published, largest = _bounds()
    unlike = [
        f"no published run of {words.format(read(estimate))}"
        for (words, read), values in zip(_PROPERTIES, published, strict=True)
        if read(estimate) not in values
    ]
    for (words, read), most in zip(_COUNTS, largest, strict=True):
        if read(estimate) > BEYOND * most:
            unlike.append(f"{read(estimate):,} {words}, and the most that is published is {most:,}")
    cluster = estimate.cluster
    if cluster.nodes > 1 and cluster.gpus % cluster.nics and cluster.nics % cluster.gpus:
        unlike.append(
            f"{cluster.nics} adapters for {cluster.gpus} GPUs, and in published runs one number divides the other"
        )
    return tuple(unlike)


@cache
def _bounds() -> tuple[tuple[set[object], ...], tuple[int, ...]]:
    """Return the published values of each property, and the largest published counts."""
    estimates = [figure.estimate for figure in compare_all()]
    return tuple(set(map(read, estimates)) for _, read in _PROPERTIES), tuple(
        max(map(read, estimates)) for _, read in _COUNTS
    )
