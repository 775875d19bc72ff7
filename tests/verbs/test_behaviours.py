"""Required behaviour of an InfiniBand transport, one or more tests for each of 53 items: sequence and window.

The numbers of behaviours continue in the other files of this name; test_behaviours_all.py counts them.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest
from tests.verbs.segments import answers, arrive, lose, naks, request
from tests.verbs.wires import ALL, Wire, connected

from weft.verbs.enums import (
    IBV_SEND_SIGNALED,
    ibv_qp_state,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.hca import requester
from weft.verbs.hca.segment import Op, Segment, Service
from weft.verbs.hca.work import SendWork

S = ibv_qp_state
W = ibv_wr_opcode
OK = int(ibv_wc_status.IBV_WC_SUCCESS)
FLUSHED = int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)
INVALID_REQUEST = int(ibv_wc_status.IBV_WC_REM_INV_REQ_ERR)
RETRIES_EXCEEDED = int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)
WRITE = W.IBV_WR_RDMA_WRITE
READ = W.IBV_WR_RDMA_READ
ADD = W.IBV_WR_ATOMIC_FETCH_AND_ADD


def test_01_psns_are_compared_modulo_their_width():
    wire = Wire(lambda packet: [packet])
    a, b = connected(wire, sq_psn=0xFF_FFF0, rq_psn=0xFF_FFF0)
    wire.b.receive(b, 1, 0, 64 * 1024)
    wire.a.put(0, random.Random(1).randbytes(64 * 1024))
    wire.a.send(a, 1, 0, 64 * 1024)
    wire.run()
    assert naks(wire) == []
    assert wire.b.get(0, 64 * 1024) == wire.a.get(0, 64 * 1024)
    assert b.record.expected_psn == 0x30
    assert (wire.a.done(), wire.b.done()) == ([(1, OK)], [(1, OK)])


@pytest.mark.parametrize("lost", [0xFF_FFFF, 0, 1])
def test_01_what_is_lost_where_they_turn_over_is_asked_for(lost):
    wire = Wire(lose(lost))
    a, b = connected(wire, sq_psn=0xFF_FFFE, rq_psn=0xFF_FFFE)
    wire.b.receive(b, 1, 0, 5120)
    wire.a.send(a, 1, 0, 5120)
    wire.run()
    assert naks(wire) == [(lost, 0x60)]
    assert (wire.a.done(), wire.b.done()) == ([(1, OK)], [(1, OK)])


def test_02_a_read_takes_as_many_psns_as_its_answer_has_packets():
    wire = Wire()
    a, b = connected(wire)
    wire.a.send(a, 1, 0, 3000, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.a.send(a, 2, 0, 8, WRITE, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert wire.ends["a"].sent[1].psn == 3
    assert b.record.expected_psn == 4


def test_03_what_is_ahead_is_dropped_and_asked_for_once():
    wire = Wire(lose(4))
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10_240)
    wire.a.put(0, random.Random(2).randbytes(10_240))
    wire.a.send(a, 1, 0, 10_240)
    wire.run()
    assert naks(wire) == [(4, 0x60)]
    assert wire.b.get(0, 10_240) == wire.a.get(0, 10_240)
    assert (wire.a.done(), wire.b.done()) == ([(1, OK)], [(1, OK)])


def test_03_what_is_lost_later_is_asked_for_again():
    wire = Wire(lose(2, 6, 6))  # 6 is lost twice: before it is expected, and when it is
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10_240)
    wire.a.send(a, 1, 0, 10_240)
    wire.run()
    assert naks(wire) == [(2, 0x60), (6, 0x60)]
    assert wire.b.done() == [(1, OK)]


@pytest.mark.parametrize("op", [Op.SEND, Op.WRITE])
def test_04_what_is_behind_is_acknowledged_again_and_not_executed(op):
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 100)
    wire.b.receive(b, 2, 0, 100)
    wire.a.send(a, 1, 0, 10, W.IBV_WR_SEND if op == Op.SEND else WRITE, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert wire.b.done() == ([(1, OK)] if op == Op.SEND else [])
    arrive(wire, request(b, op, 0, b"x" * 10, va=wire.b.at, rkey=wire.b.region.key, length=10))
    assert wire.b.done() == []
    assert answers(wire) == [(Op.ACKNOWLEDGE, 0, 0x1F)] * 2
    assert wire.b.get(0, 10) == bytes(10)
    assert b.record.msn == 1


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
    arrive(wire, request(b, Op.READ, 1, rkey=wire.b.region.key, **part))  # that PSN had a different length before
    assert answers(wire) == []
    arrive(wire, request(b, Op.READ, 2, rkey=wire.b.region.key, **part))
    (again,) = wire.ends["b"].sent
    assert (again.op, again.psn, again.count, again.payload) == (Op.READ_RESPONSE, 2, 2, wire.b.get(2048, 2048))
    wire.b.region.is_open = False  # a window can be closed meanwhile
    arrive(wire, request(b, Op.READ, 2, rkey=wire.b.region.key, **part))
    assert len(wire.ends["b"].sent) == 1


def test_06_a_repeated_atomic_answers_what_it_answered():
    wire = Wire()
    a, b = connected(wire)
    wire.b.put(0, (7).to_bytes(8, "little"))
    wire.a.send(a, 1, 8, 8, ADD, va=wire.b.at, rkey=wire.b.region.key, swap=5)
    wire.a.send(a, 2, 8, 8, ADD, va=wire.b.at, rkey=wire.b.region.key, swap=5)
    wire.run()
    arrive(wire, request(b, Op.FETCH_ADD, 0, va=wire.b.at, rkey=wire.b.region.key, swap=5))
    assert int.from_bytes(wire.b.get(0, 8), "little") == 17
    assert [item.swap for item in wire.ends["b"].sent] == [7, 12, 7]


def test_07_no_more_reads_are_under_way_than_the_other_can_remember():
    wire = Wire(lambda packet: [])
    a, _ = connected(wire, max_rd_atomic=16, max_dest_rd_atomic=16)
    for number in range(17):
        wire.a.send(a, number, 0, 8, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert [item.psn for item in wire.ends["a"].sent] == list(range(16))


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
    assert [psn for _, psn, _ in answers(wire)] == [*range(63, 1000, 64), 999]


def test_08_a_message_that_is_under_way_is_not_given_up():
    """It takes many times the timeout, which restarts at each acknowledgement."""
    wire = Wire(lambda packet: [packet])
    a, b = connected(wire, mtu_bytes=256, timeout=8, retry_cnt=1)  # 1 ms
    wire.b.receive(b, 1, 0, 256_000)
    wire.a.send(a, 1, 0, 256_000)
    wire.a.adapter.progress()
    arriving, wire.ends["b"].inbox = wire.ends["b"].inbox, deque()
    while arriving:
        for _ in range(min(64, len(arriving))):
            wire.ends["b"].inbox.append(arriving.popleft())
        wire.b.adapter.progress()
        wire.a.adapter.progress()
        wire.clock.sleep(0.0009)
    assert (wire.a.done(), wire.b.done()) == ([(1, OK)], [(1, OK)])
    assert len(wire.ends["a"].sent) == 1


def test_08_no_more_is_under_way_than_can_be_told_apart(monkeypatch):
    """Half of the PSNs are new, half are duplicates: a requester stops long before that."""
    assert requester.WINDOW < 1 << 23
    monkeypatch.setattr(requester, "WINDOW", 16)
    wire = Wire(lambda packet: [packet])
    a, _ = connected(wire, mtu_bytes=256)
    for number in range(3):
        wire.a.send(a, number, 0, 256 * 20, WRITE, va=wire.b.at, rkey=wire.b.region.key)
    wire.a.adapter.progress()
    assert sum(item.count for item in wire.ends["a"].sent) == 16
    wire.run()
    assert wire.a.done() == [(number, OK) for number in range(3)]


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
    a, b = connected(wire, retry_cnt=1)  # and of four acknowledgements only one is a new NAK
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
    assert sum(item.op == Op.READ for item in wire.ends["a"].sent) == 4


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


def test_10_both_ends_are_in_error():
    def end_without_a_beginning(packet: Segment) -> list[Segment]:
        return [replace(packet, first=False) if packet.op == Op.SEND else packet]

    wire = Wire(end_without_a_beginning)
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    assert wire.a.done() == [(1, INVALID_REQUEST)]
    assert (a.state, b.state) == (S.IBV_QPS_ERR, S.IBV_QPS_ERR)
    assert wire.b.done() == [(1, FLUSHED)]


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
    assert (a.state, b.state) == (S.IBV_QPS_ERR, S.IBV_QPS_ERR)


def test_12_the_msn_counts_messages_and_a_read_when_it_is_asked_for():
    wire = Wire()
    a, _ = connected(wire)
    wire.a.send(a, 0, 0, 5000, WRITE, va=wire.b.at, rkey=wire.b.region.key)
    wire.a.send(a, 1, 0, 5000, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert [(item.msn, item.syndrome) for item in wire.ends["b"].sent] == [(1, 0x1F), (2, 0x1F)]


@pytest.mark.parametrize("opcode", [W.IBV_WR_SEND, WRITE, READ])
def test_13_no_bytes_need_no_key(opcode):
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    a.post_send(SendWork(wr_id=1, opcode=opcode, flags=IBV_SEND_SIGNALED, va=0xDEAD, rkey=0xBEEF))
    wire.a.adapter.wake(a)
    wire.run()
    assert wire.a.done() == [(1, OK)]
    assert wire.b.done() == ([(1, OK)] if opcode == W.IBV_WR_SEND else [])
