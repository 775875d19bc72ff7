"""Programs of hosts, attached by libibumad's calls as lab/preload.c has them.

    program -> umad_send -> preload.c -> a unix socket -> Attachments -> Agents -> mad.Subnet

A connection asks one question, is an open port, or holds the IsSM bit of one; preload.c says what goes over it. Nothing
here waits for a program: see `streams`. A MAD for one that does not read is lost, and counted where the port has a
counter for it: VL15Dropped.
"""

from __future__ import annotations

import errno
import itertools
import struct
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from weft.errors import UnknownName
from weft.lab.adapters import Adapter, Role, adapters_of, find_port, rate_gbit_s
from weft.lab.agents import AGENTS_PER_PORT, Agent, Agents
from weft.lab.ethernet_ports import ethernet_umad_port
from weft.lab.fast_path import FastPath, Line
from weft.lab.layouts import ADAPTER, ANSWER, PORT, QUESTION, USER_MAD, Question
from weft.lab.planes import leading_port, whole_info, whole_rate_gbit_s
from weft.lab.streams import ErrorCounts, Stream, Streams
from weft.mad.carrier import SMP_CLASSES
from weft.mad.subnet import Subnet
from weft.wire.fields import Buffer
from weft.wire.mad import MAD_BYTES, QP1_Q_KEY, MgmtClass, RmppMad
from weft.wire.port_info import PortInfo
from weft.wire.smp import NodeInfo

LENGTH = struct.Struct("=I")
USER_RMPP = 1  # registration flag: the program does RMPP itself


@dataclass(slots=True, eq=False)
class _Port:
    number: int
    slot: int
    host: str = ""  # name of the other machine
    role: Role = Role.ALL
    agents: dict[int, Agent] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Connection(Stream):
    """A question, an open port, or the IsSM bit of one."""

    port: _Port | None = None
    is_sm_slot: int | None = None
    fast_path: int = -1  # the file descriptor by which the kernel knows it


class Attachments(Streams[_Connection]):
    """The server behind preload.c."""

    def __init__(
        self, subnet: Subnet, path: Path, errors: ErrorCounts | None = None, fast_path: FastPath | None = None
    ) -> None:
        self.devices, self.agents = subnet.devices, Agents(subnet, time.monotonic)
        self.errors, self._fast_path = errors or ErrorCounts(), fast_path
        self._ports: dict[int, _Port] = {}
        self._is_sm: dict[int, int] = {}  # slot -> number of programs with IsSM
        self._numbers = itertools.count(1)
        super().__init__(path, _Connection)

    def next_deadline_s(self) -> float | None:
        return self.agents.next_deadline_s()

    def on_timer(self) -> None:
        self.agents.on_timer()

    def slots(self) -> list[int]:
        return [port.slot for port in self._ports.values()]

    # -- connections --

    def _take(self, connection: _Connection) -> None:
        if connection.port is None and connection.is_sm_slot is None:
            if len(connection.received) < QUESTION.size:
                return
            question = bytes(connection.received[: QUESTION.size])
            del connection.received[: QUESTION.size]
            self._answer(connection, question)
        if connection.port is not None:
            self._take_frames(connection.port, connection.received)

    def _forget(self, connection: _Connection) -> None:
        if self._fast_path is not None:
            self._fast_path.forget(connection.fast_path)
        if connection.is_sm_slot is not None:
            self._count_sm(connection.is_sm_slot, -1)
        if connection.port is not None:
            for agent in connection.port.agents.values():
                self.agents.unregister(agent)
            del self._ports[connection.port.number]

    # -- questions --

    def _answer(self, connection: _Connection, raw: bytes) -> None:
        kind, number, agent, *registration, host, ca = QUESTION.unpack(raw)
        status, data = 0, b""
        try:
            if kind == Question.REGISTER:
                data = LENGTH.pack(self._register(self._open_port(connection, number), *registration))
            elif kind == Question.UNREGISTER:
                port = self._open_port(connection, number)
                self.agents.unregister(port.agents.pop(agent))
                self._make_hot(self._connection_of(port))
            else:
                adapters = adapters_of(self.devices, connection.host or _text(host))
                data = self._answer_about(connection, kind, adapters, _text(ca), number)
        except (UnknownName, KeyError):
            status = errno.ENODEV
        except OSError as error:
            status = error.errno or errno.EIO
        self.write(connection, ANSWER.pack(status, len(data)) + data)

    def _answer_about(self, connection: _Connection, kind: int, adapters: list[Adapter], ca: str, number: int) -> bytes:
        if kind == Question.LIST_ADAPTERS:
            return b"".join(adapter.name.encode()[:19].ljust(20, b"\0") for adapter in adapters)
        if kind == Question.GET_ADAPTER:
            named = (adapter for adapter in adapters if not ca or adapter.name == ca)
            return self._adapter_facts(next(named, None))
        located = find_port(self.devices, adapters, ca, number)
        if located is None:
            raise OSError(errno.ENODEV, "no such port")
        adapter, port = located
        slot = self.devices.slot(adapter.node, port)
        if slot in self.devices.ethernet and kind in (Question.OPEN_PORT, Question.SET_IS_SM):
            raise OSError(errno.ENODEV, "an Ethernet port has no MADs")
        if adapter.role is Role.GSI and kind in (Question.OPEN_PORT, Question.SET_IS_SM):
            slot = leading_port(self.devices, slot)
        if kind == Question.OPEN_PORT:
            connection.port = _Port(next(self._numbers), slot, connection.host, adapter.role)
            self._ports[connection.port.number] = connection.port
            return LENGTH.pack(connection.port.number)
        if kind == Question.SET_IS_SM:
            connection.is_sm_slot = slot
            self._count_sm(slot, 1)
            return b""
        return self._port_facts(adapter, port, slot)

    def _adapter_facts(self, adapter: Adapter | None) -> bytes:
        if adapter is None:
            raise OSError(errno.ENODEV, "no such adapter")
        info = self.devices.node_info[adapter.node]
        name, model = adapter.name.encode()[:19], f"MT{NodeInfo.device_id.get(info)}".encode()
        guids = [field.get(info).to_bytes(8, "big") for field in (NodeInfo.node_guid, NodeInfo.system_image_guid)]
        return ADAPTER.pack(name, NodeInfo.node_type.get(info), adapter.last_port, b"1.0.0", model, b"0", *guids)

    def _port_facts(self, adapter: Adapter, port: int, slot: int) -> bytes:
        if slot in self.devices.ethernet:
            return ethernet_umad_port(self.devices, adapter.name, port, slot)
        is_whole = adapter.role is Role.GSI
        info: Buffer = whole_info(self.devices, slot) if is_whole else self.devices.info(slot)
        pkeys = self.devices.tables.pkey[leading_port(self.devices, slot) if is_whole else slot]
        head = PORT.pack(
            adapter.name.encode()[:19],
            port,
            PortInfo.lid.get(info),
            PortInfo.lmc.get(info),
            PortInfo.master_sm_lid.get(info),
            PortInfo.master_sm_sl.get(info),
            PortInfo.port_state.get(info),
            PortInfo.port_physical_state.get(info),
            whole_rate_gbit_s(self.devices, slot) if is_whole else rate_gbit_s(info),
            PortInfo.capability_mask.get(info).to_bytes(4, "big"),
            PortInfo.gid_prefix.get(info).to_bytes(8, "big"),
            self.devices.port_guid(slot),
            len(pkeys),
            b"InfiniBand",
        )
        return head + bytes(pkeys.astype("=u2"))

    def _count_sm(self, slot: int, change: int) -> None:
        self._is_sm[slot] = self._is_sm.get(slot, 0) + change
        self.devices.set_is_sm(slot, bool(self._is_sm[slot]))

    def _open_port(self, connection: _Connection, number: int) -> _Port:
        """Return an open port by number; ports of another machine are accessible to that machine only."""
        port = self._ports[number]
        if port.host != connection.host:
            raise KeyError(number)
        return port

    def _register(self, port: _Port, *fields: int) -> int:
        mgmt_class, version, rmpp_version, flags, oui, low, high = fields
        if port.role is Role.GSI and mgmt_class in SMP_CLASSES:
            raise OSError(errno.EPROTONOSUPPORT, "the device has no SMI")
        connection = self._connection_of(port)
        free = next((n for n in range(AGENTS_PER_PORT) if n not in port.agents), None)
        if free is None:
            raise OSError(errno.ENOMEM, "too many agents")
        asked_for = Agent(
            slot=port.slot,
            push=partial(self._push, connection, free),
            mgmt_class=mgmt_class,
            version=version,
            methods=high << 64 | low,
            oui=oui,
            does_rmpp=bool(rmpp_version) and not flags & USER_RMPP,
        )
        port.agents[free] = self.agents.register(asked_for)
        self._make_hot(connection)
        return free

    def _connection_of(self, port: _Port) -> _Connection:
        return next(connection for connection in self if connection.port is port)

    # -- MADs --

    def _make_hot(self, connection: _Connection) -> None:
        """Let the kernel answer a program that sweeps, as long as nothing is queued for it here."""
        port = connection.port
        if self._fast_path is None or port is None:
            return
        connection.fast_path = connection.socket.fileno()
        self._fast_path.forget(connection.fast_path)
        if any(agent.mgmt_class == MgmtClass.SUBN_DIRECTED_ROUTE for agent in port.agents.values()):
            line = Line(
                slot=port.slot,
                tids={number: agent.high_tid for number, agent in port.agents.items()},
                is_idle=lambda: not (connection.received or connection.unsent),
                take_bytes=lambda answers, requests: self._take_back(connection, answers, requests),
            )
            self._fast_path.add(connection.fast_path, line)

    def _take_back(self, connection: _Connection, answers: bytes, requests: bytes) -> None:
        if answers:
            self.write(connection, answers)
        connection.received += requests
        if connection.port is not None:
            self._take_frames(connection.port, connection.received)

    def _take_frames(self, port: _Port, received: bytearray) -> None:
        at = 0
        while len(received) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(received, at)
            end = at + LENGTH.size + length
            if len(received) < end:
                break
            frame = bytes(received[at + LENGTH.size : end])
            at = end
            if length < USER_MAD.size + RmppMad.size:
                continue
            number, _, timeout_ms, retries, _, _, _, lid, pkey = USER_MAD.unpack_from(frame)
            agent = port.agents.get(number)
            if agent is not None:
                self.agents.send(agent, frame[USER_MAD.size :], int.from_bytes(lid, "big"), timeout_ms, retries, pkey)
        del received[:at]

    def _push(
        self, connection: _Connection, agent: int, message: bytes, lid: int, status: int, pkey_index: int
    ) -> None:
        queue_pair, q_key = (0, 0) if message[1] in SMP_CLASSES else (1, QP1_Q_KEY)
        to = (queue_pair.to_bytes(4, "big"), q_key.to_bytes(4, "big"), lid.to_bytes(2, "big"))
        length = USER_MAD.size + len(message)
        head = USER_MAD.pack(agent, status, 0, 0, length, *to, pkey_index)
        message = message.ljust(MAD_BYTES, b"\0")  # `length` is what counts
        if not self.push(connection, LENGTH.pack(USER_MAD.size + len(message)) + head + message):
            assert connection.port is not None
            self.errors.overrun(self.devices, connection.port.slot, message[1])


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode(errors="replace")
