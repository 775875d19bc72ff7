"""Follow a subnet: read it again and again, and record each change in a history. It never writes to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from weft.fabric.model import Fabric
from weft.twin.deviations import Comparison, Expected
from weft.twin.facts import Facts, read_facts
from weft.twin.history import Difference, History, Subject
from weft.twin.source import Source


class Follower:
    """A model of a subnet that is brought up to date by polls, and compared with the intent."""

    def __init__(
        self,
        source: Source,
        history: History,
        *,
        expected: Expected | None = None,
        read_jobs: Callable[[], Facts] = Facts,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._history, self._clock = source, history, clock
        self._read_jobs = read_jobs
        self._comparison = None if expected is None else Comparison(expected)
        self._version, self._facts = 0, Facts()  # facts, as the source had them
        self.fabric: Fabric | None = None  # as of the last poll, with forwarding tables and P_Keys
        self.deviations: Mapping[Subject, str] = {}  # from the intent
        self.changes: Counter[str] = Counter()  # since the start, by kind
        self.polls = 0
        self.polled_at_s = 0.0  # since 1970
        self.poll_s = 0.0  # duration of the last poll

    @property
    def size(self) -> str:
        """Return the number of nodes and links as text."""
        return (
            "nothing" if self.fabric is None else f"{len(self.fabric.nodes):,} nodes, {len(self.fabric.links):,} links"
        )

    def poll(self, changed: Collection[int] = ()) -> list[Difference]:
        """Read the changes of the subnet, record them, and return those since the last poll of the history.

        changed: LIDs that traps named. Such a poll puts off the counters, so that it is short.
        """
        begin_s, at_s = time.monotonic(), self._clock()
        fabric = self._source.refresh(changed)
        if self._version != self._source.version:
            self._version, self._facts = self._source.version, read_facts(fabric)
        ports = self._source.read_ports(is_urgent=bool(changed))
        deviations = {} if self._comparison is None else self._comparison.compare(fabric, at_s)
        differences = self._history.record(at_s, self._facts | ports | deviations | self._read_jobs())
        self.fabric, self.deviations = fabric, deviations
        self.changes.update(each.kind for each in differences)
        self.polls, self.polled_at_s, self.poll_s = self.polls + 1, at_s, time.monotonic() - begin_s
        return differences
