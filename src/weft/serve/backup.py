"""Backups of the service's database: all tables in one file, which can be restored to SQLite or PostgreSQL.

    {"weft": "0.1.0", "layout": 2, "at_s": 1.7e9}
    {"table": "slices", "row": {"p_key": 257, ...}}
    ...
    {"rows": 1234, "sha256": "..."}                 of all lines before it

The backup is read in one transaction, so it is consistent while a service writes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Table, delete, func, insert, select

from weft.errors import ConfigError
from weft.serve.audit import DONE, new_line
from weft.serve.schema import AUDIT, CHAINS, LAYOUT, LEDGER, META
from weft.serve.store import Store
from weft.version import __version__

_AT_ONCE = 500  # rows


def back_up(store: Store, path: Path) -> int:
    """Write a database to a file that only its owner can read. Return the number of rows."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            digest, rows = hashlib.sha256(), -1
            for line in _lines(store):
                file.write(line)
                digest.update(line)
                rows += 1
            file.write(msgspec.json.encode({"rows": rows, "sha256": digest.hexdigest()}) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return rows


def _lines(store: Store) -> Iterator[bytes]:
    yield msgspec.json.encode({"weft": __version__, "layout": LAYOUT, "at_s": time.time()}) + b"\n"
    with store.reading() as connection:
        for table in META.sorted_tables:
            for row in connection.execute(select(table)).yield_per(_AT_ONCE).mappings():
                plain = {str(name): value for name, value in row.items()}
                yield msgspec.json.encode({"table": str(table.name), "row": plain}) + b"\n"


def restore(store: Store, path: Path, actor: str) -> int:
    """Fill an empty database from a backup. Return the number of rows."""
    rows = _check(path)
    with store.writing() as transaction, path.open("rb") as file:
        connection = transaction.connection
        if transaction.revision or connection.execute(select(func.count()).select_from(AUDIT)).scalar_one():
            raise ConfigError(f"{store.title} is not empty: give a new --database, or move the old one away")
        for table in (LEDGER, CHAINS):
            connection.execute(delete(table))
        next(file)
        waiting: list[dict[str, Any]] = []
        table = LEDGER
        for line in file:
            entry = msgspec.json.decode(line)
            if len(waiting) == _AT_ONCE or entry.get("table") != table.name:
                _insert(connection, table, waiting)
                waiting = []
            if "table" in entry:
                table = META.tables[entry["table"]]
                waiting.append(entry["row"])
        if connection.dialect.name == "postgresql":  # set its id sequence to the restored rows
            counter = func.pg_get_serial_sequence(AUDIT.name, AUDIT.c.id.name)
            last = select(func.coalesce(func.max(AUDIT.c.id), 1)).scalar_subquery()
            connection.execute(select(func.setval(counter, last)))
        revision = connection.execute(select(LEDGER.c.revision)).scalar_one()
        transaction.audit([new_line(actor, f"weft serve restore {path.name}", DONE, revision)])
        transaction.commit()
    return rows


def _insert(connection: Any, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _check(path: Path) -> int:
    """Check that a backup is complete and of this layout; return its number of rows."""
    digest, last, rows = hashlib.sha256(), b"", -1
    try:
        with path.open("rb") as file:
            first = last = file.readline()
            for line in file:
                digest.update(last)
                rows += 1
                last = line
        begin, end = msgspec.json.decode(first), msgspec.json.decode(last)
        is_whole = (end["rows"], end["sha256"]) == (rows, digest.hexdigest())
        layout, version = begin["layout"], begin["weft"]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, KeyError, TypeError):
        raise ConfigError(f"{path} is not a backup of weft serve, or is truncated") from None
    if not is_whole:
        raise ConfigError(f"{path} is damaged (wrong checksum): use another backup")
    if layout != LAYOUT:
        raise ConfigError(
            f"{path} has layout {layout}, this weft has {LAYOUT}: restore it with weft {version}, then upgrade"
        )
    return rows
