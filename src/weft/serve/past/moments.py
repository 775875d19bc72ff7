"""The states of a fabric that the console showed, with their drawings, in the tables `moments` and `drawings`.

    moments.add(state, drawing, events)      events: what changed since the last state, as kind and text
    moments.at(at_s)                         the latest state that is not newer
    moments.events(most=500)                 the newest events

A state with an event is kept for as long as the history. Of the others, all of the last ten minutes are kept, one a
minute of the last day, and one in ten minutes of the time before.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, text

from weft.serve.console.events import FabricState
from weft.serve.console.layout import FabricOut

_TABLES = (
    "CREATE TABLE IF NOT EXISTS moments (at_s DOUBLE PRECISION PRIMARY KEY, revision TEXT NOT NULL, "
    "has_events INTEGER NOT NULL, state {blob} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS drawings (revision TEXT PRIMARY KEY, drawing {blob} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS events (at_s DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL, line TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS events_by_time ON events (at_s)",
)
_THINNED = ((600.0, 60.0), (86_400.0, 600.0))  # older than the first, one state in the second is kept, in seconds
_THIN_EVERY = 60  # states
_encode, _decode = msgspec.json.encode, msgspec.json.decode


class EventOut(msgspec.Struct, kw_only=True):
    """A change of the state: a link, an alert, a subnet manager."""

    t: float  # seconds since 1970
    kind: str
    text: str


class Moments:
    """A store of states in the database of a history."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._added = engine, 0
        blob = "BYTEA" if engine.dialect.name == "postgresql" else "BLOB"
        with engine.begin() as connection:
            for statement in _TABLES:
                connection.execute(text(statement.format(blob=blob)))

    def add(self, state: FabricState, drawing: FabricOut, events: Sequence[tuple[str, str]]) -> None:
        """Store a state. A state of the same time is stored once."""
        with self._engine.begin() as connection:
            moment = {
                "at": state.t,
                "revision": drawing.revision,
                "has_events": int(bool(events)),
                "state": _pack(state),
            }
            statement = "INSERT INTO moments VALUES (:at, :revision, :has_events, :state) ON CONFLICT DO NOTHING"
            if not connection.execute(text(statement), moment).rowcount:
                return
            connection.execute(
                text("INSERT INTO drawings VALUES (:revision, :drawing) ON CONFLICT DO NOTHING"),
                {"revision": drawing.revision, "drawing": _pack(drawing)},
            )
            lines = [{"at": state.t, "kind": kind, "line": line} for kind, line in events]
            if lines:
                connection.execute(text("INSERT INTO events VALUES (:at, :kind, :line)"), lines)
            self._added += 1
            if self._added % _THIN_EVERY == 0:
                _thin(connection, state.t)

    def span(self) -> tuple[float, float] | None:
        """Return the times of the first and last state."""
        with self._engine.connect() as connection:
            first, last = connection.execute(text("SELECT min(at_s), max(at_s) FROM moments")).one()
        return None if first is None else (first, last)

    def at(self, at_s: float) -> FabricState | None:
        """Return the latest state that is not newer than a time."""
        query = "SELECT state FROM moments WHERE at_s <= :at ORDER BY at_s DESC LIMIT 1"
        packed = self._first(query, at=at_s)
        return None if packed is None else _decode(zlib.decompress(packed), type=FabricState)

    def drawing(self, revision: str) -> FabricOut | None:
        packed = self._first("SELECT drawing FROM drawings WHERE revision = :revision", revision=revision)
        return None if packed is None else _decode(zlib.decompress(packed), type=FabricOut)

    def events(self, *, most: int) -> list[EventOut]:
        """Return the newest events, in order of time."""
        query = text("SELECT at_s, kind, line FROM events ORDER BY at_s DESC LIMIT :most")
        with self._engine.connect() as connection:
            rows = connection.execute(query, {"most": most}).all()
        return [EventOut(t=at_s, kind=kind, text=line) for at_s, kind, line in reversed(rows)]

    def forget(self, before_s: float) -> None:
        """Delete what is older than a time."""
        with self._engine.begin() as connection:
            for table in ("moments", "events"):
                connection.execute(text(f"DELETE FROM {table} WHERE at_s < :before"), {"before": before_s})
            connection.execute(text("DELETE FROM drawings WHERE revision NOT IN (SELECT revision FROM moments)"))

    def _first(self, query: str, **words: Any) -> bytes | None:
        with self._engine.connect() as connection:
            row = connection.execute(text(query), words).first()
        return None if row is None else bytes(row[0])


def _pack(content: msgspec.Struct) -> bytes:
    return zlib.compress(_encode(content), 1)


def _thin(connection: Connection, now_s: float) -> None:
    rows = connection.execute(text("SELECT at_s FROM moments WHERE has_events = 0 ORDER BY at_s")).all()
    superfluous = [{"at": at_s} for at_s in superfluous_times([row[0] for row in rows], now_s)]
    if superfluous:
        connection.execute(text("DELETE FROM moments WHERE at_s = :at"), superfluous)


def superfluous_times(times_s: Sequence[float], now_s: float) -> list[float]:
    """Return the times to delete, of times in ascending order: all but the first of each interval."""
    seen: set[tuple[float, int]] = set()
    superfluous = []
    for at_s in times_s:
        steps = [step_s for age_s, step_s in _THINNED if now_s - at_s > age_s]
        if not steps:
            break
        interval = steps[-1], int(at_s // steps[-1])
        if interval in seen:
            superfluous.append(at_s)
        seen.add(interval)
    return superfluous
