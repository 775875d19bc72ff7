"""Bring a walk of a subnet up to date: read some of its nodes again, and the nodes behind their ports.

    walk = rewalk(carrier, before, nodes)       None: only a whole walk can tell

A link that ended is removed at both ends, a new one is followed to its node, and the nodes at its ends are read too.
Nodes that no cable connects to ours any more are removed. The result is that of a whole walk, in its order and with its
paths, if nothing else changed. A node is read after those on the path to it: the switch before a link that is down
reports it, and no MAD is sent into it. Silence and contradictions are left to a whole walk, which names them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.mad.carrier import Answers
from weft.mad.walk import DATA, Exchanger, Rows, Walk, directed, is_up, statuses
from weft.wire.bulk import column, fill
from weft.wire.port_info import PortInfo
from weft.wire.smp import HOPS_MAX, NodeInfo, NodeType, SmpAttribute

_TIMEOUT_MS, _RETRIES = 200, 1
_MOST_ROUNDS = 2 * HOPS_MAX
Nodes = NDArray[np.int64]


class _Contradiction(Exception):
    """A sign that the subnet changes at this moment, or that a node is silent or has the GUID of another."""


def rewalk(carrier: Exchanger, before: Walk, nodes: Nodes) -> Walk | None:
    """Read nodes of a walk again; return the walk of the present, or None if it needs a whole walk."""
    if before.oddities:
        return None
    update = _Update(carrier, before)
    update.pending[nodes] = True
    try:
        for _ in range(_MOST_ROUNDS):
            if not update.read_next():
                return update.result()
    except _Contradiction:
        pass
    return None


@dataclass(slots=True)
class _Reach:
    """The nodes that are reached from ours, in the order of a walk."""

    order: Nodes
    path: Rows  # uint8[node, 64]
    hops: NDArray[np.uint8]
    parent: Nodes  # [node] -> the node before it on its path, -1 for ours and for nodes that are not reached


class _Update:
    """A walk that is changed in place; new nodes are at its end."""

    def __init__(self, carrier: Exchanger, before: Walk) -> None:
        self.carrier, self.before = carrier, before
        self.node_info, self.switch_info = before.node_info.copy(), before.switch_info.copy()
        self.description = list(before.description)
        self.port_info, self.port_guid = before.port_info.copy(), before.port_guid.copy()
        self.first, self.peer = before.first.copy(), before.peer.astype(np.int64)
        self.index = {guid: node for node, guid in enumerate(column(before.node_info, NodeInfo.node_guid).tolist())}
        self.pending = np.zeros(len(before), bool)  # [node] -> must it be read?
        self.read = np.zeros(len(before), bool)
        self.own_slot = int(column(before.node_info[:1], NodeInfo.local_port_num)[0])  # our node is the first
        self.confirmed: set[int] = set()  # ports whose link was read now
        self.reach = self._find_reach()
        self.moved = False  # did a link change since then?

    @property
    def n_ports(self) -> Nodes:
        return column(self.node_info, NodeInfo.num_ports).astype(np.int64)

    @property
    def is_switch(self) -> NDArray[np.bool_]:
        switches: NDArray[np.bool_] = column(self.node_info, NodeInfo.node_type) == NodeType.SWITCH
        return switches

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_next(self) -> bool:
        """Read the pending nodes that have no pending node on their path; return False if none is left."""
        if self.moved:
            self.reach, self.moved = self._find_reach(), False
        is_reached = np.zeros(len(self.first), bool)
        is_reached[self.reach.order] = True
        self.pending &= is_reached
        ready = [node for node in np.flatnonzero(self.pending).tolist() if not self._waits(node)]
        if not ready:
            return False
        nodes = np.array(ready)
        if not self._read_nodes(nodes):
            return True  # nodes on the way to some of them are pending now
        self.pending[nodes], self.read[nodes] = False, True
        self._drop_links_that_are_down(nodes)
        self._follow(self._leaving(nodes))
        return True

    def _waits(self, node: int) -> bool:
        while (node := int(self.reach.parent[node])) >= 0:
            if self.pending[node]:
                return True
        return False

    def _read_nodes(self, nodes: Nodes) -> bool:
        """Read all attributes of nodes; return False if one did not answer and nodes before it must be read first."""
        path, hops = self.reach.path[nodes], self.reach.hops[nodes]
        switches = np.flatnonzero(self.is_switch[nodes])
        counts = self.n_ports[nodes] + 1
        owner = np.repeat(np.arange(len(nodes)), counts)
        number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        queried = (number > 0) | self.is_switch[nodes][owner]
        owner, number = owner[queried], number[queried]
        parts = [
            directed(path, hops, SmpAttribute.NODE_INFO),
            directed(path, hops, SmpAttribute.NODE_DESCRIPTION),
            directed(path[switches], hops[switches], SmpAttribute.SWITCH_INFO),
            directed(path[owner], hops[owner], SmpAttribute.PORT_INFO, number),
        ]
        data, came = self._exchange(np.concatenate(parts))
        infos, names, switch_infos, ports = np.split(data, np.cumsum([len(part) for part in parts[:3]]))
        source = np.concatenate((np.arange(len(nodes)), np.arange(len(nodes)), switches, owner))
        is_same = column(infos, NodeInfo.node_guid) == column(self.node_info[nodes], NodeInfo.node_guid)
        is_same &= column(infos, NodeInfo.num_ports) == self.n_ports[nodes].astype(np.uint64)
        is_same[source[~came]] = False
        if not is_same.all():
            self._suspect_paths(nodes[~is_same])
            return False
        self.node_info[nodes] = infos[:, : NodeInfo.size]
        for row, node in enumerate(nodes.tolist()):
            self.description[node] = names[row].tobytes().split(b"\0")[0].decode(errors="replace")
        self.switch_info[nodes[switches]] = switch_infos[:, : self.switch_info.shape[1]]
        self.port_info[self.first[nodes[owner]] + number] = ports
        return True

    def _suspect_paths(self, nodes: Nodes) -> None:
        """Mark the nodes on the way to silent ones; raise _Contradiction if all were read already."""
        before = self.pending.copy()
        for silent in nodes.tolist():
            node = silent
            while (node := int(self.reach.parent[node])) >= 0:
                self.pending[node] |= not self.read[node]
        if (self.pending == before).all():
            raise _Contradiction

    def _exchange(self, smps: Rows) -> Answers:
        answers, came = self.carrier.exchange(smps, timeout_ms=_TIMEOUT_MS, retries=_RETRIES)
        return answers[:, DATA : 2 * DATA], came & (statuses(answers) == 0)

    # -- links --------------------------------------------------------------------------------------------------------

    def _slots(self, nodes: Nodes) -> Nodes:
        """Return the slots of nodes, one node after the other."""
        counts = self.n_ports[nodes] + 1
        offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        slots: Nodes = np.repeat(self.first[nodes], counts) + offset
        return slots

    def _node_of(self, slots: Nodes) -> Nodes:
        nodes: Nodes = np.searchsorted(self.first, slots, side="right") - 1
        return nodes

    def _drop_links_that_are_down(self, nodes: Nodes) -> None:
        slots = self._slots(nodes)
        for slot in slots[~is_up(self.port_info[slots])].tolist():
            if self.peer[slot] >= 0:  # not removed with its other end
                self._unlink(slot)

    def _unlink(self, slot: int) -> None:
        """Remove the link of a port; its other end is read if it was not."""
        far = int(self.peer[slot])
        if self.confirmed & {slot, far}:
            raise _Contradiction
        for end in (slot, far):
            self.peer[end] = -1
            if end != self.own_slot:
                self.port_guid[end] = 0  # a walk knows the GUIDs of ports that it came in by
            node = int(self._node_of(np.array([end]))[0])
            self.pending[node] |= not self.read[node]
        self.moved = True

    def _leaving(self, nodes: Nodes) -> Nodes:
        """Return the ports of nodes that lead on: those of switches that are up, and the port that we are at."""
        slots = self._slots(nodes)
        node = self._node_of(slots)
        number = slots - self.first[node]
        own = (node == self.reach.order[0]) & (number == self.before.start_port)
        leads_on = is_up(self.port_info[slots]) & (number > 0) & (self.is_switch[node] | own)
        leaving: Nodes = slots[leads_on & (self.reach.hops[node] + 1 < HOPS_MAX)]
        return leaving

    def _follow(self, slots: Nodes) -> None:
        """Ask for the node behind each of these ports, and change the links that differ."""
        node = self._node_of(slots)
        path, hops = self.reach.path[node].copy(), self.reach.hops[node] + np.uint8(1)
        path[np.arange(len(path)), hops] = slots - self.first[node]
        infos, came = self._exchange(directed(path, hops, SmpAttribute.NODE_INFO))
        if not came.all():
            raise _Contradiction
        guid, port = column(infos, NodeInfo.node_guid), column(infos, NodeInfo.local_port_num)
        for row, (near, other, number) in enumerate(zip(slots.tolist(), guid.tolist(), port.tolist(), strict=True)):
            if other not in self.index:
                self._append(infos[row])
            far_node = self.index[other]
            far = int(self.first[far_node]) + number
            if not 0 < number <= int(self.n_ports_of(far_node)) or far_node == node[row]:
                raise _Contradiction
            if self.peer[near] != far or self.peer[far] != near:
                self._link(near, far)
            self.confirmed |= {near, far}
            self.port_guid[far] = column(infos[row : row + 1], NodeInfo.port_guid)[0]

    def n_ports_of(self, node: int) -> int:
        return int(column(self.node_info[node : node + 1], NodeInfo.num_ports)[0])

    def _link(self, near: int, far: int) -> None:
        """Connect two ports; links that they had before are gone, and both nodes are read."""
        for end in (near, far):
            if self.peer[end] >= 0:
                self._unlink(end)
        far_node = int(self._node_of(np.array([far]))[0])
        if self.read[far_node] and not is_up(self.port_info[far : far + 1])[0]:
            raise _Contradiction
        self.peer[near], self.peer[far] = far, near
        self.pending[far_node] |= not self.read[far_node]
        self.moved = True

    def _append(self, info: Rows) -> None:
        """Add a node that was not known."""
        ports = int(column(info[None], NodeInfo.num_ports)[0])
        kind = int(column(info[None], NodeInfo.node_type)[0])
        guid = int(column(info[None], NodeInfo.node_guid)[0])
        if kind not in list(NodeType) or not 0 < ports < 255 or guid == 0:
            raise _Contradiction
        self.index[guid] = len(self.first)
        self.first = np.append(self.first, len(self.peer))
        self.node_info = np.concatenate((self.node_info, info[None, : NodeInfo.size]))
        self.switch_info = np.concatenate((self.switch_info, np.zeros_like(self.switch_info[:1])))
        self.description.append("")
        self.port_info = np.concatenate((self.port_info, np.zeros((ports + 1, DATA), np.uint8)))
        self.port_guid = np.concatenate((self.port_guid, np.zeros(ports + 1, np.uint64)))
        self.peer = np.concatenate((self.peer, np.full(ports + 1, -1)))
        self.pending, self.read = np.append(self.pending, True), np.append(self.read, False)

    # -- the result ---------------------------------------------------------------------------------------------------

    def _find_reach(self) -> _Reach:
        """Return the nodes that are reached, wave by wave as a walk does."""
        n = len(self.first)
        reach = _Reach(np.zeros(0, np.int64), np.zeros((n, HOPS_MAX), np.uint8), np.zeros(n, np.uint8), np.full(n, -1))
        node_of = np.repeat(np.arange(n), self.n_ports + 1)
        number = np.arange(len(self.peer)) - self.first[node_of]
        own = (node_of == 0) & (number == self.before.start_port)
        leads_on = (number > 0) & (self.peer >= 0) & (self.is_switch[node_of] | own)
        seen = np.zeros(n, bool)
        seen[0] = True
        waves = [np.zeros(1, np.int64)]
        while len(waves[-1]) and reach.hops[waves[-1][0]] + 1 < HOPS_MAX:
            slots = self._slots(waves[-1])
            slots = slots[leads_on[slots]]
            far = node_of[self.peer[slots]]
            slots, far = slots[~seen[far]], far[~seen[far]]
            rows = np.sort(np.unique(far, return_index=True)[1])
            near, new = node_of[slots[rows]], far[rows]
            seen[new] = True
            reach.parent[new], reach.hops[new] = near, reach.hops[near] + np.uint8(1)
            reach.path[new] = reach.path[near]
            reach.path[new, reach.hops[new]] = number[slots[rows]]
            waves.append(new)
        reach.order = np.concatenate(waves)
        return reach

    def result(self) -> Walk:
        """Return the walk in the order and with the paths of a whole one."""
        reach = self._find_reach()
        order = reach.order
        slots = self._slots(order)
        counts = self.n_ports[order] + 1
        place = np.full(len(self.peer) + 1, -1)  # the last serves ports without a link
        place[slots] = np.arange(len(slots))
        path, hops = reach.path[order], reach.hops[order]
        node_info, port_info = self.node_info[order], self.port_info[slots]
        arrival = self._arrivals(reach)
        number, guids = arrival - self.first[order], self.port_guid[arrival]
        fill(node_info, NodeInfo.local_port_num, number)
        fill(node_info, NodeInfo.port_guid, np.where(guids > 0, guids, column(node_info, NodeInfo.port_guid)))
        fill(port_info, PortInfo.local_port_num, np.where(port_info.any(axis=1), np.repeat(number, counts), 0))
        return replace(
            self.before,
            node_info=node_info,
            switch_info=self.switch_info[order],
            description=tuple(self.description[node] for node in order.tolist()),
            path=path,
            hops=hops,
            first=np.cumsum(counts) - counts,
            port_info=port_info,
            port_guid=self.port_guid[slots],
            peer=place[self.peer[slots]].astype(np.int32),
        )

    def _arrivals(self, reach: _Reach) -> Nodes:
        """Return the port by which each node of the order is reached."""
        others = reach.order[1:]
        left_by = reach.path[others, reach.hops[others]].astype(np.int64)
        arrival: Nodes = np.append(self.own_slot, self.peer[self.first[reach.parent[others]] + left_by])
        return arrival
