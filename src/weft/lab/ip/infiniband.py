"""IPoIB of a lab's port (RFC 4391, datagram mode): ARP in the broadcast group, then datagrams to queue pairs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.errors import SubnetError
from weft.verbs.carriers.lab.carrier import LabCarrier
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.hca.carrier import Arrival
from weft.verbs.hca.segment import Op, Segment, Service
from weft.wire.format import Malformed
from weft.wire.ipoib import ETHER_TYPE_ARP, ArpOperation, Ipoib, IpoibArp, group_of
from weft.wire.roce import EtherType

Q_KEY = 0x0B1B
MTU_BYTES = 2048 - Ipoib.size  # of the broadcast group, less the encapsulation
_GROUP_QP = 0xFF_FFFF
_ARP_AGAIN_S, _ARP_TIMES = 1.0, 3  # as Linux: the group may not be routed to a new member yet
_MOST_WAITING = 16  # packets for an address that ARP has not resolved
_PACKET_BYTES = 4096


@dataclass(slots=True)
class _Neighbor:
    """An address on the subnet. Packets wait until its hardware address is known."""

    qpn: int = 0
    gid: int = 0  # 0: not known yet
    asked_s: float = float("-inf")
    requests: int = 0  # without an answer
    waiting: list[bytes] = field(default_factory=list)


class InfinibandLink:
    """An IPoIB interface. `up` takes IPv4 packets that arrive."""

    def __init__(self, carrier: LabCarrier, address: int, up: Callable[[bytes], object]) -> None:
        self._carrier, self._address, self._up = carrier, address, up
        self._qpn = carrier.numbers.start
        self._psn = 0
        self._gid = int.from_bytes(carrier.facts.gids[0], "big")
        self._p_key = carrier.facts.p_keys[0]
        group = group_of(self._p_key)
        broadcast = carrier.paths.join_existing((group, self._gid))
        if broadcast is None:
            raise SubnetError(
                f"the subnet administrator refuses the IPv4 broadcast group {group:#x}: the partition needs IPoIB "
                "(`ipoib` in partitions.conf), and the port must be Active"
            )
        self._broadcast = broadcast
        self._neighbors: dict[int, _Neighbor] = {}
        self._lock = threading.Lock()  # of the neighbours: packets come from two threads

    # -- out ----------------------------------------------------------------------------------------------------------

    def send(self, packet: bytes, next_hop: int) -> None:
        """Send an IPv4 packet to a neighbour; the first ones wait for ARP."""
        with self._lock:
            neighbor = self._neighbors.setdefault(next_hop, _Neighbor())
            if not neighbor.gid:
                neighbor.waiting = [*neighbor.waiting[1 - _MOST_WAITING :], packet]
        if neighbor.gid:
            self._send_to(neighbor, EtherType.IPV4, packet)
        else:
            self._resolve(next_hop, neighbor)

    def _resolve(self, address: int, neighbor: _Neighbor) -> None:
        """Request the hardware address of a neighbour, at most once a second; after three requests drop its packets."""
        now_s = time.monotonic()
        if now_s - neighbor.asked_s < _ARP_AGAIN_S:
            return
        with self._lock:
            if neighbor.requests == _ARP_TIMES:
                neighbor.requests, neighbor.waiting = 0, []
                return
            neighbor.asked_s, neighbor.requests = now_s, neighbor.requests + 1
        arp = IpoibArp(sender_qpn=self._qpn, sender_gid=self._gid, sender_ip=self._address, target_ip=address)
        self._send(ETHER_TYPE_ARP, arp.raw, self._broadcast, _GROUP_QP)

    def _send_to(self, neighbor: _Neighbor, ether_type: int, data: bytes) -> None:
        path = self._carrier.paths.to((neighbor.gid, self._gid))  # asked again when the port changes
        if path is not None:
            self._send(ether_type, data, path, neighbor.qpn)

    def _send(self, ether_type: int, data: bytes, path: AddressVector, qpn: int) -> None:
        segment = Segment(
            op=Op.SEND,
            service=Service.UD,
            dest_qp=qpn,
            psn=self._psn,
            p_key=self._p_key,
            source_qp=self._qpn,
            q_key=Q_KEY,
            payload=Ipoib.pack(ether_type=ether_type) + data,
        )
        self._psn = self._psn + 1 & 0xFF_FFFF
        self._carrier.send(segment, path, _PACKET_BYTES)

    # -- in -----------------------------------------------------------------------------------------------------------

    def receive(self, seconds: float) -> None:
        """Wait for packets, at most so long, and handle them."""
        self._carrier.wait(seconds)
        for arrival in self._carrier.receive():
            self._take(arrival)
        for address, neighbor in list(self._neighbors.items()):
            if neighbor.waiting:
                self._resolve(address, neighbor)

    def _take(self, arrival: Arrival) -> None:
        segment = arrival.segment
        data = bytes(segment.payload) if isinstance(segment.payload, bytes | memoryview) else b""
        is_for_us = segment.dest_qp in (self._qpn, _GROUP_QP) and segment.q_key == Q_KEY
        if segment.service is not Service.UD or not is_for_us or len(data) < Ipoib.size:
            return
        kind, body = Ipoib.ether_type.get(data), data[Ipoib.size :]
        if kind == EtherType.IPV4:
            self._up(body)
        elif kind == ETHER_TYPE_ARP:
            self._take_arp(body)

    def _take_arp(self, body: bytes) -> None:
        try:
            arp = IpoibArp.unpack(body)
        except Malformed:
            return
        if arp.target_ip != self._address or not arp.sender_gid:
            return
        with self._lock:
            neighbor = self._neighbors.setdefault(arp.sender_ip, _Neighbor())
            neighbor.qpn, neighbor.gid, neighbor.requests = arp.sender_qpn, arp.sender_gid, 0
            waiting, neighbor.waiting = neighbor.waiting, []
        if arp.operation == ArpOperation.REQUEST:
            reply = IpoibArp(
                operation=ArpOperation.REPLY,
                sender_qpn=self._qpn,
                sender_gid=self._gid,
                sender_ip=self._address,
                target_qpn=arp.sender_qpn,
                target_gid=arp.sender_gid,
                target_ip=arp.sender_ip,
            )
            self._send_to(neighbor, ETHER_TYPE_ARP, reply.raw)
        for packet in waiting:
            self._send_to(neighbor, EtherType.IPV4, packet)

    @property
    def is_down(self) -> bool:
        return self._carrier.line.is_down
