"""Queue pairs at the programs' interface: create, modify, query, post, close."""

from __future__ import annotations

import errno
import socket

import pytest
from tests.verbs.hosts import GID_INDEX, Node, connect, poll

from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_QP_CAP,
    IBV_QP_EX_WITH_SEND,
    IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_INIT_ATTR_PD,
    IBV_QP_STATE,
    IBV_QPS_ERR,
    IBV_QPS_INIT,
    IBV_QPS_RESET,
    IBV_QPS_RTS,
    IBV_QPT_RAW_PACKET,
    IBV_QPT_RC,
    IBV_QPT_UC,
    IBV_QPT_UD,
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_WC_WITH_IMM,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,
)
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.pyverbs.addr import AH, AHAttr, GlobalRoute
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.qp import ECE, QP, DataBuffer, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx, QPRateLimitAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR


@pytest.fixture
def node():
    with Node() as result:
        yield result


@pytest.fixture
def pair(node):
    return node, *connect(node, IBV_QPT_RC)


# -- creation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "state"),
    [
        (IBV_QPT_RC, False, IBV_QPS_RESET),
        (IBV_QPT_RC, True, IBV_QPS_INIT),
        (IBV_QPT_UC, True, IBV_QPS_INIT),
        (IBV_QPT_UD, True, IBV_QPS_RTS),
    ],
)
def test_with_attributes_it_goes_as_far_as_it_can_alone(node, kind, given, state):
    assert node.qp(kind, QPAttr() if given else None).qp_state == state


def test_two_queue_pairs_have_two_numbers(node):
    assert node.qp(IBV_QPT_RC).qp_num != node.qp(IBV_QPT_RC).qp_num


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"qp_type": IBV_QPT_RAW_PACKET}, errno.EOPNOTSUPP),
        ({"qp_type": 77}, errno.EINVAL),
        ({"cap": QPCap(max_send_wr=1 << 31)}, errno.EINVAL),
        ({"cap": QPCap(max_recv_sge=1 << 16)}, errno.EINVAL),
        ({"cap": QPCap(max_inline_data=1 << 20)}, errno.EINVAL),
        ({"scq": None}, errno.EINVAL),
        ({"rcq": None}, errno.EINVAL),
    ],
)
def test_unsupported_attributes_are_refused(node, change, code):
    attributes = {"qp_type": IBV_QPT_RC, "scq": node.cq, "rcq": node.cq, "cap": QPCap()} | change
    with pytest.raises(PyverbsRDMAError, match="Failed to create QP") as raised:
        QP(node.pd, QPInitAttr(**attributes))
    assert raised.value.error_code == code


def test_a_context_needs_a_protection_domain_in_the_mask(node):
    init = QPInitAttrEx(IBV_QPT_RC, scq=node.cq, rcq=node.cq, cap=QPCap(), pd=node.pd)
    with pytest.raises(PyverbsRDMAError, match="IBV_QP_INIT_ATTR_PD") as raised:
        QP(node.ctx, init)
    assert raised.value.error_code == errno.EINVAL
    init.comp_mask = IBV_QP_INIT_ATTR_PD
    assert QP(node.ctx, init).qp_type == IBV_QPT_RC


def test_something_that_is_no_completion_queue_is_refused(node):
    with pytest.raises(PyverbsUserError, match="Expected CQ/CQEX"):
        QPInitAttr(scq=node.pd)


def test_capacities_are_copied_and_written_one_by_one():
    init = QPInitAttr(cap=QPCap(max_send_wr=5))
    init.cap.max_send_wr = 7
    assert init.max_send_wr == 5
    init.max_send_wr = 7
    assert init.cap.max_send_wr == 7
    with pytest.raises(OverflowError):
        init.max_send_wr = 1 << 32


def test_objects_print_as_in_pyverbs(node):
    qp = node.qp(IBV_QPT_UD, QPAttr())
    attr, init = qp.query(IBV_QP_CAP)
    assert str(qp).splitlines()[0] == "QP type               : UD                  "
    assert "QP state              : RTS" in str(attr)
    assert "    max send WR       : 10" in str(init)
    assert "comp mask             : PD" in str(QPInitAttrEx(comp_mask=IBV_QP_INIT_ATTR_PD))
    assert "Vendor ID             : 0x5" in str(ECE(5))


# -- ending -----------------------------------------------------------------------------------------------------------


def test_the_end_of_a_parent_is_the_end_of_its_queue_pairs(node):
    cq = CQ(node.ctx, 10)
    qp = node.qp(IBV_QPT_RC, QPAttr(), cq=cq)
    number, adapter = qp.qp_num, node.ctx.adapter
    assert number in adapter.queue_pairs
    cq.close()
    assert number not in adapter.queue_pairs
    qp.close()


def test_a_member_of_a_group_cannot_end(node):
    qp = node.qp(IBV_QPT_UD, QPAttr())
    node.ctx.adapter.join(qp.core, "group")
    with pytest.raises(PyverbsRDMAError, match="Failed to destroy QP") as raised:
        qp.close()
    assert raised.value.error_code == errno.EBUSY
    node.ctx.adapter.leave(qp.core, "group")
    qp.close()


# -- posting ----------------------------------------------------------------------------------------------------------


def test_a_chain_is_posted_up_to_the_first_that_is_refused(pair):
    node, a, b = pair
    for number in range(3):
        b.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[node.sge(512, 100)]))
    third = SendWR(wr_id=3, num_sge=1, sg=[node.sge(0, 8)])
    second = SendWR(wr_id=2, num_sge=9, sg=[node.sge(0, 1)] * 9, next_wr=third)
    first = SendWR(wr_id=1, num_sge=1, sg=[node.sge(0, 8)], next_wr=second)
    bad = SendWR(num_sge=1, sg=[node.sge(0, 1)])
    with pytest.raises(PyverbsRDMAError, match="Failed to post send") as raised:
        a.post_send(first, bad)
    assert (raised.value.error_code, bad.wr_id) == (errno.EINVAL, 2)
    assert [wc.wr_id for wc in poll(node.cq, 2)] == [0, 1]
    assert node.cq.poll()[0] == 0


def test_receives_of_a_chain_are_taken_in_order_until_the_queue_is_full(node):
    qp = node.qp(IBV_QPT_RC, QPAttr(), cap=QPCap(max_recv_wr=2))
    chain = None
    for number in (3, 2, 1):
        chain = RecvWR(wr_id=number, next_wr=chain)
    bad = RecvWR()
    with pytest.raises(PyverbsRDMAError, match="Failed to post recv") as raised:
        qp.post_recv(chain, bad)
    assert (raised.value.error_code, bad.wr_id, len(qp.core.receives)) == (errno.ENOMEM, 3, 2)


def test_inline_data_needs_no_key_and_is_copied_when_it_is_posted(pair):
    node, a, b = pair
    b.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, 100)]))
    node.mr.write("before", 6)
    with node.ctx.adapter.lock:
        wr = SendWR(num_sge=1, sg=[SGE(node.mr.buf, 6, 0)], send_flags=IBV_SEND_SIGNALED | IBV_SEND_INLINE)
        a.post_send(wr)
        node.mr.write("behind", 6)
    poll(node.cq, 2)
    assert node.mr.read(6, 512) == b"before"


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (IBV_QPT_UC, {"opcode": IBV_WR_RDMA_READ}),
        (IBV_QPT_UD, {"opcode": IBV_WR_RDMA_WRITE}),
        (IBV_QPT_UD, {"opcode": IBV_WR_SEND}),  # without an address
        (IBV_QPT_RC, {"opcode": IBV_WR_RDMA_READ, "send_flags": IBV_SEND_INLINE}),
        (IBV_QPT_RC, {"opcode": 99}),
    ],
)
def test_unsupported_operations_of_a_queue_pair_type_are_refused(node, kind, change):
    qp, _ = connect(node, kind)
    with pytest.raises(PyverbsRDMAError) as raised:
        qp.post_send(SendWR(num_sge=1, sg=[node.sge(0, 8)], **change))
    assert raised.value.error_code == errno.EINVAL
    assert not qp.core.sends


def test_immediate_data_arrives_in_the_order_of_the_network(pair):
    node, a, b = pair
    b.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, 100)]))
    wr = SendWR(opcode=IBV_WR_SEND_WITH_IMM, num_sge=1, sg=[node.sge(0, 8)], imm_data=socket.htonl(0x01020304))
    a.post_send(wr)
    (received,) = [wc for wc in poll(node.cq, 2) if wc.wc_flags & IBV_WC_WITH_IMM]
    assert socket.ntohl(received.imm_data) == 0x01020304


def test_datagrams_go_where_the_address_handle_says(node):
    a, b = node.qp(IBV_QPT_UD, node.datagram_attr()), node.qp(IBV_QPT_UD, node.datagram_attr())
    b.post_recv(RecvWR(wr_id=7, num_sge=1, sg=[node.sge(512, 100)]))
    ah = AH(node.pd, attr=node.address())
    wr = SendWR(num_sge=1, sg=[node.sge(0, 8)])
    wr.set_wr_ud(ah, b.qp_num, 0x11)
    node.mr.write("datagram", 8)
    a.post_send(wr)
    done = poll(node.cq, 2)
    assert {wc.wr_id for wc in done} == {0, 7}
    (came,) = [wc for wc in done if wc.wr_id == 7]
    assert (came.byte_len, came.src_qp) == (48, a.qp_num)
    assert node.mr.read(8, 512 + 40) == b"datagram"
    back = AH(node.pd, wc=came, grh=node.mr.buf + 512)
    assert (back.attr.dgid, back.attr.sgid_index) == (node.address().dgid, GID_INDEX)


# -- the extended way -------------------------------------------------------------------------------------------------


@pytest.fixture
def extended(node):
    flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM
    return node, *connect(node, IBV_QPT_RC, operations=flags)


def test_nothing_is_posted_before_the_end(extended):
    node, a, b = extended
    b.post_recv(RecvWR(wr_id=5, num_sge=1, sg=[node.sge(512, 100)]))
    a.wr_start()
    a.wr_id, a.wr_flags = 1, IBV_SEND_SIGNALED
    a.wr_send_imm(0x0A0B0C0D)
    a.wr_set_sge_list(2, [node.sge(0, 3), node.sge(3, 2)])
    assert not a.core.sends
    a.wr_complete()
    done = {wc.wr_id: wc for wc in poll(node.cq, 2)}
    assert (done[5].byte_len, socket.ntohl(done[5].imm_data)) == (5, 0x0A0B0C0D)


def test_if_one_is_wrong_nothing_is_posted(extended):
    node, a, _ = extended
    a.wr_start()
    a.wr_send()
    a.wr_set_sge(node.sge(0, 8))
    a.wr_send()
    a.wr_set_sge_list(9, [node.sge(0, 1)] * 9)
    with pytest.raises(PyverbsRDMAError, match=r"ibv_wr_complete failed\.") as raised:
        a.wr_complete()
    assert (raised.value.error_code, len(a.core.sends)) == (errno.EINVAL, 0)


def test_aborted_batch_is_discarded(extended):
    _, a, _ = extended
    a.wr_start()
    a.wr_send()
    a.wr_abort()
    with pytest.raises(PyverbsUserError, match="wr_start"):
        a.wr_complete()
    assert not a.core.sends


def test_only_what_was_asked_for_when_it_was_made_can_be_done(extended):
    _, a, _ = extended
    a.wr_start()
    a.wr_rdma_read(1, 1)
    with pytest.raises(PyverbsRDMAError, match="IBV_QP_EX_WITH_RDMA_READ"):
        a.wr_complete()


def test_inline_data_of_many_places_is_one_message(extended):
    node, a, b = extended
    b.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, 100)]))
    node.mr.write("together", 8)
    a.wr_start()
    a.wr_send()
    a.wr_set_inline_data_list(2, [DataBuffer(node.mr.buf + 4, 4), DataBuffer(node.mr.buf, 4)])
    node.mr.write("________", 8)
    a.wr_complete()
    poll(node.cq, 1)
    assert node.mr.read(8, 512) == b"thertoge"


def test_without_the_mask_it_does_nothing_the_extended_way(node):
    init = QPInitAttrEx(IBV_QPT_RC, scq=node.cq, rcq=node.cq, cap=QPCap(), pd=node.pd, comp_mask=IBV_QP_INIT_ATTR_PD)
    init.send_ops_flags = IBV_QP_EX_WITH_SEND
    qp = QPEx(node.ctx, init, QPAttr())
    qp.wr_start()
    qp.wr_send()
    with pytest.raises(PyverbsRDMAError, match="send_ops_flags"):
        qp.wr_complete()


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_there_are_no_options_of_vendors(node):
    qp = node.qp(IBV_QPT_RC)
    qp.set_ece(ECE())
    with pytest.raises(PyverbsRDMAError) as raised:
        qp.set_ece(ECE(vendor_id=1))
    assert raised.value.error_code == errno.EOPNOTSUPP
    with pytest.raises(PyverbsRDMAError):
        qp.query_ece()


def test_memory_of_another_protection_domain_is_not_sent(pair):
    node, a, _ = pair
    other = node.other_pd()
    mr = MR(other, 64, IBV_ACCESS_LOCAL_WRITE)
    a.post_send(SendWR(num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)]))
    (done,) = poll(node.cq, 1)
    assert done.status != 0
    assert a.qp_state == IBV_QPS_ERR


def test_an_error_can_be_reset(pair):
    _, a, _ = pair
    for state in (IBV_QPS_ERR, IBV_QPS_RESET):
        a.modify(QPAttr(qp_state=state), IBV_QP_STATE)
        assert a.qp_state == state


def test_a_route_of_a_global_address_is_needed(node):
    attr = node.connected_attr(1)
    attr.ah_attr = AHAttr(dlid=1)
    qp = node.qp(IBV_QPT_RC, QPAttr())
    with pytest.raises(PyverbsRDMAError, match="global route"):
        qp.to_rtr(attr)
    attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(sgid_index=4))
    with pytest.raises(PyverbsRDMAError, match="sgid_index 4"):
        qp.to_rtr(attr)


def test_a_rate_limit_is_none_or_not_supported(pair):
    node, qp, _ = pair
    limits = QPRateLimitAttr(rate_limit=5000, max_burst_sz=1, typical_pkt_sz=2)
    assert "5000" in str(limits)
    assert node.ctx.query_device_ex().packet_pacing_caps.qp_rate_limit_max == 0
    qp.modify_rate_limit(QPRateLimitAttr())
    for attr, at, code in [(limits, qp, errno.EOPNOTSUPP), (QPRateLimitAttr(), node.qp(IBV_QPT_RC), errno.EINVAL)]:
        with pytest.raises(PyverbsRDMAError, match="Failed to modify QP rate limit") as caught:
            at.modify_rate_limit(attr)
        assert caught.value.error_code == code


def test_attributes_that_a_program_leaves_out_are_zero():
    attr = QPInitAttrEx()
    names = ("sq_sig_all", "comp_mask", "create_flags", "max_tso_header", "source_qpn", "send_ops_flags")
    assert [getattr(attr, name) for name in names] == [0] * len(names)
