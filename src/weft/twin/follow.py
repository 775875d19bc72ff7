"""Follow a running subnet: read it again and again, and record each change in a history. It never writes to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from weft.errors import SubnetError
from weft.fabric.model import Fabric
from weft.monitor.impact import read_routed
from weft.monitor.poll import Poller, Reading
from weft.twin.facts import read_facts
from weft.twin.history import Difference, History


class Follower:
    """A model of a subnet that is brought up to date by polls."""

    def __init__(self, poller: Poller, history: History, *, clock: Callable[[], float] = time.time) -> None:
        self._poller, self._history, self._clock = poller, history, clock
        self._reading: Reading | None = None
        self.fabric: Fabric | None = None  # as of the last poll, with forwarding tables and P_Keys

    @property
    def size(self) -> str:
        """Return the number of nodes and links as text."""
        return (
            "nothing" if self.fabric is None else f"{len(self.fabric.nodes):,} nodes, {len(self.fabric.links):,} links"
        )

    def poll(self) -> list[Difference]:
        """Read the subnet, record it, and return the changes since the last poll of the history."""
        fabric = read_routed(self._poller.carrier)
        with suppress(SubnetError):  # counters cannot be read, for example without LIDs: the last ones stay
            self._reading = self._poller.poll()
        differences = self._history.record(self._clock(), read_facts(fabric, self._reading))
        self.fabric = fabric
        return differences
