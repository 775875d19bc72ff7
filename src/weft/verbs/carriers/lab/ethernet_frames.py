"""Pack and read the frames of RoCE v2 in a lab, without the FCS: Ethernet, IPv4, UDP, BTH, ..., ICRC."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.hca.carrier import Arrival
from weft.verbs.hca.packets import decode
from weft.wire.crc import ICRC_BYTES, Route, icrc_bytes
from weft.wire.format import Format, Malformed
from weft.wire.headers import BTH, GRH
from weft.wire.packet import read_transport
from weft.wire.roce import PROTOCOL_UDP, UDP, UDP_PORT, Ethernet, EtherType, IPv4, local_mac

_IP_AT = Ethernet.size
ROCE_BTH_AT = Ethernet.size + IPv4.size + UDP.size
_ADDRESSES = struct.Struct(">II")
_PAD_SHIFT = 4  # pad count in the second byte of a BTH
_IPV4_GID = 0xFFFF  # a GID that is an IPv4 address, without its low 32 bits


def frame_of(gids: tuple[int, int], headers: Iterable[Format], payload: bytes, traffic_class: int, ttl: int) -> bytes:
    """Return the frame of a packet between two ports, `gids` of the destination and the source."""
    to, own = (gid & 0xFFFF_FFFF for gid in gids)
    pad = -len(payload) % 4
    transport = b"".join((*(header.raw for header in headers), payload, bytes(pad)))
    if pad:
        transport = transport[:1] + bytes((transport[1] | pad << _PAD_SHIFT,)) + transport[2:]
    udp_bytes = UDP.size + len(transport) + ICRC_BYTES
    ip = IPv4(
        total_length=IPv4.size + udp_bytes,
        dscp=traffic_class >> 2,
        ecn=traffic_class & 3,
        ttl=ttl,
        source=own,
        destination=to,
    )
    packet = ip.with_checksum().raw + UDP.pack(length=udp_bytes) + transport
    link = Ethernet.pack(destination=local_mac(to), source=local_mac(own), ether_type=EtherType.IPV4)
    return link + packet + icrc_bytes(Route.ROCE_V2_IPV4, packet)


def is_ipv4(gid: int) -> bool:
    """Return whether a GID is an IPv4 address."""
    return gid >> 32 == _IPV4_GID


def is_roce(frame: bytes) -> bool:
    """Return whether a frame is RoCE v2 over IPv4: UDP at its port, with at least a BTH and an ICRC."""
    if len(frame) < ROCE_BTH_AT + BTH.size + ICRC_BYTES or Ethernet.ether_type.get(frame) != EtherType.IPV4:
        return False
    is_udp = IPv4.protocol.get(frame, _IP_AT) == PROTOCOL_UDP
    return is_udp and UDP.destination_port.get(frame, _IP_AT + IPv4.size) == UDP_PORT


def arrival_of(frame: bytes) -> Arrival:
    """Return the packet of a frame; raise Malformed if it is not RoCE v2 or its ICRC is wrong."""
    if not is_roce(frame):
        raise Malformed("it is not RoCE v2 over IPv4")
    end = min(_IP_AT + IPv4.total_length.get(frame, _IP_AT), len(frame)) - ICRC_BYTES
    if icrc_bytes(Route.ROCE_V2_IPV4, frame[_IP_AT:end]) != frame[end : end + ICRC_BYTES]:
        raise Malformed("the ICRC is wrong")
    headers, at = read_transport(frame, ROCE_BTH_AT)
    segment = decode(headers, frame[at : end - BTH.pad_cnt.get(frame, ROCE_BTH_AT)])
    source, own = _ADDRESSES.unpack_from(frame, _IP_AT + 12)
    gids = _IPV4_GID << 32 | own, _IPV4_GID << 32 | source
    return Arrival(
        segment=segment,
        source=AddressVector(0, gids[::-1]),
        grh=bytes(GRH.size - IPv4.size) + frame[_IP_AT : _IP_AT + IPv4.size],  # as adapters write it for a datagram
        slid=0,
        sl=0,
        group=None,
        packet=frame,
    )
