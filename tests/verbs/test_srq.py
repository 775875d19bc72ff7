"""Shared receive queues, and XRC, where the sender selects one."""

from __future__ import annotations

import errno
import os
import tempfile

import pytest
from tests.verbs.hosts import Node, connect, poll

from weft.verbs.enums import (
    IBV_EVENT_SRQ_LIMIT_REACHED,
    IBV_QP_INIT_ATTR_PD,
    IBV_QP_INIT_ATTR_XRCD,
    IBV_QPT_RC,
    IBV_QPT_XRC_RECV,
    IBV_QPT_XRC_SEND,
    IBV_SRQ_INIT_ATTR_CQ,
    IBV_SRQ_INIT_ATTR_PD,
    IBV_SRQ_INIT_ATTR_TYPE,
    IBV_SRQ_INIT_ATTR_XRCD,
    IBV_SRQ_LIMIT,
    IBV_SRQ_MAX_WR,
    IBV_SRQT_TM,
    IBV_SRQT_XRC,
    IBV_XRCD_INIT_ATTR_FD,
    IBV_XRCD_INIT_ATTR_OFLAGS,
)
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.qp import QP, QPCap, QPInitAttrEx
from weft.verbs.pyverbs.srq import SRQ, OpsWr, SrqAttr, SrqInitAttr, SrqInitAttrEx
from weft.verbs.pyverbs.wr import RecvWR, SendWR
from weft.verbs.pyverbs.xrcd import XRCD, XRCDInitAttr


@pytest.fixture
def node():
    with Node() as result:
        yield result


def shared(node, max_wr=5, limit=0):
    return SRQ(node.pd, SrqInitAttr(SrqAttr(max_wr=max_wr, max_sge=2, srq_limit=limit)))


def receive(node, wr_id=0, next_wr=None):
    return RecvWR(wr_id=wr_id, num_sge=1, sg=[node.sge(512, 100)], next_wr=next_wr)


def test_all_queue_pairs_take_from_it_in_order(node):
    srq = shared(node)
    pairs = [connect(node, IBV_QPT_RC, srq=srq) for _ in range(2)]
    srq.post_recv(receive(node, 1, receive(node, 2, receive(node, 3))))
    used = []
    for turn in (0, 1, 0):
        pairs[turn][0].post_send(SendWR(wr_id=99, num_sge=1, sg=[node.sge(0, 8)]))
        used += [(wc.wr_id, wc.qp_num) for wc in poll(node.cq, 2) if wc.wr_id != 99]
    assert used == [(1, pairs[0][1].qp_num), (2, pairs[1][1].qp_num), (3, pairs[0][1].qp_num)]


def test_a_queue_pair_that_has_one_takes_no_receive_requests_itself(node):
    a, _ = connect(node, IBV_QPT_RC, srq=shared(node))
    with pytest.raises(PyverbsRDMAError, match="post there") as raised:
        a.post_recv(receive(node))
    assert raised.value.error_code == errno.EINVAL


def test_a_chain_is_posted_up_to_what_does_not_fit(node):
    srq, bad = shared(node, max_wr=2), RecvWR()
    with pytest.raises(PyverbsRDMAError, match=r"Failed to post receive to SRQ\.") as raised:
        srq.post_recv(receive(node, 1, receive(node, 2, receive(node, 3))), bad)
    assert (raised.value.error_code, bad.wr_id) == (errno.ENOMEM, 3)
    with pytest.raises(PyverbsRDMAError) as raised:
        shared(node).post_recv(RecvWR(num_sge=3, sg=[node.sge(0, 1)] * 3))
    assert raised.value.error_code == errno.EINVAL


def test_37_below_the_limit_one_event_comes(node):
    srq = shared(node)
    a, _ = connect(node, IBV_QPT_RC, srq=srq)
    for number in range(5):
        srq.post_recv(receive(node, number))
    srq.modify(SrqAttr(srq_limit=4), IBV_SRQ_LIMIT)
    for count in range(4):
        a.post_send(SendWR(num_sge=1, sg=[node.sge(0, 8)]))
        poll(node.cq, 2)
        assert len(node.ctx.events) == (count >= 1)
    event = node.ctx.get_async_event()
    assert (event.event_type, srq.query().srq_limit) == (IBV_EVENT_SRQ_LIMIT_REACHED, 0)


def test_it_can_grow_and_shrink_to_what_is_in_it(node):
    srq = shared(node, max_wr=2)
    srq.post_recv(receive(node, 1, receive(node, 2)))
    srq.modify(SrqAttr(max_wr=3), IBV_SRQ_MAX_WR)
    srq.post_recv(receive(node, 3))
    assert srq.query().max_wr == 3
    for attr, mask in ((SrqAttr(max_wr=2), IBV_SRQ_MAX_WR), (SrqAttr(srq_limit=4), IBV_SRQ_LIMIT), (SrqAttr(), 8)):
        with pytest.raises(PyverbsRDMAError, match="Failed to modify SRQ") as raised:
            srq.modify(attr, mask)
        assert raised.value.error_code == errno.EINVAL


def test_unsupported_attributes_are_refused(node):
    for attr in (SrqAttr(max_wr=0), SrqAttr(max_wr=1 << 30), SrqAttr(max_sge=1 << 16)):
        with pytest.raises(PyverbsRDMAError, match="Failed to create SRQ") as raised:
            SRQ(node.pd, SrqInitAttr(attr))
        assert raised.value.error_code == errno.EINVAL
    tags = SrqInitAttrEx()
    tags.srq_type, tags.comp_mask = IBV_SRQT_TM, IBV_SRQ_INIT_ATTR_TYPE
    with pytest.raises(PyverbsRDMAError) as raised:
        SRQ(node.ctx, tags)
    assert raised.value.error_code == errno.EOPNOTSUPP
    with pytest.raises(PyverbsRDMAError) as raised:
        shared(node).post_srq_ops(OpsWr())
    assert raised.value.error_code == errno.EOPNOTSUPP
    with pytest.raises(PyverbsRDMAError) as raised:
        shared(node).get_srq_num()
    assert raised.value.error_code == errno.EOPNOTSUPP


# -- XRC --------------------------------------------------------------------------------------------------------------


def domain(node, fd):
    mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS
    return XRCD(node.ctx, XRCDInitAttr(mask, os.O_CREAT, fd))


def xrc_queue(node, xrcd):
    attr = SrqInitAttrEx(max_wr=5)
    attr.srq_type, attr.pd, attr.xrcd, attr.cq = IBV_SRQT_XRC, node.pd, xrcd, node.cq
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD
    return SRQ(node.ctx, attr)


def xrc_pair(node, xrcd):
    receiver = QP(node.ctx, QPInitAttrEx(IBV_QPT_XRC_RECV, comp_mask=IBV_QP_INIT_ATTR_XRCD, xrcd=xrcd))
    cap = QPCap(max_send_wr=5, max_recv_wr=0, max_recv_sge=0)
    init = QPInitAttrEx(IBV_QPT_XRC_SEND, scq=node.cq, cap=cap, pd=node.pd, comp_mask=IBV_QP_INIT_ATTR_PD, sq_sig_all=1)
    sender = QP(node.ctx, init)
    receiver.to_rts(node.connected_attr(sender.qp_num))
    sender.to_rts(node.connected_attr(receiver.qp_num))
    return sender, receiver


def test_40_a_sender_names_the_queue_and_processes_share_it_by_a_file(node):
    with tempfile.TemporaryFile() as file:
        xrcd, same, other = domain(node, file.fileno()), domain(node, os.dup(file.fileno())), domain(node, -1)
        queues = {item: xrc_queue(node, item) for item in (xrcd, same, other)}
        sender, _ = xrc_pair(node, xrcd)
        for number, item in enumerate((xrcd, same, other)):
            queues[item].post_recv(receive(node, number))
            wr = SendWR(wr_id=50, num_sge=1, sg=[node.sge(0, 8)])
            wr.set_qp_type_xrc(queues[item].get_srq_num())
            sender.post_send(wr)
            done = {wc.wr_id: wc.status == 0 for wc in poll(node.cq, 1 if item is other else 2)}
            assert done == ({50: False} if item is other else {50: True, number: True})


def test_a_domain_needs_a_file_or_is_created(node):
    for fd, oflags, code in ((-1, 0, errno.EINVAL), (999_999, os.O_CREAT, errno.EBADF)):
        with pytest.raises(PyverbsRDMAError) as raised:
            XRCD(node.ctx, XRCDInitAttr(IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, oflags, fd))
        assert raised.value.error_code == code
    with pytest.raises(PyverbsRDMAError):
        XRCD(node.ctx, XRCDInitAttr(0, 0, -1))


def test_the_receiving_side_of_xrc_posts_nothing(node):
    _, receiver = xrc_pair(node, domain(node, -1))
    with pytest.raises(PyverbsRDMAError):
        receiver.post_send(SendWR(num_sge=1, sg=[node.sge(0, 8)]))
    with pytest.raises(PyverbsRDMAError):
        receiver.post_recv(receive(node))
