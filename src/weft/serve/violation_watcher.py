"""Who tried to get across, heard for as long as the service runs: traps say who, counters how often.

    with ViolationWatcher(attach, lambda: ledger.desired().allocation()) as watcher:
        watcher.heard(), watcher.counted()

`attach` gives a port of the fabric, of whom a subnet administrator tells such things: the subnet manager's.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Self

from weft.errors import WeftError
from weft.fabric.model import Fabric
from weft.mad.carrier import Carrier
from weft.tenants.partitions import Allocation
from weft.tenants.reading import read_fabric
from weft.tenants.violations import KEY_TRAPS, Count, Violation, Watch, attribute, count_violations
from weft.wire.notice import GmpNotice, Trap

_KEPT = 1000
_FRESH_S = 5.0  # a walk takes a while
_TURN_S = 0.25
_OTHER_TRAPS = (Trap.LINK_STATE_CHANGED, Trap.LOCAL_CHANGES)
_SAID = {
    Trap.LINK_STATE_CHANGED: "a port of it changed its state",
    Trap.LOCAL_CHANGES: "it changed its capabilities: a subnet manager may have come or gone",
}
_RENEWED_S = 60.0  # a subnet manager that was started again has forgotten who listens


class ReportedViolation(NamedTuple):
    at_s: float  # since 1970
    violation: Violation


class ViolationWatcher:
    """Used with `with`."""

    def __init__(
        self,
        attach: Callable[[], AbstractContextManager[Carrier]],
        allocation: Callable[[], Allocation],
        tell: Callable[[str, str], None] = lambda kind, text: None,
        on_trap: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell` hears of every trap, by kind and text; `on_trap` is called for each, before it is looked at."""
        self._attach, self._allocation, self._tell_of, self._on_trap = attach, allocation, tell, on_trap
        self.trouble = "it does not listen yet"  # why nothing is heard; empty: it listens
        self._heard: deque[ReportedViolation] = deque(maxlen=_KEPT)
        self._looking = threading.Lock()
        self._fabric: Fabric | None = None
        self._counted: list[Count] = []
        self._seen_at_s = -_FRESH_S
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, name="watcher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def heard(self) -> list[ReportedViolation]:
        """The newest last; of those before the service started nothing is known."""
        return list(self._heard)

    def counted(self) -> list[Count]:
        """Since ports came up. Seconds old at most."""
        return self._look()[1]

    def _look(self) -> tuple[Fabric, list[Count]]:
        with self._looking:
            if self._fabric is None or time.monotonic() - self._seen_at_s >= _FRESH_S:
                with self._attach() as carrier:  # not the listener's: what comes there is its own
                    self._fabric = read_fabric(carrier)
                    self._counted = count_violations(carrier, self._fabric, self._allocation())
                self._seen_at_s = time.monotonic()
            return self._fabric, self._counted

    def _live(self) -> None:
        while not self._ended.is_set():
            try:
                with self._attach() as carrier, Watch(carrier, traps=(*KEY_TRAPS, *_OTHER_TRAPS)) as watch:
                    self.trouble = ""
                    self._listen(watch)
            except (WeftError, OSError) as error:  # the fabric may come back
                self.trouble = str(error)
                self._ended.wait(_FRESH_S)

    def _listen(self, watch: Watch) -> None:
        until_s = time.monotonic() + _RENEWED_S
        while not self._ended.is_set() and time.monotonic() < until_s:
            for notice in watch.notices(_TURN_S):
                self._on_trap()
                if notice.trap_number not in KEY_TRAPS:
                    self._tell_of("trap", self._said(notice))
                    continue
                heard = ReportedViolation(time.time(), attribute(notice, self._look()[0], self._allocation()))
                self._heard.append(heard)
                self._tell_of("violation", str(heard.violation))

    def _said(self, notice: GmpNotice) -> str:
        """A switch that lost a cable may not be in the fabric of now: it is named by its LID then."""
        lid = notice.issuer_lid
        fabric = self._fabric or self._look()[0]
        at = (fabric.tables.lid == lid).nonzero()[0]
        name = fabric.nodes.name[fabric.ports.node[at[0]]] if len(at) else f"LID {lid}"
        return f"trap {int(notice.trap_number)} from {name}: {_SAID[Trap(notice.trap_number)]}"
