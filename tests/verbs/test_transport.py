"""Queue pairs over a wire that loses, duplicates and reorders packets."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.verbs.packet_faults import PacketFaults
from tests.verbs.wires import Wire, connected

from weft.verbs.carriers.loopback import Loopback
from weft.verbs.enums import ibv_qp_state, ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca import adapter as adapters
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.segment import Op, Segment, Service, psn_distance

OK = int(ibv_wc_status.IBV_WC_SUCCESS)
WRITE, READ = ibv_wr_opcode.IBV_WR_RDMA_WRITE, ibv_wr_opcode.IBV_WR_RDMA_READ
FETCH_ADD = ibv_wr_opcode.IBV_WR_ATOMIC_FETCH_AND_ADD


def test_a_send_arrives_and_both_ends_are_told():
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 7, 0, 5000)
    wire.a.put(100, bytes(range(250)) * 20)
    wire.a.send(a, 1, 100, 5000)
    wire.run()
    assert wire.a.done() == [(1, OK)]
    assert wire.b.done() == [(7, OK)]
    assert wire.b.get(0, 5000) == wire.a.get(100, 5000)


def test_a_large_message_is_one_segment_where_nothing_is_lost():
    wire = Wire()
    a, _ = connected(wire)
    wire.a.put(0, random.Random(1).randbytes(500_000))
    wire.a.send(a, 1, 0, 500_000, WRITE, va=wire.b.at + 7, rkey=wire.b.region.key)
    wire.run()
    assert wire.b.get(7, 500_000) == wire.a.get(0, 500_000)
    assert [(item.op, item.count) for item in wire.ends["a"].sent] == [(Op.WRITE, 489)]


def test_psns_turn_over():
    wire = Wire()
    a, b = connected(wire, sq_psn=0xFF_FFF0, rq_psn=0xFF_FFF0)
    for number in range(64):
        wire.b.receive(b, number, number * 100, 100)
        wire.a.put(number * 100, bytes([number]) * 100)
        wire.a.send(a, number, number * 100, 100)
    wire.run()
    assert wire.b.get(0, 6400) == wire.a.get(0, 6400)
    assert wire.b.done() == [(number, OK) for number in range(64)]
    assert psn_distance(a.record.next_psn, 0xFF_FFF0) == 64


def test_one_loss_is_asked_for_once():
    lost = []

    def lose_the_third(packet: Segment) -> list[Segment]:
        if packet.op == Op.SEND and not lost and packet.psn == 2:
            lost.append(packet)
            return []
        return [packet]

    wire = Wire(lose_the_third)
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10_240)
    wire.a.put(0, random.Random(2).randbytes(10_240))
    wire.a.send(a, 1, 0, 10_240)
    wire.run()
    naks = [item for item in wire.ends["b"].sent if item.op == Op.ACKNOWLEDGE and item.syndrome >= 0x60]
    assert [(item.psn, item.syndrome) for item in naks] == [(2, 0x60)]
    assert wire.b.get(0, 10_240) == wire.a.get(0, 10_240)
    assert wire.b.done() == [(1, OK)]


def test_a_read_brings_what_is_there():
    wire = Wire()
    a, _ = connected(wire)
    wire.b.put(50, random.Random(3).randbytes(3000))
    wire.a.send(a, 1, 0, 3000, READ, va=wire.b.at + 50, rkey=wire.b.region.key)
    wire.run()
    assert wire.a.get(0, 3000) == wire.b.get(50, 3000)
    assert wire.a.done() == [(1, OK)]


def test_an_atomic_happens_once_whatever_is_repeated():
    wire = Wire(lambda packet: [packet, packet] if packet.op == Op.FETCH_ADD else [packet])
    a, _ = connected(wire)
    wire.b.put(0, (40).to_bytes(8, "little"))
    wire.a.send(a, 1, 8, 8, FETCH_ADD, va=wire.b.at, rkey=wire.b.region.key, swap=2)
    wire.run()
    assert int.from_bytes(wire.b.get(0, 8), "little") == 42
    assert int.from_bytes(wire.a.get(8, 8), "little") == 40


def test_without_a_buffer_the_sender_waits_and_then_goes_on():
    wire = Wire()
    a, b = connected(wire)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    assert wire.a.done() == []
    wire.b.receive(b, 2, 0, 10)
    wire.run(0.1)
    assert wire.a.done() == [(1, OK)]


def test_after_requests_over_shared_memory_no_packet_is_under_way():
    a, _ = connected(Wire())
    a.record.unacked = 1
    a.requester.resume()
    assert (a.record.unacked, a.requester.next_s()) == (0, None)


def test_rnr_retries_end():
    wire = Wire()
    a, _ = connected(wire, rnr_retry=2)
    wire.a.send(a, 1, 0, 10)
    wire.run(1)
    assert wire.a.done() == [(1, int(ibv_wc_status.IBV_WC_RNR_RETRY_EXC_ERR))]
    assert a.state == ibv_qp_state.IBV_QPS_ERR


def test_a_dead_peer_is_given_up_after_the_retries_and_the_rest_is_flushed():
    wire = Wire(lambda packet: [])
    a, _ = connected(wire, retry_cnt=2)
    wire.a.send(a, 1, 0, 10)
    wire.a.send(a, 2, 0, 10)
    wire.run(1)
    assert wire.a.done() == [
        (1, int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)),
        (2, int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)),
    ]
    assert len(wire.ends["a"].sent) >= 3


@pytest.mark.parametrize(("rkey", "va", "opcode"), [(1, 0, WRITE), (0, 1 << 20, WRITE), (0, (1 << 20) - 3, READ)])
def test_a_key_or_range_that_opens_nothing_ends_the_connection(rkey, va, opcode):
    wire = Wire()
    a, b = connected(wire)
    wire.a.send(a, 1, 0, 8, opcode, va=wire.b.at + va, rkey=wire.b.region.key + rkey)
    wire.run()
    assert wire.a.done() == [(1, int(ibv_wc_status.IBV_WC_REM_ACCESS_ERR))]
    assert (a.state, b.state) == (ibv_qp_state.IBV_QPS_ERR, ibv_qp_state.IBV_QPS_ERR)


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 40_000),
    missing=st.integers(1, 40_000),
    before=st.lists(st.sampled_from((WRITE, READ, FETCH_ADD)), max_size=3),
    reads=st.integers(1, 4),
    lost=st.one_of(st.none(), st.integers(0, 40)),
)
def test_a_read_in_parts_that_ends_past_the_region_is_an_access_error(size, missing, before, reads, lost):
    """Carriers with a window split long READs: the parts before the invalid one are answered and kept."""
    count = [-1]

    def lose_one(packet: Segment) -> list[Segment]:
        count[0] += packet.op == Op.READ_RESPONSE
        return [] if packet.op == Op.READ_RESPONSE and count[0] == lost else [packet]

    wire = Wire(lose_one)
    for end in wire.ends.values():
        end.window_bytes = 8 * 1024  # parts of two packets
    a, _ = connected(wire, max_rd_atomic=reads, max_dest_rd_atomic=reads)
    for number, opcode in enumerate(before):
        wire.a.send(a, number, 0, 8, opcode, va=wire.b.at, rkey=wire.b.region.key)
    va = wire.b.at + (1 << 20) - size + min(missing, size)
    wire.a.send(a, 9, 0, size, READ, va=va, rkey=wire.b.region.key)
    wire.run(1)
    done, wrong = wire.a.done(), int(ibv_wc_status.IBV_WC_REM_ACCESS_ERR)
    if lost is None or count[0] < lost:
        assert done == [*((number, OK) for number in range(len(before))), (9, wrong)]
    else:  # after an error the responder answers no more
        assert next(status for _, status in done if status != OK) in (wrong, int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR))


def test_uc_loses_whole_messages_and_goes_on():
    count = [0]

    def lose_the_fourth(packet: Segment) -> list[Segment]:
        count[0] += 1
        return [] if count[0] == 4 else [packet]

    wire = Wire(lose_the_fourth)
    a, b = connected(wire, Service.UC)
    for number in range(3):
        wire.b.receive(b, number, number * 2048, 2048)
        wire.a.put(number * 2048, bytes([number + 1]) * 2048)
        wire.a.send(a, number, number * 2048, 2048)
    wire.run()
    assert wire.b.done() == [(0, OK), (1, OK)]
    assert wire.b.get(2048, 2048) == bytes([3]) * 2048


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.2))
def test_everything_arrives_once_and_in_order_under_any_fault(seed, loss, double, delay):
    wire = Wire(PacketFaults(seed, loss, double, delay))
    a, b = connected(wire, retry_cnt=7, timeout=8)
    chance, sums, expected_b = random.Random(seed), 0, {}
    for number in range(12):
        kind, size = chance.choice(["send", "write", "read", "add"]), chance.randrange(0, 5000)
        offset = number * 8192
        wire.a.put(offset, chance.randbytes(size))
        if kind == "send":
            wire.b.receive(b, number, offset, 8192)
            wire.a.send(a, number, offset, size)
            expected_b[offset] = wire.a.get(offset, size)
        elif kind == "write":
            wire.a.send(a, number, offset, size, WRITE, va=wire.b.at + offset, rkey=wire.b.region.key)
            expected_b[offset] = wire.a.get(offset, size)
        elif kind == "read":
            wire.b.put(500_000 + offset, chance.randbytes(size))
            wire.a.send(a, number, offset, size, READ, va=wire.b.at + 500_000 + offset, rkey=wire.b.region.key)
        else:
            sums += number
            wire.a.send(a, number, offset, 8, FETCH_ADD, va=wire.b.at + 900_000, rkey=wire.b.region.key, swap=number)
    wire.run(3)
    done = wire.a.done()
    if done != [(number, OK) for number in range(12)]:  # else retries were exhausted and later requests flushed
        statuses = [status for _, status in done]
        assert int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR) in statuses
        assert set(statuses) <= {OK, int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR), int(ibv_wc_status.IBV_WC_WR_FLUSH_ERR)}
        return
    for offset, data in expected_b.items():
        assert wire.b.get(offset, len(data)) == data
    assert int.from_bytes(wire.b.get(900_000, 8), "little") == sums
    received = [wr_id for wr_id, _ in wire.b.done()]
    assert received == sorted(received)
    assert len(set(received)) == len(received)


def test_a_poll_while_kernels_are_loaded_waits_and_is_to_be_repeated(monkeypatch):
    monkeypatch.setattr(adapters, "_LOADING_S", 0.001)
    adapter = Adapter(Loopback(()))
    with adapter.loading():
        assert adapter.progress()
    assert not adapter.progress()
