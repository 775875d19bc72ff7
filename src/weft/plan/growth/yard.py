"""Today's fabric and the larger one on one floor: all devices of both, the cables that stay, go and come.

A cable stays in its ports if the target joins the same two devices by as many; which port of a spine a leaf is in is a
habit of whoever cabled it, and no reason to touch a plug. Other cables take the target's ports where those are free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.fabric.build import FabricBuilder
from weft.fabric.columns import LinkColumns
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.plan.audit.identity import cables
from weft.plan.growth.roles import Roles

End = tuple[int, int]  # device, port


@dataclass(frozen=True, slots=True)
class Wire:
    """A cable: the end nearer the hosts first."""

    low: End
    high: End
    kind: int  # row of the yard's stock: speed, medium, length


@dataclass(frozen=True, kw_only=True, eq=False)
class Yard:
    """What there is to work with."""

    bare: Fabric  # all devices, no cable
    level: NDArray[np.int16]  # [device] tier in the target; of what is retired, today's
    stock: LinkColumns  # a row for each cable of today, then of the target
    stay: tuple[Wire, ...]
    go: tuple[Wire, ...]  # of today
    come: tuple[Wire, ...]  # of the target, in the ports that it gives them
    old: frozenset[int]  # devices of today

    def cabled(self, wires: Iterable[Wire]) -> Fabric:
        """The devices with these cables in them."""
        made = list(wires)
        ends = np.array([(*wire.low, *wire.high) for wire in made], np.int64).reshape(-1, 4)
        a, b = (self.bare.first_port[ends[:, i]] + ends[:, i + 1] for i in (0, 2))
        kinds = self.stock.take(np.array([wire.kind for wire in made], np.int64))
        return self.bare.with_links(replace(kinds, a=a.astype(np.int32), b=b.astype(np.int32)))

    @cached_property
    def today(self) -> tuple[Wire, ...]:
        return (*self.stay, *self.go)

    def is_uplink(self, wire: Wire) -> bool:
        """From a switch to one of a higher tier?"""
        low, high = wire.low[0], wire.high[0]
        return bool(self.bare.nodes.kind[low] == NodeKind.SWITCH and self.level[low] < self.level[high])


def lay_out(today: Fabric, target: Fabric, roles: Roles) -> Yard:
    place = roles.role
    device = {role: i for i, role in enumerate(_network(target))}  # node of the target -> device
    retired = [node for node in _network(today) if node not in place]
    old = {node: device[role] for node, role in place.items()} | {
        node: len(device) + i for i, node in enumerate(retired)
    }
    level = np.concatenate((levels(target)[list(device)], levels(today)[retired]))
    links = [fabric.links.take(cables(fabric)) for fabric in (today, target)]
    stock = LinkColumns(**{name: np.concatenate([getattr(one, name) for one in links]) for name in _FIELDS})
    mine = _wires(today, old, level, 0)
    theirs = _wires(target, device, level, len(links[0]))
    stay, go, come = _split(mine, theirs)
    return Yard(
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
    """Switches, and hosts with a cable."""
    a, b = (end[cables(fabric)] for end in fabric.link_nodes)
    found: list[int] = np.union1d(fabric.of_kind(NodeKind.SWITCH), np.union1d(a, b)).tolist()
    return found


def _wires(fabric: Fabric, device: Mapping[int, int], level: NDArray[np.int16], first: int) -> list[Wire]:
    rows = np.flatnonzero(cables(fabric))
    ends = []
    for slots in (fabric.links.a[rows], fabric.links.b[rows]):
        nodes = [device[node] for node in fabric.ports.node[slots].tolist()]
        ends.append(list(zip(nodes, fabric.ports.number[slots].tolist(), strict=True)))
    made = []
    for i, (a, b) in enumerate(zip(*ends, strict=True)):
        low, high = sorted((a, b), key=lambda end: (level[end[0]], end))
        made.append(Wire(low, high, first + i))
    return made


def _split(mine: list[Wire], theirs: list[Wire]) -> tuple[list[Wire], list[Wire], list[Wire]]:
    """Cables that stay, go and come; of parallel ones those stay that are in the target's ports already."""
    due: dict[tuple[int, int], list[Wire]] = defaultdict(list)
    for wire in theirs:
        due[wire.low[0], wire.high[0]].append(wire)
    there: dict[tuple[int, int], list[Wire]] = defaultdict(list)
    for wire in mine:
        there[wire.low[0], wire.high[0]].append(wire)
    stay, go, come = [], [], [wire for pair, wires in due.items() if pair not in there for wire in wires]
    for pair, wires in there.items():
        wanted = {(wire.low, wire.high) for wire in due[pair]}
        wires.sort(key=lambda wire: (wire.low, wire.high) not in wanted)
        kept = wires[: len(due[pair])]
        stay += kept
        go += wires[len(kept) :]
        exact = {(wire.low, wire.high) for wire in kept} & wanted
        spare = [wire for wire in due[pair] if (wire.low, wire.high) not in exact]
        come += spare[len(kept) - len(exact) :]
    return stay, go, come


def _bare(
    today: Fabric, target: Fabric, today_of: Mapping[int, int], device: Mapping[int, int], retired: list[int]
) -> Fabric:
    """Devices of today have today's names; a new one that would have the name of another has the next number."""
    taken = {today.nodes.name[node] for node in (*today_of.values(), *retired)}
    builder = FabricBuilder(target.spec)
    for role in device:
        fabric, node = (today, today_of[role]) if role in today_of else (target, role)
        name = fabric.nodes.name[node] if role in today_of else _free_name(fabric.nodes.name[node], taken)
        taken.add(name)
        _add(builder, fabric, node, name)
    for node in retired:
        _add(builder, today, node, today.nodes.name[node])
    return builder.build()


def _free_name(name: str, taken: set[str]) -> str:
    box, slash, part = name.partition("/")
    stem = box.rstrip("0123456789")
    number = int(box[len(stem) :] or 1)
    while f"{stem}{number}{slash}{part}" in taken and name in taken:
        number += 1
    return f"{stem}{number}{slash}{part}" if name in taken else name


def _add(builder: FabricBuilder, fabric: Fabric, node: int, name: str) -> None:
    shown = fabric.node(node)
    box = int(builder.add_servers([name.partition("/")[0]])[0]) if shown.server else -1
    group = int(builder.add_groups([shown.group])[0]) if shown.group else -1
    ports = int(fabric.nodes.n_ports[node])
    builder.add_nodes(shown.kind, [name], n_ports=ports, model=shown.model, server=box, group=group)
