"""The ports of a fabric as found by a walk: the rows of a reading; and the cables that the fabric should have.

Rows are the slots of `fabric`, including port 0 of each node. A port keeps its last cable: while the link is down or
the other end does not answer, `far_guid` and `far_number` still identify the other end.

    cabling = cabling_of(fabric)              or `Cabling(...)` with port names, from a lab for example
    cabling = cabling.updated(now)            after each walk: add new cables, drop old cables of recabled ports
    cabling.missing(now)                      expected cables that are absent

Cables are pairs of port names, so that a plan without GUIDs can be used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.fabric.cabling_warnings import DuplicateGuid
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import components
from weft.fabric.model import Fabric
from weft.fabric.rates import lanes_by_code
from weft.sm.discovery.view import View
from weft.wire.bulk import column
from weft.wire.port_info import LANES, Capability, PortInfo, join_speeds

Cable = tuple[str, str]  # names of its ports, in alphabetical order
_CABLED = (NodeKind.SWITCH, NodeKind.HCA, NodeKind.ROUTER)


@dataclass(frozen=True, kw_only=True)
class Cabling:
    """A set of cables by port names, and the names of the switches."""

    cables: frozenset[Cable] = field(default_factory=frozenset)
    switches: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Return the names of all nodes at cables."""
        return frozenset(node_of(end) for cable in self.cables for end in cable)

    def updated(self, now: Cabling) -> Cabling:
        """Return this cabling with the cables of `now`, and without others of the same ports."""
        used_ports = {end for cable in now.cables for end in cable}
        absent = {cable for cable in self.cables - now.cables if not used_ports.intersection(cable)}
        return Cabling(cables=now.cables | absent, switches=self.switches | now.switches)

    def missing(self, now: Cabling) -> list[Cable]:
        """Return the cables that are not in `now`, in the parts of this cabling that `now` belongs to.

        A plan may have several subnets, of which a poller sees one.
        """
        if self.cables <= now.cables:
            return []
        index = {name: i for i, name in enumerate(self.nodes)}
        a, b = np.array([(index[node_of(near)], index[node_of(far)]) for near, far in self.cables]).T
        part = components(len(index), a, b)
        parts_present = {int(part[index[name]]) for name in now.nodes if name in index}
        return sorted(
            cable for cable in self.cables - now.cables if int(part[index[node_of(cable[0])]]) in parts_present
        )


def cabling_of(fabric: Fabric) -> Cabling:
    """Return the network cables of a fabric."""
    kinds = fabric.nodes.kind
    a, b = fabric.link_nodes
    links = np.flatnonzero(fabric.network_links & np.isin(kinds[a], _CABLED) & np.isin(kinds[b], _CABLED))
    ends = zip(fabric.links.a[links].tolist(), fabric.links.b[links].tolist(), strict=True)
    return Cabling(
        cables=frozenset(cable(fabric.port(near).name, fabric.port(far).name) for near, far in ends),
        switches=frozenset(fabric.nodes.name[node] for node in fabric.of_kind(NodeKind.SWITCH).tolist()),
    )


def cable(near: str, far: str) -> Cable:
    """Return the cable between two ports."""
    return (near, far) if near < far else (far, near)


def node_of(port: str) -> str:
    """Return the node of a port's name: `leaf1` of `leaf1/5`."""
    return port.rpartition("/")[0]


Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Ports:
    """The ports, by slot. Widths are in lanes, speeds are bits of `wire.port_info.LinkSpeed`."""

    fabric: Fabric  # with names from NodeDescription
    lid: Ints  # to read the port's counters from; 0: none
    number: NDArray[np.int16]
    peer: NDArray[np.int32]  # slot at the other end, -1 if it does not answer
    far_guid: NDArray[np.uint64]  # node at the other end, now or before; 0 if there never was one
    far_number: NDArray[np.int16]
    rate_gbit_s: NDArray[np.float64]  # of one direction; 0 if the other end does not answer
    width_active: Ints
    width_supported: Ints
    speed_active: Ints
    speed_supported: Ints
    state: Ints  # PortState
    physical: Ints  # PortPhysicalState
    is_long: Flags  # 64-bit data and packet counters: PortCountersExtended
    is_longest: Flags  # 64-bit error and wait counters too
    has_wait: Flags
    has_qp1_dropped: Flags
    has_fec: Flags  # has FEC counters
    has_rs_fec: Flags
    expected: Cabling = field(default_factory=Cabling)  # expected cables
    recabled: tuple[Cable, ...] = ()  # planned cables with a port that has another cable now
    duplicates: tuple[DuplicateGuid, ...] = ()

    def __len__(self) -> int:
        return len(self.lid)

    def name(self, slot: int) -> str:
        return self.fabric.port(slot).name

    @cached_property
    def is_cabled(self) -> Flags:
        """The ports that have or had a cable."""
        cabled: Flags = self.far_guid > 0
        return cabled

    @cached_property
    def is_polled(self) -> Flags:
        return self.is_cabled & (self.lid > 0)

    def rows_in(self, other: Ports) -> Ints:
        """Return the slot of each port in other ports, by node GUID and port number; -1 if it is not there."""
        if self is other:
            return np.arange(len(self))
        mine, theirs = self.fabric.nodes, other.fabric.nodes
        order = np.argsort(theirs.guid, kind="stable")
        place = np.minimum(np.searchsorted(theirs.guid, mine.guid, sorter=order), len(order) - 1)
        node = np.where(theirs.guid[order[place]] == mine.guid, order[place], -1)[self.fabric.ports.node]
        number = self.number.astype(np.int64)
        is_there = (node >= 0) & (number <= theirs.n_ports[node])
        return np.where(is_there, other.fabric.first_port[node] + number, -1)

    def with_cables_of(self, before: Ports | None) -> Ports:
        """Return the ports with their previous cable where the other end does not answer now."""
        if before is None:
            return self
        rows = self.rows_in(before)
        lost = (self.far_guid == 0) & (rows >= 0)
        return replace(
            self,
            far_guid=np.where(lost, before.far_guid[rows], self.far_guid),
            far_number=np.where(lost, before.far_number[rows], self.far_number),
        )


def ports_of(view: View, able: dict[str, Flags]) -> Ports:
    """Return the ports of a walk; `able` has the capabilities of performance agents, by node."""
    fabric, info = view.fabric, view.port_info
    node, peer = fabric.ports.node, fabric.ports.peer
    is_switch = fabric.nodes.kind[node] == NodeKind.SWITCH
    own = np.where(is_switch, fabric.first_port[node], np.arange(len(node)))
    has_peer = peer >= 0
    rate = np.append(fabric.link_rate_gbit_s, 0.0)[fabric.ports.link]
    return Ports(
        fabric=fabric,
        lid=np.where(is_switch | (_field(info, "port_state") > 1), _field(info, "lid")[own], 0),
        number=fabric.ports.number,
        peer=peer,
        far_guid=np.where(has_peer, fabric.nodes.guid[node[peer]], np.uint64(0)),
        far_number=np.where(has_peer, fabric.ports.number[peer], 0).astype(np.int16),
        rate_gbit_s=rate,
        width_active=lanes_by_code()[_field(info, "link_width_active")].astype(np.int64),
        width_supported=_most_lanes(_field(info, "link_width_supported")),
        speed_active=_speeds(info, "active"),
        speed_supported=_speeds(info, "supported"),
        state=_field(info, "port_state"),
        physical=_field(info, "port_physical_state"),
        expected=Cabling(),  # set by the poller, like recabled
        recabled=(),
        duplicates=view.duplicates,
        has_fec=_field(info, "capability_mask")[own] & Capability.IS_EXTENDED_SPEEDS_SUPPORTED > 0,
        **{name: flags[node] for name, flags in able.items()},
    )


def _field(info: NDArray[np.uint8], name: str) -> Ints:
    return column(info, PortInfo.fields[name]).astype(np.int64)


def _speeds(info: NDArray[np.uint8], kind: str) -> Ints:
    ext2 = _field(info, f"link_speed_ext_{kind}_2")
    return join_speeds(_field(info, f"link_speed_{kind}"), _field(info, f"link_speed_ext_{kind}"), ext2)


def _most_lanes(widths: Ints) -> Ints:
    """Return the largest width in lanes; 0 if none is set."""
    lanes = [np.where(widths & int(code), lanes, 0) for code, lanes in LANES.items()]
    most: Ints = np.max(lanes, axis=0)
    return most
