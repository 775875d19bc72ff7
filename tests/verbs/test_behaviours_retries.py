"""Required behaviour of an InfiniBand transport, as in test_behaviours.py: timers and retries."""

from __future__ import annotations

import random

import pytest
from tests.verbs.segments import answers, lose
from tests.verbs.wires import Wire, connected

from weft.verbs.enums import (
    ibv_qp_state,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.hca.segment import ACK_UNLIMITED, Op, Segment
from weft.verbs.hca.work import RNR_MS

S = ibv_qp_state
W = ibv_wr_opcode
OK = int(ibv_wc_status.IBV_WC_SUCCESS)
FLUSHED = int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)
RETRIES_EXCEEDED = int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
READ = W.IBV_WR_RDMA_READ


@pytest.mark.parametrize(("code", "seconds"), [(0, None), (1, 8.192e-6), (14, 0.067108864), (31, 8796.093022208)])
def test_14_a_timeout_is_a_power_of_two_and_0_is_never(code, seconds):
    wire = Wire(lambda packet: [])
    a, _ = connected(wire, timeout=code)
    now_s = wire.clock()
    wire.a.send(a, 1, 0, 10)
    wire.a.adapter.progress()
    due_s = a.requester.next_s()
    assert due_s == (None if seconds is None else pytest.approx(now_s + seconds))


@pytest.mark.parametrize("retries", [0, 2, 7])
def test_15_a_dead_peer_is_tried_as_often_as_was_agreed_and_7_is_not_for_ever(retries):
    wire = Wire(lambda packet: [])
    a, _ = connected(wire, retry_cnt=retries)
    wire.a.send(a, 1, 0, 10)
    wire.a.send(a, 2, 0, 10)
    wire.run(0.1)
    assert wire.a.done() == [(1, RETRIES_EXCEEDED), (2, FLUSHED)]
    assert sum(item.psn == 0 for item in wire.ends["a"].sent) == retries + 1
    assert a.state == S.IBV_QPS_ERR


def test_15_giving_up_takes_a_timeout_for_each_try():
    wire = Wire(lambda packet: [])
    a, _ = connected(wire, timeout=10, retry_cnt=2)  # 4.2 ms
    wire.a.send(a, 1, 0, 10)
    wire.run(0.012)
    assert wire.a.done() == []
    wire.run(0.005)
    assert wire.a.done() == [(1, RETRIES_EXCEEDED)]


def test_16_without_a_receive_request_the_other_is_told_how_long_to_wait():
    wire = Wire()
    a, b = connected(wire, min_rnr_timer=14)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    now_s = wire.clock()
    assert answers(wire) == [(Op.ACKNOWLEDGE, 0, 0x20 | 14)]
    assert b.record.expected_psn == 0
    assert a.requester.next_s() == pytest.approx(now_s + 0.00128, abs=1e-9)
    assert (RNR_MS[0], RNR_MS[1], RNR_MS[25], RNR_MS[31]) == (655.36, 0.01, 61.44, 491.52)


def test_16_a_write_with_immediate_waits_too_and_then_goes_on_with_its_last_packet():
    wire = Wire()
    a, b = connected(wire)
    wire.a.put(0, random.Random(16).randbytes(3000))
    wire.a.send(a, 1, 0, 3000, W.IBV_WR_RDMA_WRITE_WITH_IMM, va=wire.b.at, rkey=wire.b.region.key, immediate=7)
    wire.run()
    assert answers(wire) == [(Op.ACKNOWLEDGE, 2, 0x21)]
    wire.b.receive(b, 9, 0, 0)
    wire.run(0.01)
    assert [(item.psn, item.count) for item in wire.ends["a"].sent][-1] == (2, 1)
    assert (wire.a.done(), wire.b.done()) == ([(1, OK)], [(9, OK)])
    assert wire.b.get(0, 3000) == wire.a.get(0, 3000)


def test_17_rnr_retries_are_counted_and_7_is_for_ever():
    for retries, ends in ((0, True), (3, True), (7, False)):
        wire = Wire()
        a, _ = connected(wire, rnr_retry=retries)
        wire.a.send(a, 1, 0, 10)
        wire.run(0.1)
        tried = len(wire.ends["a"].sent)
        assert wire.a.done() == ([(1, int(ibv_wc_status.IBV_WC_RNR_RETRY_EXC_ERR))] if ends else [])
        assert tried == retries + 1 if ends else tried > 10


def test_17_the_same_refusal_twice_is_one():
    wire = Wire(lambda packet: [packet, packet] if packet.op == Op.ACKNOWLEDGE else [packet])
    a, b = connected(wire, rnr_retry=1)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    wire.b.receive(b, 1, 0, 10)
    wire.run(0.01)
    assert wire.a.done() == [(1, OK)]


def test_17_a_late_copy_of_a_refusal_is_none_of_the_next_request():
    wire = Wire()
    a, b = connected(wire, rnr_retry=1)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    refusal = next(item for item in wire.ends["b"].sent if item.syndrome >> 5 == 1)
    wire.b.receive(b, 1, 0, 10)
    wire.run(0.01)
    assert wire.a.done() == [(1, OK)]
    wire.fate = lambda packet: []
    wire.a.send(a, 2, 0, 10)
    wire.a.adapter.progress()
    before = a.requester.next_s()
    a.requester.on_response(refusal)
    assert (a.requester.next_s(), len(a.sends)) == (before, 1)


def test_17_counts_begin_anew_when_something_arrives():
    """Each of ten sends is refused twice: together far more often than the retries."""
    wire = Wire()
    a, b = connected(wire, rnr_retry=2, min_rnr_timer=13)  # 0.96 ms
    for number in range(10):
        wire.a.send(a, number, 0, 10)
    for number in range(10):
        wire.run(0.001)
        wire.b.receive(b, number, 0, 10)
        wire.run(0.001)
    assert wire.a.done() == [(number, OK) for number in range(10)]


def test_18_a_retry_begins_at_the_oldest_that_is_not_acknowledged():
    wire = Wire(lose(7, 7))  # a NAK reports the first loss, only the timer the second
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10_240)
    wire.a.send(a, 1, 0, 10_240)
    wire.run(0.1)
    assert [(item.psn, item.count) for item in wire.ends["a"].sent] == [(0, 10), (7, 3), (7, 3)]
    assert wire.a.done() == [(1, OK)]


@pytest.mark.parametrize("psn", [1, 2, 1000])
def test_18_an_acknowledgement_of_a_packet_that_was_never_sent_is_ignored(psn):
    wire = Wire(lambda packet: [])
    a, _ = connected(wire)
    wire.a.send(a, 1, 0, 10)
    wire.a.adapter.progress()
    a.requester.on_response(
        Segment(op=Op.ACKNOWLEDGE, service=a.service, dest_qp=a.number, psn=psn, syndrome=ACK_UNLIMITED)
    )
    assert (wire.a.done(), len(a.sends)) == ([], 1)
    a.requester.on_response(
        Segment(op=Op.ACKNOWLEDGE, service=a.service, dest_qp=a.number, psn=0, syndrome=ACK_UNLIMITED)
    )
    assert wire.a.done() == [(1, OK)]


def test_18_each_loss_halves_what_is_under_way_down_to_eight_packets():
    wire = Wire(lambda packet: [])
    wire.ends["a"].window_bytes = 64 << 10
    a, _ = connected(wire, retry_cnt=5)
    wire.a.send(a, 1, 0, 128 << 10, ibv_wr_opcode.IBV_WR_RDMA_WRITE, va=wire.b.at, rkey=wire.b.region.key)
    wire.run(0.1)
    bursts: list[int] = []
    for sent in wire.ends["a"].sent:
        if sent.psn == 0:
            bursts.append(0)
        bursts[-1] += sent.count
    assert bursts == [64, 32, 16, 8, 8, 8]


def test_18_a_read_that_came_in_part_goes_on_where_it_stopped():
    wire = Wire(lose(2, op=Op.READ_RESPONSE))
    a, _ = connected(wire)
    wire.b.put(0, random.Random(18).randbytes(5000))
    wire.a.send(a, 1, 0, 5000, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run(0.01)
    first, second = wire.ends["a"].sent
    assert (second.psn, second.va - first.va, second.length) == (2, 2048, 5000 - 2048)
    assert wire.a.done() == [(1, OK)]
    assert wire.a.get(0, 5000) == wire.b.get(0, 5000)
