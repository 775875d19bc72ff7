"""Required behaviour of an InfiniBand transport, as in test_behaviours.py: completions, inline data, and events."""

from __future__ import annotations

import time

import pytest
from tests.patience import PATIENCE_S
from tests.verbs.hosts import Node, connect, poll

from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_QPT_RC,
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    IBV_WC_STANDARD_FLAGS,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_wc_status,
)
from weft.verbs.pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from weft.verbs.pyverbs.events import AsyncEvent
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.qp import QPAttr
from weft.verbs.pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

E, S, M = ibv_event_type, ibv_qp_state, ibv_qp_attr_mask
OK = ibv_wc_status.IBV_WC_SUCCESS


@pytest.fixture
def node():
    with Node() as result:
        yield result


def send(node, offset: int = 0, length: int = 8, **more) -> SendWR:
    return SendWR(num_sge=1, sg=[node.sge(offset, length)], **{"send_flags": IBV_SEND_SIGNALED, **more})


def next_event(node) -> AsyncEvent:
    """Return the oldest event; fail the test without one, where the program's own call would block for ever."""
    until_s = time.monotonic() + PATIENCE_S
    while not node.ctx.events:
        assert time.monotonic() < until_s, "no event came"
        node.ctx.adapter.progress()
    return node.ctx.get_async_event()


# -- completions ------------------------------------------------------------------------------------------------------


def test_26_a_failed_completion_says_who_and_why_and_nothing_else(node):
    a, b = connect(node, IBV_QPT_RC)
    b.post_recv(RecvWR(wr_id=7, num_sge=1, sg=[node.sge(512, 4)]))  # too short
    a.post_send(send(node, wr_id=8))
    a.post_send(send(node, wr_id=9))
    a.post_recv(RecvWR(wr_id=10))  # flushed
    result = {wc.wr_id: wc for wc in poll(node.cq, 4)}
    assert {wr_id: (wc.status, wc.qp_num) for wr_id, wc in result.items()} == {
        7: (ibv_wc_status.IBV_WC_LOC_LEN_ERR, b.qp_num),
        8: (ibv_wc_status.IBV_WC_REM_INV_REQ_ERR, a.qp_num),
        9: (ibv_wc_status.IBV_WC_WR_FLUSH_ERR, a.qp_num),
        10: (ibv_wc_status.IBV_WC_WR_FLUSH_ERR, a.qp_num),
    }
    for wc in result.values():
        assert (wc.byte_len, wc.imm_data, wc.wc_flags, wc.src_qp, wc.slid, wc.sl) == (0, 0, 0, 0, 0, 0)


def test_26_an_extended_queue_shows_the_same(node):
    cq = CQEX(node.ctx, CqInitAttrEx(cqe=10, wc_flags=IBV_WC_STANDARD_FLAGS))
    a, _ = connect(node, IBV_QPT_RC, cq=cq)
    wr = send(node, wr_id=8, opcode=IBV_WR_RDMA_READ)
    wr.set_wr_rdma(node.mr.rkey + 1, node.mr.buf)
    a.post_send(wr)
    while cq.start_poll(PollCqAttr()):
        pass
    assert (cq.wr_id, cq.status, cq.read_qp_num()) == (8, ibv_wc_status.IBV_WC_REM_ACCESS_ERR, a.qp_num)
    assert (cq.read_byte_len(), cq.read_imm_data(), cq.read_wc_flags(), cq.read_src_qp()) == (0, 0, 0, 0)
    cq.end_poll()


def test_27_an_overflow_is_an_event_and_the_end_of_the_queue_pairs(node):
    cq = CQ(node.ctx, 2)
    a, b = connect(node, IBV_QPT_RC, cq=cq)
    idle, other = node.qp(IBV_QPT_RC, cq=cq), node.qp(IBV_QPT_RC)
    for qp in (idle, other):
        qp.to_rts(node.connected_attr(1))
    for number in range(3):
        b.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[node.sge(512, 8)]))
        a.post_send(send(node))
    result = {event.element: event.event_type for event in (next_event(node) for _ in range(4))}
    assert result == {cq: E.IBV_EVENT_CQ_ERR} | dict.fromkeys((a, b, idle), E.IBV_EVENT_QP_FATAL)
    assert {qp.qp_state for qp in (a, b, idle)} == {S.IBV_QPS_ERR}  # their completions may be lost
    assert other.qp_state == S.IBV_QPS_RTS
    assert len(cq.poll(10)[1]) == 2


def test_34_inline_data_is_copied_when_it_is_posted_and_needs_no_key(node):
    a, b = connect(node, IBV_QPT_RC)
    node.mr.write(b"at first", 8)
    words = SGE(node.mr.buf, 8, 0xDEAD)  # an unknown key
    with node.ctx.adapter.lock:  # no data moves before the memory is reused
        a.modify(QPAttr(qp_state=S.IBV_QPS_SQD), M.IBV_QP_STATE)
        a.post_send(SendWR(num_sge=1, sg=[words], send_flags=IBV_SEND_INLINE | IBV_SEND_SIGNALED))
        node.mr.write(b"reused!!", 8)
        b.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, 8)]))
        a.modify(QPAttr(qp_state=S.IBV_QPS_RTS), M.IBV_QP_STATE)
    assert [wc.status for wc in poll(node.cq, 2)] == [OK, OK]
    assert node.mr.read(8, 512) == b"at first"
    a.post_send(SendWR(num_sge=1, sg=[words], send_flags=IBV_SEND_SIGNALED))
    assert poll(node.cq, 1)[0].status == ibv_wc_status.IBV_WC_LOC_PROT_ERR


def test_34_memory_of_inline_data_may_be_gone(node):
    a, _ = connect(node, IBV_QPT_RC)
    short_lived = MR(node.pd, 16, IBV_ACCESS_LOCAL_WRITE)
    short_lived.write(b"short-lived", 11)
    wr = SendWR(
        num_sge=1,
        sg=[SGE(short_lived.buf, 11, short_lived.lkey)],
        opcode=IBV_WR_RDMA_WRITE,
        send_flags=IBV_SEND_INLINE | IBV_SEND_SIGNALED,
    )
    wr.set_wr_rdma(node.mr.rkey, node.mr.buf + 1024)
    with node.ctx.adapter.lock:
        a.modify(QPAttr(qp_state=S.IBV_QPS_SQD), M.IBV_QP_STATE)
        a.post_send(wr)
        short_lived.close()
        a.modify(QPAttr(qp_state=S.IBV_QPS_RTS), M.IBV_QP_STATE)
    assert poll(node.cq, 1)[0].status == OK
    assert node.mr.read(11, 1024) == b"short-lived"


# -- notifications ----------------------------------------------------------------------------------------------------


def test_36_a_request_to_be_told_is_for_one_event(node):
    channel = CompChannel(node.ctx)
    cq = CQ(node.ctx, 20, None, channel)
    a, b = connect(node, IBV_QPT_RC, cq=cq)
    for number in range(4):
        b.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[node.sge(512, 8)]))
    a.post_send(send(node, send_flags=0))  # before a notification was requested
    poll(cq, 1)
    assert not channel.events
    cq.req_notify()
    for _ in range(2):
        a.post_send(send(node, send_flags=0))
    channel.get_cq_event(cq)
    poll(cq, 2)
    assert (len(channel.events), cq.num_events) == (0, 1)
    a.post_send(send(node, send_flags=0))
    poll(cq, 1)
    assert not channel.events  # not requested again
    cq.ack_events(1)
    assert cq.num_events == 0


@pytest.mark.parametrize(("flags", "events"), [(0, 0), (IBV_SEND_SOLICITED, 1)])
def test_36_who_waits_for_solicited_ones_sleeps_through_the_others(node, flags, events):
    channel = CompChannel(node.ctx)
    cq = CQ(node.ctx, 20, None, channel)
    a, b = connect(node, IBV_QPT_RC, cq=cq)
    b.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, 8)]))
    cq.req_notify(solicited_only=True)
    a.post_send(send(node, send_flags=flags))
    poll(cq, 1)
    assert len(channel.events) == events


# -- asynchronous events ----------------------------------------------------------------------------------------------


def test_51_events_are_fetched_in_order_once_by_the_context_of_their_object(node):
    with Node() as stranger:
        a, b = connect(node, IBV_QPT_RC)
        for expected in (S.IBV_QPS_SQD, S.IBV_QPS_RTS):
            attr = QPAttr(qp_state=expected)
            attr.en_sqd_async_notify = 1
            notify = M.IBV_QP_EN_SQD_ASYNC_NOTIFY if expected == S.IBV_QPS_SQD else 0
            a.modify(attr, M.IBV_QP_STATE | notify)
        wr = send(node, opcode=IBV_WR_RDMA_WRITE)
        wr.set_wr_rdma(node.mr.rkey + 1, node.mr.buf)
        a.post_send(wr)
        poll(node.cq, 1)
        result = [next_event(node) for _ in range(2)]
        assert [(event.event_type, event.element) for event in result] == [
            (E.IBV_EVENT_SQ_DRAINED, a),
            (E.IBV_EVENT_QP_ACCESS_ERR, b),
        ]
        assert (len(node.ctx.events), len(stranger.ctx.events)) == (0, 0)
        for event in result:
            event.ack()
        assert all(event.is_acked for event in result)


def test_51_a_shared_queue_tells_that_it_runs_low_and_a_queue_pair_that_it_takes_no_more(node):
    srq = SRQ(node.pd, SrqInitAttr(SrqAttr(max_wr=10, max_sge=1)))
    a, b = connect(node, IBV_QPT_RC, srq=srq)
    srq.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, 8)]))
    limit = SrqAttr()
    limit.srq_limit = 1
    srq.modify(limit, 2)  # IBV_SRQ_LIMIT
    a.post_send(send(node))
    poll(node.cq, 2)
    assert next_event(node).event_type == E.IBV_EVENT_SRQ_LIMIT_REACHED
    b.modify(QPAttr(qp_state=S.IBV_QPS_ERR), M.IBV_QP_STATE)
    event = next_event(node)
    assert (event.event_type, event.element) == (E.IBV_EVENT_QP_LAST_WQE_REACHED, b)
