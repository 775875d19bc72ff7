"""Limits and ties of the requester: windows, parts of READs, late responses, timers, and invalid requests."""

from __future__ import annotations

import pytest
from tests.verbs.segments import events
from tests.verbs.wires import Wire, connected

from weft.verbs.enums import IBV_SEND_SOLICITED, ibv_event_type, ibv_qp_state, ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.segment import ACK_UNLIMITED, NAK, RNR_NAK, Op, Segment

S, W = ibv_qp_state, ibv_wr_opcode
OK = int(ibv_wc_status.IBV_WC_SUCCESS)
WRITE, READ, FETCH_ADD = W.IBV_WR_RDMA_WRITE, W.IBV_WR_RDMA_READ, W.IBV_WR_ATOMIC_FETCH_AND_ADD


def silent(window_bytes: int = 0, **settings: int) -> tuple[Wire, QueuePair]:
    """Return a wire that loses all packets, and a queue pair at its end `a`."""
    wire = Wire(lambda packet: [])
    wire.ends["a"].window_bytes = window_bytes
    return wire, connected(wire, **settings)[0]


def request(wire: Wire, qp: QueuePair, opcode: W, size: int, wr_id: int = 1) -> None:
    wire.a.send(qp, wr_id, 0, size, opcode, va=wire.b.at, rkey=wire.b.region.key)
    wire.a.adapter.progress()


def respond(wire: Wire, qp: QueuePair, psn: int, op: Op = Op.ACKNOWLEDGE, **fields) -> None:
    fields = {"syndrome": ACK_UNLIMITED} | fields
    qp.requester.on_response(Segment(op=op, service=qp.service, dest_qp=qp.number, psn=psn, **fields))
    wire.a.adapter.progress()


@pytest.mark.parametrize(
    ("window_bytes", "mtu_bytes", "counts"),
    [(0, 1024, [128]), (1024, 1024, [2] * 4), (9 << 10, 1024, [2] * 4 + [1]), (64 << 10, 4096, [4] * 4)],
)
def test_a_window_has_at_least_eight_packets_and_is_sent_in_four_parts(window_bytes, mtu_bytes, counts):
    wire, a = silent(window_bytes, mtu_bytes=mtu_bytes)
    request(wire, a, WRITE, 128 << 10)
    assert [segment.count for segment in wire.ends["a"].sent] == counts


@pytest.mark.parametrize(
    ("losses", "acknowledged", "in_flight"), [(0, 16, 64), (1, 16, 35), (1, 15, 34), (2, 8, 18), (2, 7, 17)]
)
def test_a_window_grows_by_an_eighth_of_each_acknowledgement_up_to_its_maximum(losses, acknowledged, in_flight):
    wire, a = silent(64 << 10)
    request(wire, a, WRITE, 512 << 10)
    for _ in range(losses):
        a.requester.on_timer(a.requester.next_s())
    respond(wire, a, acknowledged - 1)
    assert a.sends[0].sent - acknowledged == in_flight


def test_a_part_of_a_long_read_is_requested_when_an_earlier_part_is_complete():
    wire, a = silent(8 << 10, max_rd_atomic=2)
    request(wire, a, READ, 8 << 10)
    sent = wire.ends["a"].sent
    assert [(segment.psn, segment.length) for segment in sent] == [(0, 2048), (2, 2048)]
    respond(wire, a, 0, Op.READ_RESPONSE, payload=bytes(1024))
    assert len(sent) == 2
    respond(wire, a, 1, Op.READ_RESPONSE, payload=bytes(1024))
    assert [(segment.psn, segment.length) for segment in sent[2:]] == [(4, 2048)]


@pytest.mark.parametrize(("packets", "is_sent"), [(7, True), (8, False)])
def test_a_read_is_sent_while_the_window_has_room_for_a_packet(packets, is_sent):
    wire, a = silent(8 << 10)
    request(wire, a, WRITE, packets << 10)
    request(wire, a, READ, 10, wr_id=2)
    assert wire.ends["a"].sent[-1].op == (Op.READ if is_sent else Op.WRITE)


@pytest.mark.parametrize("max_rd_atomic", [1, 2])
def test_a_read_that_stopped_within_a_part_requests_the_rest_of_the_part_first(max_rd_atomic):
    wire, a = silent(8 << 10, max_rd_atomic=max_rd_atomic)
    request(wire, a, READ, 8 << 10)
    respond(wire, a, 0, Op.READ_RESPONSE, payload=bytes(1024))
    a.requester.on_timer(a.requester.next_s())
    sent = wire.ends["a"].sent[max_rd_atomic:]
    parts = [(1, 1024, 1024), (2, 2048, 2048)]
    assert [(part.psn, part.va - wire.b.at, part.length) for part in sent] == parts[:max_rd_atomic]


@pytest.mark.parametrize(("opcode", "expected"), [(READ, b"\xff" * 10), (W.IBV_WR_FLUSH, b"")])
def test_a_response_writes_no_more_than_was_requested(opcode, expected):
    wire, a = silent()
    request(wire, a, opcode, 10)
    respond(wire, a, 0, Op.READ_RESPONSE, payload=b"\xff" * 20)
    assert wire.a.get(0, 20) == expected.ljust(20, b"\0")
    assert wire.a.done() == [(1, OK)]


@pytest.mark.parametrize("syndrome", [ACK_UNLIMITED, NAK, NAK | 2, RNR_NAK | 1])
@pytest.mark.parametrize(("psn", "counts"), [(0, False), (1, False), (2, True)])
def test_a_late_response_to_a_complete_request_changes_nothing(psn, counts, syndrome):
    wire, a = silent(rnr_retry=1)
    for wr_id in range(3):
        request(wire, a, WRITE, 10, wr_id)
    respond(wire, a, 1)
    before = a.requester.next_s(), len(wire.ends["a"].sent), a.state
    assert wire.a.done() == [(0, OK), (1, OK)]
    respond(wire, a, psn, syndrome=syndrome)
    after = a.requester.next_s(), len(wire.ends["a"].sent), a.state
    assert (after != before) is counts


@pytest.mark.parametrize("code", [5, 31])
def test_a_reserved_code_of_a_nak_changes_nothing_but_acknowledges_earlier_requests(code):
    wire, a = silent()
    for wr_id in range(3):
        request(wire, a, WRITE, 10, wr_id)
    respond(wire, a, 1, syndrome=NAK | code)
    assert (wire.a.done(), a.state, len(wire.ends["a"].sent)) == ([(0, OK)], S.IBV_QPS_RTS, 3)


@pytest.mark.parametrize(
    ("opcode", "size", "max_rd_atomic", "status"),
    [
        (READ, 8, 0, ibv_wc_status.IBV_WC_LOC_QP_OP_ERR),
        (FETCH_ADD, 7, 1, ibv_wc_status.IBV_WC_LOC_LEN_ERR),
        (FETCH_ADD, 8, 1, None),
        (WRITE, 7, 0, None),
        (READ, 7, 1, None),
    ],
)
def test_a_request_that_can_never_be_sent_fails_at_once(opcode, size, max_rd_atomic, status):
    wire, a = silent(max_rd_atomic=max_rd_atomic)
    request(wire, a, opcode, size)
    assert wire.a.done() == ([] if status is None else [(1, int(status))])
    assert len(wire.ends["a"].sent) == (status is None)


def test_timers_are_due_at_their_time_and_not_before():
    wire, a = silent()
    request(wire, a, WRITE, 10)
    due_s = a.requester.next_s()
    a.requester.on_timer(due_s - 1e-9)
    assert len(wire.ends["a"].sent) == 1
    a.requester.on_timer(due_s)
    assert len(wire.ends["a"].sent) == 2
    respond(wire, a, 0, syndrome=RNR_NAK | 1)
    due_s = a.requester.next_s()
    a.requester.on_timer(due_s - 1e-9)
    assert len(wire.ends["a"].sent) == 2
    a.requester.on_timer(due_s)
    assert len(wire.ends["a"].sent) == 3
    assert a.requester.next_s() == pytest.approx(wire.clock() + 4.096e-6 * 1024)


def test_a_timeout_is_not_a_loss_while_the_peer_has_unread_packets():
    wire, a = silent(retry_cnt=0)
    request(wire, a, WRITE, 10)
    wire.ends["a"].is_behind = lambda dest_qp: True
    wire.clock.sleep(1)
    a.requester.on_timer(wire.clock())
    assert (a.requester.next_s(), len(wire.ends["a"].sent)) == (pytest.approx(1 + 4.096e-6 * 1024), 1)
    wire.ends["a"].is_behind = lambda dest_qp: False
    a.requester.on_timer(a.requester.next_s())
    assert wire.a.done() == [(1, int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR))]


@pytest.mark.parametrize("retries", [1, 3])
def test_progress_restores_the_retries(retries):
    wire, a = silent(retry_cnt=retries)
    request(wire, a, WRITE, 4096)
    for acknowledged in range(2):
        for _ in range(retries):
            a.requester.on_timer(a.requester.next_s())
        assert a.state == S.IBV_QPS_RTS
        respond(wire, a, acknowledged)
    for _ in range(retries + 1):
        assert a.state == S.IBV_QPS_RTS
        a.requester.on_timer(a.requester.next_s())
    assert a.state == S.IBV_QPS_ERR


def test_a_drained_queue_pair_finishes_started_requests_and_reports_it_once():
    wire, a = silent(8 << 10)
    request(wire, a, WRITE, 12 << 10)
    a.wants_drained, observed = True, events(a)
    a.enter(S.IBV_QPS_SQD)
    request(wire, a, WRITE, 10, wr_id=2)
    respond(wire, a, 7)
    assert (observed, a.sends[0].sent, a.sends[1].psn) == ([], 12, -1)
    respond(wire, a, 11)
    wire.a.adapter.wake(a)
    wire.a.adapter.progress()
    assert observed == [ibv_event_type.IBV_EVENT_SQ_DRAINED]
    a.enter(S.IBV_QPS_RTS)
    wire.a.adapter.progress()
    assert a.sends[0].sent == 1


@pytest.mark.parametrize(("opcode", "immediate", "invalidate"), [
    (W.IBV_WR_SEND, None, None),
    (W.IBV_WR_SEND_WITH_IMM, 7, None),
    (W.IBV_WR_SEND_WITH_INV, None, 9),
    (WRITE, None, None),
    (W.IBV_WR_RDMA_WRITE_WITH_IMM, 7, None),
])  # fmt: skip
def test_only_the_last_part_of_a_message_has_flags_and_immediate_data(opcode, immediate, invalidate):
    wire, a = silent(8 << 10)
    work = {"immediate": 7, "invalidate": 9, "va": wire.b.at, "rkey": wire.b.region.key}
    wire.a.send(a, 1, 0, 4096, opcode, **work)
    a.sends[0].flags |= IBV_SEND_SOLICITED
    wire.a.adapter.progress()
    parts = [(part.first, part.last, part.solicited, part.immediate, part.invalidate) for part in wire.ends["a"].sent]
    assert parts == [(True, False, False, None, None), (False, True, True, immediate, invalidate)]
