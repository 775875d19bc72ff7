"""Required behaviour of an InfiniBand transport, as in test_behaviours.py, visible only at the interface."""

from __future__ import annotations

import copy
import errno

import pytest
from tests.verbs.hosts import GID_INDEX, Q_KEY, Node, connect, poll

from weft.verbs.attributes.objects import inc_rkey
from weft.verbs.cm import agent
from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_MTU_256,
    IBV_MTU_4096,
    IBV_MW_TYPE_1,
    IBV_MW_TYPE_2,
    IBV_QPT_RC,
    IBV_QPT_UC,
    IBV_QPT_UD,
    IBV_SEND_INLINE,
    IBV_SEND_SIGNALED,
    IBV_WC_GRH,
    IBV_WC_RECV,
    IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_WRITE,
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.queue_pair import SERVICES, TRANSITIONS
from weft.verbs.pyverbs import qp_changes
from weft.verbs.pyverbs.addr import AH, AHAttr
from weft.verbs.pyverbs.mr import MR, MW, MWBind, MWBindInfo
from weft.verbs.pyverbs.qp import QPAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR

S, M, T, W = ibv_qp_state, ibv_qp_attr_mask, ibv_qp_type, ibv_wr_opcode
STATES = [state for state in S if state != S.IBV_QPS_UNKNOWN]
OK, ACCESS_ERROR = ibv_wc_status.IBV_WC_SUCCESS, ibv_wc_status.IBV_WC_REM_ACCESS_ERR


@pytest.fixture
def node():
    with Node() as result:
        yield result


def refused(code: int, call, *arguments) -> str:
    with pytest.raises(PyverbsRDMAError) as raised:
        call(*arguments)
    assert raised.value.error_code == code
    return str(raised.value)


@pytest.mark.parametrize("code", [31, 32])
def test_14_a_timeout_has_five_bits(node, code):
    attr = node.connected_attr(1)
    attr.timeout = code
    if code > 31:
        assert "timeout" in refused(errno.EINVAL, node.qp(IBV_QPT_RC).to_rts, attr)
    else:
        node.qp(IBV_QPT_RC).to_rts(attr)


@pytest.mark.parametrize("access", [IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC])
def test_24_others_may_write_only_where_the_owner_may(node, access):
    refused(errno.EINVAL, MR, node.pd, 64, access)
    MR(node.pd, 64, access | IBV_ACCESS_LOCAL_WRITE).close()
    MR(node.pd, 64, IBV_ACCESS_REMOTE_READ).close()


def test_28_full_queues_and_what_is_too_much_for_them(node):
    a, b = connect(node, IBV_QPT_RC)
    for _ in range(10):
        b.post_recv(RecvWR())
    refused(errno.ENOMEM, b.post_recv, RecvWR())
    refused(errno.EINVAL, a.post_recv, RecvWR(num_sge=5, sg=[node.sge(0, 1)] * 5))
    refused(errno.EINVAL, a.post_send, SendWR(num_sge=5, sg=[node.sge(0, 1)] * 5))
    refused(errno.EINVAL, a.post_send, SendWR(num_sge=1, sg=[node.sge(0, 65)], send_flags=IBV_SEND_INLINE))
    with node.ctx.adapter.lock:
        b.modify(QPAttr(qp_state=S.IBV_QPS_SQD), M.IBV_QP_STATE)
        for _ in range(10):
            b.post_send(SendWR(num_sge=1, sg=[node.sge(0, 1)]))
        assert "the send queue is full" in refused(errno.ENOMEM, b.post_send, SendWR(num_sge=1, sg=[node.sge(0, 1)]))


@pytest.mark.parametrize("name", ["max_rd_atomic", "max_dest_rd_atomic"])
def test_32_more_reads_under_way_than_the_adapter_can_are_refused(node, name):
    attr, most = node.connected_attr(1), node.ctx.query_device().max_qp_rd_atom
    setattr(attr, name, most + 1)
    assert name in refused(errno.EINVAL, node.qp(IBV_QPT_RC).to_rts, attr)
    setattr(attr, name, most)
    node.qp(IBV_QPT_RC).to_rts(attr)


# -- windows ----------------------------------------------------------------------------------------------------------


def write(node, qp, rkey: int, offset: int = 0) -> ibv_wc_status:
    wr = SendWR(wr_id=77, opcode=IBV_WR_RDMA_WRITE, num_sge=1, sg=[node.sge(0, 8)])
    wr.set_wr_rdma(rkey, node.mr.buf + offset)
    qp.post_send(wr)
    return next(wc.status for wc in poll(node.cq, 1) if wc.wr_id == 77)


def test_38_a_window_of_type_1_has_a_new_key_each_time_and_length_0_unbinds_it(node):
    a, b = connect(node, IBV_QPT_RC)
    mw = MW(node.pd, IBV_MW_TYPE_1)
    for length, status in ((512, OK), (0, ACCESS_ERROR)):
        before = mw.rkey
        info = MWBindInfo(node.mr, node.mr.buf + 1024, length, IBV_ACCESS_REMOTE_WRITE)
        b.bind_mw(mw, MWBind(info, IBV_SEND_SIGNALED))
        assert poll(node.cq, 1)[0].status == OK
        assert mw.rkey != before
        assert write(node, a, mw.rkey, 1024) == status


def test_38_a_window_of_type_2_has_the_key_that_was_chosen_and_is_bound_once(node):
    a, b = connect(node, IBV_QPT_RC)
    mw = MW(node.pd, IBV_MW_TYPE_2)
    info = MWBindInfo(node.mr, node.mr.buf, 512, IBV_ACCESS_REMOTE_WRITE)
    bind = SendWR(opcode=IBV_WR_BIND_MW)
    bind.set_bind_wr(mw, info)
    b.post_send(bind)
    assert poll(node.cq, 1)[0].status == OK
    assert write(node, a, bind.rkey) == OK
    closing = SendWR(opcode=IBV_WR_LOCAL_INV, imm_data=bind.rkey)
    b.post_send(closing)
    assert poll(node.cq, 1)[0].status == OK
    again = SendWR(opcode=IBV_WR_BIND_MW)
    again.set_bind_wr(mw, info)
    b.post_send(again)
    assert (poll(node.cq, 1)[0].status, again.rkey) == (OK, inc_rkey(bind.rkey))
    twice = SendWR(opcode=IBV_WR_BIND_MW)
    twice.set_bind_wr(mw, info)
    b.post_send(twice)
    assert poll(node.cq, 1)[0].status == ibv_wc_status.IBV_WC_MW_BIND_ERR


def test_38_a_window_of_type_2_is_of_the_queue_pair_that_it_is_bound_through(node):
    a, b = connect(node, IBV_QPT_RC)
    other, _ = connect(node, IBV_QPT_RC)
    mw = MW(node.pd, IBV_MW_TYPE_2)
    bind = SendWR(opcode=IBV_WR_BIND_MW)
    bind.set_bind_wr(mw, MWBindInfo(node.mr, node.mr.buf, 512, IBV_ACCESS_REMOTE_WRITE))
    b.post_send(bind)
    assert poll(node.cq, 1)[0].status == OK
    assert write(node, other, bind.rkey) == ACCESS_ERROR
    assert write(node, a, bind.rkey) == OK


def test_38_what_is_outside_of_a_window_is_closed_and_all_of_it_when_it_ends(node):
    for inside, status in ((True, OK), (False, ACCESS_ERROR)):
        a, b = connect(node, IBV_QPT_RC)
        mw = MW(node.pd, IBV_MW_TYPE_1)
        b.bind_mw(mw, MWBind(MWBindInfo(node.mr, node.mr.buf, 64, IBV_ACCESS_REMOTE_WRITE), IBV_SEND_SIGNALED))
        assert poll(node.cq, 1)[0].status == OK
        assert write(node, a, mw.rkey, 0 if inside else 57) == status
        if inside:
            key = mw.rkey
            mw.close()
            assert write(node, a, key) == ACCESS_ERROR


def test_38_window_region_and_queue_pair_are_of_one_protection_domain(node):
    a, _ = connect(node, IBV_QPT_RC)
    bind = SendWR(opcode=IBV_WR_BIND_MW)
    bind.set_bind_wr(MW(node.other_pd(), IBV_MW_TYPE_2), MWBindInfo(node.mr, node.mr.buf, 64, IBV_ACCESS_REMOTE_WRITE))
    a.post_send(bind)
    assert poll(node.cq, 1)[0].status == ibv_wc_status.IBV_WC_MW_BIND_ERR


def test_38_a_window_needs_a_region_that_allows_windows(node):
    a, _ = connect(node, IBV_QPT_RC)
    plain = MR(node.pd, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
    bind = SendWR(opcode=IBV_WR_BIND_MW)
    bind.set_bind_wr(MW(node.pd, IBV_MW_TYPE_2), MWBindInfo(plain, plain.buf, 64, IBV_ACCESS_REMOTE_WRITE))
    a.post_send(bind)
    assert poll(node.cq, 1)[0].status == ibv_wc_status.IBV_WC_MW_BIND_ERR


# -- datagrams --------------------------------------------------------------------------------------------------------


def test_42_a_controlled_q_key_is_for_the_privileged(node, monkeypatch):
    attr = QPAttr()
    attr.qkey = 0x8000_0001
    monkeypatch.setattr(qp_changes, "may_use_controlled_qkeys", lambda: False)
    refused(errno.EPERM, node.qp(IBV_QPT_UD).to_init, attr)
    monkeypatch.setattr(qp_changes, "may_use_controlled_qkeys", lambda: True)
    node.qp(IBV_QPT_UD).to_init(attr)


def test_43_an_address_without_a_route_is_none_on_ethernet(node):
    with pytest.raises(PyverbsRDMAError, match="Failed to create AH"):
        AH(node.pd, attr=AHAttr(dlid=1))


def test_41_over_ipv4_the_route_is_twenty_zeros_and_the_ip_header(node):
    a, b = connect(node, IBV_QPT_UD)
    b.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, 100)]))
    wr = SendWR(num_sge=1, sg=[node.sge(0, 8)])
    wr.set_wr_ud(AH(node.pd, attr=node.address()), b.qp_num, Q_KEY)
    a.post_send(wr)
    received = next(wc for wc in poll(node.cq, 2) if wc.opcode == IBV_WC_RECV)
    assert (received.byte_len, received.wc_flags & IBV_WC_GRH, received.src_qp) == (48, IBV_WC_GRH, a.qp_num)
    route, own = node.mr.read(40, 512), node.ctx.query_gid(1, GID_INDEX).gid.split(":")
    address = bytes.fromhex(own[6] + own[7])
    assert (route[:20], route[20] >> 4, route[32:36], route[36:]) == (bytes(20), 4, address, address)


def test_42_management_has_a_q_key_of_its_own():
    assert (agent.QP1, agent.QP1_KEY) == (1, 0x8001_0000)


@pytest.mark.parametrize("opcode", [W.IBV_WR_RDMA_READ, W.IBV_WR_ATOMIC_FETCH_AND_ADD, W.IBV_WR_FLUSH])
def test_44_uc_has_nothing_that_is_answered(node, opcode):
    a, _ = connect(node, IBV_QPT_UC)
    wr = SendWR(num_sge=1, sg=[node.sge(0, 8)], opcode=opcode)
    assert opcode.name in refused(errno.EINVAL, a.post_send, wr)


# -- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "works"), [(0, False), (IBV_MTU_256, True), (IBV_MTU_4096, True), (6, False)])
def test_47_a_path_mtu_is_one_that_the_port_can(node, code, works):
    attr = node.connected_attr(1)
    attr.path_mtu = code
    qp = node.qp(IBV_QPT_RC, QPAttr())
    if works:
        qp.to_rtr(attr)
    else:
        assert "path_mtu" in refused(errno.EINVAL, qp.to_rtr, attr)


def test_47_a_port_with_a_smaller_mtu_takes_no_larger_one(node, monkeypatch):
    monkeypatch.setattr(node.ctx.adapter, "mtu_bytes", 1024)
    attr = node.connected_attr(1)
    attr.path_mtu = IBV_MTU_4096
    assert "1024" in refused(errno.EINVAL, node.qp(IBV_QPT_RC, QPAttr()).to_rtr, attr)


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout", 32), ("retry_cnt", 8), ("rnr_retry", 8), ("min_rnr_timer", 32), ("port_num", 2), ("pkey_index", 1)],
)
def test_48_values_that_do_not_fit_are_refused_and_change_nothing(node, name, value):
    attr = node.connected_attr(1)
    setattr(attr, name, value)
    qp = node.qp(IBV_QPT_RC)
    assert name in refused(errno.EINVAL, qp.to_rts, attr)
    assert qp.qp_state in (S.IBV_QPS_RESET, S.IBV_QPS_INIT, S.IBV_QPS_RTR)


def in_state(node, kind: int, state: ibv_qp_state):
    qp, attr = node.qp(kind), node.connected_attr(1) if kind != IBV_QPT_UD else node.datagram_attr()
    for target, step in ((S.IBV_QPS_INIT, qp.to_init), (S.IBV_QPS_RTR, qp.to_rtr), (S.IBV_QPS_RTS, qp.to_rts)):
        if state != S.IBV_QPS_RESET and qp.qp_state < min(state, S.IBV_QPS_RTS) and target == qp.qp_state + 1:
            step(attr)
    if state in (S.IBV_QPS_SQD, S.IBV_QPS_ERR):
        qp.modify(QPAttr(qp_state=state), M.IBV_QP_STATE)
    elif state == S.IBV_QPS_SQE:
        qp.core.state = state
    assert qp.qp_state == state
    return qp, attr


@pytest.mark.parametrize("kind", [IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD])
@pytest.mark.parametrize("before", STATES)
def test_48_states_follow_each_other_as_the_table_says_with_what_it_needs(node, kind, before):
    for after in STATES:
        masks = TRANSITIONS.get((before, after), {}).get(T(kind))
        qp, attr = in_state(node, kind, before)
        attr.qp_state = after
        if masks is None:
            refused(errno.EINVAL, qp.modify, attr, M.IBV_QP_STATE)
            assert qp.qp_state == before
            continue
        needed, allowed = masks
        for bit in M:
            if bit & needed:
                assert bit.name in refused(errno.EINVAL, qp.modify, attr, M.IBV_QP_STATE | needed & ~bit)
        unwanted = M.IBV_QP_CAP
        refused(errno.EINVAL, qp.modify, attr, M.IBV_QP_STATE | needed | unwanted)
        assert not allowed & unwanted
        qp.modify(attr, M.IBV_QP_STATE | needed)
        assert qp.qp_state == after


def test_48_the_table_is_that_of_linux():
    """drivers/infiniband/core/verbs.c, qp_state_table."""
    rc, ud = T.IBV_QPT_RC, T.IBV_QPT_UD
    steps = {(before.name[8:], after.name[8:]) for (before, after), kinds in TRANSITIONS.items() if rc in kinds}
    ways = {("RESET", "INIT"), ("INIT", "INIT"), ("INIT", "RTR"), ("RTR", "RTS"), ("RTS", "RTS"), ("RTS", "SQD")}
    ways |= {("SQD", "RTS"), ("SQD", "SQD")} | {(state.name[8:], "RESET") for state in STATES}
    ways |= {(state.name[8:], "ERR") for state in STATES if state != S.IBV_QPS_RESET}
    assert steps == ways
    assert set(TRANSITIONS[S.IBV_QPS_SQE, S.IBV_QPS_RTS]) == {T.IBV_QPT_UC, ud, T.IBV_QPT_RD}
    assert set(SERVICES) == set(TRANSITIONS[S.IBV_QPS_RESET, S.IBV_QPS_INIT])


ONLY_WITH = {  # transition: queue pair types, required attributes, optional ones; XS and XR: XRC, sending and receiving
    "RESET INIT": ["RC UC XS XR: PKEY_INDEX PORT ACCESS_FLAGS:", "UD: PKEY_INDEX PORT QKEY:", "RD: ACCESS_FLAGS QKEY:"],
    "INIT INIT": ["RC UC XS XR:: PKEY_INDEX PORT ACCESS_FLAGS", "UD:: PKEY_INDEX PORT QKEY", "RD:: ACCESS_FLAGS QKEY"],
    "INIT RTR": [
        "RC XR: AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER: ALT_PATH ACCESS_FLAGS PKEY_INDEX",
        "UC XS: AV PATH_MTU DEST_QPN RQ_PSN: ALT_PATH ACCESS_FLAGS PKEY_INDEX",
        "UD:: PKEY_INDEX QKEY",
        "RD: MIN_RNR_TIMER: QKEY ACCESS_FLAGS",
    ],
    "RTR RTS": [
        "RC: TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC:"
        "CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE",
        "UC: SQ_PSN: CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE",
        "UD: SQ_PSN: CUR_STATE QKEY",
        "RD:: CUR_STATE QKEY ACCESS_FLAGS MIN_RNR_TIMER",
        "XS: TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC: CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE",
        "XR: TIMEOUT SQ_PSN: CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE",
    ],
    "RTS RTS": [
        "RC XR:: CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE",
        "UC XS:: CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE",
        "UD:: CUR_STATE QKEY",
        "RD:: CUR_STATE QKEY ACCESS_FLAGS MIN_RNR_TIMER",
    ],
    "RTS SQD": ["RC UC UD RD XS XR:: EN_SQD_ASYNC_NOTIFY"],
    "SQD SQD": [  # CUR_STATE in addition to Linux
        "RC:: PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH CUR_STATE PKEY_INDEX"
        " ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE",
        "UC:: AV ALT_PATH CUR_STATE PKEY_INDEX ACCESS_FLAGS PATH_MIG_STATE",
        "UD:: PKEY_INDEX QKEY",
        "RD:: CUR_STATE QKEY ACCESS_FLAGS MIN_RNR_TIMER",
        "XS:: PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH CUR_STATE PKEY_INDEX ACCESS_FLAGS"
        " PATH_MIG_STATE",
        "XR:: PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH CUR_STATE PKEY_INDEX ACCESS_FLAGS MIN_RNR_TIMER"
        " PATH_MIG_STATE",
    ],
    "SQE RTS": ["UC:: CUR_STATE ACCESS_FLAGS", "UD:: CUR_STATE QKEY", "RD:: CUR_STATE QKEY ACCESS_FLAGS MIN_RNR_TIMER"],
}
ONLY_WITH["SQD RTS"] = ONLY_WITH["RTS RTS"]


@pytest.mark.parametrize("step", ONLY_WITH)
def test_48_each_transition_has_the_attributes_of_linux(step):
    """drivers/infiniband/core/verbs.c, qp_state_table; for RD, the table of the standard."""
    before, after = (S[f"IBV_QPS_{state}"] for state in step.split())
    expected = {}
    for kinds, *masks in (line.split(":") for line in ONLY_WITH[step]):
        for kind in kinds.split():
            bits = [sum(M[f"IBV_QP_{name}"] for name in names.split()) for names in masks]
            expected[T["IBV_QPT_" + {"XS": "XRC_SEND", "XR": "XRC_RECV"}.get(kind, kind)]] = tuple(bits)
    assert TRANSITIONS[before, after] == expected


def test_48_a_current_state_that_it_is_not_in_is_refused(node):
    qp, attr = in_state(node, IBV_QPT_UD, S.IBV_QPS_RTS)
    attr.qp_state, attr.cur_qp_state = S.IBV_QPS_RTS, S.IBV_QPS_RTR
    refused(errno.EINVAL, qp.modify, attr, M.IBV_QP_STATE | M.IBV_QP_CUR_STATE)
    attr.cur_qp_state = S.IBV_QPS_RTS
    qp.modify(attr, M.IBV_QP_STATE | M.IBV_QP_CUR_STATE)


def test_48_attributes_that_are_not_in_the_mask_change_nothing(node):
    qp, _ = connect(node, IBV_QPT_RC)
    before = copy.copy(qp.core.settings)
    attr = QPAttr(qp_state=S.IBV_QPS_RTS)
    attr.path_mtu = IBV_MTU_256
    for name in (
        "timeout",
        "retry_cnt",
        "rnr_retry",
        "min_rnr_timer",
        "dest_qp_num",
        "rq_psn",
        "sq_psn",
        "max_rd_atomic",
    ):
        setattr(attr, name, 1)
    attr.max_dest_rd_atomic = attr.qp_access_flags = 1
    qp.modify(attr, M.IBV_QP_STATE)
    assert qp.core.settings == before


def test_48_what_was_set_is_what_is_asked(node):
    a, b = connect(node, IBV_QPT_RC)
    attr, init = a.query(M.IBV_QP_STATE)
    assert (attr.dest_qp_num, attr.timeout, attr.max_rd_atomic) == (b.qp_num, 14, 4)
    assert (attr.ah_attr.dgid, init.cap.max_send_wr) == (node.address().dgid, 10)
    assert attr.qp_state == attr.cur_qp_state == S.IBV_QPS_RTS


@pytest.mark.parametrize("state", STATES)
def test_49_receives_are_posted_from_init_on_and_sends_from_rts_on(node, state):
    qp, _ = in_state(node, IBV_QPT_RC, state)
    if state == S.IBV_QPS_RESET:
        refused(errno.EINVAL, qp.post_recv, RecvWR())
    else:
        qp.post_recv(RecvWR())
    wr = SendWR(num_sge=1, sg=[SGE(node.mr.buf, 8, node.mr.lkey)])
    if state in (S.IBV_QPS_RESET, S.IBV_QPS_INIT, S.IBV_QPS_RTR):
        refused(errno.EINVAL, qp.post_send, wr)
    else:
        qp.post_send(wr)


def test_50_a_drained_send_queue_is_told_if_it_was_asked(node):
    qp, attr = in_state(node, IBV_QPT_RC, S.IBV_QPS_SQD)
    assert not node.ctx.events
    qp.modify(QPAttr(qp_state=S.IBV_QPS_RTS), M.IBV_QP_STATE)
    attr.qp_state, attr.en_sqd_async_notify = S.IBV_QPS_SQD, 1
    qp.modify(attr, M.IBV_QP_STATE | M.IBV_QP_EN_SQD_ASYNC_NOTIFY)
    assert [event.event_type for event in node.ctx.events] == [ibv_event_type.IBV_EVENT_SQ_DRAINED]


def test_51_an_access_error_is_an_event_of_the_responder(node):
    a, b = connect(node, IBV_QPT_RC)
    assert write(node, a, node.mr.rkey + 1) == ACCESS_ERROR
    (event,) = node.ctx.events
    assert (event.event_type, event.element) == (ibv_event_type.IBV_EVENT_QP_ACCESS_ERR, b)


def test_51_the_established_connection_is_told(node):
    a, b = node.qp(IBV_QPT_UC), node.qp(IBV_QPT_UC)
    b.to_rtr(node.connected_attr(a.qp_num))
    a.to_rts(node.connected_attr(b.qp_num))
    b.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, 8)]))
    a.post_send(SendWR(num_sge=1, sg=[node.sge(0, 8)]))
    poll(node.cq, 2)
    assert [event.event_type for event in node.ctx.events] == [ibv_event_type.IBV_EVENT_COMM_EST]
