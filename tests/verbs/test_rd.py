"""Reliable datagrams: many queue pairs over one path; each message arrives once, despite faults and other errors."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.verbs.packet_faults import Corruption
from tests.verbs.paths import Q_KEY, path, queue_pair, send
from tests.verbs.segments import lose
from tests.verbs.wires import Wire, taken

from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    ibv_event_type,
    ibv_qp_state,
    ibv_wc_opcode,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.hca.carrier import Arrival
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.segment import Op, Segment

S, W, WC = ibv_qp_state, ibv_wr_opcode, ibv_wc_status
OK, FLUSHED = int(WC.IBV_WC_SUCCESS), int(WC.IBV_WC_WR_FLUSH_ERR)
ANSWERS = (Op.ACKNOWLEDGE, Op.READ_RESPONSE, Op.ATOMIC_RESPONSE)


def one_pair(fate=None, **settings):
    """Return a wire, and an EE context and a queue pair at each of its ends."""
    wire = Wire(fate)
    return wire, *path(wire.a, wire.b, **settings), queue_pair(wire.a), queue_pair(wire.b)


def sent(wire: Wire, name: str = "a") -> list[Op]:
    return [segment.op for segment in wire.ends[name].sent]


# -- messages ---------------------------------------------------------------------------------------------------------


def test_a_message_names_path_sender_and_receiver():
    wire, ee, far_ee, a, b = one_pair()
    wire.b.receive(b, 7, 0, 5000)
    wire.a.put(100, random.Random(1).randbytes(5000))
    send(wire.a, a, ee, b, 1, 100, 5000, W.IBV_WR_SEND_WITH_IMM, immediate=0x99)
    wire.run()
    assert wire.a.done() == [(1, OK)]
    (received,) = taken(wire.b.cq, 9)
    assert (received.wr_id, received.qp_num, received.src_qp) == (7, b.number, a.number)
    assert (received.byte_len, received.immediate) == (5000, 0x99)
    assert wire.b.get(0, 5000) == wire.a.get(100, 5000)
    (request,), (answer,) = wire.ends["a"].sent, wire.ends["b"].sent
    assert (request.ee, request.dest_qp, request.source_qp, request.q_key) == (far_ee.number, b.number, a.number, Q_KEY)
    assert (answer.ee, answer.dest_qp) == (ee.number, a.number)


def test_writes_reads_and_atomics_go_the_same_way():
    wire, ee, _, a, b = one_pair()
    present = {"va": wire.b.at + 4096, "rkey": wire.b.region.key}
    wire.a.put(0, random.Random(2).randbytes(3000))
    wire.b.receive(b, 9, 0, 0)
    send(wire.a, a, ee, b, 1, 0, 3000, W.IBV_WR_RDMA_WRITE_WITH_IMM, immediate=5, **present)
    send(wire.a, a, ee, b, 2, 8000, 3000, W.IBV_WR_RDMA_READ, **present)
    wire.b.put(0, (40).to_bytes(8, "little"))
    present["va"] = wire.b.at
    send(wire.a, a, ee, b, 3, 16_000, 8, W.IBV_WR_ATOMIC_FETCH_AND_ADD, swap=2, **present)
    send(wire.a, a, ee, b, 4, 16_008, 8, W.IBV_WR_ATOMIC_CMP_AND_SWP, compare=42, swap=7, **present)
    wire.run()
    assert wire.a.done() == [(number, OK) for number in (1, 2, 3, 4)]
    assert wire.a.get(8000, 3000) == wire.b.get(4096, 3000) == wire.a.get(0, 3000)
    assert [int.from_bytes(wire.a.get(at, 8), "little") for at in (16_000, 16_008)] == [40, 42]
    assert wire.b.get(0, 8) == (7).to_bytes(8, "little")
    (received,) = taken(wire.b.cq, 9)
    assert (received.opcode, received.src_qp) == (ibv_wc_opcode.IBV_WC_RECV_RDMA_WITH_IMM, a.number)


def test_one_path_carries_one_message_at_a_time_whoever_sends():
    wire, ee, _, a, b = one_pair()
    rest = [queue_pair(wire.a) for _ in range(3)]
    for number, qp in enumerate([a, *rest] * 2):
        wire.b.receive(b, number, number * 2048, 2048)
        send(wire.a, qp, ee, b, number, number * 2048, 2000)
    under_way = 0
    for segment in in_order(wire):
        under_way += 1 if segment.op == Op.SEND else -1
        assert under_way in (0, 1)
    assert sorted(wire.a.done()) == [(number, OK) for number in range(8)]
    assert [wr_id for wr_id, _ in wire.b.done()] == list(range(8))


def in_order(wire: Wire) -> list[Segment]:
    """Run the wire and return the segments that both ends sent, in their order."""
    observed: list[Segment] = []
    for end in wire.ends.values():
        end.send = watched(end.send, observed)
    wire.run()
    return observed


def watched(send, seen):
    def watch(segment, to, mtu_bytes):
        seen.append(segment)
        send(segment, to, mtu_bytes)

    return watch


def test_one_queue_pair_reaches_many_adapters_paths_and_queue_pairs():
    wire, ee, _, a, b = one_pair()
    second, _ = path(wire.a, wire.b)
    other = queue_pair(wire.b)
    wire.b.receive(b, 1, 0, 10)
    wire.b.receive(other, 2, 100, 10)
    wire.a.put(0, b"to the oneto another")
    send(wire.a, a, ee, b, 1, 0, 10)
    send(wire.a, a, second, other, 2, 10, 10)
    wire.run()
    assert wire.a.done() == [(1, OK), (2, OK)]
    assert (wire.b.get(0, 10), wire.b.get(100, 10)) == (b"to the one", b"to another")


def test_a_queue_pair_sends_in_order_also_when_its_paths_differ():
    """The second request could be faster: its path loses no packet."""
    wire = Wire()
    (slow, _), (quick, _) = path(wire.a, wire.b), path(wire.a, wire.b)
    a, b = queue_pair(wire.a), queue_pair(wire.b)
    left = [1]
    wire.fate = lambda p: [] if p.ee == slow.settings.dest_qp and p.op == Op.SEND and left and left.pop() else [p]
    for number, ee in enumerate((slow, quick)):
        wire.b.receive(b, number, 100 * number, 100)
        send(wire.a, a, ee, b, number, 0, 10)
    wire.run(0.1)
    assert wire.a.done() == [(0, OK), (1, OK)]
    assert wire.b.done() == [(0, OK), (1, OK)]


# -- not ready --------------------------------------------------------------------------------------------------------


def test_others_pass_while_a_message_waits_for_a_buffer():
    wire, ee, _, a, b = one_pair()
    other_a, other_b = queue_pair(wire.a), queue_pair(wire.b)
    wire.b.receive(other_b, 5, 0, 100)
    send(wire.a, a, ee, b, 1, 0, 10)
    send(wire.a, other_a, ee, other_b, 2, 0, 10)
    wire.run()
    assert (wire.a.done(), wire.b.done()) == ([(2, OK)], [(5, OK)])
    assert sent(wire) == [Op.SEND, Op.RESYNC, Op.SEND]
    wire.b.receive(b, 6, 0, 100)
    wire.run(0.1)
    assert (wire.a.done(), wire.b.done()) == ([(1, OK)], [(6, OK)])


def test_a_refused_message_waits_as_long_as_its_receiver_says():
    wire = Wire()
    ee, _ = path(wire.a, wire.b)
    a, b = queue_pair(wire.a), queue_pair(wire.b, min_rnr_timer=14)  # 1.28 ms
    send(wire.a, a, ee, b, 1, 0, 10)
    wire.run()
    assert a.requester.next_s() == pytest.approx(wire.clock() + 0.00128, abs=1e-9)
    wire.run(0.001)
    assert sent(wire) == [Op.SEND, Op.RESYNC]
    wire.b.receive(b, 2, 0, 100)
    wire.run(0.001)
    assert sent(wire) == [Op.SEND, Op.RESYNC, Op.SEND]
    assert (wire.a.done(), a.requester.next_s()) == ([(1, OK)], None)


def test_peer_that_is_never_ready_fails_and_the_path_continues():
    wire, ee, _, a, b = one_pair(rnr_retry=2)
    send(wire.a, a, ee, b, 1, 0, 10)
    send(wire.a, a, ee, b, 2, 0, 10)
    wire.run(1)
    assert wire.a.done() == [(1, int(WC.IBV_WC_RNR_RETRY_EXC_ERR)), (2, FLUSHED)]
    assert sent(wire).count(Op.SEND) == 1 + 2
    assert (a.state, ee.state) == (S.IBV_QPS_SQE, S.IBV_QPS_RTS)
    assert sent(wire).count(Op.SEND) == 3
    assert_works(wire, ee)


def assert_works(wire: Wire, ee) -> None:
    """Assert that two new queue pairs can still exchange a message over the path."""
    a, b = queue_pair(wire.a), queue_pair(wire.b)
    wire.b.receive(b, 77, 50_000, 100)
    send(wire.a, a, ee, b, 76, 0, 10)
    wire.run(0.5)
    assert wire.a.done()[-1:] == [(76, OK)]
    assert wire.b.done()[-1:] == [(77, OK)]


def test_late_copy_of_a_refused_message_is_not_accepted():
    """A copy of the first attempt arrives when there is a buffer; only the second attempt counts."""
    copies: list[Segment] = []

    def fate(packet: Segment) -> list[Segment]:
        if packet.op == Op.SEND and not copies:
            copies.append(packet)
        if packet.op == Op.RESYNC and len(copies) == 1:
            wire.b.receive(b, 5, 0, 100)
            wire.b.receive(b, 6, 0, 100)
            copies.append(packet)
            return [copies[0], packet]
        return [packet]

    wire, ee, _, a, b = one_pair(fate)
    send(wire.a, a, ee, b, 1, 0, 10)
    wire.run(0.1)
    assert len(copies) == 2
    assert (wire.a.done(), wire.b.done()) == ([(1, OK)], [(5, OK)])


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["q_key", "domain", "no queue pair", "another service", "not receiving"])
def test_forbidden_send_is_refused_without_effect_on_the_receiver(what):
    wire, ee, far_ee, a, b = one_pair()
    wire.b.receive(b, 1, 0, 10)
    to, q_key = b, Q_KEY
    if what == "q_key":
        q_key += 1
    elif what == "domain":
        to = queue_pair(wire.b, object())
    elif what == "no queue pair":
        to = 0x4321
    elif what == "another service":
        to = far_ee.number
    else:
        to = queue_pair(wire.b)
        to.enter(S.IBV_QPS_RESET)
    send(wire.a, a, ee, to, 1, 0, 10, q_key=q_key)
    wire.run()
    assert wire.a.done() == [(1, int(WC.IBV_WC_REM_INV_RD_REQ_ERR))]
    assert (a.state, ee.state, b.state) == (S.IBV_QPS_SQE, S.IBV_QPS_RTS, S.IBV_QPS_RTS)
    assert wire.b.done() == []
    assert wire.b.adapter.counters["qkey_violations"] == (what == "q_key")
    assert_works(wire, ee)


def test_a_q_key_with_the_highest_bit_stands_for_the_senders_own():
    wire, ee, _, a, b = one_pair()
    wire.b.receive(b, 1, 0, 10)
    send(wire.a, a, ee, b, 1, 0, 10, q_key=1 << 31)
    wire.run()
    assert wire.a.done() == [(1, OK)]


@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("another domain", WC.IBV_WC_LOC_RDD_VIOL_ERR),
        ("no such EE context", WC.IBV_WC_INV_EECN_ERR),
        ("not ready", WC.IBV_WC_INV_EEC_STATE_ERR),
        ("no READs", WC.IBV_WC_LOC_EEC_OP_ERR),
        ("no memory", WC.IBV_WC_LOC_PROT_ERR),
    ],
)
def test_local_errors_fail_before_anything_is_sent(what, status):
    wire, ee, _, a, b = one_pair(max_rd_atomic=0)
    opcode, number, length = W.IBV_WR_SEND, ee.number, 10
    if what == "another domain":
        a.domain = object()
    elif what == "no such EE context":
        number = b.number + 100
    elif what == "not ready":
        ee.enter(S.IBV_QPS_RESET)
    elif what == "no READs":
        opcode = W.IBV_WR_RDMA_READ
    else:
        length = 2 << 20
    send(wire.a, a, number, b, 1, 0, length, opcode, va=wire.b.at, rkey=wire.b.region.key)
    send(wire.a, a, number, b, 2, 0, 10)
    wire.run()
    assert wire.a.done() == [(1, int(status)), (2, FLUSHED)]
    assert a.state == S.IBV_QPS_SQE
    assert sent(wire) == []


@pytest.mark.parametrize(
    ("opcode", "more", "status"),
    [
        (W.IBV_WR_RDMA_WRITE, {"rkey": 1}, WC.IBV_WC_REM_ACCESS_ERR),
        (W.IBV_WR_RDMA_READ, {"rkey": 1}, WC.IBV_WC_REM_ACCESS_ERR),
        (W.IBV_WR_ATOMIC_FETCH_AND_ADD, {"va": 1}, WC.IBV_WC_REM_INV_REQ_ERR),
        (W.IBV_WR_SEND, {}, WC.IBV_WC_REM_INV_REQ_ERR),
    ],
)
def test_a_wrong_request_fails_both_queue_pairs_and_not_the_path(opcode, more, status):
    """The SEND is too long for the posted buffer."""
    wire, ee, far_ee, a, b = one_pair()
    wire.b.receive(b, 5, 0, 4)
    wire.b.receive(b, 6, 0, 4)
    at = {"va": wire.b.at + more.get("va", 0), "rkey": wire.b.region.key + more.get("rkey", 0)}
    send(wire.a, a, ee, b, 1, 0, 8, opcode, **at)
    wire.run()
    assert wire.a.done() == [(1, int(status))]
    first = int(WC.IBV_WC_LOC_LEN_ERR) if opcode == W.IBV_WR_SEND else FLUSHED
    assert wire.b.done() == [(5, first), (6, FLUSHED)]
    assert (a.state, b.state) == (S.IBV_QPS_SQE, S.IBV_QPS_ERR)
    assert (ee.state, far_ee.state) == (S.IBV_QPS_RTS, S.IBV_QPS_RTS)
    assert_works(wire, ee)


def test_without_the_right_of_the_queue_pair_nothing_is_written():
    wire, ee, _, a, _ = one_pair()
    b = queue_pair(wire.b, access=IBV_ACCESS_LOCAL_WRITE)
    send(wire.a, a, ee, b, 1, 0, 8, W.IBV_WR_RDMA_WRITE, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert wire.a.done() == [(1, int(WC.IBV_WC_REM_INV_REQ_ERR))]


def test_an_error_is_told_again_if_its_answer_was_lost():
    left = [1]
    wire, ee, _, a, b = one_pair(lambda p: [] if p.op == Op.ACKNOWLEDGE and left and left.pop() else [p])
    send(wire.a, a, ee, b, 1, 0, 3000, W.IBV_WR_RDMA_WRITE, va=wire.b.at, rkey=wire.b.region.key + 1)
    wire.run(0.1)
    assert not left
    assert wire.a.done() == [(1, int(WC.IBV_WC_REM_ACCESS_ERR))]
    assert_works(wire, ee)


def test_an_error_that_is_told_twice_is_one_error():
    """The second answer arrives after the RESYNC was sent."""
    answers: list[Segment] = []

    def fate(packet: Segment) -> list[Segment]:
        if packet.op == Op.ACKNOWLEDGE:
            answers.append(packet)
        if packet.op == Op.RESYNC:
            wire.ends["a"].inbox.append(Arrival(segment=answers[0], source="b"))
        return [packet]

    wire, ee, _, a, b = one_pair(fate)
    send(wire.a, a, ee, b, 1, 0, 10, q_key=1)
    wire.run()
    assert (wire.a.done(), ee.state) == ([(1, int(WC.IBV_WC_REM_INV_RD_REQ_ERR))], S.IBV_QPS_RTS)
    assert_works(wire, ee)


def test_a_path_that_nobody_answers_on_is_in_error_and_all_who_use_it_are_told():
    wire, ee, _, a, b = one_pair(lambda packet: [], retry_cnt=2)
    other = queue_pair(wire.a)
    send(wire.a, a, ee, b, 1, 0, 10)
    send(wire.a, other, ee, b, 2, 0, 10)
    wire.run(1)
    assert wire.a.done() == [(1, int(WC.IBV_WC_RETRY_EXC_ERR)), (2, int(WC.IBV_WC_INV_EEC_STATE_ERR))]
    assert ee.state == S.IBV_QPS_ERR
    assert sent(wire) == [Op.SEND] * 3


def test_an_ee_context_that_is_taken_away_ends_what_is_under_way():
    wire, ee, far_ee, a, b = one_pair(lambda p: [] if p.op in ANSWERS or not p.first else [p])
    wire.b.receive(b, 5, 0, 5000)
    send(wire.a, a, ee, b, 1, 0, 5000)
    wire.run()
    ee.enter(S.IBV_QPS_ERR)
    far_ee.enter(S.IBV_QPS_ERR)
    assert wire.a.done() == [(1, int(WC.IBV_WC_INV_EEC_STATE_ERR))]
    assert wire.b.done() == [(5, int(WC.IBV_WC_LOC_EEC_OP_ERR))]


@pytest.mark.parametrize("end", [S.IBV_QPS_ERR, S.IBV_QPS_RESET, None])
def test_a_message_whose_sender_is_gone_is_aborted_and_its_buffer_comes_back(end):
    """The last packet never arrives; None: the queue pair is destroyed."""
    wire, ee, _, a, b = one_pair(lambda p: [] if p.op == Op.SEND and p.psn == 2 else [p])
    wire.b.receive(b, 5, 0, 5000)
    send(wire.a, a, ee, b, 1, 0, 3000)
    wire.run()
    if end is not None:
        a.enter(end)
    else:
        a.enter(S.IBV_QPS_RESET)
        wire.a.adapter.remove(a)
    wire.run(0.1)
    assert wire.a.done() == ([(1, FLUSHED)] if end == S.IBV_QPS_ERR else [])
    assert wire.b.done() == [(5, int(WC.IBV_WC_REM_ABORT_ERR))]
    assert (ee.state, b.state) == (S.IBV_QPS_RTS, S.IBV_QPS_RTS)
    assert_works(wire, ee)


def test_a_receiver_that_begins_a_new_life_does_not_get_the_rest_of_a_message():
    wire, ee, _, a, b = one_pair(lose(2))
    wire.b.receive(b, 5, 0, 5000)
    send(wire.a, a, ee, b, 1, 0, 3000)
    wire.a.adapter.progress()
    wire.b.adapter.progress()  # takes two of three packets
    settings_before = b.settings
    b.enter(S.IBV_QPS_RESET)
    b.settings = settings_before
    for state in (S.IBV_QPS_INIT, S.IBV_QPS_RTR, S.IBV_QPS_RTS):
        b.enter(state)
    wire.b.receive(b, 6, 10_000, 5000)
    wire.run(0.1)
    assert wire.a.done() == [(1, int(WC.IBV_WC_REM_INV_RD_REQ_ERR))]
    assert wire.b.done() == []


def test_a_queue_pair_goes_on_after_its_error_and_from_a_drained_queue():
    wire, ee, _, a, b = one_pair()
    send(wire.a, a, ee, b, 1, 0, 10, q_key=1)
    wire.run()
    assert (wire.a.done(), a.state) == ([(1, int(WC.IBV_WC_REM_INV_RD_REQ_ERR))], S.IBV_QPS_SQE)
    a.enter(S.IBV_QPS_RTS)
    wire.b.receive(b, 2, 0, 10)
    send(wire.a, a, ee, b, 2, 0, 10)
    wire.run()
    assert wire.a.done() == [(2, OK)]
    messages = []
    a.on_event, a.wants_drained = messages.append, True
    send(wire.a, a, ee, b, 3, 0, 10)  # no receive is posted
    wire.run()
    a.enter(S.IBV_QPS_SQD)
    send(wire.a, a, ee, b, 4, 0, 10)
    wire.b.receive(b, 3, 0, 10)
    wire.b.receive(b, 4, 0, 10)
    wire.run(0.1)
    assert (wire.a.done(), messages) == ([(3, OK)], [ibv_event_type.IBV_EVENT_SQ_DRAINED])
    a.enter(S.IBV_QPS_RTS)
    wire.run()
    assert wire.a.done() == [(4, OK)]


def test_partitions_are_those_of_the_path():
    wire, ee, far_ee, a, b = one_pair()
    wire.b.adapter.p_keys = (0x8001,)
    wire.b.receive(b, 1, 0, 10)
    send(wire.a, a, ee, b, 1, 0, 10)
    wire.run()
    assert (wire.b.done(), wire.b.adapter.counters["pkey_violations"]) == ([], 1)
    assert far_ee.settings.pkey_index == 0


# -- any faults -------------------------------------------------------------------------------------------------------

KINDS = {
    "send": W.IBV_WR_SEND,
    "write": W.IBV_WR_RDMA_WRITE,
    "imm": W.IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": W.IBV_WR_RDMA_READ,
    "add": W.IBV_WR_ATOMIC_FETCH_AND_ADD,
}
COUNT, SLOT = 16, 8192
BUFFERS_AT, READ_AT, SUM_AT = 600_000, 750_000, 900_000


@settings(max_examples=80)
@given(st.integers(0, 1 << 30), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.2))
@example(5, 0.0, 0.3, 0.2)
def test_everything_arrives_once_and_in_order_under_any_fault(seed, loss, double, delay):
    """Three queue pairs send to two over one path. Buffers are posted late, and the last request has a wrong Q_Key."""
    wire = Wire(Corruption(seed, loss, double, delay, corrupt=0.1))
    ee, _ = path(wire.a, wire.b, timeout=8, sq_psn=0xFF_FFF0, rq_psn=0xFF_FFF0)
    senders, targets = [queue_pair(wire.a) for _ in range(3)], [queue_pair(wire.b) for _ in range(2)]
    chance, sums, arrives, posted = random.Random(seed), 0, {}, {qp.number: [] for qp in senders}
    buffers: list[QueuePair] = []
    for number in range(COUNT):
        kind, size, offset = chance.choice(list(KINDS)), chance.randrange(0, 5000), number * SLOT
        a, b = chance.choice(senders), chance.choice(targets)
        size = 8 if kind == "add" else size
        wire.a.put(offset, chance.randbytes(size))
        more = {"va": wire.b.at + offset, "rkey": wire.b.region.key}
        if kind == "read":
            wire.b.put(READ_AT + offset, chance.randbytes(size))
            more["va"] = wire.b.at + READ_AT + offset
        elif kind == "add":
            sums, more = sums + number, more | {"va": wire.b.at + SUM_AT, "swap": number}
        else:
            arrives[number] = wire.a.get(offset, size)
        if kind in ("send", "imm"):
            more["immediate"] = number
            buffers.append(b)
        opcode = W.IBV_WR_SEND_WITH_IMM if kind == "send" else KINDS[kind]
        send(wire.a, a, ee, b, number, offset, size, opcode, **more)
        posted[a.number].append(number)
    for number, b in enumerate(buffers):  # some before the sends, some while a send waits
        wire.run(chance.choice((0, 0.002)))
        wire.b.receive(b, number, BUFFERS_AT + number * SLOT, SLOT)
    bad = senders[0]
    send(wire.a, bad, ee, targets[0], 99, 0, 8, W.IBV_WR_RDMA_WRITE, q_key=1, va=wire.b.at, rkey=wire.b.region.key)
    wire.run(4)
    check(wire, ee, posted, bad.number, arrives, sums)


def check(wire: Wire, ee, posted, bad: int, arrives: dict[int, bytes], sums: int) -> None:
    done, received = taken(wire.a.cq, 1000), taken(wire.b.cq, 1000)
    statuses = {item.status for item in done}
    if statuses & {WC.IBV_WC_RETRY_EXC_ERR, WC.IBV_WC_INV_EEC_STATE_ERR}:  # no retries left, later requests are flushed
        allowed = {WC.IBV_WC_RETRY_EXC_ERR, WC.IBV_WC_INV_EEC_STATE_ERR, WC.IBV_WC_WR_FLUSH_ERR}
        assert statuses <= allowed | {WC.IBV_WC_SUCCESS, WC.IBV_WC_REM_INV_RD_REQ_ERR}
        assert ee.state == S.IBV_QPS_ERR
    else:
        last = {qp: [(99, WC.IBV_WC_REM_INV_RD_REQ_ERR)] if qp == bad else [] for qp in posted}
        for qp, numbers in posted.items():
            expected = [(number, WC.IBV_WC_SUCCESS) for number in numbers] + last[qp]
            assert [(item.wr_id, item.status) for item in done if item.qp_num == qp] == expected
        assert int.from_bytes(wire.b.get(SUM_AT, 8), "little") == sums
    good = {item.wr_id for item in done if item.status == WC.IBV_WC_SUCCESS}
    messages = [item.immediate for item in received if item.status == WC.IBV_WC_SUCCESS]
    assert len(set(messages)) == len(messages)  # once
    for qp, numbers in posted.items():  # in order, for each sender and receiver
        for target in {item.qp_num for item in received}:
            of_both = [item.immediate for item in received if (item.src_qp, item.qp_num) == (qp, target)]
            assert of_both == sorted(of_both)
            assert set(of_both) <= set(numbers)
    for item in received:
        if item.opcode == ibv_wc_opcode.IBV_WC_RECV and item.status == WC.IBV_WC_SUCCESS:
            assert wire.b.get(BUFFERS_AT + item.wr_id * SLOT, item.byte_len) == arrives.pop(item.immediate)
    for number, data in arrives.items():
        if number in good and number not in messages:
            assert wire.b.get(number * SLOT, len(data)) == data
