"""Run background traffic in a lab so that counters move: jobs, bit errors of cables, and a clock.

    lab.load("train=ring:h[1-64]@80%", "backup=incast:h[65-72]@30%", speed=60)
    lab.advance(3600)                      an hour, in milliseconds; beside the clock, or instead of it with speed=0

Rates are those of `sim.steady` on the present cabling and tables, computed again when these change; counts are added to
ports between two MADs. Flapping cables go down and up as by `weft break` and `weft fix`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from weft.errors import ConfigError, WeftError, find_named
from weft.fabric.counters import Counter
from weft.fabric.files.hostlist import expand
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.views import Port, Server
from weft.lab.ibsim import Server as LabServer
from weft.lab.plane_load import LabSteady, settle_lab
from weft.lab.traffic import still
from weft.mad import faults, transit
from weft.routing.patterns import host_ports
from weft.sim.steady import Degradation, LoadJob, check_job
from weft.sim.steady_counts import Counts, advance, past_counters
from weft.units import parse_share

TICK_S = 0.2
_REST = 4.0  # so that a fifth of the time at most goes into it
MOST_SPEED = 100_000.0
_JOB = re.compile(r"(?:(?P<name>[^=:@\s]+)=)?(?P<pattern>[^=:@\s]+)(?::(?P<hosts>[^@\s]+))?(?:@(?P<share>[^@\s]+))?")
_TABLES = ("port_info", "lft", "pkey", "sl2vl")  # that paths depend on
log = logging.getLogger("weft.lab")
JobSpec = str | Mapping[str, Any]


class LabLoad:
    """The background load of a lab; its clock is a thread that ends with `stop`."""

    def __init__(self, server: LabServer, fabric_now: Callable[[], Fabric]) -> None:
        """Set up an idle load; `fabric_now` is called in the server's thread."""
        self._server, self._fabric_now = server, fabric_now
        self._one = threading.RLock()
        self._jobs: tuple[LoadJob, ...] = ()
        self._seed, self._rng = 1, np.random.default_rng(1)
        self._steady: LabSteady | None = None
        self._seen: object = None  # the state for which the rates were computed
        self._end = threading.Event()
        self._clock: threading.Thread | None = None
        self.speed, self.seconds = 0.0, 0.0  # simulated for each real one, and so far
        self._is_told = False  # how fast time passes
        self._by_itself_s, self._since_s = 0.0, 0.0  # real time while there was no speed, and since when there is none

    def start(self, jobs: Iterable[JobSpec], *, seed: int, speed: float) -> dict[str, Any]:
        """Replace the jobs."""
        if not 0 <= speed <= MOST_SPEED:
            raise ConfigError(f"speed {speed:g} is not from 0, only by `advance`, to {MOST_SPEED:,.0f}: 1 is real time")
        fabric = self._server.subnet.devices.fabric
        new = [read_job(fabric, spec, number, seed) for number, spec in enumerate(jobs, 1)]
        if twice := sorted({job.name for job in new if sum(other.name == job.name for other in new) > 1}):
            raise ConfigError(f"two jobs are called {twice[0]}: give each a name of its own, NAME=PATTERN")
        with self._one:
            self._seed, self._rng = seed, np.random.default_rng(seed)
            self._jobs, self._seen, self._is_told = tuple(new), None, True
            self._settle()
            self._run_clock(speed)
            return self.state()

    def seed_history(self, seed: int) -> None:
        """Add the counts of a fabric that has run for a while."""
        fabric = self._server.subnet.devices.fabric
        old = past_counters(fabric, np.random.default_rng([seed, 2]))
        self._server.call(lambda: np.add(fabric.counters, old, out=fabric.counters))

    def unload(self, names: Iterable[str] = ()) -> dict[str, Any]:
        """End these jobs; without a name all, and the clock."""
        with self._one:
            going = {job.name: job for job in self._jobs}
            ended = [find_named("job", name, going).name for name in names] or list(going)
            self._jobs, self._seen = tuple(job for job in self._jobs if job.name not in ended), None
            if not names:
                self._run_clock(0.0)
            return self.state()

    def keep_time(self) -> None:
        """Run the clock at real time, unless a command has set its speed."""
        with self._one:
            if not self._is_told:
                self._run_clock(1.0)

    def advance(self, seconds: float) -> dict[str, Any]:
        """Simulate so many seconds: ports count, cables flap."""
        with self._one:
            counts = advance(self._settle().steady, seconds, self._rng)
            devices = self._server.subnet.devices
            per_hour = sorted(devices.flaps.items())
            flaps = [(link, int(self._rng.poisson(often * seconds / 3600))) for link, often in per_hour]
            self._server.call(lambda: self._put_in_force(counts, flaps))
            self.seconds += seconds
            return self.state()

    def now_s(self) -> float:
        """Return the time in step with the counters: simulated seconds, and real ones while there is no speed."""
        with self._one:
            real_s = self._by_itself_s + (0.0 if self.speed else time.monotonic() - self._since_s)
            return self.seconds + real_s

    def state(self) -> dict[str, Any]:
        with self._one:
            steady = self._settle()
            name = self._server.places.name
            rates = (steady.wanted_gbit_s, steady.gbit_s, steady.slowest)
            jobs = zip(steady.jobs, *(column.tolist() for column in rates), strict=True)
            return {
                "jobs": [
                    {
                        "name": job.name,
                        "pattern": job.pattern,
                        "hosts": [name(slot) for slot in job.hosts.tolist()],
                        "wanted_gbit_s": demand,
                        "gbit_s": rate,
                        "slowest": slowest,
                    }
                    for job, demand, rate, slowest in jobs
                ],
                "speed": self.speed,
                "seconds": self.seconds,
                "seed": self._seed,
            }

    def stop(self) -> None:
        """Stop the clock."""
        self._end.set()
        clock, self._clock = self._clock, None
        if clock is not None and clock is not threading.current_thread():
            clock.join()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _run_clock(self, speed: float) -> None:
        """Run the clock in a thread of its own while there is a speed."""
        if bool(speed) != bool(self.speed):
            now_s = time.monotonic()
            self._by_itself_s += now_s - self._since_s if speed else 0.0
            self._since_s = now_s
        self.speed = speed
        if self.speed and (self._clock is None or self._end.is_set() or not self._clock.is_alive()):
            self._end = threading.Event()
            self._clock = threading.Thread(target=self._tick, args=(self._end,), name="weft load", daemon=True)
            self._clock.start()
        elif not self.speed:
            self._end.set()

    def _tick(self, end: threading.Event) -> None:
        before_s = time.monotonic()
        took_s = 0.0
        while not end.wait(max(TICK_S, _REST * took_s)):
            now_s = time.monotonic()
            try:
                with self._one:  # so that nothing happens after the end of the load
                    if not end.is_set():
                        self.advance((now_s - before_s) * self.speed)
            except WeftError as error:  # a lab that is too busy, or tables that lead nowhere: it tries again
                log.warning("the load stands still: %s", error)
            before_s, took_s = now_s, time.monotonic() - now_s

    def _settle(self) -> LabSteady:
        """Return the rates, computed again if their inputs have changed."""
        devices = self._server.subnet.devices

        def look() -> tuple[object, Fabric | None]:
            awake = [name for name in _TABLES if name in vars(devices.tables)]
            sums = [zlib.crc32(devices.view(name)) for name in awake]
            inputs = devices.fabric, devices.generation, dict(devices.takes), sums
            return inputs, None if inputs == self._seen else still(self._fabric_now())

        inputs, fabric = self._server.call(look)
        if fabric is not None or self._steady is None:
            assert fabric is not None
            self._steady = settle_lab(
                fabric, self._jobs, Degradation(accept_share=dict(devices.takes), seed=self._seed)
            )
            self._seen = inputs
        return self._steady

    def _put_in_force(self, counts: Counts, flaps: list[tuple[int, int]]) -> None:
        """Add counts and flaps, in the server's thread."""
        devices = self._server.subnet.devices
        fabric, spoilt = devices.fabric, counts.counters[:, Counter.PORT_RCV_ERRORS]
        fabric.counters[:] += counts.counters
        devices.fec[:] += counts.fec
        for slot in np.flatnonzero(spoilt).tolist():
            devices.details[slot, "port_local_physical_errors", 0] += int(spoilt[slot])
        for slot, why, packets in counts.dropped:
            transit.count_drop(devices, slot, why, packets)
        for link, times in flaps:
            faults.flap(devices, int(fabric.links.a[link]), times)


def read_job(fabric: Fabric, spec: JobSpec, number: int, seed: int) -> LoadJob:
    """Read a job from `train=ring:h[1-64]@80%`, or from JSON: name, pattern, hosts and share."""
    if isinstance(spec, str):
        match = _JOB.fullmatch(spec)
        if match is None:
            raise ConfigError(f"{spec!r} is no job: write NAME=PATTERN:HOSTS@SHARE, as train=ring:h[1-64]@80%")
        spec = {key: value for key, value in match.groupdict().items() if value is not None}
    if unknown := set(spec) - {"name", "pattern", "hosts", "share"}:
        raise ConfigError(f"a job has no {sorted(unknown)[0]}: give name, pattern, hosts and share")
    hosts, share = spec.get("hosts"), spec.get("share", 1.0)
    names = expand(hosts) if isinstance(hosts, str) else hosts
    slots = [slot for name in names for slot in _ports(fabric, name)] if names else _all_hosts(fabric)
    job = LoadJob(
        name=str(spec.get("name") or f"job{number}"),
        pattern=str(spec.get("pattern", "")),
        hosts=np.array(slots, np.int64),
        share=parse_share(share) if isinstance(share, str) else float(share),
        seed=seed,
    )
    check_job(job)
    return job


def _ports(fabric: Fabric, name: str) -> list[int]:
    """Return the network ports of a server, host or port."""
    item = fabric[name]
    nodes = item.nodes if isinstance(item, Server) else [] if isinstance(item, Port) else [item]
    slots = [item.slot] if isinstance(item, Port) else [port.slot for node in nodes for port in node.ports]
    ports = fabric.ports
    cabled = [
        slot
        for slot in slots
        if ports.link[slot] >= 0
        and fabric.network_links[ports.link[slot]]
        and fabric.nodes.kind[ports.node[slot]] == NodeKind.HCA
    ]
    if not cabled:
        raise ConfigError(f"{name} cannot take part in a job: it has no adapter port with a network cable")
    if fabric.expanded:  # the first plane stands for the port
        return [int(fabric.first_port[node]) + 1 for node in np.unique(ports.node[cabled])]
    return cabled


def _all_hosts(fabric: Fabric) -> list[int]:
    slots: list[int] = host_ports(fabric).tolist()
    if not slots:
        raise ConfigError(f"no host of {fabric.spec} has a LID: a subnet manager gives them (`weft up --sm`)")
    return slots
