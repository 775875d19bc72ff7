"""Errors and bands of published steps by source and by class; with sources left out, also without their constants."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from weft.calibration.groups import GroupErrors, errors_report, group_errors
from weft.training.band import leave_sources_out
from weft.training.validate import SOURCES, validate


def source_errors() -> list[GroupErrors]:
    """Return the accuracy by source, the largest mean error of left-out sources first; then that of all together."""
    known, left_out = validate(), leave_sources_out()
    return [
        *group_errors(known, left_out, lambda figure: figure.source),
        *group_errors(known, left_out, lambda _: "all"),
    ]


def class_errors() -> list[GroupErrors]:
    """Return the accuracy by class: with experts or without, and a generation of GPUs."""
    return group_errors(validate(), leave_sources_out(), lambda figure: ", ".join(figure.kind[:2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """The steps of a source that fit into the memory of their GPUs by their recipe, and the names of the others."""

    source: str
    steps: int
    fit: int
    others: tuple[str, ...]


def source_fits() -> list[Fits]:
    """Return the steps that fit, by source."""
    rows = []
    for source in SOURCES:
        own = [figure for figure in validate() if figure.source == source]
        others = tuple(figure.run for figure in own if not figure.fits)
        rows.append(Fits(source=source, steps=len(own), fit=len(own) - len(others), others=others))
    return rows


def report() -> dict[str, Any]:
    """Return the fields of `--json`."""
    figures = validate()
    return errors_report(figures, source_errors(), class_errors()) | {
        "memory": [asdict(row) for row in source_fits()],
        "rows": [figure.report() for figure in figures],
    }
