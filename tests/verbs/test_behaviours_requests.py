"""Required behaviour of an InfiniBand transport, as in test_behaviours.py: errors and protection."""

from __future__ import annotations

import sys

import pytest
from tests.verbs.segments import events, naks
from tests.verbs.wires import ALL, Wire, connected

from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    ibv_event_type,
    ibv_qp_state,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.hca.work import ReceiveWork, SendWork
from weft.verbs.shm.memory import Place

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


@pytest.mark.parametrize("opcode", [WRITE, READ, ADD])
def test_19_a_queue_pair_that_does_not_allow_it_refuses(opcode):
    wire = Wire()
    a, b = connected(wire, access=IBV_ACCESS_LOCAL_WRITE)
    wire.a.put(0, b"contents")
    wire.a.send(a, 1, 0, 8, opcode, va=wire.b.at, rkey=wire.b.region.key, swap=1)
    wire.run()
    assert wire.a.done() == [(1, INVALID_REQUEST)]
    assert naks(wire) == [(0, 0x61)]
    assert (a.state, b.state) == (S.IBV_QPS_ERR, S.IBV_QPS_ERR)
    assert wire.b.get(0, 8) == bytes(8)


@pytest.mark.parametrize("opcode", [WRITE, READ, ADD])
@pytest.mark.parametrize("why", ["key", "domain", "range", "access", "closed"])
def test_20_a_key_that_does_not_open_it_is_an_access_error(why, opcode):
    wire = Wire()
    a, b = connected(wire)
    observed, key, va = events(b), wire.b.region.key, wire.b.at
    if why == "key":
        key += 1
    elif why == "domain":
        key = wire.b.adapter.regions.register(object(), va, 100, ALL).key
    elif why == "range":
        key = wire.b.adapter.regions.register(wire.b.pd, va, 7, ALL).key
    elif why == "access":
        needs = {WRITE: IBV_ACCESS_REMOTE_WRITE, READ: IBV_ACCESS_REMOTE_READ, ADD: IBV_ACCESS_REMOTE_ATOMIC}
        key = wire.b.adapter.regions.register(wire.b.pd, va, 100, ALL & ~needs[opcode]).key
    else:
        wire.b.adapter.regions.drop(wire.b.region)
    wire.a.put(0, b"contents")
    wire.a.send(a, 1, 0, 8, opcode, va=va, rkey=key, swap=1)
    wire.run()
    assert (wire.a.get(0, 8), wire.b.get(0, 8)) == (b"contents", bytes(8))
    assert wire.a.done() == [(1, ACCESS_ERROR)]
    assert naks(wire) == [(0, 0x62)]
    assert (b.state, observed) == (S.IBV_QPS_ERR, [E.IBV_EVENT_QP_ACCESS_ERR])


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
    assert a.state == S.IBV_QPS_ERR


def test_21_it_comes_after_what_was_sent_before():
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 10)
    a.post_send(SendWork(wr_id=2, opcode=W.IBV_WR_SEND, places=(Place(0, 8, 0),)))
    wire.run()
    assert wire.a.done() == [(1, OK), (2, int(ibv_wc_status.IBV_WC_LOC_PROT_ERR))]


@pytest.mark.parametrize("why", ["key", "domain", "range", "access", "moved"])
def test_22_a_receive_buffer_that_is_not_ours_is_an_error_at_both_ends(why):
    wire = Wire()
    a, b = connected(wire)
    pd = object() if why == "domain" else wire.b.pd
    access = IBV_ACCESS_REMOTE_READ if why == "access" else ALL
    region = wire.b.adapter.regions.register(pd, wire.b.at, 50 if why == "range" else 100, access)
    b.post_receive(ReceiveWork(wr_id=3, places=(Place(wire.b.at, 100, region.key + (why == "key")),)))
    if why == "moved":  # registered again since the request was posted
        region.address = region.base = wire.b.at + 200
    wire.a.send(a, 1, 0, 10)
    wire.run()
    assert wire.a.done() == [(1, int(ibv_wc_status.IBV_WC_REM_OP_ERR))]
    assert wire.b.done() == [(3, int(ibv_wc_status.IBV_WC_LOC_PROT_ERR))]
    assert naks(wire) == [(0, 0x63)]
    assert b.state == S.IBV_QPS_ERR


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


def test_23_atomics_of_many_queue_pairs_do_not_lose_each_other():
    """And a sum wraps around at 64 bits."""
    wire, begin, turn = Wire(), (1 << 64) - 3, 1 << 64
    pairs = [connected(wire) for _ in range(3)]
    wire.b.put(0, begin.to_bytes(8, sys.byteorder))
    for number in range(12):
        target = {"va": wire.b.at, "rkey": wire.b.region.key, "swap": 1}
        wire.a.send(pairs[number % 3][0], number, 8 * number, 8, ADD, **target)
    wire.run()
    assert wire.b.get(0, 8) == (begin + 12 - turn).to_bytes(8, sys.byteorder)
    result = {int.from_bytes(wire.a.get(8 * number, 8), sys.byteorder) for number in range(12)}
    assert result == {(begin + number) % turn for number in range(12)}


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
    for number in range(5):
        rkey = 1 if number == 1 else wire.b.region.key
        a.post_send(SendWork(wr_id=number, opcode=WRITE, places=(wire.a.place(0, 8),), va=wire.b.at, rkey=rkey))
    wire.a.adapter.wake(a)
    wire.run()
    assert wire.a.done() == [(1, ACCESS_ERROR), (2, FLUSHED), (3, FLUSHED), (4, FLUSHED), (50, FLUSHED)]


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
