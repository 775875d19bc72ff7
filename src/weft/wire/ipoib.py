"""IP over InfiniBand: the encapsulation, hardware addresses, ARP and multicast groups of RFC 4391 and RFC 4392.

    LRH GRH? BTH DETH | Ipoib | IPv4 or ARP          a datagram to the queue pair of the interface

A hardware address has 20 bytes: the number of the queue pair, and the GID of its port.
"""

from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, reserved
from weft.wire.format import Format
from weft.wire.roce import EtherType

ETHER_TYPE_ARP = 0x0806
HARDWARE_INFINIBAND = 32  # of ARP
_ADDRESS_BYTES, _IPV4_BYTES = 20, 4
_GROUP = 0xFF12_401B_0000 << 80  # transient, link-local; the IPv4 signature
_GROUP_BITS = 0x0FFF_FFFF
BROADCAST = 0xFFFF_FFFF


class ArpOperation(IntEnum):
    REQUEST = 1
    REPLY = 2


class Ipoib(Format, size=4):
    """The encapsulation header of RFC 4391, section 6."""

    ether_type = bits(16)
    _ = reserved(16)


class IpoibAddress(Format, size=20):
    """A hardware address. `flags` are those of connected mode, 0 for datagrams alone."""

    flags = bits(8)
    qpn = bits(24)
    gid = bits(128)


class IpoibArp(Format, size=56):
    """An ARP packet for IPv4 over InfiniBand."""

    hardware_type = bits(16, default=HARDWARE_INFINIBAND)
    protocol_type = bits(16, default=EtherType.IPV4)
    hardware_bytes = bits(8, default=_ADDRESS_BYTES)
    protocol_bytes = bits(8, default=_IPV4_BYTES)
    operation = bits(16, of=ArpOperation, default=ArpOperation.REQUEST)
    sender_flags = bits(8)
    sender_qpn = bits(24)
    sender_gid = bits(128)
    sender_ip = bits(32)
    target_flags = bits(8)
    target_qpn = bits(24)
    target_gid = bits(128)
    target_ip = bits(32)


def group_of(p_key: int, address: int = BROADCAST) -> int:
    """Return the multicast GID of an IPv4 group or of the broadcast address, in a partition."""
    low = BROADCAST if address == BROADCAST else address & _GROUP_BITS
    return _GROUP | (p_key | 0x8000) << 80 | low
