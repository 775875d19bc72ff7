"""The band around a predicted time, by the errors of published times of its kind (`weft.calibration.band`).

Where fewer than two clusters published times of a kind, all scales count, then all networks, then all algorithms. A
band is no narrower than half of all clusters would have needed for such sizes, nor than runs over the same transport of
a cloud. For a symmetric kernel, a transport, a rack, GPUs without NVSwitches, or in one node a generation of GPUs
without published times, and for an algorithm that fewer than two clusters published, all algorithms count, as if they
were from one cluster: errors of rings say little of pairs. Properties without any published time are listed in words.
No time is shorter than the transfer of the bytes that every GPU must receive over its NVLinks. `weft nccl calibration`
shows how often such bands hold on a cluster that has no part in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from math import log
from statistics import median

from weft.calibration.band import BEYOND, Band, by_kind, count_clusters, draw, narrowest
from weft.collectives.nccl.calibration import Figure, compare_all
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.estimate import Estimate
from weft.collectives.nccl.kind import kind_of, rare_property

_WITH_ALGORITHM = 2  # properties of a kind, at least


@dataclass(frozen=True, eq=False)
class Evidence:
    """The published times that define a band."""

    figures: tuple[Figure, ...]

    @cached_property
    def rare(self) -> set[str]:
        return {rare_property(figure.estimate) for figure in self.figures}

    @cached_property
    def all_by_kind(self) -> dict[tuple[str, ...], list[Figure]]:
        return by_kind(self.figures)

    @cached_property
    def usual_by_kind(self) -> dict[tuple[str, ...], list[Figure]]:
        """Return the times over common networks; a transport of a cloud is no evidence for them."""
        return by_kind(figure for figure in self.figures if not figure.estimate.transport)


@cache
def everything() -> Evidence:
    return Evidence(compare_all())


def band_of(estimate: Estimate, evidence: Evidence | None = None) -> Band:
    """Return the band around a predicted time, by all published times or by some."""
    basis = everything() if evidence is None else evidence
    band = _band(kind_of(estimate), rare_property(estimate), basis)
    shortest = min(_least_us(estimate) / estimate.time_us, 1.0)
    return replace(band, low=max(band.low, shortest), far=tuple(_far(estimate, basis)))


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


@lru_cache(maxsize=256)
def _band(kind: tuple[str, ...], rare: str, evidence: Evidence) -> Band:
    size, _, network, _ = kind
    is_unseen = bool(rare) and rare not in evidence.rare
    over_transport = rare == network
    figures = evidence.all_by_kind if over_transport or is_unseen else evidence.usual_by_kind
    alike = narrowest(kind[:1] if is_unseen else kind, lambda wider: count_clusters(figures.get(wider, ())))
    band = draw(figures[alike], clusters=1 if len(alike) < _WITH_ALGORITHM else 0)
    band = replace(band, kind=", ".join(alike) or "any kind")
    if over_transport:  # all algorithms over it count
        over = [figure for figure in evidence.figures if (figure.kind[0], figure.kind[2]) == (size, network)]
        if over and (own := draw(over)).high > band.high:
            band = replace(own, kind=f"{size}, {network}")
    return band.at_least(_usual_error(size.partition(" ")[0], evidence))


@lru_cache(maxsize=256)
def _usual_error(size: str, evidence: Evidence) -> float:
    """Return the median over clusters of the largest error for such sizes, as a logarithm."""
    worst: dict[str, float] = {}
    for figure in evidence.figures:
        if figure.kind[0].startswith(size):
            worst[figure.cluster] = max(worst.get(figure.cluster, 0.0), abs(log(figure.slowdown)))
    return median(worst.values()) if worst else 0.0


_PROPERTIES: tuple[tuple[str, Callable[[Estimate], object]], ...] = (
    ("{}", lambda estimate: estimate.collective),
    ("{}", lambda estimate: estimate.name.partition("/")[0]),
    ("{}", lambda estimate: estimate.fabric),
    ("GPUs of sm_{}", lambda estimate: estimate.cluster.sm),
    ("GPUs joined by {}", lambda estimate: estimate.cluster.joined_by if estimate.cluster.gpus > 1 else ""),
)
_COUNTS: tuple[tuple[str, Callable[[Estimate], int]], ...] = (
    ("nodes", lambda estimate: estimate.cluster.nodes),
    ("GPUs in a node", lambda estimate: estimate.cluster.gpus),
    ("bytes", lambda estimate: estimate.size_bytes),
)


def _far(estimate: Estimate, evidence: Evidence) -> list[str]:
    """Return the properties that no published time has."""
    published, largest = _bounds(evidence)
    far = [
        f"no published run of {words.format(read(estimate))}"
        for (words, read), values in zip(_PROPERTIES, published, strict=True)
        if read(estimate) and read(estimate) not in values
    ]
    for (words, read), most in zip(_COUNTS, largest, strict=True):
        if read(estimate) > BEYOND * most:
            far.append(f"{read(estimate):,} {words}, and the most that is published is {most:,}")
    return far


@lru_cache(maxsize=256)
def _bounds(evidence: Evidence) -> tuple[tuple[set[object], ...], tuple[int, ...]]:
    """Return the published values of each property, and the largest published counts."""
    estimates = [figure.estimate for figure in evidence.figures]
    return tuple(set(map(read, estimates)) for _, read in _PROPERTIES), tuple(
        max(map(read, estimates)) for _, read in _COUNTS
    )
