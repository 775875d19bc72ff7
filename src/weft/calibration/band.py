"""The band around a predicted time, and the published figures from which it is made (`weft.calibration.conformal`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

BEYOND = 2  # a value above this multiple of the largest published one is far from published figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A 90 % interval around a time: a measured one is `low` to `high` times weft's."""

    low: float
    high: float
    clusters: int  # number of clusters with published figures of the kind; for training steps, of publications
    kind: str = ""
    far: tuple[str, ...] = ()  # properties unlike any published figure

    def around(self, value: float) -> tuple[float, float]:
        return self.low * value, self.high * value


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
