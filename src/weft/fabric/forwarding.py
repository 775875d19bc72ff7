"""Forwarding decisions, packet by packet: used by management, adapters, engines and proofs.

    out, vl, reason = next_hop(plane, at, dlid=dlid, sl=sl, p_key=p_key, size_bytes=size_bytes)

The checks, in this order (InfiniBand Architecture volume 1, "Link Layer", "Switches", "Partitioning"):

    enters a switch     with inbound enforcement the sender must hold the P_Key              INBOUND
    is at its end       the DLID is the node's, and a P_Key of the port matches              ARRIVED, else P_KEY
    is in an adapter    which forwards nothing                                               NOT_MINE
    is relayed          by the forwarding table, never back to the input port                NO_ROUTE, TURNS_BACK
    leaves a switch     with outbound enforcement the far end must accept the P_Key          OUTBOUND
    leaves by a port    it is up and Active                                                  INACTIVE
                        the SL maps to a VL in use: not 15, within OperationalVLs            NO_VL, in a switch NO_RELAY
                        it is no longer than NeighborMTU                                     TOO_LONG

Two P_Keys match if they have the same partition, other than 0, and are not both limited. Switches hold the keys of the
adapter at their port, so the same rule on input would stop all packets of limited members; inbound enforcement checks
whether the sender may use this key: a full one only if it is a full member (the egress check of Omni-Path, OPAv1 9.11.7
as Linux's hfi1 cites it). Raw packets have no P_Key: the two FilterRaw bits stop them. SMPs use VL 15 over links that
are up, and have no P_Key.

A multicast packet (`follow`) is copied by the multicast forwarding tables, never back to its input port: each copy
leaves a switch as above, and a port in the group accepts it.

`kernels.forwarding` does the same for many paths at a time; `tests/fabric/test_forwarding.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple, Self

import numpy as np

from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.fabric.tables import NO_ROUTE
from weft.ids import Lid, PKey
from weft.wire.port_info import PortInfo, PortState

NONE = -1
FULL = PKey.FULL_MEMBER
RAW, ANY = -1, -2  # instead of a P_Key: a raw packet, which has none; and a packet whose key is not checked
MANAGEMENT_VL = 15
HEADERS_BYTES = 124  # headers of a packet in addition to its MTU, without the VCRC
PORTS_PER_MASK = 16  # in the multicast forwarding table
DATA_VLS = (0, 1, 2, 4, 8, 15)  # by the code of OperationalVLs
P_KEYS_IN, P_KEYS_OUT, RAW_IN, RAW_OUT = 8, 4, 2, 1  # the lower half of a byte of PortInfo
LMC, CHECKS = PortInfo.lmc.bit // 8, PortInfo.partition_enforcement_inbound.bit // 8
VLS, MTU, STATE = PortInfo.operational_vls.bit // 8, PortInfo.neighbor_mtu.bit // 8, PortInfo.port_state.bit // 8
DOWN, ACTIVE = int(PortState.DOWN), int(PortState.ACTIVE)  # plain integers: they are compared at every hop


class Reason(IntEnum):
    """The outcome for a packet at a port."""

    text: str

    GOES_ON = 0, "forwarded"
    ARRIVED = 1, "it arrived"
    INACTIVE = 2, "the port has no link, or is not Active"
    TOO_LONG = 3, "it is longer than the MTU of the link"
    NO_VL = 4, "its SL maps to no VL of the port"
    NO_RELAY = 5, "the switch maps its SL to no VL of the port by which it would leave"
    NO_ROUTE = 6, "the switch has no port for its DLID"
    TURNS_BACK = 7, "the switch would send it back to where it came from"
    LOOP = 8, "it came to the same port again"
    NOT_MINE = 9, "it reached an adapter that does not have its DLID"
    INBOUND = 10, "the switch's inbound P_Key enforcement drops it"
    OUTBOUND = 11, "the switch's outbound P_Key enforcement drops it"
    P_KEY = 12, "no P_Key of the port matches"
    BIT_ERROR = 13, "a bad cable corrupted it"
    MALFORMED = 14, "its length, version or headers are malformed"
    MANAGEMENT = 15, "it is for QP 0: SMPs go by Subnet.send"
    HOP_LIMIT = 16, "its hop limit does not allow another subnet"
    NO_SUBNET = 17, "the router has no Active port in the subnet of its DGID"
    NO_NEIGHBOR = 18, "the administrator of that subnet knows no path from the router to its DGID"
    NOT_RESOLVED = 19, "the router waits for the path from the administrator of that subnet"

    def __new__(cls, number: int, text: str = "") -> Self:
        member = int.__new__(cls, number)
        member._value_, member.text = number, text
        return member


COUNTED = {  # reasons without an entry are not counted, or are counted where they occur
    Reason.MALFORMED: Counter.PORT_XMIT_DISCARDS,
    Reason.MANAGEMENT: Counter.PORT_XMIT_DISCARDS,
    Reason.INACTIVE: Counter.PORT_XMIT_DISCARDS,
    Reason.TOO_LONG: Counter.PORT_XMIT_DISCARDS,
    Reason.NO_VL: Counter.PORT_XMIT_DISCARDS,
    Reason.LOOP: Counter.PORT_XMIT_DISCARDS,
    Reason.NO_RELAY: Counter.PORT_RCV_SWITCH_RELAY_ERRORS,
    Reason.NO_ROUTE: Counter.PORT_RCV_SWITCH_RELAY_ERRORS,
    Reason.TURNS_BACK: Counter.PORT_RCV_SWITCH_RELAY_ERRORS,
    Reason.HOP_LIMIT: Counter.PORT_RCV_SWITCH_RELAY_ERRORS,  # a router's relay: no counter is meant for routers alone
    Reason.NO_SUBNET: Counter.PORT_RCV_SWITCH_RELAY_ERRORS,
    Reason.NO_NEIGHBOR: Counter.PORT_RCV_SWITCH_RELAY_ERRORS,
    Reason.INBOUND: Counter.PORT_RCV_CONSTRAINT_ERRORS,
    Reason.OUTBOUND: Counter.PORT_XMIT_CONSTRAINT_ERRORS,
}


class Hop(NamedTuple):
    """The next hop: the packet leaves by `slot` on `vl`, or ends at `slot` for a reason."""

    slot: int
    vl: int
    reason: Reason


class Path(NamedTuple):
    """The output slots of a packet hop by hop, and its end: at `end`, for a reason."""

    out: tuple[int, ...]
    vls: tuple[int, ...]
    end: int
    reason: Reason


class Plane:
    """A running fabric: its cables, PortInfo and SwitchInfo as MADs carry them, and its tables."""

    def __init__(self, fabric: Fabric) -> None:
        usable = fabric.links_of(Technology.INFINIBAND)
        cabled = (fabric.ports.link >= 0) & usable[fabric.ports.link]
        self.fabric, self.tables = fabric, fabric.tables
        self.first: list[int] = fabric.first_port.tolist()
        self.node_of: list[int] = fabric.ports.node.tolist()
        self.last_port: list[int] = fabric.network_ports.tolist()
        self.is_switch: list[bool] = (fabric.nodes.kind == NodeKind.SWITCH).tolist()
        self.cable: list[int] = np.where(cabled, fabric.ports.peer, NONE).tolist()  # slot at the far end
        self.link: list[int] = np.where(cabled, fabric.ports.link, NONE).tolist()
        self.ports_with_0: list[int] = (fabric.nodes.n_ports.astype(np.int64) + 1).tolist()
        self.row: list[int] = self.tables.switch_row.tolist()  # node -> row in forwarding tables
        self.first_pair: list[int] = self.tables.first_pair.tolist()  # node -> first row in SL to VL
        # Rows of `tables.port_info` and `tables.switch_info`; None if the port does not exist.
        self.port_info: list[memoryview | None] = [None] * len(self.cable)
        self.switch_info: dict[int, memoryview] = {}

    def number(self, slot: int) -> int:
        return slot - self.first[self.node_of[slot]]

    def name(self, slot: int) -> str:
        return self.fabric.port(slot).name

    def info(self, slot: int) -> memoryview:
        """Return the PortInfo of a port; raise ConfigError if it has none."""
        info = self.port_info[slot]
        if info is None:
            raise ConfigError(f"{self.name(slot)} is not an InfiniBand port of a switch or an adapter")
        return info

    def own_slot(self, slot: int) -> int:
        """Return the slot that holds a port's LID: port 0 of a switch, else the port itself."""
        node = self.node_of[slot]
        return self.first[node] if self.is_switch[node] else slot

    def peer(self, slot: int) -> int:
        """Return the slot at the far end; NONE while the link is down."""
        info = self.port_info[slot]
        return self.cable[slot] if info is not None and info[STATE] & 0x0F > DOWN else NONE

    def is_active(self, slot: int) -> bool:
        info = self.port_info[slot]
        return info is not None and info[STATE] & 0x0F == ACTIVE

    def lid(self, slot: int) -> int:
        """Return the base LID of a port."""
        return int(PortInfo.lid.get(self.info(self.own_slot(slot))))

    def has_lid(self, slot: int, lid: int) -> bool:
        """Return whether a LID belongs to the port, or to the switch that it is a port of."""
        info = self.port_info[self.own_slot(slot)]
        if info is None:
            return False
        base = info[16] << 8 | info[17]
        return 0 < base <= lid < base + (1 << (info[LMC] & 7))

    def keys(self, slot: int) -> list[int]:
        """Return the P_Keys of a port."""
        keys: list[int] = self.tables.pkey[slot].tolist()
        return keys


# -- P_Keys -----------------------------------------------------------------------------------------------------------


def matching_key(keys: list[int], p_key: int) -> int:
    """Return the index of the entry that matches a packet's P_Key at its destination, full members first; NONE."""
    if p_key & ~FULL:
        if p_key | FULL in keys:
            return keys.index(p_key | FULL)
        if p_key & FULL and p_key & ~FULL in keys:
            return keys.index(p_key & ~FULL)
    return NONE


def may_use(keys: list[int], p_key: int) -> bool:
    """Return whether a port with these keys may send with this key: a full member also as limited, not the reverse."""
    return bool(p_key & ~FULL) and (p_key in keys or p_key | FULL in keys)


def allows_inbound(plane: Plane, slot: int, p_key: int) -> bool:
    """Return whether a switch port lets a packet with this P_Key in from the cable."""
    info = plane.port_info[slot]
    if p_key == ANY or info is None or not info[CHECKS] & (RAW_IN if p_key == RAW else P_KEYS_IN):
        return True
    return p_key != RAW and may_use(plane.keys(slot), p_key)


def allows_outbound(plane: Plane, slot: int, p_key: int) -> bool:
    """Return whether a switch port lets a packet with this P_Key out into the cable."""
    info = plane.port_info[slot]
    if p_key == ANY or info is None or not info[CHECKS] & (RAW_OUT if p_key == RAW else P_KEYS_OUT):
        return True
    return p_key != RAW and matching_key(plane.keys(slot), p_key) != NONE


def accepts(plane: Plane, slot: int, p_key: int) -> bool:
    """Return whether the destination port accepts the P_Key."""
    return p_key < 0 or matching_key(plane.keys(slot), p_key) != NONE


# -- one hop ----------------------------------------------------------------------------------------------------------


def next_hop(
    plane: Plane, at: int, *, dlid: int, sl: int, p_key: int, size_bytes: int, smp: bool = False, sends: bool = False
) -> Hop:
    """Return the next hop of a packet that entered by `at`, or, if it `sends`, starts there; see the module."""
    node = plane.node_of[at]
    is_switch = plane.is_switch[node]
    if is_switch and not sends and not allows_inbound(plane, at, p_key):
        return Hop(at, 0, Reason.INBOUND)
    if plane.has_lid(at, dlid):
        end = plane.own_slot(at)
        return Hop(end, 0, Reason.ARRIVED if accepts(plane, end, p_key) else Reason.P_KEY)
    if not is_switch:
        if not sends:
            return Hop(at, 0, Reason.NOT_MINE)
        return leave(plane, at, at, sl=sl, size_bytes=size_bytes, smp=smp)
    out = look_up(plane, node, dlid)
    if out in (NONE, at):
        return Hop(at, 0, Reason.NO_ROUTE if out == NONE else Reason.TURNS_BACK)
    if not allows_outbound(plane, out, p_key):
        return Hop(out, 0, Reason.OUTBOUND)
    return leave(plane, at, out, sl=sl, size_bytes=size_bytes, smp=smp)


def look_up(plane: Plane, node: int, dlid: int) -> int:
    """Return the output slot of a switch for a LID; NONE if it has no route."""
    info, lft = plane.switch_info[node], plane.tables.lft
    port = NO_ROUTE
    if 0 < dlid <= (info[6] << 8 | info[7]) and dlid < min(lft.shape[1], Lid.FIRST_MULTICAST):
        port = lft.item(plane.row[node], dlid)
    return plane.first[node] + port if 0 < port <= plane.last_port[node] else NONE


def leave(plane: Plane, at: int, out: int, *, sl: int, size_bytes: int, smp: bool = False) -> Hop:
    """Return the hop by output port `out` of a packet that entered by `at`, or starts there."""
    node, info = plane.node_of[out], plane.port_info[out]
    if info is None or plane.peer(out) == NONE or not (smp or info[STATE] & 0x0F == ACTIVE):
        return Hop(out, 0, Reason.INACTIVE)
    if smp:
        return Hop(out, MANAGEMENT_VL, Reason.GOES_ON)
    first = plane.first[node]
    row = plane.first_pair[node] + out - first
    if plane.is_switch[node]:
        row += (at - first) * plane.ports_with_0[node]
    vl = plane.tables.sl2vl.item(row, sl)
    if vl >= DATA_VLS[info[VLS] >> 4]:
        return Hop(at, 0, Reason.NO_RELAY) if plane.is_switch[node] else Hop(out, 0, Reason.NO_VL)
    if size_bytes > (128 << (info[MTU] >> 4)) + HEADERS_BYTES:
        return Hop(out, 0, Reason.TOO_LONG)
    return Hop(out, vl, Reason.GOES_ON)


def walk(plane: Plane, slot: int, *, dlid: int, sl: int, p_key: int, size_bytes: int, smp: bool = False) -> Path:
    """Follow a packet from a port to its DLID, or as far as it gets."""
    at, sends = plane.own_slot(slot), True
    out: list[int] = []
    vls: list[int] = []
    while True:
        hop = next_hop(plane, at, dlid=dlid, sl=sl, p_key=p_key, size_bytes=size_bytes, smp=smp, sends=sends)
        if hop.reason or hop.slot in out:
            return Path(tuple(out), tuple(vls), hop.slot, hop.reason or Reason.LOOP)
        out.append(hop.slot)
        vls.append(hop.vl)
        at, sends = plane.cable[hop.slot], False


# -- with all copies --------------------------------------------------------------------------------------------------


def is_multicast(lid: int) -> bool:
    return Lid.FIRST_MULTICAST <= lid < Lid.PERMISSIVE


def follow(
    plane: Plane,
    slot: int,
    *,
    dlid: int,
    sl: int,
    p_key: int,
    size_bytes: int,
    crosses: Callable[[int, int, int], bool] = lambda out, far, vl: True,
) -> Iterator[tuple[int, int, Hop]]:
    """Follow a packet, and every copy of a multicast packet; yield input port, its VL, and the hop from there.

    A packet enters a port at most once, so routing loops end. `crosses` returns whether it survives a cable.
    """
    pending = [(plane.own_slot(slot), 0, True)]  # port, VL, whether it starts there
    entered: set[int] = set()
    to_group = is_multicast(dlid)
    while pending:
        at, vl, sends = pending.pop()
        hops: Iterable[Hop]
        if to_group:
            hops = _hops_of_group(plane, at, dlid=dlid, sl=sl, p_key=p_key, size_bytes=size_bytes, sends=sends)
        else:
            hops = (next_hop(plane, at, dlid=dlid, sl=sl, p_key=p_key, size_bytes=size_bytes, sends=sends),)
        for hop in hops:
            far = NONE if hop.reason else plane.cable[hop.slot]
            if far in entered:
                yield at, vl, Hop(hop.slot, 0, Reason.LOOP)
                continue
            yield at, vl, hop
            if far != NONE and crosses(hop.slot, far, hop.vl):
                entered.add(far)
                pending.append((far, hop.vl, False))


def _hops_of_group(
    plane: Plane, at: int, *, dlid: int, sl: int, p_key: int, size_bytes: int, sends: bool
) -> Iterator[Hop]:
    """Return the arrival at an adapter, or the hops by all ports that a switch has for the group."""
    node, group = plane.node_of[at], dlid - Lid.FIRST_MULTICAST
    if not plane.is_switch[node]:
        if sends:
            yield leave(plane, at, at, sl=sl, size_bytes=size_bytes)
        else:
            yield Hop(at, 0, Reason.ARRIVED if accepts(plane, at, p_key) else Reason.P_KEY)
        return
    if not sends and not allows_inbound(plane, at, p_key):
        yield Hop(at, 0, Reason.INBOUND)
        return
    mft, first = plane.tables.mft, plane.first[node]
    masks = mft[plane.row[node], group].tolist() if group < mft.shape[1] else ()
    if not any(masks):
        yield Hop(at, 0, Reason.NO_ROUTE)
        return
    for port in range(min(plane.last_port[node], NO_ROUTE - 1) + 1):
        out = first + port
        if out == at or not masks[port // PORTS_PER_MASK] >> port % PORTS_PER_MASK & 1:
            continue
        if out == first:
            yield Hop(out, 0, Reason.ARRIVED if accepts(plane, out, p_key) else Reason.P_KEY)
        elif allows_outbound(plane, out, p_key):
            yield leave(plane, at, out, sl=sl, size_bytes=size_bytes)
        else:
            yield Hop(out, 0, Reason.OUTBOUND)
