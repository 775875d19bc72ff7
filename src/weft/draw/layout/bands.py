"""The grouping of switches and hosts in a picture by tiers.

    core        o o o o o o              a band is one or more tiers; its clusters are side by side
    -------------------------
    spine    | o o | | o o |             clusters are the groups of the fabric if it has some; else the parts that
    leaf     | o o | | o o |             remain without the tier above: pods, scalable units, racks
    hosts    | ::::| | ::::|

In a rail-optimised fabric, spines join the same rail of many units while servers join the rails of one. Below the cores
no parts separate then, so units and spines get separate bands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.draw.parts import Parts
from weft.fabric.levels import NO_LEVEL, components

_NEARLY_ALL = 0.8  # a cluster with this share of the switches is not a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Rack:
    """The hosts and their shared leaves: one leaf and its hosts, or the servers and all rails of a scalable unit."""

    leaves: tuple[int, ...]
    hosts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    name: str  # empty if it has none
    rows: dict[int, tuple[int, ...]]  # level -> switches; level 1 is in the racks
    racks: tuple[Rack, ...] = ()

    def switches(self, level: int) -> tuple[int, ...]:
        return tuple(s for rack in self.racks for s in rack.leaves) if level == 1 else self.rows.get(level, ())

    def count(self, level: int) -> int:
        return len(self.switches(level))


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    levels: tuple[int, ...]  # without the hosts
    clusters: tuple[Cluster, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    bands: tuple[Band, ...]  # from the hosts up
    top: int
    apart: dict[int, tuple[int, ...]]  # dead ends above the top tier, at the row that they mirror
    cut_off: tuple[int, ...]  # without a path to a host


def stack(parts: Parts) -> Stack:
    top = _top_tier(parts)
    low = 1 if (parts.group >= 0).any() else _lowest_split(parts, top)
    low = max([low, *parts.level[(parts.group >= 0) & (parts.level <= top)].tolist()])
    bands = [_bottom(parts, low)]
    if low < top - 1:
        bands.append(_middle(parts, low + 1, top - 1))
    if low < top:
        bands.append(Band(levels=(top,), clusters=(Cluster(name="", rows={top: _tuple(parts.at(top))}),)))
    apart: dict[int, tuple[int, ...]] = {}
    for level in range(top + 1, int(parts.level.max(initial=0)) + 1):
        mirrored = max(2 * top - level, 1)
        apart[mirrored] = apart.get(mirrored, ()) + _tuple(parts.at(level))
    return Stack(bands=tuple(bands), top=top, apart=apart, cut_off=_tuple(parts.at(NO_LEVEL)))


def _top_tier(parts: Parts) -> int:
    """Return the highest level that joins at least half of the switches below it; higher levels are an appendix."""
    a, b = (end[parts.between] for end in parts.ends)
    level = parts.level
    top = 1
    while True:
        below = np.concatenate((a[level[b] == top + 1], b[level[a] == top + 1]))
        joined = np.unique(below[level[below] == top])
        if 2 * len(joined) < len(parts.at(top)) or not len(joined):
            return top
        top += 1


def _joined(parts: Parts, lowest: int, highest: int) -> NDArray[np.int64]:
    """Return the connected component of each part within these levels."""
    a, b = (end[parts.between] for end in parts.ends)
    inside = [(lowest <= parts.level[end]) & (parts.level[end] <= highest) for end in (a, b)]
    both = inside[0] & inside[1]
    return components(len(parts), a[both], b[both])


def _lowest_split(parts: Parts, top: int) -> int:
    """Return the highest level at which the leaves separate without the top; 1 if none."""
    for level in range(top - 1, 1, -1):
        _, counts = np.unique(_joined(parts, 0, level)[parts.level == 1], return_counts=True)
        if counts.max(initial=0) < _NEARLY_ALL * counts.sum():
            return level
    return 1


def _bottom(parts: Parts, highest: int) -> Band:
    """Return the band of hosts, leaves and the switches of their pods."""
    inside = np.flatnonzero((parts.level >= 0) & (parts.level <= highest))
    pod_of = _pods(parts, inside, highest)
    rack_of = _joined(parts, 0, 1) * (pod_of.max(initial=0) + 1) + pod_of
    clusters = []
    for pod in np.unique(pod_of[inside]).tolist():
        members = inside[pod_of[inside] == pod]
        low = members[parts.level[members] <= 1]
        racks = [_rack(parts, low[rack_of[low] == rack]) for rack in np.unique(rack_of[low])]
        rows = {level: _tuple(members[parts.level[members] == level]) for level in range(2, highest + 1)}
        name = parts.fabric.groups[pod] if pod < len(parts.fabric.groups) else ""
        clusters.append(Cluster(name=name, rows=rows, racks=tuple(sorted(racks, key=_first_of_rack))))
    clusters.sort(key=_first)
    return Band(levels=tuple(range(1, highest + 1)), clusters=tuple(clusters))


def _pods(parts: Parts, inside: NDArray[np.int64], highest: int) -> NDArray[np.int64]:
    """Return the group of each part, or of its component, or (beyond the groups) a separate number."""
    n_groups = len(parts.fabric.groups)
    joined = _joined(parts, 0, highest)
    grouped = inside[parts.group[inside] >= 0]
    group_of_joined = np.full(len(parts), -1)
    group_of_joined[joined[grouped]] = parts.group[grouped]
    near = group_of_joined[joined]
    return np.where(parts.group >= 0, parts.group, np.where(near >= 0, near, n_groups + joined))


def _middle(parts: Parts, lowest: int, highest: int) -> Band:
    """Return the band of switches between the leaves and the top, by the switches that they join below."""
    plane_of = _joined(parts, 1, highest)
    inside = np.flatnonzero((parts.level >= lowest) & (parts.level <= highest))
    clusters = []
    for plane in _in_order(plane_of[inside]):
        members = inside[plane_of[inside] == plane]
        rows = {level: _tuple(members[parts.level[members] == level]) for level in range(lowest, highest + 1)}
        clusters.append(Cluster(name="", rows=rows))
    return Band(levels=tuple(range(lowest, highest + 1)), clusters=tuple(clusters))


def _rack(parts: Parts, members: NDArray[np.int64]) -> Rack:
    level = parts.level[members]
    return Rack(leaves=_tuple(members[level == 1]), hosts=_tuple(members[level == 0]))


def _first_of_rack(rack: Rack) -> int:
    return min(rack.leaves or rack.hosts)


def _first(cluster: Cluster) -> int:
    """Return the sort key of a cluster: its first leaf."""
    return min([_first_of_rack(rack) for rack in cluster.racks] or [min(row) for row in cluster.rows.values() if row])


def _in_order(labels: NDArray[np.int64]) -> list[int]:
    """Return the distinct labels, in the order of their first appearance."""
    distinct, first = np.unique(labels, return_index=True)
    return [int(label) for label in distinct[np.argsort(first)]]


def _tuple(indices: NDArray[np.integer]) -> tuple[int, ...]:
    return tuple(indices.tolist())
