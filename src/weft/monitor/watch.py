"""A monitor that goes on: polls, changes, a diagnosis and a history, and what is known now for whoever asks.

    with Watch(Poller(carrier), every_s=10, diagnose=diagnose) as watch:
        watch.latest                        immutable; replaced whole after every round

A round that fails is told in `latest.failure`, and the next one is tried in time, with a new poller if `again` makes
one; who made the carriers closes them. What was read before stays to be looked at, with its age; nobody is told that
it is new.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from weft.errors import WeftError
from weft.monitor.change import Change, between
from weft.monitor.managers import Manager, find_manager
from weft.monitor.poll import Poller, Reading
from weft.monitor.suspects import Diagnosis

if TYPE_CHECKING:
    from weft.monitor.history import History

_DAY_S = 86_400
KEPT = 12  # changes that a diagnosis looks at
_STALE = 3  # rounds without a new reading, after which the last is no longer the present


class Diagnose(Protocol):
    def __call__(self, changes: Sequence[Change], /, *, looks: int) -> Diagnosis: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """What is known after so many rounds."""

    every_s: float
    reading: Reading | None = None
    read_s: float = 0.0  # when, on the monotonic clock of this machine
    change: Change | None = None  # from the reading before it
    change_s: float = 0.0  # how long that took on this machine; a lab's clock may be faster
    diagnosis: Diagnosis | None = None
    manager: Manager | None = None  # the subnet's master, if one answers
    polls: int = 0
    failures: int = 0
    poll_s: float = 0.0  # how long the last took
    events: Mapping[str, int] = field(default_factory=dict)  # so far, by kind
    failure: str = ""  # why the last round brought nothing

    def age_s(self, now_s: float) -> float:
        """Of the reading, on the monotonic clock of this machine."""
        return now_s - self.read_s if self.reading is not None else float("inf")

    def is_fresh(self, now_s: float) -> bool:
        return not self.failure and self.age_s(now_s) <= _STALE * self.every_s + self.poll_s


class Watch:
    """Used as a context it works in a thread of its own; `tick` is one round."""

    def __init__(
        self,
        poller: Poller,
        *,
        every_s: float = 10.0,
        diagnose: Diagnose | None = None,
        history: History | None = None,
        again: Callable[[], Poller] | None = None,
        rest: float = 0.0,
        tell: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rest`: so many times as long as a poll takes there is none, however large the fabric.

        `tell` is called with why rounds fail, once for each reason, and with "" when they bring something again.
        """
        self._rest, self._tell = rest, tell
        self.latest = Latest(every_s=every_s)
        self._poller, self._again, self._clock = poller, again, clock
        self._diagnose, self._history = diagnose, history
        self._changes: deque[Change] = deque(maxlen=KEPT)
        self._events: Counter[str] = Counter()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def tick(self) -> Latest:
        """Poll, and say what it brought; what the fabric or its carrier refuses is no error of ours."""
        begin_s, failure = self._clock(), self.latest.failure
        try:
            if self.latest.failure and self._again is not None:
                self._poller = self._again()
            reading = self._poller.poll()
            self.latest = self._after(reading, find_manager(self._poller.carrier, reading), begin_s)
        except (WeftError, OSError) as error:
            self.latest = replace(self.latest, failure=str(error), failures=self.latest.failures + 1)
        if self._tell is not None and self.latest.failure != failure:
            self._tell(self.latest.failure)
        return self.latest

    def _after(self, reading: Reading, manager: Manager | None, begin_s: float) -> Latest:
        last = self.latest.reading
        # A lab that was begun anew has another clock: of the time between, nothing is known.
        change = between(last, reading) if last is not None and last.at_s <= reading.at_s else None
        if change is not None:
            self._changes.append(change)
            self._events.update(event.kind for event in change.events)
        if self._history is not None:
            self._history.add(reading, begin_s)
        return replace(
            self.latest,
            reading=reading,
            read_s=begin_s,
            change=change,
            change_s=begin_s - self.latest.read_s if change is not None else 0.0,
            diagnosis=self._diagnosis(),
            manager=manager,
            polls=self.latest.polls + 1,
            poll_s=self._clock() - begin_s,
            events=dict(self._events),
            failure="",
        )

    def _diagnosis(self) -> Diagnosis | None:
        """A watch looks all day, at another stretch of time every `KEPT` rounds: of all these no look may err."""
        if self._diagnose is None or not self._changes:
            return None
        return self._diagnose(tuple(self._changes), looks=math.ceil(_DAY_S / (self.latest.every_s * KEPT)))

    # -- in a thread --------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="weft monitor", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._ends.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        due_s = self._clock()
        while not self._ends.is_set():
            self.tick()
            # A round that took too long is not made up for: two at once would tell of no time at all.
            due_s = max(due_s + self.latest.every_s, self._clock() + self._rest * self.latest.poll_s)
            self._ends.wait(due_s - self._clock())
