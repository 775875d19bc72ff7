"""`--engine auto`: packets where they are needed or affordable, else flows; and the trust in results."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.auto import AFFORDABLE_HOPS, choose_engine, estimate_hops
from weft.sim.engine import Options
from weft.sim.engines import find_engine
from weft.sim.packet.engine import PacketEngine
from weft.sim.patterns import permutation, uniform
from weft.sim.trust import find_trust

TREE = "fat-tree:hosts=16,radix=8"


@cache
def routed(spec):
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def test_small_traffic_runs_as_packets_and_large_traffic_as_flows():
    fabric = routed(TREE)
    small, large = (
        find_engine("auto", auto=True).run(fabric, permutation(fabric, size_bytes=n)) for n in (1000, 4 << 30)
    )
    assert (small.engine, large.engine) == ("packet", "flow")
    assert large.report()["choice"].endswith("packet-hops, over 20,000,000")
    assert small.report()["trust"] is None
    assert large.report()["trust"]["workloads"] > 100


def test_messages_of_few_packets_run_as_packets_however_many_they_are(monkeypatch):
    fabric = routed(TREE)
    monkeypatch.setattr("weft.sim.auto.AFFORDABLE_HOPS", 0)
    engine, reason = choose_engine(fabric, uniform(fabric, size_bytes=4096), Options())
    assert (engine.name, "cheaper than a flow" in reason) == ("packet", True)
    assert choose_engine(fabric, uniform(fabric, size_bytes=1 << 20), Options())[0].name == "flow"


def to_group(fabric, **kind):
    traffic = permutation(fabric, **kind)
    return replace(traffic, mlid=np.full(len(traffic), 0xC001, traffic.mlid.dtype))


@pytest.mark.parametrize(
    ("change", "traffic", "options", "reason"),
    [
        (lambda fabric: fabric, permutation, {"watch": ("h1/1",)}, "queues"),
        (lambda fabric: fabric, permutation, {"buffer_bytes": 65_536}, "no buffer"),
        (lambda fabric: fabric, permutation, {"congestion_control": "ib"}, "congestion control"),
        (lambda fabric: faults.degrade(fabric, "h1/1", 1e-8), permutation, {}, "bit errors"),
        (lambda fabric: fabric, to_group, {}, "multicast"),
    ],
)
def test_input_without_a_flow_model_runs_as_packets(change, traffic, options, reason):
    fabric = change(routed(TREE))
    engine, why = choose_engine(fabric, traffic(fabric, size_bytes=4096), Options(**options))
    assert engine.name == "packet"
    assert reason in why


@pytest.mark.parametrize("spec", [TREE, "torus:4x4"])
def test_the_estimate_of_packet_hops_is_that_of_the_run_without_acknowledgements(spec):
    traffic = permutation(routed(spec), size_bytes=100_000)
    sent = PacketEngine().run(routed(spec), traffic)
    acks = sent.packet_hops - estimate_hops(routed(spec), traffic, Options())
    assert 0 < acks <= sent.packet_hops / 20
    assert sent.packet_hops < AFFORDABLE_HOPS


def test_auto_is_for_simulations_alone():
    with pytest.raises(ConfigError, match="no engine 'auto'"):
        find_engine("auto")


def test_most_random_workloads_lie_in_the_ranges_that_results_name():
    """The first workloads of `benchmarks/engines.py`, whose whole run gave the ranges."""
    path = Path(__file__).parents[2] / "benchmarks" / "engines.py"
    spec = importlib.util.spec_from_file_location("engines_benchmark", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    inside = []
    for seed in range(1, 41):
        _, fabric, traffic, options = benchmark.workload(seed)
        packet = PacketEngine().run(fabric, traffic, options)
        for name in ("flow", "analytic"):
            other = find_engine(name).run(fabric, traffic, options)
            trust = find_trust(name, options.network)
            ratios = {
                trust.last_arrival: other.last_arrival_ps / packet.last_arrival_ps,
                trust.mean_latency: other.latency_ps.mean() / packet.latency_ps.mean(),
            }
            inside += [low - 0.005 <= ratio <= high + 0.005 for (low, high), ratio in ratios.items()]
    assert np.mean(inside) >= 0.8  # out of 160; the ranges hold 90 % of all 500 workloads
