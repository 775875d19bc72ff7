"""The band around a figure, as wide as the errors of published figures of its kind.

A kind is a tuple of properties, the most important first. If fewer than two clusters published figures of a kind, its
last properties are dropped until there are two. The band covers the errors of all clusters and is wider by 1/k for k
clusters, since another cluster may be worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import Protocol, Self, TypeVar

import numpy as np

CLUSTERS = 2  # least number with published figures of a kind
BEYOND = 2  # a value above this multiple of the largest published one is far from published figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A 90 % interval around a time: a measured one is `low` to `high` times weft's."""

    low: float
    high: float
    clusters: int  # number of clusters with published figures of the kind; for training steps, of models
    kind: str = ""
    far: tuple[str, ...] = ()  # properties unlike any published figure

    def around(self, value: float) -> tuple[float, float]:
        return self.low * value, self.high * value

    def at_least(self, width: float) -> Self:
        """Return the band with at least this width to both sides, as a logarithm."""
        return replace(self, low=min(self.low, exp(-width)), high=max(self.high, exp(width)))


class Published(Protocol):
    """A published figure, as bands need it."""

    @property
    def cluster(self) -> str: ...
    @property
    def kind(self) -> tuple[str, ...]: ...
    @property
    def slowdown(self) -> float: ...


AnyFigure = TypeVar("AnyFigure", bound=Published)


def by_kind(figures: Iterable[AnyFigure]) -> dict[tuple[str, ...], list[AnyFigure]]:
    """Return the figures of each kind and of every wider one; () has all."""
    kinds: dict[tuple[str, ...], list[AnyFigure]] = {}
    for figure in figures:
        for length in range(len(figure.kind) + 1):
            kinds.setdefault(figure.kind[:length], []).append(figure)
    return kinds


def count_clusters(figures: Iterable[Published]) -> int:
    return len({figure.cluster for figure in figures})


def narrowest(kind: tuple[str, ...], clusters: Callable[[tuple[str, ...]], int], least: int = 0) -> tuple[str, ...]:
    """Return the narrowest kind that enough clusters published; `least` properties are always kept."""
    wider = (kind[:length] for length in range(len(kind), least, -1))
    return next((each for each in wider if clusters(each) >= CLUSTERS), kind[:least])


def draw(figures: Sequence[Published], *, coverage: float = 1.0, symmetric: bool = True, clusters: int = 0) -> Band:
    """Return the band of figures of one kind.

    :param coverage: The share of each cluster's figures that the band covers.
    :param symmetric: Whether the band is as wide to both sides.
    :param clusters: The number of clusters that the width assumes, if it is not that of the figures.
    """
    errors: dict[str, list[float]] = {}
    for figure in figures:
        errors.setdefault(figure.cluster, []).append(log(figure.slowdown))
    outside = (1 - coverage) / 2
    ends = [np.quantile(logs, (outside, 1 - outside)).tolist() for logs in errors.values()]
    more = 1 + 1 / (clusters or len(errors))
    low, high = more * min(end[0] for end in ends), more * max(end[1] for end in ends)
    if symmetric:
        low, high = min(low, -high), max(high, -low)
    return Band(low=exp(low), high=exp(high), clusters=len(errors))
