"""The difference between two readings, with explicit unknowns.

    change = between(before, after)
    change.delta[slot, Column.SYMBOL_ERROR]        valid where change.known is true
    change.events                                  ports that stopped answering, were reset, or moved to another cable

A difference is known where both readings have the counter and the port is on the cable that it was on.

    decreased, 64 bits           reset: the new value is a lower bound on the difference; `is_reset`
    decreased, 32 bits           wrapped once, if the line rate allows one wrap and not two; unknown if it allows
                                 two; else reset
    did not decrease             the difference; a reset followed by larger counts cannot be detected
    on another cable now         unknown: the counts belong to two cables

Intervals use the monotonic clock, so changes of the time of day have no effect.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.monitor.columns import TRAFFIC, Column, Counts, Flags, rows_with
from weft.monitor.poll import Reading
from weft.monitor.ports import Ports

_ROUND = 1 << 32
_WORD_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a port; `kind` is one of silent, answers, reset, wrapped, moved, new, gone."""

    kind: str
    port: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """A change between two readings; rows are those of `ports`, from the later reading."""

    ports: Ports
    seconds: float
    stamp_s: float  # time of day at the end
    delta: Counts  # [slot, Column], 0 where unknown
    known: Flags  # [slot, Column]
    is_reset: Flags  # [slot]: a counter was reset, so its delta is a lower bound
    events: tuple[Event, ...]


def between(before: Reading, after: Reading) -> Change:
    """Return the change from one reading of a poller to a later one."""
    seconds = after.at_s - before.at_s
    if seconds < 0:
        raise ConfigError(f"the second reading is {-seconds:g} s older than the first; give them in order of time")
    ports = after.ports
    rows = ports.rows_in(before.ports)
    was = before.ports
    same = (rows >= 0) & (ports.far_guid == was.far_guid[rows]) & (ports.far_number == was.far_number[rows])
    known = after.known & before.known[rows] & same[:, None]
    delta = np.where(known, after.counters - before.counters[rows], 0)
    back = delta < 0
    wrapped, unsure = _find_wraps(ports, seconds, delta, back)
    delta[wrapped] += _ROUND
    delta[unsure] = 0
    known &= ~unsure
    reset = back & ~wrapped & ~unsure
    delta[reset] = after.counters[reset]
    events = _Events(ports)
    events.cables(was, rows, same)
    events.silence(rows_with(after.known), rows_with(before.known)[rows] & (rows >= 0))
    events.steps(reset, wrapped, unsure)
    events.disappeared(was, ports)
    return Change(
        ports=ports,
        seconds=seconds,
        stamp_s=after.stamp_s,
        delta=delta,
        known=known,
        is_reset=rows_with(reset),
        events=tuple(events.found),
    )


def _find_wraps(ports: Ports, seconds: float, delta: Counts, back: Flags) -> tuple[Flags, Flags]:
    """Return which counters wrapped exactly once, and which wrapped an unknown number of times.

    The line rate limits the words of an interval; packets and wait ticks are never more than words.
    """
    narrow = np.zeros_like(back)
    narrow[:, TRAFFIC] = ~ports.is_long[:, None]
    narrow[:, Column.PORT_XMIT_WAIT] = ~ports.is_longest
    most = (seconds * ports.rate_gbit_s * 1e9 / _WORD_BITS)[:, None]
    once = back & narrow & (delta + _ROUND <= most)
    unsure = once & (delta + 2 * _ROUND <= most)
    return once & ~unsure, unsure


class _Events:
    def __init__(self, ports: Ports) -> None:
        self.ports, self.found = ports, list[Event]()

    def _add(self, kind: str, slot: int, text: str) -> None:
        self.found.append(Event(kind=kind, port=self.ports.name(slot), text=text))

    def cables(self, was: Ports, rows: NDArray[np.int64], same: Flags) -> None:
        ports = self.ports
        for slot in np.flatnonzero(~same & ports.is_cabled).tolist():
            row, far = int(rows[slot]), _far(ports, slot)
            if row >= 0 and was.is_cabled[row]:
                self._add("moved", slot, f"is now cabled to {far}, previously to {_far(was, row)}")
            else:
                self._add("new", slot, f"is new, cabled to {far}")

    def silence(self, answers: Flags, answered: Flags) -> None:
        for slot in np.flatnonzero(answered & ~answers).tolist():
            self._add("silent", slot, "stopped answering counter queries")
        for slot in np.flatnonzero(answers & ~answered & (self.ports.lid > 0)).tolist():
            self._add("answers", slot, "answers counter queries again")

    def steps(self, reset: Flags, wrapped: Flags, unsure: Flags) -> None:
        for kind, flags, text in (
            ("reset", reset, "was reset: {} restarted from zero"),
            ("wrapped", wrapped, "{} wrapped around"),
            ("wrapped", unsure, "{} wrapped around an unknown number of times"),
        ):
            for slot in np.flatnonzero(rows_with(flags)).tolist():
                names = ", ".join(Column(number).name.lower() for number in np.flatnonzero(flags[slot]).tolist())
                self._add(kind, slot, text.format(names))

    def disappeared(self, was: Ports, now: Ports) -> None:
        """Add an event for each cabled port that has disappeared; it has no row in the change."""
        for slot in np.flatnonzero(was.is_cabled & (was.rows_in(now) < 0)).tolist():
            self.found.append(Event(kind="gone", port=was.name(slot), text="has disappeared"))


def _far(ports: Ports, slot: int) -> str:
    """Return the other end by name if it answers, else by GUID."""
    if ports.peer[slot] >= 0:
        return ports.name(int(ports.peer[slot]))
    return f"port {ports.far_number[slot]} of node 0x{int(ports.far_guid[slot]):016x}"
