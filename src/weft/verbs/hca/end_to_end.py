"""Reliable datagrams (RD): queue pairs without a connection, over connections that belong to nobody.

    queue pairs A1 A2 A3 --- EE context ==== path ==== EE context --- queue pairs B1 B2

An EE (end-to-end) context is one end of a path between two adapters. It has what a connection has: the other end, PSNs,
retries, a partition. Queue pairs have queues, a Q_Key and memory. Every request says which EE context it goes by and
which queue pair it is for, so a hundred processes on each of two machines need one path and not ten thousand. Queue
pair and EE context must be of one reliable datagram domain, at both ends. (InfiniBand Architecture volume 1, "Reliable
Datagram" and "EE Context"; on the wire RDETH names the EE context, DETH the sender and its Q_Key.)

    Outbox        the sending side of a queue pair: one message at a time, in line at an EE context
    EERequester   the sending side of an EE context: one message at a time, of whoever is first in line
    EEResponder   its receiving side, which turns to the queue pair that a request names

What goes wrong with a queue pair leaves the path alone. A message that cannot end is given up by RESYNC: its PSN is
after all that were used, and from there both ends go on. So it is after an error of a request (the queue pair is in SQE
then), after the queue pair that sent is gone, and after "not ready", which suspends the message: others pass while it
waits, and then it begins anew. Whatever was refused stays refused until the RESYNC: a late copy cannot bring it about.
Only if nobody answers any more the EE context itself is in error, and whoever uses it is told
(IBV_WC_INV_EEC_STATE_ERR).

Simpler than the standard: a receive completion does not name the EE context (verbs have no field for it); there is no
path migration, and EE contexts have no asynchronous events but COMM_EST.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from weft.verbs.enums import ibv_event_type, ibv_qp_state, ibv_wc_status
from weft.verbs.hca.opcodes import FOR_EVER, LOCAL, RNR_MS, Control
from weft.verbs.hca.parts import Host
from weft.verbs.hca.queue_pair import RECEIVES, QueuePair, Settings
from weft.verbs.hca.requester import Requester
from weft.verbs.hca.responder import Responder
from weft.verbs.hca.segment import ACK_UNLIMITED, NAK, Nak, Op, Segment, Service, is_ack, psn_after, psn_distance
from weft.verbs.hca.work import SendWork
from weft.verbs.shm import layout, memory

_S, _WC = ibv_qp_state, ibv_wc_status
_SENDS = (_S.IBV_QPS_RTS, _S.IBV_QPS_SQD)
_OWN_Q_KEY = 1 << 31  # "take the queue pair's", as with datagrams


class EEContext:
    """One end of a path. To a requester and a responder it is what a queue pair is to them, without its queues.

    `settings` are those of a queue pair, and `dest_qp` of them is the number of the other EE context. Its PSNs stand in
    the adapter's memory where a queue pair of its number would have them; nobody looks for it there.
    """

    service = Service.RD
    shm_path = None  # only connections have one

    def __init__(self, adapter: Host, number: int, domain: object) -> None:
        self.adapter, self.number, self.domain = adapter, number, domain
        self.state = _S.IBV_QPS_RESET
        self.settings = Settings()
        self.sends: deque[SendWork] = deque()  # the message under way or the RESYNC after it, never more
        self.on_event: Callable[[ibv_event_type], None] = lambda event: None
        self.record = layout.QueuePairRecord.from_buffer(adapter.memory.bytes, layout.queue_pair_at(number))
        self.record.clear()
        self.requester, self.responder = EERequester(self), EEResponder(self)

    @property
    def pd(self) -> object:
        """Whose memory the message under way is in."""
        owner = self.requester.owner
        return owner.qp.pd if owner is not None else None

    def enter(self, state: ibv_qp_state) -> None:
        """Whoever calls has checked that it may."""
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
        """As new."""
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
        """Of SQD; nobody can ask to be told."""

    def show(self) -> None:
        """As a queue pair does for its peers; an EE context has none that look."""


class Outbox(Requester):
    """The sending side of a queue pair. Its first request is in line at an EE context (`path`), or waits."""

    def reset(self) -> None:
        super().reset()
        self.path: EEContext | None = None
        self._refusals = 0  # how often the first request met somebody who was not ready
        if self.qp.state == _S.IBV_QPS_RESET:
            self.life = object()  # what was received before is of another life

    def run(self) -> None:
        qp = self.qp
        while qp.sends and self.path is None and self._wait_s is None and self._may_begin():
            work = qp.sends[0]
            if work.opcode in LOCAL:
                if self._do_here(work):
                    self._complete_ready()
            elif (status := self._wrong(work)) != _WC.IBV_WC_SUCCESS:
                self._fail(work, status)
            else:
                self.path = qp.adapter.ee_contexts[cast(int, work.ah)]
                self.path.requester.line_up(self)
        if qp.state == _S.IBV_QPS_SQD and self.path is None and self._wait_s is None:
            qp.drained()

    def _may_begin(self) -> bool:
        """In SQD only what was begun before."""
        return self.qp.state == _S.IBV_QPS_RTS or (self.qp.state == _S.IBV_QPS_SQD and self._refusals > 0)

    def _wrong(self, work: SendWork) -> ibv_wc_status:
        """What is against sending it by the EE context that it names."""
        ee = self.qp.adapter.ee_contexts.get(cast(int, work.ah))
        if ee is None:
            return _WC.IBV_WC_INV_EECN_ERR
        if ee.domain is not self.qp.domain:
            return _WC.IBV_WC_LOC_RDD_VIOL_ERR
        if ee.state not in _SENDS:
            return _WC.IBV_WC_INV_EEC_STATE_ERR
        if work.is_answered and not ee.settings.max_rd_atomic:
            return _WC.IBV_WC_LOC_EEC_OP_ERR  # it would wait for ever
        return _WC.IBV_WC_SUCCESS

    # -- what the EE context says of it -------------------------------------------------------------------------------

    def is_at(self, ee: EEContext, work: SendWork | None = None) -> bool:
        """Whether it still is in line there; or with this request."""
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
        """To line up again, here or elsewhere, if there is something to send."""
        self.path = None
        self.qp.adapter.wake(self.qp)

    def suspend(self, work: SendWork, milliseconds: float, rnr_retry: int) -> None:
        """The other is not ready: later again, from the beginning."""
        self._refusals += 1
        if rnr_retry != FOR_EVER and self._refusals > rnr_retry:
            self.failed(work, _WC.IBV_WC_RNR_RETRY_EXC_ERR)
            return
        work.psn = work.response_psn = -1
        work.sent = work.received = 0
        self._wait_s = self.qp.adapter.clock() + milliseconds / 1000
        self.leave()


class EERequester(Requester):
    """The sending side of an EE context; `ee.sends` is the first request of `owner`, which has it too."""

    def __init__(self, ee: EEContext) -> None:
        self.ee = ee
        self.line: deque[Outbox] = deque()
        self.owner: Outbox | None = None
        self._sender = self._q_key = 0  # of the last message, and of the RESYNC after it
        super().__init__(cast(QueuePair, ee))

    def line_up(self, outbox: Outbox) -> None:
        self.line.append(outbox)
        self.ee.adapter.wake(self.ee)

    def stop(self) -> None:
        """The EE context takes nothing any more: whoever is here has to see for itself."""
        owner, sends = self._give_up(), list(self.ee.sends)
        self.ee.sends.clear()
        if owner is not None and owner.is_at(self.ee, sends[0]):
            owner.failed(sends[0], _WC.IBV_WC_INV_EEC_STATE_ERR)
        while self.line:
            outbox = self.line.popleft()
            if outbox.is_at(self.ee):
                outbox.leave()

    def _give_up(self) -> Outbox | None:
        """The message under way is not any more; whose it was."""
        owner, self.owner = self.owner, None
        self._cursor, self.deadline_s = 0, None
        return owner

    # -- one after the other ------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._look_after_owner()
        ee = self.ee
        while self.line and not ee.sends and ee.state == _S.IBV_QPS_RTS:
            outbox = self.line.popleft()
            if outbox.is_at(ee):
                self._take(outbox)
        super().run()

    def _take(self, outbox: Outbox) -> None:
        self.owner, work = outbox, outbox.qp.sends[0]
        self._sender = outbox.qp.number
        self._q_key = outbox.qp.settings.q_key if work.q_key & _OWN_Q_KEY else work.q_key
        self._cursor = 0
        self.ee.sends.append(work)

    def _look_after_owner(self) -> None:
        """Its queue pair may have been reset, or failed at something else, or gone: then the message is given up."""
        ee = self.ee
        if self.owner is not None and not self.owner.is_at(ee, ee.sends[0]):
            self._give_up()
            self._resync(ee.sends.popleft())

    def _put(self, segment: Segment) -> None:
        segment.ee, segment.dest_qp = segment.dest_qp, self.ee.sends[0].remote_qp
        segment.source_qp, segment.q_key = self._sender, self._q_key
        self.ee.adapter.send(self.ee, segment)

    def _resync(self, work: SendWork) -> None:
        """The next thing to be sent: the message is given up, and all its PSNs."""
        if work.psn >= 0:
            self._retries, self._is_repeating = self.ee.settings.retry_cnt, False
            self.ee.sends.append(SendWork(wr_id=0, opcode=Control.RESYNC, remote_qp=work.remote_qp))
        self.ee.adapter.wake(self.ee)

    # -- answers ------------------------------------------------------------------------------------------------------

    def on_response(self, segment: Segment) -> None:
        """Answers to what was given up mean nothing any more."""
        self._look_after_owner()
        sends = self.ee.sends
        if sends and sends[0].psn >= 0 and psn_distance(segment.psn, sends[0].psn) >= 0:
            super().on_response(segment)

    def on_timer(self, now_s: float) -> None:
        self._look_after_owner()
        super().on_timer(now_s)

    def _on_not_ready(self, segment: Segment) -> None:
        if self.owner is None:
            return
        work = self.ee.sends.popleft()
        owner = self._give_up()
        self._resync(work)
        assert owner is not None
        owner.suspend(work, RNR_MS[segment.syndrome & 0x1F], self.ee.settings.rnr_retry)

    def _complete_ready(self) -> None:
        ee = self.ee
        if ee.sends and ee.sends[0].done:
            ee.sends.popleft()
            if (owner := self._give_up()) is not None:
                owner.finished()
        ee.adapter.wake(ee)

    def _fail(self, work: SendWork, status: ibv_wc_status) -> None:
        """The request, and its queue pair's sending side; the path only if nobody answers."""
        self.ee.sends.clear()
        owner = self._give_up()
        if status == _WC.IBV_WC_RETRY_EXC_ERR or owner is None:
            self.ee.fail()
        else:
            self._resync(work)
        if owner is not None:
            owner.failed(work, status)


class _Addressed:
    """The queue pair that a request names, as a responder sees it: with the settings and the PSNs of the path."""

    def __init__(self, qp: QueuePair, ee: EEContext, settings: Settings) -> None:
        self.qp, self.record, self.settings = qp, ee.record, settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self.qp, name)


class EEResponder(Responder):
    """The receiving side of an EE context; `self.qp` is the queue pair of the message under way."""

    def __init__(self, ee: EEContext) -> None:
        self.ee = ee
        self._asker = 0  # the queue pair that is answered
        self._refusal: int | None = None  # how what is expected now was answered
        self._parties: tuple[int, Outbox, object] | None = None  # of the message under way
        super().__init__(cast(QueuePair, ee))

    def reset(self) -> None:
        self.qp = cast(QueuePair, self.ee)
        self._refusal = None
        super().reset()

    def stop(self) -> None:
        self._drop(_WC.IBV_WC_LOC_EEC_OP_ERR)

    def on_request(self, segment: Segment) -> None:
        self._asker, expected = segment.source_qp, self.ee.record.expected_psn
        if segment.op == Op.RESYNC:
            self._on_resync(segment)
        elif not psn_distance(segment.psn, expected) <= 0 <= psn_distance(segment.last_psn, expected):
            super().on_request(segment)  # lost, or known
        elif self._refusal is not None:
            self._answer(expected, self._refusal)
        elif self._turn_to_addressed(segment):
            super().on_request(segment)
        else:
            self._answer(expected, NAK | Nak.INVALID_RD_REQUEST)

    def _on_resync(self, segment: Segment) -> None:
        if psn_distance(segment.psn, self.ee.record.expected_psn) >= 0:
            self._drop(_WC.IBV_WC_REM_ABORT_ERR)
            self._refusal, self._asked_again = None, False
            self.ee.record.expected_psn = psn_after(segment.psn)
        self._answer(psn_after(self.ee.record.expected_psn, -1), ACK_UNLIMITED)

    def _turn_to_addressed(self, segment: Segment) -> bool:
        """False if there is no such queue pair for this sender."""
        ee, qp = self.ee, self.ee.adapter.queue_pairs.get(segment.dest_qp)
        if qp is None or qp.service != Service.RD or qp.state not in RECEIVES or qp.domain is not ee.domain:
            return False
        if segment.q_key != qp.settings.q_key:
            ee.adapter.counters["qkey_violations"] += 1
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
        """The message under way will not end; who waits for it is told, if it is there."""
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
        response = Segment(op=op, service=Service.RD, dest_qp=self._asker, psn=psn, msn=self.ee.record.msn, **fields)  # type: ignore[arg-type]
        response.ee = ee.settings.dest_qp
        ee.adapter.send(ee, response)
