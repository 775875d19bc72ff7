"""Printing: a table for people, or the same as JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from weft.cli.arguments import Form
from weft.errors import ConfigError

Cell = str | int | float | None
_collector: ContextVar[list[dict[str, Any]] | None] = ContextVar("collector", default=None)
_PIPE_WIDTH = 160


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Raise as `print` does; `weft.cli.main` handles it."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return a console for standard output or error. Text is wrapped on a screen, and in a pipe if COLUMNS is set."""
    is_screen = (sys.stderr if stderr else sys.stdout).isatty()
    has_width = is_screen or os.environ.get("COLUMNS", "").isdecimal()
    return _Screen(stderr=stderr, highlight=False, soft_wrap=not has_width, width=None if has_width else _PIPE_WIDTH)


def check_explain(explain: bool, form: Form) -> None:
    """Refuse `--explain` with `--json` or `--csv`, which contain everything."""
    if explain and form.is_data:
        raise ConfigError("--explain changes nothing here: --json and --csv contain everything. Leave it out")


def print_data(form: Form, facts: Any, *records: str) -> None:
    """Print facts as JSON, or as CSV with one row per record. `records` names the lists that are the rows."""
    collector = _collector.get()
    if form.json and collector is None:
        print(json.dumps(facts, indent=2, default=str))
        return
    rows = [dict(_cells(record)) for record in _records(facts, records)]
    if collector is not None:
        collector += json.loads(json.dumps(rows, default=str))
        return
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(sys.stdout, [*columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


@contextmanager
def collect_rows() -> Iterator[list[dict[str, Any]]]:
    """Collect the rows of a command's CSV instead of printing them; values have JSON types."""
    rows: list[dict[str, Any]] = []
    token = _collector.set(rows)
    try:
        yield rows
    finally:
        _collector.reset(token)


def _records(facts: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    if not names:
        return facts if isinstance(facts, list) else [facts]
    if isinstance(facts, list):  # an inner record repeats the values of its outer record
        return [outer | {name: inner} for outer in facts for name in names for inner in outer[name]]
    has_several = len(names) > 1
    return [({"table": name} if has_several else {}) | record for name in names for record in facts[name]]


def _cells(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield column and value of a record. Lists of records are tables of their own and only in the JSON."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _cells(value, f"{prefix}{name}.")
        elif not isinstance(value, list | tuple):
            yield f"{prefix}{name}", value
        elif not any(isinstance(item, dict) for item in value):
            yield f"{prefix}{name}", "; ".join(map(str, value))


def report_written(*paths: Path | None, prefix: str = "") -> None:
    """Print the names of the files that were written, unless the file is standard output itself."""
    from weft.fabric.files.text import descriptor

    for path in filter(None, paths):
        if descriptor(path, 1) != 1:
            print(f"{prefix}{path}: written")


@dataclass(frozen=True, slots=True)
class table:  # noqa: N801  commands say out.print(table(...))
    """A plain table: numbers right-aligned, words left-aligned, thousands with commas. No word is broken.

    Cells wrap between words. If the longest words do not fit side by side, the table is printed in several parts, each
    with the first column.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [[name, *(_show(row[i]) for row in self.rows)] for i, name in enumerate(self.columns)]
        sizes = [[Measurement.get(console, options, cell) for cell in column] for column in columns]
        least, most = ([max(size[i] for size in column) for column in sizes] for i in (0, 1))
        if self.title:
            yield Text(self.title, style="bold")
        for part in _parts(least, most, options.max_width):
            rendered = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for i, width in _widths(part, least, most, options.max_width).items():
                justify = "right" if any(isinstance(row[i], int | float) for row in self.rows) else "left"
                rendered.add_column(columns[i][0], justify=justify, overflow="fold", width=width)  # type: ignore[arg-type]
            for cells in zip(*(columns[i][1:] for i in part), strict=True):
                rendered.add_row(*cells)
            yield rendered
        if self.note:
            yield Text(self.note, style="dim")


def _parts(least: Sequence[int], most: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns of each part: all in one part if their longest words fit, else as many as fit unwrapped."""
    if sum(least) + 3 * len(least) - 1 <= width:
        return [[*range(len(least))]]
    parts = [[0]]
    for i in range(1, len(most)):
        if len(parts[-1]) > 1 and sum(most[j] for j in (*parts[-1], i)) + 3 * len(parts[-1]) + 2 > width:
            parts.append([0])
        parts[-1].append(i)
    return parts


def _widths(part: Sequence[int], least: Sequence[int], most: Sequence[int], width: int) -> dict[int, int]:
    """Return the width of each column: unwrapped if possible, else the widest shrink down to their longest word."""
    widths = {i: most[i] for i in part}
    while sum(widths.values()) + 3 * len(part) - 1 > width and (wide := [i for i in part if widths[i] > least[i]]):
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _show(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _print_progress_lines(description: str) -> Callable[..., None]:
    printed = ""

    def change(**options: Any) -> None:
        nonlocal printed
        line = options.get("description", description)
        if line != printed:
            printed = line
            print(line, file=sys.stderr, flush=True)

    change()
    return change


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error if that is a terminal; yield the function that updates it.

    The function takes the options of rich's `Progress.update`. With WEFT_PROGRESS=lines each new description is
    printed as a line, for programs that read it.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        is_lines = os.environ.get("WEFT_PROGRESS") == "lines"
        yield _print_progress_lines(description) if is_lines else lambda **options: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)

        def change(**options: Any) -> None:
            bar.update(task, **options)
            bar.refresh()  # the bar's own thread does not run while a kernel does

        yield change
