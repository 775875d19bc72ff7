"""Delays of adapters and memory: gaps, turns, reads, copies."""

from __future__ import annotations

import pytest

from weft.fabric.timing import timings
from weft.sim.traffic import Operation, Transport

SEND = {"operation": Operation.SEND}
UC_SEND = SEND | {"transport": Transport.UC}


def test_small_messages_of_a_queue_pair_leave_one_gap_apart(chain, arithmetic, run):
    fabric = chain(1)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 8)] * 50, columns=UC_SEND)
    one_ps = (
        physics.lead_ps("h1", 8)
        + physics.data_ps("h1/1", 8)
        + physics.path_ps("h1/1", "s1/4")
        + physics.adapter_ps("h2", "receive")
    )
    assert result.finish_ps.tolist() == [one_ps + i * physics.adapter_ps("h1", "gap") for i in range(50)]


def test_queue_pairs_take_turns_packet_by_packet(chain, arithmetic, run):
    """A message of 3 packets beside one of 30 of the same host is through after 7 packets, not after 33.

    The long one has had its first turn, and stands in line again, when the short one comes.
    """
    fabric = chain(1, hosts=4)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 30 * 4096), ("h1", "h4", 3 * 4096)], columns=UC_SEND)
    rest_ps = physics.lead_ps("h1", 4096) + physics.path_ps("h1/1", "s1/4") + physics.adapter_ps("h2", "receive")
    assert result.finish_ps[0] == rest_ps + 33 * physics.data_ps("h1/1")
    assert result.finish_ps[1] == rest_ps + 7 * physics.data_ps("h1/1")


def test_messages_of_one_queue_pair_go_one_after_the_other(chain, arithmetic, run):
    fabric = chain(1, hosts=4)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 30 * 4096), ("h1", "h2", 3 * 4096)], columns=UC_SEND)
    assert result.finish_ps[1] - result.finish_ps[0] == 3 * physics.data_ps("h1/1")


@pytest.mark.parametrize("outstanding", [1, 2, 5])
def test_a_window_of_messages_goes_out_each_round_trip(outstanding, chain, arithmetic, run):
    """The next message may leave with the acknowledgement: n messages, a window of w, (n - 1) // w round trips."""
    fabric = chain(1, length_m=100)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", 8)] * 20, columns=SEND | {"outstanding": outstanding})
    forth_ps = physics.data_ps("h1/1", 8) + physics.path_ps("h1/1", "s1/4")
    back_ps = physics.serial_ps("h2/1", physics.ack_bytes) + physics.path_ps("h2/1", "s1/3")
    trip_ps = forth_ps + physics.adapter_ps("h2", "ack") + back_ps
    gap_ps = physics.adapter_ps("h1", "gap")
    assert outstanding * gap_ps < trip_ps
    trips, place = divmod(19, outstanding)
    assert result.finish_ps[19] == (
        physics.lead_ps("h1", 8) + trips * trip_ps + place * gap_ps + forth_ps + physics.adapter_ps("h2", "receive")
    )


@pytest.mark.parametrize("size_bytes", [8, 4096, 10 * 4096])
def test_a_read_is_a_request_and_the_data_that_comes_back(size_bytes, chain, arithmetic, run):
    """No program takes part at the far end, but its adapter reads memory."""
    fabric = chain(3)
    physics = arithmetic(fabric)
    result = run(fabric, [("h1", "h2", size_bytes)], columns={"operation": Operation.READ})
    request_ps = physics.lead_ps("h1", 0) + physics.serial_ps("h1/1", physics.headers + physics.reth)
    full, last = divmod(size_bytes - 1, 4096)
    data_ps = full * physics.data_ps("h2/1") + physics.data_ps("h2/1", last + 1)
    ways_ps = physics.path_ps("h1/1", "s1/2", "s2/2", "s3/4") + physics.path_ps("h2/1", "s3/1", "s2/1", "s1/3")
    expected_ps = (
        request_ps + physics.adapter_ps("h2", "read") + data_ps + ways_ps + physics.adapter_ps("h1", "receive")
    )
    aeth_ps = 2 * physics.serial_ps("h2/1", 4)  # the first and the last answer carry an AETH
    assert expected_ps <= result.finish_ps[0] <= expected_ps + aeth_ps
    assert result.acked_ps[0] == result.finish_ps[0], "the data is the acknowledgement"


def test_gpudirect_costs_its_latency_at_both_ends(chain, run):
    fabric = chain(1)
    plain, direct = (run(fabric, [("h1", "h2", 64 * 4096)], memory=memory) for memory in ("host", "gpudirect"))
    assert direct.finish_ps[0] - plain.finish_ps[0] == 2 * round(1000 * timings().memory["gpudirect"].latency_ns)


def test_staging_costs_two_copies_that_overlap_with_the_wire(chain, arithmetic, run):
    """The copies are slower than the line: n packets take n copies, and one more at the receiver."""
    fabric = chain(1)
    physics = arithmetic(fabric)
    memory = timings().memory["staged"]
    copy_ps = (4096 + physics.headers) * round(1024 * 8_000 / memory.gbit_s) >> 10
    assert copy_ps > physics.data_ps("h1/1")
    result = run(fabric, [("h1", "h2", 64 * 4096)], columns=SEND, memory="staged")
    assert result.finish_ps[0] == (
        physics.lead_ps("h1", 4096)
        + round(1000 * memory.latency_ns)
        + 63 * copy_ps
        + physics.data_ps("h1/1")
        + physics.path_ps("h1/1", "s1/4")
        + copy_ps
        + physics.adapter_ps("h2", "receive")
        + round(1000 * memory.latency_ns)
    )


def test_a_message_that_waits_starts_when_the_last_before_it_was_delivered(chain, arithmetic, run):
    """h1 to h2, h4 to h3, then h2 to h1 after both and a pause."""
    fabric = chain(2, hosts=4)
    after = {"after": [[], [], [0, 1]], "delay_ps": [0, 0, 12_345], "start_ps": [0, 5_000_000, 1]}
    result = run(fabric, [("h1", "h2", 50_000), ("h4", "h3", 8), ("h2", "h1", 8)], columns=UC_SEND | after)
    alone = run(fabric, [("h2", "h1", 8)], columns=UC_SEND)
    assert result.start_ps[2] == max(result.finish_ps[:2]) + 12_345
    assert result.latency_ps[2] == alone.finish_ps[0]
