"""Plan maintenance: an order of reboots and replacements in which the fabric keeps working.

    plan = plan_maintenance(fabric, ["dead:spine1", "dead:spine2", "cut:leaf1/5"], keep=0.75)
    for step in plan.steps: ...      step.tasks, step.kept, step.during, step.after

Each step takes as many tasks as the limits allow. Its routes are computed as the subnet manager does, with the tasks'
cables out and again with them back, and checked: all other host ports are connected, and nothing can deadlock, also
while some switches have the old tables and some the new ones. The manager writes tables in an order without loops;
`dropped_entries` counts those for which it has to drop packets meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.subnets import subnets_of
from weft.fabric.tables import NO_ROUTE
from weft.lab.load import JobSpec
from weft.routing import ENGINES
from weft.routing.check import check
from weft.routing.engine import CannotRoute, Options
from weft.routing.graph import switch_graph
from weft.routing.mixed import LANES_CHANGE, find_mixed_loop
from weft.routing.patterns import host_ports
from weft.routing.quality import load_all_to_all
from weft.routing.route import Routing, reroute, route
from weft.sim.steady import LoadJob
from weft.sm.ucast.upload_order import UploadPlan, plan_upload
from weft.sm.ucast.upload_waits import BLOCK
from weft.training.failures import break_permanently
from weft.twin.what_if import host_names, job_rates, read_jobs, settle_jobs

KEEP = 0.25  # tables change little after a fault, so a link may take all paths of a dead one: rates halve, or worse
ENGINE = "routing engine "  # begins the task that changes to another one
_MOST_REFUSED = 8  # tasks in a row that do not fit into a step


class Unsafe(ConfigError):
    """An error: a step would break one of the promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A proved change of forwarding tables."""

    engine: str
    changed_entries: int
    dropped_entries: int  # entries that drop packets for a moment, so that none can loop
    pairs: int  # of ports, all connected
    mixed_loop: tuple[str, ...]  # ports of a credit loop that old and new entries can form together


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A set of tasks that are done together."""

    tasks: tuple[str, ...]  # dead:SWITCH, cut:PORT, or `routing engine NAME` alone
    cut_off: tuple[str, ...]  # host ports without a connection during the step
    kept: float  # smallest share of its rate that a job keeps, or all-to-all among all hosts
    during: Change
    after: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """The steps of a maintenance."""

    spec: str
    keep: float
    hosts: int
    engine: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of each step."""

    keep: float = KEEP
    accept_cut_off: bool = False  # hosts whose only switch is rebooted may lose their connection meanwhile
    accept_mixed: bool = False  # steps whose old and new tables together can form a credit loop

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise ConfigError(f"--keep-rate must be in (0, 1], got {self.keep:g}")


def plan_maintenance(
    present: Fabric,
    tasks: Sequence[str],
    limits: Limits | None = None,
    jobs: Sequence[JobSpec | LoadJob] = (),
    *,
    to_engine: str = "",
    seed: int = 1,
    progress: Callable[[str], None] = lambda message: None,
) -> Maintenance:
    """Return steps that do all tasks, `dead:SWITCH` or `cut:PORT`; raise Unsafe if a task alone breaks a limit.

    to_engine   first change to the tables of this routing engine, if need be by way of those of another one
    """
    if not tasks and not to_engine:
        raise ConfigError("nothing to do: give --reboot SWITCH, --replace PORT or --to-engine ENGINE")
    if len(subnets_of(present)) > 1 or present.planes > 1:
        raise ConfigError(f"{present.spec} has several planes or subnets; give one of them, as a file")
    routing = route(present)
    if (present.tables.lft != NO_ROUTE).any():
        routing = replace(routing, fabric=present)
    planner = _Planner(routing, limits or Limits(), read_jobs(routing.fabric, jobs, seed))
    remaining, steps = list(dict.fromkeys(tasks)), planner.change_engine(to_engine) if to_engine else []
    while remaining:
        progress(f"step {len(steps) + 1}, {len(remaining):,} of {len(tasks):,} tasks remain")
        step = planner.take(remaining)
        steps.append(step)
        remaining = [task for task in remaining if task not in step.tasks]
    return Maintenance(
        spec=present.spec,
        keep=planner.limits.keep,
        hosts=len(planner.hosts),
        engine=steps[-1].after.engine,
        steps=tuple(steps),
    )


class _Planner:
    """The fabric with the tables that it has between two steps."""

    def __init__(self, routing: Routing, limits: Limits, load: list[LoadJob]) -> None:
        self.routing, self.limits, self.load = routing, limits, load
        self.hosts = host_names(routing.fabric)
        self.fabric = routing.fabric
        self.before = self._measure(routing.fabric)

    def take(self, tasks: list[str]) -> Step:
        """Return the next step: the first task, and as many of the others as fit."""
        chosen = [tasks[0]]
        step, routing = self._try(chosen)
        rest, position, size, refused = tasks[1:], 0, 1, 0
        while position < len(rest) and refused < _MOST_REFUSED:
            more = rest[position : position + size]
            try:
                step, routing = self._try([*chosen, *more])
            except Unsafe:
                refused, position, size = (
                    (refused + 1, position + 1, 1) if size == 1 else (refused, position, size // 2)
                )
                continue
            chosen += more
            position, size, refused = position + len(more), 2 * size, 0
        self.routing = routing
        return step

    def change_engine(self, engine: str) -> list[Step]:
        """Return the steps from the present tables to those of an engine, by way of another engine if need be."""
        target = route(self.fabric, Options(engine=engine))
        refusal: Unsafe | None = None
        for between in ("", *ENGINES):
            try:
                via = [route(self.fabric, Options(engine=between))] if between else []
                steps = [self._retable(*pair) for pair in pairwise((self.routing, *via, target))]
            except (CannotRoute, Unsafe) as error:
                refusal = refusal or (error if isinstance(error, Unsafe) else None)
                continue
            self.routing = target
            return steps
        raise refusal or Unsafe(f"no change to {engine} is safe")

    def _retable(self, old: Routing, new: Routing) -> Step:
        """Return the step from the tables of one engine to those of another."""
        title = f"{ENGINE}{new.engine}"
        change, kept = self._prove(title, old, new), self._kept(new.fabric)
        self._check_kept(title, kept)
        return Step(tasks=(title,), cut_off=(), kept=kept, during=change, after=change)

    def _check_kept(self, title: str, kept: float) -> None:
        if kept < self.limits.keep - 1e-9:
            raise Unsafe(
                f"{title}: {kept:.1%} of the rate is kept, less than {self.limits.keep:.1%}\n"
                f"  Accept it with --keep-rate {int(100 * kept) / 100:g}."
            )

    def _try(self, tasks: list[str]) -> tuple[Step, Routing]:
        """Return a step of these tasks and the tables after it; raise Unsafe if it breaks a limit."""
        title = " and ".join(tasks) if len(tasks) < 3 else f"{len(tasks)} tasks"
        broken = _without(self.routing.fabric, tasks)
        remaining = set(host_names(broken))
        cut_off = tuple(name for name in self.hosts if name not in remaining)
        self._check_cut_off(title, tasks, cut_off)
        try:
            during = reroute(broken, self.routing)
            after = route(self.fabric, self.routing.options)  # as the manager does where links come back
        except CannotRoute as error:
            raise Unsafe(f"{title}: the rest cannot be routed: {error}") from None
        kept = self._kept(during.fabric)
        self._check_kept(title, kept)
        changes = [self._prove(title, *pair) for pair in ((self.routing, during), (during, after))]
        step = Step(tasks=tuple(tasks), cut_off=cut_off, kept=kept, during=changes[0], after=changes[1])
        return step, after

    def _check_cut_off(self, title: str, tasks: list[str], cut_off: tuple[str, ...]) -> None:
        """Refuse hosts without a connection, unless they are accepted; many tasks together may cut off 1 - keep."""
        if not cut_off:
            return
        if not self.limits.accept_cut_off:
            raise Unsafe(
                f"{title}: {len(cut_off)} host ports lose their connection, {cut_off[0]} among them\n"
                "  Move their jobs away, then use --accept-cut-off."
            )
        if len(cut_off) == len(self.hosts):
            raise Unsafe(f"{title}: no host port keeps its connection")
        if len(tasks) > 1 and len(cut_off) > (1 - self.limits.keep) * len(self.hosts):
            raise Unsafe(f"{title}: {len(cut_off)} of {len(self.hosts)} host ports lose their connection together")

    def _measure(self, fabric: Fabric) -> dict[str, float]:
        """Return the rate of each job, or the share of a crossbar's rate of all-to-all among all hosts."""
        if self.load:
            moment = settle_jobs(self.fabric, fabric, self.load)
            return {job.name: job.before_gbit_s for job in job_rates(self.load, [moment, moment, moment])}
        hosts = len(host_ports(fabric))
        return {"all-to-all": (hosts - 1) / float(load_all_to_all(fabric).max()) if hosts > 1 else 0.0}

    def _kept(self, fabric: Fabric) -> float:
        now = self._measure(fabric)
        return min([1.0, *(now[name] / rate for name, rate in self.before.items() if rate)])

    def _prove(self, title: str, old: Routing, new: Routing) -> Change:
        """Check the new tables, and those of the switches on the way from the old ones."""
        proof = check(new.fabric)
        if not proof.ok:
            raise Unsafe(f"{title}: {proof.explain()}")
        loop = find_mixed_loop(old.fabric, new.fabric)
        if loop and not self.limits.accept_mixed:
            reason = LANES_CHANGE if loop == (LANES_CHANGE,) else f"credit loop {' -> '.join(loop)}"
            raise Unsafe(
                f"{title}: while tables are written, old and new ones together can deadlock: {reason}\n"
                "  Stop traffic first, or accept packets that wait until they expire: --accept-mixed."
            )
        upload = _order_upload(old, new)
        return Change(
            engine=new.engine,
            changed_entries=upload.changed_entries,
            dropped_entries=upload.dropped_entries,
            pairs=proof.pairs,
            mixed_loop=loop,
        )


def _without(fabric: Fabric, tasks: Sequence[str]) -> Fabric:
    """Return the fabric without the switches and cables of the tasks; a cable may be one of such a switch."""
    switches = [task for task in tasks if task.startswith("dead:")]
    broken = break_permanently(fabric, switches)
    for task in tasks:
        port = task.partition(":")[2]
        if task not in switches and (port not in broken or broken.find_port(port).link is None):
            fabric.find_port(port)  # or raise an error
            continue
        if task not in switches:
            broken = break_permanently(broken, [task])
    return broken


def _order_upload(old: Routing, new: Routing) -> UploadPlan:
    """Return the order in which the new tables are written in a subnet in use."""
    fabric = new.fabric
    graph = switch_graph(fabric, fabric.tables.lid, fabric.tables.lmc)
    width = -(-fabric.tables.lft.shape[1] // BLOCK) * BLOCK
    far = np.full((graph.n_switches, int(fabric.nodes.n_ports[graph.switches].max()) + 1), -1, np.int32)
    far[graph.near, graph.port] = graph.far
    guids = [each.fabric.nodes.guid[each.fabric.of_kind(NodeKind.SWITCH)] for each in (old, new)]
    _, old_row, row = np.intersect1d(guids[0], guids[1], return_indices=True)
    tables = np.full((2, len(guids[1]), width), NO_ROUTE, np.uint8)
    old_width = min(width, old.tables.lft.shape[1])
    tables[0, row, :old_width] = old.tables.lft[old_row, :old_width]
    tables[1, :, : new.tables.lft.shape[1]] = new.tables.lft
    return plan_upload(far, tables[0], tables[1], in_use=True)
