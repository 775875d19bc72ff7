"""The model of a running subnet, read by MADs: cabling, PortInfo, forwarding tables and P_Keys.

    model = Model(carrier)
    fabric = model.refresh()                    the whole subnet
    fabric = model.refresh(changed=[7])         what changed since, with the nodes of LID 7

Every MAD is a Get. A refresh reads these, and then the nodes that any of them shows to have changed (`mad.rewalk`):

    signs       SwitchInfo of all switches, and PortInfo of their ports that are not Active; with LIDs only these
    links       the node behind each link, of all links within three refreshes at 35,000 links
    contents    all attributes, forwarding table and P_Keys of some nodes, those first that were read longest ago;
                of more nodes for some seconds after a change, in which a subnet manager writes tables

So the model is equal to a whole reading of the subnet after a few refreshes, even if nothing signals a change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.mad.carrier import TIMEOUT_MS, Answers, Carrier
from weft.mad.rewalk import rewalk
from weft.mad.walk import DATA, Walk, directed, statuses, walk
from weft.sm.discovery.known import BLOCK, Known, carried_over
from weft.sm.discovery.view import View, make_view
from weft.sm.pkey.table_upload import read_pkeys
from weft.sm.sender import Sender
from weft.sm.ucast.forwarding import read_forwarding
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import NodeInfo, NodeType, SmpAttribute, SwitchInfo

QUIET_MADS = 8_192  # for contents, in a refresh
BUSY_MADS = 65_536  # after a change
LINKS_AT_ONCE = 12_288
SETTLE_S = 10.0  # in which a subnet manager may write tables after a change
_MOST_SHORT_S = 5.0  # in which refreshes with LIDs read only signs and these nodes
_KEY_BLOCKS = 4  # P_Key blocks of a port, at most
Flags = NDArray[np.bool_]


class Model:
    """A model that every refresh brings up to date. `version` grows with each difference."""

    def __init__(
        self,
        carrier: Carrier,
        *,
        quiet_mads: int = QUIET_MADS,
        busy_mads: int = BUSY_MADS,
        links_at_once: int = LINKS_AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._carrier, self._clock = carrier, clock
        self._quiet_mads, self._busy_mads, self._links_at_once = quiet_mads, busy_mads, links_at_once
        self._walk: Walk | None = None
        self._known: Known | None = None
        self._view: View | None = None
        self._refresh = 0  # number of this refresh
        self._due = np.zeros(0, np.uint64)  # GUIDs of nodes whose contents this refresh reads
        self._read_at: dict[int, int] = {}  # node GUID -> the refresh that read its contents
        self._changed_at, self._changed_s = 0, -SETTLE_S  # the refresh that saw the last change, and its time
        self._turn, self._turned_s = 0, 0.0  # turn of the links, and its time
        self.version = 0
        self.whole_walks = 0

    @property
    def view(self) -> View:
        """The subnet as last read. There is none before the first refresh."""
        assert self._view is not None
        return self._view

    @property
    def is_settled(self) -> bool:
        """Return whether all contents were read after the last change."""
        return min(self._read_at.values()) > self._changed_at

    def refresh(self, changed: Collection[int] = ()) -> Fabric:
        """Bring the model up to date, with the nodes that have these LIDs; return it with its tables."""
        self._refresh += 1
        before, after = self._walk, self._read_walk(changed)
        if before is None or not _same(before, after):
            view = make_view(after)
            self._known = known = carried_over(self._known, view)
            tables, guids = view.fabric.tables, view.fabric.nodes.guid
            tables.port_info[:] = view.port_info
            tables.lft, tables.pkey = known.tables.lft, known.tables.pkey
            self._due = guids if before is None else self._due
            self._read_at = {guid: self._read_at.get(guid, 0) for guid in guids.tolist()}
            self._view = view
            self._note_change()
        self._walk = after
        if self._read_tables():
            self._note_change()
        return self.view.fabric

    def _note_change(self) -> None:
        self.version += 1
        self._changed_at, self._changed_s = self._refresh, self._clock()

    # -- cabling ------------------------------------------------------------------------------------------------------

    def _read_walk(self, lids: Collection[int]) -> Walk:
        """Return the walk of the present: the last one with the nodes read again that changed or are due."""
        if self._walk is not None:
            nodes = self._find_signs(self._walk)
            nodes[_nodes_of(self._walk, _ports_with(self._walk, lids))] = True
            self._due = np.zeros(0, np.uint64)
            if not lids or self._clock() > self._turned_s + _MOST_SHORT_S:
                self._due, self._turned_s = self._find_due(), self._clock()
                nodes |= np.isin(column(self._walk.node_info, NodeInfo.node_guid), self._due)
                nodes |= self._find_moved_links(self._walk)
            update = rewalk(self._carrier, self._walk, np.flatnonzero(nodes))
            if update is not None:
                return update
        self.whole_walks += 1
        return walk(self._carrier)

    def _find_signs(self, before: Walk) -> Flags:
        """Return the nodes of a walk that show a change, or that do not answer."""
        is_switch = column(before.node_info, NodeInfo.node_type) == NodeType.SWITCH
        switches = np.flatnonzero(is_switch)
        slots = np.arange(len(before.port_info))
        node = _nodes_of(before, slots)
        state = column(before.port_info, PortInfo.port_state)
        idle = np.flatnonzero(is_switch[node] & (slots > before.first[node]) & (state != PortState.ACTIVE))
        number = idle - before.first[node[idle]]
        mads = (
            directed(before.path[switches], before.hops[switches], SmpAttribute.SWITCH_INFO),
            directed(before.path[node[idle]], before.hops[node[idle]], SmpAttribute.PORT_INFO, number),
        )
        data, came = self._get(np.concatenate(mads))
        infos, ports = np.split(data, [len(switches)])
        size = SwitchInfo.size
        noted = column(infos, SwitchInfo.port_state_change) > 0
        signs = np.concatenate(
            (
                noted | (infos[:, :size] != before.switch_info[switches]).any(axis=1),
                (ports != before.port_info[idle]).any(axis=1),
            )
        )
        changed = np.zeros(len(before), bool)
        changed[np.concatenate((switches, node[idle]))[signs | ~came]] = True
        return changed

    def _find_moved_links(self, before: Walk) -> Flags:
        """Return the nodes at links, among those of this turn, that lead to another port than before."""
        ends = np.flatnonzero(before.peer > np.arange(len(before.peer)))
        turns = max(1, -(-len(ends) // self._links_at_once))
        self._turn = (self._turn + 1) % turns
        ends = ends[self._turn :: turns]
        others = before.peer[ends].astype(np.int64)
        a, b = _nodes_of(before, ends), _nodes_of(before, others)
        swapped = before.hops[b] < before.hops[a]
        a, b = np.where(swapped, b, a), np.where(swapped, a, b)
        near, far = np.where(swapped, others, ends), np.where(swapped, ends, others)
        path, hops = before.path[a].copy(), before.hops[a] + np.uint8(1)
        path[np.arange(len(path)), hops] = near - before.first[a]
        infos, came = self._get(directed(path, hops, SmpAttribute.NODE_INFO))
        same = came & (column(infos, NodeInfo.node_guid) == column(before.node_info[b], NodeInfo.node_guid))
        same &= column(infos, NodeInfo.local_port_num).astype(np.int64) == far - before.first[b]
        moved = np.zeros(len(before), bool)
        moved[a[~same]] = moved[b[~same]] = True
        return moved

    def _get(self, mads: NDArray[np.uint8]) -> Answers:
        answers, came = self._carrier.exchange(mads, timeout_ms=TIMEOUT_MS, retries=0)
        return answers[:, DATA : 2 * DATA], came & (statuses(answers) == 0)

    # -- contents -----------------------------------------------------------------------------------------------------

    def _find_due(self) -> NDArray[np.uint64]:
        """Return the GUIDs of nodes whose contents are read now."""
        view = self.view
        nodes, ages = view.fabric.nodes, np.array([*self._read_at.values()])
        ports = nodes.n_ports.astype(np.int64)
        top = column(view.switch_info, SwitchInfo.linear_fdb_top).astype(np.int64)
        mads = 4 + np.where(view.is_switch, 2 * ports + top // BLOCK, ports * (1 + _KEY_BLOCKS))
        is_busy = self._clock() < self._changed_s + SETTLE_S or ages.min() <= self._changed_at
        order = np.argsort(ages, kind="stable")
        budget = self._busy_mads if is_busy else self._quiet_mads
        count = max(1, int((np.cumsum(mads[order]) <= budget).sum()))
        due: NDArray[np.uint64] = nodes.guid[order[:count]]
        return due

    def _read_tables(self) -> bool:
        """Read the tables of the nodes that are due, and of nodes whose tables are not known; return what differs."""
        view, known = self.view, self._known
        assert known is not None
        sender, guids = Sender(self._carrier), view.fabric.nodes.guid
        due = np.isin(guids, self._due)
        before = known.tables.lft, known.tables.pkey
        known.tables.lft, known.tables.pkey = known.tables.lft.copy(), known.tables.pkey.copy()
        known.routes[due] = False
        read_forwarding(sender, view, known)
        slots = np.union1d(view.end_ports, _enforcing_ports(view))
        read_pkeys(sender, view, known, slots[due[view.fabric.ports.node[slots]] | ~known.keys[slots]])
        self._read_at.update(dict.fromkeys(guids[due].tolist(), self._refresh))
        tables = view.fabric.tables
        tables.lft, tables.pkey = known.tables.lft, known.tables.pkey
        return not (np.array_equal(before[0], tables.lft) and np.array_equal(before[1], tables.pkey))


def _same(before: Walk, after: Walk) -> bool:
    """Return whether two walks are equal but for the paths."""
    if before.description != after.description or before.oddities != after.oddities:
        return False
    names = "node_info", "switch_info", "port_info", "port_guid", "peer"
    return all(np.array_equal(getattr(before, name), getattr(after, name)) for name in names)


def _nodes_of(before: Walk, slots: NDArray[np.int64]) -> NDArray[np.int64]:
    nodes: NDArray[np.int64] = np.searchsorted(before.first, slots, side="right") - 1
    return nodes


def _ports_with(before: Walk, lids: Collection[int]) -> NDArray[np.int64]:
    held = column(before.port_info, PortInfo.lid).astype(np.int64)
    slots: NDArray[np.int64] = np.flatnonzero((held > 0) & np.isin(held, list(lids)))
    return slots


def _enforcing_ports(view: View) -> NDArray[np.intp]:
    """Return the ports of switches that check the P_Keys of packets."""
    fields = (PortInfo.partition_enforcement_inbound, PortInfo.partition_enforcement_outbound)
    checks = np.any([column(view.port_info[view.plugged], field) > 0 for field in fields], axis=0)
    slots: NDArray[np.intp] = view.plugged[checks & view.is_switch[view.fabric.ports.node[view.plugged]]]
    return slots
