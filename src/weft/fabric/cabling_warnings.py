"""Cabling warnings: what an engineer who walks the racks would notice.

Each check compares an element with others of its kind (the other leaves, the other servers of that name, the other
links of that tier) and reports it only if most of them agree: a torus gets no warning for having no spines.

A subnet manager keys LIDs and path records by port GUID, so of ports with the same one only one can be served. OpenSM
serves the port that it happens to discover first (ERR 0D15). Here the choice does not depend on where the manager
runs, except that its own port is never given up: without it the manager would have no subnet.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.levels import islands
from weft.fabric.model import Fabric
from weft.ids import Guid

NO_SLOT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateGuid:
    """A port whose GUID belongs to another port. Names are those of ports; of a switch, that of the switch."""

    guid: Guid
    winner: str
    loser: str

    def __str__(self) -> str:
        return f"{self.loser} has the port GUID {self.guid} of {self.winner}"


def _end_ports(fabric: Fabric) -> NDArray[np.intp]:
    """Return the slots that have a port GUID of their own: port 0 of switches, plugged ports of other nodes."""
    ports = fabric.ports
    is_switch = fabric.nodes.kind[ports.node] == NodeKind.SWITCH
    is_end = np.isin(fabric.nodes.kind[ports.node], (NodeKind.HCA, NodeKind.ROUTER, NodeKind.AGGREGATION))
    return np.flatnonzero(np.where(is_switch, ports.number == 0, is_end & (ports.peer >= 0)))


def duplicate_guids(fabric: Fabric, own_slot: int = NO_SLOT) -> list[tuple[int, DuplicateGuid]]:
    """Return each port that loses its GUID, with its slot (port 0 of a switch).

    The port at `own_slot` keeps its GUID; else that of the node with the lowest node GUID, its lowest port first.
    """
    slots = _end_ports(fabric)
    guids = fabric.ports.guid[slots]
    values, counts = np.unique(guids[guids > 0], return_counts=True)
    duplicates = []
    for guid in values[counts > 1].tolist():
        owners = sorted(slots[guids == guid].tolist(), key=lambda slot: _rank(fabric, slot, own_slot))
        names = [_name(fabric, slot) for slot in owners]
        duplicates += [
            (slot, DuplicateGuid(guid=Guid(guid), winner=names[0], loser=name))
            for slot, name in zip(owners[1:], names[1:], strict=True)
        ]
    return duplicates


def _rank(fabric: Fabric, slot: int, own_slot: int) -> tuple[bool, int, int]:
    return slot != own_slot, int(fabric.nodes.guid[fabric.ports.node[slot]]), slot


def _name(fabric: Fabric, slot: int) -> str:
    port = fabric.port(slot)
    return port.node.name if port.node.kind is NodeKind.SWITCH else port.name


MAJORITY = 0.8  # share of the elements of a kind that must agree before a different one is reported
FEW = 4  # with fewer elements of a kind nothing is reported

Levels = NDArray[np.int16]
_Warning = tuple[str, tuple[str, ...]]  # the problem and the names it concerns; without names there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class CablingWarning:
    """A cabling problem with the names of all elements that it concerns."""

    problem: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        first = ", ".join(self.names[:4])
        return f"{self.problem}: {first}" + (f" and {len(self.names) - 4:,} more" if len(self.names) > 4 else "")


def find_cabling_warnings(fabric: Fabric, level: Levels) -> tuple[CablingWarning, ...]:
    checks: tuple[Callable[[Fabric, Levels], Iterator[_Warning]], ...] = (
        _cut_off,
        _unplugged_switches,
        _dead_ends,
        _bare_leaves,
        _slow_links,
        _bad_links,
        _uneven_uplinks,
        _shortcuts,
        _missing_hcas,
        _swapped_rails,
        _nameless,
        _lids,
        _port_guids,
    )
    warnings = (pair for check in checks for pair in check(fabric, level))
    return tuple(CablingWarning(problem=problem, names=names) for problem, names in warnings if names)


def _cut_off(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    parts = islands(fabric)
    if len(parts) > 1:
        sizes = " and ".join(f"{len(part):,}" for part in parts[:4]) + (" ..." if len(parts) > 4 else "")
        cut = tuple(fabric.nodes.name[i] for part in parts[1:] for i in part.tolist())
        yield f"{len(parts)} islands, of {sizes} nodes; not in the largest", cut


def _unplugged_switches(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    plugged = np.union1d(*fabric.link_nodes)
    alone = np.setdiff1d(fabric.of_kind(NodeKind.SWITCH), plugged)
    yield "switches with no cable", _names(fabric, alone)


def _dead_ends(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    """Yield switches through which no host can be reached: remove, repeatedly, those with one neighbour left."""
    is_switch = fabric.nodes.kind == NodeKind.SWITCH
    a, b = fabric.link_nodes
    between = is_switch[a] & is_switch[b] & (a != b)
    pairs = np.unique(np.sort(np.stack((a[between], b[between])), axis=0), axis=1)
    alive = is_switch & (level > 0) & ~_holds_hosts(fabric, level)
    dead = np.zeros(len(alive), bool)
    while True:
        left = ~dead[pairs[0]] & ~dead[pairs[1]]
        neighbours = np.bincount(pairs[:, left].ravel(), minlength=len(alive))
        peeled = alive & ~dead & (neighbours <= 1)
        if not peeled.any():
            break
        dead |= peeled
    yield "dead ends, switches that lead to no host", _names(fabric, np.flatnonzero(dead))


def _bare_leaves(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    bare = np.flatnonzero((fabric.nodes.kind == NodeKind.SWITCH) & (level == 1) & ~_holds_hosts(fabric, level))
    yield "leaves without hosts", _names(fabric, bare)


def _holds_hosts(fabric: Fabric, level: Levels) -> NDArray[np.bool_]:
    """Return a mask of the nodes with a host plugged in."""
    holds = np.zeros(len(level), bool)
    a, b = (end[fabric.network_links] for end in fabric.link_nodes)
    for near, far in ((a, b), (b, a)):
        holds[near[level[far] == 0]] = True
    return holds


def slow_links(fabric: Fabric, level: Levels) -> NDArray[np.bool_]:
    """Return a mask of links that are slower than most between the same levels, inside a group or between groups."""
    net = np.flatnonzero(fabric.network_links)
    a, b = (end[net] for end in fabric.link_nodes)
    low, high = np.minimum(level[a], level[b]), np.maximum(level[a], level[b])
    same_group = fabric.nodes.group[a] == fabric.nodes.group[b]
    between = (low.astype(np.int64) * (int(high.max(initial=0)) + 1) + high) * 2 + same_group
    _, tier = np.unique(between, return_inverse=True)
    rate = fabric.link_rate_gbit_s[net]
    slow = np.zeros(len(fabric.links), bool)
    for number in range(int(tier.max(initial=-1)) + 1):
        usual = _usual(rate[tier == number].tolist())
        if usual is not None:
            slow[net[(tier == number) & (rate < usual)]] = True
    return slow


def _slow_links(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    slow = [fabric.link(int(i)) for i in np.flatnonzero(slow_links(fabric, level))]
    yield "slower than the other links of their tier", tuple(f"{s} {s.label}" for s in slow)


def _bad_links(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    bad = np.flatnonzero(fabric.links.bit_error_rate > 0)
    yield "links with bit errors", tuple(f"{fabric.link(int(i))} at {fabric.links.bit_error_rate[i]:.0e}" for i in bad)


def _uneven_uplinks(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    """Yield leaves with fewer or more uplinks than most leaves."""
    up = np.zeros(len(level), np.int64)
    ends = fabric.link_nodes
    for near, far in (ends, ends[::-1]):
        np.add.at(up, near[level[far] > level[near]], 1)
    leaves = np.flatnonzero((fabric.nodes.kind == NodeKind.SWITCH) & (level == 1))
    usual = _usual(up[leaves].tolist())
    odd = leaves[up[leaves] != usual] if usual is not None else leaves[:0]
    names = tuple(f"{fabric.nodes.name[i]} ({up[i]})" for i in odd.tolist())
    yield f"leaves whose number of uplinks is not {usual}", names


def _shortcuts(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    """Yield links within a tier or across one, if most links go one level up."""
    is_switch = fabric.nodes.kind == NodeKind.SWITCH
    a, b = fabric.link_nodes
    between = np.flatnonzero(is_switch[a] & is_switch[b])
    odd = between[np.abs(level[a[between]] - level[b[between]]) != 1]
    if 0 < len(odd) <= (1 - MAJORITY) * len(between):
        yield "links that do not go from one tier to the next", tuple(str(fabric.link(int(i))) for i in odd)


def _missing_hcas(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    """Yield servers with fewer cabled HCAs than most servers with similar names."""
    plugged = np.flatnonzero((level == 0) & (fabric.nodes.server >= 0))
    count = np.bincount(fabric.nodes.server[plugged], minlength=len(fabric.servers))
    by_stem = defaultdict(list)
    for server, name in enumerate(fabric.servers):
        by_stem[_stem(name)].append(server)
    for servers in by_stem.values():
        usual = _usual([int(count[s]) for s in servers])
        odd = [s for s in servers if usual is not None and count[s] < usual]
        names = tuple(f"{fabric.servers[s]} ({count[s]})" for s in odd)
        yield f"servers with fewer than {usual} cabled HCAs", names


def _stem(server: str) -> str:
    """Return the name without its numbers, which servers of one kind share."""
    return re.sub(r"\d+", "#", server)


def _swapped_rails(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    """Yield HCAs on a leaf whose other HCAs are of another device (`mlx5_0`), as after swapped cables."""
    on_leaf: dict[tuple[int, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for near, far in (fabric.link_nodes, fabric.link_nodes[::-1]):
        at_leaf = (fabric.nodes.kind[near] == NodeKind.HCA) & (fabric.nodes.kind[far] == NodeKind.SWITCH)
        for hca, leaf in zip(near[at_leaf].tolist(), far[at_leaf].tolist(), strict=True):
            server, _, device = fabric.nodes.name[hca].partition("/")
            if device:
                on_leaf[leaf, _stem(server)][device].append(hca)
    odd = []
    for (leaf, _), devices in on_leaf.items():
        usual = _usual_devices({device: len(hcas) for device, hcas in devices.items()})
        unusual = [hca for device, hcas in devices.items() if usual and device not in usual for hca in hcas]
        odd += [f"{fabric.nodes.name[hca]} on {fabric.nodes.name[leaf]} ({', '.join(usual)})" for hca in unusual]
    yield "HCAs on a leaf of another rail", tuple(odd)


def _usual_devices(count: dict[str, int]) -> list[str]:
    """Return the devices of a leaf's rails: together most of its HCAs, and each far more than any other device."""
    total, first = sum(count.values()), sorted(count, key=lambda device: -count[device])
    for n in range(1, len(first) + 1) if total >= FEW else ():
        least, other = count[first[n - 1]], count[first[n]] if n < len(first) else 0
        nearly_all = sum(count[device] for device in first[:n]) >= MAJORITY * total
        if nearly_all and other * MAJORITY <= least * (1 - MAJORITY):
            return sorted(first[:n], key=list(count).index)
    return []


def _nameless(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    nodes = [i for i in fabric.of_kind(NodeKind.HCA, NodeKind.SWITCH).tolist() if fabric.nodes.name[i][1:2] == "-"]
    by_guid = [i for i in nodes if re.fullmatch(r"[HS]-[0-9a-f]{16}", fabric.nodes.name[i])]
    names = tuple(f"{fabric.nodes.name[i]} ({fabric.nodes.description[i].strip()})" for i in by_guid)
    yield "nodes whose description does not name them", names


def _lids(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    """Yield ports that share a LID, and ports without one if others have one."""
    is_switch = fabric.nodes.kind[fabric.ports.node] == NodeKind.SWITCH
    wants = np.where(is_switch, fabric.ports.number == 0, fabric.ports.peer >= 0)
    wants &= level[fabric.ports.node] >= 0
    slots = np.flatnonzero(wants)
    lid = fabric.tables.lid[slots]
    if not lid.any():
        return
    values, counts = np.unique(lid[lid > 0], return_counts=True)
    shared = slots[np.isin(lid, values[counts > 1])]
    yield "LIDs of more than one port", tuple(f"{fabric.port(int(s))} ({fabric.tables.lid[s]})" for s in shared)
    yield "ports without a LID", tuple(str(fabric.port(int(s))) for s in slots[lid == 0])


def _port_guids(fabric: Fabric, level: Levels) -> Iterator[_Warning]:
    """Yield ports whose GUID another port has too: a subnet manager serves only one of them."""
    yield "duplicate port GUIDs", tuple(str(duplicate) for _, duplicate in duplicate_guids(fabric))


_T = TypeVar("_T")


def _usual(values: list[_T]) -> _T | None:
    """Return the value that most elements have, if there are enough and they agree; else None."""
    if len(values) < FEW:
        return None
    best, count = Counter(values).most_common(1)[0]
    return best if count >= MAJORITY * len(values) else None


def _names(fabric: Fabric, nodes: NDArray[np.intp] | NDArray[np.int32]) -> tuple[str, ...]:
    return tuple(fabric.nodes.name[i] for i in nodes.tolist())
