"""The band around a prediction: as wide as the errors of published times of its kind, wider where few are published.

A kind is sizes, an algorithm, a fabric and a scale. Where fewer than two clusters published times of a kind, it is
taken wider: all scales, then all fabrics, then all algorithms. The band is as wide as the worst of them is off, to both
sides, and a k-th more where they are from k clusters: another one may always be worse. It is no narrower than what
half of all clusters would have needed for such sizes, nor than runs over the same transport of a cloud. Of a symmetric
kernel, a transport, a rack, GPUs without NVSwitches, or in one node a generation of GPUs that nobody published, and of
an algorithm that fewer than two clusters did, all algorithms count, as if they were from one cluster: what is off in
rings says little of pairs. What nobody published at all is said in words. No time is shorter than what every GPU has to
receive takes on its NVLinks. How often such bands hold on a cluster that has no part in them: `weft nccl calibration`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import exp, log
from statistics import median

from weft.collectives.kinds import Collective
from weft.collectives.nccl.calibration import Figure, compare_all
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.estimate import Estimate

CLUSTERS = 2  # that make a kind
_LATENCY_BYTES, _LARGE_BYTES = 64 << 10, 256 << 20
_SERVER_GPUS = 8  # more are a rack
_BEYOND = 2  # times the largest published: far
_WITH_ALGORITHM = 2  # words of a kind, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A 90 % band around a time."""

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
    """The published times that define a band."""

    figures: tuple[Figure, ...]
    words: tuple[tuple[str, ...], ...]  # of each


def published(figures: Iterable[Figure]) -> Published:
    kept = tuple(figures)
    return Published(kept, tuple(_words(one.estimate) for one in kept))


@cache
def everything() -> Published:
    return published(compare_all())


def spread(made: Estimate, by: Published | None = None) -> Spread:
    """Return the band around a prediction, by all published times or by some."""
    known = everything() if by is None else by
    kind, clusters, width = _width(_words(made), _rare(made), known)
    return Spread(
        low_us=min(max(made.time_us / width, _least_us(made)), made.time_us),
        high_us=made.time_us * width,
        kind=kind,
        clusters=clusters,
        far=tuple(_far(made, known)),
    )


def _least_us(made: Estimate) -> float:
    """Return the least time in one node: that of the bytes that a GPU must receive on its NVLinks."""
    cluster = made.cluster
    if cluster.nodes > 1 or not cluster.nvswitch:
        return 0.0
    line = cluster.nvlink_gbyte_s / cluster.link_gbyte_s * constants().of_sm(cluster.sm).nvlink_line_gbyte_s
    return min(1.0, made.collective.bus_factor(cluster.ranks)) * made.size_bytes / line / 1000


def _words(made: Estimate) -> tuple[str, ...]:
    """Return the properties that define a kind, the most important first; the last ones may be dropped."""
    size = "small" if made.size_bytes <= _LATENCY_BYTES else "large" if made.size_bytes >= _LARGE_BYTES else "middle"
    scale = min(made.cluster.nodes, 3) if made.cluster.nodes > 1 else 0
    return (
        f"{size} messages {'between nodes' if scale else 'in one node'}",
        _algorithm(made),
        made.transport or made.fabric,
        {0: "one node", 2: "two nodes", 3: "more than two nodes"}[scale],
    )


def _algorithm(made: Estimate) -> str:
    """Return the algorithm; the open ring of broadcast and reduce counts as another one."""
    return "Line" if made.collective in (Collective.BROADCAST, Collective.REDUCE) else made.name.partition("/")[0]


def _rare(made: Estimate) -> str:
    """Return a property that few published: a kernel, a transport, a board, or in one node the GPUs."""
    cluster = made.cluster
    board = (
        "rack" if cluster.gpus > _SERVER_GPUS else "" if cluster.nvswitch or cluster.gpus == 1 else cluster.joined_by
    )
    return made.kernel or made.transport or board or (f"sm_{cluster.sm}" if cluster.nodes == 1 else "")


@lru_cache(maxsize=256)
def _width(words: tuple[str, ...], rare: str, by: Published) -> tuple[str, int, float]:
    """Return the kind, its number of clusters, and the factor by which a time may be off."""
    unseen = bool(rare) and rare not in {_rare(one.estimate) for one in by.figures}
    carried = rare == words[2]  # by a transport of a cloud's: such runs say nothing of networks that are known
    both = zip(by.figures, by.words, strict=True)
    every = [pair for pair in both if carried or unseen or not pair[0].estimate.transport]
    for length in range(1 if unseen else len(words), -1, -1):
        alike = [one for one, its in every if its[:length] == words[:length]]
        clusters = len({one.where for one in alike})
        if clusters >= CLUSTERS or not length:
            break
    wide = _worst(alike, 1 if length < _WITH_ALGORITHM else clusters)
    kind = ", ".join(words[:length]) or "any kind"
    if carried:  # what ran over it counts, by whatever algorithm
        over = [one for one, its in every if (its[0], its[2]) == (words[0], words[2])]
        witnesses = len({one.where for one in over})
        if over and (own := _worst(over, witnesses)) > wide:
            kind, clusters, wide = f"{words[0]}, {words[2]}", witnesses, own
    return kind, clusters, exp(max(wide, _usual(words[0].partition(" ")[0], by)))


def _worst(alike: Sequence[Figure], clusters: int) -> float:
    return max(map(_off, alike)) * (1 + 1 / clusters)


def _off(one: Figure) -> float:
    return abs(log(one.measured_us / one.simulated_us))


@lru_cache(maxsize=256)
def _usual(size: str, by: Published) -> float:
    """Return the median over clusters of the largest error for such sizes."""
    worst: dict[str, float] = {}
    for one, words in zip(by.figures, by.words, strict=True):
        if words[0].startswith(size):
            worst[one.where] = max(worst.get(one.where, 0.0), _off(one))
    return median(worst.values()) if worst else 0.0


_ASKED: tuple[tuple[str, Callable[[Estimate], object]], ...] = (
    ("{}", lambda one: one.collective),
    ("{}", lambda one: one.name.partition("/")[0]),
    ("{}", lambda one: one.fabric),
    ("GPUs of sm_{}", lambda one: one.cluster.sm),
    ("GPUs joined by {}", lambda one: one.cluster.joined_by if one.cluster.gpus > 1 else ""),
)
_COUNTED: tuple[tuple[str, Callable[[Estimate], int]], ...] = (
    ("nodes", lambda one: one.cluster.nodes),
    ("GPUs in a node", lambda one: one.cluster.gpus),
    ("bytes", lambda one: one.size_bytes),
)


def _far(made: Estimate, by: Published) -> list[str]:
    seen, most = _bounds(by)
    far = [
        f"nobody published {words.format(of(made))}"
        for (words, of), known in zip(_ASKED, seen, strict=True)
        if of(made) and of(made) not in known
    ]
    for (words, of), largest in zip(_COUNTED, most, strict=True):
        if of(made) > _BEYOND * largest:
            far.append(f"{of(made):,} {words}, and the most that is published is {largest:,}")
    return far


@lru_cache(maxsize=256)
def _bounds(by: Published) -> tuple[tuple[set[object], ...], tuple[int, ...]]:
    """Return the published values of each property, and the largest published counts."""
    every = [one.estimate for one in by.figures]
    return tuple(set(map(of, every)) for _, of in _ASKED), tuple(max(map(of, every)) for _, of in _COUNTED)
