"""Datagrams of RoCE v2 that a test writes into a socket."""

from __future__ import annotations

import ipaddress
import socket

from tests.patience import PATIENCE_S

from weft.verbs.hca.packets import encode
from weft.verbs.hca.segment import Segment
from weft.wire.format import Format
from weft.wire.packet import Packet
from weft.wire.roce import UDP, UDP_PORT, Ethernet, IPv4

_OUTER_BYTES = Ethernet.size + IPv4.size + UDP.size


class Stranger:
    """A plain IPv4 socket at RoCE's port."""

    def __init__(self, address: str) -> None:
        self.address = ipaddress.IPv4Address(address)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, UDP_PORT))
        self.socket.settimeout(PATIENCE_S)

    def datagram(self, to: str, headers: tuple[Format, ...], payload: bytes = b"", identification: int = 0) -> bytes:
        """Return a packet without its outer headers, up to that of UDP."""
        ip = IPv4(source=int(self.address), destination=int(ipaddress.IPv4Address(to)), identification=identification)
        return Packet((Ethernet(), ip, UDP(source_port=UDP_PORT), *headers), payload).pack()[_OUTER_BYTES:]

    def datagrams(self, to: str, segment: Segment, mtu_bytes: int) -> list[bytes]:
        """Return the datagrams of a segment, one for each packet."""
        return [self.datagram(to, headers, payload) for headers, payload in encode(segment, mtu_bytes)]

    def send(self, to: str, datagram: bytes) -> None:
        self.socket.sendto(datagram, (to, UDP_PORT))

    def close(self) -> None:
        self.socket.close()
