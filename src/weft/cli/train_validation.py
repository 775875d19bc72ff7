"""`weft train --validate`: published steps beside weft's."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import Form
from weft.cli.output import console, print_data, table

if TYPE_CHECKING:
    from weft.training.validate import Row


def print_validation(form: Form) -> None:
    from weft.training.validate import validate
    from weft.version import __version__

    rows = validate()
    mean_error = mean(abs(row.error) for row in rows)
    if form.is_data:
        print_data(form, {"weft": __version__, "mean_error": mean_error, "rows": [_facts(row) for row in rows]}, "rows")
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
        f"{len(rows)} steps, off by {100 * mean_error:.1f} % in the mean. One set of constants for each type of GPU, "
        "none for a row; an ideal network. Sources: --json."
    )
    console().print(table("Published steps beside weft's", columns, lines, note))


def _facts(row: Row) -> dict[str, Any]:
    one, step = row.published, row.step
    return {
        "name": one.name,
        "model": one.model,
        "server": one.server,
        "layout": one.layout,
        "overrides": one.overrides,
        "measured_s": one.step_s,
        "step_s": step.step_s,
        "error": row.error,
        "mfu": step.mfu,
        "parts": step.parts,
        "source": one.source,
        "date": one.date,
    }
