"""Connections by addresses: both ends in this process, which makes progress while it waits for events."""

from __future__ import annotations

import errno
import gc
import threading

import pytest
from tests.patience import PATIENCE_S, wait_until

from weft.verbs.cm import connection
from weft.verbs.cm.agent import Agent
from weft.verbs.enums import (
    IBV_QP_TIMEOUT,
    IBV_QPS_ERR,
    IBV_QPS_INIT,
    IBV_QPS_RTR,
    IBV_QPS_RTS,
    IBV_QPT_RC,
    IBV_QPT_UD,
    IBV_WC_SUCCESS,
)
from weft.verbs.enums.cm import (
    RAI_PASSIVE,
    RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_MULTICAST_JOIN,
    RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_OPTION_ID,
    RDMA_OPTION_ID_ACK_TIMEOUT,
    RDMA_PS_TCP,
    RDMA_PS_UDP,
)
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.pyverbs.addr import AH
from weft.verbs.pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam, UDParam
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.qp import QP, QPCap, QPInitAttr
from weft.wire.cm import Req

HOST = "127.0.0.1"


def made_of(space: int) -> QPInitAttr:
    return QPInitAttr(qp_type=IBV_QPT_RC if space == RDMA_PS_TCP else IBV_QPT_UD, cap=QPCap())


class Pair:
    """A listener and a client, each with an event channel."""

    def __init__(self, space: int = RDMA_PS_TCP) -> None:
        self.space = space
        self.channels = CMEventChannel(), CMEventChannel()
        self.listener = CMID(self.channels[1], port_space=space)
        self.listener.bind_addr(AddrInfo(src=HOST, port_space=space, flags=RAI_PASSIVE))
        self.listener.listen()
        self.near = CMID(self.channels[0], port_space=space)
        present = AddrInfo(src=HOST, dst=HOST, dst_service=str(self.listener._own_port), port_space=space)
        self.near.resolve_addr(present)
        self.near.resolve_route()
        assert [self.event(0).event_type for _ in range(2)] == [
            RDMA_CM_EVENT_ADDR_RESOLVED,
            RDMA_CM_EVENT_ROUTE_RESOLVED,
        ]

    def event(self, end: int) -> CMEvent:
        return CMEvent(self.channels[end])

    def asked(self, param: ConnParam | None = None) -> CMEvent:
        """Send a connection request and return its event at the listener."""
        self.near.connect(param)
        event = self.event(1)
        assert event.event_type == RDMA_CM_EVENT_CONNECT_REQUEST
        self.far = CMID(event, listen_id=self.listener)
        return event

    def connected(self) -> Pair:
        self.near.create_qp(made_of(self.space))
        self.asked()
        self.far.create_qp(made_of(self.space))
        self.far.accept()
        self.answer = self.event(0)
        assert self.answer.event_type == RDMA_CM_EVENT_ESTABLISHED
        if self.space == RDMA_PS_TCP:
            assert self.event(1).event_type == RDMA_CM_EVENT_ESTABLISHED
        return self

    def close(self) -> None:
        for item in (self.near, getattr(self, "far", None), self.listener):
            if item is not None:
                item.close()


@pytest.fixture
def pair():
    result = Pair()
    yield result
    result.close()


def test_messages_go_both_ways_until_one_end_leaves(pair):
    pair.connected()
    for sender, receiver, text in ((pair.near, pair.far, b"there"), (pair.far, pair.near, b"back")):
        local, away = sender.reg_msgs(16), receiver.reg_msgs(16)
        receiver.post_recv(away)
        local.write(text, len(text))
        sender.post_send(local, length=len(text))
        assert sender.get_send_comp().status == IBV_WC_SUCCESS
        assert receiver.get_recv_comp().byte_len == len(text)
        assert away.read(len(text), 0) == text
    pair.near.disconnect()
    assert pair.near.qp.qp_state == IBV_QPS_ERR
    assert pair.event(1).event_type == RDMA_CM_EVENT_DISCONNECTED
    pair.far.disconnect()
    assert pair.event(0).event_type == RDMA_CM_EVENT_DISCONNECTED
    with pytest.raises(PyverbsRDMAError, match="not connected"):
        pair.far.disconnect()


def test_memory_of_the_other_end_is_read_and_written(pair):
    pair.connected()
    local, present = pair.near.reg_msgs(8), pair.far.reg_write(8)
    local.write("abcdefgh", 8)
    pair.near.post_write(local, 8, present.buf, present.rkey, 2)
    assert pair.near.get_send_comp().status == IBV_WC_SUCCESS
    assert present.read(8, 0) == b"abcdefgh"
    other = pair.far.reg_read(8)
    other.write("12345678", 8)
    pair.near.post_read(local, 8, other.buf, other.rkey, 2)
    assert pair.near.get_send_comp().status == IBV_WC_SUCCESS
    assert local.read(8, 0) == b"12345678"


def test_datagrams_go_where_the_answer_says():
    pair = Pair(RDMA_PS_UDP).connected()
    where = UDParam(pair.answer)
    assert where.qp_num == pair.far.qpn
    local, away = pair.near.reg_msgs(48), pair.far.reg_msgs(48)
    pair.far.post_recv(away)
    local.write("datagram", 8)
    pair.near.post_ud_send(local, AH(pair.near.pd, attr=where.ah_attr), rqpn=where.qp_num, length=8)
    assert pair.far.get_recv_comp().byte_len == 48
    assert away.read(8, 40) == b"datagram"
    pair.close()


def test_a_listener_may_take_its_time(pair, monkeypatch):
    """A requester gives up after some repetitions, unless it learns that its request has arrived."""
    monkeypatch.setattr(connection, "RETRIES", 3)
    monkeypatch.setattr(connection, "ANSWER_S", 0.001)
    send, requests = Agent.send, []

    def counted(agent, message, *, to):
        requests.extend([message] * isinstance(message, Req))
        send(agent, message, to=to)

    monkeypatch.setattr(Agent, "send", counted)
    pair.near.create_qp(made_of(RDMA_PS_TCP))
    pair.asked()
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(pair.event(0).event_type), daemon=True)
    waiting.start()
    wait_until(lambda: len(requests) > 10 or answers)
    pair.far.create_qp(made_of(RDMA_PS_TCP))
    pair.far.accept()
    waiting.join(PATIENCE_S)
    assert answers == [RDMA_CM_EVENT_ESTABLISHED]


def test_private_data_goes_with_request_and_refusal_and_has_its_limits(pair):
    param = ConnParam()
    param.set_private_data(b"x" * 57)
    with pytest.raises(PyverbsRDMAError, match="56 at most"):
        pair.near.connect(param)
    param.set_private_data(b"y" * 56)
    assert pair.asked(param).private_data == b"y" * 56
    pair.far.reject(b"no")
    event = pair.event(0)
    assert (event.event_type, event.private_data[:3]) == (RDMA_CM_EVENT_REJECTED, b"no\0")


def test_both_ends_know_both_ports(pair):
    pair.asked()
    assert pair.far._port == pair.near._own_port > 0
    assert pair.far._own_port == pair.near._port == pair.listener._own_port


def test_a_queue_pair_of_the_program_is_brought_up_with_what_both_ends_said(pair):
    def own(end: CMID) -> QP:
        cq = CQ(end.context, 10)
        return QP(end.pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap()))

    def bring_up(end: CMID, qp: QP) -> None:
        for state in (IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS):
            qp.modify(*end.init_qp_attr(state))

    near = own(pair.near)
    pair.asked(ConnParam(qp_num=near.qp_num, resources=2, depth=3, rnr_retry=6, retry=4))
    far = own(pair.far)
    bring_up(pair.far, far)
    pair.far.accept(ConnParam(qp_num=far.qp_num, resources=5, depth=1))
    assert pair.event(0).event_type == RDMA_CM_EVENT_CONNECT_RESPONSE
    bring_up(pair.near, near)
    pair.near.establish()
    assert pair.event(1).event_type == RDMA_CM_EVENT_ESTABLISHED
    attr, _ = near.query(0)
    assert (attr.dest_qp_num, attr.max_rd_atomic, attr.max_dest_rd_atomic) == (far.qp_num, 3, 1)
    assert (attr.retry_cnt, attr.rnr_retry) == (4, 6)
    back, _ = far.query(0)
    assert (back.dest_qp_num, back.retry_cnt, back.rnr_retry) == (near.qp_num, 4, 6)
    for qp in (near, far):
        qp.close()


def test_the_acknowledge_timeout_of_an_identifier_is_its_queue_pairs(pair):
    pair.near.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 21, 1)
    with pytest.raises(PyverbsRDMAError, match="0 to 31"):
        pair.near.set_option(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 32, 1)
    pair.connected()
    assert pair.near.query_qp(IBV_QP_TIMEOUT)[0].timeout == 21


def test_one_port_is_one_identifiers(pair):
    second, same = (
        CMID(CMEventChannel()),
        AddrInfo(src=HOST, src_service=str(pair.listener._own_port), flags=RAI_PASSIVE),
    )
    with pytest.raises(PyverbsRDMAError, match="Failed to Bind ID") as error:
        second.bind_addr(same)
    assert error.value.error_code == errno.EADDRINUSE
    pair.listener.close()
    second.bind_addr(same)
    second.listen()
    second.close()


def test_identifiers_without_channels_wait_in_each_step():
    listener = CMID(AddrInfo(src=HOST, flags=RAI_PASSIVE), qp_init_attr=made_of(RDMA_PS_TCP))
    listener.listen()
    received = []

    def serve() -> None:
        child = listener.get_request()
        memory = child.reg_msgs(5)
        child.post_recv(memory)
        child.accept()
        received.append((child.get_recv_comp().status, memory.read(5, 0)))
        child.disconnect()
        child.close()

    server = threading.Thread(target=serve)
    server.start()
    present = AddrInfo(dst=HOST, dst_service=str(listener._own_port))
    near = CMID(present, qp_init_attr=made_of(RDMA_PS_TCP))
    near.connect()
    memory = near.reg_msgs(5)
    memory.write("hello", 5)
    near.post_send(memory)
    assert near.get_send_comp().status == IBV_WC_SUCCESS
    near.disconnect()
    server.join(PATIENCE_S)
    assert received == [(IBV_WC_SUCCESS, b"hello")]
    listener.close()
    with pytest.raises(PyverbsRDMAError, match="REJECTED") as error:
        CMID(present, qp_init_attr=made_of(RDMA_PS_TCP)).connect()
    assert error.value.error_code == errno.ECONNREFUSED


@pytest.mark.usefixtures("few_objects")
def test_an_identifier_that_nobody_has_any_more_leaves(pair):
    pair.connected()
    pair.near = None
    gc.collect()
    assert pair.event(1).event_type == RDMA_CM_EVENT_DISCONNECTED


def test_a_group_is_heard_from_join_to_leave():
    members = [CMID(CMEventChannel(), port_space=RDMA_PS_UDP) for _ in range(2)]
    group = AddrInfo(src="239.0.0.1")
    for member in members:
        member.resolve_addr(AddrInfo(src=HOST, dst="239.0.0.1"))
        member.bind_addr(AddrInfo(src=HOST))
        member.create_qp(made_of(RDMA_PS_UDP))
        member.join_multicast(addr=group)
        CMEvent(member.event_channel)
    event = CMEvent(members[0].event_channel)
    assert event.event_type == RDMA_CM_EVENT_MULTICAST_JOIN
    where = UDParam(event)
    local, away = members[0].reg_msgs(44), members[1].reg_msgs(44)
    members[1].post_recv(away)
    local.write("news", 4)

    def send() -> None:
        members[0].post_ud_send(local, AH(members[0].pd, attr=where.ah_attr), rqpn=where.qp_num, length=4)
        members[0].get_send_comp()

    send()
    assert members[1].get_recv_comp().byte_len == 44
    assert away.read(4, 40) == b"news"
    members[1].leave_multicast(group)
    members[1].post_recv(away)
    send()
    assert members[1].qp.rcq.poll()[0] == 0
    with pytest.raises(PyverbsRDMAError, match="not a member"):
        members[1].leave_multicast(group)
    for member in members:
        member.close()


@pytest.mark.parametrize(
    ("wrong", "reason"), [("no-such-host.invalid", "no-such-host"), ("10.255.1.2", "not an address")]
)
def test_an_address_that_is_not_here_is_refused(wrong, reason):
    with pytest.raises(PyverbsRDMAError, match=reason) as error:
        CMID(CMEventChannel()).bind_addr(AddrInfo(src=wrong))
    assert error.value.error_code == errno.ENODEV


def test_steps_that_come_too_early_are_refused():
    early = CMID(CMEventChannel())
    for step in (early.connect, early.accept, early.disconnect, early.resolve_route, early.reject, early.establish):
        with pytest.raises(PyverbsRDMAError) as error:
            step()
        assert error.value.error_code == errno.EINVAL
    with pytest.raises(PyverbsRDMAError, match="create_qp"):
        early.get_send_comp()
    pair = Pair()
    pair.near.connect()
    request = pair.event(1)
    with pytest.raises(PyverbsUserError, match="listen ID"):
        CMID(request)
    pair.close()
