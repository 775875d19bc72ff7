"""Rates of a fabric for patterns."""

from __future__ import annotations

import pytest

import weft
from weft.collectives.nccl.measure import measure, pattern_traffic
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import place
from weft.errors import ConfigError
from weft.fabric import faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options


def routed(spec: str) -> weft.Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def test_ndr_adapters_carry_what_perftest_measures():
    networks = measure(place(routed("superpod:su=1,servers=4"))).networks
    for pattern in Pattern:
        assert networks[pattern].adapter_gbyte_s == pytest.approx(49.05, rel=0.01), pattern
    assert 1 < networks[Pattern.RING].step_us < 3


def test_a_slow_cable_slows_the_whole_ring():
    fabric = faults.slow(routed("superpod:su=1,servers=4"), "dgx3/mlx5_0/1", "4xEDR")
    networks = measure(place(fabric), patterns=[Pattern.RING]).networks
    assert networks[Pattern.RING].adapter_gbyte_s == pytest.approx(49.05 / 4, rel=0.02)


def test_an_oversubscribed_tree_halves_what_far_pairs_get():
    """Two uplinks for four hosts of a leaf."""
    thin = routed("fat-tree:hosts=16,radix=8,oversubscription=3")
    networks = measure(place(thin)).networks
    assert networks[Pattern.PAIRS].adapter_gbyte_s < 0.7 * 49.05
    assert networks[Pattern.RING].adapter_gbyte_s > networks[Pattern.PAIRS].adapter_gbyte_s


def test_tcp_is_bound_by_the_cores_that_copy():
    fabric = routed("superpod:su=1,servers=3,speed=100GbE")
    item, two = (
        measure(place(fabric), Options(network="tcp"), connections=connections).networks for connections in (1, 2)
    )
    for pattern in Pattern:
        assert two[pattern].adapter_gbyte_s == pytest.approx(2 * item[pattern].adapter_gbyte_s, rel=0.02)
        assert two[pattern].step_us > 30


def test_a_tree_has_edges_up_and_down_in_both_trees():
    traffic = pattern_traffic(place(weft.load("star:hosts=6")), Pattern.TREE, connections=1)
    pairs = set(zip(traffic.src.tolist(), traffic.dst.tolist(), strict=True))
    assert len(traffic) == 2 * 2 * 5
    assert {(b, a) for a, b in pairs} == pairs


def test_one_server_has_no_network():
    with pytest.raises(ConfigError, match="alone"):
        measure(place(routed("superpod:su=1,servers=1")))
