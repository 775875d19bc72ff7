"""The two checksums at the end of a packet (InfiniBand Architecture volume 1, "Data Integrity").

ICRC, 32 bits, is end to end: Ethernet's CRC over all fields that no switch or router may change. Changeable fields
count as ones; a RoCE packet has 8 bytes of ones in place of the LRH (annexes A16 and A17). VCRC, 16 bits, is per link
and covers the whole packet. Both are sent least significant byte first.
"""

from __future__ import annotations

import zlib
from enum import Enum

from weft.wire.fields import Buffer
from weft.wire.format import Format
from weft.wire.headers import BTH, GRH, LRH
from weft.wire.roce import UDP, IPv4, IPv6

ICRC_BYTES, VCRC_BYTES = 4, 2


class Route(Enum):
    """The headers of a packet, which determine the fields that may change in transit. The ICRC starts at the first."""

    LOCAL = "LRH, BTH"
    GLOBAL = "LRH, GRH, BTH"
    ROCE_V1 = "GRH, BTH"
    ROCE_V2_IPV4 = "IPv4, UDP, BTH"
    ROCE_V2_IPV6 = "IPv6, UDP, BTH"


# FECN, BECN and the six reserved bits after them are the byte that the standard once called resv8a.
_BTH = bytearray(BTH.pack(opcode=0, p_key=0))
_BTH[4] = 0xFF
_GRH = GRH.pack(ip_ver=0, nxt_hdr=0, t_class=0xFF, flow_label=0xFFFFF, hop_lmt=0xFF)
_IPV4 = IPv4.pack(version=0, ihl=0, dont_fragment=0, protocol=0, dscp=0x3F, ecn=3, ttl=0xFF, header_checksum=0xFFFF)
_IPV6 = IPv6.pack(version=0, next_header=0, dscp=0x3F, ecn=3, flow_label=0xFFFFF, hop_limit=0xFF)
_UDP = UDP.pack(source_port=0, destination_port=0, checksum=0xFFFF)
MASKS: dict[Route, bytes] = {  # ones for the bits that the ICRC replaces by ones, in the headers up to the BTH
    Route.LOCAL: LRH.pack(lnh=0, vl=0xF) + _BTH,
    Route.GLOBAL: b"\xff" * LRH.size + _GRH + _BTH,
    Route.ROCE_V1: _GRH + _BTH,
    Route.ROCE_V2_IPV4: _IPV4 + _UDP + _BTH,
    Route.ROCE_V2_IPV6: _IPV6 + _UDP + _BTH,
}
_NUMBERS = {route: int.from_bytes(mask, "big") for route, mask in MASKS.items()}
_ONES = zlib.crc32(b"\xff" * LRH.size)
SEEDS: dict[Route, int] = {route: 0 if route in (Route.LOCAL, Route.GLOBAL) else _ONES for route in Route}


def icrc(route: Route, packet: Buffer) -> int:
    """Return the ICRC of a packet from its first header (after Ethernet's) to the end of its padding."""
    covered = len(MASKS[route])
    head = int.from_bytes(packet[:covered], "big") | _NUMBERS[route]
    return zlib.crc32(packet[covered:], zlib.crc32(head.to_bytes(covered, "big"), SEEDS[route]))


def icrc_bytes(route: Route, packet: Buffer) -> bytes:
    """Return the ICRC as it follows the packet."""
    return icrc(route, packet).to_bytes(ICRC_BYTES, "little")


def _crc16_table() -> list[int]:
    """Return the table for x^16 + x^12 + x^3 + x + 1, 0x100B, with the least significant bit first."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xD008 if value & 1 else 0)
        table.append(value)
    return table


CRC16_TABLE = _crc16_table()


def vcrc(packet: Buffer) -> int:
    """Return the VCRC of a packet from its LRH to the end of its ICRC; of a link packet's first 4 bytes, its LPCRC."""
    crc = 0xFFFF
    for byte in packet:
        crc = crc >> 8 ^ CRC16_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF


def vcrc_bytes(packet: Buffer) -> bytes:
    return vcrc(packet).to_bytes(VCRC_BYTES, "little")


def route_of(kinds: tuple[type[Format], ...]) -> Route | None:
    """Return the route of headers up to the BTH; Ethernet's may precede them."""
    names = ", ".join(kind.__name__ for kind in kinds if kind.__name__ not in ("Ethernet", "Vlan"))
    return next((route for route in Route if route.value == names), None)
