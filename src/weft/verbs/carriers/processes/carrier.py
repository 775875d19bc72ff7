"""Share one adapter between the processes of a machine, as with hardware: same name, same GIDs.

Each process has a number, the upper part of the numbers of its queue pairs, so the destination of a packet identifies
its process. Each process has a socket for packets. Packets for a group, and for queue pair 1, go to all processes: only
one of them has the connection. Messages to the process itself go to its own inbox, whole.

Data on a GPU is not sent: the packet has a reference, and the receiving process copies the data. A process that does
not see that GPU refuses, and gets the bytes with the retransmission.

The sockets are in a private folder: see `places` and weft.runtime.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import functools
import math
import os
import select
import struct
import termios
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

from weft import runtime
from weft.errors import ConfigError
from weft.verbs.carriers.loopback import Loopback, datagram_bytes, grh_of, kind_of
from weft.verbs.carriers.places import place
from weft.verbs.carriers.processes.handover import PeerMemories
from weft.verbs.gpudirect.cuda import CudaError
from weft.verbs.gpudirect.gpu import DeviceBytes
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.carrier import TO_GROUP, Arrival, MemoryPeer, Sender
from weft.verbs.hca.packets import decode, encode
from weft.verbs.hca.segment import Segment
from weft.wire.format import Malformed
from weft.wire.packet import read_transport

PROCESSES_MAX = 255
# Their queue pairs have numbers of seven digits: programs exchange them as text and expect equal lengths.
USUAL = range(16, 152)
_QUEUE_PAIR_BITS = 16
_BELL = b"!"
_GSI = 1  # general services, queue pair 1
_GIDS_BYTES = 32
_ON_GPU = b"weft: on a GPU.."  # prefix; then the sender and the number of packets, then a packet
_REFUSED = b"weft: no such GPU"
_WORTH = struct.Struct("=II")
_MOST_BYTES = 1 << 16
_BACKLOG_MAX = 4096  # unsent packets for a process; more are lost, as on a wire
_LOOK_S = 0.1
_LOOK_EVERY = 8


class _Peer:
    """A connection to another process: a socket, and packets that did not fit into it yet."""

    def __init__(self, path: Path) -> None:
        self.socket = runtime.connect(path)
        self.backlog: deque[bytes] = deque()

    def put(self, packet: bytes) -> None:
        if len(self.backlog) < _BACKLOG_MAX:
            self.backlog.append(packet)

    def flush(self) -> bool:
        """Send the backlog; return False if the process has ended."""
        while self.backlog:
            try:
                self.socket.send(self.backlog[0])
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno not in (errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.EPIPE):
                    raise
                self.socket.close()
                return False
            self.backlog.popleft()
        return True


class ProcessCarrier(Loopback):
    """A carrier between processes. `numbers` are the numbers of this process's queue pairs."""

    window_bytes = 4 << 20  # per connection

    def __init__(self, gids: tuple[int, ...], device: str) -> None:
        super().__init__(gids)
        self._device = device
        self._peers: dict[int, _Peer] = {}
        self._without_gpu: set[int] = set()  # processes that do not see this process's GPU
        self._place = place()
        self._bound, self._slot = self._bind()
        self._socket = self._bound.socket
        # Wakes waiting threads for messages of this process
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waiting, self._looked_s = 0, -math.inf
        self.is_watched = False  # a thread is in `wait_for_others`, and notices other processes
        self._has_others, self._polls = False, 0
        self._readable = array.array("i", [0])  # bytes
        self._unread = array.array("i", [0])  # bytes
        self._peer_memories: PeerMemories | None = None
        first = self._slot << _QUEUE_PAIR_BITS
        self.numbers = range(first + 2, first + (1 << _QUEUE_PAIR_BITS))

    def _path(self, slot: int) -> Path:
        return self._place / f"{self._device}-{slot}"

    def _bind(self) -> tuple[runtime.Inbox, int]:
        """Bind a free number, preferably one not used lately: peers may not have noticed that its process ended."""
        others = [slot for slot in range(PROCESSES_MAX) if slot not in USUAL]
        first = os.getpid() % len(USUAL)
        for slot in (*USUAL[first:], *USUAL[:first], *others):
            try:
                return runtime.Inbox(self._path(slot)), slot
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise ConfigError(f"{PROCESSES_MAX} processes use {self._device} already: end some")

    def open(self, adapter: Adapter) -> None:
        """Share the memory of the adapter's queues with other processes."""
        self._peer_memories = PeerMemories(self._handover(self._slot), adapter, self._ring_here)

    def _handover(self, slot: int) -> Path:
        return self._place / f"{self._device}-{slot}.memory"

    def close(self) -> None:
        self._bound.close()
        if self._peer_memories is not None:
            self._peer_memories.close()
        os.close(self._bell)
        for peer in self._peers.values():
            peer.socket.close()

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        assert isinstance(to, tuple)
        is_for_all = segment.dest_qp in (TO_GROUP, _GSI)
        if to[0] not in self.gids and segment.dest_qp != TO_GROUP:
            return  # not an address of this device
        slot = segment.dest_qp >> _QUEUE_PAIR_BITS
        if is_for_all or slot == self._slot:
            self.put(segment, to)
            if self._waiting:
                self._ring_here()
        for far in self._others(segment.dest_qp) if is_for_all else [slot] if slot != self._slot else []:
            self._send_to(far, segment, to, mtu_bytes)

    def _others(self, dest_qp: int) -> list[int]:
        """Return the numbers of all other processes, by their sockets. For groups they may be out of date."""
        now_s = time.monotonic()
        if dest_qp == _GSI or now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            for name in os.listdir(self._place):
                device, _, slot = name.rpartition("-")
                if device == self._device and slot.isdecimal() and int(slot) != self._slot:
                    self._peer(int(slot))
        return list(self._peers)

    def _peer(self, slot: int) -> _Peer | None:
        if slot not in self._peers:
            try:
                self._peers[slot] = _Peer(self._path(slot))
            except OSError:
                return None
            self._has_others = True
        return self._peers[slot]

    def _send_to(self, slot: int, segment: Segment, to: tuple[int, int], mtu_bytes: int) -> None:
        peer = self._peer(slot)
        if peer is None:
            return
        prefix = b"".join(gid.to_bytes(16, "big") for gid in to)
        if isinstance(segment.payload, DeviceBytes):
            if slot in self._without_gpu:
                segment.payload = segment.payload.to_host()
            else:
                prefix = _ON_GPU + _WORTH.pack(self._slot, segment.count) + prefix
                segment = replace(segment, count=1, payload=segment.payload.pack())
        for headers, payload in encode(segment, mtu_bytes):
            peer.put(b"".join((prefix, *(header.raw for header in headers), payload)))
        self._flush(slot)

    def _flush(self, slot: int) -> None:
        if not self._peers[slot].flush():
            del self._peers[slot]
            self._without_gpu.discard(slot)

    def is_behind(self, dest_qp: int) -> bool:
        if dest_qp in self.numbers:
            return bool(self._inbox)
        peer = self._peers.get(dest_qp >> _QUEUE_PAIR_BITS)
        if peer is None:
            return False
        fcntl.ioctl(peer.socket, termios.TIOCOUTQ, self._unread)
        return bool(peer.backlog or self._unread[0])

    # -- shared memory ------------------------------------------------------------------------------------------------

    def shm_peer(self, to: object, dest_qp: int, *, p_key: int, mtu_bytes: int) -> MemoryPeer | None:
        slot = dest_qp >> _QUEUE_PAIR_BITS
        if self._peer_memories is None or not isinstance(to, tuple) or to[0] not in self.gids:
            return None
        dgid, sgid = to
        grh = grh_of(sgid, dgid)
        sender, ring = (
            Sender(source=(sgid, dgid), grh=grh, slid=0, sl=kind_of(grh)),
            functools.partial(self._ring, slot),
        )
        return self._peer_memories.peer(self._handover(slot), sender=sender, ring=ring)

    def _ring_here(self) -> None:
        os.eventfd_write(self._bell, 1)

    def _ring(self, slot: int) -> None:
        """Wake a process that has something in a queue."""
        peer = self._peer(slot)
        if peer is not None:
            peer.put(_BELL)
            self._flush(slot)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(self) -> list[Arrival]:
        came = super().receive() if self._inbox else []
        if self.is_watched and not self._has_others:
            return came
        for slot in [slot for slot, peer in self._peers.items() if peer.backlog]:
            self._flush(slot)
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_MOST_BYTES, runtime.CREDENTIALS_BYTES)
            except BlockingIOError:
                return came
            if not runtime.is_from_trusted(ancillary):
                continue
            if data == _BELL and self._peer_memories is not None:
                self._peer_memories.adapter.on_bell()
            else:
                with contextlib.suppress(Malformed):
                    came.extend(self._arrivals_in(data))

    def _arrivals_in(self, data: bytes) -> list[Arrival]:
        """Return the arrival of a packet; none if its data is on a GPU that this process does not see."""
        if data.startswith(_REFUSED):
            self._without_gpu.update(data[len(_REFUSED) :])
            return []
        if not data.startswith(_ON_GPU):
            return [_arrival(data)]
        begin = len(_ON_GPU) + _WORTH.size
        if len(data) < begin:
            raise Malformed("the packet is truncated")
        slot, count = _WORTH.unpack(data[len(_ON_GPU) : begin])
        arrival = _arrival(data[begin:])
        try:
            arrival.segment.payload = DeviceBytes.unpack(bytes(arrival.segment.payload))
        except CudaError:
            if (peer := self._peer(slot)) is not None:
                peer.put(_REFUSED + bytes((self._slot,)))
                self._flush(slot)
            return []
        arrival.segment.count = count
        return [arrival]

    def is_idle(self) -> bool:
        """Return whether there is nothing to receive. Not each poll checks the socket: the call is slow."""
        if self._inbox:
            return False
        self._polls += 1
        if self.is_watched and (not self._has_others or self._polls < _LOOK_EVERY):
            return True
        self._polls = 0
        if any(peer.backlog for peer in list(self._peers.values())):
            return False
        fcntl.ioctl(self._socket, termios.FIONREAD, self._readable)
        return not self._readable[0]

    def wait(self, seconds: float) -> None:
        self._waiting += 1
        try:
            if self._inbox:
                return
            self._poll([self._socket.fileno(), self._bell], seconds)
            self._polls = _LOOK_EVERY
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
        finally:
            self._waiting -= 1

    def wait_for_others(self, seconds: float | None) -> None:
        """Wait for packets of other processes only, in the background thread."""
        self.is_watched = True
        if self._poll([self._socket.fileno()], seconds):
            self._has_others, self._polls = True, _LOOK_EVERY

    def _poll(self, files: list[int], seconds: float | None) -> bool:
        """Wait until a file is readable, or a process accepts its backlog. Return False after the timeout."""
        poller = select.poll()  # one per thread
        for file in files:
            poller.register(file, select.POLLIN)
        for peer in list(self._peers.values()):
            if peer.backlog:
                with contextlib.suppress(ValueError):  # closed by another thread: the process has ended
                    poller.register(peer.socket, select.POLLOUT)
        return bool(poller.poll(None if seconds is None else seconds * 1e3))


def _arrival(data: bytes) -> Arrival:
    dgid, sgid = int.from_bytes(data[:16], "big"), int.from_bytes(data[16:_GIDS_BYTES], "big")
    headers, at = read_transport(data, _GIDS_BYTES)
    segment = decode(headers, data[at:])
    grh = grh_of(sgid, dgid, datagram_bytes(segment))
    return Arrival(segment=segment, source=(sgid, dgid), grh=grh, sl=kind_of(grh), group=dgid)
