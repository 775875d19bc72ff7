"""What a transport of InfiniBand must do, one or more tests for each behaviour: sequence, window, timers, retries.

The numbers go on in test_behaviours_requests.py, and for the interface in test_behaviours_verbs.py.
"""

from __future__ import annotations

import random

import pytest
from tests.verbs.segments import answers, arrive, lose, naks, request
from tests.verbs.wires import ALL, Wire, connected

from weft.verbs.enums import (
    IBV_SEND_SIGNALED,
    ibv_qp_state,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.transport.opcodes import RNR_MS
from weft.verbs.transport.segment import Op, Segment, Service
from weft.verbs.transport.work import SendWork

S = ibv_qp_state
W = ibv_wr_opcode
OK = int(ibv_wc_status.IBV_WC_SUCCESS)
FLUSHED = int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)
INVALID_REQUEST = int(ibv_wc_status.IBV_WC_REM_INV_REQ_ERR)
RETRIES_EXCEEDED = int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
WRITE = W.IBV_WR_RDMA_WRITE
READ = W.IBV_WR_RDMA_READ
ADD = W.IBV_WR_ATOMIC_FETCH_AND_ADD


# -- sequence and window ----------------------------------------------------------------------------------------------


def test_01_psns_are_compared_modulo_their_width():
    wire = Wire(lambda packet: [packet])
    a, b = connected(wire, sq_psn=0xFF_FFF0, rq_psn=0xFF_FFF0)
    wire.b.receive(b, 1, 0, 64 * 1024)
    wire.a.put(0, random.Random(1).randbytes(64 * 1024))
    wire.a.send(a, 1, 0, 64 * 1024)
    wire.run()
    assert naks(wire) == []
    assert wire.b.get(0, 64 * 1024) == wire.a.get(0, 64 * 1024)
    assert b.responder.expected == 0x30


def test_02_a_read_takes_as_many_psns_as_its_answer_has_packets():
    wire = Wire()
    a, b = connected(wire)
    wire.a.send(a, 1, 0, 3000, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.a.send(a, 2, 0, 8, WRITE, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert wire.ends["a"].sent[1].psn == 3
    assert b.responder.expected == 4


def test_03_what_is_ahead_is_dropped_and_asked_for_once():
    wire = Wire(lose(4))
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10_240)
    wire.a.put(0, random.Random(2).randbytes(10_240))
    wire.a.send(a, 1, 0, 10_240)
    wire.run()
    assert naks(wire) == [(4, 0x60)]
    assert wire.b.get(0, 10_240) == wire.a.get(0, 10_240)


def test_04_what_is_behind_is_acknowledged_again_and_not_executed():
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 100)
    wire.b.receive(b, 2, 0, 100)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    assert wire.b.done() == [(1, OK)]
    arrive(wire, request(b, Op.SEND, 0, b"x" * 10))
    assert wire.b.done() == []
    assert answers(wire) == [(Op.ACKNOWLEDGE, 0, 0x1F)] * 2
    assert wire.b.get(0, 10) == bytes(10)
    assert b.responder.msn == 1


def test_05_a_repeated_read_is_read_again_in_part_with_the_same_key_only():
    wire = Wire()
    a, b = connected(wire)
    wire.b.put(0, random.Random(5).randbytes(4096))
    wire.a.send(a, 1, 0, 4096, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    wire.ends["b"].sent.clear()
    part = {"va": wire.b.at + 2048, "length": 2048}
    other = wire.b.adapter.regions.register(wire.b.pd, wire.b.at, 4096, ALL)
    arrive(wire, request(b, Op.READ, 2, rkey=other.key, **part))
    arrive(wire, request(b, Op.READ, 1, rkey=wire.b.region.key, **part))  # that PSN had other bytes
    assert answers(wire) == []
    arrive(wire, request(b, Op.READ, 2, rkey=wire.b.region.key, **part))
    (again,) = wire.ends["b"].sent
    assert (again.op, again.psn, again.count, again.payload) == (Op.READ_RESPONSE, 2, 2, wire.b.get(2048, 2048))


def test_06_a_repeated_atomic_answers_what_it_answered():
    wire = Wire()
    a, b = connected(wire)
    wire.b.put(0, (7).to_bytes(8, "little"))
    wire.a.send(a, 1, 8, 8, ADD, va=wire.b.at, rkey=wire.b.region.key, swap=5)
    wire.a.send(a, 2, 8, 8, ADD, va=wire.b.at, rkey=wire.b.region.key, swap=5)
    wire.run()
    arrive(wire, request(b, Op.FETCH_ADD, 0, va=wire.b.at, rkey=wire.b.region.key, swap=5))
    assert int.from_bytes(wire.b.get(0, 8), "little") == 17
    assert [one.swap for one in wire.ends["b"].sent] == [7, 12, 7]


def test_07_no_more_reads_are_under_way_than_the_other_can_remember():
    wire = Wire(lambda packet: [])
    a, _ = connected(wire, max_rd_atomic=16, max_dest_rd_atomic=16)
    for number in range(17):
        wire.a.send(a, number, 0, 8, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert [one.psn for one in wire.ends["a"].sent] == list(range(16))


def test_07_the_oldest_answer_is_forgotten_first():
    wire = Wire()
    a, b = connected(wire, max_rd_atomic=1, max_dest_rd_atomic=1)
    for number in range(2):
        wire.a.send(a, number, 0, 8, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    wire.ends["b"].sent.clear()
    arrive(wire, request(b, Op.READ, 0, va=wire.b.at, length=8, rkey=wire.b.region.key))
    assert answers(wire) == []
    arrive(wire, request(b, Op.READ, 1, va=wire.b.at, length=8, rkey=wire.b.region.key))
    assert answers(wire) == [(Op.READ_RESPONSE, 1, 0x1F)]


def test_08_a_long_message_needs_few_acknowledgements():
    wire = Wire(lambda packet: [packet])
    a, _ = connected(wire, mtu_bytes=256)
    wire.a.send(a, 1, 0, 256_000, WRITE, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert wire.a.done() == [(1, OK)]
    assert len(answers(wire)) == 1


def test_09_a_later_acknowledgement_completes_what_was_before():
    lost = []

    def lose_first_acknowledgement(packet: Segment) -> list[Segment]:
        if packet.op == Op.ACKNOWLEDGE and not lost:
            lost.append(packet)
            return []
        return [packet]

    wire = Wire(lose_first_acknowledgement)
    a, b = connected(wire)
    for number in range(2):
        wire.b.receive(b, number, 0, 10)
        wire.a.send(a, number, 0, 10)
    wire.run()
    assert wire.a.done() == [(0, OK), (1, OK)]


def test_09_an_acknowledgement_behind_an_unanswered_read_says_that_it_was_lost():
    wire = Wire(lose(0, op=Op.READ_RESPONSE))
    a, b = connected(wire, retry_cnt=1)  # and four acknowledgements say it only once
    wire.b.put(0, b"contents")
    wire.a.send(a, 0, 0, 8, READ, va=wire.b.at, rkey=wire.b.region.key)
    for number in range(1, 5):
        wire.b.receive(b, number, 100, 10)
        wire.a.send(a, number, 0, 10)
    wire.run()  # no time passes
    assert wire.a.done() == [(number, OK) for number in range(5)]
    assert wire.a.get(0, 8) == b"contents"
    assert wire.b.done() == [(number, OK) for number in range(1, 5)]


def test_09_a_read_that_is_never_answered_is_not_asked_for_for_ever():
    wire = Wire(lambda packet: [] if packet.op == Op.READ_RESPONSE else [packet])
    a, b = connected(wire, retry_cnt=3)
    for number in range(5):
        wire.b.receive(b, number, 100, 10)
    wire.a.send(a, 0, 0, 8, READ, va=wire.b.at, rkey=wire.b.region.key)
    for number in range(1, 6):
        wire.a.send(a, number, 0, 10)
    wire.run(0.1)
    assert wire.a.done()[0] == (0, RETRIES_EXCEEDED)
    assert sum(one.op == Op.READ for one in wire.ends["a"].sent) == 4


@pytest.mark.parametrize(
    ("before", "op", "first", "last"),
    [
        (False, Op.SEND, False, True),
        (False, Op.WRITE, False, False),
        (True, Op.SEND, True, True),
        (True, Op.WRITE, False, True),
    ],
)
def test_10_a_packet_out_of_place_in_its_message_ends_the_connection(before, op, first, last):
    wire = Wire()
    _, b = connected(wire)
    wire.b.receive(b, 1, 0, 4096)
    if before:
        arrive(wire, request(b, Op.SEND, 0, bytes(1024), last=False))
    psn = int(before)
    arrive(wire, request(b, op, psn, bytes(1024), first=first, last=last))
    assert naks(wire) == [(psn, 0x61)]
    assert b.state == S.IBV_QPS_ERR


def test_10_uc_drops_it_and_goes_on_with_the_next_message():
    wire = Wire()
    _, b = connected(wire, Service.UC)
    wire.b.receive(b, 1, 0, 4096)
    arrive(wire, request(b, Op.SEND, 0, bytes(1024), first=False))
    arrive(wire, request(b, Op.SEND, 1, b"whole"))
    assert wire.b.done() == [(1, OK)]
    assert answers(wire) == []


@pytest.mark.parametrize("payload", [bytes(1023), bytes(1025), b""])
def test_11_only_the_last_packet_of_a_message_may_be_short(payload):
    wire = Wire()
    _, b = connected(wire)
    arrive(wire, request(b, Op.WRITE, 0, payload, last=False, va=wire.b.at, rkey=wire.b.region.key, length=2048))
    assert naks(wire) == [(0, 0x61)]


@pytest.mark.parametrize("length", [9, 11])
def test_11_a_write_has_as_many_bytes_as_it_said(length):
    wire = Wire()
    _, b = connected(wire)
    arrive(wire, request(b, Op.WRITE, 0, bytes(10), va=wire.b.at, rkey=wire.b.region.key, length=length))
    assert naks(wire) == [(0, 0x61)]
    assert b.state == S.IBV_QPS_ERR


def test_11_a_send_that_is_longer_than_the_buffer_is_an_error_at_both_ends():
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 11)
    wire.run()
    assert wire.a.done() == [(1, INVALID_REQUEST)]
    assert wire.b.done() == [(1, int(ibv_wc_status.IBV_WC_LOC_LEN_ERR))]


def test_12_the_msn_counts_messages_and_a_read_when_it_is_asked_for():
    wire = Wire()
    a, _ = connected(wire)
    wire.a.send(a, 0, 0, 5000, WRITE, va=wire.b.at, rkey=wire.b.region.key)
    wire.a.send(a, 1, 0, 5000, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert [(one.msn, one.syndrome) for one in wire.ends["b"].sent] == [(1, 0x1F), (2, 0x1F)]


@pytest.mark.parametrize("opcode", [W.IBV_WR_SEND, WRITE, READ])
def test_13_no_bytes_need_no_key(opcode):
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    a.post_send(SendWork(wr_id=1, opcode=opcode, flags=IBV_SEND_SIGNALED, va=0xDEAD, rkey=0xBEEF))
    wire.a.adapter.wake(a)
    wire.run()
    assert wire.a.done() == [(1, OK)]


# -- timers and retries -----------------------------------------------------------------------------------------------


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
    assert sum(one.psn == 0 for one in wire.ends["a"].sent) == retries + 1
    assert a.state == S.IBV_QPS_ERR


def test_16_without_a_receive_request_the_other_is_told_how_long_to_wait():
    wire = Wire()
    a, b = connected(wire, min_rnr_timer=14)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    now_s = wire.clock()
    assert answers(wire) == [(Op.ACKNOWLEDGE, 0, 0x20 | 14)]
    assert b.responder.expected == 0
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
    assert [(one.psn, one.count) for one in wire.ends["a"].sent][-1] == (2, 1)
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
    wire = Wire(lose(7, 7))  # the first time a NAK tells, the second time only the timer
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10_240)
    wire.a.send(a, 1, 0, 10_240)
    wire.run(0.1)
    assert [(one.psn, one.count) for one in wire.ends["a"].sent] == [(0, 10), (7, 3), (7, 3)]
    assert wire.a.done() == [(1, OK)]


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
