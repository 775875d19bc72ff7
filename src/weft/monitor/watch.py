"""A continuous monitor: polls, changes, a diagnosis and a history.

    with Watch(Poller(carrier), every_s=10, diagnose=diagnose) as watch:
        watch.latest                        immutable; replaced after every round

A failed round sets `latest.failure`; the next round runs on schedule, with a new poller if `again` creates one. The
caller closes its carriers. The last reading stays available, with its age.
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
from weft.mad.carrier import Address, Carrier, ask
from weft.mad.discover import directed_get
from weft.mad.walk import DATA
from weft.monitor.change import Change, between
from weft.monitor.poll import Poller, Reading
from weft.monitor.suspects import Diagnosis
from weft.wire.mad import MadHeader, Method
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMInfo, Smp, SmpAttribute

if TYPE_CHECKING:
    from weft.monitor.history import History

_DAY_S = 86_400
KEPT = 12  # changes in a diagnosis
_STALE = 3  # rounds after which the last reading is stale


class Diagnose(Protocol):
    def __call__(self, changes: Sequence[Change], /, *, looks: int) -> Diagnosis: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The state of a monitor after a round."""

    every_s: float
    reading: Reading | None = None
    read_s: float = 0.0  # time of the reading on this machine's monotonic clock
    change: Change | None = None  # from the reading before it
    change_s: float = 0.0  # its length on this machine's clock; a lab's clock may run faster
    diagnosis: Diagnosis | None = None
    manager: Manager | None = None  # the subnet's master, if one answers
    polls: int = 0
    failures: int = 0
    poll_s: float = 0.0  # duration of the last poll
    events: Mapping[str, int] = field(default_factory=dict)  # counts so far, by kind
    failure: str = ""  # why the last round failed

    def age_s(self, now_s: float) -> float:
        """Return the age of the reading at a time on this machine's monotonic clock."""
        return now_s - self.read_s if self.reading is not None else float("inf")

    def is_fresh(self, now_s: float) -> bool:
        return not self.failure and self.age_s(now_s) <= _STALE * self.every_s + self.poll_s


class Watch:
    """A monitor that runs rounds in its own thread while used as a context manager; `tick` runs one round."""

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
        """Create a monitor.

        rest: pause after each poll for at least this many times its duration.
        tell: called with the reason when rounds start to fail, once for each reason, and with "" when they recover.
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
        """Run one round and return the new state; errors of the fabric or its carrier go to `failure`."""
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
        # After a restart of a lab its clock starts again, so the change is unknown.
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
        """Diagnose the kept changes, with a false-alarm rate for all independent diagnoses of a day."""
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
            # A late round is not made up for: two rounds at once would have no time between them.
            due_s = max(due_s + self.latest.every_s, self._clock() + self._rest * self.latest.poll_s)
            self._ends.wait(due_s - self._clock())


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A subnet manager; `activity` increases while it runs."""

    node: str
    guid: int
    lid: int
    priority: int
    state: int  # SMState
    activity: int


def find_manager(carrier: Carrier, reading: Reading) -> Manager | None:
    """Return the master subnet manager; None if none answers."""
    port_info = ask(carrier, directed_get(b"", SmpAttribute.PORT_INFO))
    lid = PortInfo.master_sm_lid.get(port_info, DATA) if port_info else 0
    request = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO)
    answer = ask(carrier, request, Address(lid)) if lid else None
    if answer is None or MadHeader.status.get(answer):
        return None
    info = SMInfo.unpack(answer, DATA)
    ports = reading.ports
    slots = (ports.lid == lid).nonzero()[0]
    node = ports.fabric.nodes.name[ports.fabric.ports.node[slots[0]]] if len(slots) else ""
    return Manager(
        node=node, guid=info.guid, lid=lid, priority=info.priority, state=int(info.sm_state), activity=info.act_count
    )
