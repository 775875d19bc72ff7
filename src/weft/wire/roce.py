"""Headers that carry InfiniBand's transport over Ethernet: RoCE v1 directly, RoCE v2 over IP and UDP."""

from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, reserved
from weft.wire.format import Format

UDP_PORT = 4791
PROTOCOL_UDP = 17
FRAMING_BYTES = 8 + 4 + 12  # preamble, checksum and the gap between frames: on the wire, but in no capture


class EtherType(IntEnum):
    IPV4 = 0x0800
    VLAN = 0x8100
    IPV6 = 0x86DD
    ROCE_V1 = 0x8915


def internet_checksum(data: bytes) -> int:
    """Return the RFC 1071 checksum: the complement of a ones' complement sum, which is a remainder modulo 2^16 - 1."""
    whole = int.from_bytes(data if len(data) % 2 == 0 else data + b"\0", "big")
    rest = whole % 0xFFFF
    return 0xFFFF - rest if rest or not whole else 0


def local_mac(address: int) -> int:
    """Return a locally administered MAC for an IPv4 address, which is its low 4 bytes."""
    return 0x0200_0000_0000 | address & 0xFFFF_FFFF


class Ethernet(Format, size=14):
    destination = bits(48)
    source = bits(48)
    ether_type = bits(16, of=EtherType)


class Vlan(Format, size=4):
    """The IEEE 802.1Q tag; `pcp` is the priority of flow control."""

    pcp = bits(3)
    dei = bits(1)
    vid = bits(12)
    ether_type = bits(16, of=EtherType)


class IPv4(Format, size=20):
    """The IPv4 header without options. The ICRC covers its identification: UDP sockets guarantee 0 with DF."""

    version = bits(4, default=4)
    ihl = bits(4, default=5)
    dscp = bits(6)
    ecn = bits(2)
    total_length = bits(16)
    identification = bits(16)
    _ = reserved(1)
    dont_fragment = bits(1, default=1)
    more_fragments = bits(1)
    fragment_offset = bits(13)
    ttl = bits(8, default=64)
    protocol = bits(8, default=PROTOCOL_UDP)
    header_checksum = bits(16)
    source = bits(32)
    destination = bits(32)

    def with_checksum(self) -> IPv4:
        """Return the same header with the right checksum."""
        return self.replace(header_checksum=internet_checksum(self.replace(header_checksum=0).raw))


class IPv6(Format, size=40):
    version = bits(4, default=6)
    dscp = bits(6)
    ecn = bits(2)
    flow_label = bits(20)
    payload_length = bits(16)
    next_header = bits(8, default=PROTOCOL_UDP)
    hop_limit = bits(8, default=64)
    source = bits(128)
    destination = bits(128)


class UDP(Format, size=8):
    """The UDP header; its source port spreads flows. Over IPv4 RoCE has checksum 0, none; IPv6 forbids it."""

    source_port = bits(16, default=0xC000)
    destination_port = bits(16, default=UDP_PORT)
    length = bits(16)
    checksum = bits(16)


def udp_checksum(ip: IPv6, datagram: bytes) -> int:
    """Return the checksum of a datagram over IPv6 whose checksum field is 0 (RFC 8200, "Upper-Layer Checksums")."""
    addresses = ip.raw[8:]
    length_and_protocol = len(datagram).to_bytes(4, "big") + PROTOCOL_UDP.to_bytes(4, "big")
    return internet_checksum(addresses + length_and_protocol + datagram) or 0xFFFF
