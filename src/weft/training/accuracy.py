"""Errors and bands of published steps by source and by class; with sources left out, also without their constants."""

from __future__ import annotations

from typing import Any

from weft.calibration.groups import GroupErrors, errors_report, group_errors
from weft.training.band import leave_sources_out
from weft.training.validate import validate


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


def report() -> dict[str, Any]:
    """Return the fields of `--json`."""
    figures = validate()
    return errors_report(figures, source_errors(), class_errors()) | {"rows": [figure.report() for figure in figures]}
