"""Write the messages of a run and the samples of its watched ports as tables: CSV, messages also as Parquet.

write_messages("messages.parquet", result)     src, dst, size_bytes, start_ps, finish_ps, latency_us, retransmitted
write_samples("ports.csv", result)             time_us, port, and a column for each quantity
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import ConfigError
from weft.fabric.files.atomic import write_atomically
from weft.sim.result import NEVER, Result

Columns = Mapping[str, Sequence[Any]]


def check_columns_file(path: Path | str, option: str = "--write-messages") -> None:
    """Raise ConfigError if a table cannot be written to a file of this name."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise ConfigError(f"{option} {path}: its suffix must be .csv or .parquet")
    if suffix == ".parquet":
        _import_pyarrow()


def check_samples_file(path: Path | str) -> None:
    """Raise ConfigError if samples cannot be written to a file of this name."""
    if Path(path).suffix.lower() != ".csv":
        raise ConfigError(f"--write-samples {path}: its suffix must be .csv")


def write_messages(path: Path | str, result: Result) -> None:
    """Write a row for each message; one that did not arrive has an empty finish and latency."""
    check_columns_file(path)
    write_columns(path, _message_columns(result))


def write_columns(path: Path | str, columns: Columns) -> None:
    """Write a table of equally long columns as CSV or Parquet, by the suffix of the file."""
    if Path(path).suffix.lower() == ".csv":
        write_atomically(path, _to_csv(columns))
        return
    arrow, parquet = _import_pyarrow()
    out = io.BytesIO()
    parquet.write_table(arrow.table(dict(columns)), out)
    write_atomically(path, out.getvalue())


def write_samples(path: Path | str, result: Result) -> None:
    """Write a row for each time and watched port, until all messages had arrived."""
    check_samples_file(path)
    samples = result.samples
    if not samples.port:
        raise ConfigError("no port was watched: name some in Options.watch, or with --watch leaf1/3")
    shown = samples.until(result.last_arrival_ps)
    columns: dict[str, list[Any]] = {
        "time_us": np.repeat(shown.time_ps / 1e6, len(shown.port)).tolist(),
        "port": list(shown.port) * len(shown.time_ps),
    }
    for name, values in shown.quantities().items():
        columns[name] = ["" if np.isnan(value) else value for value in values.ravel().tolist()]
    write_atomically(path, _to_csv(columns))


def _message_columns(result: Result) -> Columns:
    traffic = result.traffic
    slots = np.unique(np.concatenate((traffic.src, traffic.dst))).tolist()
    names = {slot: result.fabric.port(slot).name for slot in slots}
    arrived = (result.finish_ps != NEVER).tolist()
    finish, latency = result.finish_ps.tolist(), (result.latency_ps / 1e6).tolist()
    return {
        "src": [names[slot] for slot in traffic.src.tolist()],
        "dst": [names[slot] for slot in traffic.dst.tolist()],
        "size_bytes": traffic.size_bytes.tolist(),
        "start_ps": result.start_ps.tolist(),
        "finish_ps": [at if done else None for at, done in zip(finish, arrived, strict=True)],
        "latency_us": [us if done else None for us, done in zip(latency, arrived, strict=True)],
        "retransmitted": result.retransmitted.tolist(),
    }


def _to_csv(columns: Columns) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError("Parquet needs pyarrow: pip install 'weft-fabric[parquet]'; or write .csv") from None
    return pyarrow, pyarrow.parquet
