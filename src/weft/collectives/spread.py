"""How far off a prediction may be: as far as published times of its kind were, and more where few were published.

A kind is sizes, an algorithm, a fabric and a scale. Where fewer than two clusters published times of a kind, it is
taken wider: all scales, then all fabrics, then all algorithms. The band is as wide as the worst of them is off, to both
sides, and a k-th more where they are from k clusters: another one may always be worse. What nobody published at all is
said in words. How often such bands hold on a cluster that has no part in them: `weft nccl calibration`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import exp, log

from weft.collectives.calibration import Figure, compare_all
from weft.collectives.estimate import Estimate

CLUSTERS = 2  # that make a kind
_LATENCY_BYTES, _LARGE_BYTES = 64 << 10, 256 << 20
_BEYOND = 2  # times the largest published: far


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Nine of ten times are in between."""

    low_us: float
    high_us: float
    kind: str  # in words: what the published times have in common with this one
    clusters: int  # that they are from
    far: tuple[str, ...]  # what is unlike anything published

    def __str__(self) -> str:
        far = "".join(f"; far from anything published: {why}" for why in self.far)
        return f"{self.low_us:,.1f} to {self.high_us:,.1f} us, by {self.clusters} clusters with {self.kind}{far}"


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """Times that a band is made of."""

    figures: tuple[Figure, ...]
    words: tuple[tuple[str, ...], ...]  # of each


def published(figures: Iterable[Figure]) -> Published:
    kept = tuple(figures)
    return Published(kept, tuple(_words(one.estimate) for one in kept))


@cache
def everything() -> Published:
    return published(compare_all())


def spread(made: Estimate, by: Published | None = None) -> Spread:
    """The band around a prediction, by everything that is published or by some of it."""
    known = everything() if by is None else by
    kind, clusters, width = _width(_words(made), known)
    return Spread(
        low_us=made.time_us / width,
        high_us=made.time_us * width,
        kind=kind,
        clusters=clusters,
        far=tuple(_far(made, known.figures)),
    )


def _words(made: Estimate) -> tuple[str, ...]:
    """From what counts most to what counts least: of the last ones a kind may be free."""
    size = "small" if made.size_bytes <= _LATENCY_BYTES else "large" if made.size_bytes >= _LARGE_BYTES else "middle"
    scale = min(made.cluster.nodes, 3) if made.cluster.nodes > 1 else 0
    return (
        f"{size} messages {'between nodes' if scale else 'in one node'}",
        made.name.partition("/")[0],
        made.fabric,
        {0: "one node", 2: "two nodes", 3: "more than two nodes"}[scale],
    )


@lru_cache(maxsize=256)
def _width(words: tuple[str, ...], by: Published) -> tuple[str, int, float]:
    """The kind, how many clusters, and how many times as much or as little the time may be."""
    for length in range(len(words), -1, -1):
        alike = [one for one, its in zip(by.figures, by.words, strict=True) if its[:length] == words[:length]]
        clusters = len({one.where for one in alike})
        if clusters >= CLUSTERS or not length:
            break
    worst = max(abs(log(one.measured_us / one.simulated_us)) for one in alike)
    return ", ".join(words[:length]) or "any kind", clusters, exp(worst * (1 + 1 / clusters))


def _far(made: Estimate, figures: Sequence[Figure]) -> list[str]:
    every = [one.estimate for one in figures]
    asked: tuple[tuple[str, Callable[[Estimate], object]], ...] = (
        ("{}", lambda one: one.collective),
        ("{}", lambda one: one.name.partition("/")[0]),
        ("{}", lambda one: one.fabric),
        ("GPUs of sm_{}", lambda one: one.cluster.sm),
    )
    far = [
        f"nobody published {words.format(of(made))}"
        for words, of in asked
        if of(made) not in {of(one) for one in every}
    ]
    joined_by = {one.cluster.joined_by for one in every if one.cluster.gpus > 1}
    if made.cluster.gpus > 1 and made.cluster.joined_by not in joined_by:
        far.append(f"nobody published GPUs joined by {made.cluster.joined_by}")
    for words, value, largest in (
        ("nodes", made.cluster.nodes, max(one.cluster.nodes for one in every)),
        ("GPUs in a node", made.cluster.gpus, max(one.cluster.gpus for one in every)),
        ("bytes", made.size_bytes, max(one.size_bytes for one in every)),
    ):
        if value > _BEYOND * largest:
            far.append(f"{value:,} {words}, and the most that is published is {largest:,}")
    return far
