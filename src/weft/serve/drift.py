"""Drift: how the fabric differs from the ledger. The ledger's writer compares them every few seconds, and after traps.

watch = DriftWatch(repairs=True)
ledger = Ledger(store, driver, watch)
watch.differences           that are there now
watch.past()                that were found since the service started, the newest last
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

_EVERY_S = 3.0
_REST = 9  # times as long as a comparison took until the next: a large fabric has other things to answer
_KEPT = 1000


class Found(NamedTuple):
    """A difference."""

    at_s: float  # since 1970
    text: str
    is_repaired: bool


class DriftWatch:
    """The results of a service's comparisons. One thread compares, any thread reads."""

    def __init__(self, *, repairs: bool = True, every_s: float = _EVERY_S) -> None:
        self.repairs, self._every_s = repairs, every_s
        self.differences: tuple[str, ...] = ()
        self.trouble = "not compared yet"  # why it is not known whether there are any; empty: it is
        self.checked_at_s = 0.0  # since 1970
        self.repaired = 0  # differences, since the service started
        self.tell: Callable[[str, str], None] = lambda kind, text: None  # a line for the console's log
        self._past: deque[Found] = deque(maxlen=_KEPT)
        self._next_s = -math.inf

    def wake(self) -> None:
        """Compare as soon as the writer has time: a trap came."""
        self._next_s = -math.inf

    def is_due(self) -> bool:
        return time.monotonic() >= self._next_s

    def past(self) -> list[Found]:
        return list(self._past)

    def begin(self) -> None:
        self._began_s = time.monotonic()
        self._next_s = math.inf  # a trap from now on makes another one due

    def found(self, differences: Sequence[str], repaired: Sequence[str] = ()) -> None:
        """The outcome of a comparison. `repaired`: what the subnet manager has repaired of its own accord since."""
        new = [text for text in differences if text not in self.differences]
        gone = {*self.differences} - {*differences}
        past = [one._replace(is_repaired=True) if one.text in gone else one for one in self._past]
        self.differences, self.trouble, self.checked_at_s = tuple(differences), "", time.time()
        past += [Found(self.checked_at_s, text, is_repaired=False) for text in new]
        past += [Found(self.checked_at_s, text, is_repaired=True) for text in repaired]
        self._past = deque(past, maxlen=_KEPT)
        self.repaired += len(gone) + len(repaired)
        for text in (*new, *repaired):
            self.tell("drift", text)
        if gone or repaired:
            self.tell("drift", f"{len(gone) + len(repaired):,} differences are repaired")

    def failed(self, error: Exception) -> None:
        self.trouble = str(error)

    def end(self) -> None:
        took_s = time.monotonic() - self._began_s
        self._next_s = min(self._next_s, time.monotonic() + max(self._every_s, _REST * took_s))
