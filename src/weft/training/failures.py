"""What a fault does to a job in the middle of it: how long it stands still, whether it survives, how fast it goes on.

    routing = route(weft.load("superpod:su=1"))
    hurt = disturb(routing, parse_fault("dead:spine1"), lambda fabric: run_step(..., OverFabric(place(fabric), layout)))
    hurt.stands_s, hurt.survives, hurt.before.step_s, hurt.under.step_s

    slow:leaf1/3=4xHDR          the cable in that port came up slower
    cut:leaf1/40                the cable is pulled, for good
    flap:dgx1/mlx5_0/1@5s       the cable is down for so long
    dead:spine1                 the switch is gone

Packets on their way are lost; who sent them tries again, at moments of its own: a reliable connection after each
timeout, TCP after waits that double. So a job stands still until the first of these moments after the network is well:
the cable is back, or, where another way exists, the subnet manager's new routes lead around it. When the last try
fails too, the job ends and starts again from its checkpoint (`weft.training.goodput`).
"""

from __future__ import annotations

from collections.abc import Callable
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
    """One thing that breaks."""

    kind: str
    where: str  # a port, or of `dead` a node
    label: str = ""  # of `slow`: the rate that is left
    lasts_s: float = inf

    def __str__(self) -> str:
        if self.kind == "flap":
            return f"flap:{self.where}@{self.lasts_s:g}s"
        return f"{self.kind}:{self.where}" + (f"={self.label}" if self.label else "")

    def break_(self, fabric: Fabric) -> Fabric:
        """The fabric while the fault lasts."""
        if self.kind == "slow":
            return faults.slow(fabric, self.where, self.label)
        return faults.kill(fabric, self.where) if self.kind == "dead" else faults.remove_link(fabric, self.where)

    def ports(self, fabric: Fabric) -> list[int]:
        """Slots of what is broken: both ends of a cable, or all ports of a node, a server or a tray."""
        if self.where in fabric and isinstance(port := fabric[self.where], Port):
            return [end.slot for end in (port, port.peer) if end is not None]
        return [port.slot for node in faults.nodes_of(fabric, self.where) for port in fabric.node(node).ports]


def parse_fault(text: str) -> Fault:
    """As the command line has it."""
    kind, colon, rest = text.partition(":")
    if not colon or not rest:
        raise ConfigError(f"fault {text!r} is not KIND:WHERE: write {', '.join(_FORMS.values())}")
    form = find_named("fault", kind, _FORMS)
    if kind == "slow":
        where, equals, label = rest.partition("=")
        if not (where and equals and label):
            raise ConfigError(f"fault {text!r} says no port and rate: write {form}")
        return Fault(kind=kind, where=where, label=label)
    if kind == "flap":
        where, at, lasts = rest.rpartition("@")
        try:
            lasts_s = float(lasts.removesuffix("s"))
        except ValueError:
            lasts_s = 0.0
        if not (where and at and 0 < lasts_s < inf):
            raise ConfigError(f"fault {text!r} says no port and seconds: write {form}")
        return Fault(kind=kind, where=where, lasts_s=lasts_s)
    return Fault(kind=kind, where=rest)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Retries:
    """When a sender tries again after a loss, and when it stops trying."""

    tries_s: NDArray[np.float64]
    gives_up_s: float

    def stands_s(self, outage_s: float) -> float:
        """From the loss to the first try that gets through; infinity: none does."""
        tries_s = self.tries_s[self.tries_s <= self.gives_up_s]
        index = int(np.searchsorted(tries_s, outage_s))
        return float(tries_s[index]) if index < len(tries_s) else inf


def retries_of(network: Network, timeout_exponent: int | None = None) -> Retries:
    """NCCL's connections on that network; the exponent of reliable ones as NCCL_IB_TIMEOUT says it."""
    told = constants()
    watchdog_s = told["watchdog"]["seconds"]
    if network is Network.TCP:
        of = told["tcp"]
        waits_s = np.minimum(of["first_s"] * 2.0 ** np.arange(of["retries"] + 1), of["longest_s"])
        return Retries(tries_s=np.cumsum(waits_s[:-1]), gives_up_s=min(float(waits_s.sum()), watchdog_s))
    exponent, tries = timeout_exponent or told["rc"]["timeout_exponent"], told["rc"]["retries"]
    timeout_s = _ACK_UNIT_S * 2.0**exponent
    return Retries(tries_s=timeout_s * np.arange(1, tries + 1), gives_up_s=min(timeout_s * (tries + 1), watchdog_s))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Disturbance:
    """A fault and what it did."""

    fault: Fault
    before: Step
    under: Step | None  # while the fault lasts and routes lead around it; None: no step is made then
    outage_s: float  # until the network is well again, or routed around; infinity: never
    stands_s: float  # how long the job makes no progress; infinity: until it is started again
    cut_off: tuple[str, ...]  # adapters that lost their only cable, and GPUs that are gone
    changed_entries: int  # of forwarding tables
    on_its_way: bool = True  # whether the job sends anything over what broke

    @property
    def survives(self) -> bool:
        return self.stands_s < inf

    @property
    def slowdown(self) -> float | None:
        return None if self.under is None else self.under.step_s / self.before.step_s

    def report(self) -> dict[str, Any]:
        """As `--json` prints it: what is infinite is null."""
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
    """Break the fabric, route it again as the subnet manager does, changing few entries, and run the step on it.

    Without `retries`, those of reliable connections. `reroute_s`: from the fault to new tables in the switches.
    `used` [port slot] are those that the job sends through: nobody notices what breaks elsewhere.
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
        again = None  # it is over before
    waits = retries or retries_of(Network.INFINIBAND)
    return Disturbance(
        fault=fault,
        before=before,
        under=step_on(again.fabric) if again is not None else None,
        outage_s=outage_s,
        stands_s=waits.stands_s(outage_s) if outage_s else 0.0,
        cut_off=cut_off,
        changed_entries=(again.changed_entries or 0) if again is not None else 0,
    )


def _around(broken: Fabric, routing: Routing) -> Routing | None:
    """None where the fabric is in pieces: no route leads from one to the other."""
    try:
        return reroute(broken, routing)
    except CannotRoute:
        return None


def _cut_off(before: Fabric, after: Fabric) -> tuple[str, ...]:
    """Adapters that had a network cable and have none, and GPUs that are gone."""
    left = _needed(after)
    return tuple(name for name in _needed(before) if name not in left)


def _needed(fabric: Fabric) -> dict[str, None]:
    ends = np.concatenate([nodes[fabric.network_links] for nodes in fabric.link_nodes])
    adapters = np.unique(ends[fabric.nodes.kind[ends] == NodeKind.HCA])
    nodes = (*adapters.tolist(), *fabric.of_kind(NodeKind.GPU).tolist())
    return dict.fromkeys(fabric.nodes.name[node] for node in nodes)
