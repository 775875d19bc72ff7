"""The monitor of the console: polls the fabric and publishes its cabling, loads, counters, subnet manager and suspects.

with FabricMonitor(backend) as monitor:     polls, and publishes to `monitor.events` every second
    monitor.fabric()                        the drawing
    monitor.state()                         the state, in the order of the drawing
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec
import numpy as np

from weft.errors import SubnetError, WeftError
from weft.lab import control, registry
from weft.lab.subnets import new_poller
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
from weft.monitor.metrics import Family
from weft.monitor.poll import Poller, Reading
from weft.monitor.suspects import Diagnosis, Impact, Suspect
from weft.monitor.watch import Latest, Manager, Watch
from weft.serve.acknowledgements import Acknowledgement
from weft.serve.console.drawn_fabric import DrawnFabric
from weft.serve.console.event_stream import LOG, STATE, EventStream
from weft.serve.console.events import FabricState, SubnetManagerOut, log_lines, suspect_out
from weft.serve.console.layout import FabricOut
from weft.serve.console.runs import Runs
from weft.serve.desired import ConflictError
from weft.serve.drift import DriftWatch
from weft.wire.smp import SMState

POLL_S = 1.0
_REST = 4.0  # pause relative to a poll: polls take at most a fifth of the time
_IDLE_S = 60.0  # stop polling after this time without a client
_REPEAT_S = 5.0  # publish again after this time without a new reading, for jobs and runs


@dataclass(frozen=True, slots=True)
class Backend:
    """The fabric of the console: a way to attach to a port, and its lab if it is one."""

    attach: Callable[[], AbstractContextManager[Carrier]]
    lab: registry.Entry | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The latest readings of the monitor."""

    reading: Reading
    change: Change | None
    diagnosis: Diagnosis | None
    manager: Manager | None
    failure: str  # why there is no newer reading


class FabricMonitor:
    """A monitor that polls only while it has clients. Use it as a context manager."""

    def __init__(self, backend: Backend, drift: DriftWatch | None = None) -> None:
        self.backend, self.events, self.runs, self.drift = backend, EventStream(), Runs(), drift
        self.history = History(":memory:")
        self.acknowledgements: Callable[[], Mapping[str, Acknowledgement]] = dict  # by alarm
        self._query_lock, self._poll_lock = threading.Lock(), threading.Lock()
        self._open, self._polling = ExitStack(), ExitStack()  # carriers: for queries, and for the poller
        self._carrier: Carrier | None = None
        self._watch: Watch | None = None
        self._requested_s = 0.0  # time of the last request
        self._drawn: DrawnFabric | None = None
        self._impacts: dict[tuple[str, ...], Impact | None] = {}  # by suspect
        self._end = threading.Event()
        self._publisher = threading.Thread(target=self._publish, name="console", daemon=True)

    def __enter__(self) -> Self:
        self._publisher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.events.close()
        self._publisher.join()
        self._stop_polling()
        self.runs.__exit__()
        self.history.close()
        self._open.close()

    def wake(self) -> Latest:
        """Start polling if needed, and return the latest reading."""
        with self._poll_lock:
            self._requested_s = time.monotonic()
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

    def _stop_polling(self) -> None:
        with self._poll_lock:
            if self._watch is not None:
                self._watch.stop()
                self._watch = None
            self._polling.close()

    def _poller(self) -> Poller:
        """Return a new poller, also after a failure of the last one: the fabric may have restarted."""
        self._polling.close()
        carrier, lab = self._polling.enter_context(self.backend.attach()), self.backend.lab
        if lab is None:
            return Poller(carrier)
        return new_poller(lab, carrier)

    # -- state --------------------------------------------------------------------------------------------------------

    def latest(self) -> Snapshot:
        """Return the latest readings. Raise SubnetError if there is none yet."""
        latest = self.wake()
        if latest.reading is None:
            raise SubnetError(latest.failure)
        diagnosis = latest.diagnosis and self._with_impacts(latest.diagnosis)
        return Snapshot(latest.reading, latest.change, diagnosis, latest.manager, latest.failure)

    def _with_impacts(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return a diagnosis with the known impacts of its suspects."""
        return replace(
            diagnosis,
            suspects=tuple(replace(suspect, impact=self._impacts.get(_key(suspect))) for suspect in diagnosis.suspects),
        )

    def _update_impacts(self, diagnosis: Diagnosis | None) -> None:
        """Compute the impact of new suspects. It reads the forwarding tables, which is slow in a large fabric."""
        suspects = diagnosis.suspects if diagnosis is not None else ()
        new = tuple(suspect for suspect in suspects if _key(suspect) not in self._impacts)
        self._impacts = {key: self._impacts[key] for key in map(_key, suspects) if key in self._impacts}
        if diagnosis is None or not new:
            return
        with suppress(WeftError), self.ask() as carrier:  # else with the next reading
            fabric = read_routed(carrier)
            with_impact = add_impact(
                replace(diagnosis, suspects=new), fabric, read_jobs(fabric, self.load().get("jobs", []))
            )
            self._impacts |= {_key(suspect): suspect.impact for suspect in with_impact.suspects}

    def metrics(self, more: Iterable[Family]) -> bytes:
        """Return metrics for Prometheus, with more families of the service."""
        return render(self.wake(), now_s=time.monotonic(), more=more)

    def fabric(self) -> FabricOut:
        return self._picture(self.latest()).drawing

    def _picture(self, snapshot: Snapshot) -> DrawnFabric:
        ports, drawn = snapshot.reading.ports, self._drawn
        if drawn is None or not drawn.has_all(ports):
            drawn = self._drawn = DrawnFabric.of(ports, self._name())
        return drawn

    def _name(self) -> str:
        """Return the name of the fabric to show."""
        return "" if self.backend.lab is None else str(control.ask(self.backend.lab, "state")["spec"])

    def state(self) -> FabricState:
        snapshot = self.latest()
        drawn, change, diagnosis = self._picture(snapshot), snapshot.change, snapshot.diagnosis
        suspects = diagnosis.suspects if diagnosis else ()
        load, acknowledgements = self.load(), self.acknowledgements()
        well = health([change]) if change is not None and change.seconds > 0 else None
        return FabricState(
            t=round(snapshot.reading.stamp_s, 3),
            revision=drawn.drawing.revision,
            seconds=change.seconds if change else 0.0,
            links=drawn.links_now(snapshot.reading.ports, well, suspects),
            jobs=load.get("jobs", []),
            sm=self._manager(snapshot.manager),
            suspects=[suspect_out(suspect, acknowledgements) for suspect in suspects],
            notes=list(diagnosis.notes) if diagnosis else [],
            drift=[] if self.drift is None else list(self.drift.differences),
            runs=self.runs.listed(),
            trouble=snapshot.failure,
        )

    def series(self, port: str, column: Column, seconds: float) -> tuple[list[float], list[float | None]]:
        """Return the times and rates of a counter of a port."""
        t, v = self.history.series(port, column, seconds)
        return t.tolist(), [None if np.isnan(value) else value for value in v.tolist()]

    @contextmanager
    def ask(self, host: str = "") -> Iterator[Carrier]:
        """Yield a carrier for queries, one at a time; in a lab, that of a host."""
        if host and self.backend.lab is not None:
            location = control.ask(self.backend.lab, "host", name=host)
            with closing(IbsimCarrier(location["sim_host"], location["sockname"])) as carrier:
                yield KeyedCarrier(carrier, KeyFile(self.backend.lab.m_key_file))
            return
        with self._query_lock:
            if self._carrier is None:
                self._carrier = self._open.enter_context(self.backend.attach())
            yield self._carrier

    def lab(self) -> registry.Entry:
        if self.backend.lab is None:
            raise ConflictError("cables and load can be changed in labs only")
        return self.backend.lab

    def load(self) -> dict[str, Any]:
        """Return the background jobs of a lab; empty in a fabric that is no lab."""
        return {} if self.backend.lab is None else dict(control.ask(self.backend.lab, "load_state"))

    def manager(self) -> SubnetManagerOut | None:
        """Return the subnet's master and its standbys; None if no master answers."""
        return self._manager(self.latest().manager)

    def _manager(self, master: Manager | None) -> SubnetManagerOut | None:
        if master is None:
            return None
        state = SMState(master.state).name.lower().replace("_", " ")
        return SubnetManagerOut(
            state=state,
            host=master.node or f"LID {master.lid}",
            standby=self._standbys(master),
            sweeps=master.activity,
        )

    def _standbys(self, master: Manager) -> list[str] | None:
        """Return the ports of the lab where other subnet managers run; None in a fabric that is no lab."""
        if self.backend.lab is None:
            return None
        clients = control.ask(self.backend.lab, "state")["clients"]
        return sorted({client["at"] for client in clients if client["is_sm"] and client["port_guid"] != master.guid})

    # -- publishing ---------------------------------------------------------------------------------------------------

    def log(self, kind: str, text: str) -> None:
        self.events.publish(LOG, msgspec.json.encode({"t": round(time.time(), 3), "kind": kind, "text": text}))

    def _publish(self) -> None:
        before: FabricState | None = None
        published_s, trouble = 0.0, ""
        while not self._end.wait(POLL_S):
            if not self.events.has_listeners:
                before = None
                if self._watch is not None and time.monotonic() - self._requested_s > _IDLE_S:
                    self._stop_polling()
                continue
            try:
                now = self.state()
            except WeftError as error:
                if trouble != str(error):
                    trouble = str(error)
                    self.log("trouble", trouble)
                continue
            if before is not None and now.t == before.t and time.monotonic() - published_s < _REPEAT_S:
                continue  # no new reading
            if now.trouble != trouble:
                trouble = now.trouble
                self.log("trouble", trouble or "the fabric answers again")
            for kind, text in log_lines(before, now, self.fabric()):
                self.log(kind, text)
            self.events.publish(STATE, msgspec.json.encode(now))
            before, published_s = now, time.monotonic()
            self._update_impacts(self.latest().diagnosis)


def _key(suspect: Suspect) -> tuple[str, ...]:
    return (suspect.kind, *sorted(suspect.ends))
