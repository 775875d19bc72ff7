"""Serves ibsim's protocol: unmodified programs attach through Debian's libumad2sim as if weft were ibsim.

    @sim:ctl      requests of all clients: connect, disconnect, and values of libumad2sim's simulated sysfs
    @sim:outN     MADs of client N; the client's end is @sim:inPID

Every request is answered or comes back as timed out: libumad2sim keeps no time, and OpenSM waits for ever for a MAD
that does neither. Nothing here waits for a client: what does not fit into its socket is queued, and what does not fit
into the queue is lost. What a client does wrong is counted in `errors`, logged once, and otherwise ignored.

Anybody on the machine can find the names and send to them: who sent a datagram is looked at before what it says.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from functools import partial
from typing import Any

from weft import runtime
from weft.errors import ConfigError
from weft.lab import protocol
from weft.lab.clients import Client, free_number, pick
from weft.lab.event_loop import EventLoop
from weft.lab.fast_path import Ancillary
from weft.lab.places import Places
from weft.lab.protocol import CLIENT_INFO, CONTROL, CONTROL_DATA_BYTES, DATA_BYTES, HEADER_BYTES, MAGIC, VENDOR, Control
from weft.lab.streams import ErrorCounts
from weft.mad.devices import Devices
from weft.mad.subnet import Arrival, Subnet
from weft.units import format_items
from weft.wire.mad import RESPONSE, Method, MgmtClass
from weft.wire.port_info import PortInfo
from weft.wire.smp import PERMISSIVE_LID, NodeInfo

_FIRMWARE = 1


def control_answer(subnet: Subnet, slot: int, kind: int, data: bytes) -> bytes:
    """Return the data of the answer to a GET."""
    devices = subnet.devices
    node = devices.node_of[slot]
    nodes = devices.fabric.nodes
    if kind == Control.GET_NODEINFO:
        return _node_info(devices, node, slot)
    if kind == Control.GET_PORTINFO:
        number = data[0]
        requested = devices.slot(node, number) if 0 < number <= devices.last_port[node] else slot
        return bytes(devices.info(requested))
    if kind == Control.GET_PKEYS:
        return devices.tables.pkey[slot, :32].astype(">u2").tobytes()
    if kind == Control.GET_VENDOR:
        return VENDOR.pack(int(nodes.vendor_id[node]), int(nodes.device_id[node]), 0, _FIRMWARE)
    if kind == Control.GET_PORT:
        return subnet.lid(slot).to_bytes(2, "little") + bytes([PortInfo.port_state.get(devices.info(slot))])
    if kind == Control.GET_GUID:
        return int(nodes.guid[node]).to_bytes(8, "little")
    if kind == Control.GET_GID:
        prefix = PortInfo.gid_prefix.get(devices.info(devices.own_slot(slot)))
        return int(prefix).to_bytes(8, "big") + int(nodes.guid[node]).to_bytes(8, "big")
    raise ConfigError(f"there is no control request {kind}")


def _node_info(devices: Devices, node: int, slot: int) -> bytes:
    info = bytearray(devices.node_info[node])
    NodeInfo.local_port_num.set(info, devices.number(slot))
    if not devices.is_switch[node]:
        NodeInfo.port_guid.set(info, int(devices.fabric.ports.guid[slot]))
    return bytes(info)


ANSWER_S = 0.9  # how long a program may take to answer another; libibmad gives up after 1 s
LIVENESS_S = 2.0
_BATCH = 64  # datagrams of one client before others have their turn
_RETRIES = 3  # retries of a MAD lost on a bad cable, as the kernel does for OpenSM
_SEND_BYTES = 4 << 20
_QUEUE = 1 << 14  # MADs that wait for a client
_UNANSWERED = frozenset((Method.SEND, Method.TRAP, Method.TRAP_REPRESS))


class Server(EventLoop):
    """A server of one subnet, to programs attached through ibsim's protocol or through other services."""

    def __init__(self, subnet: Subnet, base: str = "sim", errors: ErrorCounts | None = None) -> None:
        super().__init__(subnet, errors)
        self.subnet, self.base = subnet, base
        self.places = Places(subnet.devices)
        self.clients: dict[int, Client] = {}
        self.at: dict[int, list[Client]] = {}  # slot -> clients attached there
        self._pending: dict[bytes, tuple[Client, bytes, float]] = {}  # transaction id -> sender, request, deadline
        self._unsent: set[Client] = set()
        self._sender: Client | None = None  # the current MAD
        self._last = -1  # number that was assigned to a client
        self._inbox = bytearray(2 * DATA_BYTES)
        self._control = self._open("ctl")
        self._watch(self._control.fileno(), self._on_control)
        self._check_at_s = time.monotonic() + LIVENESS_S
        subnet.deliver = self._deliver

    def close(self) -> None:
        for client in list(self.clients.values()):
            self.drop(client)
        self._control.close()
        super().close()

    def _open(self, end: str, to: str = "") -> socket.socket:
        try:
            return runtime.abstract(protocol.address(self.base, end), protocol.address(self.base, to) if to else b"")
        except OSError as error:
            raise ConfigError(f"{error.strerror}; the socket {self.base}:{end} is needed") from None

    # -- time -----------------------------------------------------------------------------------------------------

    def _has_deadlines(self) -> bool:
        return bool(self._pending or self.subnet.devices.traps.pending)

    def _on_tick(self, now_s: float) -> None:
        """Return unanswered requests as timed out, repeat traps, and drop clients whose process died."""
        while self._pending:
            key, (client, request, until_s) = next(iter(self._pending.items()))
            if until_s > now_s:
                break
            del self._pending[key]
            self._push(client, protocol.timed_out(request, request[HEADER_BYTES:]))
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + LIVENESS_S
            self.subnet.due()
            for client in [client for client in self.clients.values() if not client.lives(self.base)]:
                self.errors.note("a client died without disconnecting", f"process {client.pid} at {client.name}")
                self.drop(client)

    def _end_round(self) -> None:
        if self.subnet.devices.traps.pending:
            self.subnet.due()
        while self._unsent:
            self._flush(self._unsent.pop())

    # -- control --------------------------------------------------------------------------------------------------

    def _on_control(self, mask: int) -> None:
        for _ in range(_BATCH):
            try:
                raw, extra, _, address = self._control.recvmsg(2 * CONTROL.size, runtime.CREDENTIALS_BYTES)
            except OSError:
                return
            sender = runtime.sender(extra)
            if not runtime.is_trusted(sender):
                self._on_stranger(sender)
                continue
            if not protocol.is_control(raw):
                self.errors.note("a control datagram is none", f"{format_items(len(raw), 'byte')}, {raw[:16].hex()}")
                continue
            _, number, kind, length, data = CONTROL.unpack(raw)
            try:
                number, data = self._control_answer(number, kind, data, address, sender.pid)
            except (ConfigError, OSError) as error:
                self.errors.note("a control request is refused", f"kind {kind} of process {sender.pid}: {error}")
                kind, data = Control.ERROR, protocol.reason(error)
            with contextlib.suppress(OSError):  # the client is gone, or does not read
                self._control.sendto(CONTROL.pack(MAGIC, number, kind, length, data), address)

    def _on_stranger(self, sender: runtime.Credentials) -> None:
        self.errors.note("another user is not let in", f"process {sender.pid} of user {sender.uid}")

    def _control_answer(self, number: int, kind: int, data: bytes, address: bytes, pid: int) -> tuple[int, bytes]:
        if kind == Control.CONNECT:
            return self._connect(data, address, pid)
        client = self.clients.get(number)
        if client is None or client.control != address:
            raise ConfigError(f"client {number} is not that of {address!r}")
        if kind == Control.DISCONNECT:
            self.drop(client)
            return number, b""
        if kind == Control.SET_ISSM:
            self._set_is_sm(client, bool(struct.unpack_from("=i", data)[0]))
            return number, data
        reply = control_answer(self.subnet, client.slot, kind, data)
        return number, reply.ljust(CONTROL_DATA_BYTES, b"\0")

    def _connect(self, data: bytes, address: bytes, pid: int) -> tuple[int, bytes]:
        named, queue_pair, is_sm, name = CLIENT_INFO.unpack_from(data)
        slot = self.places.find(name.split(b"\0")[0].decode(errors="replace"))
        for old in [client for client in self.clients.values() if client.pid == named]:
            self.drop(old)  # the process number came round, or its program began anew
        number = free_number(self.clients, self._last)
        data_socket = self._open(f"out{number}", to=f"in{named}")
        data_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        client = Client(number, slot, self.places.name(slot), socket=data_socket, pid=named, control=address)
        self.clients[number], self._last = client, number
        self.at.setdefault(slot, []).append(client)
        self._watch(data_socket.fileno(), partial(self._on_data, client))
        self._watch_process(client, pid)
        if is_sm:
            self._set_is_sm(client, True)
        return number, CLIENT_INFO.pack(number, queue_pair, is_sm, client.name.encode()[: protocol.NAME_BYTES])

    def _watch_process(self, client: Client, pid: int) -> None:
        """Drop the client as soon as its process ends. `pid` is from the kernel; 0 if it is in another namespace."""
        with contextlib.suppress(OSError):
            client.process = os.pidfd_open(pid) if pid > 0 else -1
            if client.process >= 0:
                self._watch(client.process, lambda mask: self.drop(client))

    def drop(self, client: Client) -> None:
        if self.clients.pop(client.number, None) is None:
            return
        self._set_is_sm(client, False)
        self.at[client.slot].remove(client)
        self._unsent.discard(client)
        self.fast_path.forget(client.socket.fileno())
        self._unwatch(client.socket.fileno())
        client.socket.close()
        if client.process >= 0:
            self._unwatch(client.process)
            os.close(client.process)
        for key in [key for key, entry in self._pending.items() if entry[0] is client]:
            del self._pending[key]

    def _set_is_sm(self, client: Client, on: bool) -> None:
        managers = [other for other in self.at.get(client.slot, ()) if other is not client and other.is_sm]
        if on and managers:
            raise ConfigError(f"process {managers[0].pid} is the subnet manager at {client.name} already")
        if client.is_sm != on:
            client.is_sm = on
            self.subnet.devices.set_is_sm(client.slot, on)

    # -- data -----------------------------------------------------------------------------------------------------

    def _on_data(self, client: Client, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._unsent.add(client)
        inbox, receive = self._inbox, client.socket.recv_into
        for _ in range(_BATCH):
            try:
                if not client.is_known and not self._is_owner(client):
                    return
                size = receive(inbox)
            except BlockingIOError:
                return
            except OSError:
                self.drop(client)
                return
            self._on_datagram(client, inbox[:size])

    def _on_datagram(self, client: Client, raw: bytearray) -> None:
        if len(raw) == DATA_BYTES:
            self._carry(client, raw)
        else:
            self.errors.note(
                "a data datagram has the wrong size", f"{format_items(len(raw), 'byte')} from {client.name}"
            )

    def _is_owner(self, client: Client) -> bool:
        """Check the sender of a client's first datagram: no other socket can send to the lab's end after it."""
        client.is_known = runtime.is_trusted(sender := runtime.first_sender(client.socket))
        if not client.is_known:
            self._on_stranger(sender)
            self.drop(client)
        return client.is_known

    def _carry(self, client: Client, request: bytearray) -> None:
        """Send a MAD of a client into the subnet, and return the answer of an agent."""
        if request[24:32] != protocol.WHOLE_MAD and not protocol.fill_up(request):
            self.errors.note("a MAD has an impossible length", f"{request[24:32].hex()} from {client.name}")
            self._push(client, protocol.timed_out(request, request[HEADER_BYTES:]))
            return
        dlid = request[0] << 8 | request[1]
        mad = request[HEADER_BYTES:]
        if mad[3] < RESPONSE:
            mad[8:10] = client.tag
            client.classes.add(mad[1])
            if mad[1] == MgmtClass.SUBN_DIRECTED_ROUTE and client.socket.fileno() not in self.fast_path:
                runtime.receive_credentials(client.socket)  # the kernel looks at each
                self.fast_path.add(client.socket.fileno(), client.line(partial(self._take_back, client)))
        self._sender = client
        try:
            # The protocol names no P_Key: everybody reaches the subnet manager by Default's.
            index = None if mad[3] >= RESPONSE else self.subnet.default_pkey_index(client.slot)
            reply = self.subnet.send(client.slot, mad, dlid, index)
        except Exception as error:  # ours, not the program's: it must not end the lab
            self.errors.note(f"a MAD broke an agent: {type(error).__name__}", bytes(mad[:64]).hex(), error)
            self.subnet.lost, reply = True, None
        if reply is None:
            reply = self._after_silence(client, request, mad, dlid)
        self._sender = None  # the next MADs may be for it
        if reply is not None:
            lid = PERMISSIVE_LID if dlid == PERMISSIVE_LID else self.subnet.lid(client.slot)
            self._push(client, protocol.answer_to(request, lid, reply))

    def _take_back(self, client: Client, answers: list[bytes], requests: list[tuple[bytes, Ancillary]]) -> None:
        """Take answers and requests that the kernel left of this client."""
        for packet in answers:
            self._push(client, packet)
        for raw, extra in requests:
            if not extra or runtime.is_from_trusted(
                extra
            ):  # no credentials: sent before the fast path started, by a known client
                self._on_datagram(client, bytearray(raw))
            else:
                self._on_stranger(runtime.sender(extra))

    def _after_silence(self, client: Client, request: bytearray, mad: bytearray, dlid: int) -> bytearray | None:
        """Handle a MAD that no agent answered: wait for a program, or report a timeout. Retry over bad cables."""
        subnet = self.subnet
        if mad[3] >= RESPONSE or mad[3] in _UNANSWERED or protocol.is_receipt(mad):
            return None
        for _ in range(_RETRIES if subnet.devices.erring else 0):
            if not subnet.lost:
                break
            reply = subnet.send(client.slot, mad, dlid, subnet.default_pkey_index(client.slot))
            if reply is not None:
                return reply
        if subnet.lost:
            self._push(client, protocol.timed_out(request, mad))
        else:
            packet = bytes(request[:HEADER_BYTES] + mad)
            entry = client, packet, time.monotonic() + ANSWER_S
            self._pending.setdefault(protocol.transaction(mad), entry)  # repeated, it waits no longer than at first
        return None

    def _deliver(self, arrival: Arrival) -> bool:
        """Deliver a MAD to a program at a port; return False if there is none."""
        client = pick(self.at.get(arrival.slot, ()), arrival.mad, self._sender)
        if client is None:
            return False
        if arrival.mad[3] & RESPONSE:
            self._pending.pop(protocol.transaction(arrival.mad), None)
        self._push(client, protocol.delivered(arrival.dlid, arrival.slid, arrival.mad))
        return True

    def _push(self, client: Client, packet: bytes) -> None:
        """Queue a packet until the end of the round: one wake-up for many answers is faster than one for each."""
        if len(client.queue) < _QUEUE:
            client.queue.append(packet)
            self._unsent.add(client)
        else:
            self.errors.overrun(self.subnet.devices, client.slot, packet[HEADER_BYTES + 1])

    def _flush(self, client: Client) -> None:
        """Send what its socket takes; the rest when it takes more."""
        try:
            is_full = client.flush()
        except OSError:
            self.drop(client)
            return
        if is_full != client.is_full:
            client.is_full = is_full
            self._epoll.modify(client.socket.fileno(), select.EPOLLIN | (select.EPOLLOUT if is_full else 0))

    def state(self) -> dict[str, Any]:
        """Return the state that `weft ps` shows."""
        slots = [client.slot for client in self.clients.values()]
        slots += [slot for service in self._services for slot in service.slots()]
        devices = self.subnet.devices
        return {
            "clients": [
                {
                    "at": self.places.name(slot),
                    "port_guid": int.from_bytes(devices.port_guid(slot), "big"),
                    "is_sm": devices.has_manager(slot),
                }
                for slot in slots
            ],
            "mads": self.subnet.mads,
            "errors": dict(self.errors.counts),
        }
