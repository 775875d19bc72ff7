"""Reliable datagrams by objects of the verbs: domains, EE contexts, queue pairs of type RD."""

from __future__ import annotations

import errno

import pytest
from tests.verbs.hosts import Q_KEY, REMOTE, Node, poll

import weft.verbs.enums as e
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.eec import EEC, RDD, EECAttr
from weft.verbs.pyverbs.qp import QP, QPAttr
from weft.verbs.pyverbs.wr import RecvWR, SendWR

EX = e.IBV_QP_EX_WITH_SEND | e.IBV_QP_EX_WITH_RDMA_WRITE


@pytest.fixture
def node():
    with Node() as result:
        yield result


def joined(node: Node, rdd: RDD) -> tuple[EEC, EEC]:
    """Return two EE contexts that are connected to each other."""
    ends = EEC(rdd), EEC(rdd)
    for mine, other in ((ends[0], ends[1]), (ends[1], ends[0])):
        mine.to_rts(attributes(node, other.eec_num))
    return ends


def attributes(node: Node, dest_eec_num: int) -> EECAttr:
    attr = EECAttr()
    attr.dest_eec_num, attr.ah_attr = dest_eec_num, node.address()
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    return attr


def datagram_qp(node: Node, rdd: RDD, **more) -> QP:
    attr = QPAttr()
    attr.qkey, attr.qp_access_flags, attr.min_rnr_timer = Q_KEY, REMOTE, 1
    return node.qp(e.IBV_QPT_RD, attr, rdd=rdd, **more)


def test_two_queue_pairs_reach_a_third_by_one_ee_context(node):
    rdd = RDD(node.ctx)
    eec, _ = joined(node, rdd)
    senders, receiver = [datagram_qp(node, rdd) for _ in range(2)], datagram_qp(node, rdd)
    assert receiver.qp_state == e.IBV_QPS_RTS
    for number, qp in enumerate(senders):
        receiver.post_recv(RecvWR(number, 1, [node.sge(2048 + 100 * number, 100)]))
        node.mr.write(f"message {number}", 9, 100 * number)
        wr = SendWR(10 + number, num_sge=1, sg=[node.sge(100 * number, 9)])
        wr.set_wr_rd(eec, receiver.qp_num, Q_KEY)
        qp.post_send(wr)
    done = {wc.wr_id: wc for wc in poll(node.cq, 4)}
    assert [done[number].status for number in (0, 1, 10, 11)] == [e.IBV_WC_SUCCESS] * 4
    for number, qp in enumerate(senders):
        assert (done[number].src_qp, done[number].byte_len) == (qp.qp_num, 9)
        assert node.mr.read(9, 2048 + 100 * number) == f"message {number}".encode()


def test_an_atomic_needs_its_address_besides(node):
    rdd = RDD(node.ctx)
    eec, _ = joined(node, rdd)
    a, b = datagram_qp(node, rdd), datagram_qp(node, rdd)
    node.mr.write((5).to_bytes(8, "little"), 8, 1024)
    wr = SendWR(1, e.IBV_WR_ATOMIC_FETCH_AND_ADD, 1, sg=[node.sge(0, 8)])
    wr.set_wr_rd(eec.eec_num, b.qp_num, Q_KEY)
    wr.set_wr_atomic(node.mr.rkey, node.mr.buf + 1024, 3)
    a.post_send(wr)
    assert [wc.status for wc in poll(node.cq, 1)] == [e.IBV_WC_SUCCESS]
    assert (node.mr.read(8, 0)[0], node.mr.read(8, 1024)[0]) == (5, 8)


def test_the_extended_way_of_posting_knows_them_too(node):
    rdd = RDD(node.ctx)
    eec, _ = joined(node, rdd)
    a, b = datagram_qp(node, rdd, operations=EX), datagram_qp(node, rdd)
    node.mr.write("extended", 8, 0)
    a.wr_start()
    a.wr_id, a.wr_flags = 4, e.IBV_SEND_SIGNALED
    a.wr_rdma_write(node.mr.rkey, node.mr.buf + 512)
    next_psn = eec.query().sq_psn
    a.wr_set_rd_addr(eec, b.qp_num, Q_KEY)
    a.wr_set_sge(node.sge(0, 8))
    a.wr_complete()
    assert [(wc.wr_id, wc.status) for wc in poll(node.cq, 1)] == [(4, e.IBV_WC_SUCCESS)]
    assert node.mr.read(8, 512) == b"extended"
    assert eec.query().sq_psn == next_psn + 1


def test_an_ee_context_goes_through_the_states_with_what_each_needs(node):
    eec, other = EEC(RDD(node.ctx)), EEC(RDD(node.ctx))
    attr = attributes(node, other.eec_num)
    attr.sq_psn, attr.rq_psn, attr.path_mtu = 77, 88, e.IBV_MTU_2048
    attr.eec_state = e.IBV_QPS_RTR
    with pytest.raises(PyverbsRDMAError, match="an EE context does not go from IBV_QPS_RESET to IBV_QPS_RTR") as caught:
        eec.modify(attr, e.IBV_QP_STATE)
    assert caught.value.error_code == errno.EINVAL
    eec.to_init(attr)
    attr.eec_state = e.IBV_QPS_RTR
    with pytest.raises(PyverbsRDMAError, match=r"needs .*IBV_QP_DEST_QPN"):
        eec.modify(attr, e.IBV_QP_STATE)
    eec.to_rts(attr)
    requests = eec.query()
    assert (requests.eec_state, requests.dest_eec_num, requests.sq_psn, requests.rq_psn) == (
        e.IBV_QPS_RTS,
        other.eec_num,
        77,
        88,
    )
    assert (requests.path_mtu, requests.timeout, requests.retry_cnt) == (e.IBV_MTU_2048, 14, 7)
    attr.retry_cnt = 8
    attr.eec_state = e.IBV_QPS_SQD
    eec.modify(attr, e.IBV_QP_STATE)
    with pytest.raises(PyverbsRDMAError, match="retry_cnt 8"):
        eec.modify(attr, e.IBV_QP_RETRY_CNT)
    with pytest.raises(PyverbsRDMAError, match="does not take IBV_QP_ACCESS_FLAGS"):
        eec.modify(attr, e.IBV_QP_ACCESS_FLAGS)
    assert "SQD" in str(eec)


def test_a_domain_belongs_to_reliable_datagrams_and_to_nothing_else(node):
    with pytest.raises(PyverbsRDMAError, match="rdd"):
        node.qp(e.IBV_QPT_RD)
    with pytest.raises(PyverbsRDMAError, match="rdd"):
        node.qp(e.IBV_QPT_RC, rdd=RDD(node.ctx))


def test_requests_of_a_closed_ee_context_are_flushed(node):
    rdd = RDD(node.ctx)
    eec, _ = joined(node, rdd)
    a, b = datagram_qp(node, rdd), datagram_qp(node, rdd)
    wr = SendWR(1, num_sge=1, sg=[node.sge(0, 8)])
    wr.set_wr_rd(eec, b.qp_num, Q_KEY)
    eec.close()
    a.post_send(wr)
    assert [wc.status for wc in poll(node.cq, 1)] == [e.IBV_WC_INV_EECN_ERR]


def test_a_domain_closes_what_is_in_it(node):
    rdd = RDD(node.ctx)
    eec, _ = joined(node, rdd)
    qp = datagram_qp(node, rdd)
    adapter = node.ctx.adapter
    assert eec.eec_num in adapter.ee_contexts
    assert qp.qp_num in adapter.queue_pairs
    number = qp.qp_num
    rdd.close()
    assert eec.eec_num not in adapter.ee_contexts
    assert number not in adapter.queue_pairs
