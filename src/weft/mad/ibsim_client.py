"""A carrier over ibsim's sockets: a client of ibsim, or of a lab of weft's, without libumad2sim.

Control and data are datagrams on abstract unix sockets, whose names end with a zero byte:

    @sim:ctl      requests, 80 bytes: connect, IsSM        our end @sim:ctlN
    @sim:outK     MADs, 288 bytes; K is our number there   our end @sim:inN; libumad2sim takes its process id for N

ibsim answers each MAD, or sends it back with status 110 (ETIMEDOUT) at once if it went nowhere. It carries single MADs,
and it stops reading when its own sends do not fit: so few are in its sockets at a time, and the rest wait here.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from weft.errors import ConfigError
from weft.mad.carrier import HERE, RETRIES, SMP_CLASSES, TIMEOUT_MS, Address, Arrived
from weft.wire.fields import Buffer
from weft.wire.mad import MAD_BYTES, RESPONSE

CONTROL = struct.Struct("=IIII64s")  # magic, client, kind, length, data
CLIENT_INFO = struct.Struct("=III32s")  # our N, queue pair, is a subnet manager, name of the node
DATA = struct.Struct(">H2xH2xIII4xQ256s")  # LIDs to and from, queue pairs to and from, status, length, MAD
MAGIC = 0xDEADBEEF
CONNECT, DISCONNECT, SET_ISSM = 1, 2, 9
_MOST_AT_ONCE = 96  # in the sockets; ibsim and a client block each other at a few hundred
_CONTROL_S = 5.0
_numbers = itertools.count()


@dataclass(slots=True)
class _InFlight:
    packet: bytes
    timeout_s: float
    retries_left: int


class IbsimCarrier:
    """Attached to a node of the subnet that `server` simulates, by its name; to the first one if there is none."""

    def __init__(self, host: str = "", server: str = "") -> None:
        self._server = server or os.environ.get("IBSIM_SOCKNAME", "sim")
        self._id = os.getpid() + (next(_numbers) << 22)  # process ids have 22 bits
        self._control = self._open(f"ctl{self._id}", "ctl")
        self._data = self._open(f"in{self._id}")
        try:
            info = self._request(CONNECT, CLIENT_INFO.pack(self._id, 0, 0, host.encode()[:31]))
        except ConfigError:
            self._control.close()
            self._data.close()
            raise
        self._number, _, _, name = CLIENT_INFO.unpack_from(info)
        self.host = name.split(b"\0")[0].decode()
        self._data.connect(_address(self._server, f"out{self._number}"))
        self._data.setblocking(False)
        self._tokens = itertools.count(1)
        self._flying: dict[int, _InFlight] = {}
        self._waiting: deque[int] = deque()  # tokens that are not in the socket yet
        self._timers: list[tuple[float, int]] = []
        self._in_socket: set[int] = set()
        self._done: dict[int, bytes | None] = {}
        self._arrived: list[Arrived] = []
        self._wanted: set[tuple[int, int, int]] = set()

    def _open(self, end: str, to: str = "") -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            made.bind(_address(self._server, end))
            if to:
                made.connect(_address(self._server, to))
        except OSError as error:
            made.close()
            raise ConfigError(
                f"no ibsim or lab listens at {self._server}: {error.strerror}. `weft up` or `ibsim -s` starts one"
            ) from None
        return made

    def _request(self, kind: int, data: bytes = b"") -> bytes:
        self._control.settimeout(_CONTROL_S)
        number = 0 if kind == CONNECT else self._number
        self._control.send(CONTROL.pack(MAGIC, number, kind, len(data), data))
        try:
            _, _, answered, _, said = CONTROL.unpack(self._control.recv(CONTROL.size))
        except TimeoutError:
            raise ConfigError(f"{self._server} does not answer: is it ibsim, or a lab?") from None
        if answered != kind:
            node = CLIENT_INFO.unpack_from(data)[3].rstrip(b"\0").decode() if kind == CONNECT else self.host
            raise ConfigError(f"{self._server} refuses request {kind} for node {node!r}: is there such a node?")
        return bytes(said)

    # -- the protocol of carriers --

    def send(self, mad: Buffer, to: Address = HERE, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> int:
        token = next(self._tokens) & 0xFFFF_FFFF
        named = bytes(mad[:8]) + token.to_bytes(8, "big") + bytes(mad[16:])
        self._flying[token] = _InFlight(_packet(named, to), timeout_ms / 1000, retries)
        self._waiting.append(token)
        self._fill()
        return token

    def post(self, mad: Buffer, to: Address = HERE) -> None:
        while True:
            try:
                self._data.send(_packet(bytes(mad), to))
                return
            except BlockingIOError:
                self._read()
                select.select([], [self._data], [], 0.1)

    def poll(self, wait_s: float = 0.0, *, only: int | None = None) -> list[tuple[int, bytes | None]]:
        until_s = time.monotonic() + wait_s
        before = len(self._arrived)
        while True:
            self._read()
            self._on_time()
            self._fill()
            if only is not None and only in self._done:
                return [(only, self._done.pop(only))]
            left_s = until_s - time.monotonic()
            if only is None and (self._done or len(self._arrived) > before or left_s <= 0):
                done, self._done = list(self._done.items()), {}
                return done
            if only is not None and left_s <= 0:
                return []
            next_s = self._timers[0][0] - time.monotonic() if self._timers else left_s
            select.select([self._data], [], [], max(0.0, min(left_s, next_s)))

    def arrivals(self) -> list[Arrived]:
        self._read()
        arrived, self._arrived = self._arrived, []
        return arrived

    def register(self, mgmt_class: int, methods: Iterable[int], *, class_version: int = 1, oui: int = 0) -> None:
        self._wanted |= {(mgmt_class, class_version, method) for method in methods}

    def set_is_sm(self, on: bool) -> None:
        self._request(SET_ISSM, struct.pack("=i", on))

    def close(self) -> None:
        with suppress(OSError, ConfigError):
            self._request(DISCONNECT)
        self._control.close()
        self._data.close()

    # -- sockets --

    def _fill(self) -> None:
        """Put as many as may be there into the socket."""
        while self._waiting and len(self._in_socket) < _MOST_AT_ONCE:
            token = self._waiting[0]
            flying = self._flying.get(token)
            if flying is not None:
                try:
                    self._data.send(flying.packet)
                except BlockingIOError:
                    return
                self._in_socket.add(token)
                heapq.heappush(self._timers, (time.monotonic() + flying.timeout_s, token))
            self._waiting.popleft()

    def _read(self) -> None:
        while True:
            try:
                packet = self._data.recv(2 * DATA.size)
            except BlockingIOError:
                return
            except OSError as error:
                raise ConfigError(f"{self._server} is gone: {error.strerror}") from None
            if len(packet) == DATA.size:
                self._on_packet(packet)

    def _on_packet(self, packet: bytes) -> None:
        _, lid, _, queue_pair, status, _, mad = DATA.unpack(packet)
        token = int.from_bytes(mad[12:16], "big")
        if status:
            self._try_again(token)
        elif mad[3] & RESPONSE:
            self._end(token, mad)
        elif (mad[1], mad[2], mad[3]) in self._wanted:
            self._arrived.append(Arrived(mad, Address(lid=lid, qp=queue_pair)))

    def _try_again(self, token: int) -> None:
        flying = self._flying.get(token)
        self._in_socket.discard(token)
        if flying is None:
            return
        if not flying.retries_left:
            self._end(token, None)
            return
        flying.retries_left -= 1
        self._waiting.append(token)

    def _end(self, token: int, answer: bytes | None) -> None:
        self._in_socket.discard(token)
        if self._flying.pop(token, None) is not None:
            self._done[token] = answer

    def _on_time(self) -> None:
        now_s = time.monotonic()
        while self._timers and self._timers[0][0] <= now_s:
            _, token = heapq.heappop(self._timers)
            if token in self._in_socket:
                self._try_again(token)


def _address(server: str, end: str) -> bytes:
    return b"\0" + f"{server}:{end}".encode() + b"\0"


def _packet(mad: bytes, to: Address) -> bytes:
    queue_pair = 0 if mad[1] in SMP_CLASSES else to.qp
    from_lid = to.lid if to.lid == HERE.lid else 0  # 0: the server fills in ours
    own = 0 if mad[1] in SMP_CLASSES else 1
    return DATA.pack(to.lid, from_lid, queue_pair, own, 0, MAD_BYTES, mad)
