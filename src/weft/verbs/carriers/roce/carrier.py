"""Carry RoCE v2 over a UDP socket, to adapters of other processes and machines, in software or hardware.

The ICRC covers the IP header. In IPv4 this includes the identification, which a program cannot see: an unconnected
socket that never fragments sends 0, or the index of a packet in a segmented send. So the ICRC of sent packets is right,
and that of packets from another such socket can be checked (measured on Linux, IP_PMTUDISC_DO and UDP_SEGMENT).
Adapters in hardware set another number: with `trusts` their packets are accepted unchecked. IPv6 has no such field.

`kernels` build, send, receive and check packets; Python does no work per packet, except for captures.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import math
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, BinaryIO

from weft.errors import ConfigError
from weft.verbs.carriers.loopback import kind_of
from weft.verbs.carriers.roce import layout
from weft.verbs.carriers.roce.headers import pack, unpack
from weft.verbs.carriers.roce.interfaces import Address, mtu_of
from weft.verbs.gpudirect.gpu import DeviceBytes
from weft.verbs.hca.carrier import Arrival, Carrier
from weft.verbs.hca.segment import Segment, Service
from weft.verbs.shm import memory, native
from weft.wire.format import Malformed
from weft.wire.headers import BTH, RETH, CNPPadding, ImmDt, Opcode
from weft.wire.pcap import LinkType, PcapWriter
from weft.wire.roce import UDP, UDP_PORT, Ethernet, EtherType, IPv4, IPv6, udp_checksum

_PMTUDISC_DO = 2  # never fragment; Python's socket module lacks these on some systems
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER = 10, 23
_IP_RECVTOS, _IPV6_RECVTCLASS = 13, 66
_SOL_UDP, _UDP_GRO = 17, 104
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_MTUS = (4096, 2048, 1024, 512, 256)
_OVERHEAD_BYTES = sum(header.size for header in (IPv6, UDP, BTH, RETH, ImmDt)) + layout.ICRC_BYTES
_SOCKET_BYTES = 16 << 20
_WINDOW_MAX = 4 << 20
_ALL = 1 << 30
_RUN = struct.Struct("6q")  # layout.Run
_COPIED_BYTES = 4096  # payloads up to this are copied; longer ones are valid until the next `receive`
NOTICE_S = 50e-6  # between two CNPs to one queue pair
_LOST = frozenset(
    (
        errno.ECONNREFUSED,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.EPERM,
        errno.EACCES,
        errno.ENOBUFS,
        errno.EMSGSIZE,
        errno.EINVAL,
        errno.EBADF,
    )
)
_NO_OFFLOAD = (errno.EIO, errno.EINVAL, errno.EOPNOTSUPP, errno.EMSGSIZE)

_SOURCES_MAX = 4096  # cached addresses


class _Destination:
    """A destination address, for the system call and for the ICRC."""

    def __init__(self, own: Address, far: Address) -> None:
        self.far = far
        family = (socket.AF_INET if far.version == 4 else socket.AF_INET6).to_bytes(2, "little")
        port = UDP_PORT.to_bytes(2, "big")
        scope = _scope(own) if far.is_link_local else 0
        name = family + port + (
            far.packed + bytes(8) if far.version == 4 else bytes(4) + far.packed + scope.to_bytes(4, "little")
        )  # fmt: skip
        self.name = ctypes.create_string_buffer(name, len(name))
        outer = layout.outer_of(own.packed, far.packed, UDP_PORT, UDP_PORT)
        self.outer = ctypes.create_string_buffer(outer, len(outer))


class RoceCarrier(Carrier):
    """A carrier at one address of this machine. `capture`: a file for all packets as pcap."""

    _send_train: Callable[[int], int]  # takes the address of a layout.Sending
    _receive_burst: Callable[[int], int]  # takes the address of a layout.Receiving

    def __init__(self, address: str, *, capture: BinaryIO | None = None, trusts: bool = False) -> None:
        self._own = ipaddress.ip_address(address)
        self.gid = gid_of(self._own)
        self._pcap = PcapWriter(capture, LinkType.ETHERNET) if capture is not None else None
        self._socket = _open_socket(self._own)
        self._file = self._socket.fileno()
        held = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)  # including headers
        self.window_bytes = min(_WINDOW_MAX, held // 4)  # in flight to a queue pair with a buffer of the same size
        self.mtu_bytes = _mtu(self._own)
        self.taken_s, self.taker = -math.inf, 0  # time and thread of the last `receive`
        self.counters: Counter[str] = Counter()
        self._most = layout.SEGMENTS_MAX
        self._destinations: dict[int, _Destination | None] = {}
        self._peers: dict[int, tuple[int, int]] = {}  # [own queue pair] -> GID and number of its peer
        self._noticed_s: dict[int, float] = {}
        self._sources: dict[bytes, tuple[int, int]] = {}
        self._out = layout.Sending()
        self._in = layout.Receiving(self._own.packed, UDP_PORT, trusts=trusts)
        self._out_at, self._in_at = ctypes.addressof(self._out), ctypes.addressof(self._in)
        self._heads_out, self._heads_in = _bytes_of(self._out.heads), _bytes_of(self._in.heads)
        self._bulk, self._runs = _bytes_of(self._in.bulk), _bytes_of(self._in.runs)
        self._compile()

    def _compile(self) -> None:
        """Take the kernels of the library, or compile them before peers wait for responses."""
        if native.linked:
            self._send_train, self._receive_burst = native.linked["send_train"], native.linked["receive_burst"]
            return
        from weft.verbs.carriers.roce import interrupts  # programs in C need neither this nor numba

        with interrupts.heard():
            from weft.verbs.carriers.roce.kernels import incoming, outgoing

            self._send_train, self._receive_burst = outgoing.send_train, incoming.receive_burst
            self._send_train(self._out_at)  # sends and receives nothing: `calls_max` is 0
        with interrupts.heard():
            self._receive_burst(self._in_at)

    @property
    def refused(self) -> int:
        """The number of received datagrams that were no packets or had a wrong ICRC."""
        return self.counters["refused"]

    def close(self) -> None:
        self._file = -1  # the descriptor may be reused
        self._socket.close()

    def wait(self, seconds: float) -> None:
        self._poll(select.POLLIN, seconds)

    def is_idle(self) -> bool:
        return False

    def join(self, address: int, own_gid: int) -> int | None:
        return None  # the socket joins no group

    def _poll(self, events: int, seconds: float) -> None:
        poller = select.poll()
        poller.register(self._socket, events)
        poller.poll(seconds * 1e3)

    # -- out ----------------------------------------------------------------------------------------------------------

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        """Send a segment; `to` is (dgid, sgid), both of IP addresses."""
        assert isinstance(to, tuple)
        if (destination := self._to(to[0])) is None:
            return  # not an address of this IP version
        if segment.source_qp:
            self._peers[segment.source_qp] = to[0], segment.dest_qp
        many = segment.count > 1
        self._set_head(0, pack(segment, is_last=not many))
        if many:
            self._set_head(1, pack(segment, is_first=False, is_last=False))
            self._set_head(2, pack(segment, is_first=False))
        assert not isinstance(segment.payload, DeviceBytes)
        self._send(destination, segment.payload, mtu_bytes, segment.count, segment.psn)

    def _to(self, dgid: int) -> _Destination | None:
        if dgid not in self._destinations:
            far = address_of(dgid)
            usable = far is not None and far.version == self._own.version and not far.is_unspecified
            self._destinations[dgid] = _Destination(self._own, far) if far is not None and usable else None
        return self._destinations[dgid]

    def _set_head(self, place: int, head: bytes) -> None:
        at = place * layout.HEAD_BYTES
        self._heads_out[at : at + len(head)] = head
        self._out.head_bytes[place] = len(head)

    def _send(self, to: _Destination, payload: bytes | memoryview, mtu_bytes: int, count: int, psn: int) -> None:
        """Send packets with the headers that are set."""
        out = self._out
        out.message[layout.NAME], out.message[layout.NAME_BYTES] = ctypes.addressof(to.name), len(to.name)
        out.outer, out.outer_bytes = ctypes.addressof(to.outer), len(to.outer)
        out.address, out.size = memory.address_of(payload), len(payload)
        out.mtu = mtu_bytes if count > 1 else max(len(payload), 1)
        out.file, out.first, out.packets, out.psn = self._file, 0, count, psn
        out.calls_max = _ALL if self._pcap is None else 1
        begun = 0
        while begun < count:
            out.most = self._most
            error = self._send_train(self._out_at)
            if out.first > begun and self._pcap is not None:
                self._note_sent(to.far)
            begun = out.first
            if error and not self._can_go_on(error):
                self.counters["lost"] += count - begun
                return

    def _can_go_on(self, error: int) -> bool:
        """Handle an error of a send: wait for a full socket; count packets that the network refuses as lost."""
        if error in (errno.EAGAIN, errno.EINTR):
            self._poll(select.POLLOUT, 0.1)
            return True
        if error in _NO_OFFLOAD and self._most > 1:
            self._most = 1  # no segmentation offload: send packets one by one
            return True
        if error not in _LOST:
            raise OSError(error, f"{errno.errorcode.get(error, error)} when sending from {self._own}")
        return False

    # -- in -----------------------------------------------------------------------------------------------------------

    def receive(self) -> list[Arrival]:
        """Return the arrivals since the last call, as far as the buffers reach."""
        self.taken_s, self.taker = time.monotonic(), threading.get_ident()
        box = self._in
        box.file, box.calls_max = self._file, _ALL if self._pcap is None else 1
        count = self._receive_burst(self._in_at)
        if box.refused:
            self.counters["refused"] += box.refused
        if self._pcap is not None and box.calls:
            self._note_received()
        came: list[Arrival] = []
        for index, run in enumerate(_RUN.iter_unpack(self._runs[: count * _RUN.size])) if count else ():
            arrival = self._take(index, *run)
            if arrival is not None:
                came.append(arrival)
        return came

    def _take(self, index: int, start: int, size: int, count: int, source: int, tos: int, ended: int) -> Arrival | None:
        head = self._head(index, 0)
        if head[0] == Opcode.CNP:
            self.counters["congestion_notices"] += 1
            return None
        data: bytes | memoryview = self._bulk[start : start + size]
        if size <= _COPIED_BYTES:
            data = bytes(data)
        try:
            segment = unpack(head, data)
        except Malformed:
            self.counters["refused"] += 1
            return None
        segment.count = count
        if ended:
            last = unpack(self._head(index, 1), b"")
            segment.last, segment.solicited = True, last.solicited
            segment.immediate, segment.invalidate = last.immediate, last.invalidate
            segment.ack_request |= last.ack_request
        ends = self._ends(bytes(self._in.names[source]))
        if tos & 3 == layout.CONGESTED:
            self._notify(segment.dest_qp, ends[0])
        if segment.service != Service.UD:
            return Arrival(segment=segment, source=ends)
        grh = self._grh(ends[0], tos, len(head) + size)
        return Arrival(segment=segment, source=ends, grh=grh, sl=kind_of(grh))

    def _head(self, run: int, place: int) -> bytes:
        """Return the headers of the first (0) or last (1) packet of a run."""
        at = (2 * run + place) * layout.HEAD_BYTES
        return bytes(self._heads_in[at : at + layout.HEAD_BYTES])

    def _ends(self, name: bytes) -> tuple[int, int]:
        """Return the GIDs of the sender and of this carrier."""
        ends = self._sources.get(name)
        if ends is None:
            if len(self._sources) >= _SOURCES_MAX:
                self._sources.clear()
            ends = self._sources[name] = gid_of(_address_in(name, self._own.version)), self.gid
        return ends

    def _notify(self, own_qp: int, far: int) -> None:
        """Send a CNP to the sender of packets that met congestion, at a limited rate, if its queue pair is known."""
        gid, number = self._peers.get(own_qp, (0, 0))
        now_s = time.monotonic()
        if gid != far or now_s - self._noticed_s.get(own_qp, -math.inf) < NOTICE_S or (sender := self._to(far)) is None:
            return
        self._noticed_s[own_qp] = now_s
        self.counters["congestion_notices_sent"] += 1
        bth = BTH(opcode=Opcode.CNP, m=1, becn=1, p_key=0xFFFF, dest_qp=number)
        self._set_head(0, bth.raw + CNPPadding().raw)
        self._send(sender, b"", 0, 1, 0)

    def _grh(self, source_gid: int, tos: int, size: int) -> bytes:
        """Return the first 40 bytes of a datagram's buffer; over IPv4 20 zeros and the IPv4 header."""
        far = address_of(source_gid)
        assert far is not None
        return _ip(far, self._own, size, tos=tos).raw.rjust(40, b"\0")

    # -- captures -----------------------------------------------------------------------------------------------------

    def _note_sent(self, far: Address) -> None:
        message = self._out.message
        words = message[layout.VECTORS_AT : layout.VECTORS_AT + 2 * message[layout.VECTOR_COUNT]]
        data = b"".join(ctypes.string_at(at, size) for at, size in zip(words[::2], words[1::2], strict=True))
        unit = message[layout.CONTROL_AT + 2]
        for number, at in enumerate(range(0, len(data), unit)):
            self._note(self._own, far, UDP_PORT, data[at : at + unit], number)

    def _note_received(self) -> None:
        box = self._in
        name, length, unit = bytes(box.name), box.bytes, box.unit
        far, port = _address_in(name, self._own.version), int.from_bytes(name[2:4], "big")
        data = ctypes.string_at(box.staging, length)
        for number, at in enumerate(range(0, length, max(unit, 1))):
            identification = max(0, box.identifications[number % len(box.identifications)])
            self._note(far, self._own, port, data[at : at + unit], identification)

    def _note(self, source: Address, destination: Address, port: int, datagram: bytes, identification: int) -> None:
        """Write a datagram to the capture with its headers on the wire."""
        assert self._pcap is not None
        ip = _ip(source, destination, len(datagram), identification=identification)
        udp = UDP(source_port=port, length=UDP.size + len(datagram))
        if isinstance(ip, IPv6):
            udp = udp.replace(checksum=udp_checksum(ip, udp.raw + datagram))
        kind = EtherType.IPV4 if isinstance(ip, IPv4) else EtherType.IPV6
        frame = Ethernet(ether_type=kind).raw + ip.raw + udp.raw + datagram
        self._pcap.write(frame, time_ps=time.time_ns() * 1000)


def _bytes_of(array: Any) -> memoryview:
    return memoryview((ctypes.c_uint8 * ctypes.sizeof(array)).from_buffer(array)).cast("B")


def _open_socket(own: Address) -> socket.socket:
    four = own.version == 4
    udp = socket.socket(socket.AF_INET if four else socket.AF_INET6, socket.SOCK_DGRAM)
    udp.setblocking(False)
    level = socket.IPPROTO_IP if four else socket.IPPROTO_IPV6
    udp.setsockopt(level, _IP_MTU_DISCOVER if four else _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
    udp.setsockopt(level, _IP_RECVTOS if four else _IPV6_RECVTCLASS, 1)
    with contextlib.suppress(OSError):
        udp.setsockopt(_SOL_UDP, _UDP_GRO, 1)
    for option, forced in ((socket.SO_RCVBUF, _SO_RCVBUFFORCE), (socket.SO_SNDBUF, _SO_SNDBUFFORCE)):
        try:
            udp.setsockopt(socket.SOL_SOCKET, forced, _SOCKET_BYTES)
        except OSError:  # without the privilege the system's limit applies
            udp.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
    try:
        udp.bind((str(own).partition("%")[0], UDP_PORT) + (() if four else (0, _scope(own))))
    except OSError as error:
        udp.close()
        raise ConfigError(f"cannot listen at {own}, UDP port {UDP_PORT}: {error.strerror}") from None
    return udp


def _mtu(own: Address) -> int:
    """Return the largest InfiniBand MTU whose packets fit the MTU of the interface."""
    longest = (mtu_of(own) or _MTUS[0] + _OVERHEAD_BYTES) - _OVERHEAD_BYTES
    return next((size for size in _MTUS if size <= longest), _MTUS[-1])


def _scope(own: Address) -> int:
    """Return the interface index of a link-local address, else 0."""
    name = own.scope_id if isinstance(own, ipaddress.IPv6Address) else None
    if name is None:
        return 0
    try:
        return int(name) if name.isdigit() else socket.if_nametoindex(name)
    except OSError:
        raise ConfigError(f"address {own}: there is no interface {name}") from None


def _address_in(name: bytes, version: int) -> Address:
    """Return the address in a sockaddr."""
    return ipaddress.IPv4Address(name[4:8]) if version == 4 else ipaddress.IPv6Address(name[8:24])


def _ip(source: Address, destination: Address, size: int, *, tos: int = 0, identification: int = 0) -> IPv4 | IPv6:
    """Return the IP header of a datagram of this size."""
    fields: dict[str, Any] = {"source": int(source), "destination": int(destination), "dscp": tos >> 2, "ecn": tos & 3}
    if source.version == 6:
        return IPv6(payload_length=UDP.size + size, **fields)
    length = IPv4.size + UDP.size + size
    return IPv4(total_length=length, identification=identification, **fields).with_checksum()


def gid_of(address: Address) -> int:
    """Return the GID of an address for RoCE v2: a mapped IPv4 address, or the IPv6 address itself."""
    return 0xFFFF << 32 | int(address) if address.version == 4 else int(address)


def address_of(gid: int) -> Address | None:
    if gid >> 32 == 0xFFFF:
        return ipaddress.IPv4Address(gid & 0xFFFF_FFFF)
    return ipaddress.IPv6Address(gid) if gid else None
