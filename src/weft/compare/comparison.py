"""The comparison: the same job on the same servers, over each fabric.

Each fabric's patterns are run once over its own routes (`weft.collectives.measure`); times, curves over sizes and over
servers are closed form from what those runs gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import weft
from weft.collectives.cluster import Cluster, from_fabric
from weft.collectives.estimate import Estimate, estimate
from weft.collectives.kinds import Algorithm, Collective
from weft.collectives.measure import measure
from weft.collectives.network import Networks, Pattern
from weft.collectives.ranks import place
from weft.compare import words
from weft.compare.crowd import Crowd, find_crowd
from weft.compare.job import Call, Job
from weft.compare.published import Published, published
from weft.compare.recable import natural, recable, template_of
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.model import Fabric
from weft.fabric.prices import Bill, make_bill
from weft.routing.engine import Options as Routing
from weft.routing.route import route
from weft.sim.engine import Memory, Network, Options, Paths
from weft.sim.result import Result

USUAL = ("ndr", "roce-400", "eth-100-tcp", "hdr", "xdr", "opa-100")
SIZES_BYTES = tuple(1 << power for power in range(10, 35))  # of the curve, 1 KiB to 16 GiB
_MORE_SERVERS = 8  # the curve over servers ends at so many times those of the job
_TREES = (Algorithm.TREE, Algorithm.NVLS_TREE)

Progress = Callable[[str], None]  # the fabric that is run next


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Of a curve."""

    at: int  # bytes, or servers
    time_us: float
    bus_gbyte_s: float

    def report(self, axis: str) -> dict[str, float]:
        return {axis: self.at, "time_us": self.time_us, "bus_gbyte_s": self.bus_gbyte_s}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """One fabric under the job."""

    wire: Interconnect
    fabric: Fabric
    template: catalog.Server  # with the fabric's card in its slots
    cluster: Cluster
    networks: Networks
    results: Mapping[Pattern, Result]  # of the runs that the networks come from
    bill: Bill
    job: Job
    estimates: tuple[Estimate, ...]  # of each call of the job
    by_size: tuple[Point, ...]  # of the job's leading collective
    by_servers: tuple[Point, ...]  # of the job
    published: Published  # measurements of its kind that weft is held to

    @property
    def time_us(self) -> float:
        return sum(call.count * one.time_us for call, one in self._each)

    @property
    def bus_gbyte_s(self) -> float:
        """What each rank's link carries, as nccl-tests counts, over all calls."""
        return _bus_gbyte_s(self.job, self.cluster.ranks, self.time_us)

    @property
    def parts_us(self) -> dict[str, float]:
        """Where the time goes: launch, steps, pipeline, data."""
        total: dict[str, float] = {}
        for call, one in self._each:
            for part, us in one.parts.items():
                total[part] = total.get(part, 0.0) + call.count * us
        return total

    @property
    def leading(self) -> Estimate:
        """The call that takes the most time."""
        return max(self._each, key=lambda pair: pair[0].count * pair[1].time_us)[1]

    @property
    def pattern(self) -> Pattern:
        """Who talks to whom in the leading call."""
        if self.leading.collective is Collective.ALL_TO_ALL:
            return Pattern.PAIRS
        return Pattern.TREE if self.leading.algorithm in _TREES else Pattern.RING

    @property
    def adapter_gbyte_s(self) -> float:
        """Payload that each adapter moves in the leading call's pattern, at most."""
        return self.networks[self.pattern].adapter_gbyte_s

    @property
    def crowd(self) -> Crowd | None:
        """The cable that more share than it can carry, under the leading call's pattern."""
        return find_crowd(self.results[self.pattern])

    @property
    def bound(self) -> str:
        """Who is to be faster: latency, where data moves for less than half the time; or what the data waits for."""
        return "latency" if 2 * self.parts_us.get("data", 0.0) < self.time_us else self.leading.bound

    @property
    def why(self) -> str:
        return words.why(self)

    @property
    def _each(self) -> list[tuple[Call, Estimate]]:
        return list(zip(self.job.calls, self.estimates, strict=True))

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
        crowd = self.crowd
        return {
            "fabric": self.wire.name,
            "label": self.wire.label,
            "spec": self.fabric.spec,
            "adapters": {
                "model": self.wire.adapter,
                "per_server": self.cluster.nics,
                "gbit_s": self.cluster.nic_gbit_s,
            },
            "time_us": self.time_us,
            "bus_gbyte_s": self.bus_gbyte_s,
            "parts_us": self.parts_us,
            "bound": self.bound,
            "algorithm": self.leading.algorithm,
            "protocol": self.leading.protocol,
            "channels": self.leading.channels,
            "why": self.why,
            "published": self.published.report(),
            "networks": {
                name: {"step_us": one.step_us, "adapter_gbyte_s": one.adapter_gbyte_s}
                for name, one in self.networks.items()
            },
            "crowd": {"port": crowd.port, "load": crowd.load} if crowd else None,
            "cost": self.bill.report(),
            "by_size": [point.report("size_bytes") for point in self.by_size],
            "by_servers": [point.report("servers") for point in self.by_servers],
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """All fabrics, in the order in which they were asked for."""

    spec: str
    job: Job
    servers: int
    gpus: int  # of the job
    seed: int
    outcomes: tuple[Outcome, ...]

    @property
    def fastest(self) -> Outcome:
        return min(self.outcomes, key=lambda one: one.time_us)

    @property
    def slowest(self) -> Outcome:
        return max(self.outcomes, key=lambda one: one.time_us)

    def speedup(self, outcome: Outcome) -> float:
        """Against the slowest."""
        return self.slowest.time_us / outcome.time_us

    @property
    def finding(self) -> str:
        return words.finding(self)

    @property
    def trust(self) -> str:
        return words.trust(self)

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "weft": weft.__version__,
            "spec": self.spec,
            "job": self.job.name,
            "calls": [
                {"collective": call.collective, "size_bytes": call.size_bytes, "count": call.count}
                for call in self.job.calls
            ],
            "servers": self.servers,
            "gpus": self.gpus,
            "seed": self.seed,
            "finding": self.finding,
            "trust": self.trust,
            "fabrics": [{**one.report(), "speedup": self.speedup(one)} for one in self.outcomes],
        }


def compare(
    spec: str,
    job: Job,
    fabrics: Sequence[str] | None = None,
    *,
    servers: int | None = None,
    seed: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Run the job over each of these fabrics of the catalog, on all servers of the spec or on the first so many."""
    wires = natural(spec, USUAL) if fabrics is None else _named(fabrics)
    cabled = recable(spec, wires)
    count = _count_servers(cabled[0], servers)
    outcomes = []
    for wire, fabric in zip(wires, cabled, strict=True):
        if progress is not None:
            progress(wire.label)
        outcomes.append(_run(wire, fabric, job, count, seed))
    return Comparison(
        spec=spec, job=job, servers=count, gpus=outcomes[0].cluster.ranks, seed=seed, outcomes=tuple(outcomes)
    )


def _named(fabrics: Sequence[str]) -> list[Interconnect]:
    if not fabrics:
        raise ConfigError(f"no fabric is named: give some of {', '.join(w.name for w in catalog.interconnects())}")
    wires = [catalog.interconnect(name) for name in fabrics]
    twice = next((wire.name for index, wire in enumerate(wires) if wire in wires[:index]), None)
    if twice is not None:
        raise ConfigError(f"fabric {twice} is named twice: name each once")
    return wires


def _count_servers(fabric: Fabric, servers: int | None) -> int:
    there = len(fabric.servers)
    count = there if servers is None else servers
    if not 2 <= count <= there:
        raise ConfigError(
            f"{count} servers of {fabric.spec}, which has {there}: a job takes 2 to {there}; "
            "GPUs of one server need no fabric"
        )
    return count


def _run(wire: Interconnect, fabric: Fabric, job: Job, count: int, seed: int) -> Outcome:
    routed = route(fabric, Routing(adaptive=True)).fabric
    names = routed.servers[:count]
    network = Network(wire.network)
    options = Options(
        seed=seed,
        network=network,
        paths=Paths(wire.paths),
        # NCCL's sockets send from host memory, which the GPU's kernel itself writes: no copy engine takes part.
        memory=Memory.HOST if network is Network.TCP else Memory.GPUDIRECT,
    )
    measured = measure(place(routed, names), options, patterns=_patterns(job))
    cluster = from_fabric(routed, names)
    return Outcome(
        wire=wire,
        fabric=routed,
        template=template_of(fabric),
        cluster=cluster,
        networks=measured.networks,
        results=measured.results,
        bill=make_bill(fabric),
        job=job,
        estimates=_estimates(cluster, job, measured.networks),
        by_size=_by_size(cluster, job.leading.collective, measured.networks),
        by_servers=_by_servers(cluster, job, measured.networks),
        published=published(wire, cluster.nic_gbit_s, job.leading.size_bytes),
    )


def _patterns(job: Job) -> list[Pattern]:
    """Those that the job's collectives use."""
    exchanges = {call.collective is Collective.ALL_TO_ALL for call in job.calls}
    return ([Pattern.RING, Pattern.TREE] if False in exchanges else []) + ([Pattern.PAIRS] if True in exchanges else [])


def _estimates(cluster: Cluster, job: Job, networks: Networks) -> tuple[Estimate, ...]:
    return tuple(estimate(cluster, call.collective, call.size_bytes, networks=networks) for call in job.calls)


def _by_size(cluster: Cluster, collective: Collective, networks: Networks) -> tuple[Point, ...]:
    made = [(size, estimate(cluster, collective, size, networks=networks)) for size in SIZES_BYTES]
    return tuple(Point(at=size, time_us=one.time_us, bus_gbyte_s=one.bus_gbyte_s) for size, one in made)


def _by_servers(cluster: Cluster, job: Job, networks: Networks) -> tuple[Point, ...]:
    """As if more servers, or fewer, got the same of the network."""
    most = cluster.nodes * _MORE_SERVERS
    counts = {1 << power for power in range(1, most.bit_length())} | {cluster.nodes}
    points = []
    for count in sorted(counts):
        sized = replace(cluster, nodes=count)
        made = _estimates(sized, job, networks)
        time_us = sum(call.count * one.time_us for call, one in zip(job.calls, made, strict=True))
        points.append(Point(at=count, time_us=time_us, bus_gbyte_s=_bus_gbyte_s(job, sized.ranks, time_us)))
    return tuple(points)


def _bus_gbyte_s(job: Job, ranks: int, time_us: float) -> float:
    moved = sum(call.count * call.size_bytes * call.collective.bus_factor(ranks) for call in job.calls)
    return moved / time_us / 1000
