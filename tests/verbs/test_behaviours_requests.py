"""What a transport of InfiniBand must do, as in test_behaviours.py: errors, protection, operations."""

from __future__ import annotations

import pytest
from tests.verbs.segments import answers, arrive, completions, events, naks, request
from tests.verbs.wires import ALL, Wire, connected

from weft.verbs.enums import (
    IBV_ACCESS_FLUSH_GLOBAL,
    IBV_ACCESS_FLUSH_PERSISTENT,
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_READ,
    IBV_SEND_FENCE,
    IBV_SEND_SIGNALED,
    IBV_SEND_SOLICITED,
    IBV_WC_WITH_IMM,
    IBV_WC_WITH_INV,
    ibv_event_type,
    ibv_qp_state,
    ibv_wc_opcode,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.transport.memory import Place
from weft.verbs.transport.receiving import ReceiveQueue
from weft.verbs.transport.segment import Op, Segment, Service
from weft.verbs.transport.work import ReceiveWork, SendWork

S = ibv_qp_state
W = ibv_wr_opcode
E = ibv_event_type
OK = int(ibv_wc_status.IBV_WC_SUCCESS)
FLUSHED = int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)
INVALID_REQUEST = int(ibv_wc_status.IBV_WC_REM_INV_REQ_ERR)
ACCESS_ERROR = int(ibv_wc_status.IBV_WC_REM_ACCESS_ERR)
WRITE = W.IBV_WR_RDMA_WRITE
READ = W.IBV_WR_RDMA_READ
ADD = W.IBV_WR_ATOMIC_FETCH_AND_ADD


# -- errors and protection --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", [WRITE, READ, ADD])
def test_19_a_queue_pair_that_does_not_allow_it_refuses(opcode):
    wire = Wire()
    a, _ = connected(wire, access=IBV_ACCESS_LOCAL_WRITE)
    wire.a.send(a, 1, 0, 8, opcode, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert wire.a.done() == [(1, INVALID_REQUEST)]
    assert naks(wire) == [(0, 0x61)]


@pytest.mark.parametrize("why", ["key", "domain", "range", "access", "closed"])
def test_20_a_key_that_does_not_open_it_is_an_access_error(why):
    wire = Wire()
    a, b = connected(wire)
    seen, key, va = events(b), wire.b.region.key, wire.b.at
    if why == "key":
        key += 1
    elif why == "domain":
        key = wire.b.adapter.regions.register(object(), va, 100, ALL).key
    elif why == "range":
        va += (1 << 20) - 4
    elif why == "access":
        key = wire.b.adapter.regions.register(wire.b.pd, va, 100, IBV_ACCESS_REMOTE_READ).key
    else:
        wire.b.adapter.regions.drop(wire.b.region)
    wire.a.send(a, 1, 0, 8, WRITE, va=va, rkey=key)
    wire.run()
    assert wire.a.done() == [(1, ACCESS_ERROR)]
    assert naks(wire) == [(0, 0x62)]
    assert (b.state, seen) == (S.IBV_QPS_ERR, [E.IBV_EVENT_QP_ACCESS_ERR])


@pytest.mark.parametrize("opcode", [W.IBV_WR_SEND, WRITE, READ, ADD])
def test_21_memory_that_is_not_ours_is_not_sent(opcode):
    wire = Wire()
    a, _ = connected(wire)
    places = (Place(wire.a.at, 8, wire.a.region.key + 1),)
    a.post_send(SendWork(wr_id=1, opcode=opcode, places=places, va=wire.b.at, rkey=wire.b.region.key))
    wire.a.adapter.wake(a)
    wire.run()
    assert wire.a.done() == [(1, int(ibv_wc_status.IBV_WC_LOC_PROT_ERR))]
    assert wire.ends["a"].sent == []


def test_21_it_comes_after_what_was_sent_before():
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 10)
    a.post_send(SendWork(wr_id=2, opcode=W.IBV_WR_SEND, places=(Place(0, 8, 0),)))
    wire.run()
    assert wire.a.done() == [(1, OK), (2, int(ibv_wc_status.IBV_WC_LOC_PROT_ERR))]


def test_22_a_receive_buffer_that_is_not_ours_is_an_error_at_both_ends():
    wire = Wire()
    a, b = connected(wire)
    b.post_receive(ReceiveWork(wr_id=3, places=(Place(wire.b.at, 100, wire.b.region.key + 1),)))
    wire.a.send(a, 1, 0, 10)
    wire.run()
    assert wire.a.done() == [(1, int(ibv_wc_status.IBV_WC_REM_OP_ERR))]
    assert wire.b.done() == [(3, int(ibv_wc_status.IBV_WC_LOC_PROT_ERR))]
    assert naks(wire) == [(0, 0x63)]


def test_23_an_atomic_is_of_eight_bytes_at_a_multiple_of_eight():
    wire = Wire()
    a, _ = connected(wire)
    wire.a.send(a, 1, 0, 8, ADD, va=wire.b.at + 4, rkey=wire.b.region.key, swap=1)
    wire.run()
    assert wire.a.done() == [(1, INVALID_REQUEST)]
    wire = Wire()
    a, _ = connected(wire)
    wire.a.send(a, 1, 0, 4, ADD, va=wire.b.at, rkey=wire.b.region.key, swap=1)
    wire.run()
    assert wire.a.done() == [(1, int(ibv_wc_status.IBV_WC_LOC_LEN_ERR))]


def test_23_compare_and_swap_swaps_only_what_it_expects():
    wire = Wire()
    a, _ = connected(wire)
    wire.b.put(0, (5).to_bytes(8, "little"))
    for number, expected in enumerate((4, 5)):
        wire.a.send(
            a, number, 8 * number, 8, W.IBV_WR_ATOMIC_CMP_AND_SWP,
            va=wire.b.at, rkey=wire.b.region.key, compare=expected, swap=90 + number,
        )  # fmt: skip
    wire.run()
    assert wire.b.get(0, 8) == (91).to_bytes(8, "little")
    assert wire.a.get(0, 16) == (5).to_bytes(8, "little") * 2


def test_25_errors_are_told_even_of_unsignaled_requests_and_the_rest_is_flushed_in_order():
    wire = Wire()
    a, _ = connected(wire)
    wire.a.receive(a, 50, 0, 10)
    for number in range(3):
        rkey = 1 if number == 1 else wire.b.region.key
        a.post_send(SendWork(wr_id=number, opcode=WRITE, places=(wire.a.place(0, 8),), va=wire.b.at, rkey=rkey))
    wire.a.adapter.wake(a)
    wire.run()
    assert wire.a.done() == [(1, ACCESS_ERROR), (2, FLUSHED), (50, FLUSHED)]


def test_27_a_full_completion_queue_ends_the_queue_pair():
    wire = Wire()
    a, b = connected(wire)
    overflows = []
    wire.b.cq.capacity, wire.b.cq.on_overflow = 1, lambda: overflows.append(1)
    for number in range(2):
        wire.b.receive(b, number, 0, 10)
        wire.a.send(a, number, 0, 10)
    wire.run()
    assert (overflows, b.state) == ([1], S.IBV_QPS_ERR)


# -- operations -------------------------------------------------------------------------------------------------------


def test_29_immediate_data_comes_with_the_last_packet_as_it_was_given():
    wire = Wire(lambda packet: [packet])
    a, b = connected(wire)
    for number in range(2):
        wire.b.receive(b, number, 0, 3000)
    wire.a.send(a, 1, 0, 3000, W.IBV_WR_SEND_WITH_IMM, immediate=0x01020304)
    wire.a.send(a, 2, 0, 3000, W.IBV_WR_RDMA_WRITE_WITH_IMM, va=wire.b.at, rkey=wire.b.region.key, immediate=0xFF)
    wire.run()
    sent, written = completions(wire)
    assert [sent.immediate, sent.wc_flags, sent.opcode] == [0x01020304, IBV_WC_WITH_IMM, ibv_wc_opcode.IBV_WC_RECV]
    with_immediate = ibv_wc_opcode.IBV_WC_RECV_RDMA_WITH_IMM
    assert [written.immediate, written.opcode, written.byte_len] == [0xFF, with_immediate, 3000]


def test_30_send_with_invalidate_closes_a_key_of_the_other():
    wire = Wire()
    a, b = connected(wire)
    key = wire.b.adapter.regions.register(wire.b.pd, wire.b.at, 100, ALL).key
    wire.b.receive(b, 1, 0, 100)
    wire.a.send(a, 1, 0, 10, W.IBV_WR_SEND_WITH_INV, invalidate=key)
    wire.run()
    (done,) = completions(wire)
    assert (done.immediate, done.wc_flags) == (key, IBV_WC_WITH_INV)
    wire.a.send(a, 2, 0, 10, WRITE, va=wire.b.at, rkey=key)
    wire.run()
    assert wire.a.done() == [(1, OK), (2, ACCESS_ERROR)]


def test_30_a_key_that_cannot_be_closed_is_an_error_at_both_ends():
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 100)
    wire.a.send(a, 1, 0, 10, W.IBV_WR_SEND_WITH_INV, invalidate=wire.b.region.key + 1)
    wire.run()
    assert wire.a.done() == [(1, ACCESS_ERROR)]
    assert wire.b.done() == [(1, int(ibv_wc_status.IBV_WC_REM_INV_REQ_ERR))]


def test_30_a_local_invalidate_waits_for_all_before_it():
    held: list[Segment] = []
    wire = Wire(lambda packet: held.append(packet) or [])
    a, b = connected(wire, timeout=0)
    wire.b.receive(b, 1, 0, 100)
    wire.a.send(a, 1, 0, 10)
    key = wire.a.adapter.regions.register(wire.a.pd, wire.a.at, 100, ALL).key
    a.post_send(SendWork(wr_id=2, opcode=W.IBV_WR_LOCAL_INV, flags=IBV_SEND_SIGNALED, invalidate=key))
    wire.run()
    region = wire.a.adapter.regions.find(key)
    assert region.is_open
    wire.fate = None
    arrive(wire, held[0])
    assert not region.is_open
    assert wire.a.done() == [(1, OK), (2, OK)]


def test_31_answers_of_reads_have_consecutive_psns_in_the_order_of_the_reads():
    wire = Wire()
    a, _ = connected(wire)
    for number, size in enumerate((3000, 8, 1025)):
        wire.a.send(a, number, 0, size, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert [(one.psn, one.count) for one in wire.ends["b"].sent] == [(0, 3), (3, 1), (4, 2)]


def test_33_a_fence_waits_for_reads_and_atomics():
    wire = Wire(lambda packet: [] if packet.op == Op.READ_RESPONSE else [packet])
    a, _ = connected(wire, timeout=12)
    wire.a.send(a, 1, 0, 8, READ, va=wire.b.at, rkey=wire.b.region.key)
    target = {"va": wire.b.at, "rkey": wire.b.region.key}
    a.post_send(SendWork(wr_id=2, opcode=WRITE, places=(wire.a.place(0, 8),), flags=IBV_SEND_FENCE, **target))
    wire.run()
    assert [one.op for one in wire.ends["a"].sent] == [Op.READ]
    wire.fate = None
    wire.run(0.1)
    assert [one.op for one in wire.ends["a"].sent] == [Op.READ, Op.READ, Op.WRITE]


def test_35_solicited_sends_wake_who_waits_for_them_and_so_do_errors():
    for flags, capacity, expected in ((0, 100, 0), (IBV_SEND_SOLICITED, 100, 1), (0, 5, 1)):
        wire = Wire()
        a, b = connected(wire)
        told = []
        wire.b.cq.on_event = lambda told=told: told.append(1)
        wire.b.cq.arm(solicited_only=True)
        wire.b.receive(b, 1, 0, capacity)
        a.post_send(SendWork(wr_id=1, opcode=W.IBV_WR_SEND, places=(wire.a.place(0, 10),), flags=flags))
        wire.a.adapter.wake(a)
        wire.run()
        assert len(told) == expected


def test_37_a_shared_receive_queue_serves_all_and_tells_once_when_it_runs_low():
    wire = Wire()
    shared, told = ReceiveQueue(10, 1, shared=True), []
    shared.pd, shared.limit, shared.on_limit = wire.b.pd, 3, lambda: told.append(1)
    pairs = [connected(wire) for _ in range(2)]
    for _, b in pairs:
        b.receives = shared
    for number in range(4):
        shared.post(ReceiveWork(wr_id=number, places=(wire.b.place(0, 10),)))
    for number in range(5):
        wire.a.send(pairs[number % 2][0], number, 0, 10)
    wire.run()
    assert [wr_id for wr_id, _ in wire.b.done()] == [0, 1, 2, 3]
    assert answers(wire)[-1][2] == 0x21  # the fifth waits
    assert (told, shared.limit) == ([1], 0)
    seen = events(pairs[0][1])
    pairs[0][1].enter(S.IBV_QPS_ERR)
    assert seen == [E.IBV_EVENT_QP_LAST_WQE_REACHED]


def test_39_flush_needs_a_region_that_allows_its_kind():
    both = IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT
    for kind, status in ((1, OK), (2, ACCESS_ERROR)):
        wire = Wire()
        a, _ = connected(wire, access=ALL | both)
        region = wire.b.adapter.regions.register(wire.b.pd, wire.b.at, 100, IBV_ACCESS_FLUSH_GLOBAL)
        target = {"va": wire.b.at, "rkey": region.key, "length": 100, "flush": kind}
        a.post_send(SendWork(wr_id=1, opcode=W.IBV_WR_FLUSH, flags=IBV_SEND_SIGNALED, **target))
        wire.a.adapter.wake(a)
        wire.run()
        assert wire.a.done() == [(1, status)]


def test_39_a_whole_region_is_flushed_whatever_the_range():
    wire = Wire()
    a, _ = connected(wire, access=ALL | IBV_ACCESS_FLUSH_GLOBAL)
    region = wire.b.adapter.regions.register(wire.b.pd, wire.b.at, 100, IBV_ACCESS_FLUSH_GLOBAL)
    target = {"rkey": region.key, "flush": 1, "selectivity": 1}
    a.post_send(SendWork(wr_id=1, opcode=W.IBV_WR_FLUSH, flags=IBV_SEND_SIGNALED, **target))
    wire.a.adapter.wake(a)
    wire.run()
    assert wire.a.done() == [(1, OK)]


def test_39_an_atomic_write_is_eight_bytes_at_once_and_repeated_writes_nothing():
    wire = Wire()
    a, b = connected(wire)
    target = {"va": wire.b.at + 8, "rkey": wire.b.region.key}
    a.post_send(SendWork(wr_id=1, opcode=W.IBV_WR_ATOMIC_WRITE, inline=b"together", flags=IBV_SEND_SIGNALED, **target))
    wire.a.adapter.wake(a)
    wire.run()
    assert (wire.a.done(), wire.b.get(8, 8)) == ([(1, OK)], b"together")
    arrive(wire, request(b, Op.ATOMIC_WRITE, 0, b"overlate", **target))
    assert wire.b.get(8, 8) == b"together"


def test_40_xrc_finds_the_shared_queue_that_the_sender_names_in_its_own_domain_only():
    for domain, status in (("file", OK), ("other", INVALID_REQUEST)):
        wire = Wire()
        a, b = connected(wire, Service.XRC)
        shared = ReceiveQueue(10, 1, shared=True)
        shared.pd, shared.cq, shared.domain, b.domain = wire.b.pd, wire.b.cq, domain, "file"
        wire.b.adapter.add_shared(shared)
        shared.post(ReceiveWork(wr_id=5, places=(wire.b.place(0, 10),)))
        wire.a.send(a, 1, 0, 10, srq=shared.number)
        wire.run()
        assert wire.a.done() == [(1, status)]
        assert wire.b.done() == ([(5, OK)] if status == OK else [])
