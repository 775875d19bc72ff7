"""Spectrum-X, MRC and SRD: networks made of parts of RoCE and of Ultra Ethernet."""

from __future__ import annotations

from functools import cache

import pytest

import weft
from weft.collectives.nccl.measure import measure_traffic
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim import patterns
from weft.sim.engine import Network, Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Result
from weft.sim.traffic import Traffic

FLOW_BYTES = 1 << 21
LINE_BYTES_PER_US = 50_000
PACKET, HEADERS = 4096, 82  # of RoCE


@cache
def tree() -> Fabric:
    return route(weft.load("fat-tree:hosts=32,radix=8,speed=400GbE"), RoutingOptions(adaptive=True)).fabric


def run(network: str, traffic: Traffic, **options: str) -> Result:
    return PacketEngine().run(tree(), traffic, Options(network=Network(network), **options))  # type: ignore[arg-type]


def permutation() -> Traffic:
    return patterns.permutation(tree(), size_bytes=FLOW_BYTES, seed=1)


def incast() -> Traffic:
    return Traffic.of(tree(), [(f"h{i}", "h32", FLOW_BYTES) for i in range(1, 24)])


def test_spectrum_x_carries_a_permutation_at_nearly_the_line_rate_and_ecmp_does_not():
    alone_us = FLOW_BYTES / LINE_BYTES_PER_US * (1 + HEADERS / PACKET)
    tails_us = {name: run(name, permutation()).last_arrival_ps / 1e6 for name in ("spectrum-x", "roce")}
    assert alone_us < tails_us["spectrum-x"] < 1.25 * alone_us
    assert tails_us["roce"] > 2 * tails_us["spectrum-x"]


def test_spectrum_x_marks_packets_in_front_of_receivers_only():
    result = run("spectrum-x", incast())
    marked = result.use.marked_packets.nonzero()[0]
    peers = tree().ports.node[tree().ports.peer[marked]]
    assert len(marked)
    assert (tree().nodes.kind[peers] == NodeKind.HCA).all()
    assert result.retransmitted.sum() == 0


@pytest.mark.parametrize("network", ["mrc", "srd"])
def test_lossy_networks_end_an_incast_soon_after_its_bytes_have_passed_the_line(network: str):
    result = run(network, incast())
    trimmed, dropped = (int(counts.sum()) for counts in (result.use.trimmed_packets, result.use.dropped_packets))
    assert (trimmed > 0, dropped > 0) == ((True, False) if network == "mrc" else (False, True))
    wire_us = 23 * FLOW_BYTES / LINE_BYTES_PER_US * (1 + HEADERS / PACKET)
    assert wire_us < result.last_arrival_ps / 1e6 < 1.1 * wire_us


@pytest.mark.parametrize(
    ("network", "paths", "control"),
    [
        (Network.SPECTRUM_X, "adaptive", "spectrum-x"),
        (Network.MRC, "bitmap", "nscc"),
        (Network.SRD, "reps", "nscc"),
        (Network.UET, "mixed", "nscc"),
    ],
)
def test_networks_fill_in_their_paths_and_controls(network: Network, paths: str, control: str):
    options = run(network, Traffic.of(tree(), [("h1", "h2", 1000)])).options
    assert (options.paths, options.congestion_control) == (paths, control)


def test_collectives_refuse_networks_without_a_measurement():
    with pytest.raises(ConfigError, match="--network srd: no collective was measured on it"):
        measure_traffic(tree(), permutation(), Options(network=Network.SRD))
