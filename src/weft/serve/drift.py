"""Drift: differences between the fabric and the ledger, which its writer compares every few seconds and after traps.

watch = DriftWatch(repairs=True)
ledger = Ledger(store, driver, watch)
watch.differences           current differences
watch.past()                differences since the service started, newest last
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

_EVERY_S = 3.0
_REST = 9  # least pause, in durations of a comparison: limits the load on a large fabric
_KEPT = 1000


class Difference(NamedTuple):
    """A difference between the fabric and the ledger."""

    at_s: float  # since 1970
    text: str
    is_repaired: bool


class DriftWatch:
    """The results of comparisons. One thread compares, any thread reads."""

    def __init__(self, *, repairs: bool = True, every_s: float = _EVERY_S) -> None:
        self.repairs, self._every_s = repairs, every_s
        self.differences: tuple[str, ...] = ()
        self.trouble = "not compared yet"  # why the last comparison failed; empty: it did not
        self.checked_at_s = 0.0  # since 1970
        self.repaired = 0  # differences, since the service started
        self.tell: Callable[[str, str], None] = lambda kind, text: None  # adds a line to the console's log
        self._past: deque[Difference] = deque(maxlen=_KEPT)
        self._next_s = -math.inf

    def wake(self) -> None:
        """Request a comparison as soon as possible, after a trap."""
        self._next_s = -math.inf

    def is_due(self) -> bool:
        return time.monotonic() >= self._next_s

    def past(self) -> list[Difference]:
        return list(self._past)

    def begin(self) -> None:
        self._began_s = time.monotonic()
        self._next_s = math.inf  # a trap from now on requests another comparison

    def record(self, differences: Sequence[str], repaired: Sequence[str] = ()) -> None:
        """Record the result of a comparison. `repaired`: differences that the subnet manager repaired itself."""
        new = [text for text in differences if text not in self.differences]
        repaired_now = {*self.differences} - {*differences}
        past = [
            difference._replace(is_repaired=True) if difference.text in repaired_now else difference
            for difference in self._past
        ]
        self.differences, self.trouble, self.checked_at_s = tuple(differences), "", time.time()
        past += [Difference(self.checked_at_s, text, is_repaired=False) for text in new]
        past += [Difference(self.checked_at_s, text, is_repaired=True) for text in repaired]
        self._past = deque(past, maxlen=_KEPT)
        self.repaired += len(repaired_now) + len(repaired)
        for text in (*new, *repaired):
            self.tell("drift", text)
        if repaired_now or repaired:
            self.tell("drift", f"{len(repaired_now) + len(repaired):,} differences are repaired")

    def failed(self, error: Exception) -> None:
        self.trouble = str(error)

    def end(self) -> None:
        took_s = time.monotonic() - self._began_s
        self._next_s = min(self._next_s, time.monotonic() + max(self._every_s, _REST * took_s))
