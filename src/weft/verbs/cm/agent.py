"""Implement queue pair 1 of an adapter, which receives connection requests.

One process of this user and network namespace claims an address, a port or a service. A claim is a Unix socket, so it
ends with its process. On systems other than Linux there are no claims.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import hashlib
import os
import secrets
import sys
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from weft import runtime
from weft.verbs.attributes.address import read_route
from weft.verbs.carriers.places import place
from weft.verbs.cm.connection import CmConnection, CmNotice, Phase, Side
from weft.verbs.enums import ibv_qp_state
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.datagram import Datagrams
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.segment import PSN_MASK, Op, Segment, Service
from weft.wire import cm
from weft.wire.format import Format


class Kind(StrEnum):
    SERVICE = "service"  # has a listener
    PORT = "port"  # bound
    PROCESS = "process"  # a process itself, for checks that it is alive
    REQUEST = "request"  # received, by the requester's GID and ID: its listener may have closed


class Claim:
    """A claim of one process on a service of a GID. Creating it raises OSError if another process has it."""

    def __init__(self, gid: int, service: int, kind: Kind = Kind.SERVICE) -> None:
        self._held = runtime.Inbox(_path(gid, service, kind)) if sys.platform == "linux" else None

    def close(self) -> None:
        if self._held is not None:
            self._held.close()


def is_claimed(gid: int, service: int, kind: Kind = Kind.SERVICE) -> bool:
    return sys.platform == "linux" and runtime.is_alive(_path(gid, service, kind))


def _path(gid: int, service: int, kind: Kind) -> Path:
    """Return the path of a claim's socket: a digest, because such a path must be short."""
    network = os.stat("/proc/self/ns/net").st_ino  # addresses are per network namespace
    digest = hashlib.sha256(f"{network} {gid} {service}".encode()).hexdigest()[:16]
    return place() / f"{kind}-{digest}"


QP1, QP1_KEY = 1, 0x8001_0000
_PORT_SPACE_SHIFT = 16
_REMEMBERED = 1024
_CHECK_S = 1.0  # interval between checks whether the peers' processes are alive
_NUMBERS = {form: number for number, form in cm.ATTRIBUTES.items()}
_PORT = slice(2, 4)  # the requester's port in the private data


def service_id(port_space: int, port: int) -> int:
    """Return the ID of a service of the connection manager (annex A11, "RDMA IP CM Service")."""
    return port_space << _PORT_SPACE_SHIFT | port


class Agent(Datagrams):
    """The agent at queue pair 1 of an adapter: its connections, and its listeners for new ones.

    The adapter calls its timer, as it calls the `requester` of other queue pairs.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self.listeners: dict[int, Callable[[CmConnection, bytes], None]] = {}
        self.connections: dict[int, CmConnection] = {}
        self._requests: dict[tuple[tuple[int, int], int], CmConnection] = {}  # by the requester and its connection ID
        self._claims: dict[int, Claim] = {}  # of requests, by the connection ID
        self._ended: deque[int] = deque(maxlen=_REMEMBERED)  # IDs of connections that ended
        self._begin, self._claim = _claimed()
        self._check_s = 0.0

    def open_connection(
        self, to: tuple[int, int], tell: Callable[[CmNotice], None], *, is_datagram: bool
    ) -> CmConnection:
        number = self._begin | secrets.randbits(16)  # unique among all processes that receive at queue pair 1
        while number in self.connections or number in self._ended:
            number = self._begin | secrets.randbits(16)
        connection = CmConnection(agent=self, to=to, local_id=number, tell=tell, is_datagram=is_datagram)
        self.connections[number] = connection
        return connection

    def now_s(self) -> float:
        return self.qp.adapter.clock()

    def forget(self, ended: CmConnection) -> None:
        if self.connections.pop(ended.local_id, None) is not None:
            self._ended.append(ended.local_id)
        self._requests.pop((ended.to, ended.remote_id), None)
        self._release(ended)

    def _release(self, settled: CmConnection) -> None:
        """Give up the claim of a request that is not repeated any more."""
        if (claim := self._claims.pop(settled.local_id, None)) is not None:
            claim.close()

    def send(self, message: Format, *, to: tuple[int, int]) -> None:
        mad = cm.CmMad(attribute_id=_NUMBERS[type(message)], data=message.raw)
        segment = Segment(
            op=Op.SEND,
            service=Service.UD,
            dest_qp=QP1,
            psn=self.qp.record.next_psn,
            source_qp=QP1,
            q_key=QP1_KEY,
            payload=mad.raw,
        )
        self.qp.record.next_psn = self.qp.record.next_psn + 1 & PSN_MASK
        self.qp.adapter.send(self.qp, segment, to)
        self.qp.adapter.arm_timer(self.qp)

    def end(self) -> None:
        """End all connections when the process ends, as a kernel does for open files."""
        with contextlib.suppress(OSError), self.qp.adapter.lock:
            for connection in list(self.connections.values()):
                connection.close()

    # -- as a queue pair ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do nothing: messages are sent at once."""

    def next_s(self) -> float | None:
        due_s = [connection.due_s for connection in self.connections.values() if connection.due_s is not None]
        if any(connection.is_connected for connection in self.connections.values()):
            due_s.append(self._check_s)
        return min(due_s, default=None)

    def on_timer(self, now_s: float) -> None:
        for connection in list(self.connections.values()):
            if connection.due_s is not None and connection.due_s <= now_s:
                connection.on_timer(now_s)
        if now_s >= self._check_s:
            self._check_s = now_s + _CHECK_S
            self._check_peers()

    def _check_peers(self) -> None:
        """End connections to killed processes of this machine, as their kernel would."""
        connected = [connection for connection in self.connections.values() if connection.is_connected]
        processes = {connection.remote_id >> 16 for connection in connected}
        is_alive = {number: is_claimed(number, 0, Kind.PROCESS) for number in processes}
        for connection in connected:
            if connection.was_seen and not is_alive[connection.remote_id >> 16]:
                connection.on_gone()

    def on_request(self, segment: Segment, grh: bytes, slid: int, sl: int) -> None:
        if len(segment.payload) != cm.CmMad.size:
            return
        mad = cm.CmMad.unpack(bytes(segment.payload))
        form = cm.ATTRIBUTES.get(mad.attribute_id)
        if mad.mgmt_class != cm.CmMad().mgmt_class or form is None:
            return
        route, own = read_route(grh)
        source = int.from_bytes(route.raw_dgid, "big"), int.from_bytes(own, "big")
        self._on_message(form.unpack(mad.data), source)

    # -- messages -----------------------------------------------------------------------------------------------------

    def _on_message(self, message: Format, source: tuple[int, int]) -> None:
        if isinstance(message, cm.Req | cm.SidrReq):
            self._on_new(message, source)
            return
        number = message.request_id if isinstance(message, cm.SidrRep) else getattr(message, "remote_comm_id", -1)
        connection = self.connections.get(number)
        if isinstance(message, cm.Rej) and not message.remote_comm_id:  # the requester gave up before the reply
            connection = self._requests.get((source, message.local_comm_id))
        if connection is None:
            if isinstance(message, cm.Dreq) and number in self._ended:  # the DREP was lost
                reply = cm.Drep(local_comm_id=message.remote_comm_id, remote_comm_id=message.local_comm_id)
                self.send(reply, to=source)
            return
        if (handler := _HANDLERS.get(type(message))) is not None:
            handler(connection, message)
        if isinstance(message, cm.Rtu):
            self._release(connection)
        if isinstance(message, cm.Rep | cm.Rtu):
            connection.was_seen = is_claimed(connection.remote_id >> 16, 0, Kind.PROCESS)
        self.qp.adapter.arm_timer(self.qp)

    def _on_new(self, message: cm.Req | cm.SidrReq, source: tuple[int, int]) -> None:
        is_datagram = isinstance(message, cm.SidrReq)
        number = message.request_id if isinstance(message, cm.SidrReq) else message.local_comm_id
        repeated = self._requests.get((source, number))
        if repeated is not None:
            repeated.on_req()
            return
        listener = self.listeners.get(message.service_id)
        if listener is None and (
            is_claimed(source[1], message.service_id) or is_claimed(source[0], number, Kind.REQUEST)
        ):
            return  # another process with the same address replies
        connection = self.open_connection(source, _ignore, is_datagram=is_datagram)
        connection.remote_id, connection.service = number, message.service_id
        connection.phase = Phase.REQUEST_RECEIVED
        self._requests[source, number] = connection
        if isinstance(message, cm.Req):
            connection.far = Side.of(message)
        connection.far.port = int.from_bytes(message.private_data[_PORT], "big")
        if listener is not None:
            self._claims[connection.local_id] = Claim(source[0], number, Kind.REQUEST)
            listener(connection, message.private_data)
        else:
            connection.reject(reason=cm.RejReason.INVALID_SERVICE_ID)


def _claimed() -> tuple[int, Claim]:
    """Claim the upper half of this process's connection IDs, by which others check that the process is alive."""
    while True:
        half = secrets.randbits(16)
        try:
            return half << 16, Claim(half, 0, Kind.PROCESS)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def _ignore(notice: CmNotice) -> None:
    """Ignore a notice: the request has no owner yet."""


_HANDLERS: dict[type[Format], Callable[..., None]] = {
    cm.Mra: CmConnection.on_mra,
    cm.Rep: CmConnection.on_rep,
    cm.Rtu: CmConnection.on_rtu,
    cm.Rej: CmConnection.on_rej,
    cm.Dreq: CmConnection.on_dreq,
    cm.Drep: CmConnection.on_drep,
    cm.SidrRep: CmConnection.on_sidr_rep,
}


def agent_of(adapter: Adapter) -> Agent:
    """Return the agent at queue pair 1 of an adapter; the first call creates it."""
    if QP1 not in adapter.queue_pairs:
        unused = CompletionQueue(1)
        qp = QueuePair(
            adapter=adapter,
            number=QP1,
            service=Service.UD,
            pd=adapter,
            send_cq=unused,
            recv_cq=unused,
            receives=ReceiveQueue(0, 0),
            send_capacity=0,
            send_places_max=0,
            inline_max=0,
            signal_all=False,
        )
        qp.state, qp.settings.q_key = ibv_qp_state.IBV_QPS_RTS, QP1_KEY
        agent = Agent(qp)
        qp.datagrams = qp.requester = agent  # type: ignore[assignment]
        atexit.register(agent.end)
        adapter.queue_pairs[QP1] = qp
    existing = adapter.queue_pairs[QP1].datagrams
    assert isinstance(existing, Agent)
    return existing
