"""`weft train --validate`: compare published step times with weft's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.arguments import Form
from weft.cli.output import Cell, console, print_data, table

if TYPE_CHECKING:
    from weft.training.accuracy import Errors

_COLUMNS = (
    "source",
    "steps",
    "mean error %",
    "bias %",
    "p90 %",
    "left out: mean error %",
    "bias %",
    "p90 %",
    "in their bands",
)


def print_validation(form: Form) -> None:
    from weft.training.accuracy import report, source_errors
    from weft.training.validate import validate

    if form.is_data:
        print_data(form, report(), "rows")
        return
    columns = ("job, GPUs, precision, release", "measured s", "weft s", "error %", "MFU %")
    lines = [
        (
            figure.run,
            figure.measured,
            round(figure.predicted, 3),
            round(100 * figure.error, 1),
            round(100 * figure.step.mfu, 1),
        )
        for figure in validate()
    ]
    console().print(table("Published steps beside weft's", columns, lines))
    rows: list[tuple[Cell, ...]] = [
        (
            row.source,
            row.steps,
            *_percent(row.known),
            *_percent(row.left_out),
            f"{row.in_bands} of {row.steps}, {row.in_bands / row.steps:.0%}",
        )
        for row in source_errors()
    ]
    note = (
        "Left out: predicted without the constants and bands that the source was used for. Bands are to hold nine of "
        "ten steps. Constants belong to a GPU or a framework, none to a step; an ideal network. Sources: --json."
    )
    console().print(table("Errors by source", _COLUMNS, rows, note))


def _percent(errors: Errors) -> tuple[float, ...]:
    return tuple(round(100 * share, 1) for share in (errors.mean_error, errors.bias, errors.p90))
