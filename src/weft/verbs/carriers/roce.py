"""RoCE v2 over a UDP socket: adapters of other processes and machines, and whatever else speaks it.

The ICRC covers the IP header. Over IPv4 its identification counts too, which a program cannot see: an unconnected
socket that never fragments sends 0, so that the ICRC of what leaves is right, and of what comes from another socket
like this one it can be checked (measured: Linux, IP_PMTUDISC_DO). Adapters in hardware put a number there: their
packets are taken as they are if `trusts` says so; IPv6 has no such field.
"""

from __future__ import annotations

import errno
import ipaddress
import select
import socket
import time
from typing import BinaryIO

from weft.errors import ConfigError
from weft.verbs.transport.adapter import Arrival
from weft.verbs.transport.packets import decode, encode
from weft.verbs.transport.segment import Segment
from weft.wire.fields import Buffer
from weft.wire.format import Malformed
from weft.wire.packet import Link, Packet, icrc_is_right
from weft.wire.pcap import LinkType, PcapWriter
from weft.wire.roce import UDP, UDP_PORT, Ethernet, IPv4, IPv6

_PMTUDISC_DO = 2  # never fragment; IP_MTU_DISCOVER is not in Python's socket module on all systems
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER = 10, 23
_BUFFER_BYTES = 4 << 20
_MOST_BYTES = 9216


class RoceCarrier:
    """Bound to one address of this machine. `capture`: a file that gets all packets as pcap."""

    def __init__(self, address: str, *, capture: BinaryIO | None = None, trusts: bool = False) -> None:
        self._own = ipaddress.ip_address(address)
        self.gid = gid_of(self._own)
        self._trusts = trusts
        self._pcap = PcapWriter(capture, LinkType.ETHERNET) if capture is not None else None
        four = self._own.version == 4
        self._socket = socket.socket(socket.AF_INET if four else socket.AF_INET6, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        if four:
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
        else:
            self._socket.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        try:
            self._socket.bind((address, UDP_PORT))
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"cannot listen at {address}, UDP port {UDP_PORT}: {error.strerror}") from None
        self.refused = 0  # datagrams that were no packets, or whose ICRC was wrong

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        """`to` is (dgid, sgid), both of IP addresses."""
        assert isinstance(to, tuple)
        far = address_of(to[0])
        if far is None or far.version != self._own.version:
            return  # nobody there
        for headers, payload in encode(segment, mtu_bytes):
            frame = Packet((*self._outer(self._own, far), *headers), payload).pack()
            self._note(frame)
            self._put(frame[_outer_bytes(far.version) :], str(far))

    def _put(self, datagram: bytes, to: str) -> None:
        """A full socket is waited for; what the network refuses is lost, as on a wire."""
        while True:
            try:
                self._socket.sendto(datagram, (to, UDP_PORT))
            except BlockingIOError:
                select.select([], [self._socket], [], 0.1)
                continue
            except OSError as error:
                if error.errno not in (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM):
                    raise
            return

    def receive(self) -> list[Arrival]:
        came: list[Arrival] = []
        while True:
            try:
                datagram, source = self._socket.recvfrom(_MOST_BYTES)
            except BlockingIOError:
                return came
            except ConnectionError:
                continue
            arrival = self._take(datagram, source[0], source[1])
            if arrival is not None:
                came.append(arrival)

    def _take(self, datagram: bytes, source: str, source_port: int) -> Arrival | None:
        far = ipaddress.ip_address(source.partition("%")[0])
        frame = self._frame(far, source_port, datagram)
        self._note(frame)
        try:
            if not self._trusts and not icrc_is_right(frame, Link.ETHERNET):
                raise Malformed("the ICRC is wrong")
            packet = Packet.parse(frame, Link.ETHERNET)
            segment = decode(packet.headers[3:], packet.payload)
        except Malformed:
            self.refused += 1
            return None
        return Arrival(segment=segment, source=(gid_of(far), self.gid), grh=_grh(packet))

    def wait(self, seconds: float) -> None:
        select.select([self._socket], [], [], seconds)

    def close(self) -> None:
        self._socket.close()

    # -- headers that the socket makes --------------------------------------------------------------------------------

    def _outer(
        self, source: Address, destination: Address, source_port: int = UDP_PORT
    ) -> tuple[Ethernet, IPv4 | IPv6, UDP]:
        form = IPv4 if source.version == 4 else IPv6
        udp = UDP(source_port=source_port)
        return Ethernet(), form(source=int(source), destination=int(destination)), udp

    def _frame(self, far: Address, source_port: int, datagram: bytes) -> bytes:
        """What came, with the headers that it must have had."""
        ethernet, ip, udp = self._outer(far, self._own, source_port)
        udp = udp.replace(length=UDP.size + len(datagram))
        if isinstance(ip, IPv4):
            ethernet = ethernet.replace(ether_type=0x0800)
            ip = ip.replace(total_length=IPv4.size + UDP.size + len(datagram)).with_checksum()
        else:
            ethernet = ethernet.replace(ether_type=0x86DD)
            ip = ip.replace(payload_length=UDP.size + len(datagram))
        return ethernet.raw + ip.raw + udp.raw + datagram

    def _note(self, frame: Buffer) -> None:
        if self._pcap is not None:
            self._pcap.write(bytes(frame), time_ps=time.time_ns() * 1000)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def gid_of(address: Address) -> int:
    """RoCE v2: an IPv4 address mapped into IPv6, or the IPv6 address itself."""
    return 0xFFFF << 32 | int(address) if address.version == 4 else int(address)


def address_of(gid: int) -> Address | None:
    if gid >> 32 == 0xFFFF:
        return ipaddress.IPv4Address(gid & 0xFFFF_FFFF)
    return ipaddress.IPv6Address(gid) if gid else None


def _outer_bytes(version: int) -> int:
    return Ethernet.size + (IPv4.size if version == 4 else IPv6.size) + UDP.size


def _grh(packet: Packet) -> bytes:
    """What a datagram's buffer begins with: over IPv4 20 bytes of nothing, and the header."""
    ip = packet.headers[1].raw
    return ip.rjust(40, b"\0")
