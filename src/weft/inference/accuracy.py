"""Errors and bands of published figures of served models, by class and by source."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from weft.calibration.cross_validation import Prediction
from weft.calibration.groups import GroupErrors, errors_report, group_errors
from weft.inference.band import leave_sources_out
from weft.inference.handoff_accuracy import handoff_errors
from weft.inference.validate import Figure, validate


def source_errors() -> list[GroupErrors]:
    """Return the accuracy by source, the largest mean error of left-out sources first; then that of all together."""
    known, left_out = validate(), leave_sources_out()
    reliable = [figure for figure in known if not figure.trial]
    return [
        *group_errors(known, left_out, lambda figure: figure.source),
        *group_errors(reliable, reliable_predictions(), lambda _: "all but trials"),
        *group_errors(known, left_out, lambda _: "all"),
    ]


def reliable_predictions() -> dict[str, tuple[Prediction[Figure], ...]]:
    """Return the predictions of left-out sources that are no trials."""
    return {source: own for source, own in leave_sources_out().items() if not any(each.figure.trial for each in own)}


def class_errors() -> list[GroupErrors]:
    """Return the accuracy by class: a metric and a kind of load."""
    return group_errors(validate(), leave_sources_out(), lambda figure: figure.kind[0])


def report() -> dict[str, Any]:
    """Return the fields of `--json`."""
    figures = validate()
    return errors_report(figures, source_errors(), class_errors()) | {
        "handoffs": asdict(handoff_errors()),
        "rows": [figure.report() for figure in figures],
    }
