"""Effects of a change of a fabric: pairs that lose their connection, routes that change, and the loss of each job.

The model has the forwarding tables of the present. A change is compared at three moments: before it; while the tables
still point at removed links; and after the subnet manager has routed around them, with as few changed entries as the
routing engine allows. Rates of jobs are those of `weft.sim.steady`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.lab.load import JobSpec, read_job
from weft.routing.check import TableCheck, check
from weft.routing.engine import CannotRoute, Options
from weft.routing.patterns import host_ports
from weft.routing.route import Routing, reroute, route
from weft.sim.steady import LoadJob, Steady, settle
from weft.tenants.intent import Intent
from weft.training.failures import break_permanently
from weft.twin.new_servers import add_servers
from weft.twin.partitions import PartitionChange, compare_keys, plan_keys

_BUSIEST = 5  # links that are listed
_LOSS = 1e-3  # a smaller change of a rate is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a fabric, in one or several respects."""

    faults: tuple[str, ...] = ()  # as `--fault` has them
    routing_engine: str = ""  # empty: auto, near to the present tables
    new_servers: int = 0  # at free ports
    tenants: Intent | None = None  # that replaces the present partitions

    def __post_init__(self) -> None:
        if not (self.faults or self.routing_engine or self.new_servers or self.tenants):
            raise ConfigError(
                "nothing changes: give --fault cut:leaf1/5, --routing-engine up-down, --add-servers 32, "
                "--tenants FILE or --reboot leaf1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRates:
    """The payload of a job in Gbit/s."""

    name: str
    before_gbit_s: float
    meanwhile_gbit_s: float  # until the tables are changed
    after_gbit_s: float

    @property
    def loss(self) -> float:
        """Return the share that the job loses after the change; negative for a gain."""
        loss = 1 - self.after_gbit_s / self.before_gbit_s if self.before_gbit_s else 0.0
        return 0.0 if abs(loss) < _LOSS else loss


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyLink:
    """The share of time that a port sends, before and after the change."""

    port: str
    before: float | None  # None: it had no link
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The effects of a change."""

    spec: str
    change: Change
    hosts: int  # host ports with a LID before the change
    cut_off: tuple[str, ...]  # host ports that no other host reaches afterwards
    refusal: str  # the reason that the rest cannot be routed; empty if it can
    engine: str
    changed_entries: int
    changed_switches: int
    entries: int
    proof: TableCheck | None
    alarms: tuple[str, ...]  # that a monitor would show
    jobs: tuple[JobRates, ...]
    busiest: tuple[BusyLink, ...]
    new_hosts: int = 0  # host ports of new servers
    partitions: PartitionChange | None = None  # changed pairs, if another intent is given

    @property
    def is_safe(self) -> bool:
        """Return whether all hosts stay connected and nothing can deadlock."""
        return not self.cut_off and not self.refusal and self.proof is not None and self.proof.ok


def ask(present: Fabric, change: Change, jobs: Sequence[JobSpec | LoadJob] = (), *, seed: int = 1) -> Answer:
    """Return the effects of a change on a fabric with forwarding tables; without tables it is routed first.

    Jobs are given as in `weft load`, or as objects with port slots of this fabric.
    """
    if not (present.tables.lft != NO_ROUTE).any():
        present = route(present).fabric
    broken = break_permanently(present, change.faults)
    if change.new_servers:
        broken = add_servers(broken, change.new_servers)
    options = Options(engine=change.routing_engine or "auto")
    load = read_jobs(present, jobs, seed)
    hosts, remaining = host_names(present), set(host_names(broken))
    answer = Answer(
        spec=present.spec,
        change=change,
        hosts=len(hosts),
        cut_off=tuple(name for name in hosts if name not in remaining),
        refusal="",
        engine="",
        changed_entries=0,
        changed_switches=0,
        entries=int((present.tables.lft != NO_ROUTE).sum()),
        proof=None,
        alarms=_alarms(present, broken),
        jobs=(),
        busiest=(),
        new_hosts=len(remaining - set(hosts)),
    )
    try:
        before = Routing(fabric=present, engine=options.engine, options=options, notes=())
        after = reroute(broken, before)
    except CannotRoute as error:
        return replace(answer, refusal=str(error))
    if change.tenants is not None:
        after.tables.pkey = plan_keys(broken, change.tenants)
        answer = replace(answer, partitions=compare_keys(broken, broken.tables.pkey, after.tables.pkey))
    elif "pkey" in vars(broken.tables):
        after.tables.pkey = broken.tables.pkey
    moments = [settle_jobs(present, fabric, load) for fabric in (present, broken, after.fabric)]
    return replace(
        answer,
        engine=after.engine,
        changed_entries=after.changed_entries or 0,
        changed_switches=_changed_switches(present, after.fabric),
        proof=check(after.fabric),
        jobs=job_rates(load, moments),
        busiest=_busiest(moments[0], moments[2]),
    )


def read_jobs(fabric: Fabric, jobs: Sequence[JobSpec | LoadJob], seed: int) -> list[LoadJob]:
    """Return jobs given as in `weft load`, or as objects, as objects."""
    return [
        job if isinstance(job, LoadJob) else read_job(fabric, job, number, seed) for number, job in enumerate(jobs, 1)
    ]


def host_names(fabric: Fabric) -> list[str]:
    """Return the names of the host ports that have a cable."""
    return [fabric.port(slot).name for slot in host_ports(fabric).tolist() if fabric.ports.link[slot] >= 0]


def _alarms(present: Fabric, broken: Fabric) -> tuple[str, ...]:
    """Return the suspects that `weft diagnose` would list: switches that are gone, links that are down or slower."""
    alarms = [f"switch down: {name}" for name in _switches(present) if name not in broken]
    for link in map(present.link, range(len(present.links))):
        ends = [end.name for end in (link.a, link.b)]
        if any(end.node.name not in broken for end in (link.a, link.b)):
            continue
        left = broken.find_port(ends[0]).link
        if left is None:
            alarms.append(f"link down: {ends[0]} - {ends[1]}")
        elif left.rate_gbit_s < link.rate_gbit_s:
            alarms.append(f"degraded link: {ends[0]} - {ends[1]}, {left.label} instead of {link.label}")
    return tuple(alarms)


def _switches(fabric: Fabric) -> list[str]:
    return [fabric.nodes.name[node] for node in fabric.of_kind(NodeKind.SWITCH).tolist()]


def _changed_switches(present: Fabric, after: Fabric) -> int:
    """Return the number of remaining switches with another entry than before for a LID that has a route."""
    names = {name: row for row, name in enumerate(_switches(present))}
    changed = 0
    for row, name in enumerate(_switches(after)):
        new, old = after.tables.lft[row], present.tables.lft[names[name]]
        width = min(len(new), len(old))
        has_route = new[:width] != NO_ROUTE
        changed += bool((new[:width] != old[:width])[has_route].any())
    return changed


# -- rates of jobs ----------------------------------------------------------------------------------------------------


def settle_jobs(present: Fabric, fabric: Fabric, load: Sequence[LoadJob]) -> Steady | None:
    """Return the rates of jobs that were read on the present fabric; None if no job has two hosts left."""
    jobs = []
    for job in load:
        names = [present.port(slot).name for slot in job.hosts.tolist()]
        slots = [fabric.find_port(name).slot for name in names if name in fabric]
        if len(slots) > 1:
            jobs.append(replace(job, hosts=np.array(slots, np.int64)))
    return settle(fabric, jobs) if jobs else None


def job_rates(load: Sequence[LoadJob], moments: Sequence[Steady | None]) -> tuple[JobRates, ...]:
    """Return the rates of each job; a job without two hosts has none."""
    columns = []
    for steady in moments:
        names = [job.name for job in steady.jobs] if steady is not None else []
        rates = dict(zip(names, steady.job_gbit_s.tolist() if steady is not None else [], strict=True))
        columns.append([rates.get(job.name, 0.0) for job in load])
    return tuple(
        JobRates(name=job.name, before_gbit_s=before, meanwhile_gbit_s=meanwhile, after_gbit_s=after)
        for job, before, meanwhile, after in zip(load, *columns, strict=True)
    )


def _busiest(before: Steady | None, after: Steady | None) -> tuple[BusyLink, ...]:
    """Return the ports that send most after the change."""
    if before is None or after is None:
        return ()
    ports = []
    for slot in np.argsort(-after.busy, kind="stable")[:_BUSIEST].tolist():
        name = after.fabric.port(slot).name
        earlier = float(before.busy[before.fabric.find_port(name).slot]) if name in before.fabric else None
        if after.busy[slot] > 0:
            ports.append(BusyLink(port=name, before=earlier, after=float(after.busy[slot])))
    return tuple(ports)
