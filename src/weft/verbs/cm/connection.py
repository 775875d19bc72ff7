"""One end of a connection: what it says, what it is told, and what is said again when no answer comes.

      active                       passive
      connect   REQ ----------->   CONNECT_REQUEST
      CONNECT_RESPONSE <---- REP   accept             (or REJ: reject)
      establish RTU ----------->   ESTABLISHED
      disconnect DREQ --------->   DISCONNECTED
      DISCONNECTED <------- DREP   disconnect

For datagrams there is one question and one answer, SIDR_REQ and SIDR_REP. A message that needs an answer is repeated
until it comes; an owner who takes its time does not end that, for MRA says that the message is there. (InfiniBand
Architecture volume 1, "Communication Management"; services are numbered as in annex A11, "RDMA IP CM Service", whose
private data begins with the addresses.)
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
ANSWER_S = 0.25  # to wait for an answer before asking again
_MRA_REQ, _MRA_REP = 0, 1
_SERVICE_TIMEOUT = 22  # 4.096 us times 2**22, 17 s
_E = rdma_cm_event_type


class Phase(Enum):
    IDLE = auto()
    ASKED = auto()  # sent REQ or SIDR_REQ
    REQUESTED = auto()  # got one
    ACCEPTED = auto()  # sent REP
    ANSWERED = auto()  # got REP, the queue pair is not ready yet
    CONNECTED = auto()
    LEAVING = auto()  # sent DREQ
    LEFT = auto()  # got DREQ
    ENDED = auto()


@dataclass(slots=True, kw_only=True)
class Side:
    """What one end says of itself."""

    qp_num: int = 0
    psn: int = 0
    q_key: int = 0
    resources: int = 0  # READs and atomics that it takes at a time
    depth: int = 0  # and that it sends
    retry_count: int = 0
    rnr_retry_count: int = 0
    srq: bool = False
    private_data: bytes = b""
    port: int = 0  # of its address, if it asks

    @classmethod
    def of(cls, said: cm.Req | cm.Rep) -> Side:
        return cls(
            qp_num=said.local_qpn,
            psn=said.starting_psn,
            resources=said.responder_resources,
            depth=said.initiator_depth,
            retry_count=said.retry_count if isinstance(said, cm.Req) else 0,
            rnr_retry_count=said.rnr_retry_count,
            srq=bool(said.srq),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a conversation tells its owner."""

    kind: rdma_cm_event_type
    conversation: Conversation | None = None
    group: int = 0  # that was joined
    status: int = 0
    private_data: bytes = b""


class Speaker(Protocol):
    """Queue pair 1, as far as a conversation needs it."""

    def say(self, message: Format, *, to: tuple[int, int]) -> None: ...

    def forget(self, ended: Conversation) -> None: ...

    def now_s(self) -> float: ...


@dataclass(slots=True, eq=False, kw_only=True)
class Conversation:
    """One end of a connection that is, or was, or may be. `to` is (their GID, our GID)."""

    agent: Speaker
    to: tuple[int, int]
    local_id: int
    tell: Callable[[Told], None]
    remote_id: int = 0
    is_datagram: bool = False
    is_active: bool = False
    phase: Phase = Phase.IDLE
    own: Side = field(default_factory=Side)
    far: Side = field(default_factory=Side)
    service: int = 0
    last: Format | None = None  # what is repeated, by a clock or when it is asked for again
    due_s: float | None = None
    left: int = 0
    was_seen: bool = False  # the process at the other end
    has_addresses: bool = True  # before the private data of a request

    @property
    def is_connected(self) -> bool:
        return self.phase == Phase.CONNECTED and not self.is_datagram

    @property
    def is_up(self) -> bool:
        """Whether there is something to end."""
        return self.phase in (Phase.CONNECTED, Phase.ACCEPTED, Phase.ANSWERED, Phase.LEFT)

    # -- what its owner does ------------------------------------------------------------------------------------------

    def connect(self, service: int, own: Side) -> None:
        self.service, self.own, self.is_active, self.phase = service, own, True, Phase.ASKED
        if self.is_datagram:
            data = self._first(own)
            self._ask(cm.SidrReq(request_id=self.local_id, partition_key=0xFFFF, service_id=service, private_data=data))
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
            private_data=self._first(own),
        )
        self._ask(req)

    def accept(self, own: Side) -> None:
        self.own = own
        if self.is_datagram:
            self._answer_datagram(0, own)
            return
        self.phase = Phase.ACCEPTED
        rep = self._between(
            cm.Rep,
            local_qpn=own.qp_num,
            starting_psn=own.psn,
            responder_resources=own.resources,
            initiator_depth=own.depth,
            rnr_retry_count=own.rnr_retry_count,
            srq=own.srq,
            private_data=own.private_data,
        )
        self._ask(rep)

    def reject(self, private_data: bytes = b"", reason: cm.RejReason = cm.RejReason.CONSUMER_DEFINED) -> None:
        if self.is_datagram:
            self._answer_datagram(SIDR_REJECTED, Side(private_data=private_data))
        else:
            self._say(self._between(cm.Rej, reason=reason, private_data=private_data))
        self._end()

    def establish(self) -> None:
        """The queue pair takes messages from now on."""
        self.phase = Phase.CONNECTED
        self._say(self._between(cm.Rtu))

    def disconnect(self) -> None:
        if self.phase in (Phase.CONNECTED, Phase.ACCEPTED, Phase.ANSWERED):
            self.phase = Phase.LEAVING
            self._ask(self._between(cm.Dreq, remote_qpn_eecn=self.far.qp_num))
        elif self.phase == Phase.LEFT:
            self._say(self._between(cm.Drep))
            self._end()

    def close(self) -> None:
        """Its owner is gone: what the other end should know is said once."""
        if self.is_up:
            self.disconnect()
        elif self.phase == Phase.REQUESTED:
            self.reject()
        elif self.phase == Phase.ASKED and not self.is_datagram:
            self._say(self._between(cm.Rej, reason=cm.RejReason.TIMEOUT))
        self._end()

    # -- what the other end says --------------------------------------------------------------------------------------

    def on_rep(self, rep: cm.Rep) -> None:
        if self.phase == Phase.CONNECTED:
            self._repeat()  # our RTU was lost
        elif self.phase == Phase.ANSWERED:
            self._ask_for_time(_MRA_REP)
        elif self.phase == Phase.ASKED:
            self.remote_id, self.phase, self.due_s = rep.local_comm_id, Phase.ANSWERED, None
            self.far = Side.of(rep)
            self._tell(_E.RDMA_CM_EVENT_CONNECT_RESPONSE, private_data=rep.private_data)

    def on_req(self) -> None:
        """Again: our answer was lost, or there is none yet."""
        if self.phase in (Phase.ACCEPTED, Phase.CONNECTED):
            self._repeat()
        elif self.phase == Phase.REQUESTED and not self.is_datagram:
            self._ask_for_time(_MRA_REQ)

    def on_mra(self, mra: cm.Mra) -> None:
        self.left = RETRIES

    def on_rtu(self, rtu: cm.Rtu) -> None:
        if self.phase == Phase.ACCEPTED:
            self.phase, self.due_s = Phase.CONNECTED, None
            self._tell(_E.RDMA_CM_EVENT_ESTABLISHED, private_data=rtu.private_data)

    def on_rej(self, rej: cm.Rej) -> None:
        if self.phase in (Phase.ASKED, Phase.REQUESTED, Phase.ACCEPTED, Phase.ANSWERED):
            self._end()
            self._tell(_E.RDMA_CM_EVENT_REJECTED, int(rej.reason), rej.private_data)

    def is_heard(self) -> None:
        """Its owner has got a message from the other end, which so has our answer."""
        self.on_rtu(cm.Rtu())

    def on_dreq(self, dreq: cm.Dreq) -> None:
        if self.phase == Phase.LEAVING:  # both at once
            self._say(self._between(cm.Drep))
            self._end()
        elif self.phase in (Phase.CONNECTED, Phase.ACCEPTED, Phase.ANSWERED):
            self.phase, self.due_s = Phase.LEFT, None
        else:
            return
        self._tell(_E.RDMA_CM_EVENT_DISCONNECTED, private_data=dreq.private_data)

    def on_gone(self) -> None:
        """The other end is no more."""
        self.phase, self.due_s = Phase.LEFT, None
        self._tell(_E.RDMA_CM_EVENT_DISCONNECTED)

    def on_drep(self, drep: cm.Drep) -> None:
        if self.phase == Phase.LEAVING:
            self._end()
            self._tell(_E.RDMA_CM_EVENT_DISCONNECTED, private_data=drep.private_data)

    def on_sidr_rep(self, rep: cm.SidrRep) -> None:
        if self.phase != Phase.ASKED:
            return
        self._end()
        self.far = Side(qp_num=rep.qpn, q_key=rep.q_key)
        kind = _E.RDMA_CM_EVENT_UNREACHABLE if rep.status else _E.RDMA_CM_EVENT_ESTABLISHED
        self._tell(kind, rep.status, rep.private_data)

    def on_time(self, now_s: float) -> None:
        """No answer came."""
        if self.left:
            self.left -= 1
            self.due_s = now_s + ANSWER_S
            self._repeat()
            return
        lost = _E.RDMA_CM_EVENT_DISCONNECTED if self.phase == Phase.LEAVING else _E.RDMA_CM_EVENT_UNREACHABLE
        self._end()
        self._tell(lost, -errno.ETIMEDOUT)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _first(self, own: Side) -> bytes:
        """The private data of a request: whose addresses these are, then the caller's."""
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
        self._say(rep)

    def _between(self, form: type[Format], **fields: Any) -> Format:
        """A message of which both ends have the number."""
        return form(local_comm_id=self.local_id, remote_comm_id=self.remote_id, **fields)

    def _ask(self, message: Format) -> None:
        self.left, self.due_s = RETRIES, self.agent.now_s() + ANSWER_S
        self._say(message)

    def _ask_for_time(self, message: int) -> None:
        mra = self._between(cm.Mra, message_mraed=message, service_timeout=_SERVICE_TIMEOUT)
        self.agent.say(mra, to=self.to)

    def _say(self, message: Format) -> None:
        self.last = message
        self._repeat()

    def _repeat(self) -> None:
        if self.last is not None:
            self.agent.say(self.last, to=self.to)

    def _end(self) -> None:
        self.phase, self.due_s = Phase.ENDED, None
        self.agent.forget(self)

    def _tell(self, kind: rdma_cm_event_type, status: int = 0, private_data: bytes = b"") -> None:
        self.tell(Told(kind=kind, conversation=self, status=status, private_data=private_data))
