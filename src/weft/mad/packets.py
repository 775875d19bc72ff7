"""The way of a data packet: real bytes from the port of an adapter, hop by hop, to where they arrive or are dropped.

    fate = carry(devices, slot, packet)       LRH, [GRH,] BTH, ... ICRC, VCRC, as weft.wire.packet makes them
    fate.delivered                            slots of the ports that it reached
    fate.dropped                              where copies of it ended otherwise, and why

Where it goes, and what stops it, is `fabric.forwarding`'s; here is who counts it, and the bad cables:

    PortXmitDiscards            INACTIVE, TOO_LONG, NO_VL, LOOP      PortRcvConstraintErrors, trap 259    INBOUND
    PortRcvSwitchRelayErrors    NO_ROUTE, TURNS_BACK, NO_RELAY       PortXmitConstraintErrors, trap 259   OUTBOUND
                                HOP_LIMIT, NO_SUBNET, NO_NEIGHBOR    (at routers, see `routers`)
    SymbolErrors, PortRcvErrors BIT_ERROR, the likelier the longer it is  PKeyViolations, trap 257             P_KEY

The VL and the VCRC belong to the link: what the sender wrote there is not looked at, and `as_received` has what the
last link wrote. ICRC, the receiver's queue pair, its Q_Key (`bad_q_key`) and its own P_Key (`bad_p_key`) are the
receiver's to check; so is the copy that an adapter gives itself of what it sends to a group. Not modelled: credits and
time (`sim.packet` has both), so nothing waits and no packet is dropped for want of room; adaptive routing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from weft.fabric.counters import Counter
from weft.fabric.forwarding import Reason, allows_inbound, allows_outbound, follow, is_multicast, matching_key
from weft.mad import transit
from weft.mad.devices import MAD_WORDS, NONE, Devices, MadPath
from weft.mad.routers import is_routed, next_subnet, readdressed
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES, vcrc_bytes
from weft.wire.fields import Bits
from weft.wire.headers import BTH, DETH, GRH, LNH, LRH, Opcode
from weft.wire.mad import QP1_Q_KEY
from weft.wire.notice import BadKeyDetails, BadSwitchPKeyDetails, NoticeType, Trap
from weft.wire.opcodes import EXTENDED_HEADERS
from weft.wire.packet import bth_at
from weft.wire.port_info import PortInfo

_MOST_VIOLATIONS = 0xFFFF
_LIDS_P_KEY_SL, _QP1, _QP2, _GIDS = 0x0F, 0x10, 0x20, 0xC0  # DataValid of trap 259


@dataclass(frozen=True, slots=True)
class Drop:
    """The port where a copy of a packet was dropped, and the reason."""

    slot: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of sending a packet. A unicast packet is either delivered to one port or dropped once.

    A packet that waits in a router for a path is dropped as NOT_RESOLVED here, and sent on later by `carry_on`.
    """

    delivered: tuple[int, ...]
    vls: tuple[int, ...]  # the last link of each delivered packet
    dropped: tuple[Drop, ...]
    packet: bytes  # with the headers that routers changed


def carry(devices: Devices, slot: int, packet: bytes) -> DeliveryResult:
    """Carry a packet that leaves an adapter port, or port 0 of a switch; see the module."""
    bth = bth_at(packet)
    wrong = Reason.MALFORMED if bth == NONE else None
    if bth > 0 and not BTH.dest_qp.get(packet, bth):
        wrong = Reason.MANAGEMENT
    journey = _Journey(devices, packet, bth)
    at = devices.own_slot(slot)
    if wrong is not None or not devices.is_active(at):
        journey.drop(at, wrong or Reason.INACTIVE)
    else:
        journey.go(at)
    return journey.result()


def carry_on(devices: Devices, slot: int, packet: bytes) -> DeliveryResult:
    """Carry a packet on that waited in a router, which it had entered by this port."""
    journey = _Journey(devices, packet, bth_at(packet))
    journey.enter_router(slot)
    return journey.result()


def as_received(packet: bytes, vl: int) -> bytes:
    """Return a packet as the last link transmitted it."""
    if packet[0] >> 4 == vl:
        return packet
    changed = bytes((vl << 4 | packet[0] & 0x0F,)) + packet[1:-VCRC_BYTES]
    return changed + vcrc_bytes(changed)


# -- P_Keys -----------------------------------------------------------------------------------------------------------


def index_at_end(devices: Devices, path: MadPath, p_key: int) -> int:
    """Return the P_Key index that matches at the end of a path; NONE if none does, or a switch drops the packet."""
    for out in path.out:
        for end, lets in ((out, allows_outbound), (devices.cable[out], allows_inbound)):
            if devices.is_switch[devices.node_of[end]] and not lets(devices, end, p_key):
                return NONE
    return matching_key(devices.keys(devices.own_slot(path.end)), p_key)


def refuse_gmp(devices: Devices, slot: int, mad: bytes | bytearray, dlid: int, p_key: int) -> None:
    """Send a GMP that `index_at_end` rejects as far as it gets, so that it is counted there."""
    headers = (
        LRH.pack(slid=devices.lid(slot), dlid=dlid, pkt_len=MAD_WORDS),
        BTH.pack(opcode=Opcode.UD_SEND_ONLY, dest_qp=1, p_key=p_key),
        DETH.pack(q_key=QP1_Q_KEY, src_qp=1),
    )
    carry(devices, slot, b"".join(headers) + bytes(mad) + bytes(ICRC_BYTES + VCRC_BYTES))  # they are not checked


def bad_p_key(devices: Devices, slot: int, packet: bytes, count: int = 1) -> None:
    """Count a packet with a wrong P_Key at a port or a queue pair there, and send trap 257."""
    if _is_news(devices, devices.own_slot(slot), Trap.BAD_P_KEY, PortInfo.p_key_violations, count):
        bth = bth_at(packet)
        details = BadKeyDetails.pack(key=BTH.p_key.get(packet, bth), **_ends(packet, bth))
        devices.traps.raise_trap(devices, slot, Trap.BAD_P_KEY, NoticeType.SECURITY, details)


def bad_q_key(devices: Devices, slot: int, packet: bytes) -> None:
    """Count a datagram with a wrong Q_Key at a queue pair, and send trap 258."""
    bth = bth_at(packet)
    if (deth := _deth(packet, bth)) == NONE:
        return  # only datagrams have a Q_Key
    if _is_news(devices, devices.own_slot(slot), Trap.BAD_Q_KEY, PortInfo.q_key_violations):
        details = BadKeyDetails.pack(key=DETH.q_key.get(packet, deth), **_ends(packet, bth))
        devices.traps.raise_trap(devices, slot, Trap.BAD_Q_KEY, NoticeType.SECURITY, details)


def _bad_p_key_at_switch(devices: Devices, slot: int, packet: bytes, bth: int, count: int) -> None:
    """Count a packet that a switch dropped by its P_Key, and send trap 259."""
    if not _is_news(devices, slot, Trap.BAD_SWITCH_P_KEY, PortInfo.p_key_violations, count):
        return
    deth, is_global = _deth(packet, bth), LRH.lnh.get(packet) == LNH.GRH
    valid = _LIDS_P_KEY_SL | _QP2 | (_QP1 if deth != NONE else 0) | (_GIDS if is_global else 0)
    ends = _ends(packet, bth) | {"sw_lid_addr": devices.lid(slot), "port_no": devices.number(slot)}
    details = BadSwitchPKeyDetails.pack(data_valid=valid, p_key=BTH.p_key.get(packet, bth), **ends)
    devices.traps.raise_trap(devices, slot, Trap.BAD_SWITCH_P_KEY, NoticeType.SECURITY, details)


def _is_news(devices: Devices, slot: int, number: Trap, violations: Bits, count: int = 1) -> bool:
    """Count packets with a wrong key. A node that has told of one and is not heard yet sends no second trap.

    A flood of packets is no flood of traps, as in Linux's drivers for adapters that have their agent in software.
    """
    info, sender = devices.info(slot), devices.own_slot(slot)
    violations.set(info, min(violations.get(info) + count, _MOST_VIOLATIONS))
    return not any(key[0] == sender and key[1] == number for key in devices.traps.pending)


def _ends(packet: bytes, bth: int) -> dict[str, Any]:
    """Return the fields of a wrong-key trap. The source queue pair is known for datagrams only."""
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
    """Return the offset of the DETH; NONE if there is none."""
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
        self.devices, self.packet = devices, packet
        self.delivered: list[int] = []
        self.vls: list[int] = []
        self.dropped: list[Drop] = []
        if bth == NONE:
            return
        self.words, self.p_key = LRH.pkt_len.get(packet), BTH.p_key.get(packet, bth) if bth else NONE
        self._address(packet)

    def _address(self, packet: bytes) -> None:
        """Take the addresses from the LRH."""
        self.packet, self.sl, self.dlid = packet, LRH.sl.get(packet), LRH.dlid.get(packet)
        self.sent, self.received = _counts(self.words, is_multicast(self.dlid))

    def result(self) -> DeliveryResult:
        return DeliveryResult(tuple(self.delivered), tuple(self.vls), tuple(self.dropped), self.packet)

    def go(self, at: int) -> None:
        """Carry the packet and all its copies from the port where it starts."""
        ways = follow(
            self.devices,
            at,
            dlid=self.dlid,
            sl=self.sl,
            p_key=self.p_key,
            size_bytes=4 * self.words,
            crosses=self._cross,
        )
        for _, vl, hop in ways:
            if hop.reason is Reason.ARRIVED and is_routed(self.devices, hop.slot, self.packet):
                self.enter_router(hop.slot)
            elif hop.reason is Reason.ARRIVED:
                self.delivered.append(hop.slot)
                self.vls.append(vl)
            elif hop.reason:
                self.drop(*hop[::2])

    def enter_router(self, at: int) -> None:
        """Carry the packet on from a router that it entered by this port."""
        devices, packet = self.devices, self.packet
        dgid, hop_limit = GRH.dgid.get(packet, LRH.size), GRH.hop_lmt.get(packet, LRH.size)
        hop = next_subnet(devices, at, dgid=dgid, hop_limit=hop_limit, p_key=self.p_key)
        if hop.reason is Reason.NOT_RESOLVED:
            devices.routers.hold(hop.slot, dgid, at, packet)
        if hop.reason:
            self.drop(hop.slot, hop.reason)
            return
        self._address(readdressed(devices, hop, packet))
        self.go(hop.slot)

    def _cross(self, slot: int, far: int, vl: int) -> bool:
        """Carry the packet over a cable; return False if the cable corrupts it. The far end counts it in both cases."""
        devices = self.devices
        if devices.tap is not None:
            devices.tap.cross_packet(slot, as_received(self.packet, vl))
        devices.fabric.counters[slot] += self.sent
        devices.details[slot, "port_xmit_data_sl", self.sl] += self.words
        devices.fabric.counters[far] += self.received
        devices.details[far, "port_rcv_data_sl", self.sl] += self.words
        if slot in devices.erring and not transit.survives(devices, slot, 8 * len(self.packet)):
            self.drop(far, Reason.BIT_ERROR)
            return False
        return True

    def drop(self, slot: int, reason: Reason) -> None:
        self.dropped.append(Drop(slot, reason))
        count_drops(self.devices, slot, reason, self.packet)


def count_drops(devices: Devices, slot: int, reason: Reason, packet: bytes, count: int = 1) -> None:
    """Count `count` packets that were dropped at a port like this one; send a trap for a wrong key."""
    transit.count_drop(devices, slot, reason, count)
    if reason is Reason.P_KEY:
        bad_p_key(devices, slot, packet, count)
    elif reason in (Reason.INBOUND, Reason.OUTBOUND) and (bth := bth_at(packet)) > 0:  # a raw one has no key
        _bad_p_key_at_switch(devices, slot, packet, bth, count)


@lru_cache(maxsize=4096)  # a packet has at most 2,047 words
def _counts(words: int, multicast: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the increments of the counters where a packet leaves, and where it enters."""
    sent, received = np.zeros(len(Counter), np.int64), np.zeros(len(Counter), np.int64)
    sent[Counter.PORT_XMIT_DATA_WORDS], received[Counter.PORT_RCV_DATA_WORDS] = words, words
    sent[Counter.PORT_XMIT_PKTS] = received[Counter.PORT_RCV_PKTS] = 1
    sent[Counter.PORT_MULTICAST_XMIT_PKTS if multicast else Counter.PORT_UNICAST_XMIT_PKTS] = 1
    received[Counter.PORT_MULTICAST_RCV_PKTS if multicast else Counter.PORT_UNICAST_RCV_PKTS] = 1
    return sent, received
