"""The recent readings in a small SQLite file, for charts of the last day. Prometheus keeps longer histories.

    history = History(path, most=600)
    history.add(reading, time.monotonic())
    t, per_second = history.series("leaf1/5", Column.PORT_XMIT_DATA_WORDS, seconds=600)

Of `most` readings, half are the newest, a quarter are every eighth of the earlier ones, and a quarter every 64th of
those before: 600 readings at 10 s cover 50 minutes, 3 hours and a day. A rate is NaN if either end is unknown or this
machine restarted in between; after a reset it counts from zero. Times count back from the newest reading's time of day
by the monotonic clock, so setting the clock shifts a chart without gaps.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.monitor.columns import Column
from weft.monitor.poll import Reading
from weft.monitor.ports import Ports

Floats = NDArray[np.float64]
_UNKNOWN = -1
_SCHEMA = """
create table if not exists layout (id integer primary key, names text unique);
create table if not exists reading (
    id integer primary key, boot text, read_s real, at_s real, stamp_s real, layout integer
);
create table if not exists counts (reading integer, kind text, packed blob, primary key (reading, kind)) without rowid;
"""


class History:
    """A bounded history in SQLite; `path` may be `:memory:`. It is thread-safe."""

    def __init__(self, path: Path | str, *, most: int = 600) -> None:
        self.path, self._most, self._boot = path, most, _boot()
        self._lock = threading.Lock()
        with self._config_errors():
            self._file = sqlite3.connect(path, check_same_thread=False)
            self._file.executescript(_SCHEMA)

    def add(self, reading: Reading, read_s: float) -> None:
        """Add a reading. `read_s` is its time on this machine's monotonic clock; rates use the fabric's clock."""
        counters = np.where(reading.known, reading.counters, _UNKNOWN)
        with self._lock, self._config_errors(), self._file:
            layout = self._layout(_names(reading.ports))
            cursor = self._file.execute(
                "insert into reading (boot, read_s, at_s, stamp_s, layout) values (?, ?, ?, ?, ?)",
                (self._boot, read_s, reading.at_s, reading.stamp_s, layout),
            )
            row = int(cursor.lastrowid or 0)
            packed = ((row, column.name, zlib.compress(counters[:, column].tobytes(), 1)) for column in Column)
            self._file.executemany("insert into counts values (?, ?, ?)", packed)
            self._thin(row)

    def series(self, port: str, column: Column, seconds: float) -> tuple[Floats, Floats]:
        """Return the ends of intervals (seconds since 1970) and the rate per second in each."""
        t, at_s, value, boot = self._values(port, column)
        rate = np.full(len(t), np.nan)
        if len(t) > 1:
            step = np.where(value[1:] < value[:-1], value[1:], value[1:] - value[:-1])
            good = (value[1:] >= 0) & (value[:-1] >= 0) & (boot[1:] == boot[:-1]) & (at_s[1:] > at_s[:-1])
            rate[1:][good] = step[good] / (at_s[1:] - at_s[:-1])[good]
        recent = t >= t[-1] - seconds if len(t) else np.zeros(0, np.bool_)
        recent[:1] = False  # an interval needs two ends
        return t[recent], rate[recent]

    def values(self, port: str, column: Column, seconds: float) -> tuple[Floats, Floats]:
        """Return the times of readings (seconds since 1970) and the count in each; NaN where unknown."""
        t, _, value, _ = self._values(port, column)
        recent = t >= t[-1] - seconds if len(t) else np.zeros(0, np.bool_)
        return t[recent], np.where(value == _UNKNOWN, np.nan, value)[recent]

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _values(self, port: str, column: Column) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.str_]]:
        """Return for every reading: time of day, fabric time, the port's count, and the boot id of this machine."""
        query = (
            "select r.boot, r.read_s, r.at_s, r.stamp_s, r.layout, c.packed from reading r "
            "join counts c on c.reading = r.id where c.kind = ? order by r.id"
        )
        with self._lock, self._config_errors():
            rows = self._file.execute(query, (column.name,)).fetchall()
            layouts = {key: json.loads(names) for key, names in self._file.execute("select id, names from layout")}
        place = {key: names.index(port) if port in names else _UNKNOWN for key, names in layouts.items()}
        columns = zip(*(row[:4] for row in rows), strict=True) if rows else _NONE
        boot, read_s, at_s, stamp_s = map(np.array, columns)
        value = np.array([_pick(packed, place[layout]) for *_, layout, packed in rows], np.int64)
        t = stamp_s.astype(np.float64)
        if len(t):
            now = boot == boot[-1]
            t[now] = stamp_s[-1] - (read_s[-1] - read_s[now])
        return t, at_s, value, boot

    def _layout(self, names: str) -> int:
        self._file.execute("insert or ignore into layout (names) values (?)", (names,))
        return int(self._file.execute("select id from layout where names = ?", (names,)).fetchone()[0])

    def _thin(self, newest: int) -> None:
        half = self._most // 2
        keep = (
            f"id > {newest - half} or id % 8 = 0 and id > {newest - half - 2 * self._most} "
            f"or id % 64 = 0 and id > {newest - half - 18 * self._most}"
        )
        self._file.execute(f"delete from reading where not ({keep})")
        self._file.execute("delete from counts where reading not in (select id from reading)")
        self._file.execute("delete from layout where id not in (select layout from reading)")

    @contextmanager
    def _config_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ConfigError(f"cannot use the monitor's history {self.path}: {error}") from None


_NONE = np.zeros(0, np.str_), np.zeros(0), np.zeros(0), np.zeros(0)


def _pick(packed: bytes, place: int) -> int:
    return int(np.frombuffer(zlib.decompress(packed), np.int64)[place]) if place >= 0 else _UNKNOWN


@lru_cache(maxsize=1)
def _names(ports: Ports) -> str:
    return json.dumps([ports.name(slot) for slot in range(len(ports))])


def _boot() -> str:
    """Return the boot id of this machine: the monotonic clock restarts with it."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""
