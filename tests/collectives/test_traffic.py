"""Programs on the packet engine take the time that theory gives them."""

from __future__ import annotations

import pytest

import weft
from weft.collectives.ranks import place
from weft.collectives.schedules.all_to_all import bruck_all_to_all
from weft.collectives.schedules.hierarchical import hierarchical_all_reduce
from weft.collectives.schedules.pat import bruck_all_gather, pat_all_gather
from weft.collectives.schedules.program import Program
from weft.collectives.schedules.recursive import (
    dissemination_barrier,
    doubling_all_gather,
    halving_doubling_all_reduce,
    pairwise_all_to_all,
)
from weft.collectives.schedules.ring import ring_all_gather, ring_all_reduce
from weft.collectives.schedules.sharp import sharp_all_reduce
from weft.collectives.schedules.tree import double_tree_all_reduce
from weft.collectives.traffic import program_traffic
from weft.errors import ConfigError
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic

HOSTS = 8


@pytest.fixture(scope="module")
def star() -> weft.Fabric:
    return route(weft.load(f"star:hosts={HOSTS}")).fabric


def time_ps(fabric: weft.Fabric, program: Program, size_bytes: int) -> int:
    result = PacketEngine().run(fabric, program_traffic(program, place(fabric), size_bytes))
    assert result.done
    return result.last_arrival_ps


def alone_ps(fabric: weft.Fabric, size_bytes: int) -> int:
    """Return the time of one message from a host to another, without other traffic."""
    ports = host_ports(fabric)
    return PacketEngine().run(fabric, Traffic.make(ports[:1], ports[1:2], size_bytes)).last_arrival_ps


@pytest.mark.parametrize("write", [bruck_all_gather, pat_all_gather, bruck_all_to_all])
def test_parts_that_a_rank_sends_to_another_in_a_round_go_as_one_message(star, write):
    program = write(HOSTS)
    pairs = 0
    for number in range(program.n_rounds):
        sends = program.make_round(number)
        pairs += len(set(zip(sends.src.tolist(), sends.dst.tolist(), strict=True)))
    assert len(program_traffic(program, place(star), HOSTS << 10)) == pairs


@pytest.mark.parametrize("size_bytes", [HOSTS * 64, HOSTS * 65_536, HOSTS << 20])
def test_a_ring_takes_a_message_after_the_other(star, size_bytes):
    """2 (n - 1) times a part of the buffer: alpha-beta, with the packet engine's own alpha and beta."""
    step_ps = alone_ps(star, size_bytes // HOSTS)
    assert time_ps(star, ring_all_reduce(HOSTS), size_bytes) == pytest.approx(2 * (HOSTS - 1) * step_ps, rel=0.001)
    assert time_ps(star, ring_all_gather(HOSTS), size_bytes) == pytest.approx((HOSTS - 1) * step_ps, rel=0.001)


def test_halving_and_doubling_are_faster_for_small_messages_and_as_fast_for_large_ones(star):
    small = [time_ps(star, program(HOSTS), 8 * HOSTS) for program in (ring_all_reduce, halving_doubling_all_reduce)]
    large = [time_ps(star, program(HOSTS), 64 << 20) for program in (ring_all_reduce, halving_doubling_all_reduce)]
    assert small[1] == pytest.approx(small[0] * 6 / 14, rel=0.03)
    assert large[1] == pytest.approx(large[0], rel=0.02)


def test_a_barrier_takes_log2_of_the_ranks_in_messages_of_no_bytes(star):
    assert time_ps(star, dissemination_barrier(HOSTS), 0) == pytest.approx(3 * alone_ps(star, 0), rel=0.01)


def test_the_other_programs_run_too(star):
    parts = time_ps(star, pairwise_all_to_all(HOSTS), HOSTS * 65_536)
    assert parts >= (HOSTS - 1) * 65_536 * 8_000 / 400
    assert time_ps(star, double_tree_all_reduce(HOSTS), 8 << 20) > 8 * (8 << 20) * 1_000 / 400


def test_parts_that_go_together_are_one_message(star):
    """PAT's are apart in the buffer: it takes as long as recursive doubling, whose parts are not."""
    pat, doubling = pat_all_gather(HOSTS), doubling_all_gather(HOSTS)
    traffic = program_traffic(pat, place(star), 1 << 20)
    assert len(traffic) == 3 * HOSTS
    assert traffic.total_bytes == HOSTS * (HOSTS - 1) * (1 << 20) // HOSTS
    for size_bytes in (8 * HOSTS, 1 << 20):
        assert time_ps(star, pat, size_bytes) == pytest.approx(time_ps(star, doubling, size_bytes), rel=0.02)


def test_mismatched_traffic_is_refused(star):
    with pytest.raises(ConfigError, match="has 4 ranks, the job has 8"):
        program_traffic(ring_all_reduce(4), place(star), 1 << 20)
    with pytest.raises(ConfigError, match="into 8 chunks, 3 bytes are too few"):
        program_traffic(ring_all_reduce(8), place(star), 3)
    with pytest.raises(ConfigError, match="written for nodes of 4 GPUs, h1 has 1 ranks"):
        program_traffic(hierarchical_all_reduce(2, 4), place(star), 1 << 20)
    with pytest.raises(ConfigError, match="SHARP all-reduce adds in the network"):
        program_traffic(sharp_all_reduce(8), place(star), 1 << 20)
