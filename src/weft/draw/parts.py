"""The parts of a picture: switches, each with the aggregation node inside it, and hosts.

A host is a server with all its devices, or an adapter that belongs to no server. Parts are in the natural order of
their names (leaf2 before leaf10), so an order by index is the reading order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weft.fabric.cabling_warnings import slow_links
from weft.fabric.files.hostlist import natural
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import NO_LEVEL, levels
from weft.fabric.model import Fabric


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    fabric: Fabric
    names: tuple[str, ...]
    is_switch: NDArray[np.bool_]
    level: NDArray[np.int16]  # [part]: 0 hosts, 1 leaves, ...; NO_LEVEL without a path to a host
    group: NDArray[np.int32]  # [part] -> index into fabric.groups, or -1
    of_node: NDArray[np.int32]  # [node] -> part

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def ends(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The part at each end of each link; the same twice for links inside a part."""
        a, b = self.fabric.link_nodes
        return self.of_node[a], self.of_node[b]

    @cached_property
    def between(self) -> NDArray[np.int64]:
        """The links between two parts."""
        return np.flatnonzero(self.ends[0] != self.ends[1])

    @cached_property
    def switch_links(self) -> NDArray[np.int64]:
        """The links between switches."""
        a, b = (end[self.between] for end in self.ends)
        return self.between[self.is_switch[a] & self.is_switch[b]]

    @cached_property
    def nodes(self) -> list[tuple[int, ...]]:
        """The nodes of each part."""
        return members(self.of_node, np.arange(len(self.of_node)), len(self))

    @cached_property
    def inner_links(self) -> list[tuple[int, ...]]:
        """The links inside each part."""
        a, b = self.ends
        inside = np.flatnonzero(a == b)
        return members(a[inside], inside, len(self))

    @cached_property
    def bad(self) -> NDArray[np.bool_]:
        """A mask of the links with bit errors, or slower than most links of their tier."""
        return (self.fabric.links.bit_error_rate > 0) | slow_links(self.fabric, levels(self.fabric))

    def at(self, level: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.level == level)


def find_parts(fabric: Fabric) -> Parts:
    kind, server = fabric.nodes.kind, fabric.nodes.server
    is_switch = kind == NodeKind.SWITCH
    key = np.where((server >= 0) & ~is_switch, server, len(fabric.servers) + np.arange(len(kind)))
    for near, far in (fabric.link_nodes, fabric.link_nodes[::-1]):
        inside = (kind[near] == NodeKind.AGGREGATION) & is_switch[far]
        key[near[inside]] = key[far[inside]]
    keys, first, unordered = np.unique(key, return_index=True, return_inverse=True)
    names = [
        fabric.servers[k] if k < len(fabric.servers) else fabric.nodes.name[k - len(fabric.servers)]
        for k in keys.tolist()
    ]
    order = sorted(range(len(names)), key=lambda i: natural(names[i]))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    of_node = rank[unordered]
    level, group = np.full(len(order), NO_LEVEL, np.int16), np.full(len(order), -1, np.int32)
    np.maximum.at(level, of_node, levels(fabric))
    np.maximum.at(group, of_node, fabric.nodes.group)
    return Parts(
        fabric=fabric,
        names=tuple(names[i] for i in order),
        is_switch=is_switch[np.where(keys < len(fabric.servers), first, keys - len(fabric.servers))[order]],
        level=level,
        group=group,
        of_node=of_node,
    )


def span(names: Sequence[str]) -> str:
    """Return many names as one: `leaf1..128` for a run, `leaf1 … leaf9` if some are missing."""
    if len(names) < 2:
        return "".join(names)
    first, last = names[0], names[-1]
    start = re.fullmatch(r"(.*?)(\d+)", first)
    end = re.fullmatch(r"(.*?)(\d+)", last)
    if start and end and start[1] == end[1] and int(end[2]) - int(start[2]) == len(names) - 1:
        return f"{first}..{end[2]}"
    return f"{first} … {last}"


def host_noun(parts: Parts) -> str:
    return "server" if NodeKind.GPU in parts.fabric.nodes.kind else "host"


def count(number: int, noun: str) -> str:
    """Return a count with its noun: `1 link`, `2,048 links`."""
    plural = "" if number == 1 else "es" if noun.endswith(("ch", "x")) else "s"
    return f"{number:,} {noun}{plural}"


def members(owner: NDArray[np.integer], members: NDArray[np.integer], owners: int) -> list[tuple[int, ...]]:
    order = np.argsort(owner, kind="stable")
    edges = np.searchsorted(owner[order], np.arange(owners + 1)).tolist()
    ordered = members[order].tolist()
    return [tuple(ordered[first:end]) for first, end in pairwise(edges)]
