"""A carrier through libibumad: real adapters, or whatever stands before it, libumad2sim or a lab's own preload.

The kernel keeps time and sends again; libumad2sim does not, so what should long be back is given up here too. It also
stops when its sockets are full: few MADs are under way at a time, and the rest wait here.
The layout of a user MAD is that of <rdma/ib_user_mad.h>.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import struct
import time
from collections import deque
from collections.abc import Iterable

from weft.errors import ConfigError
from weft.mad.carrier import HERE, RETRIES, SMP_CLASSES, TIMEOUT_MS, Address, Arrived
from weft.wire.fields import Buffer
from weft.wire.mad import MAD_BYTES, RESPONSE, MgmtClass

_HEAD_BYTES = 64  # before the MAD; 56 where there is no P_Key index
_WHERE = struct.Struct(">IIHB")  # QP, Q_Key, LID and SL
_NUMBER, _INDEX = struct.Struct("=I"), struct.Struct("=H")
_STATUS_AT, _WHERE_AT, _PKEY_AT = 4, 20, 56
_MOST_AT_ONCE = 128
_LONGER_S = 0.5  # than all tries take: then the kernel has forgotten it
_VERSIONS = {MgmtClass.SUBN_ADM: 2, MgmtClass.CONG_CTRL: 2, MgmtClass.COM_MGT: 2}
_RMPP = frozenset((int(MgmtClass.SUBN_ADM),))
_OPENIB_OUI = 0x001405
_Methods = ctypes.c_uint64 * 2


def _library() -> ctypes.CDLL:
    """What programs get when they call umad_...: a preload's, or libibumad's own."""
    here = ctypes.CDLL(None, use_errno=True)
    if hasattr(here, "umad_open_port"):
        return here
    try:
        return ctypes.CDLL("libibumad.so.3", use_errno=True)
    except OSError:
        raise ConfigError("libibumad.so.3 is not installed: apt install libibumad3, or use --lab or --ibsim") from None


class UmadCarrier:
    """A port of an adapter of this machine; with no names the first that is Active."""

    def __init__(self, ca: str = "", port: int = 0) -> None:
        self._library, self._libc = _library(), ctypes.CDLL(None, use_errno=True)
        self._ca, self._port = ca.encode() or None, port
        if self._library.umad_init() < 0:
            raise ConfigError("libibumad finds no InfiniBand: is the module ib_umad loaded, or the preload set?")
        self._fd = self._library.umad_open_port(self._ca, port)
        if self._fd < 0:
            raise ConfigError(
                f"cannot open port {port or 'any'} of {ca or 'any adapter'}: {os.strerror(-self._fd)}; "
                "`ibstat -l` lists adapters"
            )
        self._head_bytes = int(self._library.umad_size())
        self._agents: dict[tuple[int, int, int], int] = {}  # class, version, OUI -> agent that asks
        self._listening: set[int] = set()
        self._tokens = itertools.count(1)
        self._waiting: deque[tuple[int, bytes, Address, int, int]] = deque()
        self._flying: dict[int, float] = {}  # token -> when it is lost, whatever the kernel says
        self._done: dict[int, bytes | None] = {}
        self._arrived: list[Arrived] = []
        self._buffer = ctypes.create_string_buffer(self._head_bytes + MAD_BYTES)
        self._issm = -1

    # -- the protocol of carriers --

    def send(self, mad: Buffer, to: Address = HERE, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> int:
        token = next(self._tokens) & 0xFFFF_FFFF
        named = bytes(mad[:8]) + token.to_bytes(8, "big") + bytes(mad[16:])
        self._waiting.append((token, named, to, timeout_ms, retries))
        self._fill()
        return token

    def post(self, mad: Buffer, to: Address = HERE) -> None:
        self._put(bytes(mad), to, 0, 0)

    def poll(self, wait_s: float = 0.0, *, only: int | None = None) -> list[tuple[int, bytes | None]]:
        until_s = time.monotonic() + wait_s
        before = len(self._arrived)
        while True:
            left_s = until_s - time.monotonic()
            ready = only in self._done if only is not None else self._done or len(self._arrived) > before
            self._read(0.0 if ready else max(0.0, min(left_s, self._until_lost_s())))
            self._give_up()
            self._fill()
            if only is not None and only in self._done:
                return [(only, self._done.pop(only))]
            late = time.monotonic() >= until_s
            if only is None and (self._done or len(self._arrived) > before or late):
                done, self._done = list(self._done.items()), {}
                return done
            if only is not None and late:
                return []

    def arrivals(self) -> list[Arrived]:
        self._read(0.0)
        arrived, self._arrived = self._arrived, []
        return arrived

    def register(self, mgmt_class: int, methods: Iterable[int], *, class_version: int = 1, oui: int = 0) -> None:
        mask = _Methods()
        for method in methods:
            mask[method // 64] |= 1 << method % 64
        agent = self._register(mgmt_class, class_version, oui, mask)
        self._agents[mgmt_class, class_version, oui] = agent
        self._listening.add(agent)

    def set_is_sm(self, on: bool) -> None:
        """By the device that is open for as long as a subnet manager runs."""
        if self._issm >= 0:
            self._libc.close(self._issm)  # as a program would, so that a preload sees it
            self._issm = -1
        if on:
            path = ctypes.create_string_buffer(256)
            self._library.umad_get_issm_path(self._ca, self._port, path, len(path))
            self._issm = self._libc.open(path, os.O_NONBLOCK)
            if self._issm < 0:
                raise ConfigError(f"cannot open {path.value.decode()}: {os.strerror(ctypes.get_errno())}")

    def close(self) -> None:
        self.set_is_sm(False)
        for agent in {*self._agents.values()}:
            self._library.umad_unregister(self._fd, agent)
        self._library.umad_close_port(self._fd)

    # -- libibumad --

    def _register(self, mgmt_class: int, version: int, oui: int, mask: object) -> int:
        rmpp = ctypes.c_uint8(mgmt_class in _RMPP)
        if 0x30 <= mgmt_class <= 0x4F:
            vendor = (ctypes.c_uint8 * 3)(*(oui or _OPENIB_OUI).to_bytes(3, "big"))
            agent = int(self._library.umad_register_oui(self._fd, mgmt_class, rmpp, vendor, mask))
        else:
            agent = int(self._library.umad_register(self._fd, mgmt_class, version, rmpp, mask))
        if agent < 0:
            raise ConfigError(
                f"cannot register for class 0x{mgmt_class:02x}: {os.strerror(-agent)}; "
                "another program may have its methods"
            )
        return agent

    def _agent_for(self, mad: bytes) -> int:
        """The agent by which a MAD of this class goes out; registered when the first does."""
        mgmt_class, version = mad[1], mad[2]
        oui = int.from_bytes(mad[37:40], "big") if 0x30 <= mgmt_class <= 0x4F else 0
        key = mgmt_class, version or _VERSIONS.get(mgmt_class, 1), oui  # type: ignore[call-overload]
        if key not in self._agents:
            self._agents[key] = self._register(*key, None)
        return self._agents[key]

    def _fill(self) -> None:
        while self._waiting and len(self._flying) < _MOST_AT_ONCE:
            token, mad, to, timeout_ms, retries = self._waiting.popleft()
            self._flying[token] = time.monotonic() + timeout_ms / 1000 * (retries + 1) + _LONGER_S
            self._put(mad, to, timeout_ms, retries)

    def _put(self, mad: bytes, to: Address, timeout_ms: int, retries: int) -> None:
        umad = bytearray(_HEAD_BYTES)
        smp = mad[1] in SMP_CLASSES
        _WHERE.pack_into(umad, _WHERE_AT, 0 if smp else to.qp, 0 if smp else to.q_key, to.lid, to.sl)
        _INDEX.pack_into(umad, _PKEY_AT, to.pkey_index)
        buffer = ctypes.create_string_buffer(bytes(umad[: self._head_bytes]) + mad, self._head_bytes + len(mad))
        status = self._library.umad_send(self._fd, self._agent_for(mad), buffer, len(mad), timeout_ms, retries)
        if status < 0:
            raise ConfigError(f"libibumad does not send: {os.strerror(ctypes.get_errno() or -status)}")

    def _read(self, wait_s: float) -> None:
        """All that is there; wait for the first."""
        wait_ms = -(-wait_s * 1000 // 1)
        while self._receive(int(wait_ms)):
            wait_ms = 0

    def _receive(self, wait_ms: int) -> bool:
        if self._library.umad_poll(self._fd, wait_ms) < 0:
            return False
        while True:
            room = ctypes.c_int(len(self._buffer) - self._head_bytes)
            agent = self._library.umad_recv(self._fd, self._buffer, ctypes.byref(room), 0)
            if agent != -errno.ENOSPC:
                break
            self._buffer = ctypes.create_string_buffer(self._head_bytes + room.value)
        if agent < 0:
            return False
        self._take(self._buffer.raw[: self._head_bytes], self._buffer.raw[self._head_bytes :][: room.value])
        return True

    def _take(self, head: bytes, mad: bytes) -> None:
        (status,) = _NUMBER.unpack_from(head, _STATUS_AT)
        token = int.from_bytes(mad[12:16], "big")
        if status or mad[3] & RESPONSE:
            if self._flying.pop(token, None) is not None:
                self._done[token] = None if status else mad
            return
        queue_pair, q_key, lid, sl = _WHERE.unpack_from(head, _WHERE_AT)
        self._arrived.append(Arrived(mad, Address(lid=lid, qp=queue_pair, q_key=q_key, sl=sl)))

    def _until_lost_s(self) -> float:
        return next(iter(self._flying.values()), 60.0 + time.monotonic()) - time.monotonic()

    def _give_up(self) -> None:
        """In the order of sending: one with a longer timeout holds up those behind it, but only until it is back."""
        now_s = time.monotonic()
        while self._flying and next(iter(self._flying.values())) <= now_s:
            token = next(iter(self._flying))
            del self._flying[token]
            self._done[token] = None
