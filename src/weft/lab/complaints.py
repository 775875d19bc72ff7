"""What was wrong with what came in: counted by kind, logged once each."""

from __future__ import annotations

import logging
from collections import Counter

log = logging.getLogger("weft.lab")


class Complaints:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, detail: str, error: Exception | None = None) -> None:
        """`kind` says what is wrong in general, `detail` what it was this time."""
        self.counts[kind] += 1
        if self.counts[kind] == 1:
            log.warning("%s: %s (the next ones are counted, not logged)", kind, detail, exc_info=error)
