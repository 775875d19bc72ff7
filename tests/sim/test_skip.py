"""Fewer packets, the same answer: steady state carried forward."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic


@pytest.fixture(scope="module")
def tree() -> Fabric:
    return route(weft.load("fat-tree:hosts=32,radix=8"), RoutingOptions(adaptive=True)).fabric


def unequal(fabric: Fabric, **columns: object) -> Traffic:
    """Return a permutation of messages that end at different times."""
    hosts = host_ports(fabric)
    rng = np.random.default_rng(3)
    order = rng.permutation(len(hosts))
    sizes = rng.integers(20, 40, len(hosts)) * 2_000_000
    return Traffic.make(hosts[order], hosts[np.roll(order, 1)], sizes, **columns)


@pytest.mark.parametrize("tolerance", [0.05, 0.02])
def test_a_run_that_skips_ends_within_its_tolerance_of_one_that_does_not(tree, tolerance):
    whole = PacketEngine().run(tree, unequal(tree))
    short = PacketEngine().run(tree, unequal(tree), Options(skip_tolerance=tolerance))
    assert short.skipped_ps > whole.last_arrival_ps / 3
    assert short.events < whole.events / 2
    assert np.abs(short.finish_ps / whole.finish_ps - 1).max() < tolerance
    np.testing.assert_allclose(short.use.xmit_bytes, whole.use.xmit_bytes, rtol=tolerance, atol=10_000)


def test_a_message_that_starts_later_by_the_clock_starts_on_time(tree):
    traffic = unequal(tree, start_ps=np.arange(32) * 100_000_000)
    whole = PacketEngine().run(tree, traffic)
    short = PacketEngine().run(tree, traffic, Options(skip_tolerance=0.05))
    assert short.skipped_ps > 0
    np.testing.assert_array_equal(short.start_ps, traffic.start_ps)
    assert np.abs(short.finish_ps - whole.finish_ps).max() < 0.05 * whole.last_arrival_ps


def test_a_network_that_does_not_settle_is_not_skipped(tree):
    broken = faults.degrade(tree, "h1/1", 1e-6)
    with pytest.raises(ConfigError, match=r"skip_tolerance 0\.02 needs a network with a steady state"):
        PacketEngine().run(broken, unequal(broken), Options(skip_tolerance=0.02))
