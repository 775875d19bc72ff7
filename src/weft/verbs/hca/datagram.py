"""Implement datagrams (UD): one packet is one message, to the destination of the address handle or to a group.

A receive buffer starts with 40 bytes for the global route header, present or not. There are no acknowledgements and no
repetitions: a datagram that does not fit, has another Q_Key or finds no receive request is dropped and counted.
"""

from __future__ import annotations

from weft.verbs import enums as e
from weft.verbs.enums import ibv_qp_state, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode
from weft.verbs.gpudirect.cuda import CudaError
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.segment import OWN_Q_KEY, Op, Segment, Service, psn_after
from weft.verbs.hca.work import SendWork
from weft.verbs.shm import memory
from weft.verbs.shm.layout import CompletionRecord
from weft.wire.headers import GRH


class Datagrams:
    """The requester and responder of a UD queue pair."""

    def __init__(self, qp: QueuePair) -> None:
        self.qp = qp

    def reset(self) -> None:
        self.qp.record.next_psn = self.qp.settings.sq_psn

    def run(self) -> None:
        qp = self.qp
        while qp.sends and qp.state == ibv_qp_state.IBV_QPS_RTS:
            work = qp.sends.popleft()
            segment = self._segment(work)
            status = segment if isinstance(segment, ibv_wc_status) else ibv_wc_status.IBV_WC_SUCCESS
            failed = status != ibv_wc_status.IBV_WC_SUCCESS
            if failed or qp.signal_all or work.flags & e.IBV_SEND_SIGNALED:
                done = CompletionRecord(wr_id=work.wr_id, qp_num=qp.number, status=status, posted=work.posted)
                qp.complete(qp.send_cq, done)
            if isinstance(segment, Segment):  # afterwards, so that the reply follows the completion
                qp.adapter.send(qp, segment, work.ah)
            if failed:
                qp.state = ibv_qp_state.IBV_QPS_SQE
                qp.flush_sends()
        if qp.state == ibv_qp_state.IBV_QPS_SQD:
            qp.drained()

    def _segment(self, work: SendWork) -> Segment | ibv_wc_status:
        """Return the datagram to send, or the status of a request that sends none."""
        qp = self.qp
        places = qp.adapter.regions.located(qp.pd, work.places, write=False) if work.inline is None else []
        if places is None:
            return ibv_wc_status.IBV_WC_LOC_PROT_ERR
        if work.size > qp.adapter.mtu_bytes:
            # C10-93.1.1: send nothing and report no error, as Linux's rxe does (ConnectX: LOC_LEN_ERR).
            qp.adapter.counters["oversized_datagrams"] += 1
            return ibv_wc_status.IBV_WC_SUCCESS
        try:
            data = work.inline if work.inline is not None else bytes(memory.gather(places, 0, work.size))
        except memory.MemoryFault:
            return ibv_wc_status.IBV_WC_LOC_PROT_ERR
        except CudaError:
            return ibv_wc_status.IBV_WC_LOC_QP_OP_ERR
        segment = Segment(
            op=Op.SEND,
            service=Service.UD,
            dest_qp=work.remote_qp,
            psn=qp.record.next_psn,
            solicited=bool(work.flags & e.IBV_SEND_SOLICITED),
            immediate=work.immediate if work.opcode == ibv_wr_opcode.IBV_WR_SEND_WITH_IMM else None,
            source_qp=qp.number,
            q_key=qp.settings.q_key if work.q_key & OWN_Q_KEY else work.q_key,
            payload=data,
        )
        qp.record.next_psn = psn_after(qp.record.next_psn)
        return segment

    def on_request(self, segment: Segment, grh: bytes, slid: int, sl: int) -> None:
        """Receive a datagram; `grh` are the 40 bytes in front of the data."""
        qp = self.qp
        work = qp.receives.take()
        if work is None:
            qp.adapter.counters["no_receive"] += 1
            return
        size = GRH.size + len(segment.payload)
        if work.size < size:
            qp.receive_error(work, ibv_wc_status.IBV_WC_LOC_LEN_ERR)
            return
        places = qp.adapter.regions.located(qp.receive_pd, work.places, write=True)
        if places is None:
            qp.receive_error(work, ibv_wc_status.IBV_WC_LOC_PROT_ERR)
            return
        try:
            memory.scatter(places, 0, grh)
            memory.scatter(places, GRH.size, segment.payload)
        except memory.MemoryFault:
            qp.receive_error(work, ibv_wc_status.IBV_WC_LOC_PROT_ERR)
            return
        except CudaError:
            qp.receive_error(work, ibv_wc_status.IBV_WC_LOC_QP_OP_ERR)
            return
        done = CompletionRecord(
            wr_id=work.wr_id,
            qp_num=qp.number,
            opcode=ibv_wc_opcode.IBV_WC_RECV,
            byte_len=size,
            immediate=segment.immediate or 0,
            wc_flags=(e.IBV_WC_WITH_IMM if segment.immediate is not None else 0) | (e.IBV_WC_GRH if any(grh) else 0),
            src_qp=segment.source_qp,
            slid=slid,
            sl=sl,
            pkey_index=qp.settings.pkey_index,
            solicited=segment.solicited,
        )
        qp.complete(qp.recv_cq, done)
