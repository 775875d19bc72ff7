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

Cell = str | int | float | None
_kept: ContextVar[list[dict[str, Any]] | None] = ContextVar("kept", default=None)


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """As `print` does it: `weft.cli.main` knows what it means."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Standard output, or error; a pipe or a file gets the full width, so that nothing is cut."""
    is_screen = (sys.stderr if stderr else sys.stdout).isatty()
    return _Screen(stderr=stderr, highlight=False, soft_wrap=not is_screen, width=None if is_screen else 160)


def print_data(form: Form, facts: Any, *records: str) -> None:
    """The facts as JSON; or as CSV, where those under these names are the rows, else the facts themselves."""
    kept = _kept.get()
    if form.json and kept is None:
        print(json.dumps(facts, indent=2, default=str))
        return
    rows = [dict(_cells(one)) for one in _records(facts, records)]
    if kept is not None:
        kept += json.loads(json.dumps(rows, default=str))
        return
    columns = dict.fromkeys(column for row in rows for column in row)
    to = csv.DictWriter(sys.stdout, [*columns], lineterminator="\n")
    to.writeheader()
    to.writerows(rows)


@contextmanager
def keep_rows() -> Iterator[list[dict[str, Any]]]:
    """For who runs a command instead of a user: rows as of its CSV come here, in kinds that JSON has."""
    rows: list[dict[str, Any]] = []
    before = _kept.set(rows)
    try:
        yield rows
    finally:
        _kept.reset(before)


def _records(facts: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    if not names:
        return facts if isinstance(facts, list) else [facts]
    if isinstance(facts, list):  # what is inside of a record carries what is around it
        return [one | {name: below} for one in facts for name in names for below in one[name]]
    which = len(names) > 1
    return [({"table": name} if which else {}) | one for name in names for one in facts[name]]


def _cells(record: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Column and value; records inside of a record are tables of their own, and only the JSON has them."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _cells(value, f"{before}{name}.")
        elif not isinstance(value, list | tuple):
            yield f"{before}{name}", value
        elif not any(isinstance(one, dict) for one in value):
            yield f"{before}{name}", "; ".join(map(str, value))


def say_written(*paths: Path | None, before: str = "") -> None:
    """That files are there now; not in the midst of one, if standard output is what was written."""
    from weft.fabric.files.streams import descriptor

    for path in filter(None, paths):
        if descriptor(path, 1) != 1:
            print(f"{before}{path}: written")


@dataclass(frozen=True, slots=True)
class table:  # noqa: N801  commands say out.print(table(...))
    """A plain table, to print: numbers right, words left, thousands with commas. No screen breaks it inside a word.

    Cells are wrapped between words where that is enough; else columns go below each other, each part with the first.
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
            made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for i, width in _widths(part, least, most, options.max_width).items():
                numeric = any(isinstance(row[i], int | float) for row in self.rows)
                made.add_column(columns[i][0], justify="right" if numeric else "left", overflow="fold", width=width)
            for cells in zip(*(columns[i][1:] for i in part), strict=True):
                made.add_row(*cells)
            yield made
        if self.note:
            yield Text(self.note, style="dim")


def _parts(least: Sequence[int], most: Sequence[int], room: int) -> list[list[int]]:
    """All columns, where their longest words fit side by side; else as many at a time as fit unwrapped."""
    if sum(least) + 3 * len(least) - 1 <= room:
        return [[*range(len(least))]]
    parts = [[0]]
    for i in range(1, len(most)):
        if len(parts[-1]) > 1 and sum(most[j] for j in (*parts[-1], i)) + 3 * len(parts[-1]) + 2 > room:
            parts.append([0])
        parts[-1].append(i)
    return parts


def _widths(part: Sequence[int], least: Sequence[int], most: Sequence[int], room: int) -> dict[int, int]:
    """Of each column: what it would like, less where it is widest, down to its longest word."""
    widths = {i: most[i] for i in part}
    while sum(widths.values()) + 3 * len(part) - 1 > room and (wide := [i for i in part if widths[i] > least[i]]):
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _show(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.4g}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _tell_by_lines(what: str) -> Callable[..., None]:
    told = ""

    def change(**words: Any) -> None:
        nonlocal told
        line = words.get("description", what)
        if line != told:
            told = line
            print(line, file=sys.stderr, flush=True)

    change()
    return change


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[..., None]]:
    """A bar on standard error that goes away, if that is a terminal; yields what changes it, in rich's words.

    With WEFT_PROGRESS=lines it is a line whenever there is something new to say, for who reads what a process prints.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield _tell_by_lines(what) if os.environ.get("WEFT_PROGRESS") == "lines" else lambda **words: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def change(**words: Any) -> None:
            bar.update(task, **words)
            bar.refresh()  # kernels do not let the bar's own clock run

        yield change
