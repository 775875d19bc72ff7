"""What the subnet manager says in its log: a time, the name of an event that never changes, and words.

2026-11-15 12:00:00.123 SUBNET_UP SUBNET UP: 54 switches, 648 adapters, 1,296 links, fat-tree, 0.41 s, 9,876 MADs

`Log.counts` says how often each event happened; `Log.recent` has the last lines, for the status page.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum
from typing import TextIO

_KEPT = 200


class Event(StrEnum):
    """Stable: scripts look for them."""

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
    REFUSED = "REFUSED"  # a device did not take what it was told
    PARTITIONS = "PARTITIONS"
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


class Log:
    """Lines to a stream, as they happen."""

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._stream, self._clock = stream or sys.stderr, clock
        self.counts: Counter[str] = Counter()
        self.recent: deque[str] = deque(maxlen=_KEPT)
        self._said: set[tuple[Event, str]] = set()

    def say(self, event: Event, text: str) -> None:
        now_s = self._clock()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_s)) + f".{int(now_s % 1 * 1000):03d}"
        line = f"{stamp} {event} {text}"
        self.counts[event] += 1
        self.recent.append(line)
        print(line, file=self._stream, flush=True)

    def say_once(self, event: Event, text: str) -> None:
        """What every sweep would say again."""
        if (event, text) not in self._said:
            self._said.add((event, text))
            self.say(event, text)
