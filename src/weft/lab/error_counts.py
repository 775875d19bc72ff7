"""Count errors of received packets by kind, and log each kind once."""

from __future__ import annotations

import logging
from collections import Counter

from weft.fabric.counters import Counter as PortCounter
from weft.mad.carrier import SMP_CLASSES
from weft.mad.devices import Devices

log = logging.getLogger("weft.lab")


class ErrorCounts:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, detail: str, error: Exception | None = None) -> None:
        """Count an error, and log the first of its kind; `kind` is general, `detail` the instance."""
        self.counts[kind] += 1
        if self.counts[kind] == 1:
            log.warning("%s: %s (the next ones are counted, not logged)", kind, detail, exc_info=error)

    def overrun(self, devices: Devices, slot: int, mgmt_class: int) -> None:
        """Count a MAD that is lost because the program at a port does not read."""
        self.note("a program does not read its MADs", f"the one at {devices.name(slot)}; more for it are lost")
        if mgmt_class in SMP_CLASSES:
            devices.fabric.counters[slot, PortCounter.VL15_DROPPED] += 1
