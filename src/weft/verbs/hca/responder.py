"""Implement the responder: execute requests in order, each once, and respond (RC, UC, XRC).

`expected_psn` is the PSN of the next packet. A later PSN means a loss: one NAK requests a retransmission. An earlier
PSN was executed already and its response was lost: SENDs and WRITEs are acknowledged again, READs are read again,
atomics return their first result. UC has no responses: a loss ends the message, and the next message starts afresh.
(InfiniBand Architecture volume 1, "Reliable Service", C9-...; the errors as Linux's rxe and hardware report them.)
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from weft.verbs.enums import ibv_access_flags, ibv_event_type, ibv_qp_state, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status
from weft.verbs.gpudirect.cuda import CudaError
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.regions import Region
from weft.verbs.hca.segment import (
    ACK_UNLIMITED,
    NAK,
    RNR_NAK,
    Nak,
    Op,
    Segment,
    Service,
    packets_of,
    psn_after,
    psn_distance,
)
from weft.verbs.hca.work import ATOMICS, DATA, ReceiveWork
from weft.verbs.shm import memory
from weft.verbs.shm.layout import CompletionRecord

_WORD = struct.Struct("=Q")
_64 = (1 << 64) - 1
_A = ibv_access_flags


@dataclass(slots=True)
class _Message:
    """A message of which some packets have arrived."""

    op: Op
    work: ReceiveWork | None  # SEND
    region: Region | None  # WRITE
    va: int
    length: int
    done: int = 0  # bytes


@dataclass(frozen=True, slots=True)
class _Answered:
    """A READ or an atomic that the requester may repeat."""

    psn: int
    count: int
    rkey: int
    va: int
    length: int
    value: int | None  # result of an atomic


class _Failed(Exception):
    """A request that cannot be executed: the NAK for the requester, and the status of the receive request."""

    def __init__(self, nak: Nak, status: ibv_wc_status | None = None, work: ReceiveWork | None = None) -> None:
        super().__init__(nak)
        self.nak, self.status, self.work = nak, status, work


class _NotReady(Exception):
    """A lack of a receive request."""


class Responder:
    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self._open: _Message | None = None
        self._has_sent_nak = False
        self._answered: deque[_Answered] = deque()

    @property
    def _message(self) -> _Message | None:
        return self._open

    @_message.setter
    def _message(self, message: _Message | None) -> None:
        self._open = message
        self.qp.record.is_midway = message is not None

    def reset(self) -> None:
        self.qp.record.expected_psn, self.qp.record.msn = self.qp.settings.rq_psn, 0
        self._message, self._has_sent_nak = None, False
        self._answered.clear()

    # -- arrivals ---------------------------------------------------------------------------------------------------

    def on_request(self, segment: Segment) -> None:
        if self.qp.service == Service.UC:
            self._on_unreliable(segment)
            return
        if self.qp.service == Service.XRC and not self._turn_to(segment.srq):
            self._fail(_Failed(Nak.INVALID_REQUEST))
            return
        ahead = psn_distance(segment.psn, self.qp.record.expected_psn)
        if ahead > 0:
            if not self._has_sent_nak:
                self._has_sent_nak = True
                self._answer(self.qp.record.expected_psn, NAK | Nak.PSN_SEQUENCE_ERROR)
            return
        is_new = ahead == 0
        if segment.op in DATA and 0 < -ahead < segment.count:
            segment, is_new = segment.cut(-ahead, self.qp.settings.mtu_bytes)[1], True
        try:
            if is_new:
                self._has_sent_nak = False
                self._execute(segment)
            else:
                self._on_duplicate(segment)
        except _NotReady:
            self._answer(self.qp.record.expected_psn, RNR_NAK | self.qp.settings.min_rnr_timer)
        except _Failed as failed:
            self._fail(failed)
        except memory.MemoryFault:  # READ or atomic
            self._fail(_Failed(Nak.REMOTE_ACCESS_ERROR))
        except CudaError:
            self._fail(_Failed(Nak.REMOTE_OPERATIONAL_ERROR))

    def _turn_to(self, number: int) -> bool:
        """Use the shared receive queue of a request, with its memory and completions, if it has the same domain."""
        qp = self.qp
        receives = qp.adapter.shared.get(number)
        if receives is None or receives.domain != qp.domain:
            return False
        qp.receives, qp.pd = receives, receives.pd
        qp.show()
        return True

    def _on_unreliable(self, segment: Segment) -> None:
        """Execute a request of UC. A gap, or data that does not fit, ends the message."""
        in_order = segment.psn == self.qp.record.expected_psn and (self._message is not None) != segment.first
        if not in_order and not segment.first:
            self.abandon()
            return
        if segment.first:
            self.abandon()
        self.qp.record.expected_psn = segment.psn
        try:
            self._execute(segment)
        except (_NotReady, _Failed):
            self.abandon()
            self.qp.record.expected_psn = psn_after(segment.last_psn)

    def abandon(self) -> None:
        """Drop the current message: its rest will not arrive."""
        message, self._message = self._message, None
        if message is not None and message.work is not None:
            self.qp.receives.put_back(message.work)

    def _execute(self, segment: Segment) -> None:
        if segment.op in DATA:
            self._on_data(segment)
        elif self._message is not None or not self.qp.settings.max_dest_rd_atomic:
            raise _Failed(Nak.INVALID_REQUEST)
        elif segment.op == Op.READ:
            self._on_read(segment)
        elif segment.op in ATOMICS:
            self._on_atomic(segment)
        elif segment.op == Op.ATOMIC_WRITE:
            self._on_atomic_write(segment)
        else:
            self._on_flush(segment)

    # -- SEND and WRITE ---------------------------------------------------------------------------------------------

    def _on_data(self, segment: Segment) -> None:
        self._check_shape(segment)
        if segment.last and segment.op == Op.WRITE and segment.immediate is not None and not len(self.qp.receives):
            if segment.count == 1:
                raise _NotReady
            head, _ = segment.cut(segment.count - 1, self.qp.settings.mtu_bytes)
            self._on_data(head)
            raise _NotReady
        message = self._message or self._begin(segment)
        self._take(message, segment.payload)
        self._message = message
        if segment.last:
            self._end(message, segment)
            self._message = None
        self.qp.record.expected_psn = psn_after(segment.last_psn)
        if segment.ack_request and self.qp.service != Service.UC:
            self._answer(segment.last_psn, ACK_UNLIMITED)

    def _check_shape(self, segment: Segment) -> None:
        """Raise if a segment does not continue its message, or has the wrong length for its packets."""
        message = self._message
        if segment.first != (message is None) or (message is not None and message.op != segment.op):
            raise _Failed(Nak.INVALID_REQUEST)
        size, mtu = len(segment.payload), self.qp.settings.mtu_bytes
        fits = packets_of(size, mtu) == segment.count if segment.last else size == segment.count * mtu
        if not fits:
            raise _Failed(Nak.INVALID_REQUEST)

    def _begin(self, segment: Segment) -> _Message:
        qp = self.qp
        if segment.op == Op.SEND:
            work = qp.receives.take()
            if work is None:
                raise _NotReady
            return _Message(Op.SEND, work, None, 0, work.size)
        region = self._region(segment, _A.IBV_ACCESS_REMOTE_WRITE) if segment.length else None
        return _Message(Op.WRITE, None, region, segment.va, segment.length)

    def _region(self, segment: Segment, access: int) -> Region:
        qp = self.qp
        if access & ~qp.settings.access:
            raise _Failed(Nak.INVALID_REQUEST)
        region = qp.adapter.regions.remote(qp.pd, qp.number, segment.rkey, segment.va, segment.length, access)
        if region is None:
            raise _Failed(Nak.REMOTE_ACCESS_ERROR)
        return region

    def _take(self, message: _Message, data: memory.Payload) -> None:
        if message.done + len(data) > message.length:
            raise _Failed(Nak.INVALID_REQUEST, ibv_wc_status.IBV_WC_LOC_LEN_ERR, message.work)
        if message.work is not None:
            places = self.qp.adapter.regions.located(self.qp.receive_pd, message.work.places, write=True)
            if places is None:
                raise _Failed(Nak.REMOTE_OPERATIONAL_ERROR, ibv_wc_status.IBV_WC_LOC_PROT_ERR, message.work)
            self._place(message, places, message.done, data)
        elif message.region is not None:
            if not message.region.is_open:
                raise _Failed(Nak.REMOTE_ACCESS_ERROR)
            part = message.region.part(message.va + message.done, len(data))
            self._place(message, (part,), 0, data)
        message.done += len(data)

    def _place(self, message: _Message, places: Sequence[memory.Place], offset: int, data: memory.Payload) -> None:
        try:
            memory.scatter(places, offset, data)
        except memory.MemoryFault:
            nak = Nak.REMOTE_ACCESS_ERROR if message.work is None else Nak.REMOTE_OPERATIONAL_ERROR
            raise _Failed(nak, ibv_wc_status.IBV_WC_LOC_PROT_ERR, message.work) from None
        except CudaError:
            status = ibv_wc_status.IBV_WC_LOC_QP_OP_ERR
            raise _Failed(Nak.REMOTE_OPERATIONAL_ERROR, status, message.work) from None

    def _end(self, message: _Message, segment: Segment) -> None:
        qp = self.qp
        if message.op == Op.WRITE and message.done != message.length:
            raise _Failed(Nak.INVALID_REQUEST)
        key = segment.invalidate
        if key is not None and not qp.adapter.regions.invalidate(qp.pd, qp.number, key):
            raise _Failed(Nak.REMOTE_ACCESS_ERROR, ibv_wc_status.IBV_WC_REM_INV_REQ_ERR, message.work)
        self.qp.record.msn = self.qp.record.msn + 1 & 0xFF_FFFF
        work, opcode = message.work, ibv_wc_opcode.IBV_WC_RECV
        if message.op == Op.WRITE:
            if segment.immediate is None:
                return
            work, opcode = qp.receives.take(), ibv_wc_opcode.IBV_WC_RECV_RDMA_WITH_IMM
        assert work is not None
        flags, value = 0, 0
        if segment.immediate is not None:
            flags, value = ibv_wc_flags.IBV_WC_WITH_IMM, segment.immediate
        elif segment.invalidate is not None:
            flags, value = ibv_wc_flags.IBV_WC_WITH_INV, segment.invalidate
        done = CompletionRecord(
            wr_id=work.wr_id,
            qp_num=qp.number,
            opcode=opcode,
            byte_len=message.done,
            immediate=value,
            wc_flags=flags,
            src_qp=qp.settings.dest_qp,
            pkey_index=qp.settings.pkey_index,
            solicited=segment.solicited,
        )
        qp.complete(qp.told_of_receives, done)

    # -- READ, atomics, FLUSH ---------------------------------------------------------------------------------------

    def _on_read(self, segment: Segment) -> None:
        if segment.length:
            self._region(segment, _A.IBV_ACCESS_REMOTE_READ)
        elif not self.qp.settings.access & _A.IBV_ACCESS_REMOTE_READ:
            raise _Failed(Nak.INVALID_REQUEST)
        count = packets_of(segment.length, self.qp.settings.mtu_bytes)
        data = self._read(segment)
        self._advance(segment, count, None)
        self._respond(Op.READ_RESPONSE, segment.psn, count=count, payload=data, syndrome=ACK_UNLIMITED)

    def _read(self, segment: Segment) -> memory.Payload:
        """Return a copy of the bytes of a READ."""
        region = self.qp.adapter.regions.find(segment.rkey)
        if region is None or not segment.length:
            return b""
        return memory.kept(memory.gather((region.part(segment.va, segment.length),), 0, segment.length))

    def _on_atomic(self, segment: Segment) -> None:
        segment.length = _WORD.size
        if segment.va % _WORD.size:
            raise _Failed(Nak.INVALID_REQUEST)
        region = self._region(segment, _A.IBV_ACCESS_REMOTE_ATOMIC)
        word = (region.part(segment.va, _WORD.size),)  # on a GPU atomic among requests only, not with kernels
        (before,) = _WORD.unpack(bytes(memory.gather(word, 0, _WORD.size)))
        if segment.op == Op.FETCH_ADD:
            memory.scatter(word, 0, _WORD.pack(before + segment.swap & _64))
        elif before == segment.compare:
            memory.scatter(word, 0, _WORD.pack(segment.swap))
        self._advance(segment, 1, before)
        self._respond(Op.ATOMIC_RESPONSE, segment.psn, swap=before, syndrome=ACK_UNLIMITED)

    def _on_atomic_write(self, segment: Segment) -> None:
        segment.length = len(segment.payload)
        if segment.va % _WORD.size or segment.length != _WORD.size:
            raise _Failed(Nak.INVALID_REQUEST)
        region = self._region(segment, _A.IBV_ACCESS_REMOTE_WRITE)
        memory.scatter((region.part(segment.va, segment.length),), 0, segment.payload)
        self._advance(segment, 1, 0)
        self._respond(Op.READ_RESPONSE, segment.psn, syndrome=ACK_UNLIMITED)

    def _on_flush(self, segment: Segment) -> None:
        """Check the access rights of a FLUSH. All data is in memory already."""
        qp, kinds = self.qp, _A.IBV_ACCESS_FLUSH_GLOBAL if segment.flush & 1 else 0
        kinds |= _A.IBV_ACCESS_FLUSH_PERSISTENT if segment.flush & 2 else 0
        if kinds & ~qp.settings.access:
            raise _Failed(Nak.INVALID_REQUEST)
        whole = qp.adapter.regions.find(segment.rkey) if segment.selectivity else None
        va, length = (whole.base, 0) if whole is not None else (segment.va, segment.length)
        if qp.adapter.regions.remote(qp.pd, qp.number, segment.rkey, va, length, kinds) is None:
            raise _Failed(Nak.REMOTE_ACCESS_ERROR)
        self._advance(segment, 1, 0)
        self._respond(Op.READ_RESPONSE, segment.psn, syndrome=ACK_UNLIMITED)

    def _advance(self, segment: Segment, count: int, value: int | None) -> None:
        self.qp.record.expected_psn = psn_after(segment.psn, count)
        self.qp.record.msn = self.qp.record.msn + 1 & 0xFF_FFFF
        self._answered.append(_Answered(segment.psn, count, segment.rkey, segment.va, segment.length, value))
        while len(self._answered) > self.qp.settings.max_dest_rd_atomic:
            self._answered.popleft()

    # -- repeats ----------------------------------------------------------------------------------------------------

    def _on_duplicate(self, segment: Segment) -> None:
        if segment.op in DATA:
            self._answer(psn_after(self.qp.record.expected_psn, -1), ACK_UNLIMITED)
            return
        for before in self._answered:
            offset = psn_distance(segment.psn, before.psn)
            if 0 <= offset < before.count:
                self._respond_again(segment, before, offset)
                return

    def _respond_again(self, segment: Segment, before: _Answered, offset: int) -> None:
        if segment.op in ATOMICS:
            if before.value is not None and offset == 0:
                self._respond(Op.ATOMIC_RESPONSE, segment.psn, swap=before.value, syndrome=ACK_UNLIMITED)
        elif segment.op in (Op.ATOMIC_WRITE, Op.FLUSH):
            self._respond(Op.READ_RESPONSE, segment.psn, syndrome=ACK_UNLIMITED)
        else:
            at = offset * self.qp.settings.mtu_bytes
            inside = segment.va - before.va == at and at + segment.length <= before.length
            same = segment.rkey == before.rkey and inside
            if same and (region := self.qp.adapter.regions.find(segment.rkey)) is not None and region.is_open:
                count = packets_of(segment.length, self.qp.settings.mtu_bytes)
                data = self._read(segment)
                self._respond(Op.READ_RESPONSE, segment.psn, count=count, payload=data, syndrome=ACK_UNLIMITED)

    # -- responses --------------------------------------------------------------------------------------------------

    def _fail(self, failed: _Failed) -> None:
        """Fail the queue pair and send the NAK last, so that the state is final when the requester receives it."""
        qp = self.qp
        message, self._message = self._message, None
        work, status = failed.work, failed.status
        if work is None and message is not None:
            work, status = message.work, status or ibv_wc_status.IBV_WC_REM_INV_REQ_ERR
        if work is not None and status is not None:
            qp.receive_error(work, status)
        if qp.state != ibv_qp_state.IBV_QPS_ERR:
            access = failed.nak == Nak.REMOTE_ACCESS_ERROR
            event = ibv_event_type.IBV_EVENT_QP_ACCESS_ERR if access else ibv_event_type.IBV_EVENT_QP_REQ_ERR
            qp.fail()
            qp.on_event(event)
        self._answer(self.qp.record.expected_psn, NAK | failed.nak)

    def _answer(self, psn: int, syndrome: int) -> None:
        if self.qp.service != Service.UC:
            self._respond(Op.ACKNOWLEDGE, psn, syndrome=syndrome)

    def _respond(self, op: Op, psn: int, **fields: int | memory.Payload) -> None:
        qp = self.qp
        response = Segment(op=op, service=qp.service, dest_qp=qp.settings.dest_qp, psn=psn, msn=qp.record.msn, **fields)  # type: ignore[arg-type]
        qp.adapter.send(qp, response)
