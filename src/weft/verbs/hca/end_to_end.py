"""Implement reliable datagrams (RD): queue pairs without a connection, over connections that many queue pairs share.

    queue pairs A1 A2 A3 --- EE context ==== path ==== EE context --- queue pairs B1 B2

An EE (end-to-end) context is one end of a path between two adapters. It has the state of a connection: the peer, PSNs,
retries, a partition. Queue pairs have queues, a Q_Key and memory. Every request names its EE context and its
destination queue pair, so a hundred processes on each of two machines need one path and not ten thousand. Queue pair
and EE context must belong to the same reliable datagram domain, at both ends. (InfiniBand Architecture volume 1,
"Reliable Datagram" and "EE Context"; on the wire RDETH names the EE context, DETH the sender and its Q_Key.)

    Outbox        the requester of a queue pair: one message at a time, queued at an EE context
    EERequester   the requester of an EE context: one message at a time, of the first queue pair in its queue
    EEResponder   the responder of an EE context, for the queue pair that a request names

An error of a queue pair does not affect the path. A message that cannot finish is abandoned with RESYNC: its PSN is
after all that were used, and both ends continue from there. This happens after an error of a request (the queue pair is
then in SQE), after the sending queue pair is destroyed, and after an RNR NAK, which suspends the message: others are
sent meanwhile, and then it starts again. A refused request stays refused until the RESYNC: a late duplicate cannot
execute it. Only if the peer stops responding the EE context itself goes to the error state, and its users get
IBV_WC_INV_EEC_STATE_ERR.

Simpler than the standard: a receive completion does not name the EE context (verbs have no field for it); there is no
path migration, and EE contexts have no asynchronous events but COMM_EST.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from weft.verbs.enums import ibv_event_type, ibv_qp_state, ibv_wc_status
from weft.verbs.hca.parts import Host
from weft.verbs.hca.queue_pair import RECEIVES, QueuePair, Settings
from weft.verbs.hca.requester import Requester
from weft.verbs.hca.responder import Responder
from weft.verbs.hca.segment import ACK_UNLIMITED, NAK, Nak, Op, Segment, Service, is_ack, psn_after, psn_distance
from weft.verbs.hca.work import FOR_EVER, LOCAL, RNR_MS, Control, SendWork
from weft.verbs.shm import layout, memory

_S, _WC = ibv_qp_state, ibv_wc_status
_SENDS = (_S.IBV_QPS_RTS, _S.IBV_QPS_SQD)
_OWN_Q_KEY = 1 << 31  # flag: use the Q_Key of the queue pair, as with datagrams


class EEContext:
    """An end of a path. For a requester and a responder it replaces a queue pair, without queues.

    `settings` are those of a queue pair; their `dest_qp` is the number of the peer's EE context. Its PSNs are in the
    adapter's memory at the place of a queue pair with its number, which no other process uses.
    """

    service = Service.RD
    shm_path = None  # for connections only

    def __init__(self, adapter: Host, number: int, domain: object) -> None:
        self.adapter, self.number, self.domain = adapter, number, domain
        self.state = _S.IBV_QPS_RESET
        self.settings = Settings()
        self.sends: deque[SendWork] = deque()  # at most one: the current message or its RESYNC
        self.on_event: Callable[[ibv_event_type], None] = lambda event: None
        self.record = layout.QueuePairRecord.from_buffer(adapter.memory.bytes, layout.queue_pair_at(number))
        self.record.clear()
        self.requester, self.responder = EERequester(self), EEResponder(self)

    @property
    def pd(self) -> object:
        """The protection domain of the current message."""
        owner = self.requester.owner
        return owner.qp.pd if owner is not None else None

    def enter(self, state: ibv_qp_state) -> None:
        """Change the state. The caller has checked the transition."""
        before, self.state = self.state, state
        if state == _S.IBV_QPS_RESET:
            self.clear()
        elif state == _S.IBV_QPS_RTR:
            self.responder.reset()
        elif state == _S.IBV_QPS_RTS and before == _S.IBV_QPS_RTR:
            self.requester.reset()
        elif state == _S.IBV_QPS_ERR:
            self.fail()
        self.adapter.wake(self)

    def clear(self) -> None:
        """Reset all state."""
        self._stop()
        self.settings, self.record.is_established = Settings(), 0
        self.requester.reset()

    def fail(self) -> None:
        self.state = _S.IBV_QPS_ERR
        self._stop()

    def _stop(self) -> None:
        self.requester.stop()
        self.responder.stop()

    def drained(self) -> None:
        """Do nothing at the end of SQD: there is no event for it."""

    def show(self) -> None:
        """Do nothing: other processes do not use an EE context."""


class Outbox(Requester):
    """The requester of a queue pair. Its first request is queued at an EE context (`path`), or waits."""

    def reset(self) -> None:
        super().reset()
        self.path: EEContext | None = None
        self._refusals = 0  # RNR NAKs of the first request
        if self.qp.state == _S.IBV_QPS_RESET:
            self.life = object()  # replaced by a reset: earlier messages do not count

    def run(self) -> None:
        qp = self.qp
        while qp.sends and self.path is None and self._wait_s is None and self._may_begin():
            work = qp.sends[0]
            if work.opcode in LOCAL:
                if self._execute_locally(work):
                    self._complete_ready()
            elif (status := self._wrong(work)) != _WC.IBV_WC_SUCCESS:
                self._fail(work, status)
            else:
                self.path = qp.adapter.ee_contexts[cast(int, work.ah)]
                self.path.requester.enqueue(self)
        if qp.state == _S.IBV_QPS_SQD and self.path is None and self._wait_s is None:
            qp.drained()

    def _may_begin(self) -> bool:
        """Return whether a request may be sent; in SQD only one that was sent before."""
        return self.qp.state == _S.IBV_QPS_RTS or (self.qp.state == _S.IBV_QPS_SQD and self._refusals > 0)

    def _wrong(self, work: SendWork) -> ibv_wc_status:
        """Return the error of a request with its EE context, or success."""
        ee = self.qp.adapter.ee_contexts.get(cast(int, work.ah))
        if ee is None:
            return _WC.IBV_WC_INV_EECN_ERR
        if ee.domain is not self.qp.domain:
            return _WC.IBV_WC_LOC_RDD_VIOL_ERR
        if ee.state not in _SENDS:
            return _WC.IBV_WC_INV_EEC_STATE_ERR
        if work.is_answered and not ee.settings.max_rd_atomic:
            return _WC.IBV_WC_LOC_EEC_OP_ERR  # it could never be sent
        return _WC.IBV_WC_SUCCESS

    # -- calls of the EE context --------------------------------------------------------------------------------------

    def is_at(self, ee: EEContext, work: SendWork | None = None) -> bool:
        """Return whether it is still queued at an EE context, with this request if one is given."""
        sends = self.qp.sends
        same = bool(sends) and (work is None or sends[0] is work)
        return same and self.path is ee and self.qp.state in _SENDS

    def finished(self) -> None:
        self.leave()
        self._refusals = 0
        self._complete_ready()

    def failed(self, work: SendWork, status: ibv_wc_status) -> None:
        self.leave()
        self._refusals = 0
        self._fail(work, status)

    def leave(self) -> None:
        """Leave the queue of the EE context, and queue again if there is something to send."""
        self.path = None
        self.qp.adapter.wake(self.qp)

    def suspend(self, work: SendWork, milliseconds: float, rnr_retry: int) -> None:
        """Wait after an RNR NAK, then send the request again from its start."""
        self._refusals += 1
        if rnr_retry != FOR_EVER and self._refusals > rnr_retry:
            self.failed(work, _WC.IBV_WC_RNR_RETRY_EXC_ERR)
            return
        work.psn = work.response_psn = -1
        work.sent = work.received = 0
        self._wait_s = self.qp.adapter.clock() + milliseconds / 1000
        self.leave()


class EERequester(Requester):
    """The requester of an EE context. `ee.sends` is the first request of `owner`, and is in the owner's queue too."""

    def __init__(self, ee: EEContext) -> None:
        self.ee = ee
        self.queue: deque[Outbox] = deque()
        self.owner: Outbox | None = None
        self._sender = self._q_key = 0  # for the last message and its RESYNC
        super().__init__(cast(QueuePair, ee))

    def enqueue(self, outbox: Outbox) -> None:
        self.queue.append(outbox)
        self.ee.adapter.wake(self.ee)

    def stop(self) -> None:
        """Fail the current message, and release the queued ones."""
        owner, sends = self._abandon(), list(self.ee.sends)
        self.ee.sends.clear()
        if owner is not None and owner.is_at(self.ee, sends[0]):
            owner.failed(sends[0], _WC.IBV_WC_INV_EEC_STATE_ERR)
        while self.queue:
            outbox = self.queue.popleft()
            if outbox.is_at(self.ee):
                outbox.leave()

    def _abandon(self) -> Outbox | None:
        """Abandon the current message; return its owner."""
        owner, self.owner = self.owner, None
        self._cursor, self.deadline_s = 0, None
        return owner

    # -- queue --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._check_owner()
        ee = self.ee
        while self.queue and not ee.sends and ee.state == _S.IBV_QPS_RTS:
            outbox = self.queue.popleft()
            if outbox.is_at(ee):
                self._take(outbox)
        super().run()

    def _take(self, outbox: Outbox) -> None:
        self.owner, work = outbox, outbox.qp.sends[0]
        self._sender = outbox.qp.number
        self._q_key = outbox.qp.settings.q_key if work.q_key & _OWN_Q_KEY else work.q_key
        self._cursor = 0
        self.ee.sends.append(work)

    def _check_owner(self) -> None:
        """Abandon the current message if its queue pair was reset, has failed, or is destroyed."""
        ee = self.ee
        if self.owner is not None and not self.owner.is_at(ee, ee.sends[0]):
            self._abandon()
            self._resync(ee.sends.popleft())

    def _put(self, segment: Segment) -> None:
        segment.ee, segment.dest_qp = segment.dest_qp, self.ee.sends[0].remote_qp
        segment.source_qp, segment.q_key = self._sender, self._q_key
        self.ee.adapter.send(self.ee, segment)

    def _resync(self, work: SendWork) -> None:
        """Queue a RESYNC, which abandons a message and all its PSNs."""
        if work.psn >= 0:
            self._retries, self._is_repeating = self.ee.settings.retry_cnt, False
            self.ee.sends.append(SendWork(wr_id=0, opcode=Control.RESYNC, remote_qp=work.remote_qp))
        self.ee.adapter.wake(self.ee)

    # -- answers ------------------------------------------------------------------------------------------------------

    def on_response(self, segment: Segment) -> None:
        """Handle a response, unless it is for an abandoned message."""
        self._check_owner()
        sends = self.ee.sends
        if sends and sends[0].psn >= 0 and psn_distance(segment.psn, sends[0].psn) >= 0:
            super().on_response(segment)

    def on_timer(self, now_s: float) -> None:
        self._check_owner()
        super().on_timer(now_s)

    def _on_not_ready(self, segment: Segment) -> None:
        if self.owner is None:
            return
        work = self.ee.sends.popleft()
        owner = self._abandon()
        self._resync(work)
        assert owner is not None
        owner.suspend(work, RNR_MS[segment.syndrome & 0x1F], self.ee.settings.rnr_retry)

    def _complete_ready(self) -> None:
        ee = self.ee
        if ee.sends and ee.sends[0].done:
            ee.sends.popleft()
            if (owner := self._abandon()) is not None:
                owner.finished()
        ee.adapter.wake(ee)

    def _fail(self, work: SendWork, status: ibv_wc_status) -> None:
        """Fail a request and its queue pair; fail the path only if the peer does not respond."""
        self.ee.sends.clear()
        owner = self._abandon()
        if status == _WC.IBV_WC_RETRY_EXC_ERR or owner is None:
            self.ee.fail()
        else:
            self._resync(work)
        if owner is not None:
            owner.failed(work, status)


class _Addressed:
    """A view of the destination queue pair of a request, with the settings and PSNs of the path."""

    def __init__(self, qp: QueuePair, ee: EEContext, settings: Settings) -> None:
        self.qp, self.record, self.settings = qp, ee.record, settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self.qp, name)


class EEResponder(Responder):
    """The responder of an EE context; `self.qp` is the queue pair of the current message."""

    def __init__(self, ee: EEContext) -> None:
        self.ee = ee
        self._peer_qp: int  # destination of responses; set by each request
        self._refusal: int | None = None  # the NAK of the expected PSN
        self._parties: tuple[int, Outbox, object] | None = None  # of the current message
        super().__init__(cast(QueuePair, ee))

    def reset(self) -> None:
        self.qp = cast(QueuePair, self.ee)
        self._refusal = None
        super().reset()

    def stop(self) -> None:
        self._drop(_WC.IBV_WC_LOC_EEC_OP_ERR)

    def on_request(self, segment: Segment) -> None:
        self._peer_qp, expected = segment.source_qp, self.ee.record.expected_psn
        if segment.op == Op.RESYNC:
            self._on_resync(segment)
        elif not psn_distance(segment.psn, expected) <= 0 <= psn_distance(segment.last_psn, expected):
            super().on_request(segment)  # a gap, or a duplicate
        elif self._refusal is not None:
            self._answer(expected, self._refusal)
        elif self._turn_to_addressed(segment):
            super().on_request(segment)
        else:
            self._answer(expected, NAK | Nak.INVALID_RD_REQUEST)

    def _on_resync(self, segment: Segment) -> None:
        if psn_distance(segment.psn, self.ee.record.expected_psn) >= 0:
            self._drop(_WC.IBV_WC_REM_ABORT_ERR)
            self._refusal, self._has_sent_nak = None, False
            self.ee.record.expected_psn = psn_after(segment.psn)
        self._answer(psn_after(self.ee.record.expected_psn, -1), ACK_UNLIMITED)

    def _turn_to_addressed(self, segment: Segment) -> bool:
        """Use the destination queue pair of a request; return False if the sender may not use it."""
        ee, qp = self.ee, self.ee.adapter.queue_pairs.get(segment.dest_qp)
        if qp is None or qp.service != Service.RD or qp.state not in RECEIVES or qp.domain is not ee.domain:
            return False
        if segment.q_key != qp.settings.q_key:
            ee.adapter.on_bad_key(is_q_key=True)
            return False
        assert isinstance(qp.requester, Outbox)
        parties = segment.source_qp, qp.requester, qp.requester.life
        if self._message is not None and parties != self._parties:
            return False
        self._parties = parties
        own = qp.settings
        settings = replace(
            ee.settings, access=own.access, min_rnr_timer=own.min_rnr_timer, dest_qp=segment.source_qp, q_key=own.q_key
        )
        self.qp = cast(QueuePair, _Addressed(qp, ee, settings))
        return True

    def _drop(self, status: ibv_wc_status) -> None:
        """Abandon the current message; complete its receive request with an error if its queue pair still exists."""
        message, self._message = self._message, None
        if message is None or message.work is None:
            return
        assert self._parties is not None
        _, outbox, life = self._parties
        qp = outbox.qp
        if self.ee.adapter.queue_pairs.get(qp.number) is qp and outbox.life is life:
            qp.receive_error(message.work, _WC.IBV_WC_WR_FLUSH_ERR if qp.state == _S.IBV_QPS_ERR else status)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, psn: int, syndrome: int) -> None:
        if not is_ack(syndrome) and syndrome != NAK | Nak.PSN_SEQUENCE_ERROR:
            self._refusal = syndrome
        self._respond(Op.ACKNOWLEDGE, psn, syndrome=syndrome)

    def _respond(self, op: Op, psn: int, **fields: int | memory.Payload) -> None:
        ee = self.ee
        response = Segment(op=op, service=Service.RD, dest_qp=self._peer_qp, psn=psn, msn=ee.record.msn, **fields)  # type: ignore[arg-type]
        response.ee = ee.settings.dest_qp
        ee.adapter.send(ee, response)
