"""The history of a fabric in a database: facts with the times between which they held.

    history = History("sqlite:///fabric.db")
    for difference in history.record(time.time(), read_facts(...)):
        print(difference)
    history.state(at_s)                      all facts at one moment
    history.changes(name="leaf1/5")          when did this cable move?

A fact is a subject and its value: `link leaf1/5` is `spine1/1 4xNDR`. A poll that finds another value ends the old fact
and begins a new one, in one transaction; an unchanged poll only moves the time of the last poll. So a history grows
with the changes of a fabric, not with its polls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from weft.errors import ConfigError

_TABLES = (
    "CREATE TABLE IF NOT EXISTS facts (kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, "
    "since_s DOUBLE PRECISION NOT NULL, until_s DOUBLE PRECISION)",
    "CREATE INDEX IF NOT EXISTS facts_by_name ON facts (name)",
    "CREATE INDEX IF NOT EXISTS facts_now ON facts (until_s)",
    "CREATE TABLE IF NOT EXISTS polls (first_s DOUBLE PRECISION NOT NULL, last_s DOUBLE PRECISION NOT NULL)",
)
_BUSY_S = 30  # while another process writes
_EXAMPLES = "fabric.db, sqlite:///fabric.db, postgresql://user@host/fabric"
Subject = tuple[str, str]  # kind and name
Facts = Mapping[Subject, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact that differs between two moments; None: there was none."""

    at_s: float
    kind: str
    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.kind} {self.name}: new, {self.after}"
        return f"{self.kind} {self.name}: {self.before} -> {'gone' if self.after is None else self.after}"


def compare(at_s: float, before: Facts, after: Facts) -> list[Difference]:
    """Return the facts that differ, in the order of their subjects."""
    changed = [subject for subject, value in after.items() if before.get(subject) != value]
    changed += [subject for subject in before if subject not in after]
    return [
        Difference(at_s=at_s, kind=kind, name=name, before=before.get((kind, name)), after=after.get((kind, name)))
        for kind, name in sorted(changed)
    ]


class History:
    """A history in a file of SQLite, or in PostgreSQL."""

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        parsed = _parse_url(url, must_exist)
        is_sqlite = parsed.get_backend_name() == "sqlite"
        self._recorded: tuple[float, Facts] | None = None  # the last poll that this object recorded, and its time
        self._engine = create_engine(parsed, connect_args={"timeout": _BUSY_S} if is_sqlite else {})
        try:
            with self._engine.begin() as connection:
                if must_exist:  # a reader writes nothing
                    self._span(connection)
                    return
                if is_sqlite:
                    connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                for statement in _TABLES:
                    connection.execute(text(statement))
        except DBAPIError as error:
            self.close()
            raise ConfigError(f"cannot use {url} as a history: {error.orig}; examples: {_EXAMPLES}") from None

    def close(self) -> None:
        self._engine.dispose()

    @property
    def engine(self) -> Engine:
        """Return the connections, for more tables in the same database."""
        return self._engine

    @property
    def title(self) -> str:
        """Return the URL of the database without a password."""
        return self._engine.url.render_as_string(hide_password=True)

    def record(self, at_s: float, facts: Facts) -> list[Difference]:
        """Store the facts of a poll; return the differences from the last one, none of the first."""
        with self._engine.begin() as connection:
            span = self._span(connection)
            if span is not None and at_s <= span[1]:
                at_s = span[1] + 1e-6  # the clock was set back
            differences = compare(at_s, self._present(connection, span), facts)
            for each in differences:
                if each.before is not None:
                    connection.execute(
                        text("UPDATE facts SET until_s = :at WHERE kind = :kind AND name = :name AND until_s IS NULL"),
                        {"at": at_s, "kind": each.kind, "name": each.name},
                    )
            _insert(connection, [each for each in differences if each.after is not None])
            if span is None:
                connection.execute(text("INSERT INTO polls VALUES (:at, :at)"), {"at": at_s})
            else:
                connection.execute(text("UPDATE polls SET last_s = :at"), {"at": at_s})
        self._recorded = at_s, dict(facts)
        return differences if span is not None else []

    def _present(self, connection: Connection, span: tuple[float, float] | None) -> Facts:
        """Return the facts of the last poll, from the database only if another process recorded it."""
        if self._recorded is not None and span is not None and self._recorded[0] == span[1]:
            return self._recorded[1]
        return self._state(connection, None)

    def span(self) -> tuple[float, float] | None:
        """Return the times of the first and last poll."""
        with self._engine.connect() as connection:
            return self._span(connection)

    def state(self, at_s: float | None = None) -> dict[Subject, str]:
        """Return all facts at one moment, by default at the last poll."""
        with self._engine.connect() as connection:
            return self._state(connection, at_s)

    def changes(self, *, name: str = "", since_s: float = 0.0, until_s: float = float("inf")) -> list[Difference]:
        """Return changes in order of time: of one subject or all, without the facts of the first poll."""
        with self._engine.connect() as connection:
            first_s, _ = self._span(connection) or (0.0, 0.0)
            condition = "WHERE name = :name" if name else ""
            rows = connection.execute(
                text(f"SELECT kind, name, value, since_s, until_s FROM facts {condition} ORDER BY since_s"),
                {"name": name} if name else {},
            ).all()
        values: dict[tuple[str, str, float], list[str | None]] = {}
        for kind, subject, value, since, until in rows:
            values.setdefault((kind, subject, since), [None, None])[1] = value
            if until is not None:
                values.setdefault((kind, subject, until), [None, None])[0] = value
        found = [
            Difference(at_s=at, kind=kind, name=subject, before=before, after=after)
            for (kind, subject, at), (before, after) in values.items()
            if at > first_s and since_s <= at <= until_s
        ]
        return sorted(found, key=lambda each: (each.at_s, each.kind, each.name))

    def forget(self, before_s: float) -> int:
        """Delete facts that ended before a moment; return their number."""
        with self._engine.begin() as connection:
            return connection.execute(text("DELETE FROM facts WHERE until_s < :before"), {"before": before_s}).rowcount

    @staticmethod
    def _span(connection: Connection) -> tuple[float, float] | None:
        row = connection.execute(text("SELECT first_s, last_s FROM polls")).first()
        return None if row is None else (row[0], row[1])

    @staticmethod
    def _state(connection: Connection, at_s: float | None) -> dict[Subject, str]:
        condition = "until_s IS NULL" if at_s is None else "since_s <= :at AND (until_s IS NULL OR until_s > :at)"
        rows = connection.execute(
            text(f"SELECT kind, name, value FROM facts WHERE {condition}"), {} if at_s is None else {"at": at_s}
        )
        return {(kind, name): value for kind, name, value in rows}


def _insert(connection: Connection, differences: list[Difference]) -> None:
    rows: list[dict[str, Any]] = [
        {"kind": each.kind, "name": each.name, "value": each.after, "at": each.at_s} for each in differences
    ]
    if rows:
        connection.execute(text("INSERT INTO facts VALUES (:kind, :name, :value, :at, NULL)"), rows)


def _parse_url(url: str, must_exist: bool) -> URL:
    if "://" not in url:
        if must_exist and not Path(url).is_file():
            raise ConfigError(f"there is no history {url}: `weft follow --database {url}` begins one")
        return URL.create("sqlite", database=url)
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(f"invalid database URL {url!r}; examples: {_EXAMPLES}") from None
    if parsed.get_backend_name() == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        raise ConfigError(f"weft does not support the database {parsed.get_backend_name()}; examples: {_EXAMPLES}")
    return parsed
