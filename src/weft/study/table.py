"""One tidy table: a row for each row of a run's result, in the order of the grid.

    hosts  size  goodput_gbit_s  latency_us.p50  …  status  error  weft   command
    64     64K   8646.5          3.88               ok             0.1.0  sim fat-tree:hosts=64 --size=64K

Repeated studies give the same bytes: the run time of weft itself is only in the journal.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, find_named
from weft.fabric.files.atomic import write_atomically
from weft.study.grid import Run, Study
from weft.study.worker import Outcome
from weft.version import __version__

Row = dict[str, Any]
MACHINE_DEPENDENT = {"wall_s", "packet_hops_per_s", "calculation_s"}  # results that vary between machines and runs
_OWN = ("status", "error", "weft", "command")


def rows_of(study: Study, outcomes: Mapping[int, Outcome]) -> tuple[list[str], list[Row]]:
    """Return columns and rows: the changing options, then results, then the outcome of the run."""
    reserved = [*study.names, *_OWN]
    runs = [(_options(run, outcomes[run.place]), outcomes[run.place]) for run in study.runs()]
    names = dict.fromkeys(name for _, outcome in runs for row in outcome.rows for name in row)
    results = {name: f"result.{name}" if name in reserved else name for name in names if _is_reproducible(name)}
    for name in set(results) & set(reserved):
        if all(
            str(options[name]) == str(row[name]) for options, outcome in runs for row in outcome.rows if name in row
        ):
            del results[name]  # repeats the option in every row
    rows = [
        options | {column: row.get(name) for name, column in results.items()}
        for options, outcome in runs
        for row in outcome.rows or [{}]
    ]
    return [*study.names, *results.values(), *_OWN], rows


def _options(run: Run, outcome: Outcome) -> Row:
    about = {"status": outcome.status, "error": outcome.error, "weft": __version__, "command": shlex.join(run.words)}
    return about | run.values


def _is_reproducible(name: str) -> bool:
    return name.rpartition(".")[2] not in MACHINE_DEPENDENT


# -- files ------------------------------------------------------------------------------------------------------------


def check_path(path: Path) -> None:
    """Raise ConfigError before a long run if the table could not be written after it."""
    find_named("table format", path.suffix, FORMS, f"The suffix of {path} gives the format.")
    if path.suffix.lower() == ".parquet":
        _arrow()


def write(path: Path, columns: list[str], rows: list[Row]) -> None:
    write_atomically(path, FORMS[path.suffix.lower()](columns, rows))


def to_csv(columns: list[str], rows: list[Row]) -> bytes:
    text = io.StringIO()
    to = csv.DictWriter(text, columns, lineterminator="\n")
    to.writeheader()
    to.writerows(rows)
    return text.getvalue().encode()


def to_parquet(columns: list[str], rows: list[Row]) -> bytes:
    arrow = _arrow()
    from pyarrow import parquet

    table = arrow.table({name: _column(arrow, [row.get(name) for row in rows]) for name in columns})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def _column(arrow: Any, values: list[Any]) -> Any:
    """Return an array; numbers stay numbers, mixed types become text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str} or (len(kinds) > 1 and kinds != {int, float}):
        return arrow.array([None if value is None else str(value) for value in values], arrow.string())
    return arrow.array(values, arrow.float64() if float in kinds else None)


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ConfigError("Parquet needs pyarrow: pip install 'weft-fabric[parquet]'; or write .csv") from None
    return pyarrow


FORMS: dict[str, Callable[[list[str], list[Row]], bytes]] = {".csv": to_csv, ".parquet": to_parquet}
