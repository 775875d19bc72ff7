"""Build a multicast tree per group over the switches of its members, and write it to the switches' tables.

                 root            the switch from which all members' switches can be reached by falling alone, with the
                /    \\           fewest hops in sum; where several are as good, the MLID decides which
           switch    switch
            /  \\         \\       every switch of the tree falls from one parent, so no path in it ever falls and then
       leaf    leaf     leaf     climbs: the trees obey the rule of up/down routing (see `routing.orientation`)

Guarantee: a packet reaches every receiving member once, from any member. Where the routing engine is `up-down` or
`fat-tree` packets to groups and to single ports cannot block each other in a circle, since both keep to the same
order of the switches; with other engines packets to groups cannot block each other, and are safe from the rest if
their service level has its own lane. The tree depends only on the members, not on the order in which they joined.

Tables change in two waves: first every switch drops its old ports, then it gets the new ones. So the tables are at any
moment a part of the old tree or a part of the new one, and never form a loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.ids import Lid
from weft.routing.graph import SwitchGraph, switch_graph
from weft.routing.orientation import default_root, orient
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.mcast.groups import BLOCK, RECEIVES, Group, Groups
from weft.sm.mcast.tree_kernels import climb_from, grow_trees
from weft.sm.sender import Sender
from weft.wire.bulk import Rows, column, fill
from weft.wire.port_info import Capability, PortInfo, PortState
from weft.wire.smp import SmpAttribute, SwitchInfo

_WORD = 16  # ports in a position of the table
_NO_GROUPS = Lid.FIRST_MULTICAST - 1  # MulticastFDBTop of an empty table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Members:
    """The members that are connected to a switch, one row each, group by group."""

    group: NDArray[np.int64]  # index
    switch: NDArray[np.int64]  # row
    port: NDArray[np.int64]  # port of that switch, 0 for itself
    receives: NDArray[np.bool_]


# -- wanted tables ----------------------------------------------------------------------------------------------------


def plant_trees(view: View, groups: Groups) -> None:
    """Write the trees of all groups into the view's tables, at a sweep."""
    groups.changed.clear()
    view.fabric.tables.mft = _empty(view, _top_column(groups))
    fill_trees(view, list(groups.by_mlid.values()))


def fill_trees(view: View, groups: list[Group]) -> None:
    """Write the trees of these groups into the view's tables, whose columns for them are empty."""
    fabric = view.fabric
    mft = fabric.tables.mft
    graph = switch_graph(fabric, fabric.tables.lid, fabric.tables.lmc)
    if not graph.n_switches or not groups:
        return
    members = _members(view, groups, _capable(view))
    mlid = np.array([group.mlid - Lid.FIRST_MULTICAST for group in groups], np.int64)
    bit = (1 << members.port % _WORD).astype(np.uint16)
    at = (members.switch, mlid[members.group], members.port // _WORD)
    np.bitwise_or.at(mft, tuple(index[members.receives] for index in at), bit[members.receives])
    pairs = np.unique(members.group * graph.n_switches + members.switch)  # (group, switch), sorted
    begin = np.searchsorted(pairs, np.arange(len(groups) + 1) * graph.n_switches)
    switches = pairs % graph.n_switches
    sources, source = np.unique(switches, return_inverse=True)
    rank = _rank(graph)
    usable = _capable(view)
    climbs = climb_from(graph.first, graph.far, rank, usable, sources)
    grow_trees(graph.first, graph.far, graph.port, graph.back, rank, usable, climbs, begin, switches, source, mlid, mft)


def _rank(graph: SwitchGraph) -> NDArray[np.int64]:
    """Return [switch] -> rank from the top, in the order of up/down routing."""
    rank = np.empty(graph.n_switches, np.int64)
    rank[orient(graph, default_root(graph)).from_top] = np.arange(graph.n_switches)
    return rank


def _capable(view: View) -> NDArray[np.bool_]:
    """Return [switch row] -> whether it has a multicast table."""
    return column(view.switch_info[view.is_switch], SwitchInfo.multicast_fdb_cap) > 0


def _members(view: View, groups: list[Group], capable: NDArray[np.bool_]) -> _Members:
    ports, rows = view.fabric.ports, view.fabric.tables.switch_row
    ends = view.end_ports[np.argsort(ports.guid[view.end_ports], kind="stable")]
    guids = np.fromiter((guid for group in groups for guid in group.members), np.uint64)
    states = np.fromiter((member.join_state for group in groups for member in group.members.values()), np.int64)
    owner = np.repeat(np.arange(len(groups)), [len(group.members) for group in groups])
    place = np.minimum(np.searchsorted(ports.guid[ends], guids), len(ends) - 1)
    slot = ends[place]
    outside = np.where(view.is_switch[ports.node[slot]], slot, ports.peer[slot])  # its port at the switch
    row = rows[ports.node[outside]]
    is_present = (ports.guid[slot] == guids) & (row >= 0)
    is_present[is_present] = capable[row[is_present]]
    return _Members(
        group=owner[is_present],
        switch=row[is_present].astype(np.int64),
        port=ports.number[outside[is_present]].astype(np.int64),
        receives=(states & RECEIVES > 0)[is_present],
    )


def _top_column(groups: Groups) -> int:
    """Return the number of columns that the tables need, in whole blocks."""
    used = max(groups.by_mlid, default=_NO_GROUPS) + 1 - Lid.FIRST_MULTICAST
    return -(-used // BLOCK) * BLOCK


def _empty(view: View, columns: int) -> NDArray[np.uint16]:
    switches = view.fabric.of_kind(NodeKind.SWITCH)
    words = int(view.fabric.nodes.n_ports[switches].max(initial=0)) // _WORD + 1
    return np.zeros((len(switches), columns, words), np.uint16)


# -- into the switches ------------------------------------------------------------------------------------------------


def reprogram(sender: Sender, view: View, contents: Known, groups: Groups) -> list[str]:
    """Write the trees of changed groups between sweeps; return the switches that refused."""
    if not groups.changed:
        return []
    changed = sorted(groups.changed)
    groups.changed.clear()
    tables = view.fabric.tables
    tables.mft = _wide(tables.mft, max(_top_column(groups), tables.mft.shape[1]), tables.mft.shape[2])
    columns = np.array(changed) - Lid.FIRST_MULTICAST
    tables.mft[:, columns[columns < tables.mft.shape[1]]] = 0
    fill_trees(view, [groups.by_mlid[mlid] for mlid in changed if mlid in groups.by_mlid])
    return upload_multicast(sender, view, contents, np.unique(columns // BLOCK))


def upload_multicast(sender: Sender, view: View, contents: Known, only: NDArray[np.int64] | None = None) -> list[str]:
    """Write blocks that differ, of those in `only` or of all; returns the switches that refused.

    Switches that we do not know are read first if the subnet is in use, so that groups go on while we take over.
    """
    switches = np.flatnonzero(view.is_switch)
    if not len(switches):
        return []
    expected = view.fabric.tables.mft
    far_top = int(_found_top(view)[switches][~contents.groups[switches]].max(initial=_NO_GROUPS))
    columns = max(expected.shape[1], contents.tables.mft.shape[1], -(-(far_top - _NO_GROUPS) // BLOCK) * BLOCK)
    new_from = contents.tables.mft.shape[1] // BLOCK
    expected = _wide(expected, columns, expected.shape[2])
    contents.tables.mft = _wide(contents.tables.mft, columns, expected.shape[2])
    old, new = _blocks(contents.tables.mft), _blocks(expected)
    sure = np.repeat(contents.groups[switches][:, None], old.shape[1], axis=1)
    sure[:, new_from:] &= _has_top(view)[switches][:, None]  # a switch ignores entries above its top
    room = _room(view, switches, old.shape[1])
    if only is not None:
        room[:, np.setdiff1d(np.arange(old.shape[1]), only)] = False
    in_use = bool((view.state[view.plugged] == PortState.ACTIVE).any())
    if in_use:
        _read(sender, view, switches, old, sure, room)
    refused: set[int] = set()
    unsure = ~sure[:, :, None] & room
    fewer = np.where(unsure[..., None], 0, old & new)
    _write(sender, view, switches, old, fewer, (fewer != old).any(axis=-1) & room | unsure & in_use, refused)
    rest = (new != old).any(axis=-1) & room | unsure & ~np.bool_(in_use) & _may_differ(view, switches, new)
    _write(sender, view, switches, old, new, rest, refused)
    _write_top(sender, view, contents, columns, refused)
    if only is None:
        contents.groups[switches] = True
    contents.groups[list(refused)] = False
    return [view.fabric.nodes.name[node] for node in sorted(refused)]


def _blocks(mft: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return a view as [switch, block, position, 32 MLIDs]: a MAD carries the last axis."""
    switches, columns, words = mft.shape
    return mft.reshape(switches, columns // BLOCK, BLOCK, words).swapaxes(2, 3)


def _wide(mft: NDArray[np.uint16], columns: int, words: int) -> NDArray[np.uint16]:
    """Return the table with at least so many columns and words, filled with 0."""
    if mft.shape[1] >= columns and mft.shape[2] == words:
        return mft
    wide = np.zeros((len(mft), max(columns, mft.shape[1]), words), np.uint16)
    wide[:, : mft.shape[1], : mft.shape[2]] = mft[:, :, :words]
    return wide


def _found_top(view: View) -> NDArray[np.int64]:
    """Return [node] -> MulticastFDBTop as it was read, where the switch has one."""
    top = column(view.switch_info, SwitchInfo.multicast_fdb_top).astype(np.int64)
    return np.where(_has_top(view) & (top > _NO_GROUPS) & (top <= Lid.PERMISSIVE - 1), top, _NO_GROUPS)


def _has_top(view: View) -> NDArray[np.bool_]:
    mask = column(view.port_info[view.fabric.first_port], PortInfo.capability_mask)
    has: NDArray[np.bool_] = view.is_switch & (mask & np.uint64(Capability.IS_MULTICAST_FDB_TOP_SUPPORTED) > 0)
    return has


def _room(view: View, switches: NDArray[np.intp], blocks: int) -> NDArray[np.bool_]:
    """Return [switch, block, position] -> whether the switch's table has that block."""
    cap = column(view.switch_info[switches], SwitchInfo.multicast_fdb_cap).astype(np.int64)
    ports = view.fabric.nodes.n_ports[switches].astype(np.int64)
    words = int(view.fabric.nodes.n_ports[switches].max()) // _WORD + 1
    has_block = np.arange(blocks) * BLOCK < cap[:, None]
    has_word = np.arange(words) <= ports[:, None] // _WORD
    return has_block[:, :, None] & has_word[:, None, :]


def _may_differ(view: View, switches: NDArray[np.intp], new: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Return [switch, block, position] -> whether it may differ in a switch that was never read."""
    left = (_found_top(view)[switches] - _NO_GROUPS)[:, None] > np.arange(new.shape[1]) * BLOCK
    return new.any(axis=-1) | left[:, :, None]


def _modifier(block: NDArray[np.intp], position: NDArray[np.intp]) -> NDArray[np.int64]:
    return position.astype(np.int64) << 28 | block


def _read(
    sender: Sender,
    view: View,
    switches: NDArray[np.intp],
    old: NDArray[np.uint16],
    sure: NDArray[np.bool_],
    room: NDArray[np.bool_],
) -> None:
    """Read the blocks that another manager may have written."""
    row, block, position = np.nonzero(room & ~sure[:, :, None])
    data, came = sender.get(
        view.to_nodes(switches[row]), SmpAttribute.MULTICAST_FORWARDING_TABLE, _modifier(block, position)
    )
    old[row[came], block[came], position[came]] = _masks(data[came])
    sure[:] = True
    sure[row[~came], block[~came]] = False


def _write(
    sender: Sender,
    view: View,
    switches: NDArray[np.intp],
    old: NDArray[np.uint16],
    new: NDArray[np.uint16],
    blocks_to_write: NDArray[np.bool_],
    refused: set[int],
) -> None:
    row, block, position = np.nonzero(blocks_to_write)
    data = new[row, block, position].astype(">u2").view(np.uint8).reshape(len(row), 2 * BLOCK)
    nodes = switches[row]
    _, took = sender.set(
        view.to_nodes(nodes), SmpAttribute.MULTICAST_FORWARDING_TABLE, _modifier(block, position), data
    )
    old[row[took], block[took], position[took]] = new[row[took], block[took], position[took]]
    refused.update(nodes[~took].tolist())


def _masks(data: Rows) -> NDArray[np.uint16]:
    return np.ascontiguousarray(data).view(">u2").astype(np.uint16)


def _write_top(sender: Sender, view: View, contents: Known, columns: int, refused: set[int]) -> None:
    """Write MulticastFDBTop to switches that have it."""
    cap = column(view.switch_info, SwitchInfo.multicast_fdb_cap).astype(np.int64)
    top = _NO_GROUPS + np.minimum(columns, cap)
    current = column(view.switch_info, SwitchInfo.multicast_fdb_top).astype(np.int64)
    nodes = np.flatnonzero(_has_top(view) & (cap > 0) & (contents.top >= 0) & (current != top))
    data = view.switch_info[nodes]
    fill(data, SwitchInfo.linear_fdb_top, contents.top[nodes])
    fill(data, SwitchInfo.port_state_change, 0)
    fill(data, SwitchInfo.multicast_fdb_top, top[nodes])
    _, took = sender.set(view.to_nodes(nodes), SmpAttribute.SWITCH_INFO, 0, data)
    rows = view.switch_info[nodes[took]]
    fill(rows, SwitchInfo.multicast_fdb_top, top[nodes[took]])
    view.switch_info[nodes[took]] = rows  # the next reprogramming compares with this
    refused.update(nodes[~took].tolist())
