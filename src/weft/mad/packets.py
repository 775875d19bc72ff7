"""The way of a data packet: real bytes from the port of an adapter, hop by hop, to where they arrive or are dropped.

    fate = carry(devices, slot, packet)       LRH, [GRH,] BTH, ... ICRC, VCRC, as weft.wire.packet makes them
    fate.delivered                            slots of the ports that it reached
    fate.dropped                              where copies of it ended otherwise, and why

What is applied, and what counts it (InfiniBand Architecture volume 1, "Link Layer", "Switches", "Partitioning"):

    leaves by a port    it is up and Active; the packet is no longer than NeighborMTU      PortXmitDiscards
                        the SL maps to a VL that is in use: not 15, within OperationalVLs  PortXmitDiscards, in a
                                                                                           switch relay errors
    crosses a cable     a bad one hurts it, the likelier the longer it is                  SymbolErrors, PortRcvErrors
    enters a switch     with inbound enforcement: the P_Key is one of the sender's         PortRcvConstraintErrors, 259
    is relayed          a unicast DLID by the forwarding table, a group by the multicast   PortRcvSwitchRelayErrors
                        one, never back to where it came from
    leaves a switch     with outbound enforcement: the P_Key is one that the far end takes PortXmitConstraintErrors, 259
    reaches a port      its P_Key matches an entry of the port's table                     PKeyViolations, 257

Two P_Keys match if they are of the same partition, which is not 0, and not both limited. Switches hold the keys of the
adapter at their port, so the same rule on the way in would stop all that limited members send; there the question is
whether the sender may use this key: a full one only if it is a full member (the egress check of Omni-Path, OPAv1
9.11.7 as Linux's hfi1 cites it). Raw packets have no P_Key: the two bits FilterRaw stop them.

The VL and the VCRC belong to the link: what the sender wrote there is not looked at, and `as_received` has what the
last link wrote. ICRC, the receiver's queue pair, its Q_Key (`bad_q_key`) and its own P_Key (`bad_p_key`) are the
receiver's to check; so is the copy that an adapter gives itself of what it sends to a group. Not modelled: credits and
time (`sim.packet` has both), so nothing waits and no packet is dropped for want of room; adaptive routing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from weft.fabric.counters import Counter
from weft.fabric.tables import NO_ROUTE
from weft.ids import Lid, PKey
from weft.mad import transit
from weft.mad.devices import MAD_WORDS, NONE, Devices, Way
from weft.mad.faults import MAD_BITS
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES, vcrc_bytes
from weft.wire.fields import Bits
from weft.wire.headers import BTH, DETH, GRH, LNH, LRH, Opcode
from weft.wire.mad import QP1_Q_KEY
from weft.wire.notice import BadKeyDetails, BadSwitchPKeyDetails, Trap
from weft.wire.opcodes import EXTENDED_HEADERS
from weft.wire.port_info import PortInfo, PortState

FULL = PKey.FULL_MEMBER
_HEADERS_BYTES = 124  # that a packet may have beside its MTU, without the VCRC
_DATA_VLS = (0, 1, 2, 4, 8, 15)  # by the code of OperationalVLs
_CHECKS, _VLS = PortInfo.partition_enforcement_inbound.bit // 8, PortInfo.operational_vls.bit // 8
_MTU, _STATE = PortInfo.neighbor_mtu.bit // 8, PortInfo.port_state.bit // 8
_P_KEYS_IN, _P_KEYS_OUT, _RAW_IN, _RAW_OUT = 8, 4, 2, 1  # the lower half of a byte
_MOST_VIOLATIONS = 0xFFFF
_PORTS_PER_MASK = 16  # of the multicast forwarding table
_LIDS_P_KEY_SL, _QP1, _QP2, _GIDS = 0x0F, 0x10, 0x20, 0xC0  # DataValid of trap 259


class Reason(Enum):
    """Why a packet ended."""

    MALFORMED = "it is no packet: its length, its version or its headers are wrong"
    MANAGEMENT = "it is for QP 0: SMPs go by Subnet.send"
    INACTIVE = "the port is not Active"
    TOO_LONG = "it is longer than the MTU of the link"
    NO_VL = "its SL maps to no VL of the port"
    NO_RELAY = "the switch maps its SL to no VL of the port by which it would leave"
    HURT = "a bad cable hurt it"
    NO_ROUTE = "the switch has no port for its DLID, or only the one that it came by"
    LOOP = "it came to the same port again"
    NOT_MINE = "it came to an adapter that does not have its DLID"
    INBOUND = "the switch does not let this P_Key in from here"
    OUTBOUND = "the switch does not let this P_Key out to there"
    P_KEY = "no P_Key of the port matches"


_COUNTED = {  # column, and name among the details; the rest is counted where it is found, or by nobody
    Reason.MALFORMED: (Counter.PORT_XMIT_DISCARDS, ""),
    Reason.MANAGEMENT: (Counter.PORT_XMIT_DISCARDS, ""),
    Reason.INACTIVE: (Counter.PORT_XMIT_DISCARDS, "port_inactive_discards"),
    Reason.TOO_LONG: (Counter.PORT_XMIT_DISCARDS, "port_neighbor_mtu_discards"),
    Reason.NO_VL: (Counter.PORT_XMIT_DISCARDS, ""),
    Reason.NO_RELAY: (Counter.PORT_RCV_SWITCH_RELAY_ERRORS, "port_vl_mapping_errors"),
    Reason.LOOP: (Counter.PORT_XMIT_DISCARDS, "port_sw_lifetime_limit_discards"),
    Reason.INBOUND: (Counter.PORT_RCV_CONSTRAINT_ERRORS, ""),
    Reason.OUTBOUND: (Counter.PORT_XMIT_CONSTRAINT_ERRORS, ""),
}


@dataclass(frozen=True, slots=True)
class Drop:
    """Where a copy of a packet ended, and why."""

    slot: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a packet. A unicast one is either delivered to one port or dropped once."""

    delivered: tuple[int, ...]
    vls: tuple[int, ...]  # of the last link, for each that was delivered
    dropped: tuple[Drop, ...]


def carry(devices: Devices, slot: int, packet: bytes) -> Fate:
    """One packet leaves the port of an adapter, or port 0 of a switch; see the module."""
    bth = _bth(packet)
    wrong = Reason.MALFORMED if bth == NONE else None
    if bth > 0 and not BTH.dest_qp.get(packet, bth):
        wrong = Reason.MANAGEMENT
    journey = _Journey(devices, packet, bth)
    at = devices.own_slot(slot)
    if wrong is not None or not devices.is_active(at):
        journey.drop(at, wrong or Reason.INACTIVE)
    elif devices.is_switch[devices.node_of[at]]:
        journey.relay(at, 0)
    elif not journey.multicast and transit.has_lid(devices, at, journey.dlid):
        journey.arrive(at, 0)  # to itself: it does not leave the adapter
    else:
        journey.leave(at, devices.first_pair[devices.node_of[at]] + devices.number(at))
    while journey.entering:
        journey.enter(*journey.entering.pop())
    return Fate(tuple(journey.delivered), tuple(journey.vls), tuple(journey.dropped))


def as_received(packet: bytes, vl: int) -> bytes:
    """A packet as the last link wrote it."""
    if packet[0] >> 4 == vl:
        return packet
    changed = bytes((vl << 4 | packet[0] & 0x0F,)) + packet[1:-VCRC_BYTES]
    return changed + vcrc_bytes(changed)


def _bth(packet: bytes) -> int:
    """Where the BTH starts, 0 in a raw packet; NONE if this is no packet."""
    if len(packet) < LRH.size or LRH.lver.get(packet) or 4 * LRH.pkt_len.get(packet) + VCRC_BYTES != len(packet):
        return NONE
    following = LRH.lnh.get(packet)
    if following in (LNH.RAW, LNH.IPV6):
        return 0
    at = LRH.size if following == LNH.BTH else LRH.size + GRH.size
    return at if at + BTH.size + ICRC_BYTES + VCRC_BYTES <= len(packet) else NONE


# -- P_Keys -----------------------------------------------------------------------------------------------------------


def matching(keys: list[int], p_key: int) -> int:
    """The index of the entry that a packet's P_Key matches at its destination, a full one if there is; NONE."""
    if p_key & ~FULL:
        if p_key | FULL in keys:
            return keys.index(p_key | FULL)
        if p_key & FULL and p_key & ~FULL in keys:
            return keys.index(p_key & ~FULL)
    return NONE


def may_use(keys: list[int], p_key: int) -> bool:
    """May the port with these keys send with this one? A full member may send as a limited one, not the reverse."""
    return bool(p_key & ~FULL) and (p_key in keys or p_key | FULL in keys)


def lets_in(devices: Devices, slot: int, p_key: int) -> bool:
    """Does the port let a packet with this P_Key in from the cable? NONE for a raw one. Only switches ask."""
    asks = devices.info(slot)[_CHECKS] & (_P_KEYS_IN if p_key != NONE else _RAW_IN)
    if not asks or not devices.is_switch[devices.node_of[slot]]:
        return True
    return p_key != NONE and may_use(_keys(devices, slot), p_key)


def lets_out(devices: Devices, slot: int, p_key: int) -> bool:
    """And out into the cable?"""
    asks = devices.info(slot)[_CHECKS] & (_P_KEYS_OUT if p_key != NONE else _RAW_OUT)
    if not asks or not devices.is_switch[devices.node_of[slot]]:
        return True
    return p_key != NONE and matching(_keys(devices, slot), p_key) != NONE


def _keys(devices: Devices, slot: int) -> list[int]:
    keys: list[int] = devices.tables.pkey[slot].tolist()
    return keys


def index_at_end(devices: Devices, way: Way, p_key: int) -> int:
    """The index that a P_Key matches where a way ends; NONE if it does not, or a switch on the way stops it."""
    cable = devices.cable
    if all(lets_out(devices, out, p_key) and lets_in(devices, cable[out], p_key) for out in way.out):
        return matching(_keys(devices, devices.own_slot(way.end)), p_key)
    return NONE


def refuse_gmp(devices: Devices, slot: int, mad: bytes | bytearray, dlid: int, p_key: int) -> None:
    """A MAD of QP 1 to which `index_at_end` says no goes as far as it comes, and is counted there."""
    headers = (
        LRH.pack(slid=devices.lid(slot), dlid=dlid, pkt_len=MAD_WORDS),
        BTH.pack(opcode=Opcode.UD_SEND_ONLY, dest_qp=1, p_key=p_key),
        DETH.pack(q_key=QP1_Q_KEY, src_qp=1),
    )
    carry(devices, slot, b"".join(headers) + bytes(mad) + bytes(ICRC_BYTES + VCRC_BYTES))  # nobody will check them


def bad_p_key(devices: Devices, slot: int, packet: bytes) -> None:
    """A packet with a P_Key that does not fit came to a port, or to a queue pair there: counted, and trap 257."""
    if _only_counted(devices, slot, Trap.BAD_P_KEY, PortInfo.p_key_violations):
        return
    bth = _bth(packet)
    details = BadKeyDetails(key=BTH.p_key.get(packet, bth), **_ends(packet, bth))
    devices.traps.bad_key(devices, slot, details)


def bad_q_key(devices: Devices, slot: int, packet: bytes) -> None:
    """A datagram with a wrong Q_Key came to a queue pair: counted, and trap 258."""
    if _only_counted(devices, slot, Trap.BAD_Q_KEY, PortInfo.q_key_violations):
        return
    bth = _bth(packet)
    details = BadKeyDetails(key=DETH.q_key.get(packet, _deth(packet, bth)), **_ends(packet, bth))
    devices.traps.bad_key(devices, slot, details, q_key=True)


def _bad_p_key_at_switch(devices: Devices, slot: int, packet: bytes, bth: int) -> None:
    if _only_counted(devices, slot, Trap.BAD_SWITCH_P_KEY, PortInfo.p_key_violations):
        return
    deth, is_global = _deth(packet, bth), LRH.lnh.get(packet) == LNH.GRH
    valid = _LIDS_P_KEY_SL | _QP2 | (_QP1 if deth != NONE else 0) | (_GIDS if is_global else 0)
    details = BadSwitchPKeyDetails(data_valid=valid, p_key=BTH.p_key.get(packet, bth), **_ends(packet, bth))
    devices.traps.bad_switch_p_key(devices, slot, details)


def _only_counted(devices: Devices, slot: int, number: Trap, violations: Bits) -> bool:
    """Count a packet with a wrong key, if the node has told of one and is not heard yet: then it sends no second trap.

    A flood of packets is no flood of traps, as in Linux's drivers for adapters that have their agent in software.
    """
    sender = devices.own_slot(slot)
    if not any(key[0] == sender and key[1] == number for key in devices.traps.pending):
        return False
    info = devices.info(slot)
    violations.set(info, min(violations.get(info) + 1, _MOST_VIOLATIONS))
    return True


def _ends(packet: bytes, bth: int) -> dict[str, Any]:
    """What traps of a wrong key tell of a packet. Its source's queue pair is known of datagrams only."""
    deth = _deth(packet, bth)
    ends = {
        "lid_addr1": LRH.slid.get(packet),
        "lid_addr2": LRH.dlid.get(packet),
        "sl": LRH.sl.get(packet),
        "qp1": DETH.src_qp.get(packet, deth) if deth != NONE else 0,
        "qp2": BTH.dest_qp.get(packet, bth),
    }
    if LRH.lnh.get(packet) == LNH.GRH:
        ends |= {"gid_addr1": GRH.sgid.get(packet, LRH.size), "gid_addr2": GRH.dgid.get(packet, LRH.size)}
    return ends


def _deth(packet: bytes, bth: int) -> int:
    """Where the DETH starts; NONE if there is none."""
    at = bth + BTH.size
    for kind in EXTENDED_HEADERS.get(BTH.opcode.get(packet, bth), ()):
        if kind is DETH:
            return at if at + DETH.size <= len(packet) else NONE
        at += kind.size
    return NONE


# -- on the way -------------------------------------------------------------------------------------------------------


class _Journey:
    """A packet on its way; of one to a group many copies."""

    def __init__(self, devices: Devices, packet: bytes, bth: int) -> None:
        self.devices, self.packet, self.bth = devices, packet, bth
        self.entering: list[tuple[int, int]] = []  # slots that copies are about to enter, and their VLs
        self.entered: set[int] = set()
        self.delivered: list[int] = []
        self.vls: list[int] = []
        self.dropped: list[Drop] = []
        if bth == NONE:
            return
        self.sl, self.dlid, self.words = LRH.sl.get(packet), LRH.dlid.get(packet), LRH.pkt_len.get(packet)
        self.p_key = BTH.p_key.get(packet, bth) if bth else NONE
        self.multicast = Lid.FIRST_MULTICAST <= self.dlid < Lid.PERMISSIVE
        self.sent, self.received = _counts(self.words, self.multicast)

    def leave(self, slot: int, row: int, came_by: int = NONE) -> None:
        """By a port, with the VL that this row of the SL to VL tables says; a switch says by which port it came in."""
        devices = self.devices
        info, far = devices.info(slot), devices.peer[slot]
        vl = devices.tables.sl2vl.item(row, self.sl)
        if far == NONE or info[_STATE] & 0x0F != PortState.ACTIVE:
            self.drop(slot, Reason.INACTIVE)
        elif vl >= _DATA_VLS[info[_VLS] >> 4]:
            self.drop(*((slot, Reason.NO_VL) if came_by == NONE else (came_by, Reason.NO_RELAY)))
        elif 4 * self.words > (128 << (info[_MTU] >> 4)) + _HEADERS_BYTES:
            self.drop(slot, Reason.TOO_LONG)
        elif far in self.entered:
            self.drop(slot, Reason.LOOP)
        else:
            self._cross(slot, far, vl)

    def _cross(self, slot: int, far: int, vl: int) -> None:
        devices = self.devices
        devices.fabric.counters[slot] += self.sent
        devices.details[slot, "port_xmit_data_sl", self.sl] += self.words
        if slot in devices.loss:
            part = 1 - (1 - devices.loss[slot]) ** (8 * len(self.packet) / MAD_BITS)
            if not transit.survives(devices, slot, part):
                self.drop(far, Reason.HURT)
                return
        devices.fabric.counters[far] += self.received
        devices.details[far, "port_rcv_data_sl", self.sl] += self.words
        self.entered.add(far)
        self.entering.append((far, vl))

    def enter(self, slot: int, vl: int) -> None:
        """From the cable into a switch, or an adapter."""
        devices = self.devices
        if not devices.is_switch[devices.node_of[slot]]:
            if self.multicast or transit.has_lid(devices, slot, self.dlid):
                self.arrive(slot, vl)
            else:
                self.drop(slot, Reason.NOT_MINE)
        elif lets_in(devices, slot, self.p_key):
            self.relay(slot, vl)
        else:
            self.drop(slot, Reason.INBOUND)

    def relay(self, at: int, vl: int) -> None:
        """Through a switch that it entered at this slot."""
        devices = self.devices
        node = devices.node_of[at]
        first, row = devices.first[node], devices.first_pair[node] + devices.number(at) * devices.ports_with_0[node]
        if not self.multicast and transit.has_lid(devices, at, self.dlid):
            self.arrive(first, vl)
            return
        ports = self._group(node, at) if self.multicast else [transit.looked_up(devices, node, at, self.dlid)]
        for out in ports:
            if out == NONE:
                self.drop(at, Reason.NO_ROUTE)
            elif out == first:
                self.arrive(first, vl)
            elif lets_out(devices, out, self.p_key):
                self.leave(out, row + out - first, at)
            else:
                self.drop(out, Reason.OUTBOUND)

    def _group(self, node: int, at: int) -> list[int]:
        """Slots by which a switch passes a group's packet on; NONE alone, and counted, if it knows no such group."""
        devices, group = self.devices, self.dlid - Lid.FIRST_MULTICAST
        masks = devices.tables.mft[devices.row[node], group].tolist() if group < devices.tables.mft.shape[1] else ()
        if not any(masks):
            devices.fabric.counters[at, Counter.PORT_RCV_SWITCH_RELAY_ERRORS] += 1
            devices.details[at, "port_dlid_mapping_errors", 0] += 1
            return [NONE]
        first = devices.first[node]
        last = min(devices.last_port[node], NO_ROUTE - 1)
        ports = (port for port in range(last + 1) if masks[port // _PORTS_PER_MASK] >> port % _PORTS_PER_MASK & 1)
        return [first + port for port in ports if first + port != at]

    def arrive(self, slot: int, vl: int) -> None:
        """At a port that it is for: of an adapter, or port 0 of a switch."""
        if self.p_key != NONE and matching(_keys(self.devices, slot), self.p_key) == NONE:
            self.drop(slot, Reason.P_KEY)
            return
        self.delivered.append(slot)
        self.vls.append(vl)

    def drop(self, slot: int, reason: Reason) -> None:
        devices = self.devices
        self.dropped.append(Drop(slot, reason))
        if reason in _COUNTED:
            column, detail = _COUNTED[reason]
            devices.fabric.counters[slot, column] += 1
            if detail:
                devices.details[slot, detail, 0] += 1
        if reason is Reason.P_KEY:
            bad_p_key(devices, slot, self.packet)
        elif reason in (Reason.INBOUND, Reason.OUTBOUND) and self.p_key != NONE:
            _bad_p_key_at_switch(devices, slot, self.packet, self.bth)


@lru_cache(maxsize=4096)  # a packet has at most 2,047 words
def _counts(words: int, multicast: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What a packet adds to the counters where it leaves, and where it enters."""
    sent, received = np.zeros(len(Counter), np.int64), np.zeros(len(Counter), np.int64)
    sent[Counter.PORT_XMIT_DATA_WORDS], received[Counter.PORT_RCV_DATA_WORDS] = words, words
    sent[Counter.PORT_XMIT_PKTS] = received[Counter.PORT_RCV_PKTS] = 1
    sent[Counter.PORT_MULTICAST_XMIT_PKTS if multicast else Counter.PORT_UNICAST_XMIT_PKTS] = 1
    received[Counter.PORT_MULTICAST_RCV_PKTS if multicast else Counter.PORT_UNICAST_RCV_PKTS] = 1
    return sent, received
