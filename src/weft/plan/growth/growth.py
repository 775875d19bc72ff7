"""From today's fabric to a larger one, step by step, without an outage.

growth = grow(weft.load("superpod:su=2"), weft.load("superpod:su=4"), keep=0.75)
for step in growth.steps: ...      cables out, cables in; the least that a leaf has meanwhile; the proof

Each step is routed and proved twice, by `weft.routing`: with its cables out, and with the new ones in. What is
proved is that every pair of hosts of today arrives, and that no credit loop exists; what a step costs them in speed is
measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import components
from weft.fabric.model import Fabric
from weft.plan.growth.roles import Roles, assign_roles
from weft.plan.growth.steps import Batch, Stuck, make_batches
from weft.plan.growth.yard import Wire, Yard, lay_out
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.quality import load_all_to_all
from weft.routing.route import route

KEEP = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A moment of the growth, routed."""

    engine: str
    pairs: int  # of hosts and switches; all of them arrive
    lanes: int
    slowdown: float  # of all-to-all among today's hosts, against one big crossbar
    hosts: int = 0  # that are on the network of today's hosts
    worst_leaf: float = 1.0  # share of its uplinks of today that the worst leaf has


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    batch: Batch
    racked: Counter[str]  # new devices that get their first cable: `leaf` -> 8
    during: Proof | None  # with the cables out; None where none goes out
    after: Proof
    fabric: Fabric  # after it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Growth:
    today: Fabric  # as laid out with the devices to come
    target: str
    roles: Roles
    keep: float
    before: Proof
    steps: tuple[Step, ...]
    stay: int  # cables of today, in their ports
    moved: int  # the others
    new: int  # cables to buy, if those that are pulled are used again
    retired: tuple[str, ...]  # switches of today that the target has no place for

    @property
    def least_moved(self) -> int:
        """No choice of places moves fewer."""
        return self.moved - (self.roles.most - self.roles.kept)


def grow(
    today: Fabric, target: Fabric, *, keep: float = KEEP, progress: Callable[[str], None] = lambda message: None
) -> Growth:
    if not 0 < keep <= 1:
        raise ConfigError(f"keep {keep:g} is not a share of a leaf's uplinks: give more than 0, and 1 at most")
    roles = assign_roles(today, target)
    yard = lay_out(today, target, roles)
    batches = _batches(yard, keep)
    prover = _Prover(yard)
    before = prover.prove(yard.today, "today")
    plugged = dict.fromkeys(yard.today)
    steps = []
    for number, batch in enumerate(batches, start=1):
        progress(f"step {number} of {len(batches)}")
        was = set(plugged)
        for wire in batch.out:
            del plugged[wire]
        during = prover.prove(plugged, f"step {number}, with its cables out") if batch.out else None
        plugged |= dict.fromkeys(batch.into)
        after = prover.prove(plugged, f"step {number}")
        racked = _racked(yard, was, batch)
        steps.append(Step(batch=batch, racked=racked, during=during, after=after, fabric=yard.cabled(plugged)))
    return Growth(
        today=replace(yard.cabled(yard.today), spec=today.spec),
        target=target.spec,
        roles=roles,
        keep=keep,
        before=before,
        steps=tuple(steps),
        stay=len(yard.stay),
        moved=len(yard.go),
        new=max(0, len(yard.come) - len(yard.go)),
        retired=_retired(yard),
    )


def _batches(yard: Yard, keep: float) -> list[Batch]:
    """Or an error that names the share that can be kept."""
    try:
        return make_batches(yard, keep)
    except Stuck as error:
        for less in _shares(yard, keep):
            try:
                make_batches(yard, less)
            except Stuck:
                continue
            raise ConfigError(
                f"{error}, if every switch keeps {keep:.0%} of its uplinks\n  {less:.0%} can be kept: --keep {less:g}"
            ) from None
        raise ConfigError(f"{error}, however few uplinks a switch keeps") from None


def _shares(yard: Yard, below: float) -> list[float]:
    counts = set(Counter(wire.low[0] for wire in yard.today if yard.is_uplink(wire)).values())
    shares = {Fraction(some, count) for count in counts for some in range(1, count)}
    # Rounded down: a share that is printed must hold when it is typed again.
    return [int(share * 100) / 100 for share in sorted(shares, reverse=True) if share < below and share * 100 >= 1]


class _Prover:
    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        is_host = yard.bare.nodes.kind != NodeKind.SWITCH
        self.hosts = np.array(sorted(device for device in yard.old if is_host[device]), np.int64)
        self.base = Counter(wire.low[0] for wire in yard.today if yard.is_uplink(wire))

    def prove(self, wires: Iterable[Wire], when: str) -> Proof:
        """Route what hangs together with today's hosts, and prove it.

        Between two regular fabrics `auto` may crowd the spines that are neither old nor new enough; up-down often does
        not. The faster of the two is taken.
        """
        wires = list(wires)
        fabric = self.yard.cabled(wires)
        here = self._island(fabric, when)
        island = fabric.subset(keep_nodes=here)
        today = np.isin(np.flatnonzero(here), self.hosts)
        best = _route(island, today, when, "auto")
        if best.slowdown > 1:
            best = min(best, _route(island, today, when, "up-down"), key=lambda found: found.slowdown)
        hosts = int((island.nodes.kind != NodeKind.SWITCH).sum())
        return replace(best, hosts=hosts, worst_leaf=self._worst_leaf(wires))

    def _island(self, fabric: Fabric, when: str) -> NDArray[np.bool_]:
        """[device] -> does it hang together with today's hosts?"""
        a, b = fabric.link_nodes
        label = components(len(fabric.nodes), a, b)
        mine = label[self.hosts[0]]
        lost = self.hosts[label[self.hosts] != mine]
        if len(lost):
            names = [fabric.nodes.name[int(host)] for host in (self.hosts[0], lost[0])]
            raise SubnetError(f"{when}: no way is left from {names[0]} to {names[1]}: give a larger --keep")
        island: NDArray[np.bool_] = label == mine
        return island

    def _worst_leaf(self, wires: list[Wire]) -> float:
        up = Counter(wire.low[0] for wire in wires if self.yard.is_uplink(wire))
        return min(
            (up[device] / count for device, count in self.base.items() if self.yard.level[device] == 1), default=1.0
        )


def _route(fabric: Fabric, today: NDArray[np.bool_], when: str, engine: str) -> Proof:
    routing = route(fabric, Options(engine=engine))
    verdict = check(routing.fabric)
    if not verdict.ok:
        raise SubnetError(f"{when}: {verdict.explain()}")
    load, ports = load_all_to_all(routing.fabric, among=today), fabric.ports
    is_switch = fabric.nodes.kind[ports.node] == NodeKind.SWITCH
    between = is_switch & (ports.peer >= 0) & is_switch[ports.peer]
    slowdown = load[between].max(initial=0) / load[~between].max()
    return Proof(engine=routing.engine, pairs=verdict.pairs, lanes=verdict.vls, slowdown=float(max(1.0, slowdown)))


def _racked(yard: Yard, was: set[Wire], batch: Batch) -> Counter[str]:
    """New devices that have a cable now and had none."""
    had, has = ({end[0] for wire in wires for end in (wire.low, wire.high)} for wires in (was, batch.into))
    nodes = yard.bare.nodes
    new = has - had - yard.old
    boxes = {nodes.name[device].partition("/")[0]: int(yard.level[device]) for device in new}
    names = ("server", "leaf", "spine", "core")
    return Counter(names[min(level, 3)] for level in boxes.values())


def _retired(yard: Yard) -> tuple[str, ...]:
    used = {end[0] for wire in (*yard.stay, *yard.come) for end in (wire.low, wire.high)}
    return tuple(yard.bare.nodes.name[device] for device in sorted(yard.old - used))
