"""Reductions in switches by packets, against their closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft.collectives.ranks import place
from weft.collectives.traffic import collective_traffic
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.model import Fabric
from weft.fabric.nvlink import join_nvlinks
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.engines import ENGINES
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Result
from weft.sim.traffic import Operation, Traffic, Transport

KIND: dict[str, Any] = {"transport": Transport.UC, "operation": Operation.SEND}


def routed(spec: str) -> Fabric:
    return route(weft.load(spec)).fabric


def reduce(fabric: Fabric, size_bytes: int, **columns: Any) -> Result:
    hosts = host_ports(fabric)
    traffic = Traffic.make(hosts, hosts, size_bytes, **(KIND | {"reduction": 1} | columns))
    return PacketEngine().run(fabric, traffic, Options())


@pytest.mark.parametrize("size_bytes", [1, 4096, 100_000])
@pytest.mark.parametrize(
    ("spec", "far"),
    [("star:hosts=5", "h5"), ("fat-tree:hosts=12,radix=8", "h12"), ("fat-tree:hosts=54,radix=6,levels=3", "h54")],
)
def test_an_all_reduce_takes_as_long_as_one_message_through_the_root(spec: str, far: str, size_bytes: int):
    """All hosts send at once, and sums and results move at the line rate: the closed form of a tree in the network."""
    fabric = routed(spec)
    alone = PacketEngine().run(fabric, Traffic.of(fabric, [("h1", far, size_bytes)], **KIND), Options())
    assert set(reduce(fabric, size_bytes).finish_ps.tolist()) == {alone.last_arrival_ps}


def test_every_link_of_the_tree_carries_the_buffer_once_in_each_direction():
    fabric = routed("fat-tree:hosts=12,radix=8")
    result = reduce(fabric, 20 * 4096)
    packets = result.use.xmit_packets
    assert set(packets[packets > 0].tolist()) == {20}
    assert (packets > 0).sum() == 2 * (12 + 3)  # hosts, and three leaves under one spine
    assert result.packet_hops == 20 * 2 * 15


def test_the_sum_waits_for_the_last_host():
    fabric = routed("star:hosts=5")
    late_ps = np.array([0, 0, 7_000_000, 0, 0])
    early, late = reduce(fabric, 9000), reduce(fabric, 9000, start_ps=late_ps)
    assert late.finish_ps[0] - early.finish_ps[0] == 7_000_000


def test_reductions_follow_each_other_and_share_links_with_messages():
    fabric = routed("fat-tree:hosts=8,radix=4")
    hosts = host_ports(fabric)
    after = [[]] * 8 + [list(range(8))] * 8 + [[]]
    traffic = Traffic.make(
        [*hosts, *hosts, hosts[0]],
        [*hosts, *hosts, hosts[7]],
        50_000,
        **(KIND | {"reduction": [1] * 8 + [2] * 8 + [0], "after": after}),
    )
    result = PacketEngine().run(fabric, traffic, Options())
    assert result.done
    assert result.start_ps[8:16].min() >= result.finish_ps[:8].max()
    assert result.finish_ps[7] > reduce(fabric, 50_000).finish_ps[7]


def test_reductions_of_other_queue_pairs_use_another_root():
    fabric = routed("fat-tree:hosts=8,radix=4")
    one, other = (reduce(fabric, 9000, qp=qp).use.xmit_packets > 0 for qp in (0, 1))
    assert one.sum() == other.sum() == 2 * (8 + 4)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"transport": Transport.RC}, "a reduction needs transport UC"),
        ({"reduction": [1, 2, 3, 4]}, "needs two messages or more"),
        ({"size_bytes": [1, 1, 1, 2]}, "have different sizes"),
    ],
)
def test_bad_reductions_are_refused(columns: dict[str, Any], rule: str):
    fabric = routed("star:hosts=4")
    with pytest.raises(ConfigError, match=rule):
        reduce(fabric, columns.pop("size_bytes", 9), **columns)


def test_lossy_networks_and_other_engines_are_refused():
    fabric = faults.degrade(routed("star:hosts=4"), "h1/1", 1e-6)
    with pytest.raises(ConfigError, match="network without losses"):
        reduce(fabric, 9)
    hosts = host_ports(fabric)
    traffic = Traffic.make(hosts, hosts, 9, reduction=1, **KIND)
    for name in ("flow", "analytic"):
        with pytest.raises(ConfigError, match="no reduction in switches"):
            ENGINES[name].run(routed("star:hosts=4"), traffic)


def test_half_the_time_of_a_ring():
    """A ring sends each buffer nearly twice, 2 (n - 1) / n; the tree sends it once."""
    fabric = routed("star:hosts=16")
    times = {}
    for algorithm in ("ring", "sharp"):
        traffic = collective_traffic(fabric, "all_reduce", algorithm, 16 << 20)
        times[algorithm] = PacketEngine().run(fabric, traffic, Options()).last_arrival_ps
    assert 2 * 15 / 16 < times["ring"] / times["sharp"] < 2.2  # the ring has 30 steps with a latency each


def test_servers_with_rails_add_each_part_on_the_rail_of_its_gpu():
    """NVLink is busiest: each GPU sends all but its own part, and its part to all; a slice of a rail is added."""
    size_bytes, gpus, slices = 16 << 20, 8, 8
    fabric = join_nvlinks(routed("superpod:su=1,servers=3"))
    ranks, traffic = place(fabric), collective_traffic(fabric, "all_reduce", "sharp", size_bytes)
    result = PacketEngine().run(fabric, traffic, Options())
    added = traffic.reduction > 0
    payload = np.bincount(traffic.src[added], traffic.size_bytes[added])
    assert set(payload[ranks.adapters.ravel()].tolist()) == {size_bytes // gpus}
    rates_gbit_s = (
        result.use.xmit_bytes[port] * 8_000 / result.use.busy_ps[port] for port in (ranks.nvlink, ranks.port)
    )
    nvlink_us, rail_us = (size_bytes / gpus / 125 / rate.mean() for rate in rates_gbit_s)
    busiest_us = 2 * (gpus - 1) * nvlink_us
    assert nvlink_us < rail_us < busiest_us
    assert busiest_us < result.last_arrival_ps / 1e6 < busiest_us + rail_us / slices + 2  # µs of latencies


def test_a_part_waits_for_the_slow_summand_of_another_server_and_other_parts_do_not():
    fabric = join_nvlinks(routed("superpod:su=1,servers=2"))
    ranks, traffic = place(fabric), collective_traffic(fabric, "all_reduce", "sharp", 1 << 20)
    slow = int(np.flatnonzero((traffic.reduction > 0) & (traffic.src == ranks.port[3]))[0])
    delay_ps = np.where(np.arange(len(traffic)) == slow, 9_000_000, 0)
    late, usual = (
        PacketEngine().run(fabric, each, Options()) for each in (replace(traffic, delay_ps=delay_ps), traffic)
    )
    waits = (late.finish_ps - usual.finish_ps) > 5_000_000
    result = np.flatnonzero(traffic.reduction == traffic.reduction[slow])
    first, after = traffic.after_first, traffic.after
    waiters = [row for row in range(len(traffic)) if np.isin(after[first[row] : first[row + 1]], result).any()]
    assert {int(port) for port in traffic.src[waits & (traffic.reduction > 0)]} == set(ranks.port[[3, 11]].tolist())
    assert {int(port) for port in traffic.src[waits & (traffic.reduction == 0)]} == set(ranks.nvlink[[3, 11]].tolist())
    assert len(waiters) == 2 * 7
    assert waits[waiters].all()
    assert (late.start_ps[waiters] >= late.finish_ps[result].min()).all()


def test_rails_without_nvlinks_and_buffers_without_a_byte_for_each_slice_are_refused():
    fabric = routed("superpod:su=1,servers=2")
    with pytest.raises(ConfigError, match="over NVLink"):
        collective_traffic(fabric, "all_reduce", "sharp", 1 << 20)
    with pytest.raises(ConfigError, match="64 chunks, 3 bytes are too few"):
        collective_traffic(join_nvlinks(fabric), "all_reduce", "sharp", 3)
