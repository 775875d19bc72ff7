"""Effects of a fault on a running job: how long it stalls, whether it survives, and its step time afterwards.

    routing = route(weft.load("superpod:su=1"))
    hurt = disturb(routing, parse_fault("dead:spine1"), lambda fabric: run_step(..., OverFabric(place(fabric), layout)))
    hurt.stands_s, hurt.survives, hurt.before.step_s, hurt.under.step_s

    slow:leaf1/3=4xHDR          the cable in that port came up slower
    cut:leaf1/40                the cable is pulled, for good
    flap:dgx1/mlx5_0/1@5s       the cable is down for so long
    dead:spine1                 the switch is gone

Packets in flight are lost. The sender retries: a reliable connection after each timeout, TCP after waits that double.
So a job stalls until the first retry after the network works again: the cable is back, or the subnet manager has
routed around it. If the last retry fails, the job ends and restarts from its checkpoint (`weft.training.goodput`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, find_named
from weft.fabric import faults
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.views import Port
from weft.routing.engine import CannotRoute
from weft.routing.route import Routing, reroute
from weft.sim.engine import Network
from weft.training.goodput import constants
from weft.training.step import Step

_FORMS = {
    "slow": "slow:leaf1/3=4xHDR",
    "cut": "cut:leaf1/40",
    "flap": "flap:dgx1/mlx5_0/1@5s",
    "dead": "dead:spine1",
}
_ACK_UNIT_S = 4.096e-6

StepOn = Callable[[Fabric], Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a cable, a port or a node."""

    kind: str
    where: str  # a port; with `dead` a node
    label: str = ""  # with `slow`: the rate that remains
    lasts_s: float = inf

    def __str__(self) -> str:
        if self.kind == "flap":
            return f"flap:{self.where}@{self.lasts_s:g}s"
        return f"{self.kind}:{self.where}" + (f"={self.label}" if self.label else "")

    def break_(self, fabric: Fabric) -> Fabric:
        """Return the fabric with this fault."""
        if self.kind == "slow":
            return faults.slow(fabric, self.where, self.label)
        return faults.kill(fabric, self.where) if self.kind == "dead" else faults.remove_link(fabric, self.where)

    def ports(self, fabric: Fabric) -> list[int]:
        """Return the slots of the affected ports: both ends of a cable, or all ports of a node, server or tray."""
        if self.where in fabric and isinstance(port := fabric[self.where], Port):
            return [end.slot for end in (port, port.peer) if end is not None]
        return [port.slot for node in fabric.nodes_of(self.where) for port in fabric.node(node).ports]


def parse_fault(text: str) -> Fault:
    """Parse a fault as the command line has it."""
    kind, colon, rest = text.partition(":")
    if not colon or not rest:
        raise ConfigError(f"fault {text!r} is not KIND:WHERE: write {', '.join(_FORMS.values())}")
    form = find_named("fault", kind, _FORMS)
    if kind == "slow":
        where, equals, label = rest.partition("=")
        if not (where and equals and label):
            raise ConfigError(f"fault {text!r} lacks a port or a rate: write {form}")
        return Fault(kind=kind, where=where, label=label)
    if kind == "flap":
        where, at, lasts = rest.rpartition("@")
        try:
            lasts_s = float(lasts.removesuffix("s"))
        except ValueError:
            lasts_s = 0.0
        if not (where and at and 0 < lasts_s < inf):
            raise ConfigError(f"fault {text!r} lacks a port or seconds: write {form}")
        return Fault(kind=kind, where=where, lasts_s=lasts_s)
    return Fault(kind=kind, where=rest)


def break_permanently(fabric: Fabric, texts: Sequence[str]) -> Fabric:
    """Apply faults that last: cut, slow or dead. Raise ConfigError for a flap."""
    for fault in map(parse_fault, texts):
        if fault.kind == "flap":
            raise ConfigError(f"--fault {fault} ends after a time, which only `weft train` models; use cut: or slow:")
        fabric = fault.break_(fabric)
    return fabric


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Retries:
    """The times after a loss at which a sender retries, and the time at which it gives up."""

    tries_s: NDArray[np.float64]
    gives_up_s: float

    def stands_s(self, outage_s: float) -> float:
        """Return the time from the loss to the first successful retry; infinity if there is none."""
        tries_s = self.tries_s[self.tries_s <= self.gives_up_s]
        index = int(np.searchsorted(tries_s, outage_s))
        return float(tries_s[index]) if index < len(tries_s) else inf


def retries_of(network: Network, timeout_exponent: int | None = None) -> Retries:
    """Return the retries of NCCL's connections; `timeout_exponent` is NCCL_IB_TIMEOUT for reliable connections."""
    table = constants()
    watchdog_s = table["watchdog"]["seconds"]
    if network is Network.TCP:
        tcp = table["tcp"]
        waits_s = np.minimum(tcp["first_s"] * 2.0 ** np.arange(tcp["retries"] + 1), tcp["longest_s"])
        return Retries(tries_s=np.cumsum(waits_s[:-1]), gives_up_s=min(float(waits_s.sum()), watchdog_s))
    exponent, tries = timeout_exponent or table["rc"]["timeout_exponent"], table["rc"]["retries"]
    timeout_s = _ACK_UNIT_S * 2.0**exponent
    return Retries(tries_s=timeout_s * np.arange(1, tries + 1), gives_up_s=min(timeout_s * (tries + 1), watchdog_s))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Disturbance:
    """A fault and its effects on a job."""

    fault: Fault
    before: Step
    under: Step | None  # while the fault lasts and routes avoid it; None: no step completes then
    outage_s: float  # until the network works again, or is routed around; infinity: never
    stands_s: float  # time without progress; infinity: until the job is restarted
    cut_off: tuple[str, ...]  # adapters that lost their only cable, and GPUs that are gone
    changed_entries: int  # in forwarding tables
    on_its_way: bool = True  # the job sends through the faulty part
    restarted: Step | None = None  # of a job that ended and is restarted on the same GPUs without the cut-off adapters

    @property
    def survives(self) -> bool:
        return self.stands_s < inf

    @property
    def slowdown(self) -> float | None:
        return None if self.under is None else self.under.step_s / self.before.step_s

    def report(self) -> dict[str, Any]:
        """Return the fields of `--json`; infinite times are null."""
        return {
            "fault": str(self.fault),
            "before_step_s": self.before.step_s,
            "under_step_s": None if self.under is None else self.under.step_s,
            "slowdown": self.slowdown,
            "outage_s": None if self.outage_s == inf else self.outage_s,
            "stands_s": None if self.stands_s == inf else self.stands_s,
            "survives": self.survives,
            "cut_off": list(self.cut_off),
            "changed_entries": self.changed_entries,
            "on_its_way": self.on_its_way,
            "restarted_step_s": None if self.restarted is None else self.restarted.step_s,
        }


def disturb(
    routing: Routing,
    fault: Fault,
    step_on: StepOn,
    *,
    before: Step | None = None,
    retries: Retries | None = None,
    reroute_s: float | None = None,
    used: NDArray[np.bool_] | None = None,
) -> Disturbance:
    """Apply a fault, reroute as the subnet manager does, with few changed entries, and run the step again.

    retries: by default those of reliable connections.
    reroute_s: time from the fault to new tables in the switches.
    used: [port slot] the ports that the job sends through; faults elsewhere do not affect it.
    """
    broken = fault.break_(routing.fabric)
    before = before or step_on(routing.fabric)
    if used is not None and not used[fault.ports(routing.fabric)].any():
        return Disturbance(
            fault=fault,
            before=before,
            under=before,
            outage_s=0.0,
            stands_s=0.0,
            cut_off=(),
            changed_entries=0,
            on_its_way=False,
        )
    cut_off = _cut_off(routing.fabric, broken)
    around_s = constants()["reroute"]["seconds"] if reroute_s is None else reroute_s
    again = None if cut_off else _around(broken, routing)
    outage_s = 0.0 if fault.kind == "slow" else fault.lasts_s if again is None else min(fault.lasts_s, around_s)
    if fault.kind != "slow" and fault.lasts_s <= around_s:
        again = None  # the fault ends before the new routes
    waits = retries or retries_of(Network.INFINIBAND)
    stands_s = waits.stands_s(outage_s) if outage_s else 0.0
    return Disturbance(
        fault=fault,
        before=before,
        under=step_on(again.fabric) if again is not None else None,
        outage_s=outage_s,
        stands_s=stands_s,
        cut_off=cut_off,
        changed_entries=(again.changed_entries or 0) if again is not None else 0,
        restarted=_restart(routing, broken, step_on) if stands_s == inf and fault.lasts_s == inf else None,
    )


def _restart(routing: Routing, broken: Fabric, step_on: StepOn) -> Step | None:
    """Return a step of the job restarted on the same servers; None if GPUs failed or a server has no adapter left."""
    if len(broken.of_kind(NodeKind.GPU)) < len(routing.fabric.of_kind(NodeKind.GPU)):
        return None
    again = _around(broken, routing)
    try:
        return None if again is None else step_on(again.fabric)
    except ConfigError:
        return None


def _around(broken: Fabric, routing: Routing) -> Routing | None:
    """Return the routes around a fault; None if the fabric is no longer connected."""
    try:
        return reroute(broken, routing)
    except CannotRoute:
        return None


def _cut_off(before: Fabric, after: Fabric) -> tuple[str, ...]:
    """Return the adapters that lost their last network cable, and the GPUs that failed."""
    left = _needed(after)
    return tuple(name for name in _needed(before) if name not in left)


def _needed(fabric: Fabric) -> dict[str, None]:
    ends = np.concatenate([nodes[fabric.network_links] for nodes in fabric.link_nodes])
    adapters = np.unique(ends[fabric.nodes.kind[ends] == NodeKind.HCA])
    nodes = (*adapters.tolist(), *fabric.of_kind(NodeKind.GPU).tolist())
    return dict.fromkeys(fabric.nodes.name[node] for node in nodes)
