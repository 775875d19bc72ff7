"""Assign today's switches to places in the target so that as many cables as possible stay.

Hosts and their leaves keep their places, because a host whose cable moves is cut off. Then, tier by tier upwards: once
the tiers below are assigned, the cables that a switch keeps depend only on its own place, so each tier is an assignment
problem, solved exactly (Kuhn 1955, Munkres 1957; with shortest augmenting paths). For two tiers of switches this is
optimal. With three tiers, another choice of spines could keep more cables to cores, so pairs are exchanged while that
helps. `Roles.most` is an upper bound; if fewer are kept and the problem is small, the search is exhaustive.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.plan.audit.identity import cables
from weft.plan.audit.positions import natural
from weft.plan.growth.places import FORBIDDEN, Choice, Joins, best_assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The places of today's nodes in the target."""

    role: dict[int, int]  # node of today -> node of the target
    kept: int  # cables that stay between the same two devices
    most: int  # upper bound on `kept`


def assign_roles(today: Fabric, target: Fabric) -> Roles:
    mine, theirs = joins(today), joins(target)
    role = _match_hosts(today, target, mine, theirs)
    level = levels(today)
    for tier in range(1, int(level.max(initial=0)) + 1):
        rows = [u for u in np.flatnonzero(level == tier).tolist() if today.nodes.kind[u] == NodeKind.SWITCH]
        _assign_tier(today, target, rows, mine, theirs, role)
    _refuse_moved_hosts(today, target, mine, theirs, role)
    choice, rows, columns = _choices(today, target, mine, theirs, role)
    settled = _kept(mine, theirs, role) - choice.kept()
    most = choice.most()
    if choice.kept() < most and choice.improve():
        most = choice.kept()
    role |= {u: columns[j] for u, j in zip(rows, choice.at.tolist(), strict=True) if j >= 0}
    return Roles(role=role, kept=settled + choice.kept(), most=settled + most)


def joins(fabric: Fabric) -> Joins:
    counts: Joins = {}
    a, b = (end[cables(fabric)].tolist() for end in fabric.link_nodes)
    for near, far in zip((*a, *b), (*b, *a), strict=True):
        counts.setdefault(near, Counter())[far] += 1
    return counts


def _kept(mine: Joins, theirs: Joins, role: dict[int, int]) -> int:
    both = sum(_stay(u, role.get(u, -1), mine, theirs, role) for u in mine)
    return both // 2


def _stay(u: int, place: int, mine: Joins, theirs: Joins, role: dict[int, int]) -> int:
    """Return the number of cables of a device that stay if it takes a place."""
    at_place = theirs.get(place, Counter())
    return sum(min(count, at_place[role[v]]) for v, count in mine[u].items() if v in role)


# -- hosts and leaves -------------------------------------------------------------------------------------------


def _match_hosts(today: Fabric, target: Fabric, mine: Joins, theirs: Joins) -> dict[int, int]:
    """Match hosts by name if the target has all names, else in the order of their leaves and ports."""
    today_hosts, target_hosts = _hosts(today, mine), _hosts(target, theirs)
    if len(today_hosts) > len(target_hosts):
        raise ConfigError(
            f"{target.spec} has {len(target_hosts):,} cabled host ports, {today.spec} has {len(today_hosts):,}; give a "
            "larger target"
        )
    if all(today.nodes.name[node] in target.node_index for node in today_hosts):
        return {node: target.node_index[today.nodes.name[node]] for node in today_hosts}
    return dict(zip(today_hosts, target_hosts, strict=False))


def _hosts(fabric: Fabric, counts: Joins) -> list[int]:
    """Return the cabled hosts in the order of their switch ports."""
    hosts = [node for node in counts if fabric.nodes.kind[node] != NodeKind.SWITCH]
    return sorted(hosts, key=lambda node: [natural(str(peer)) for peer in _peers(fabric, node)])


def _peers(fabric: Fabric, node: int) -> list[str]:
    return [str(port.peer) for port in fabric.node(node).ports if port.peer is not None]


def _refuse_moved_hosts(today: Fabric, target: Fabric, mine: Joins, theirs: Joins, role: dict[int, int]) -> None:
    for host in _hosts(today, mine):
        if _stay(host, role[host], mine, theirs, role) < mine[host].total():
            name, old = today.nodes.name[host], " and ".join(today.nodes.name[v] for v in mine[host])
            new = " and ".join(target.nodes.name[v] for v in theirs[role[host]])
            raise ConfigError(
                f"{name} is on {old}, and in {target.spec} it would be on another leaf ({new}): moving its cable cuts "
                "it off\n  Give a target with as many hosts per leaf as today (--to), or move those hosts while they "
                "are idle, and then grow."
            )


# -- tiers of switches ------------------------------------------------------------------------------------------


def _assign_tier(
    today: Fabric, target: Fabric, rows: list[int], mine: Joins, theirs: Joins, role: dict[int, int]
) -> None:
    """Assign places to the switches of a tier so that the most cables to assigned devices stay."""
    used = set(role.values())
    places = [r for r in target.of_kind(NodeKind.SWITCH).tolist() if r not in used]
    column = {place: j for j, place in enumerate(places)}
    gain = _gains(rows, places, mine, theirs, role)
    wish = gain * 2  # plus 1 for the same name, to break ties
    for i, u in enumerate(rows):
        same = target.node_index.get(today.nodes.name[u], -1)
        if same in column:
            wish[i, column[same]] += 1
    needed = np.array([theirs.get(place, Counter()).total() for place in places], np.int64)
    wish[today.nodes.n_ports[rows].astype(np.int64)[:, None] < needed] = FORBIDDEN
    for i, j in best_assignment(wish):
        role[rows[i]] = places[j]


def _choices(
    today: Fabric, target: Fabric, mine: Joins, theirs: Joins, role: dict[int, int]
) -> tuple[Choice, list[int], list[int]]:
    """Return the choice for switches without hosts, with those switches and the remaining places."""
    settled = {u for u in mine if any(today.nodes.kind[v] != NodeKind.SWITCH for v in (u, *mine[u]))} & role.keys()
    rows = [u for u in today.of_kind(NodeKind.SWITCH).tolist() if u not in settled]
    used = {role[u] for u in settled}
    columns = [place for place in target.of_kind(NodeKind.SWITCH).tolist() if place not in used]
    at = {place: j for j, place in enumerate(columns)}
    fixed = {u: role[u] for u in settled}
    beside = _gains(rows, columns, mine, theirs, fixed)
    needed = np.array([theirs.get(place, Counter()).total() for place in columns], np.int64)
    beside[today.nodes.n_ports[rows].astype(np.int64)[:, None] < needed] = FORBIDDEN
    choice = Choice(
        beside=beside,
        mine=_matrix(rows, mine),
        theirs=_matrix(columns, theirs),
        at=np.array([at.get(role.get(u, -1), -1) for u in rows], np.int64),
    )
    return choice, rows, columns


def _matrix(nodes: list[int], counts: Joins) -> NDArray[np.int64]:
    matrix = np.zeros((len(nodes), len(nodes)), np.int64)
    place = {node: i for i, node in enumerate(nodes)}
    for i, node in enumerate(nodes):
        for neighbour, count in counts.get(node, Counter()).items():
            if neighbour in place:
                matrix[i, place[neighbour]] = count
    return matrix


def _gains(rows: list[int], places: list[int], mine: Joins, theirs: Joins, role: dict[int, int]) -> NDArray[np.int64]:
    """Return the cables to assigned devices that stay, for each switch and place."""
    column = {place: j for j, place in enumerate(places)}
    gain = np.zeros((len(rows), len(places)), np.int64)
    for i, u in enumerate(rows):
        for v, count in mine.get(u, Counter()).items():
            for place, target_count in theirs.get(role.get(v, -1), Counter()).items():
                if place in column:
                    gain[i, column[place]] += min(count, target_count)
    return gain
