"""Whole packets: headers in order, payload, padding and checksums.

    Packet((LRH(dlid=4, slid=1), BTH(opcode=Opcode.RC_RDMA_WRITE_ONLY, dest_qp=7, psn=1), RETH(...)), b"payload")
    Packet((Ethernet(...), IPv4(...), UDP(), BTH(...), AETH(...)))          RoCE v2
    Packet((Ethernet(...), GRH(...), BTH(...)), b"payload")                RoCE v1

`pack` fills in the derived fields: lengths, next headers, padding, checksums, ICRC and VCRC. `parse` reads a frame and
raises Malformed if it is not a packet; the ICRC is checked separately, since some captures have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from weft.errors import ConfigError
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES, Route, icrc_bytes, route_of, vcrc_bytes
from weft.wire.fields import Buffer
from weft.wire.format import Format, Malformed
from weft.wire.headers import BTH, GRH, GRH_NEXT_HEADER, LNH, LRH, RWH, Opcode
from weft.wire.opcodes import EXTENDED_HEADERS, Headers
from weft.wire.roce import PROTOCOL_UDP, UDP, UDP_PORT, Ethernet, EtherType, IPv4, IPv6, Vlan, udp_checksum

F = TypeVar("F", bound=Format)


class Link(Enum):
    """The first header of a packet."""

    INFINIBAND = "LRH"
    ETHERNET = "Ethernet"


@dataclass(frozen=True, slots=True)
class Packet:
    """The headers from the link to the transport, and the payload."""

    headers: tuple[Format, ...]
    payload: bytes = b""

    def __getitem__(self, kind: type[F]) -> F:
        """Return the header of a kind."""
        for header in self.headers:
            if isinstance(header, kind):
                return header
        raise KeyError(f"this packet has no {kind.__name__}, only {_names(self.kinds)}")

    def __contains__(self, kind: type[Format]) -> bool:
        return kind in self.kinds

    @property
    def kinds(self) -> Headers:
        return tuple(type(header) for header in self.headers)

    def pack(self) -> bytes:
        """Return the bytes on the wire."""
        route, first = _check(self.kinds, self.headers)
        pad = -len(self.payload) % 4
        body_bytes = len(self.payload) + pad + ICRC_BYTES
        parts: list[bytes] = []
        for header, following in zip(reversed(self.headers), (None, *reversed(self.headers)), strict=False):
            filled = _complete(header, following, body_bytes, pad)
            parts.append(filled.raw)
            body_bytes += filled.size
        packet = b"".join(reversed(parts)) + self.payload + bytes(pad)
        packet += icrc_bytes(route, packet[first:])
        if LRH in self.kinds:
            return packet + vcrc_bytes(packet)
        return _with_udp_checksum(packet, self[IPv6], first + IPv6.size) if IPv6 in self.kinds else packet

    @classmethod
    def parse(cls, frame: Buffer, link: Link) -> Packet:
        """Parse a frame, which may end with padding as short Ethernet frames do."""
        return parse(bytes(frame), link)[0]


def icrc_is_right(frame: Buffer, link: Link) -> bool:
    """Return whether a frame with a BTH ends with the right ICRC."""
    frame = bytes(frame)
    packet, end = parse(frame, link)
    bth_at = packet.kinds.index(BTH) if BTH in packet.kinds else 0
    route = route_of(packet.kinds[: bth_at + 1])
    if route is None:
        return False
    first = sum(header.size for header in packet.headers if isinstance(header, Ethernet | Vlan))
    return icrc_bytes(route, frame[first : end - ICRC_BYTES]) == frame[end - ICRC_BYTES : end]


def parse(frame: bytes, link: Link) -> tuple[Packet, int]:
    """Return the packet, and the end of its ICRC."""
    headers, at, end = _parse_ethernet(frame) if link is Link.ETHERNET else _parse_local(frame)
    if not headers or isinstance(headers[-1], RWH) or (isinstance(headers[-1], GRH) and not _to_bth(headers)):
        return Packet(tuple(headers), frame[at:end]), end
    (bth, *extended), at = read_transport(frame, at)
    assert isinstance(bth, BTH)
    headers += (bth, *extended)
    last = end - ICRC_BYTES - bth.pad_cnt
    if last < at:
        raise Malformed(f"{_names(tuple(map(type, headers)))} take {at} bytes, padding and ICRC start at {last}")
    return Packet(tuple(headers), frame[at:last]), end


def read_transport(frame: Buffer, at: int) -> tuple[list[Format], int]:
    """Return the BTH at a position with the extended headers of its opcode, and their end."""
    bth = BTH.unpack(frame, at)
    if bth.opcode not in EXTENDED_HEADERS:
        raise Malformed(f"opcode {bth.opcode:#04x} is not in the standard")
    headers: list[Format] = [bth]
    at += BTH.size
    for kind in EXTENDED_HEADERS[bth.opcode]:
        headers.append(kind.unpack(frame, at))
        at += kind.size
    return headers, at


def bth_at(packet: bytes) -> int:
    """Return the position of the BTH in an InfiniBand packet, 0 in a raw one; -1 if the packet is incomplete."""
    if len(packet) < LRH.size or LRH.lver.get(packet) or 4 * LRH.pkt_len.get(packet) + VCRC_BYTES != len(packet):
        return -1
    following = LRH.lnh.get(packet)
    if following in (LNH.RAW, LNH.IPV6):
        return 0
    at = LRH.size if following == LNH.BTH else LRH.size + GRH.size
    return at if at + BTH.size + ICRC_BYTES + VCRC_BYTES <= len(packet) else -1


def _to_bth(headers: list[Format]) -> bool:
    grh = headers[-1]
    by_link = not isinstance(headers[0], LRH) or headers[0].lnh == LNH.GRH
    return by_link and isinstance(grh, GRH) and grh.nxt_hdr == GRH_NEXT_HEADER


def _parse_local(frame: bytes) -> tuple[list[Format], int, int]:
    lrh = LRH.unpack(frame)
    end = 4 * lrh.pkt_len
    if end + VCRC_BYTES > len(frame):
        raise Malformed(f"LRH.pkt_len is {end} bytes before the VCRC, the frame has {len(frame)} with it")
    if lrh.lnh == LNH.BTH:
        return [lrh], LRH.size, end
    following: type[Format] = RWH if lrh.lnh == LNH.RAW else GRH
    return [lrh, following.unpack(frame[:end], LRH.size)], LRH.size + following.size, end


def _parse_ethernet(frame: bytes) -> tuple[list[Format], int, int]:
    ethernet = Ethernet.unpack(frame)
    headers: list[Format] = [ethernet]
    at, ether_type = Ethernet.size, ethernet.ether_type
    if ether_type == EtherType.VLAN:
        vlan = Vlan.unpack(frame, at)
        headers.append(vlan)
        at, ether_type = at + Vlan.size, vlan.ether_type
    if ether_type == EtherType.ROCE_V1:
        grh = GRH.unpack(frame, at)
        headers.append(grh)
        end = at + GRH.size + grh.pay_len
    elif ether_type in (EtherType.IPV4, EtherType.IPV6):
        ip = _parse_ip(frame, at, ether_type)
        headers.append(ip)
        udp = UDP.unpack(frame, at + ip.size)
        headers.append(udp)
        if udp.destination_port != UDP_PORT:
            raise Malformed(f"UDP port {udp.destination_port} is not RoCE's {UDP_PORT}")
        end = at + ip.size + udp.length
    else:
        raise Malformed(f"Ethertype {ether_type:#06x} carries no RoCE")
    if end > len(frame):
        raise Malformed(
            f"{type(headers[-1]).__name__} has the packet end at {end}, beyond the {len(frame)} bytes of the frame"
        )
    return headers, sum(header.size for header in headers), end


def _parse_ip(frame: bytes, at: int, ether_type: int) -> IPv4 | IPv6:
    if ether_type == EtherType.IPV6:
        six = IPv6.unpack(frame, at)
        if six.next_header != PROTOCOL_UDP:
            raise Malformed(f"IPv6 carries protocol {six.next_header}, not UDP")
        return six
    four = IPv4.unpack(frame, at)
    if four.protocol != PROTOCOL_UDP or four.ihl != 5 or four.more_fragments or four.fragment_offset:
        raise Malformed("IPv4 carries something other than one whole UDP datagram without options")
    return four


def _check(kinds: Headers, headers: tuple[Format, ...]) -> tuple[Route, int]:
    """Return the route, and the start of the ICRC's coverage; raise ConfigError if the headers do not fit together."""
    if BTH not in kinds:
        raise ConfigError(
            f"a packet of {_names(kinds)} has no BTH; weft writes only packets of InfiniBand's transports"
        )
    at = kinds.index(BTH)
    route, opcode = route_of(kinds[: at + 1]), headers[at].raw[0]
    ethernet = kinds[0] is Ethernet
    if route is None or ethernet == (LRH in kinds):
        routes = "; ".join(route.value for route in Route)
        raise ConfigError(f"{_names(kinds[: at + 1])} cannot precede a BTH: write {routes}, RoCE's after Ethernet")
    expected = EXTENDED_HEADERS.get(opcode)
    if kinds[at + 1 :] != expected:
        name = Opcode(opcode).name if expected is not None else f"opcode {opcode:#04x}, which is not in the standard,"
        raise ConfigError(f"{name} is followed by {_names(expected or ())}, not {_names(kinds[at + 1 :])}")
    return route, sum(kind.size for kind in kinds if kind in (Ethernet, Vlan))


def _complete(header: Format, following: Format | None, body_bytes: int, pad: int) -> Format:
    """Return a header with its derived fields; `body_bytes` follow it, including the ICRC."""
    match header:
        case BTH():
            return header.replace(pad_cnt=pad)
        case LRH():
            lnh = LNH.GRH if isinstance(following, GRH) else LNH.BTH
            return header.replace(lnh=lnh, pkt_len=(LRH.size + body_bytes) // 4)
        case GRH():
            return header.replace(pay_len=body_bytes, nxt_hdr=GRH_NEXT_HEADER)
        case UDP():
            return header.replace(length=UDP.size + body_bytes, checksum=0)
        case IPv4():
            return header.replace(total_length=IPv4.size + body_bytes).with_checksum()
        case IPv6():
            return header.replace(payload_length=body_bytes)
        case Ethernet() | Vlan():
            return header.replace(ether_type=_ETHER_TYPES[type(following)])
    return header


def _with_udp_checksum(packet: bytes, ip: IPv6, udp_at: int) -> bytes:
    """Set the UDP checksum, which covers the ICRC; the ICRC in turn counts it as ones."""
    whole = bytearray(packet)
    UDP.checksum.set(whole, udp_checksum(ip, packet[udp_at:]), udp_at)
    return bytes(whole)


_ETHER_TYPES: dict[type[Format] | type[None], EtherType] = {
    Vlan: EtherType.VLAN,
    GRH: EtherType.ROCE_V1,
    IPv4: EtherType.IPV4,
    IPv6: EtherType.IPV6,
}


def _names(kinds: Headers) -> str:
    return ", ".join(kind.__name__ for kind in kinds) or "nothing"
