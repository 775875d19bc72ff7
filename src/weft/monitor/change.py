"""What happened between two readings: no gap invented, none hidden.

    change = between(before, after)
    change.delta[slot, Column.SYMBOL_ERROR]        where change.known says so
    change.events                                  in words: who fell silent, was reset, moved to another cable

A difference is known where both readings have the counter and the port is on the cable that it was on.

    went back, all 64 bits       somebody has reset it: what it says now was counted since, maybe not all; `is_reset`
    went back, 32 bits           gone round, if the line could carry what that makes, once; not known if more than once
                                 would fit too; else reset
    did not go back              the difference. A reset that was made up for since cannot be seen
    another cable, or none before   not known: what it counted belongs to two cables

Time is the monotonic clock's: whoever sets the time of day changes no interval.
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
    """`kind` is stable: silent, answers, reset, wrapped, moved, new, gone."""

    kind: str
    port: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """Rows are those of `ports`, the later reading's."""

    ports: Ports
    seconds: float
    stamp_s: float  # when it ended, by the clock on the wall
    delta: Counts  # [slot, Column], 0 where not known
    known: Flags  # [slot, Column]
    is_reset: Flags  # [slot]: a counter of it was reset, so it counted this or more
    events: tuple[Event, ...]


def between(before: Reading, after: Reading) -> Change:
    """The change from one reading of a poller to a later one."""
    seconds = after.at_s - before.at_s
    if seconds < 0:
        raise ConfigError(f"the later reading was made {-seconds:g} s before the earlier: give them in their order")
    ports = after.ports
    rows = ports.rows_in(before.ports)
    was = before.ports
    same = (rows >= 0) & (ports.far_guid == was.far_guid[rows]) & (ports.far_number == was.far_number[rows])
    known = after.known & before.known[rows] & same[:, None]
    delta = np.where(known, after.counters - before.counters[rows], 0)
    back = delta < 0
    wrapped, unsure = _went_round(ports, seconds, delta, back)
    delta[wrapped] += _ROUND
    delta[unsure] = 0
    known &= ~unsure
    reset = back & ~wrapped & ~unsure
    delta[reset] = after.counters[reset]
    events = _Events(ports)
    events.cables(was, rows, same)
    events.silence(rows_with(after.known), rows_with(before.known)[rows] & (rows >= 0))
    events.steps(reset, wrapped, unsure)
    events.gone(was, ports)
    return Change(
        ports=ports,
        seconds=seconds,
        stamp_s=after.stamp_s,
        delta=delta,
        known=known,
        is_reset=rows_with(reset),
        events=tuple(events.found),
    )


def _went_round(ports: Ports, seconds: float, delta: Counts, back: Flags) -> tuple[Flags, Flags]:
    """Of those that went back: which have gone round once, and of which nobody can tell how often.

    No line carries more words than its rate, and neither packets nor ticks of waiting are more than words.
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
                self._add("moved", slot, f"is cabled to {far} now, no longer to {_far(was, row)}")
            else:
                self._add("new", slot, f"is there now, cabled to {far}")

    def silence(self, answers: Flags, answered: Flags) -> None:
        for slot in np.flatnonzero(answered & ~answers).tolist():
            self._add("silent", slot, "no longer answers for its counters")
        for slot in np.flatnonzero(answers & ~answered & (self.ports.lid > 0)).tolist():
            self._add("answers", slot, "answers for its counters, which it did not before")

    def steps(self, reset: Flags, wrapped: Flags, unsure: Flags) -> None:
        for kind, which, text in (
            ("reset", reset, "was reset: {} now say what was counted since"),
            ("wrapped", wrapped, "{} went round"),
            ("wrapped", unsure, "{} went round once or more often, nobody can tell"),
        ):
            for slot in np.flatnonzero(rows_with(which)).tolist():
                names = ", ".join(Column(one).name.lower() for one in np.flatnonzero(which[slot]).tolist())
                self._add(kind, slot, text.format(names))

    def gone(self, was: Ports, now: Ports) -> None:
        """Ports of nodes that are no longer there; they have no row, so nothing is said of their counters."""
        for slot in np.flatnonzero(was.is_cabled & (was.rows_in(now) < 0)).tolist():
            self.found.append(Event(kind="gone", port=was.name(slot), text="is no longer to be found"))


def _far(ports: Ports, slot: int) -> str:
    """The other end, by name while it answers, else by GUID."""
    if ports.peer[slot] >= 0:
        return ports.name(int(ports.peer[slot]))
    return f"port {ports.far_number[slot]} of node 0x{int(ports.far_guid[slot]):016x}"
