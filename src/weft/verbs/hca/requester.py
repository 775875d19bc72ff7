"""Implement the requester: send requests, receive responses, and retransmit after a loss (RC, UC).

`qp.sends` are the requests that were posted and are not completed, in order. Those before `_cursor` are sent, the one
at it is being sent. A request uses one PSN per packet, a READ one per response packet. A response acknowledges
everything before it. A READ or an atomic completes by its own response only: a later acknowledgement means that it was
lost.
"""

from __future__ import annotations

import struct

from weft.verbs.enums import IBV_SEND_FENCE, IBV_SEND_SIGNALED, ibv_qp_state, ibv_wc_status
from weft.verbs.gpudirect.cuda import CudaError
from weft.verbs.hca.carrier import MemoryPath
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.segment import NAK, Nak, Op, Segment, Service, is_ack, is_rnr, packets_of, psn_after, psn_distance
from weft.verbs.hca.work import ATOMICS, DATA, FOR_EVER, LOCAL, NAK_STATUS, OPS, RNR_MS, WORD_BYTES, SendWork
from weft.verbs.shm import memory
from weft.verbs.shm.layout import CompletionRecord

WINDOW = 1 << 22  # unacknowledged PSNs: the protocol allows 1 << 23
_WINDOW_MIN = 8
_PARTS = 4  # parts of a window in which a long message is sent or requested, so that responses come meanwhile
_BEHIND_S = 0.001  # interval of checks whether the peer has read the packets
_WORD = struct.Struct("=Q")


class Requester:
    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp
        self.reset()

    def reset(self) -> None:
        self.qp.record.next_psn = self.qp.settings.sq_psn
        self._cursor = 0
        room_bytes = self.qp.adapter.carrier.window_bytes
        self._window_max = max(_WINDOW_MIN, room_bytes // self.qp.settings.mtu_bytes) if room_bytes else WINDOW
        self._window = self._window_max  # halved by a loss, increased by acknowledgements
        self._part = self._window_max // _PARTS if room_bytes else WINDOW
        self.resume()

    def resume(self) -> None:
        """Reset the state of packets in flight: all earlier requests are complete, by packets or shared memory."""
        settings = self.qp.settings
        self.qp.record.unacked = 0
        self._acked = psn_after(self.qp.record.next_psn, -1)  # the last acknowledged PSN
        self._retries, self._rnr_retries = settings.retry_cnt, settings.rnr_retry
        self._is_repeating = False  # ignore further NAKs until something new arrives
        self._wait_s: float | None = None  # end of the wait after an RNR NAK
        self.deadline_s: float | None = None  # acknowledgement timeout

    # -- sending ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Send as many requests as the window and the state allow."""
        qp = self.qp
        if self._wait_s is not None or qp.state not in (ibv_qp_state.IBV_QPS_RTS, ibv_qp_state.IBV_QPS_SQD):
            return
        while self._cursor < len(qp.sends):
            work = qp.sends[self._cursor]
            if work.psn < 0 and qp.shm_path is not None and not qp.shm_path.is_here:
                if self._cursor:
                    break  # requests sent by packets complete first
                if self._is_done_by(qp.shm_path, work):
                    continue
                if qp.service == Service.UC and qp.adapter.carrier.is_behind(qp.settings.dest_qp):
                    self._wait_s = qp.adapter.clock() + _BEHIND_S  # more packets would never let the peer catch up
                    break
            if work.psn < 0 and not self._begin(work):
                break
            if work.done:  # a local request
                self._complete_ready()
                continue
            try:
                if not self._send(work):
                    break
            except memory.MemoryFault:
                self._fail(work, ibv_wc_status.IBV_WC_LOC_PROT_ERR)
                break
            except CudaError:
                self._fail(work, ibv_wc_status.IBV_WC_LOC_QP_OP_ERR)
                break
            self._cursor += 1
            if qp.service == Service.UC:  # no acknowledgements: a sent request is complete
                work.done = True
                self._complete_ready()
        self._set_deadline()
        if qp.state == ibv_qp_state.IBV_QPS_SQD and not any(work.psn >= 0 for work in qp.sends):
            qp.drained()

    def _is_done_by(self, path: MemoryPath, work: SendWork) -> bool:
        """Execute the oldest request over shared memory; return whether it was executed."""
        sends = self.qp.sends
        sends.popleft()
        if path.carry(work):
            return True
        sends.appendleft(work)
        return False

    def _begin(self, work: SendWork) -> bool:
        """Assign PSNs to a request; return False if it must wait or has failed."""
        qp = self.qp
        if qp.state == ibv_qp_state.IBV_QPS_SQD:
            return False  # only requests that have started are finished
        if work.opcode in LOCAL:
            return self._execute_locally(work)
        if self._is_wrong(work):
            return False
        if work.flags & IBV_SEND_FENCE and self._unanswered():
            return False
        if work.is_answered and self._unanswered() >= qp.settings.max_rd_atomic:
            return False
        many = work.op in (*DATA, Op.READ)
        work.count = packets_of(work.size, qp.settings.mtu_bytes) if many else 1
        self.qp.record.unacked = 1
        work.psn = work.response_psn = self.qp.record.next_psn
        self.qp.record.next_psn = psn_after(self.qp.record.next_psn, work.count)
        return True

    def _is_wrong(self, work: SendWork) -> bool:
        """Check a request before it is sent; return whether it has failed."""
        if work.is_answered and not self.qp.settings.max_rd_atomic:
            self._fail(work, ibv_wc_status.IBV_WC_LOC_QP_OP_ERR)  # it could never be sent
        elif work.op in ATOMICS and work.size < WORD_BYTES:
            self._fail(work, ibv_wc_status.IBV_WC_LOC_LEN_ERR)
        else:
            return work.inline is None and self._located(work, write=work.op in (*ATOMICS, Op.READ)) is None
        return True

    def _located(self, work: SendWork, *, write: bool) -> list[memory.Place] | None:
        """Return the memory of a request. The request fails if its region was closed since it was posted."""
        places = self.qp.adapter.regions.located(self.qp.pd, work.places, write=write)
        if places is None:
            self._fail(work, ibv_wc_status.IBV_WC_LOC_PROT_ERR)
        return places

    def _data(self, work: SendWork, begin: int, size: int) -> memory.Payload | None:
        """Return bytes to send; None if the request has failed."""
        if work.inline is not None:
            return work.inline[begin : begin + size]
        places = self._located(work, write=False)
        return None if places is None else memory.gather(places, begin, size)

    def _execute_locally(self, work: SendWork) -> bool:
        """Execute a local request (bind a window, invalidate a key) after all requests before it are complete."""
        if self._cursor:
            return False
        qp, status = self.qp, ibv_wc_status.IBV_WC_SUCCESS
        if work.window is not None:
            status = work.window.execute(qp.pd, qp.number)
        elif work.invalidate is None or not qp.adapter.regions.invalidate(qp.pd, qp.number, work.invalidate):
            status = ibv_wc_status.IBV_WC_MW_BIND_ERR
        if status != ibv_wc_status.IBV_WC_SUCCESS:
            self._fail(work, status)
            return False
        work.psn, work.done = qp.record.next_psn, True
        return True

    def _unanswered(self) -> int:
        """Return the number of READs and atomics in flight; a long READ counts once per requested part."""
        started = (work for work in self.qp.sends if work.psn >= 0 and not work.done)
        return sum(self._pending_parts(work) for work in started if work.is_answered)

    def _pending_parts(self, work: SendWork) -> int:
        """Return the number of requested parts of a READ without a complete response."""
        received = psn_distance(work.response_psn, work.psn)
        return -(-work.sent // self._part) - received // self._part if work.sent > received else 0

    def _send(self, work: SendWork) -> bool:
        """Send as much of a request as the window allows; return whether all of it is sent."""
        qp, mtu = self.qp, self.qp.settings.mtu_bytes
        while work.sent < work.count:
            in_flight = psn_distance(psn_after(work.psn, work.sent), self._oldest())
            room = self._window - in_flight if qp.service != Service.UC else WINDOW
            payload: memory.Payload | None = b""
            if work.op in DATA:
                count = min(work.count - work.sent, room, self._part)
            elif room <= 0 or self._unanswered() >= qp.settings.max_rd_atomic:
                return False
            else:  # one request packet; of a long READ for the rest of a part
                count = min(work.count - work.sent, self._part - work.sent % self._part)
            if count <= 0:
                return False
            if work.op in (*DATA, Op.ATOMIC_WRITE):
                payload = self._data(work, work.sent * mtu, min(count * mtu, work.size - work.sent * mtu))
            if payload is None:
                return False
            segment = work.next_part(count, payload, mtu, service=qp.service, dest_qp=qp.settings.dest_qp)
            work.sent += count
            self._put(segment)
        return True

    def _put(self, segment: Segment) -> None:
        self.qp.adapter.send(self.qp, segment)

    # -- responses --------------------------------------------------------------------------------------------------

    def on_response(self, segment: Segment) -> None:
        sends = self.qp.sends
        if not sends or sends[0].psn < 0 or psn_distance(segment.last_psn, sends[0].psn) < 0:
            return  # the request is complete
        if psn_distance(segment.last_psn, self.qp.record.next_psn) >= 0:
            return  # the PSN was never sent
        if segment.op == Op.READ_RESPONSE:
            self._on_data(segment)
        elif segment.op == Op.ATOMIC_RESPONSE:
            self._on_value(segment)
        elif is_ack(segment.syndrome):
            self._acknowledged(segment.psn)
        elif is_rnr(segment.syndrome):
            self._on_not_ready(segment)
        else:
            self._on_nak(segment)
        self._set_deadline()

    def _acknowledged(self, psn: int) -> bool:
        """Complete requests up to a PSN. Return False if a response before it was lost and is requested again."""
        for work in self.qp.sends:
            if work.psn < 0 or psn_distance(psn, work.psn) < 0:
                break
            if work.is_answered and not work.done:
                if psn_distance(psn, work.response_psn) < 0:
                    break  # all earlier parts of the READ have responses
                self._lost(work.response_psn)
                return False
            if psn_distance(psn, psn_after(work.psn, work.count - 1)) < 0:
                break
            work.done = True
        self._progress(psn)
        self._complete_ready()
        return True

    def _on_data(self, segment: Segment) -> None:
        work = self._expecting(segment.psn)
        if work is None:
            return
        size = work.size if work.op == Op.READ else 0
        if not self._place(work, work.received, segment.payload[: size - work.received]):
            return
        work.received += len(segment.payload)
        work.response_psn = psn_after(segment.last_psn)
        work.done = psn_distance(work.response_psn, psn_after(work.psn, work.count)) >= 0
        self._progress(segment.last_psn)
        self._complete_ready()

    def _on_value(self, segment: Segment) -> None:
        work = self._expecting(segment.psn)
        if work is None or not self._place(work, 0, _WORD.pack(segment.swap)):
            return
        work.done = True
        self._progress(segment.psn)
        self._complete_ready()

    def _place(self, work: SendWork, offset: int, data: memory.Payload) -> bool:
        """Write response data to the memory of a request; return False if the request fails."""
        if (places := self._located(work, write=True)) is None:
            return False
        try:
            memory.scatter(places, offset, data)
        except memory.MemoryFault:
            self._fail(work, ibv_wc_status.IBV_WC_LOC_PROT_ERR)
            return False
        except CudaError:
            self._fail(work, ibv_wc_status.IBV_WC_LOC_QP_OP_ERR)
            return False
        return True

    def _expecting(self, psn: int) -> SendWork | None:
        """Return the READ or atomic whose next response has a PSN, if all earlier responses have arrived."""
        for work in self.qp.sends:
            waits = work.psn >= 0 and work.sent and not work.done and work.response_psn == psn
            if waits and work.is_answered:
                first = work is self.qp.sends[0]
                return work if first or self._acknowledged(psn_after(work.psn, -1)) else None
        return None

    def _on_not_ready(self, segment: Segment) -> None:
        is_waiting = self._wait_s is not None
        if is_waiting or not self._acknowledged(psn_after(segment.psn, -1)) or not self.qp.sends:
            return
        if self.qp.settings.rnr_retry != FOR_EVER:
            if not self._rnr_retries:
                self._fail(self.qp.sends[0], ibv_wc_status.IBV_WC_RNR_RETRY_EXC_ERR)
                return
            self._rnr_retries -= 1
        self._rewind(segment.psn)
        self._wait_s = self.qp.adapter.clock() + RNR_MS[segment.syndrome & 0x1F] / 1000

    def _on_nak(self, segment: Segment) -> None:
        if not self._acknowledged(psn_after(segment.psn, -1)) or not self.qp.sends:
            return
        code = segment.syndrome & ~NAK
        if code == Nak.PSN_SEQUENCE_ERROR:
            self._lost(segment.psn)
        elif code in NAK_STATUS:
            self._fail(self.qp.sends[0], NAK_STATUS[Nak(code)])

    # -- retries ----------------------------------------------------------------------------------------------------

    def _lost(self, psn: int) -> None:
        """Retransmit from a PSN, at most as often as agreed."""
        if self._is_repeating:
            return
        if not self._retries:
            self._fail(self.qp.sends[0], ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
            return
        self._retries -= 1
        self._is_repeating = True
        self._window = max(_WINDOW_MIN, self._window // 2)
        self._rewind(psn)
        self.run()

    def _rewind(self, psn: int) -> None:
        """Continue sending at a PSN."""
        for index, work in enumerate(self.qp.sends):
            if work.psn < 0:
                break
            offset = psn_distance(psn, work.psn)
            if offset < work.count:
                self._cursor = min(self._cursor, index)
                data = work.op in DATA
                work.sent = max(0, offset) if data else psn_distance(work.response_psn, work.psn)

    def _progress(self, psn: int) -> None:
        """Reset the retry counters after a new acknowledgement."""
        if psn_distance(psn, self._acked) > 0:
            settings = self.qp.settings
            self._window = min(self._window_max, self._window + psn_distance(psn, self._acked) // 8 + 1)
            self._acked = psn
            self._retries, self._rnr_retries = settings.retry_cnt, settings.rnr_retry
            self.deadline_s, self._is_repeating = None, False

    def _set_deadline(self) -> None:
        qp = self.qp
        in_flight = [work for work in qp.sends if work.psn >= 0 and not work.done]
        qp.record.unacked = bool(in_flight)
        waits = any(work.sent for work in in_flight)
        if not waits or self._wait_s is not None or not qp.settings.timeout or qp.service == Service.UC:
            self.deadline_s = None
        elif self.deadline_s is None:
            self.deadline_s = qp.adapter.clock() + 4.096e-6 * (1 << qp.settings.timeout)

    def next_s(self) -> float | None:
        """Return the time of the next timer."""
        return self._wait_s if self._wait_s is not None else self.deadline_s

    def on_timer(self, now_s: float) -> None:
        if self._wait_s is not None and self._wait_s <= now_s:
            self._wait_s = None
            self.run()
        elif self.deadline_s is not None and self.deadline_s <= now_s:
            self.deadline_s = None
            settings = self.qp.settings
            if self.qp.adapter.carrier.has_not_taken(settings.destination, settings.dest_qp):
                self._set_deadline()
                return
            self._is_repeating = False
            if self.qp.sends:
                self._lost(self._oldest())

    def _oldest(self) -> int:
        """Return the oldest unacknowledged PSN."""
        work = self.qp.sends[0]
        begun = psn_distance(self._acked, work.psn) >= 0 and work.op in DATA
        return psn_after(self._acked) if begun else work.response_psn

    # -- completion -------------------------------------------------------------------------------------------------

    def _complete_ready(self) -> None:
        """Complete finished requests in order."""
        qp = self.qp
        while qp.sends and qp.sends[0].done:
            work = qp.sends.popleft()
            self._cursor = max(0, self._cursor - 1)
            if qp.signal_all or work.flags & IBV_SEND_SIGNALED:
                opcode = LOCAL.get(work.opcode) or OPS[work.opcode][1]
                done = CompletionRecord(wr_id=work.wr_id, qp_num=qp.number, opcode=opcode, byte_len=work.size)
                done.posted = work.posted
                qp.complete(qp.send_cq, done)
        qp.adapter.wake(qp)

    def _fail(self, work: SendWork, status: ibv_wc_status) -> None:
        """Complete a request with an error and flush those after it. UC and RD stop sending only."""
        qp = self.qp
        if qp.sends[0] is not work:
            return  # it is tried again after those before it
        qp.sends.popleft()
        self._cursor = 0
        self.deadline_s = self._wait_s = None
        qp.send_cq.add(CompletionRecord(wr_id=work.wr_id, qp_num=qp.number, status=status, posted=work.posted))
        if qp.service not in (Service.UC, Service.RD):
            qp.fail()
        else:
            qp.state = ibv_qp_state.IBV_QPS_SQE
            qp.flush_sends()
