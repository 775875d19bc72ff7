"""Today's fabric merged with the larger one: all devices of both, and the cables that stay, go and come.

A cable stays in its ports if the target has as many cables between the same two devices, even in other ports. Other
cables take the target's ports where those are free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from weft.fabric.build import FabricBuilder
from weft.fabric.columns import LinkColumns
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.views import Node
from weft.plan.audit.identity import cables
from weft.plan.growth.roles import Roles

End = tuple[int, int]  # device, port


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable; `low` is the end nearer the hosts."""

    low: End
    high: End
    kind: int  # row of `MergedFabric.stock`: speed, medium, length


@dataclass(frozen=True, kw_only=True, eq=False)
class MergedFabric:
    """The devices and cables of both fabrics."""

    bare: Fabric  # all devices without cables
    level: NDArray[np.int16]  # [device] tier in the target; of retired devices, today's
    stock: LinkColumns  # a row for each cable of today, then of the target
    stay: tuple[Cable, ...]
    go: tuple[Cable, ...]  # of today
    come: tuple[Cable, ...]  # of the target, in its ports
    old: frozenset[int]  # devices of today

    def cabled(self, chosen: Iterable[Cable]) -> Fabric:
        """Return the devices with these cables."""
        return self.bare.with_links(self.links_of(chosen))

    def links_of(self, chosen: Iterable[Cable]) -> LinkColumns:
        cables = list(chosen)
        ends = np.array([(*cable.low, *cable.high) for cable in cables], np.int64).reshape(-1, 4)
        a, b = (self.bare.first_port[ends[:, i]] + ends[:, i + 1] for i in (0, 2))
        kinds = self.stock.take(np.array([cable.kind for cable in cables], np.int64))
        return replace(kinds, a=a.astype(np.int32), b=b.astype(np.int32))

    @cached_property
    def today(self) -> tuple[Cable, ...]:
        return (*self.stay, *self.go)

    def is_uplink(self, cable: Cable) -> bool:
        """Return whether a cable leads from a switch to one of a higher tier."""
        return self._tier_below[cable.low[0]] < self._tier[cable.high[0]]

    @cached_property
    def _tier(self) -> list[int]:
        return [int(level) for level in self.level]

    @cached_property
    def _tier_below(self) -> list[int]:
        """The tier of each switch; that of a host is above all, since none of its cables is an uplink."""
        is_switch = self.bare.nodes.kind == NodeKind.SWITCH
        tiers: list[int] = np.where(is_switch, self.level, np.iinfo(self.level.dtype).max).tolist()
        return tiers


def merge(today: Fabric, target: Fabric, roles: Roles) -> MergedFabric:
    place = roles.role
    device = {role: i for i, role in enumerate(_network(target))}  # node of the target -> device
    retired = [node for node in _network(today) if node not in place]
    old = {node: device[role] for node, role in place.items()} | {
        node: len(device) + i for i, node in enumerate(retired)
    }
    level = np.concatenate((levels(target)[list(device)], levels(today)[retired]))
    links = [fabric.links.take(cables(fabric)) for fabric in (today, target)]
    stock = LinkColumns(**{name: np.concatenate([getattr(columns, name) for columns in links]) for name in _FIELDS})
    mine = _cables_of(today, old, level, 0)
    theirs = _cables_of(target, device, level, len(links[0]))
    stay, go, come = _split(mine, theirs)
    return MergedFabric(
        bare=_bare(today, target, {role: node for node, role in place.items()}, device, retired),
        level=level,
        stock=stock,
        stay=tuple(stay),
        go=tuple(go),
        come=tuple(come),
        old=frozenset(old.values()),
    )


_FIELDS = ("a", "b", "speed", "width", "medium", "length_m", "bit_error_rate", "good_end")


def _network(fabric: Fabric) -> list[int]:
    """Return the switches and the hosts with a cable."""
    a, b = (end[cables(fabric)] for end in fabric.link_nodes)
    nodes: list[int] = np.union1d(fabric.of_kind(NodeKind.SWITCH), np.union1d(a, b)).tolist()
    return nodes


def _cables_of(fabric: Fabric, device: Mapping[int, int], level: NDArray[np.int16], first: int) -> list[Cable]:
    rows = np.flatnonzero(cables(fabric))
    ends = []
    for slots in (fabric.links.a[rows], fabric.links.b[rows]):
        nodes = [device[node] for node in fabric.ports.node[slots].tolist()]
        ends.append(list(zip(nodes, fabric.ports.number[slots].tolist(), strict=True)))
    result = []
    for i, (a, b) in enumerate(zip(*ends, strict=True)):
        low, high = sorted((a, b), key=lambda end: (level[end[0]], end))
        result.append(Cable(low, high, first + i))
    return result


def _split(mine: list[Cable], theirs: list[Cable]) -> tuple[list[Cable], list[Cable], list[Cable]]:
    """Return the cables that stay, go and come; of parallel ones those in the target's ports stay."""
    due: dict[tuple[int, int], list[Cable]] = defaultdict(list)
    for cable in theirs:
        due[cable.low[0], cable.high[0]].append(cable)
    present: dict[tuple[int, int], list[Cable]] = defaultdict(list)
    for cable in mine:
        present[cable.low[0], cable.high[0]].append(cable)
    stay, go, come = [], [], [cable for pair, parallel in due.items() if pair not in present for cable in parallel]
    for pair, parallel in present.items():
        planned = {(cable.low, cable.high) for cable in due[pair]}
        parallel.sort(key=lambda cable: (cable.low, cable.high) not in planned)
        staying = parallel[: len(due[pair])]
        stay += staying
        go += parallel[len(staying) :]
        exact = {(cable.low, cable.high) for cable in staying} & planned
        spare = [cable for cable in due[pair] if (cable.low, cable.high) not in exact]
        come += spare[len(staying) - len(exact) :]
    return stay, go, come


def _bare(
    today: Fabric, target: Fabric, today_of: Mapping[int, int], device: Mapping[int, int], retired: list[int]
) -> Fabric:
    """Return all devices without cables; a new device whose name is in use gets the next free number."""
    used = {today.nodes.name[node] for node in (*today_of.values(), *retired)}
    nodes = []
    for role in device:
        fabric, node = (today, today_of[role]) if role in today_of else (target, role)
        name = fabric.nodes.name[node] if role in today_of else _free_name(fabric.nodes.name[node], used)
        used.add(name)
        nodes.append((name, fabric.node(node)))
    nodes += [(today.nodes.name[node], today.node(node)) for node in retired]
    builder = FabricBuilder(target.spec)
    for (kind, model), equal in groupby(nodes, key=lambda named: (named[1].kind, named[1].model)):
        _add(builder, kind, model, list(equal))
    return builder.build()


def _free_name(name: str, used: set[str]) -> str:
    box, slash, part = name.partition("/")
    stem = box.rstrip("0123456789")
    number = int(box[len(stem) :] or 1)
    while f"{stem}{number}{slash}{part}" in used and name in used:
        number += 1
    return f"{stem}{number}{slash}{part}" if name in used else name


def _add(builder: FabricBuilder, kind: NodeKind, model: str, nodes: list[tuple[str, Node]]) -> None:
    """Add nodes of one kind and model under new names."""
    boxes = [int(builder.add_servers([name.partition("/")[0]])[0]) if node.server else -1 for name, node in nodes]
    groups = [int(builder.add_groups([node.group])[0]) if node.group else -1 for _, node in nodes]
    ports = [int(node.fabric.nodes.n_ports[node.index]) for _, node in nodes]
    builder.add_nodes(kind, [name for name, _ in nodes], n_ports=ports, model=model, server=boxes, group=groups)
