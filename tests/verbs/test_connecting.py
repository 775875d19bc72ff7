"""The messages that set up and end connections, over a network that loses some of them."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.mad.local import ManualClock
from weft.verbs.carriers.loopback import Loopback, grh_of, kind_of
from weft.verbs.cm.agent import QP1, QP1_KEY, Agent, agent_of
from weft.verbs.cm.connection import ADDRESSES_BYTES, ANSWER_S, RETRIES, CmConnection, CmNotice, Phase, Side
from weft.verbs.enums.cm import rdma_cm_event_type
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.segment import Op, Segment, Service
from weft.wire.cm import RejReason

SERVICE = 0x0106_1D2F
E = rdma_cm_event_type


class Lossy(Loopback):
    """A network that loses the messages with the numbers in `lost`, counted over both directions."""

    def __init__(self, gid: int, lost: set[int], sent: list[int]) -> None:
        super().__init__((gid,))
        self.lost, self.sent = lost, sent

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        self.sent.append(0)
        if len(self.sent) - 1 not in self.lost:
            super().send(segment, to, mtu_bytes)


class Two:
    """A pair of adapters and the events of each."""

    def __init__(self, lost: set[int] | None = None) -> None:
        self.clock = ManualClock()
        sent: list[int] = []
        self.sent = sent
        self.adapters = [Adapter(Lossy(gid, lost or set(), sent), clock=self.clock) for gid in (0xA, 0xB)]
        self.agents = [agent_of(adapter) for adapter in self.adapters]
        self.told: tuple[list[CmNotice], list[CmNotice]] = [], []
        self.asked: list[tuple[CmConnection, bytes]] = []

    def listen(self) -> None:
        self.agents[1].listeners[SERVICE] = lambda made, data: self.asked.append((made, data))

    def connect(self, own: Side, *, is_datagram: bool = False) -> CmConnection:
        result = self.agents[0].open_connection((0xB, 0xA), self.told[0].append, is_datagram=is_datagram)
        result.connect(SERVICE, own)
        self.run()
        return result

    def request(self) -> CmConnection:
        (result, _), *_ = self.asked
        result.tell = self.told[1].append
        return result

    def run(self, seconds: float = 0.0) -> None:
        until_s = self.clock() + seconds
        while True:
            for _ in range(4):
                for adapter in self.adapters:
                    adapter.progress()
            if self.clock() >= until_s:
                return
            self.clock.sleep(ANSWER_S / 4)

    def until(self, happened: Callable[[], object]) -> None:
        """Run until something happened, or can no longer happen."""
        for _ in range(8 * RETRIES):
            self.run()
            if happened():
                return
            self.clock.sleep(ANSWER_S / 4)

    def kinds(self, end: int) -> list[rdma_cm_event_type]:
        return [messages.kind for messages in self.told[end]]


@settings(max_examples=60)
@given(st.sets(st.integers(0, 12), max_size=8))
def test_a_connection_comes_about_once_and_ends_whatever_is_lost(lost):
    two = Two(lost)
    two.listen()
    near = two.connect(Side(qp_num=7, psn=70, resources=3, depth=4, private_data=b"hello"))
    two.until(lambda: two.asked)
    far = two.request()
    assert (far.far.qp_num, far.far.psn, far.far.resources, far.far.depth, far.to) == (7, 70, 3, 4, (0xA, 0xB))
    far.accept(Side(qp_num=9, psn=90, private_data=b"welcome"))
    two.until(lambda: two.told[0])
    assert two.kinds(0) == [E.RDMA_CM_EVENT_CONNECT_RESPONSE]
    assert (near.far.qp_num, near.far.psn) == (9, 90)
    assert two.told[0][0].private_data.startswith(b"welcome")
    near.establish()
    two.until(lambda: two.told[1])
    assert two.kinds(1) == [E.RDMA_CM_EVENT_ESTABLISHED]
    near.disconnect()
    two.until(lambda: len(two.told[1]) > 1)
    assert two.kinds(1)[1:] == [E.RDMA_CM_EVENT_DISCONNECTED]
    far.disconnect()
    two.until(lambda: len(two.told[0]) > 1)
    assert two.kinds(0)[1:] == [E.RDMA_CM_EVENT_DISCONNECTED]
    assert two.told[0][1].status == 0  # ended by an answer, not by a timeout
    assert [data[ADDRESSES_BYTES:].rstrip(b"\0") for _, data in two.asked] == [b"hello"]
    assert not any(agent.connections for agent in two.agents)
    assert all(adapter.next_s() is None for adapter in two.adapters)


def test_connection_without_listener_fails():
    two = Two()
    two.connect(Side())
    assert [(messages.kind, messages.status) for messages in two.told[0]] == [
        (E.RDMA_CM_EVENT_REJECTED, RejReason.INVALID_SERVICE_ID)
    ]
    assert not two.agents[1].connections


def test_connection_without_answer_fails():
    two = Two(lost=set(range(100)))
    two.connect(Side())
    two.run(RETRIES * ANSWER_S)
    assert two.told[0] == []
    two.run(2 * ANSWER_S)
    assert [(messages.kind, messages.status) for messages in two.told[0]] == [
        (E.RDMA_CM_EVENT_UNREACHABLE, -errno.ETIMEDOUT)
    ]
    assert len(two.sent) == 1 + RETRIES


def test_a_refusal_says_why():
    two = Two()
    two.listen()
    near = two.connect(Side())
    two.request().reject(b"not today")
    two.run()
    assert two.told[0][0].kind == E.RDMA_CM_EVENT_REJECTED
    assert two.told[0][0].private_data.startswith(b"not today")
    assert near.phase == Phase.ENDED


def test_both_may_leave_at_once():
    two = Two()
    two.listen()
    near = two.connect(Side())
    far = two.request()
    far.accept(Side())
    two.run()
    near.establish()
    two.run()
    near.disconnect()
    far.disconnect()
    two.run()
    for end in (0, 1):
        assert two.kinds(end)[-1] == E.RDMA_CM_EVENT_DISCONNECTED
        assert two.kinds(end).count(E.RDMA_CM_EVENT_DISCONNECTED) == 1


@pytest.mark.parametrize("step", ["asked", "accepted", "connected"])
def test_an_end_that_closes_tells_the_other(step):
    two = Two()
    two.listen()
    near = two.connect(Side())
    far = two.request()
    if step != "asked":
        far.accept(Side())
        two.run()
    if step == "connected":
        near.establish()
        two.run()
    near.close()
    two.run()
    expected = E.RDMA_CM_EVENT_REJECTED if step == "asked" else E.RDMA_CM_EVENT_DISCONNECTED
    assert two.kinds(1)[-1] == expected
    assert not two.agents[0].connections


@given(st.sets(st.integers(0, 3), max_size=3))
def test_a_datagram_service_is_found_whatever_is_lost(lost):
    two = Two(lost)
    two.listen()
    near = two.connect(Side(private_data=b"who"), is_datagram=True)
    two.run(RETRIES * ANSWER_S)
    assert [data[ADDRESSES_BYTES:].rstrip(b"\0") for _, data in two.asked] == [b"who"]
    two.request().accept(Side(qp_num=5, q_key=0x1234))
    two.run(RETRIES * ANSWER_S)
    assert two.kinds(0) == [E.RDMA_CM_EVENT_ESTABLISHED]
    assert (near.far.qp_num, near.far.q_key) == (5, 0x1234)
    assert [adapter.next_s() for adapter in two.adapters] == [None, None]  # only connections are checked regularly


@pytest.mark.parametrize(
    ("prefix", "version", "shown_prefix"), [(0xFFFF << 32, 4, 0), (0xFE80 << 112, 6, 0xFE80 << 112)]
)
def test_the_private_data_of_a_request_begin_with_both_ip_addresses(prefix, version, shown_prefix):
    near = Two().agents[0].open_connection((prefix + 9, prefix + 8), lambda notice: None, is_datagram=False)
    near.connect(SERVICE, Side(port=0x1234, private_data=b"hello"))
    data = near.last.private_data.rstrip(b"\0")
    assert (data[:4], data[ADDRESSES_BYTES:]) == (bytes((0, version << 4, 0x12, 0x34)), b"hello")
    assert data[4:ADDRESSES_BYTES] == b"".join((shown_prefix + own).to_bytes(16, "big") for own in (8, 9))


@pytest.mark.parametrize(("prefix", "kind"), [(0xFFFF << 32, 2), (0xFE80 << 112, 1)])
def test_a_completion_has_the_type_of_the_ip_header_in_front_of_a_datagram(prefix, kind):
    assert kind_of(grh_of(prefix + 8, prefix + 9)) & 7 == kind


def test_messages_with_bad_format_or_key_are_dropped():
    two = Two()
    two.listen()
    for payload, key in ((bytes(256), QP1_KEY), (b"short", QP1_KEY), (bytes(256), 1)):
        segment = Segment(op=Op.SEND, service=Service.UD, dest_qp=QP1, psn=0, source_qp=QP1, q_key=key, payload=payload)
        two.adapters[0].send(two.agents[0].qp, segment, (0xB, 0xA))
    two.run()
    assert two.asked == []
    assert two.adapters[1].counters["qkey_violations"] == 1


def test_an_adapter_has_one_agent():
    adapter = Adapter(Loopback((0xC,)))
    assert isinstance(agent_of(adapter), Agent)
    assert agent_of(adapter) is agent_of(adapter)
