"""A published figure and weft's prediction of it; errors of several."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from weft.calibration.band import Band


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published figure and weft's, in the unit of the run."""

    run: str
    measured: float
    predicted: float
    size_bytes: int = 0  # 0: a training step
    limit: float | None = None  # largest promised error; None: no promise
    cluster: str = ""  # or model: its figures are left out together
    kind: tuple[str, ...] = ()  # properties, the most important first

    @property
    def error(self) -> float:
        """The relative error: above 0 if weft's figure is too high."""
        return self.predicted / self.measured - 1

    @property
    def is_within_limit(self) -> bool | None:
        """Return whether the error is within its limit; None without a promise."""
        return None if self.limit is None else abs(self.error) <= self.limit

    @property
    def slowdown(self) -> float:
        """The published time divided by weft's."""
        return self.measured / self.predicted

    def is_in(self, band: Band) -> bool:
        return band.low <= self.slowdown <= band.high


def mean_error(figures: Iterable[Figure]) -> float:
    """Return the mean absolute error."""
    errors = [abs(figure.error) for figure in figures]
    return sum(errors) / len(errors)


def summary_cells(name: str, figures: Collection[Figure]) -> tuple[str, ...]:
    """Return the cells that all tables have: name, sizes, mean error and worst error."""
    worst = max(figures, key=lambda figure: abs(figure.error))
    place = f"{worst.error:+.0%} at {worst.size_bytes:,} B"
    return name, str(len(figures)), f"{mean_error(figures):.1%}", place
