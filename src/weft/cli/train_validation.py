"""`weft train --validate`: compare published step times with weft's."""

from __future__ import annotations

from weft.cli.arguments import Form
from weft.cli.output import console, print_data, table


def print_validation(form: Form) -> None:
    from weft.training.validate import mean_error, report, validate

    rows = validate()
    if form.is_data:
        print_data(form, report(rows), "rows")
        return
    columns = ("job, GPUs, precision, release", "measured s", "weft s", "error %", "MFU %")
    lines = [
        (
            row.published.name,
            row.published.step_s,
            round(row.step.step_s, 3),
            round(100 * row.error, 1),
            round(100 * row.step.mfu, 1),
        )
        for row in rows
    ]
    note = (
        f"{len(rows)} steps, off by {100 * mean_error(rows):.1f} % in the mean. One set of constants for each type of "
        "GPU, none for a row; an ideal network. Sources: --json."
    )
    console().print(table("Published steps beside weft's", columns, lines, note))
