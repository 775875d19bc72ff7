"""Implement one end of a connection: the messages it sends, receives, and repeats until a reply comes.

      active                       passive
      connect   REQ ----------->   CONNECT_REQUEST
      CONNECT_RESPONSE <---- REP   accept             (or REJ: reject)
      establish RTU ----------->   ESTABLISHED
      disconnect DREQ --------->   DISCONNECTED
      DISCONNECTED <------- DREP   disconnect

For datagrams there is one request and one reply, SIDR_REQ and SIDR_REP. A message that needs a reply is repeated until
it comes. An MRA acknowledges a message whose reply takes longer. (InfiniBand Architecture volume 1, "Communication
Management"; services are numbered as in annex A11, "RDMA IP CM Service", whose private data begins with the addresses.)
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from weft.verbs.enums.cm import rdma_cm_event_type
from weft.wire import cm
from weft.wire.format import Format

SIDR_REJECTED = 2
MTU_4096 = 5
ADDRESSES_BYTES = 36  # at the beginning of a request's private data: version, port, both addresses
RETRIES = 15
ANSWER_S = 0.25  # wait for a reply before a message is repeated
_MRA_REQ, _MRA_REP = 0, 1
_SERVICE_TIMEOUT = 22  # 4.096 us times 2**22, 17 s
_E = rdma_cm_event_type


class Phase(Enum):
    IDLE = auto()
    REQUEST_SENT = auto()  # REQ or SIDR_REQ
    REQUEST_RECEIVED = auto()
    REPLY_SENT = auto()  # REP
    REPLY_RECEIVED = auto()  # the queue pair is not ready yet
    CONNECTED = auto()
    DISCONNECT_SENT = auto()  # DREQ
    DISCONNECT_RECEIVED = auto()
    ENDED = auto()


@dataclass(slots=True, kw_only=True)
class Side:
    """The parameters of one end."""

    qp_num: int = 0
    psn: int = 0
    q_key: int = 0
    resources: int = 0  # READs and atomics that it accepts at a time
    depth: int = 0  # READs and atomics that it issues at a time
    retry_count: int = 0
    rnr_retry_count: int = 0
    srq: bool = False
    private_data: bytes = b""
    port: int = 0  # the requester's

    @classmethod
    def of(cls, message: cm.Req | cm.Rep) -> Side:
        return cls(
            qp_num=message.local_qpn,
            psn=message.starting_psn,
            resources=message.responder_resources,
            depth=message.initiator_depth,
            retry_count=message.retry_count if isinstance(message, cm.Req) else 0,
            rnr_retry_count=message.rnr_retry_count,
            srq=bool(message.srq),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CmNotice:
    """A notice of a connection to its owner."""

    kind: rdma_cm_event_type
    connection: CmConnection | None = None
    group: int = 0  # the joined multicast group
    status: int = 0
    private_data: bytes = b""


class MessageSender(Protocol):
    """The interface of queue pair 1 to its connections."""

    def send(self, message: Format, *, to: tuple[int, int]) -> None: ...

    def forget(self, ended: CmConnection) -> None: ...

    def now_s(self) -> float: ...


@dataclass(slots=True, eq=False, kw_only=True)
class CmConnection:
    """An end of a connection in any phase. `to` is (GID of the peer, own GID)."""

    agent: MessageSender
    to: tuple[int, int]
    local_id: int
    tell: Callable[[CmNotice], None]
    remote_id: int = 0
    is_datagram: bool = False
    is_active: bool = False
    phase: Phase = Phase.IDLE
    own: Side = field(default_factory=Side)
    far: Side = field(default_factory=Side)
    service: int = 0
    last: Format | None = None  # repeated by the timer, or when the peer repeats its message
    due_s: float | None = None
    left: int = 0
    was_seen: bool = False  # the peer's process is on this machine
    has_addresses: bool = True  # before the private data of a request

    @property
    def is_connected(self) -> bool:
        return self.phase == Phase.CONNECTED and not self.is_datagram

    @property
    def is_up(self) -> bool:
        """The property that the connection can be ended."""
        return self.phase in (Phase.CONNECTED, Phase.REPLY_SENT, Phase.REPLY_RECEIVED, Phase.DISCONNECT_RECEIVED)

    # -- calls of the owner -------------------------------------------------------------------------------------------

    def connect(self, service: int, own: Side) -> None:
        self.service, self.own, self.is_active, self.phase = service, own, True, Phase.REQUEST_SENT
        if self.is_datagram:
            data = self._request_data(own)
            self._send_and_wait(
                cm.SidrReq(request_id=self.local_id, partition_key=0xFFFF, service_id=service, private_data=data)
            )
            return
        path = cm.ReqPath(local_port_gid=self.to[1], remote_port_gid=self.to[0], hop_limit=64, local_port_lid=0xFFFF)
        req = cm.Req(
            local_comm_id=self.local_id,
            service_id=service,
            local_qpn=own.qp_num,
            responder_resources=own.resources,
            initiator_depth=own.depth,
            transport_service_type=cm.TransportService.RC,
            starting_psn=own.psn,
            retry_count=own.retry_count,
            rnr_retry_count=own.rnr_retry_count,
            partition_key=0xFFFF,
            path_packet_payload_mtu=MTU_4096,
            max_cm_retries=RETRIES,
            srq=own.srq,
            primary=path,
            private_data=self._request_data(own),
        )
        self._send_and_wait(req)

    def accept(self, own: Side) -> None:
        self.own = own
        if self.is_datagram:
            self._answer_datagram(0, own)
            return
        self.phase = Phase.REPLY_SENT
        rep = self._message(
            cm.Rep,
            local_qpn=own.qp_num,
            starting_psn=own.psn,
            responder_resources=own.resources,
            initiator_depth=own.depth,
            rnr_retry_count=own.rnr_retry_count,
            srq=own.srq,
            private_data=own.private_data,
        )
        self._send_and_wait(rep)

    def reject(self, private_data: bytes = b"", reason: cm.RejReason = cm.RejReason.CONSUMER_DEFINED) -> None:
        if self.is_datagram:
            self._answer_datagram(SIDR_REJECTED, Side(private_data=private_data))
        else:
            self._send(self._message(cm.Rej, reason=reason, private_data=private_data))
        self._end()

    def establish(self) -> None:
        """Complete the connection: the queue pair is ready."""
        self.phase = Phase.CONNECTED
        self._send(self._message(cm.Rtu))

    def disconnect(self) -> None:
        if self.phase in (Phase.CONNECTED, Phase.REPLY_SENT, Phase.REPLY_RECEIVED):
            self.phase = Phase.DISCONNECT_SENT
            self._send_and_wait(self._message(cm.Dreq, remote_qpn_eecn=self.far.qp_num))
        elif self.phase == Phase.DISCONNECT_RECEIVED:
            self._send(self._message(cm.Drep))
            self._end()

    def close(self) -> None:
        """End the connection without an owner; the message to the peer is sent once."""
        if self.is_up:
            self.disconnect()
        elif self.phase == Phase.REQUEST_RECEIVED:
            self.reject()
        elif self.phase == Phase.REQUEST_SENT and not self.is_datagram:
            self._send(self._message(cm.Rej, reason=cm.RejReason.TIMEOUT))
        self._end()

    # -- messages of the peer -----------------------------------------------------------------------------------------

    def on_rep(self, rep: cm.Rep) -> None:
        if self.phase == Phase.CONNECTED:
            self._repeat()  # the RTU was lost
        elif self.phase == Phase.REPLY_RECEIVED:
            self._send_mra(_MRA_REP)
        elif self.phase == Phase.REQUEST_SENT:
            self.remote_id, self.phase, self.due_s = rep.local_comm_id, Phase.REPLY_RECEIVED, None
            self.far = Side.of(rep)
            self._tell(_E.RDMA_CM_EVENT_CONNECT_RESPONSE, private_data=rep.private_data)

    def on_req(self) -> None:
        """Handle a repeated request: the reply was lost, or there is none yet."""
        if self.phase in (Phase.REPLY_SENT, Phase.CONNECTED):
            self._repeat()
        elif self.phase == Phase.REQUEST_RECEIVED and not self.is_datagram:
            self._send_mra(_MRA_REQ)

    def on_mra(self, mra: cm.Mra) -> None:
        self.left = RETRIES

    def on_rtu(self, rtu: cm.Rtu) -> None:
        if self.phase == Phase.REPLY_SENT:
            self.phase, self.due_s = Phase.CONNECTED, None
            self._tell(_E.RDMA_CM_EVENT_ESTABLISHED, private_data=rtu.private_data)

    def on_rej(self, rej: cm.Rej) -> None:
        if self.phase in (Phase.REQUEST_SENT, Phase.REQUEST_RECEIVED, Phase.REPLY_SENT, Phase.REPLY_RECEIVED):
            self._end()
            self._tell(_E.RDMA_CM_EVENT_REJECTED, int(rej.reason), rej.private_data)

    def on_first_message(self) -> None:
        """Complete the connection when the queue pair receives a message: the peer has the reply."""
        self.on_rtu(cm.Rtu())

    def on_dreq(self, dreq: cm.Dreq) -> None:
        if self.phase == Phase.DISCONNECT_SENT:  # both at once
            self._send(self._message(cm.Drep))
            self._end()
        elif self.phase in (Phase.CONNECTED, Phase.REPLY_SENT, Phase.REPLY_RECEIVED):
            self.phase, self.due_s = Phase.DISCONNECT_RECEIVED, None
        else:
            return
        self._tell(_E.RDMA_CM_EVENT_DISCONNECTED, private_data=dreq.private_data)

    def on_gone(self) -> None:
        """Handle the end of the peer's process."""
        self.phase, self.due_s = Phase.DISCONNECT_RECEIVED, None
        self._tell(_E.RDMA_CM_EVENT_DISCONNECTED)

    def on_drep(self, drep: cm.Drep) -> None:
        if self.phase == Phase.DISCONNECT_SENT:
            self._end()
            self._tell(_E.RDMA_CM_EVENT_DISCONNECTED, private_data=drep.private_data)

    def on_sidr_rep(self, rep: cm.SidrRep) -> None:
        if self.phase != Phase.REQUEST_SENT:
            return
        self._end()
        self.far = Side(qp_num=rep.qpn, q_key=rep.q_key)
        kind = _E.RDMA_CM_EVENT_UNREACHABLE if rep.status else _E.RDMA_CM_EVENT_ESTABLISHED
        self._tell(kind, rep.status, rep.private_data)

    def on_timer(self, now_s: float) -> None:
        """Repeat a message whose reply is missing, or give up."""
        if self.left:
            self.left -= 1
            self.due_s = now_s + ANSWER_S
            self._repeat()
            return
        lost = _E.RDMA_CM_EVENT_DISCONNECTED if self.phase == Phase.DISCONNECT_SENT else _E.RDMA_CM_EVENT_UNREACHABLE
        self._end()
        self._tell(lost, -errno.ETIMEDOUT)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _request_data(self, own: Side) -> bytes:
        """Return the private data of a request: the addresses, then the caller's data."""
        if not self.has_addresses:
            return own.private_data
        theirs, ours = (gid.to_bytes(16, "big") for gid in self.to)
        version = 4 if theirs[:12] == bytes(10) + b"\xff\xff" else 6
        if version == 4:
            theirs, ours = bytes(12) + theirs[12:], bytes(12) + ours[12:]
        return bytes((0, version << 4)) + own.port.to_bytes(2, "big") + ours + theirs + own.private_data

    def _answer_datagram(self, status: int, own: Side) -> None:
        rep = cm.SidrRep(
            request_id=self.remote_id,
            status=status,
            qpn=own.qp_num,
            q_key=own.q_key,
            service_id=self.service,
            private_data=own.private_data,
        )
        self.phase = Phase.CONNECTED
        self._send(rep)

    def _message(self, form: type[Format], **fields: Any) -> Format:
        """Return a message with the connection IDs of both ends."""
        return form(local_comm_id=self.local_id, remote_comm_id=self.remote_id, **fields)

    def _send_and_wait(self, message: Format) -> None:
        self.left, self.due_s = RETRIES, self.agent.now_s() + ANSWER_S
        self._send(message)

    def _send_mra(self, message: int) -> None:
        mra = self._message(cm.Mra, message_mraed=message, service_timeout=_SERVICE_TIMEOUT)
        self.agent.send(mra, to=self.to)

    def _send(self, message: Format) -> None:
        self.last = message
        self._repeat()

    def _repeat(self) -> None:
        if self.last is not None:
            self.agent.send(self.last, to=self.to)

    def _end(self) -> None:
        self.phase, self.due_s = Phase.ENDED, None
        self.agent.forget(self)

    def _tell(self, kind: rdma_cm_event_type, status: int = 0, private_data: bytes = b"") -> None:
        self.tell(CmNotice(kind=kind, connection=self, status=status, private_data=private_data))
