"""Numbers, groups, keys and timers of an adapter."""

from __future__ import annotations

import errno

import pytest
from tests.verbs.segments import arrive, events, request
from tests.verbs.wires import End, Host, Wire, connected

from weft.verbs.enums import ibv_event_type, ibv_qp_state, ibv_wc_status
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.carrier import TO_GROUP, Arrival
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.segment import Op, Segment, Service
from weft.verbs.hca.work import Refused
from weft.verbs.shm import layout

OK = int(ibv_wc_status.IBV_WC_SUCCESS)


class Few(End):
    """A carrier with three queue pair numbers."""

    numbers = range(2, 5)


def test_the_number_that_is_unused_for_the_longest_time_is_the_next():
    adapter = Adapter(Few(Wire(), "a"))
    host = Host(adapter)
    first, second = host.queue_pair(), host.queue_pair()
    context = adapter.add_ee_context(object())
    assert (first.number, second.number, context.number) == (2, 3, 4)
    with pytest.raises(Refused, match="there are 3 queue pairs already: close some") as refused:
        host.queue_pair()
    assert refused.value.code == errno.ENOMEM
    adapter.remove(second)
    adapter.remove(first)
    assert [host.queue_pair().number for _ in range(2)] == [2, 3]
    adapter.remove(context)
    assert adapter.add_ee_context(object()).number == 4


def test_a_removed_queue_pair_has_no_timer_and_nothing_to_send():
    wire = Wire(lambda packet: [])
    a, _ = connected(wire)
    wire.a.send(a, 1, 0, 10)
    wire.a.adapter.progress()
    assert wire.a.adapter.next_s() is not None
    wire.a.adapter.wake(a)
    wire.a.adapter.remove(a)
    assert wire.a.adapter.next_s() is None
    assert not wire.a.adapter.progress()
    assert (a.record.number, a.record.state) == (0, 0)


def test_shared_receive_queues_have_numbers_from_1():
    adapter = Wire().a.adapter
    queues = [ReceiveQueue(4, 1, shared=True) for _ in range(2)]
    for queue in queues:
        adapter.add_shared(queue)
    assert [queue.number for queue in queues] == [1, 2]
    assert adapter.shared == {1: queues[0], 2: queues[1]}


def test_a_key_that_the_port_does_not_have_is_none():
    adapter = Adapter(End(Wire(), "a"), p_keys=(0xFFFF, 0x8001))
    assert [adapter.p_key(index) for index in (0, 1, 2)] == [0xFFFF, 0x8001, 0]


def test_a_memory_key_has_an_index_and_eight_bits_of_the_owner():
    regions = Wire().a.adapter.regions  # with the region of its host: index 1
    assert [regions.new_key(low) for low in (0, 0x5A, 0xFF, 0x1FF)] == [0x200, 0x35A, 0x4FF, 0x5FF]


def test_a_packet_to_a_group_goes_to_each_member_once():
    wire = Wire()
    _, b = connected(wire, Service.UD, q_key=0x11)
    other = wire.b.queue_pair(Service.UD)
    adapter, group = wire.b.adapter, "a group"
    for _ in range(2):
        adapter.join(b, group)
    assert not adapter.leave(other, group)
    assert not adapter.leave(b, "another group")

    def arrives() -> tuple[list[tuple[int, int]], int]:
        segment = Segment(op=Op.SEND, service=Service.UD, dest_qp=TO_GROUP, psn=0, q_key=0x11, payload=b"x")
        wire.ends["b"].inbox.append(Arrival(segment=segment, source="a", group=group))
        wire.run()
        return wire.b.done(), adapter.counters["no_queue_pair"]

    for number in range(3):
        wire.b.receive(b, number, 0, 100)
    assert arrives() == ([(0, OK)], 0)
    assert adapter.leave(b, group)
    assert adapter.groups == {}
    assert arrives() == ([], 1)


@pytest.mark.parametrize("p_key", [0xFFFF, 0x7FFF, 0x8001])
def test_a_packet_of_another_partition_or_peer_is_dropped_and_counted(p_key):
    wire = Wire()
    _, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    segment = request(b, Op.SEND, 0, b"x")
    segment.p_key = p_key
    arrive(wire, segment, source="c")
    fits = p_key != 0x8001
    assert (wire.b.done(), wire.ends["b"].sent) == ([], [])
    counters = wire.b.adapter.counters
    assert (counters["strangers"], counters["pkey_violations"]) == ((1, 0) if fits else (0, 1))
    arrive(wire, segment)
    assert len(wire.b.done()) == fits


@pytest.mark.parametrize(("state", "count"), [("INIT", 0), ("RTR", 1), ("RTS", 0)])
def test_the_first_request_in_rtr_establishes_the_connection(state, count):
    wire = Wire()
    _, b = connected(wire)
    settings, target = b.settings, ibv_qp_state[f"IBV_QPS_{state}"]
    for step in (ibv_qp_state.IBV_QPS_RESET, ibv_qp_state.IBV_QPS_INIT, ibv_qp_state.IBV_QPS_RTR, target):
        if b.state != target:
            b.enter(step)
            b.settings = settings
    observed = events(b)
    for psn in range(2):
        wire.b.receive(b, psn, 0, 10)
        arrive(wire, request(b, Op.SEND, psn, b"x"))
    assert observed == [ibv_event_type.IBV_EVENT_COMM_EST] * count
    assert len(wire.b.done()) == (0 if state == "INIT" else 2)
    assert wire.b.adapter.counters["no_queue_pair"] == (2 if state == "INIT" else 0)


def test_the_background_thread_waits_until_the_next_timer():
    wire = Wire(lambda packet: [])
    a, _ = connected(wire, timeout=14)  # 67.1 ms
    adapter = wire.a.adapter
    assert adapter.rest_s() == 0.5
    wire.a.send(a, 1, 0, 10)
    adapter.progress()
    assert adapter.rest_s() == pytest.approx(4.096e-6 * (1 << 14))
    wire.clock.sleep(1.0)
    assert adapter.rest_s() == 0.0005


def test_of_several_timers_the_earliest_is_the_next():
    wire = Wire(lambda packet: [])
    pairs = [connected(wire, timeout=code)[0] for code in (14, 12, 13)]
    for qp in pairs:
        wire.a.send(qp, 1, 0, 10)
    wire.a.adapter.progress()
    assert wire.a.adapter.rest_s() == pytest.approx(4.096e-6 * (1 << 12))


def test_a_connection_that_shared_memory_establishes_is_reported_once():
    wire = Wire()
    a, _ = connected(wire)
    observed = events(a)
    a.note_established()
    a.record.is_established = layout.ESTABLISHED_BY_PATH
    for _ in range(2):
        wire.a.adapter.on_bell()
    assert observed == [ibv_event_type.IBV_EVENT_COMM_EST]


@pytest.mark.parametrize(("capacity", "expected"), [(0, 1), (1, 1), (7, 7)])
def test_other_processes_see_the_capacity_of_a_completion_queue(capacity, expected):
    queue = CompletionQueue(capacity, Wire().a.adapter.memory)
    assert queue.record.capacity == expected
