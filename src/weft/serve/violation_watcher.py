"""Watch for P_Key violations while the service runs: traps identify the sender, counters have the totals.

    with ViolationWatcher(attach, lambda: ledger.desired().allocation()) as watcher:
        watcher.reported(), watcher.counts()

`attach` opens a port that the subnet administrator trusts with these traps: that of the subnet manager.
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
_FRESH_S = 5.0  # reading the fabric takes a while
_TURN_S = 0.25
_OTHER_TRAPS = (Trap.LINK_STATE_CHANGED, Trap.LOCAL_CHANGES)
_TEXTS = {
    Trap.LINK_STATE_CHANGED: "a port changed its state",
    Trap.LOCAL_CHANGES: "its capabilities changed; a subnet manager may have started or stopped",
}
_RENEWED_S = 60.0  # a restarted subnet manager has no subscriptions


class ReportedViolation(NamedTuple):
    """A violation and the time of its trap."""

    at_s: float  # since 1970
    violation: Violation


class ViolationWatcher:
    """A watcher for P_Key violations. Use it as a context manager."""

    def __init__(
        self,
        attach: Callable[[], AbstractContextManager[Carrier]],
        allocation: Callable[[], Allocation],
        tell: Callable[[str, str], None] = lambda kind, text: None,
        on_trap: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the watcher. `tell` gets the kind and text of every trap; `on_trap` is called before it is read."""
        self._attach, self._allocation, self._tell_of, self._on_trap = attach, allocation, tell, on_trap
        self.trouble = "not subscribed yet"  # why no traps arrive; empty: subscribed
        self._reported: deque[ReportedViolation] = deque(maxlen=_KEPT)
        self._reading = threading.Lock()
        self._fabric: Fabric | None = None
        self._counts: list[Count] = []
        self._read_at_s = -_FRESH_S
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="violations", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def reported(self) -> list[ReportedViolation]:
        """Return the violations since the service started, newest last."""
        return list(self._reported)

    def counts(self) -> list[Count]:
        """Return the counters of ports with violations, at most a few seconds old."""
        return self._read()[1]

    def _read(self) -> tuple[Fabric, list[Count]]:
        with self._reading:
            if self._fabric is None or time.monotonic() - self._read_at_s >= _FRESH_S:
                with self._attach() as carrier:  # its own carrier: that of the subscription must not be shared
                    self._fabric = read_fabric(carrier)
                    self._counts = count_violations(carrier, self._fabric, self._allocation())
                self._read_at_s = time.monotonic()
            return self._fabric, self._counts

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with self._attach() as carrier, Watch(carrier, traps=(*KEY_TRAPS, *_OTHER_TRAPS)) as watch:
                    self.trouble = ""
                    self._listen(watch)
            except (WeftError, OSError) as error:  # try again: the fabric may come back
                self.trouble = str(error)
                self._ended.wait(_FRESH_S)

    def _listen(self, watch: Watch) -> None:
        until_s = time.monotonic() + _RENEWED_S
        while not self._ended.is_set() and time.monotonic() < until_s:
            for notice in watch.notices(_TURN_S):
                self._on_trap()
                if notice.trap_number not in KEY_TRAPS:
                    self._tell_of("trap", self._describe(notice))
                    continue
                violation = ReportedViolation(time.time(), attribute(notice, self._read()[0], self._allocation()))
                self._reported.append(violation)
                self._tell_of("violation", str(violation.violation))

    def _describe(self, notice: GmpNotice) -> str:
        """Return a line about a trap. A switch that lost its cables may not be in the fabric: then use its LID."""
        lid = notice.issuer_lid
        fabric = self._fabric or self._read()[0]
        at = (fabric.tables.lid == lid).nonzero()[0]
        name = fabric.nodes.name[fabric.ports.node[at[0]]] if len(at) else f"LID {lid}"
        return f"trap {int(notice.trap_number)} from {name}: {_TEXTS[Trap(notice.trap_number)]}"
