"""Errors and bands of published steps by source and by class; with sources left out, also without their constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from weft.calibration.cross_validation import Prediction
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
class GroupErrors:
    """The accuracy of the steps of one source or class, or of all."""

    name: str
    steps: int
    known: Errors
    left_out: Errors
    in_bands: int  # steps in bands that were made without their source


def source_errors() -> list[GroupErrors]:
    """Return the accuracy by source, the largest mean error of left-out sources first; then that of all together."""
    return [*_group_errors(lambda figure: figure.source), *_group_errors(lambda _: "all")]


def class_errors() -> list[GroupErrors]:
    """Return the accuracy by class: with experts or without, and a generation of GPUs."""
    return _group_errors(lambda figure: ", ".join(figure.kind[:2]))


def _group_errors(group_of: Callable[[Figure], str]) -> list[GroupErrors]:
    known: dict[str, list[Figure]] = {}
    for figure in validate():
        known.setdefault(group_of(figure), []).append(figure)
    left_out: dict[str, list[Prediction[Figure]]] = {}
    for prediction in (each for own in leave_sources_out().values() for each in own):
        left_out.setdefault(group_of(prediction.figure), []).append(prediction)
    rows = [
        GroupErrors(
            name=name,
            steps=len(own),
            known=Errors.of(known[name]),
            left_out=Errors.of([each.figure for each in own]),
            in_bands=sum(each.is_in_band for each in own),
        )
        for name, own in left_out.items()
    ]
    return sorted(rows, key=lambda row: -row.left_out.mean_error)


def report() -> dict[str, Any]:
    """Return the fields of `--json`."""
    figures = validate()
    return {
        "weft": __version__,
        "mean_error": mean_error(figures),
        "sources": [asdict(row) for row in source_errors()],
        "classes": [asdict(row) for row in class_errors()],
        "rows": [figure.report() for figure in figures],
    }
