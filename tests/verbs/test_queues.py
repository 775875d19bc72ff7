"""Limits and ties of queues: receive requests, completions, and a queue pair's send requests and datagrams."""

from __future__ import annotations

import errno

import pytest
from tests.verbs.segments import events
from tests.verbs.wires import Host, Wire, connected, taken

from weft.verbs.enums import IBV_SEND_SIGNALED, ibv_event_type, ibv_qp_state, ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.queue_pair import SHM_PATH_AFTER, QueuePair
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.segment import OWN_Q_KEY, Service
from weft.verbs.hca.work import ReceiveWork, Refused, SendWork
from weft.verbs.shm.layout import CompletionRecord
from weft.verbs.shm.memory import Place
from weft.verbs.shm.queue_memory import QueueMemory

S, W = ibv_qp_state, ibv_wr_opcode
OK, FLUSHED = int(ibv_wc_status.IBV_WC_SUCCESS), int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)


def receives(count: int, capacity: int = 4, places_max: int = 2) -> ReceiveQueue:
    queue = ReceiveQueue(capacity, places_max, shared=True)
    for number in range(count):
        queue.post(ReceiveWork(wr_id=number, places=(Place(number, 10, 7),)))
    return queue


def order(queue: ReceiveQueue) -> list[int]:
    return [work.wr_id for work in iter(queue.take, None)]


def test_receive_requests_are_taken_in_order_and_a_returned_one_is_the_next():
    queue = receives(4)
    first, second = queue.take(), queue.take()
    queue.put_back(second)
    queue.put_back(first)
    assert (len(queue), queue.record.returned) == (4, 2)
    assert order(queue) == [0, 1, 2, 3]
    assert (len(queue), queue.record.returned, queue.take()) == (0, 0, None)


@pytest.mark.parametrize(("count", "returned", "is_full"), [(3, 0, False), (4, 0, True), (4, 1, True)])
def test_a_receive_queue_is_full_at_its_capacity_with_the_returned_requests(count, returned, is_full):
    queue = receives(count)
    for work in [queue.take() for _ in range(returned)]:
        queue.put_back(work)
    if not is_full:
        queue.post(ReceiveWork(wr_id=9))
        return
    with pytest.raises(Refused, match="the receive queue is full: it holds 4") as refused:
        queue.post(ReceiveWork(wr_id=9))
    assert refused.value.code == errno.ENOMEM


@pytest.mark.parametrize(("places", "is_right"), [(0, True), (2, True), (3, False)])
def test_a_receive_request_has_at_most_the_agreed_number_of_elements(places, is_right):
    work = ReceiveWork(wr_id=5, places=tuple(Place(number, 10 + number, 7) for number in range(places)))
    queue = ReceiveQueue(4, 2)
    if not is_right:
        with pytest.raises(Refused, match="3 elements are more than the 2 allowed") as refused:
            queue.post(work)
        assert refused.value.code == errno.EINVAL
        return
    queue.post(work)
    assert queue.take() == work


@pytest.mark.parametrize(("limit", "expected"), [(0, []), (1, [0]), (3, [2]), (4, [3])])
def test_a_shared_receive_queue_reports_once_when_fewer_than_the_limit_are_left(limit, expected):
    queue, reported = receives(4), []
    queue.record.limit, queue.on_limit = limit, lambda: reported.append(len(queue))
    order(queue)
    assert (reported, queue.record.limit) == (expected, 0)


def test_a_resized_receive_queue_keeps_its_requests_and_its_limit():
    queue, reported = receives(4), []
    queue.record.limit, queue.on_limit = 2, lambda: reported.append(len(queue))
    queue.put_back(queue.take())
    queue.resize(6)
    assert (len(queue), queue.capacity, queue.record.capacity, queue.record.limit, reported) == (4, 6, 6, 2, [])
    assert (order(queue), reported) == ([0, 1, 2, 3], [1])


def test_a_cleared_receive_queue_is_empty_and_takes_its_capacity_again():
    queue = receives(4)
    queue.put_back(queue.take())
    queue.clear()
    assert (len(queue), queue.record.returned, queue.take()) == (0, 0, None)
    for number in range(4):
        queue.post(ReceiveWork(wr_id=number))
    assert order(queue) == [0, 1, 2, 3]


def test_a_shared_queue_of_one_receive_request_is_reused():
    memory = QueueMemory(can_be_shared=True)
    memory.is_shared = True  # a kernel adds, and Python removes
    queue = ReceiveQueue(1, 2, memory=memory)
    for number in (1, 2):
        queue.post(ReceiveWork(wr_id=number))
        assert order(queue) == [number]


@pytest.mark.parametrize("service", [Service.RC, Service.UD])
def test_a_failed_queue_pair_flushes_its_receive_requests_and_that_of_a_message_in_part(service):
    wire = Wire(lambda packet: [packet] * packet.first)
    a, b = connected(wire, service)
    wire.b.receive(b, 7, 0, 4096)
    if service == Service.RC:
        wire.a.send(a, 1, 0, 4096)
        wire.run()
        assert len(b.receives) == 0
    b.fail()
    assert (wire.b.done(), len(b.receives)) == ([(7, FLUSHED)], 0)


def completed(numbers: range, qp_num: int = 1, capacity: int = 4) -> CompletionQueue:
    queue = CompletionQueue(capacity)
    for number in numbers:
        assert queue.add(CompletionRecord(wr_id=number, qp_num=qp_num))
    return queue


@pytest.mark.parametrize(("most", "expected"), [(1, [0]), (3, [0, 1, 2]), (9, [0, 1, 2])])
def test_completions_are_polled_up_to_a_number_in_order(most, expected):
    assert [done.wr_id for done in taken(completed(range(3)), most)] == expected


def test_completions_of_a_destroyed_queue_pair_are_removed_and_others_keep_their_order():
    queue = CompletionQueue(6)
    for number in range(5):
        queue.add(CompletionRecord(wr_id=number, qp_num=1 + number % 2))
    queue.forget(1)
    assert [done.wr_id for done in taken(queue, 9)] == [1, 3]


def test_a_resized_completion_queue_keeps_its_contents_and_its_state():
    queue = completed(range(3))
    queue.arm(solicited_only=True)
    queue.record.stamps = 1
    queue.record.bell = 1
    before = queue.record.armed
    queue.resize(8)
    assert (queue.capacity, queue.record.armed, queue.record.stamps, queue.record.bell) == (8, before, 1, 1)
    assert [done.wr_id for done in taken(queue, 9)] == [0, 1, 2]


def test_a_bell_of_another_process_raises_one_event():
    queue, observed = CompletionQueue(4), []
    queue.on_event = lambda: observed.append(1)
    queue.on_bell()
    queue.record.bell = 1
    queue.on_bell()
    queue.on_bell()
    assert (observed, queue.record.bell) == ([1], 0)


def test_a_polled_completion_of_shared_memory_frees_send_requests_and_a_removed_one_does_not():
    memory = QueueMemory(can_be_shared=True)
    host = Host(Adapter(Wire().ends["a"], memory=memory))
    qp, other = host.queue_pair(), host.queue_pair()
    memory.is_shared = True
    for number, posted in ((qp, 3), (other, 5), (qp, 7)):
        host.cq.add(CompletionRecord(wr_id=posted, qp_num=number.number, posted=posted))
    assert [done.wr_id for done in taken(host.cq, 1)] == [3]
    assert (qp.record.polled, other.record.polled) == (3, 0)
    host.cq.forget(other.number)
    assert (qp.record.polled, other.record.polled) == (3, 0)
    assert [done.wr_id for done in taken(host.cq, 9)] == [7]
    assert qp.record.polled == 7


def work(opcode: W = W.IBV_WR_SEND, places: int = 1, inline: bytes | None = None) -> SendWork:
    return SendWork(wr_id=1, opcode=opcode, places=(Place(0, 1, 0),) * places, inline=inline)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (work(places=4), ""),
        (work(places=5), "5 elements are more than the 4 allowed"),
        (work(inline=bytes(256)), ""),
        (work(inline=bytes(257)), "257 bytes are too many for inline: 256 at most"),
        (work(W.IBV_WR_ATOMIC_WRITE, inline=bytes(257)), ""),
    ],
)
def test_a_send_request_is_checked_against_the_capacities_of_its_queue_pair(request_, why):
    a, _ = connected(Wire())
    if not why:
        a.check_send(request_)
        return
    with pytest.raises(Refused, match=why) as refused:
        a.check_send(request_)
    assert refused.value.code == errno.EINVAL


@pytest.mark.parametrize(("posted", "polled", "before", "is_full"), [
    (99, 0, 0, False), (100, 0, 0, True), (100, 1, 0, False), (100, 1, 1, True), (90, 0, 9, False), (90, 0, 10, True),
])  # fmt: skip
def test_a_send_queue_is_full_when_as_many_requests_as_it_holds_are_not_polled(posted, polled, before, is_full):
    a, _ = connected(Wire())
    a.record.posted, a.record.polled = posted, polled
    if not is_full:
        a.check_send(work(), before)
        return
    with pytest.raises(Refused, match="the send queue is full: 100 requests wait") as refused:
        a.check_send(work(), before)
    assert refused.value.code == errno.ENOMEM


@pytest.mark.parametrize("state", [state for state in S if state != S.IBV_QPS_UNKNOWN])
def test_states_in_which_requests_are_posted_and_flushed(state):
    wire = Wire(lambda packet: [])
    qp = wire.a.queue_pair()
    qp.state = state
    outcomes = []
    for post in (lambda: wire.a.receive(qp, 1, 0, 10), lambda: qp.post_send(work())):
        try:
            post()
            outcomes.append([status for _, status in wire.a.done()])
        except Refused as refused:
            outcomes.append(refused.code)
    kept, refused, flushed = [], errno.EINVAL, [FLUSHED]
    assert (
        outcomes
        == {
            S.IBV_QPS_RESET: [refused, refused],
            S.IBV_QPS_INIT: [kept, refused],
            S.IBV_QPS_RTR: [kept, refused],
            S.IBV_QPS_RTS: [kept, kept],
            S.IBV_QPS_SQD: [kept, kept],
            S.IBV_QPS_SQE: [kept, flushed],
            S.IBV_QPS_ERR: [flushed, flushed],
        }[state]
    )


def test_a_path_is_looked_for_after_enough_requests_and_again_after_a_second():
    wire = Wire()
    a, _ = connected(wire)
    asked = []
    wire.ends["a"].shm_peer = lambda to, dest_qp, **rest: asked.append(wire.clock()) or wire.clock.sleep(0.01)
    for _ in range(SHM_PATH_AFTER - 1):
        a.find_shm_path()
    assert asked == []
    a.find_shm_path()
    assert len(asked) == 1
    a.find_shm_path()
    wire.clock.sleep(1.085)  # a second plus ten times the response time, from the request on
    a.find_shm_path()
    assert len(asked) == 1
    wire.clock.sleep(0.006)
    a.find_shm_path()
    assert len(asked) == 2


@pytest.mark.parametrize(("size_bytes", "requests"), [(0, 16), ((1 << 16) - 1, 16), (1 << 16, 8), (15 << 16, 1)])
def test_large_requests_count_more_until_a_path_is_looked_for(size_bytes, requests):
    wire = Wire()
    a, _ = connected(wire)
    asked = []
    wire.ends["a"].shm_peer = lambda to, dest_qp, **rest: asked.append(1)
    count = 0
    while not asked:
        a.find_shm_path(size_bytes)
        count += 1
    assert count == requests


def datagrams() -> tuple[Wire, QueuePair, QueuePair]:
    wire = Wire()
    return wire, *connected(wire, Service.UD, q_key=0x11)


@pytest.mark.parametrize(("q_key", "sent"), [(0x12, 0x12), (OWN_Q_KEY, 0x11), (OWN_Q_KEY | 0x12, 0x11), (0, 0)])
def test_a_datagram_has_the_q_key_of_its_request_or_its_own(q_key, sent):
    wire, a, b = datagrams()
    wire.a.send(a, 1, 0, 10, ah="b", remote_qp=b.number, q_key=q_key)
    wire.a.adapter.progress()
    assert [segment.q_key for segment in wire.ends["a"].sent] == [sent]


def test_a_failed_datagram_stops_sending_and_flushes_the_rest():
    wire, a, b = datagrams()
    for wr_id, opened in ((1, True), (2, False), (3, True)):
        place = Place(wire.a.at, 10, wire.a.region.key + (not opened))
        request = SendWork(wr_id=wr_id, opcode=W.IBV_WR_SEND, places=(place,), flags=IBV_SEND_SIGNALED, ah="b")
        request.remote_qp, request.q_key = b.number, 0x11
        a.post_send(request)
    wire.a.adapter.wake(a)
    wire.a.adapter.progress()
    assert wire.a.done() == [(1, OK), (2, int(ibv_wc_status.IBV_WC_LOC_PROT_ERR)), (3, FLUSHED)]
    assert (a.state, len(wire.ends["a"].sent)) == (S.IBV_QPS_SQE, 1)


@pytest.mark.parametrize(("size", "sent"), [(4096, 1), (4097, 0)])
def test_a_datagram_larger_than_the_mtu_is_dropped_and_counted(size, sent):
    wire, a, b = datagrams()
    wire.a.send(a, 1, 0, size, ah="b", remote_qp=b.number, q_key=0x11)
    wire.a.adapter.progress()
    assert (wire.a.done(), len(wire.ends["a"].sent)) == ([(1, OK)], sent)
    assert wire.a.adapter.counters["oversized_datagrams"] == 1 - sent


@pytest.mark.parametrize(("room", "status"), [(50, OK), (49, int(ibv_wc_status.IBV_WC_LOC_LEN_ERR))])
def test_a_receive_request_has_room_for_the_route_in_front_of_a_datagram(room, status):
    wire, a, b = datagrams()
    wire.b.receive(b, 7, 0, room)
    wire.a.send(a, 1, 0, 10, ah="b", remote_qp=b.number, q_key=0x11)
    wire.run()
    assert wire.b.done() == [(7, status)]
    assert b.state == S.IBV_QPS_RTS


def test_a_datagram_without_a_receive_request_is_counted():
    wire, a, b = datagrams()
    wire.a.send(a, 1, 0, 10, ah="b", remote_qp=b.number, q_key=0x11)
    wire.run()
    assert (wire.b.done(), wire.b.adapter.counters["no_receive"]) == ([], 1)


def test_psns_of_datagrams_are_consecutive_and_wrap_at_24_bits():
    wire, a, b = datagrams()
    a.record.next_psn = 0xFF_FFFF
    for _ in range(2):
        wire.a.send(a, 1, 0, 10, ah="b", remote_qp=b.number, q_key=0x11)
    wire.a.adapter.progress()
    assert [segment.psn for segment in wire.ends["a"].sent] == [0xFF_FFFF, 0]


def test_sending_datagrams_pauses_in_sqd_and_continues_in_rts():
    wire, a, b = datagrams()
    observed, a.wants_drained = events(a), True
    a.enter(S.IBV_QPS_SQD)
    wire.a.send(a, 1, 0, 10, ah="b", remote_qp=b.number, q_key=0x11)
    wire.a.adapter.progress()
    assert (wire.ends["a"].sent, observed) == ([], [ibv_event_type.IBV_EVENT_SQ_DRAINED])
    a.enter(S.IBV_QPS_RTS)
    wire.a.adapter.progress()
    assert len(wire.ends["a"].sent) == 1
