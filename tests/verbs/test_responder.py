"""Limits and ties of the responder: shapes of messages, repeated requests, access rights, atomics, and events."""

from __future__ import annotations

import pytest
from tests.verbs.segments import answers, arrive, completions, events, naks, request
from tests.verbs.wires import ALL, Wire, connected

from weft.verbs.enums import (
    IBV_ACCESS_FLUSH_GLOBAL,
    IBV_ACCESS_FLUSH_PERSISTENT,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    ibv_event_type,
    ibv_qp_state,
    ibv_wc_status,
)
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.segment import ACK_UNLIMITED, NAK, RNR_NAK, Nak, Op, Segment, Service

S, E, C = ibv_qp_state, ibv_event_type, ibv_wc_status
MTU = 1024
INVALID, ACCESS = NAK | Nak.INVALID_REQUEST, NAK | Nak.REMOTE_ACCESS_ERROR


def responder(service: Service = Service.RC, **settings: int) -> tuple[Wire, QueuePair]:
    wire = Wire()
    return wire, connected(wire, service, **settings)[1]


def remote(wire: Wire, length: int, offset: int = 0) -> dict[str, int]:
    return {"va": wire.b.at + offset, "rkey": wire.b.region.key, "length": length}


@pytest.mark.parametrize(
    ("size", "fields", "is_right"),
    [
        (0, {}, True),
        (1, {}, True),
        (MTU, {}, True),
        (MTU + 1, {}, False),
        (MTU + 1, {"count": 2}, True),
        (2 * MTU, {"count": 2}, True),
        (MTU, {"count": 2}, False),
        (2 * MTU + 1, {"count": 2}, False),
        (MTU, {"last": False}, True),
        (MTU - 1, {"last": False}, False),
        (MTU + 1, {"last": False}, False),
        (2 * MTU, {"last": False, "count": 2}, True),
        (1, {"first": False}, False),
    ],
)
def test_packets_of_a_message_have_the_size_of_the_mtu_but_the_last(size, fields, is_right):
    wire, b = responder()
    wire.b.receive(b, 1, 0, 4096)
    arrive(wire, request(b, Op.SEND, 0, bytes(size), **fields))
    count = fields.get("count", 1)
    assert answers(wire) == [(Op.ACKNOWLEDGE, count - 1, ACK_UNLIMITED) if is_right else (Op.ACKNOWLEDGE, 0, INVALID)]
    assert b.state == (S.IBV_QPS_RTS if is_right else S.IBV_QPS_ERR)


@pytest.mark.parametrize(("op", "first"), [(Op.WRITE, False), (Op.SEND, True), (Op.READ, True)])
def test_a_message_is_continued_by_its_own_operation_only(op, first):
    wire, b = responder()
    wire.b.receive(b, 1, 0, 4096)
    arrive(wire, request(b, Op.SEND, 0, bytes(MTU), last=False))
    arrive(wire, request(b, op, 1, b"", first=first, **remote(wire, 0)))
    assert naks(wire) == [(1, INVALID)]


@pytest.mark.parametrize(("size", "is_right"), [(99, True), (100, True), (101, False)])
def test_a_message_fits_the_receive_request_or_fails_both_ends(size, is_right):
    wire, b = responder()
    wire.b.receive(b, 1, 0, 100)
    arrive(wire, request(b, Op.SEND, 0, bytes(size)))
    assert wire.b.done() == [(1, int(C.IBV_WC_SUCCESS if is_right else C.IBV_WC_LOC_LEN_ERR))]
    assert naks(wire) == ([] if is_right else [(0, INVALID)])


@pytest.mark.parametrize(("length", "is_right"), [(9, False), (10, True), (11, False)])
def test_a_write_has_the_length_of_its_first_packet(length, is_right):
    wire, b = responder()
    arrive(wire, request(b, Op.WRITE, 0, b"\xff" * 10, **remote(wire, length)))
    assert naks(wire) == ([] if is_right else [(0, INVALID)])


def test_a_write_of_nothing_needs_no_key():
    wire, b = responder()
    arrive(wire, request(b, Op.WRITE, 0))
    assert answers(wire) == [(Op.ACKNOWLEDGE, 0, ACK_UNLIMITED)]


def test_an_answer_is_sent_only_if_it_is_requested():
    wire, b = responder()
    for psn, wanted in ((0, False), (1, True)):
        segment = request(b, Op.WRITE, psn, b"1", **remote(wire, 1))
        segment.ack_request = wanted
        arrive(wire, segment)
    assert answers(wire) == [(Op.ACKNOWLEDGE, 1, ACK_UNLIMITED)]


def test_a_gap_is_reported_once_until_an_expected_packet_arrives():
    wire, b = responder()
    for psn in (1, 2, 0, 2, 2):
        arrive(wire, request(b, Op.WRITE, psn, b"1", **remote(wire, 1)))
    assert answers(wire) == [
        (Op.ACKNOWLEDGE, 0, NAK),
        (Op.ACKNOWLEDGE, 0, ACK_UNLIMITED),
        (Op.ACKNOWLEDGE, 1, NAK),
    ]


@pytest.mark.parametrize(("behind", "count", "expected"), [(1, 1, 3), (1, 2, 4), (2, 3, 4), (2, 2, 3), (3, 3, 3)])
def test_the_new_packets_of_a_repeated_message_are_executed(behind, count, expected):
    wire, b = responder()
    arrive(wire, request(b, Op.WRITE, 0, bytes(3 * MTU), count=3, last=False, **remote(wire, 5 * MTU)))
    data = bytes([7]) * (count * MTU)
    arrive(wire, request(b, Op.WRITE, 3 - behind, data, count=count, first=behind == 3, last=False))
    assert b.record.expected_psn == expected
    assert answers(wire)[-1] == (Op.ACKNOWLEDGE, expected - 1, ACK_UNLIMITED)
    assert wire.b.get(2 * MTU, 3 * MTU) == bytes(MTU) + bytes([7]) * (expected - 3) * MTU + bytes((5 - expected) * MTU)


@pytest.mark.parametrize(
    ("psn", "offset", "length", "key", "is_answered"),
    [
        (0, 0, 3 * MTU, 0, True),
        (1, MTU, 2 * MTU, 0, True),
        (2, 2 * MTU, MTU, 0, True),
        (1, MTU, MTU, 0, True),
        (1, MTU, 2 * MTU + 1, 0, False),
        (1, MTU + 8, 8, 0, False),
        (1, 0, 8, 0, False),
        (0, 0, 8, 1, False),
        (-1, 0, 8, 0, False),
    ],
)
def test_a_repeated_read_is_answered_within_the_range_that_was_read(psn, offset, length, key, is_answered):
    wire, b = responder()
    data = bytes(range(256)) * 12
    wire.b.put(0, data)
    arrive(wire, request(b, Op.READ, 0, **remote(wire, 3 * MTU)))
    repeated = remote(wire, length, offset)
    repeated["rkey"] += key
    arrive(wire, request(b, Op.READ, psn & 0xFF_FFFF, **repeated))
    answered = [(item.psn, bytes(item.payload)) for item in wire.ends["b"].sent[1:]]
    assert answered == ([(psn, data[offset : offset + length])] if is_answered else [])
    assert b.record.expected_psn == 3


def test_as_many_atomics_are_repeated_as_were_agreed():
    wire, b = responder(max_dest_rd_atomic=2)
    for psn in (0, 1, 2, 0, 1, 2):
        arrive(wire, request(b, Op.FETCH_ADD, psn, swap=5, **remote(wire, 8)))
    assert [(item.psn, item.swap) for item in wire.ends["b"].sent] == [(0, 0), (1, 5), (2, 10), (1, 5), (2, 10)]
    assert int.from_bytes(wire.b.get(0, 8), "little") == 15


@pytest.mark.parametrize(("first", "repeated", "answered"), [
    (Op.READ, Op.FETCH_ADD, False),
    (Op.FETCH_ADD, Op.COMPARE_SWAP, True),
    (Op.ATOMIC_WRITE, Op.ATOMIC_WRITE, True),
])  # fmt: skip
def test_a_repeated_atomic_returns_its_first_result_and_never_that_of_a_read(first, repeated, answered):
    wire, b = responder()
    data = bytes(8) if first == Op.ATOMIC_WRITE else b""
    for op in (first, repeated):
        arrive(wire, request(b, op, 0, data, **remote(wire, 8)))
    assert len(answers(wire)) == 1 + answered


@pytest.mark.parametrize(
    ("op", "offset", "refusal"),
    [
        (Op.FETCH_ADD, 4, INVALID),
        (Op.COMPARE_SWAP, 1, INVALID),
        (Op.FETCH_ADD, (1 << 20) - 8, None),
        (Op.FETCH_ADD, 1 << 20, ACCESS),
    ],
)
def test_an_atomic_lies_at_a_multiple_of_eight_within_the_region(op, offset, refusal):
    wire, b = responder()
    shift = -wire.b.at % 8
    arrive(wire, request(b, op, 0, **remote(wire, 8, offset + shift - (8 if shift else 0))))
    assert naks(wire) == ([] if refusal is None else [(0, refusal)])


@pytest.mark.parametrize(
    ("op", "before", "compare", "swap", "after"),
    [
        (Op.FETCH_ADD, (1 << 64) - 1, 0, 2, 1),
        (Op.FETCH_ADD, 5, 5, 0, 5),
        (Op.COMPARE_SWAP, 5, 5, 9, 9),
        (Op.COMPARE_SWAP, 5, 4, 9, 5),
    ],
)
def test_an_atomic_returns_the_value_before_and_wraps_at_64_bits(op, before, compare, swap, after):
    wire, b = responder()
    at = -wire.b.at % 8
    wire.b.put(at, before.to_bytes(8, "little"))
    arrive(wire, request(b, op, 0, compare=compare, swap=swap, **remote(wire, 8, at)))
    (answer,) = wire.ends["b"].sent
    assert (answer.op, answer.swap, int.from_bytes(wire.b.get(at, 8), "little")) == (Op.ATOMIC_RESPONSE, before, after)


@pytest.mark.parametrize(
    ("op", "access", "length", "refusal"),
    [
        (Op.READ, 0, 0, INVALID),
        (Op.READ, 0, 8, INVALID),
        (Op.READ, IBV_ACCESS_REMOTE_READ, 0, None),
        (Op.WRITE, IBV_ACCESS_REMOTE_READ, 8, INVALID),
        (Op.WRITE, IBV_ACCESS_REMOTE_WRITE, 8, None),
        (Op.FETCH_ADD, IBV_ACCESS_REMOTE_WRITE, 8, INVALID),
        (Op.ATOMIC_WRITE, IBV_ACCESS_REMOTE_READ, 8, INVALID),
    ],
)
def test_a_queue_pair_refuses_operations_that_its_settings_do_not_allow(op, access, length, refusal):
    wire, b = responder(access=access)
    arrive(wire, request(b, op, 0, bytes(length) if op in (Op.WRITE, Op.ATOMIC_WRITE) else b"", **remote(wire, length)))
    assert naks(wire) == ([] if refusal is None else [(0, refusal)])


@pytest.mark.parametrize("op", [Op.READ, Op.FETCH_ADD, Op.ATOMIC_WRITE, Op.FLUSH])
def test_without_resources_for_reads_none_is_executed(op):
    wire, b = responder(max_dest_rd_atomic=0)
    arrive(wire, request(b, op, 0, **remote(wire, 8)))
    assert naks(wire) == [(0, INVALID)]


@pytest.mark.parametrize("flush", [1, 2, 3])
@pytest.mark.parametrize("allowed", [1, 2, 3])
def test_a_flush_needs_the_right_of_each_of_its_kinds(flush, allowed):
    rights = (allowed & 1 and IBV_ACCESS_FLUSH_GLOBAL) | (allowed & 2 and IBV_ACCESS_FLUSH_PERSISTENT)
    wire, b = responder(access=ALL | rights)
    wire.b.region.access = ALL | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT
    arrive(wire, request(b, Op.FLUSH, 0, flush=flush, **remote(wire, 8)))
    assert naks(wire) == ([(0, INVALID)] if flush & ~allowed else [])


def test_message_numbers_count_complete_requests_and_wrap_at_24_bits():
    wire, b = responder()
    b.record.msn = 0xFF_FFFE
    arrive(wire, request(b, Op.WRITE, 0, bytes(MTU), last=False, **remote(wire, MTU + 1)))
    arrive(wire, request(b, Op.WRITE, 1, b"1", first=False))
    arrive(wire, request(b, Op.READ, 2, **remote(wire, 8)))
    assert [item.msn for item in wire.ends["b"].sent] == [0xFF_FFFE, 0xFF_FFFF, 0]


@pytest.mark.parametrize(("key", "event"), [(1, E.IBV_EVENT_QP_ACCESS_ERR), (0, E.IBV_EVENT_QP_REQ_ERR)])
def test_a_wrong_request_is_reported_to_the_program_once(key, event):
    wire, b = responder()
    observed = events(b)
    segment = request(b, Op.WRITE, 0, bytes(8), **remote(wire, 8 if key else 9))
    segment.rkey += key
    arrive(wire, segment)
    b.responder.on_request(segment)
    assert (observed, b.state) == ([event], S.IBV_QPS_ERR)


def test_a_message_in_part_returns_its_receive_request_as_an_error():
    wire, b = responder()
    wire.b.receive(b, 1, 0, 4096)
    arrive(wire, request(b, Op.SEND, 0, bytes(MTU), last=False))
    arrive(wire, request(b, Op.READ, 1, **remote(wire, 8)))
    assert wire.b.done() == [(1, int(C.IBV_WC_REM_INV_REQ_ERR))]


def test_a_write_with_immediate_data_of_one_packet_waits_for_a_receive_request():
    wire, b = responder(min_rnr_timer=3)
    segment = request(b, Op.WRITE, 0, b"abc", immediate=5, **remote(wire, 3))
    arrive(wire, segment)
    assert (answers(wire), wire.b.get(0, 3)) == ([(Op.ACKNOWLEDGE, 0, RNR_NAK | 3)], bytes(3))
    wire.b.receive(b, 8, 0, 0)
    arrive(wire, segment)
    (done,) = completions(wire)
    assert (done.wr_id, done.byte_len, done.immediate, wire.b.get(0, 3)) == (8, 3, 5, b"abc")


def unreliable(*psns: tuple[int, bool, bool]) -> tuple[list[tuple[int, int]], int]:
    """Return the completions of packets of UC (PSN, first, last), and the receive requests that are left of two."""
    wire, b = responder(Service.UC)
    for number in range(2):
        wire.b.receive(b, number, 0, 4 * MTU)
    for psn, first, last in psns:
        arrive(
            wire,
            Segment(
                op=Op.SEND, service=Service.UC, dest_qp=b.number, psn=psn, first=first, last=last, payload=bytes(MTU)
            ),
        )
    assert answers(wire) == []
    return wire.b.done(), len(b.receives)


@pytest.mark.parametrize(
    ("packets", "completed", "left"),
    [
        ([(0, True, False), (1, False, True)], 1, 1),
        ([(0, True, False), (2, False, True)], 0, 2),  # a gap
        ([(0, True, False), (1, True, True)], 1, 1),  # the last packet is missing
        ([(1, False, True), (5, True, True)], 1, 1),  # the first packet is missing
        ([(7, True, True), (8, True, True)], 2, 0),
        ([(0, True, False), (1, False, False), (3, False, False), (4, False, True), (5, True, True)], 1, 1),
    ],
)
def test_unreliable_connections_drop_messages_with_a_missing_packet(packets, completed, left):
    done, rest = unreliable(*packets)
    assert done == [(number, 0) for number in range(completed)]
    assert rest == left


def test_after_an_unreliable_message_that_does_not_fit_the_next_one_is_received():
    wire, b = responder(Service.UC)
    for wr_id, room in ((1, MTU), (2, 2 * MTU)):
        wire.b.receive(b, wr_id, 0, room)
    for psn, first in ((0, True), (1, False)):
        segment = Segment(op=Op.SEND, service=Service.UC, dest_qp=b.number, psn=psn, first=first, last=not first)
        segment.payload = bytes(MTU)
        arrive(wire, segment)
    assert (b.record.expected_psn, len(b.receives), wire.b.done()) == (2, 2, [])
