"""`weft train --validate`: compare published step times with weft's."""

from __future__ import annotations

from weft.cli.arguments import Form
from weft.cli.output import console, print_data, table


def print_validation(form: Form) -> None:
    from weft.calibration.figure import mean_error
    from weft.training.validate import report, validate

    figures = validate()
    if form.is_data:
        print_data(form, report(figures), "rows")
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
        for figure in figures
    ]
    note = (
        f"{len(figures)} steps, off by {100 * mean_error(figures):.1f} % in the mean. One set of constants for each "
        "type of GPU, none for a row; an ideal network. Sources: --json."
    )
    console().print(table("Published steps beside weft's", columns, lines, note))
