"""A carrier through libibumad: real adapters, or whatever stands before it, libumad2sim or a lab's own preload.

The kernel keeps time, sends again, and carries long messages as RMPP; so does a lab. libumad2sim does none of it: what
should long be back is given up here too, and messages are cut into segments here. Its adapters say "simulator" where
others name their hardware. It also stops when its sockets are full: few MADs are under way at a time. And of a MAD that
it receives it hands on 224 bytes, then whatever lay in memory (umad2sim.c, alloc_umad_buf): it sends tables, but what
comes of one is refused. The layout of a user MAD is that of <rdma/ib_user_mad.h>.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from collections import deque
from collections.abc import Iterable

import numpy as np

from weft.errors import ConfigError
from weft.mad.carrier import (
    HERE,
    RETRIES,
    SMP_CLASSES,
    TIMEOUT_MS,
    WATCH_S,
    Address,
    Answers,
    Arrived,
    Lids,
    Mads,
    Polled,
    as_rows,
    check_requests,
    number_requests,
)
from weft.mad.transfers import Transfers, ends_at, is_message, is_segment, mark
from weft.runtime import libc
from weft.wire.fields import Buffer
from weft.wire.mad import MAD_BYTES, RESPONSE, MgmtClass, RmppMad, RmppType

_HEAD_BYTES = 64  # before the MAD; 56 where there is no P_Key index
_ADAPTER_BYTES, _TYPE_AT, _TYPE_BYTES = 4096, 48, 40  # umad_ca_t, and what kind of hardware it is
_WHERE = struct.Struct(">IIHB")  # QP, Q_Key, LID and SL
_NUMBER, _INDEX = struct.Struct("=I"), struct.Struct("=H")
_STATUS_AT, _WHERE_AT, _PKEY_AT = 4, 20, 56
_MOST_AT_ONCE = 128
_SIMULATOR_BYTES = 224
_TIMEOUT_S = 60.0
_LONGER_S = 0.5  # than all tries take: then the kernel has forgotten it
_VERSIONS = {MgmtClass.SUBN_ADM: 2, MgmtClass.CONG_CTRL: 2, MgmtClass.COM_MGT: 2}
_OPENIB_OUI = 0x001405
_Methods = ctypes.c_uint64 * 2


def _library() -> ctypes.CDLL:
    """Return the library behind programs' calls of umad_...: a preload, or libibumad itself."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "umad_open_port"):
        try:
            library = ctypes.CDLL("libibumad.so.3", use_errno=True)
        except OSError:
            raise ConfigError(
                "libibumad.so.3 is not installed: apt install libibumad3, or use --lab or --ibsim"
            ) from None
    number = ctypes.c_int
    library.umad_send.argtypes = [number, number, ctypes.c_void_p, number, number, number]
    library.umad_recv.argtypes = [number, ctypes.c_void_p, ctypes.c_void_p, number]
    return library


class _Room:
    """A user MAD in memory that the library reads or writes: the same bytes for Python and for C."""

    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))


class UmadCarrier(Polled):
    """A port of an adapter of this machine; with no names the first that is Active."""

    def __init__(self, ca: str = "", port: int = 0) -> None:
        super().__init__()
        self._library = _library()
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
        self._waiting: deque[tuple[int, Buffer, Address, int, int]] = deque()
        self._flying: dict[int, tuple[float, float]] = {}  # token -> when it is lost, whatever the kernel says; in s
        self._out, self._in = _Room(self._head_bytes + MAD_BYTES), _Room(self._head_bytes + MAD_BYTES)
        self._length = ctypes.c_int()
        self._issm = -1
        self._outbox: deque[tuple[bytes, int]] = deque()
        self._transfers = Transfers(lambda mad, lid: self._outbox.append((mad, lid)), time.monotonic, insists=False)
        self._cuts = self._is_simulator()  # messages into segments itself

    # -- the protocol of carriers --

    def send(self, mad: Buffer, to: Address = HERE, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> int:
        token = self._next_tokens(1)
        named = bytes(mad[:8]) + token.to_bytes(8, "big") + bytes(mad[16:])
        self._waiting.append((token, named, to, timeout_ms, retries))
        self._fill()
        return token

    def exchange(
        self, mads: Mads, to: Lids | None = None, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES
    ) -> Answers:
        mads, lids = check_requests(mads, to)
        first = self._next_tokens(len(mads))
        raw = number_requests(mads, first).reshape(-1).data
        whither = {lid: Address(lid) for lid in np.unique(lids).tolist()}
        for row, lid in enumerate(lids.tolist()):
            mad = raw[row * MAD_BYTES : (row + 1) * MAD_BYTES]
            self._waiting.append((first + row, mad, whither[lid], timeout_ms, retries))
        for token in range(first, first + len(mads)):
            while token not in self._done:
                self._go_on(_TIMEOUT_S)
        return as_rows([self._done.pop(token) for token in range(first, first + len(mads))])

    def post(self, mad: Buffer, to: Address = HERE) -> None:
        if not is_message(mad):
            self._put(mad, to, 0, 0)
        elif self._cuts:
            self._transfers.start(bytes(mad), to.lid)
            self._drain()
        else:
            self._put(mark(mad), to, 0, RETRIES)  # without a timeout the kernel takes its own for segments

    def register(self, mgmt_class: int, methods: Iterable[int], *, class_version: int = 1, oui: int = 0) -> None:
        mask = _Methods()
        for method in methods:
            mask[method // 64] |= 1 << method % 64
        agent = self._register(mgmt_class, class_version, oui, mask)
        self._agents[mgmt_class, class_version, oui] = agent
        self._listening.add(agent)

    def set_is_sm(self, on: bool) -> None:
        """Open or close the device that sets the IsSM bit while it is open."""
        if self._issm >= 0:
            libc().close(self._issm)  # as a program would, so that a preload sees it
            self._issm = -1
        if on:
            path = ctypes.create_string_buffer(256)
            self._library.umad_get_issm_path(self._ca, self._port, path, len(path))
            self._issm = libc().open(path, os.O_NONBLOCK)
            if self._issm < 0:
                raise ConfigError(f"cannot open {path.value.decode()}: {os.strerror(ctypes.get_errno())}")

    def close(self) -> None:
        self.set_is_sm(False)
        for agent in {*self._agents.values()}:
            self._library.umad_unregister(self._fd, agent)
        self._library.umad_close_port(self._fd)

    # -- libibumad --

    def _register(self, mgmt_class: int, version: int, oui: int, mask: object) -> int:
        rmpp = ctypes.c_uint8(mgmt_class == MgmtClass.SUBN_ADM)
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

    def _agent_for(self, mad: Buffer) -> int:
        """Return the agent that sends MADs of this class; register it on first use."""
        mgmt_class, version = mad[1], mad[2]
        oui = int.from_bytes(mad[37:40], "big") if 0x30 <= mgmt_class <= 0x4F else 0
        key = mgmt_class, version or _VERSIONS.get(mgmt_class, 1), oui  # type: ignore[call-overload]
        if key not in self._agents:
            self._agents[key] = self._register(*key, None)
        return self._agents[key]

    def _is_simulator(self) -> bool:
        adapter = ctypes.create_string_buffer(_ADAPTER_BYTES)
        if self._library.umad_get_ca(self._ca, adapter) < 0:
            return False
        kind = adapter.raw[_TYPE_AT : _TYPE_AT + _TYPE_BYTES].split(b"\0")[0]
        self._library.umad_release_ca(adapter)
        return kind == b"simulator"

    def _go_on(self, wait_s: float) -> None:
        """Read what is there, waiting for the first; then whatever is due."""
        self._fill()
        if self._watched:  # libibumad waits for its own file alone
            wait_s = min(wait_s, WATCH_S)
        self._read(max(0.0, min(wait_s, self._until_due_s())))
        self._give_up()
        self._fill()
        self._transfers.on_timer()
        self._drain()

    def _drain(self) -> None:
        while self._outbox:
            mad, lid = self._outbox.popleft()
            self._put(mad[: ends_at(mad)], Address(lid), 0, 0)

    def _fill(self) -> None:
        while self._waiting and len(self._flying) < _MOST_AT_ONCE:
            token, mad, to, timeout_ms, retries = self._waiting.popleft()
            timeout_s = timeout_ms / 1000 * (retries + 1) + _LONGER_S
            self._flying[token] = time.monotonic() + timeout_s, timeout_s
            self._put(mad, to, timeout_ms, retries)

    def _put(self, mad: Buffer, to: Address, timeout_ms: int, retries: int) -> None:
        head, length = self._head_bytes, len(mad)
        room = self._out if length == MAD_BYTES else _Room(head + length)
        smp = mad[1] in SMP_CLASSES
        _WHERE.pack_into(room.bytes, _WHERE_AT, 0 if smp else to.qp, 0 if smp else to.q_key, to.lid, to.sl)
        if head == _HEAD_BYTES:
            _INDEX.pack_into(room.bytes, _PKEY_AT, to.pkey_index)
        room.bytes[head:] = mad
        status = self._library.umad_send(self._fd, self._agent_for(mad), room.address, length, timeout_ms, retries)
        if status < 0:
            raise ConfigError(f"libibumad does not send: {os.strerror(ctypes.get_errno() or -status)}")

    def _read(self, wait_s: float) -> None:
        """Read all input; wait for the first MAD."""
        if wait_s and self._library.umad_poll(self._fd, int(-(-wait_s * 1000 // 1))) < 0:
            return
        while self._receive():
            pass

    def _receive(self) -> bool:
        while True:
            self._length.value = len(self._in.bytes) - self._head_bytes
            agent = self._library.umad_recv(self._fd, self._in.address, ctypes.addressof(self._length), 0)
            if agent != -errno.ENOSPC:
                break
            self._in = _Room(self._head_bytes + self._length.value)
        if agent < 0:
            return False
        self._take(bytes(self._in.bytes[self._head_bytes : self._head_bytes + self._length.value]))
        return True

    def _take(self, mad: bytes) -> None:
        """Handle a MAD or a message; its metadata is still in `_in`."""
        (status,) = _NUMBER.unpack_from(self._in.bytes, _STATUS_AT)
        token = int.from_bytes(mad[12:16], "big")
        if status:
            if not mad[3] & RESPONSE:  # else it was posted, and its segments were not acknowledged
                self._end(token, None)
        elif self._cuts and is_segment(mad):
            self._on_segment(mad.ljust(MAD_BYTES, b"\0"), token)  # the last one came without its padding
        elif mad[3] & RESPONSE:
            self._end(token, mad)
        else:
            queue_pair, q_key, lid, sl = _WHERE.unpack_from(self._in.bytes, _WHERE_AT)
            self._arrived.append(Arrived(mad, Address(lid=lid, qp=queue_pair, q_key=q_key, sl=sl)))

    def _on_segment(self, mad: bytes, token: int) -> None:
        _, _, lid, _ = _WHERE.unpack_from(self._in.bytes, _WHERE_AT)
        is_answer = bool(mad[3] & RESPONSE)
        if not self._transfers.knows(mad, lid) and is_answer and token not in self._flying:
            return
        if is_answer and token in self._flying:
            _, timeout_s = self._flying[token]
            self._flying[token] = time.monotonic() + timeout_s, timeout_s
        if RmppMad.rmpp_type.get(mad) == RmppType.DATA and ends_at(mad) > _SIMULATOR_BYTES:
            self._end(token, None)
            raise ConfigError(
                f"libumad2sim hands on {_SIMULATOR_BYTES} bytes of a MAD, and this table has more: "
                "attach over ibsim's sockets (--ibsim), or to a lab"
            )
        message = self._transfers.receive(mad, lid)
        if message is not None and is_answer:
            self._end(token, message)
        elif message is not None:
            self._arrived.append(Arrived(message, Address(lid=lid)))

    def _end(self, token: int, answer: bytes | None) -> None:
        if self._flying.pop(token, None) is not None:
            self._done[token] = answer

    def _until_due_s(self) -> float:
        now_s = time.monotonic()
        lost_s, _ = next(iter(self._flying.values()), (now_s + _TIMEOUT_S, 0.0))
        transfer_s = self._transfers.next_deadline_s()
        return min(lost_s, now_s + _TIMEOUT_S if transfer_s is None else transfer_s) - now_s

    def _give_up(self) -> None:
        """Give up requests in the order of sending: a longer timeout delays those behind it, until its own end."""
        now_s = time.monotonic()
        while self._flying and next(iter(self._flying.values()))[0] <= now_s:
            self._end(next(iter(self._flying)), None)
