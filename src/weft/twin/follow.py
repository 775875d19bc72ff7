"""Follow a running subnet: read it again and again, and record each change in a history. It never writes to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from weft.errors import SubnetError
from weft.fabric.model import Fabric
from weft.monitor.cables import Serials
from weft.monitor.poll import Poller, Reading
from weft.twin.deviations import Comparison, Expected
from weft.twin.facts import read_errors, read_facts
from weft.twin.history import Difference, History, Subject
from weft.twin.model import Model

_REST = 4  # pause between two readings of counters, in durations of a reading
_PUT_OFF_S = 5.0


class Follower:
    """A model of a subnet that is brought up to date by polls, and compared with the intent."""

    def __init__(
        self,
        poller: Poller,
        history: History,
        *,
        expected: Expected | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._poller, self._history, self._clock = poller, history, clock
        self._model = Model(poller.carrier)
        self._serials = Serials(poller.carrier)
        self._comparison = None if expected is None else Comparison(expected)
        self._reading: Reading | None = None
        self._version = 0  # of the model, whose facts are `_facts`
        self._facts: dict[Subject, str] = {}
        self._cables: dict[Subject, str] = {}  # the ports of each cable by its serial number
        self._counters_due_s = 0.0
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

    @property
    def whole_walks(self) -> int:
        """Return how often the whole cabling was read: at the start, and after contradictions."""
        return self._model.whole_walks

    def poll(self, changed: Collection[int] = ()) -> list[Difference]:
        """Read the changes of the subnet, record them, and return those since the last poll of the history.

        changed: LIDs that traps named. Such a poll puts off the counters, so that it is short.
        """
        begin_s, at_s = time.monotonic(), self._clock()
        fabric = self._model.refresh(changed)
        if not changed or time.monotonic() > self._counters_due_s + _PUT_OFF_S:
            self._read_counters()
        if self._version != self._model.version:
            self._version, self._facts = self._model.version, read_facts(fabric)
        errors = {} if self._reading is None else read_errors(self._reading)
        deviations = {} if self._comparison is None else self._comparison.compare(fabric, at_s)
        differences = self._history.record(at_s, self._facts | self._cables | errors | deviations)
        self.fabric, self.deviations = fabric, deviations
        self.changes.update(each.kind for each in differences)
        self.polls, self.polled_at_s, self.poll_s = self.polls + 1, at_s, time.monotonic() - begin_s
        return differences

    def _read_counters(self) -> None:
        """Read counters and new serial numbers, at most a fifth of the time: they take longer than the cabling."""
        begin_s = time.monotonic()
        if begin_s < self._counters_due_s:
            return
        with suppress(SubnetError):  # counters cannot be read, for example without LIDs: the last ones stay
            self._reading = self._poller.poll(self._model.view)
            self._cables = {("cable", serial): ports for serial, ports in self._serials.read(self._reading).items()}
        now_s = time.monotonic()
        self._counters_due_s = now_s + _REST * (now_s - begin_s)
