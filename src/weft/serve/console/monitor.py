"""What the console sees of a fabric: its cabling, what every link carries and counts, who manages it, what is wrong.

with FabricMonitor(backend) as monitor:            polls, and tells `monitor.live` every second
    monitor.fabric()                      columns to draw
    monitor.state()                       what changes, in the order of those columns
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec
import numpy as np

from weft.errors import SubnetError, WeftError
from weft.lab import control, registry
from weft.lab.monitoring import new_poller
from weft.mad.carrier import Carrier
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.keyed import KeyedCarrier, KeyFile
from weft.monitor.change import Change
from weft.monitor.columns import Column
from weft.monitor.diagnose import diagnose
from weft.monitor.exporter import render
from weft.monitor.health import health
from weft.monitor.history import History
from weft.monitor.impact import add_impact, read_jobs, read_routed
from weft.monitor.managers import Manager
from weft.monitor.metrics import Family
from weft.monitor.poll import Poller, Reading
from weft.monitor.suspects import Diagnosis, Impact, Suspect
from weft.monitor.watch import Latest, Watch
from weft.serve.console.drawn_fabric import DrawnFabric
from weft.serve.console.event_stream import LOG, STATE, EventStream
from weft.serve.console.events import FabricState, SubnetManagerOut, news, suspect_out
from weft.serve.console.layout import FabricOut
from weft.serve.console.runs import Runs
from weft.serve.desired import ConflictError
from weft.serve.drift import DriftWatch
from weft.wire.smp import SMState

POLL_S = 1.0
_REST = 4.0  # so that a fifth of the time at most goes into polls
_IDLE_S = 60.0  # nobody wants to know any more
_SILENT_S = 5.0  # after which the same is told again: jobs and runs go on


@dataclass(frozen=True, slots=True)
class Backend:
    """The fabric backend the console: a port to ask from, and its lab if it is one."""

    attach: Callable[[], AbstractContextManager[Carrier]]
    lab: registry.Entry | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What the monitor has, once it has something."""

    reading: Reading
    change: Change | None
    diagnosis: Diagnosis | None
    manager: Manager | None
    failure: str  # why nothing came after it


class FabricMonitor:
    """Used with `with`. It looks while somebody wants to know: a large fabric is not polled for nobody."""

    def __init__(self, backend: Backend, drift: DriftWatch | None = None) -> None:
        self.backend, self.live, self.runs, self.drift = backend, EventStream(), Runs(), drift
        self.history = History(":memory:")
        self._asking, self._waking = threading.Lock(), threading.Lock()
        self._open, self._polling = ExitStack(), ExitStack()  # carriers: to ask from, and the monitor's
        self._carrier: Carrier | None = None
        self._watch: Watch | None = None
        self._wanted_s = 0.0  # when somebody last wanted to know
        self._drawn: DrawnFabric | None = None
        self._impacts: dict[tuple[str, ...], Impact | None] = {}  # of suspects
        self._end = threading.Event()
        self._teller = threading.Thread(target=self._tell, name="console", daemon=True)

    def __enter__(self) -> Self:
        self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.live.close()
        self._teller.join()
        self._sleep()
        self.runs.__exit__()
        self.history.close()
        self._open.close()

    def wake(self) -> Latest:
        """What the monitor has; when it slept, after its first look."""
        with self._waking:
            self._wanted_s = time.monotonic()
            if self._watch is None:
                watch = Watch(
                    self._poller(),
                    diagnose=diagnose,
                    history=self.history,
                    every_s=POLL_S,
                    again=self._poller,
                    rest=_REST,
                )
                watch.tick()
                self._watch = watch.start()
            return self._watch.latest

    def _sleep(self) -> None:
        with self._waking:
            if self._watch is not None:
                self._watch.stop()
                self._watch = None
            self._polling.close()

    def _poller(self) -> Poller:
        """A new one where the last one failed: what is backend may have been away."""
        self._polling.close()
        carrier, lab = self._polling.enter_context(self.backend.attach()), self.backend.lab
        if lab is None:
            return Poller(carrier)
        return new_poller(lab, carrier)

    # -- what there is ------------------------------------------------------------------------------------------------

    def latest(self) -> Snapshot:
        """SubnetError where the fabric has told nothing yet."""
        found = self.wake()
        if found.reading is None:
            raise SubnetError(found.failure)
        told = found.diagnosis and self._weighed(found.diagnosis)
        return Snapshot(found.reading, found.change, told, found.manager, found.failure)

    def _weighed(self, found: Diagnosis) -> Diagnosis:
        """With whom its suspects concern, as far as that is known."""
        return replace(
            found, suspects=tuple(replace(one, impact=self._impacts.get(_key(one))) for one in found.suspects)
        )

    def _weigh(self, found: Diagnosis | None) -> None:
        """Look whom new suspects concern: tables are read for it, which takes a while in a large fabric."""
        suspects = found.suspects if found is not None else ()
        new = tuple(one for one in suspects if _key(one) not in self._impacts)
        self._impacts = {key: self._impacts[key] for key in map(_key, suspects) if key in self._impacts}
        if found is None or not new:
            return
        with suppress(WeftError), self.ask() as carrier:  # with the next look, then
            fabric = read_routed(carrier)
            weighed = add_impact(replace(found, suspects=new), fabric, read_jobs(fabric, self._load().get("jobs", [])))
            self._impacts |= {_key(one): one.impact for one in weighed.suspects}

    def metrics(self, more: Iterable[Family]) -> bytes:
        """For Prometheus, and what else the service knows."""
        return render(self.wake(), now_s=time.monotonic(), more=more)

    def fabric(self) -> FabricOut:
        return self._picture(self.latest()).shown

    def _picture(self, seen: Snapshot) -> DrawnFabric:
        ports, drawn = seen.reading.ports, self._drawn
        if drawn is None or not drawn.has_all(ports):
            drawn = self._drawn = DrawnFabric.of(ports, self._name())
        return drawn

    def _name(self) -> str:
        """Of the fabric, for people."""
        return "" if self.backend.lab is None else str(control.ask(self.backend.lab, "state")["spec"])

    def state(self) -> FabricState:
        seen = self.latest()
        drawn, change, told = self._picture(seen), seen.change, seen.diagnosis
        suspects = told.suspects if told else ()
        load = self._load()
        well = health([change]) if change is not None and change.seconds > 0 else None
        return FabricState(
            t=round(seen.reading.stamp_s, 3),
            revision=drawn.shown.revision,
            seconds=change.seconds if change else 0.0,
            links=drawn.links_now(seen.reading.ports, well, suspects),
            jobs=load.get("jobs", []),
            sm=self._manager(seen.manager),
            suspects=[suspect_out(one) for one in suspects],
            notes=list(told.notes) if told else [],
            drift=[] if self.drift is None else list(self.drift.differences),
            runs=self.runs.shown(),
            trouble=seen.failure,
        )

    def series(self, port: str, column: Column, seconds: float) -> tuple[list[float], list[float | None]]:
        """What a counter of a port did in each interval, per second."""
        t, v = self.history.series(port, column, seconds)
        return t.tolist(), [None if np.isnan(one) else one for one in v.tolist()]

    @contextmanager
    def ask(self, host: str = "") -> Iterator[Carrier]:
        """A port to ask from, one question at a time; in a lab, that of a host."""
        if host and self.backend.lab is not None:
            there = control.ask(self.backend.lab, "host", name=host)
            with closing(IbsimCarrier(there["sim_host"], there["sockname"])) as carrier:
                yield KeyedCarrier(carrier, KeyFile(self.backend.lab.m_key_file))
            return
        with self._asking:
            if self._carrier is None:
                self._carrier = self._open.enter_context(self.backend.attach())
            yield self._carrier

    def lab(self) -> registry.Entry:
        if self.backend.lab is None:
            raise ConflictError("this fabric is no lab: its cables and its load are not ours to change")
        return self.backend.lab

    def _load(self) -> dict[str, Any]:
        return {} if self.backend.lab is None else dict(control.ask(self.backend.lab, "load_state"))

    def manager(self) -> SubnetManagerOut | None:
        """Return the subnet's master and its standbys; None if no master answers."""
        return self._manager(self.latest().manager)

    def _manager(self, master: Manager | None) -> SubnetManagerOut | None:
        if master is None:
            return None
        standby = sorted({at for at, guid in self._managers() if guid != master.guid})
        state = SMState(master.state).name.lower().replace("_", " ")
        return SubnetManagerOut(
            state=state, host=master.node or f"LID {master.lid}", standby=standby, sweeps=master.activity
        )

    def _managers(self) -> list[tuple[str, int]]:
        """Return the name and the GUID of each port of the lab where a subnet manager runs."""
        if self.backend.lab is None:
            return []
        clients = control.ask(self.backend.lab, "state")["clients"]
        return [(one["at"], one["port_guid"]) for one in clients if one["is_sm"]]

    # -- telling ------------------------------------------------------------------------------------------------------

    def log(self, kind: str, text: str) -> None:
        self.live.publish(LOG, msgspec.json.encode({"t": round(time.time(), 3), "kind": kind, "text": text}))

    def _tell(self) -> None:
        before: FabricState | None = None
        told_s, trouble = 0.0, ""
        while not self._end.wait(POLL_S):
            if not self.live.is_heard:
                before = None
                if self._watch is not None and time.monotonic() - self._wanted_s > _IDLE_S:
                    self._sleep()
                continue
            try:
                now = self.state()
            except WeftError as error:
                if trouble != str(error):
                    trouble = str(error)
                    self.log("trouble", trouble)
                continue
            if before is not None and now.t == before.t and time.monotonic() - told_s < _SILENT_S:
                continue  # nothing was read since
            if now.trouble != trouble:
                trouble = now.trouble
                self.log("trouble", trouble or "the fabric answers again")
            for kind, text in news(before, now, self.fabric()):
                self.log(kind, text)
            self.live.publish(STATE, msgspec.json.encode(now))
            before, told_s = now, time.monotonic()
            self._weigh(self.latest().diagnosis)


def _key(one: Suspect) -> tuple[str, ...]:
    return (one.kind, *sorted(one.ends))
