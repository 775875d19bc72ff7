"""Grow a fabric step by step without an outage.

growth = grow(weft.load("superpod:su=2"), weft.load("superpod:su=4"), keep=0.75)
for step in growth.steps: ...      cables out, cables in, the fewest uplinks of a leaf meanwhile, and proofs

Each step is routed and checked twice with `weft.routing`: with its cables out, and with the new ones in. The check
proves that all pairs of today's hosts are connected and that there is no credit loop; the slowdown is measured.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError
from weft.fabric import catalog, files
from weft.fabric.columns import LinkColumns
from weft.fabric.files.atomic import write_atomically
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import components
from weft.fabric.model import Fabric
from weft.fabric.spec import is_topology, parse, rewrite
from weft.fabric.topologies.superpod import fit_superpod
from weft.plan.audit.audit import compare
from weft.plan.audit.positions import Planned, Position
from weft.plan.growth.merged import Cable, MergedFabric, merge
from weft.plan.growth.roles import Roles, assign_roles
from weft.plan.growth.steps import Batch, Stuck, make_batches
from weft.plan.size import is_ufm
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.quality import load_all_to_all
from weft.routing.rails import needs_subnets, rail_subnets
from weft.routing.route import route

KEEP = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A proof for one moment of the growth."""

    engine: str
    pairs: int  # of hosts and switches, all connected
    lanes: int
    slowdown: float  # of all-to-all among today's hosts, relative to one crossbar
    hosts: int = 0  # connected to today's hosts
    worst_leaf: float = 1.0  # smallest share of today's uplinks that a leaf has


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """A step of the growth."""

    batch: Batch
    racked: Counter[str]  # new devices that get their first cable: `leaf` -> 8
    during: Proof | None  # with the cables out; None if none is pulled
    after: Proof
    links: LinkColumns  # after it
    bare: Fabric  # all devices without cables

    @property
    def fabric(self) -> Fabric:
        """Return the fabric after the step. Its ports take much more memory than its links, which are kept."""
        return self.bare.with_links(self.links)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Growth:
    """A growth from today's fabric to a target."""

    today: Fabric  # with the devices that are added later
    target: str
    roles: Roles
    keep: float
    before: Proof
    steps: tuple[Step, ...]
    stay: int  # cables of today that stay in their ports
    moved: int  # the others
    new: int  # cables to buy, if pulled cables are reused
    retired: tuple[str, ...]  # switches of today without a role in the target

    @property
    def least_moved(self) -> int:
        """The lower bound on moved cables over all assignments of roles."""
        return self.moved - (self.roles.most - self.roles.kept)


def grow(
    today: Fabric, target: Fabric, *, keep: float = KEEP, progress: Callable[[str], None] = lambda message: None
) -> Growth:
    if not 0 < keep <= 1:
        raise ConfigError(f"--keep must be in (0, 1], got {keep:g}")
    roles = assign_roles(today, target)
    merged = merge(today, target, roles)
    batches = _batches(merged, keep)
    prover = _Prover(merged)
    before = prover.prove(merged.today, "today")
    plugged = dict.fromkeys(merged.today)
    steps = []
    for number, batch in enumerate(batches, start=1):
        progress(f"step {number} of {len(batches)}")
        was = set(plugged)
        for cable in batch.out:
            del plugged[cable]
        during = prover.prove(plugged, f"step {number}, with its cables out") if batch.out else None
        plugged |= dict.fromkeys(batch.into)
        after = prover.prove(plugged, f"step {number}")
        racked = _racked(merged, was, batch)
        links = merged.links_of(plugged)
        steps.append(Step(batch=batch, racked=racked, during=during, after=after, links=links, bare=merged.bare))
    return Growth(
        today=replace(merged.cabled(merged.today), spec=today.spec),
        target=target.spec,
        roles=roles,
        keep=keep,
        before=before,
        steps=tuple(steps),
        stay=len(merged.stay),
        moved=len(merged.go),
        new=max(0, len(merged.come) - len(merged.go)),
        retired=_retired(merged),
    )


def _batches(merged: MergedFabric, keep: float) -> list[Batch]:
    """Return the batches; raise ConfigError with the share of uplinks that can be kept if there are none."""
    try:
        return make_batches(merged, keep)
    except Stuck as error:
        for less in _shares(merged, keep):
            try:
                make_batches(merged, less)
            except Stuck:
                continue
            raise ConfigError(
                f"{error}, if every switch keeps {keep:.0%} of its uplinks\n  {less:.0%} can be kept: --keep {less:g}"
            ) from None
        raise ConfigError(f"{error}, however few uplinks a switch keeps") from None


def _shares(merged: MergedFabric, below: float) -> list[float]:
    counts = set(Counter(cable.low[0] for cable in merged.today if merged.is_uplink(cable)).values())
    shares = {Fraction(some, count) for count in counts for some in range(1, count)}
    # Rounded down, so that a printed share is valid when given as --keep.
    return [int(share * 100) / 100 for share in sorted(shares, reverse=True) if share < below and share * 100 >= 1]


class _Prover:
    def __init__(self, merged: MergedFabric) -> None:
        self.merged = merged
        is_host = merged.bare.nodes.kind != NodeKind.SWITCH
        self.hosts = np.array(sorted(device for device in merged.old if is_host[device]), np.int64)
        self.base = Counter(cable.low[0] for cable in merged.today if merged.is_uplink(cable))

    def prove(self, cables: Iterable[Cable], when: str) -> Proof:
        """Route the part that is connected to today's hosts, and prove it.

        During a growth `auto` may overload some spines where up-down does not; the faster of the two is used.
        """
        cables = list(cables)
        fabric = self.merged.cabled(cables)
        in_island = self._island(fabric, when)
        island = fabric.subset(keep_nodes=in_island)
        del fabric  # as large as the island
        hosts = int((island.nodes.kind != NodeKind.SWITCH).sum())
        today = np.isin(np.flatnonzero(in_island), self.hosts)
        parts = (
            [(part.fabric, today[part.keep], len(part.rails)) for part in rail_subnets(island)]
            if (needs_subnets(island))
            else [(island, today, 1)]
        )
        del island
        found = [_best(*part, when) for part in parts]
        best = max(found, key=lambda proof: proof.slowdown)
        best = replace(best, pairs=sum(proof.pairs for proof in found), lanes=max(proof.lanes for proof in found))
        return replace(best, hosts=hosts, worst_leaf=self._worst_leaf(cables))

    def _island(self, fabric: Fabric, when: str) -> NDArray[np.bool_]:
        """Return the devices that are connected to today's hosts."""
        a, b = fabric.link_nodes
        label = components(len(fabric.nodes), a, b)
        mine = label[self.hosts[0]]
        lost = self.hosts[label[self.hosts] != mine]
        if len(lost):
            names = [fabric.nodes.name[int(host)] for host in (self.hosts[0], lost[0])]
            raise SubnetError(f"{when}: no path from {names[0]} to {names[1]}; give a larger --keep")
        island: NDArray[np.bool_] = label == mine
        return island

    def _worst_leaf(self, cables: list[Cable]) -> float:
        up = Counter(cable.low[0] for cable in cables if self.merged.is_uplink(cable))
        return min(
            (up[device] / count for device, count in self.base.items() if self.merged.level[device] == 1), default=1.0
        )


def _best(fabric: Fabric, today: NDArray[np.bool_], times: int, when: str) -> Proof:
    """Return the faster of two engines for a subnet, which stands for so many equal ones."""
    best = _route(fabric, today, when, "auto")
    if best.slowdown > 1:
        best = min(best, _route(fabric, today, when, "up-down"), key=lambda found: found.slowdown)
    return replace(best, pairs=times * best.pairs)


def _route(fabric: Fabric, today: NDArray[np.bool_], when: str, engine: str) -> Proof:
    routing = route(fabric, Options(engine=engine))
    verdict = routing.verdict or check(routing.fabric)
    if not verdict.ok:
        raise SubnetError(f"{when}: {verdict.explain()}")
    load, ports = load_all_to_all(routing.fabric, among=today), fabric.ports
    is_switch = fabric.nodes.kind[ports.node] == NodeKind.SWITCH
    between = is_switch & (ports.peer >= 0) & is_switch[ports.peer]
    slowdown = load[between].max(initial=0) / load[~between].max()
    return Proof(engine=routing.engine, pairs=verdict.pairs, lanes=verdict.vls, slowdown=float(max(1.0, slowdown)))


def _racked(merged: MergedFabric, was: set[Cable], batch: Batch) -> Counter[str]:
    """Count the new devices that get their first cable, by tier."""
    had, has = ({end[0] for cable in cables for end in (cable.low, cable.high)} for cables in (was, batch.into))
    nodes = merged.bare.nodes
    new = has - had - merged.old
    boxes = {nodes.name[device].partition("/")[0]: int(merged.level[device]) for device in new}
    names = ("server", "leaf", "spine", "core")
    return Counter(names[min(level, 3)] for level in boxes.values())


def _retired(merged: MergedFabric) -> tuple[str, ...]:
    used = {end[0] for cable in (*merged.stay, *merged.come) for end in (cable.low, cable.high)}
    return tuple(merged.bare.nodes.name[device] for device in sorted(merged.old - used))


def larger(today: Fabric, servers: int) -> str:
    """Return the spec of today's topology with the same parts for a larger number of servers."""
    if not is_topology(today.spec):
        raise ConfigError(f"{today.spec} is a file, not a topology of weft; give the larger fabric with --to")
    if servers <= (now := _count(today)):
        raise ConfigError(f"{today.spec} already has {now:,} servers; give more than that, not {servers:,}")
    name, options = parse(today.spec)
    if name == "fat-tree":
        return rewrite(today.spec, hosts=servers, levels=None, pods=None)
    if name == "superpod":
        return rewrite(today.spec, **_units(today, options, servers))
    if name == "star":
        return rewrite(today.spec, hosts=servers)
    raise ConfigError(f"{name} cannot be grown automatically; give the larger fabric with --to")


def servers_of(today: Fabric, gpus: int) -> int:
    """Return the number of today's servers that have so many GPUs."""
    each = len(today.of_kind(NodeKind.GPU)) // max(_count(today), 1)
    if not each:
        raise ConfigError(f"{today.spec} has no GPUs; give --servers")
    return -(-gpus // each)


def _count(today: Fabric) -> int:
    return sum(not is_ufm(name) for name in today.servers)


def _units(today: Fabric, options: dict[str, object], servers: int) -> dict[str, int | None]:
    """Return the scalable units for a number of servers; leaves per unit stay as today, so that no host moves."""
    template = catalog.server(str(options.get("server", "dgx-h100")))
    rails, trays = template.rails, template.trays
    radix = int(today.nodes.n_ports[today.of_kind(NodeKind.SWITCH)].max())
    leaves = int(str(options.get("leaves", rails // trays)))
    ufm = int(str(options["ufm"])) if options.get("ufm") else None
    return fit_superpod(servers, rails=rails, trays=trays, radix=radix, leaves=leaves, ufm=ufm)


_COLUMNS = ("do", "at", "rack", "u", "to", "to_rack", "to_u", "cable", "text")


def write_steps(growth: Growth, folder: Path, positions: Mapping[str, Position]) -> list[Path]:
    """Write for each step the plugs (moved ones before new ones) and the fabric after it, to audit against.

    `positions` are those of today's devices; new devices have no position yet.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    written = []
    before = growth.today
    for number, step in enumerate(growth.steps, start=1):
        plugs, after = folder / f"step-{number}.csv", folder / f"step-{number}.yaml"
        fabric = step.fabric
        records = compare(before, Planned(fabric=fabric, positions=positions)).records()
        records.sort(key=lambda record: record["do"] == "plug")  # pulled plugs free ports for them
        text = io.StringIO()
        writer = csv.DictWriter(text, _COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        write_atomically(plugs, text.getvalue())
        files.write(fabric, after)
        written += [plugs, after]
        before = fabric
    return written
