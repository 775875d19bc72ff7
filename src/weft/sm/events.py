"""The log of the subnet manager: a time, the fixed name of an event, and a text.

2026-11-15 12:00:00.123 SUBNET_UP SUBNET UP: 54 switches, 648 adapters, 1,296 links, fat-tree, 0.41 s, 9,876 MADs

`Log.counts` says how often each event happened; `Log.recent` has the last lines, for the status page. A stream that
takes no more, as on a full disk, loses lines and nothing else: standard error says so, and the log how many they were.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TextIO

from weft.units import format_items

_KEPT = 200
_NAMED = 4


class Event(StrEnum):
    """The events of the log. The names are stable: scripts search for them."""

    STARTED = "STARTED"
    STOPPED = "STOPPED"
    OPTION_IGNORED = "OPTION_IGNORED"
    SWEEP_STARTED = "SWEEP_STARTED"
    SUBNET_UP = "SUBNET_UP"
    SWEEP_FAILED = "SWEEP_FAILED"
    ODDITY = "ODDITY"  # duplicate GUID, loop of cable, silence, lies, cut off
    LID_CHANGED = "LID_CHANGED"
    NO_LID = "NO_LID"
    ROUTING_FALLBACK = "ROUTING_FALLBACK"
    REFUSED = "REFUSED"  # a device refused a setting
    PARTITIONS = "PARTITIONS"
    DRIFT = "DRIFT"  # ports that something else has changed
    QOS = "QOS"
    TRAP = "TRAP"
    PORT_FLAPPING = "PORT_FLAPPING"
    NODE_APPEARED = "NODE_APPEARED"
    NODE_DISAPPEARED = "NODE_DISAPPEARED"
    LINK_APPEARED = "LINK_APPEARED"
    LINK_DISAPPEARED = "LINK_DISAPPEARED"
    SM_STATE = "SM_STATE"  # discovering, standby, master, not-active
    OTHER_SM = "OTHER_SM"
    HANDOVER = "HANDOVER"
    MULTICAST = "MULTICAST"
    SERVICE = "SERVICE"
    SA_BUSY = "SA_BUSY"  # hosts ask more than can be answered
    SA_REFUSED = "SA_REFUSED"  # a table that is too large
    NOT_WRITTEN = "NOT_WRITTEN"  # log, state or dump: a full disk
    WRITTEN_AGAIN = "WRITTEN_AGAIN"


class Log:
    """A log that writes lines to a stream."""

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._stream, self._clock = stream or sys.stderr, clock
        self.counts: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=_KEPT)
        self._said: set[tuple[Event, str]] = set()
        self._lost = 0  # lines, since the stream took one

    def say(self, event: Event, text: str) -> None:
        line = self._note(event, text)
        before = ""
        if self._lost:  # the first of them may have been cut in half
            missing = f"the log: {format_items(self._lost, 'line')} missing here"
            before = f"\n{self._line(Event.WRITTEN_AGAIN, missing)}\n"
        try:
            _put(self._stream, f"{before}{line}\n")
        except BrokenPipeError:
            raise  # `weft sm | head`: the reader has ended
        except OSError as error:
            self._lost += 1
            if self._lost == 1:
                failed = self._note(Event.NOT_WRITTEN, f"the log: {error.strerror}; the subnet is managed all the same")
                with suppress(OSError):
                    _put(sys.stderr, f"{failed}\n")
        else:
            self._lost = 0

    def _line(self, event: Event, text: str) -> str:
        now_s = self._clock()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_s)) + f".{int(now_s % 1 * 1000):03d}"
        return f"{stamp} {event} {text}"

    def _note(self, event: Event, text: str) -> str:
        """Record a line for the status, even if the stream fails."""
        line = self._line(event, text)
        self.counts[event] += 1
        self.recent.append(line)
        return line

    def say_once(self, event: Event, text: str) -> None:
        """Log a message once that every sweep would repeat."""
        if (event, text) not in self._said:
            self._said.add((event, text))
            self.say(event, text)


def some(lines: Sequence[str]) -> str:
    """Join the first few of many lines."""
    more = f" and {len(lines) - _NAMED:,} more" if len(lines) > _NAMED else ""
    return "; ".join(lines[:_NAMED]) + more


def _put(stream: TextIO, text: str) -> None:
    """Write all of a text or raise OSError: a buffer would keep the rest and fail again when it is closed."""
    try:
        number = stream.fileno()
    except (OSError, AttributeError):  # in memory
        stream.write(text)
        return
    data = text.encode()
    while data:
        data = data[os.write(number, data) :]
