"""Inputs with one read port, against the theory of input queueing."""

from __future__ import annotations

import pytest

import weft
from weft.errors import ConfigError
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim import patterns
from weft.sim.engine import Crossbar, Options
from weft.sim.figures import carried_load
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic, Transport

HEAD_OF_LINE = 2 - 2**0.5  # Karol, Hluchyj and Morgan 1987: uniform traffic, many ports, equal packets


def uniform(crossbar: Crossbar, load: float) -> float:
    fabric = route(weft.load("star:hosts=64,switch=QM9700")).fabric
    traffic = patterns.uniform(fabric, load=load, duration_ps=200_000_000, transport=Transport.UC)
    return carried_load(PacketEngine().run(fabric, traffic, Options(crossbar=crossbar)))


def test_uniform_traffic_saturates_at_586_per_mille():
    """Half the load passes; more than 58.6 % of the rate of packets does not. 1 % of it is headers."""
    assert uniform(Crossbar.ONE_READ_PORT, 0.5) == pytest.approx(0.5, rel=0.02)
    assert uniform(Crossbar.ONE_READ_PORT, 0.7) == pytest.approx(HEAD_OF_LINE * 4096 / 4138, rel=0.02)
    assert uniform(Crossbar.OUTPUT_QUEUED, 0.7) == pytest.approx(0.7, rel=0.02)


def test_packets_behind_a_busy_output_wait_with_one_read_port():
    """Four hosts fill the line to h6; a packet of h1 to the idle h7 is behind one of its packets to h6."""
    fabric = route(weft.load("star:hosts=7")).fabric
    rows = [*((f"h{i}", "h6", 40 * 4096) for i in range(1, 6)), ("h1", "h7", 4096)]
    traffic = Traffic.of(fabric, rows, start_ps=[0] * 5 + [1_000_000], transport=Transport.UC, operation=1)
    runs = [PacketEngine().run(fabric, traffic, Options(crossbar=crossbar)) for crossbar in Crossbar]
    queued, one_read = (int(run.finish_ps[5]) for run in runs)
    packet_ps = float(runs[0].use.busy_ps.max()) / (5 * 40)
    assert 2 * packet_ps < one_read - queued
    assert runs[0].last_arrival_ps == runs[1].last_arrival_ps  # the line to h6 is never idle


def test_every_lane_has_a_read_port_of_its_own():
    fabric = route(weft.load("torus:4x4"), RoutingOptions(lmc=0)).fabric
    result = PacketEngine().run(fabric, patterns.all_to_all(fabric, size_bytes=9000), Options(crossbar="one-read-port"))
    assert result.done
    assert result.last_arrival_ps > PacketEngine().run(fabric, result.traffic, Options()).last_arrival_ps


@pytest.mark.parametrize(
    ("spec", "options"),
    [("star:hosts=3,speed=100GbE", {"network": "tcp", "paths": "table"}), ("star:hosts=3", {"skip_tolerance": 0.1})],
)
def test_drops_and_skips_are_refused(spec: str, options: dict[str, object]):
    fabric = route(weft.load(spec)).fabric
    traffic = Traffic.of(fabric, [("h1", "h2", 4096)])
    with pytest.raises(ConfigError, match="one-read-port"):
        PacketEngine().run(fabric, traffic, Options(crossbar=Crossbar.ONE_READ_PORT, **options))
