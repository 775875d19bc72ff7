"""Required behaviour of an InfiniBand transport, as in test_behaviours.py: operations."""

from __future__ import annotations

import pytest
from tests.verbs.segments import answers, arrive, completions, events, request
from tests.verbs.wires import ALL, Host, Wire, connected

from weft.verbs.enums import (
    IBV_ACCESS_FLUSH_GLOBAL,
    IBV_ACCESS_FLUSH_PERSISTENT,
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
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.regions import Region
from weft.verbs.hca.segment import Nak, Op, Segment, Service
from weft.verbs.hca.work import ReceiveWork, SendWork

S = ibv_qp_state
W = ibv_wr_opcode
E = ibv_event_type
OK = int(ibv_wc_status.IBV_WC_SUCCESS)
INVALID_REQUEST = int(ibv_wc_status.IBV_WC_REM_INV_REQ_ERR)
ACCESS_ERROR = int(ibv_wc_status.IBV_WC_REM_ACCESS_ERR)
WRITE = W.IBV_WR_RDMA_WRITE
READ = W.IBV_WR_RDMA_READ
ADD = W.IBV_WR_ATOMIC_FETCH_AND_ADD


def test_29_immediate_data_comes_with_the_last_packet_as_it_was_given():
    passed: list[Segment] = []
    wire = Wire(lambda packet: passed.append(packet) or [packet])
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
    assert (written.wr_id, written.wc_flags, b.receives.take()) == (1, IBV_WC_WITH_IMM, None)
    assert [item.immediate for item in passed if item.op != Op.ACKNOWLEDGE] == [
        None,
        None,
        0x01020304,
        None,
        None,
        0xFF,
    ]


def window(host: Host, qp: QueuePair) -> Region:
    """Return a memory window of type 2 and 100 bytes."""
    regions, whole = host.adapter.regions, host.region
    whole.windows += 1
    return regions.add(
        Region(
            key=regions.new_key(),
            pd=host.pd,
            address=host.at,
            length=100,
            access=ALL,
            base=host.at,
            qp_num=qp.number,
            parent=whole,
        )
    )


def test_30_send_with_invalidate_closes_a_window_of_the_other():
    wire = Wire()
    a, b = connected(wire)
    key = window(wire.b, b).key
    wire.b.receive(b, 1, 0, 100)
    wire.a.send(a, 1, 0, 10, WRITE, va=wire.b.at, rkey=key)
    wire.a.send(a, 2, 0, 10, W.IBV_WR_SEND_WITH_INV, invalidate=key)
    wire.run()
    (done,) = completions(wire)
    assert (done.immediate, done.wc_flags) == (key, IBV_WC_WITH_INV)
    assert wire.b.region.windows == 0
    wire.a.send(a, 3, 0, 10, WRITE, va=wire.b.at, rkey=key)
    wire.run()
    assert wire.a.done() == [(1, OK), (2, OK), (3, ACCESS_ERROR)]


@pytest.mark.parametrize("what", ["nothing", "region", "other queue pair's", "closed"])
def test_30_a_key_that_cannot_be_closed_is_an_error_at_both_ends(what):
    """Only a window of type 2 can be invalidated, and only through the queue pair that it is bound to."""
    wire = Wire()
    a, b = connected(wire)
    stranger = window(wire.b, connected(wire)[1])
    keys = {"nothing": stranger.key + 1, "region": wire.b.region.key, "other queue pair's": stranger.key}
    if what == "closed":
        keys[what] = (own := window(wire.b, b)).key
        assert wire.b.adapter.regions.invalidate(wire.b.pd, b.number, own.key)
    wire.b.receive(b, 1, 0, 100)
    wire.a.send(a, 1, 0, 10, W.IBV_WR_SEND_WITH_INV, invalidate=keys[what])
    wire.run()
    assert wire.a.done() == [(1, ACCESS_ERROR)]
    assert wire.b.done() == [(1, int(ibv_wc_status.IBV_WC_REM_INV_REQ_ERR))]
    assert b.state == S.IBV_QPS_ERR
    assert wire.b.region.is_open
    assert stranger.is_open


def test_30_a_local_invalidate_waits_for_all_before_it():
    held: list[Segment] = []
    wire = Wire(lambda packet: held.append(packet) or [])
    a, b = connected(wire, timeout=0)
    wire.b.receive(b, 1, 0, 100)
    wire.a.send(a, 1, 0, 10)
    opened = window(wire.a, a)
    a.post_send(SendWork(wr_id=2, opcode=W.IBV_WR_LOCAL_INV, flags=IBV_SEND_SIGNALED, invalidate=opened.key))
    wire.run()
    assert opened.is_open
    wire.fate = None
    arrive(wire, held[0])
    assert not opened.is_open
    assert wire.a.done() == [(1, OK), (2, OK)]


def test_30_a_region_is_not_closed_by_a_request():
    wire = Wire()
    a, _ = connected(wire)
    a.post_send(SendWork(wr_id=1, opcode=W.IBV_WR_LOCAL_INV, invalidate=wire.a.region.key))
    wire.a.adapter.wake(a)
    wire.run()
    assert wire.a.done() == [(1, int(ibv_wc_status.IBV_WC_MW_BIND_ERR))]  # "memory management operation error"
    assert (wire.a.region.is_open, a.state) == (True, S.IBV_QPS_ERR)


def test_30_a_write_ends_with_an_access_error_when_its_region_is_closed_between_two_packets():
    wire = Wire()
    _, b = connected(wire)
    region = wire.b.adapter.regions.register(wire.b.pd, wire.b.at, 2048, ALL)
    target = {"va": wire.b.at, "rkey": region.key, "length": 2048}
    arrive(wire, request(b, Op.WRITE, 0, b"x" * 1024, **target, first=True, last=False))
    wire.b.adapter.regions.drop(region)
    arrive(wire, request(b, Op.WRITE, 1, b"y" * 1024, **target, first=False, last=True))
    assert answers(wire)[-1] == (Op.ACKNOWLEDGE, 1, 0x60 | Nak.REMOTE_ACCESS_ERROR)
    assert wire.b.get(1023, 2) == b"x\0"


def test_31_answers_of_reads_have_consecutive_psns_in_the_order_of_the_reads():
    wire = Wire()
    a, _ = connected(wire)
    for number, size in enumerate((3000, 8, 1025)):
        wire.a.send(a, number, 0, size, READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert [(item.psn, item.count) for item in wire.ends["b"].sent] == [(0, 3), (3, 1), (4, 2)]
    assert wire.a.done() == [(number, OK) for number in range(3)]


def test_32_reads_and_atomics_together_are_no_more_than_was_agreed():
    wire = Wire(lambda packet: [] if packet.op in (Op.READ_RESPONSE, Op.ATOMIC_RESPONSE) else [packet])
    a, _ = connected(wire, max_rd_atomic=2, timeout=12)
    for number, opcode in enumerate((READ, ADD, READ, WRITE)):
        wire.a.send(a, number, 0, 8, opcode, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    assert [item.op for item in wire.ends["a"].sent] == [Op.READ, Op.FETCH_ADD]
    wire.fate = None
    wire.run(0.1)
    assert wire.a.done() == [(number, OK) for number in range(4)]


@pytest.mark.parametrize(("opcode", "op"), [(READ, Op.READ), (ADD, Op.FETCH_ADD)])
def test_33_a_fence_waits_for_reads_and_atomics(opcode, op):
    wire = Wire(lambda packet: [] if packet.op in (Op.READ_RESPONSE, Op.ATOMIC_RESPONSE) else [packet])
    a, _ = connected(wire, timeout=12)
    wire.a.send(a, 1, 0, 8, opcode, va=wire.b.at, rkey=wire.b.region.key)
    target = {"va": wire.b.at, "rkey": wire.b.region.key}
    a.post_send(SendWork(wr_id=2, opcode=WRITE, places=(wire.a.place(0, 8),), flags=IBV_SEND_FENCE, **target))
    wire.run()
    assert [item.op for item in wire.ends["a"].sent] == [op]
    wire.fate = None
    wire.run(0.1)
    assert [item.op for item in wire.ends["a"].sent] == [op, op, Op.WRITE]


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
    shared, messages = ReceiveQueue(10, 1, shared=True), []
    shared.pd, shared.record.limit, shared.on_limit = wire.b.pd, 3, lambda: messages.append(1)
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
    assert (messages, shared.record.limit) == ([1], 0)
    observed = events(pairs[0][1])
    pairs[0][1].enter(S.IBV_QPS_ERR)
    assert observed == [E.IBV_EVENT_QP_LAST_WQE_REACHED]


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


@pytest.mark.parametrize(("offset", "data"), [(4, b"together"), (8, b"toget")])
def test_39_an_atomic_write_is_of_eight_bytes_at_a_multiple_of_eight(offset, data):
    wire = Wire()
    a, _ = connected(wire)
    target = {"va": wire.b.at + offset, "rkey": wire.b.region.key}
    a.post_send(SendWork(wr_id=1, opcode=W.IBV_WR_ATOMIC_WRITE, inline=data, **target))
    wire.a.adapter.wake(a)
    wire.run()
    assert wire.a.done() == [(1, INVALID_REQUEST)]
    assert wire.b.get(0, 16) == bytes(16)


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
