"""Present a walk of the subnet as a Fabric.

    view.fabric                 the cables that may be used, with names; its tables are what we WANT in the devices
    view.port_info[slot]        what a port said of itself when it was walked past
    view.oddities               what is not as it should be, in words

Slots and nodes are the fabric's everywhere. Links that must not be used (see `oddities`) are not in the fabric, and
neither is what could be reached over them alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.fabric.cabling_warnings import DuplicateGuid, duplicate_guids
from weft.fabric.columns import LinkColumns, NodeColumns
from weft.fabric.files.naming import adapter_kind, name_nodes, node_id
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import components
from weft.fabric.model import Fabric
from weft.fabric.rates import lanes_by_code, speed_by_bits
from weft.mad.walk import Oddity, Rows, Walk
from weft.sm.sender import Route, Sender
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo, PortState, join_speeds
from weft.wire.smp import NodeInfo, NodeType, SmpAttribute, SwitchInfo


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """A subnet at one moment."""

    fabric: Fabric
    node_info: Rows  # uint8[node, 40]
    switch_info: Rows  # uint8[node, 20]; zeros for what is no switch
    port_info: Rows  # uint8[slot, 64]; zeros where none was read
    path: Rows  # uint8[node, 64]: directed route, entry n is the port by which hop n leaves
    hops: NDArray[np.uint8]  # [node]
    own_slot: int  # the port that the subnet manager speaks through; on a switch its port 0
    oddities: tuple[str, ...]
    duplicates: tuple[DuplicateGuid, ...] = ()  # ports that are left out because another port has their GUID

    @cached_property
    def is_switch(self) -> NDArray[np.bool_]:
        """The switches, as a mask of nodes."""
        switches: NDArray[np.bool_] = self.fabric.nodes.kind == NodeKind.SWITCH
        return switches

    @cached_property
    def end_ports(self) -> NDArray[np.intp]:
        """The slots that have a LID: port 0 of switches, and plugged ports of other nodes."""
        ports = self.fabric.ports
        of_switch = self.is_switch[ports.node]
        return np.flatnonzero(np.where(of_switch, ports.number == 0, ports.peer >= 0))

    @cached_property
    def plugged(self) -> NDArray[np.intp]:
        """The slots with a cable, of any node."""
        return np.flatnonzero(self.fabric.ports.peer >= 0)

    @property
    def state(self) -> NDArray[np.uint64]:
        """The PortState by slot, as last read."""
        return column(self.port_info, PortInfo.port_state)

    def to_nodes(self, nodes: NDArray[np.intp] | NDArray[np.int32]) -> Route:
        """Return directed routes to nodes, by the port that they were reached by."""
        return self.path[nodes], self.hops[nodes]

    def to_ports(self, slots: NDArray[np.intp]) -> Route:
        """Return directed routes that enter adapters by that port: P_Keys and lanes belong to the port of arrival."""
        ports = self.fabric.ports
        peer = ports.peer[slots]
        inward = (peer >= 0) & ~self.is_switch[ports.node[slots]] & (slots != self.own_slot)
        via = np.where(inward, ports.node[peer], ports.node[slots])
        path, hops = self.path[via], self.hops[via] + inward.astype(np.uint8)
        path[inward, hops[inward]] = ports.number[peer[inward]]
        return path, hops

    def node_of_guid(self, guid: int) -> int | None:
        """Return the node of a GUID."""
        nodes = np.flatnonzero(self.fabric.nodes.guid == np.uint64(guid))
        return int(nodes[0]) if len(nodes) else None

    def name(self, slot: int) -> str:
        return self.fabric.port(slot).name


def make_view(walk: Walk) -> View:
    """Build a view with names, kinds and rates from a walk.

    Switches come first, by GUID: engines break ties by their order, which must not depend on where the walk began.
    """
    walk, start = _in_order(walk)
    nodes, servers = _nodes(walk)
    fabric = Fabric.assemble("subnet", nodes, _links(walk), _port_guids(walk, nodes), (), servers, ())
    view = View(
        fabric=fabric,
        node_info=walk.node_info,
        switch_info=walk.switch_info,
        port_info=walk.port_info,
        path=walk.path,
        hops=walk.hops,
        own_slot=int(walk.first[start]) + (0 if nodes.kind[start] == NodeKind.SWITCH else walk.start_port),
        oddities=tuple(_say(oddity, nodes.name) for oddity in walk.oddities),
    )
    return _without_duplicates(_without_strangers(view))


def _in_order(walk: Walk) -> tuple[Walk, int]:
    """Sort switches by GUID before the others, and return the new index of our own node."""
    switch = column(walk.node_info, NodeInfo.node_type) == NodeType.SWITCH
    guid = column(walk.node_info, NodeInfo.node_guid)
    order = np.lexsort((np.where(switch, guid, np.arange(len(walk)).astype(np.uint64)), ~switch))
    place = np.argsort(order)  # [old node] -> new
    slots = column(walk.node_info, NodeInfo.num_ports).astype(np.int64) + 1
    first = np.cumsum(slots[order]) - slots[order]
    old_slot = ranges(walk.first[order], slots[order])
    new_slot = np.append(np.argsort(old_slot), -1)  # the last serves what has no peer
    changed = replace(
        walk,
        node_info=walk.node_info[order],
        switch_info=walk.switch_info[order],
        description=tuple(walk.description[node] for node in order.tolist()),
        path=walk.path[order],
        hops=walk.hops[order],
        first=first,
        port_info=walk.port_info[old_slot],
        port_guid=walk.port_guid[old_slot],
        peer=new_slot[walk.peer[old_slot]].astype(np.int32),
        oddities=tuple(
            replace(odd, near=(int(place[odd.near[0]]), odd.near[1])) if odd.near else odd for odd in walk.oddities
        ),
    )
    return changed, int(place[0])


def ranges(begin: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """begin[0], begin[0] + 1, ... count[0] of them, then from begin[1] on, and so forth."""
    offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(begin, count) + offset


def without_links(view: View, slots: NDArray[np.intp], oddities: tuple[str, ...]) -> View:
    """Return the view without the cables of these ports, and without nodes that are cut off then."""
    keep = np.ones(len(view.fabric.links), bool)
    keep[view.fabric.ports.link[slots]] = False
    remaining = _subset(view, np.ones(len(view.fabric.nodes), bool), keep, (*view.oddities, *oddities))
    return _without_strangers(remaining)


def _without_strangers(view: View) -> View:
    """Remove nodes that no cable connects to ours."""
    part = components(len(view.fabric.nodes), *view.fabric.link_nodes)
    reached = part == part[view.fabric.ports.node[view.own_slot]]
    if reached.all():
        return view
    lost = [view.fabric.nodes.name[node] for node in np.flatnonzero(~reached).tolist()]
    more = f" and {len(lost) - 3:,} more" if len(lost) > 3 else ""
    cut_off = f"cut-off: {', '.join(lost[:3])}{more}: no cable that may be used leads there"
    return _subset(view, reached, np.ones(len(view.fabric.links), bool), (*view.oddities, cut_off))


def _without_duplicates(view: View) -> View:
    """Leave out the cables of ports whose GUID belongs to another port: see `fabric.port_guids`."""
    duplicated, ports = duplicate_guids(view.fabric, view.own_slot), view.fabric.ports
    if not duplicated:
        return view
    losers = np.array([slot for slot, _ in duplicated])
    of_switch = view.is_switch[ports.node] & np.isin(ports.node, ports.node[losers])
    slots = np.flatnonzero((of_switch | np.isin(np.arange(len(ports)), losers)) & (ports.link >= 0))
    duplicates = tuple(duplicate for _, duplicate in duplicated)
    remaining = without_links(
        view, slots, tuple(f"duplicate-guid: {pair}, which is served; {pair.loser} is not" for pair in duplicates)
    )
    return replace(remaining, duplicates=duplicates)


def _subset(view: View, nodes: NDArray[np.bool_], links: NDArray[np.bool_], oddities: tuple[str, ...]) -> View:
    slots = nodes[view.fabric.ports.node]
    return View(
        fabric=view.fabric.subset(nodes, links),
        node_info=view.node_info[nodes],
        switch_info=view.switch_info[nodes],
        port_info=view.port_info[slots],
        path=view.path[nodes],
        hops=view.hops[nodes],
        own_slot=int(slots[: view.own_slot].sum()),
        oddities=oddities,
        duplicates=view.duplicates,
    )


def _say(oddity: Oddity, names: tuple[str, ...]) -> str:
    where = ""
    if oddity.near is not None:
        node, port = oddity.near
        where = f"{names[node]}/{port}" if port else names[node]
        if oddity.kind in ("silent", "lying") and port:
            where = f"the device behind {where}"
    return f"{oddity.kind}: {where or 'our own node'} {oddity.text}".replace(":  ", ": ")


# -- nodes ------------------------------------------------------------------------------------------------------------


def _nodes(walk: Walk) -> tuple[NodeColumns, tuple[str, ...]]:
    """Return the node columns and the names of servers. The model is not known here."""
    info = walk.node_info
    types, guid = column(info, NodeInfo.node_type), column(info, NodeInfo.node_guid)
    vendor = column(info, NodeInfo.vendor_id).astype(np.int32)
    device = column(info, NodeInfo.device_id).astype(np.int32)
    kinds = [
        _kind(NodeType(kind), number, text)
        for kind, number, text in zip(types.tolist(), device.tolist(), walk.description, strict=True)
    ]
    ids = [node_id(kind, number) for kind, number in zip(kinds, guid.tolist(), strict=True)]
    names, homes = name_nodes(kinds, walk.description, ids, _homes(walk, kinds))
    servers = tuple(dict.fromkeys(home for home in homes if home))
    server_index = {name: index for index, name in enumerate(servers)} | {"": -1}
    columns = NodeColumns(
        name=tuple(names),
        description=walk.description,
        kind=np.array(kinds, np.int8),
        guid=guid,
        system_guid=column(info, NodeInfo.system_image_guid),
        vendor_id=vendor,
        device_id=device,
        model=np.full(len(names), -1, np.int16),
        server=np.array([server_index[home] for home in homes], np.int32),
        group=np.full(len(names), -1, np.int32),
        n_ports=column(info, NodeInfo.num_ports).astype(np.int16),
        enhanced_port_0=column(walk.switch_info, SwitchInfo.enhanced_port_0).astype(np.bool_),
    )
    return columns, servers


def _kind(node_type: NodeType, device_id: int, description: str) -> NodeKind:
    if node_type == NodeType.CA:
        return adapter_kind(device_id, description)
    return NodeKind.SWITCH if node_type == NodeType.SWITCH else NodeKind.ROUTER


def _homes(walk: Walk, kinds: list[NodeKind]) -> list[int]:
    """Return [node] -> the switch of an aggregation node, -1 for none."""
    homes = [-1] * len(kinds)
    for node, kind in enumerate(kinds):
        if kind == NodeKind.AGGREGATION:
            peer = walk.peer[walk.first[node] + 1]
            homes[node] = int(np.searchsorted(walk.first, peer, side="right")) - 1 if peer >= 0 else -1
    return homes


def _port_guids(walk: Walk, nodes: NodeColumns) -> NDArray[np.uint64]:
    """Return the GUIDs that were read; all ports of a switch share one, unread ports get the node's plus n."""
    slots = nodes.n_ports.astype(np.int64) + 1
    number = np.arange(int(slots.sum())) - np.repeat(walk.first, slots)
    of_switch = np.repeat(nodes.kind == NodeKind.SWITCH, slots)
    of_node = np.repeat(nodes.guid, slots)
    switch_guid = np.repeat(column(walk.node_info, NodeInfo.port_guid), slots)
    guessed = np.where(of_switch, switch_guid, of_node + number.astype(np.uint64))
    return np.where(walk.port_guid > 0, walk.port_guid, guessed)


# -- links ------------------------------------------------------------------------------------------------------------


def _links(walk: Walk) -> LinkColumns:
    ends = np.flatnonzero(walk.peer > np.arange(len(walk.peer)))
    read = column(walk.port_info, PortInfo.port_state) > 0  # a port that did not say its state cannot be configured
    ends = ends[read[ends] & read[walk.peer[ends]]]
    a, b = ends.astype(np.int32), walk.peer[ends]
    infos = walk.port_info[a]
    fields = PortInfo.link_speed_active, PortInfo.link_speed_ext_active, PortInfo.link_speed_ext_active_2
    slow, ext, ext2 = (column(infos, field).astype(np.int64) for field in fields)
    return LinkColumns(
        a=a,
        b=b,
        speed=speed_by_bits()[join_speeds(slow, ext, ext2)],
        width=lanes_by_code()[column(infos, PortInfo.link_width_active).astype(np.int64)],
        medium=np.zeros(len(a), np.int8),
        length_m=np.zeros(len(a), np.float32),
        bit_error_rate=np.zeros(len(a), np.float64),
        good_end=np.zeros(len(a), np.int8),
    )


def changes(sender: Sender, view: View) -> str:
    """Return a description of a change since this view; empty if there is none."""
    changed = switch_changes(sender, view, np.flatnonzero(view.is_switch))
    if changed:
        return changed
    own = np.array([view.own_slot])
    number = view.fabric.ports.number[own].astype(np.int64)
    info, came = sender.get(view.to_ports(own), SmpAttribute.PORT_INFO, number)
    if not came[0] or (view.own_slot in view.plugged and column(info, PortInfo.port_state)[0] != PortState.ACTIVE):
        return "our own port is not Active"
    return ""


def switch_changes(sender: Sender, view: View, switches: NDArray[np.intp]) -> str:
    """Return a change at these switches; late or repeated traps report changes that a sweep saw already."""
    data, came = sender.get(view.to_nodes(switches), SmpAttribute.SWITCH_INFO)
    for silent in switches[~came][:1].tolist():
        return f"{view.fabric.nodes.name[silent]} does not answer"
    for changed in switches[column(data, SwitchInfo.port_state_change) > 0][:1].tolist():
        return f"ports of {view.fabric.nodes.name[changed]} changed"
    top = column(data, SwitchInfo.linear_fdb_top) != column(view.switch_info[switches], SwitchInfo.linear_fdb_top)
    for restarted in switches[top][:1].tolist():
        return f"{view.fabric.nodes.name[restarted]} has restarted, or another subnet manager wrote to it"
    return ""
