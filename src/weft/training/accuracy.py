"""Errors and bands by source of published steps, each source also left out with all constants that it was used for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from weft.calibration.figure import mean_error
from weft.training.band import leave_sources_out
from weft.training.validate import Figure, validate
from weft.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Errors of several steps, as shares of the measured times."""

    mean_error: float
    bias: float  # below 0: predicted too fast
    p90: float

    @staticmethod
    def of(figures: Sequence[Figure]) -> Errors:
        errors = np.array([figure.error for figure in figures])
        p90 = float(np.quantile(np.abs(errors), 0.9))
        return Errors(mean_error=mean_error(figures), bias=float(errors.mean()), p90=p90)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceErrors:
    """The accuracy of the steps of one source, or of all."""

    source: str
    steps: int
    known: Errors
    left_out: Errors
    in_bands: int  # steps in bands that were made without their source


def source_errors() -> list[SourceErrors]:
    """Return the accuracy by source, the largest mean error of left-out sources first; then that of all together."""
    predictions = leave_sources_out()
    known: dict[str, list[Figure]] = {}
    for figure in validate():
        known.setdefault(figure.source, []).append(figure)
    rows = [
        SourceErrors(
            source=source,
            steps=len(own),
            known=Errors.of(known[source]),
            left_out=Errors.of([each.figure for each in own]),
            in_bands=sum(each.is_in_band for each in own),
        )
        for source, own in predictions.items()
    ]
    rows.sort(key=lambda row: -row.left_out.mean_error)
    together = SourceErrors(
        source="all",
        steps=sum(row.steps for row in rows),
        known=Errors.of(validate()),
        left_out=Errors.of([each.figure for own in predictions.values() for each in own]),
        in_bands=sum(row.in_bands for row in rows),
    )
    return [*rows, together]


def report() -> dict[str, Any]:
    """Return the fields of `--json`."""
    figures = validate()
    return {
        "weft": __version__,
        "mean_error": mean_error(figures),
        "sources": [asdict(row) for row in source_errors()],
        "rows": [figure.report() for figure in figures],
    }
