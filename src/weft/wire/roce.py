"""What carries InfiniBand's transport over Ethernet: RoCE v1 right behind Ethernet, RoCE v2 behind IP and UDP."""

from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, reserved
from weft.wire.format import Format

UDP_PORT = 4791
PROTOCOL_UDP = 17
FRAMING_BYTES = 8 + 4 + 12  # preamble, checksum and the gap between frames: on the wire, and in no capture


class EtherType(IntEnum):
    IPV4 = 0x0800
    VLAN = 0x8100
    IPV6 = 0x86DD
    ROCE_V1 = 0x8915


def internet_checksum(data: bytes) -> int:
    """RFC 1071: the complement of a sum in ones' complement, which is a rest modulo 2^16 - 1."""
    whole = int.from_bytes(data if len(data) % 2 == 0 else data + b"\0", "big")
    rest = whole % 0xFFFF
    return 0xFFFF - rest if rest or not whole else 0


class Ethernet(Format, size=14):
    destination = bits(48)
    source = bits(48)
    ether_type = bits(16, of=EtherType)


class Vlan(Format, size=4):
    """IEEE 802.1Q; `pcp` is the priority that flow control goes by."""

    pcp = bits(3)
    dei = bits(1)
    vid = bits(12)
    ether_type = bits(16, of=EtherType)


class IPv4(Format, size=20):
    """Without options. Its identification is part of the ICRC: 0 with DF is what a UDP socket can promise."""

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
        """The same with the right header checksum."""
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
    """The source port spreads flows over paths. A checksum of 0 is none, which RoCE uses over IPv4; IPv6 forbids it."""

    source_port = bits(16, default=0xC000)
    destination_port = bits(16, default=UDP_PORT)
    length = bits(16)
    checksum = bits(16)


def udp_checksum(ip: IPv6, datagram: bytes) -> int:
    """Of a datagram with a checksum of 0, over IPv6 (RFC 8200, "Upper-Layer Checksums")."""
    addresses = ip.raw[8:]
    length_and_protocol = len(datagram).to_bytes(4, "big") + PROTOCOL_UDP.to_bytes(4, "big")
    return internet_checksum(addresses + length_and_protocol + datagram) or 0xFFFF
