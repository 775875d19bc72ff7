"""Errors and bands of published figures by group, with all constants and with sources left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from weft.calibration.cross_validation import AnyFigure, Predictions, mean_width
from weft.calibration.figure import Figure, mean_error
from weft.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """The errors of several figures, as shares of the measured ones."""

    mean_error: float
    bias: float  # below 0: predicted too low
    p90: float

    @staticmethod
    def of(figures: Sequence[Figure]) -> Errors:
        errors = np.array([figure.error for figure in figures])
        p90 = float(np.quantile(np.abs(errors), 0.9))
        return Errors(mean_error=mean_error(figures), bias=float(errors.mean()), p90=p90)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupErrors:
    """The accuracy of the figures of one group."""

    name: str
    figures: int
    known: Errors
    left_out: Errors
    in_bands: int  # figures in bands that were made without their source
    width: float  # the mean factor from a prediction to an end of such a band

    @property
    def bands(self) -> tuple[str, str]:
        """Return the cells of a table for the bands: how many hold, and how wide they are."""
        return f"{self.in_bands} of {self.figures}, {self.in_bands / self.figures:.0%}", f"x{self.width:.2f}"

    @property
    def left_out_cells(self) -> tuple[str, ...]:
        """Return the cells of a table with sources left out."""
        errors = self.left_out
        shares = f"{errors.mean_error:.1%}", f"{errors.bias:+.1%}", f"{errors.p90:.1%}"
        return self.name, str(self.figures), *shares, *self.bands


def group_errors(
    known: Iterable[AnyFigure], left_out: Predictions[AnyFigure], group_of: Callable[[AnyFigure], str]
) -> list[GroupErrors]:
    """Return the accuracy by group, the largest mean error with sources left out first."""
    by_group: dict[str, list[AnyFigure]] = {}
    for figure in known:
        by_group.setdefault(group_of(figure), []).append(figure)
    predictions = [prediction for own in left_out.values() for prediction in own]
    rows = []
    for name, figures in by_group.items():
        own = [prediction for prediction in predictions if group_of(prediction.figure) == name]
        rows.append(
            GroupErrors(
                name=name,
                figures=len(own),
                known=Errors.of(figures),
                left_out=Errors.of([prediction.figure for prediction in own]),
                in_bands=sum(prediction.is_in_band for prediction in own),
                width=mean_width(own),
            )
        )
    return sorted(rows, key=lambda row: -row.left_out.mean_error)


def errors_report(
    figures: Sequence[AnyFigure], sources: Iterable[GroupErrors], classes: Iterable[GroupErrors]
) -> dict[str, Any]:
    """Return the fields of `--json` for errors by source and by class."""
    return {
        "weft": __version__,
        "mean_error": mean_error(figures),
        "sources": [asdict(row) for row in sources],
        "classes": [asdict(row) for row in classes],
    }
