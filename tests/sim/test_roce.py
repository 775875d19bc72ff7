"""RoCE: pause frames prevent losses but block other flows; ECMP hashes flows; v1 is not routed."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ConfigError, SubnetError
from weft.fabric import faults
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.packet.plan import plan
from weft.sim.patterns import incast
from weft.sim.result import Result
from weft.sim.traffic import Traffic

ETHERNET = "switch=SN2700,speed=100GbE"
STAR = f"star:hosts=9,{ETHERNET}"
TREE = f"fat-tree:hosts=16,radix=8,{ETHERNET}"
FAST_TREE = "fat-tree:hosts=16,radix=8,switch=SN4700"  # more is under way when a pause leaves
MIB = 1 << 20


@cache
def routed(spec: str, engine: str = "auto") -> Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True, engine=engine)).fabric


def send(fabric: Fabric, messages: list[tuple[str, str, int]], qp: Any = 0, **options: Any) -> Result:
    options = {"congestion_control": "none"} | options
    return PacketEngine().run(fabric, Traffic.of(fabric, messages, qp=qp), Options(**options))


def test_an_incast_pauses_and_drops_nothing():
    result = send(routed(STAR), [(f"h{i}", "h9", 2 * MIB) for i in range(1, 9)])
    assert result.done
    assert result.use.pauses.sum() > 50
    assert result.use.dropped_packets.sum() == 0
    assert result.goodput_gbit_s > 95  # the bottleneck never runs dry


def test_no_port_pauses_without_congestion():
    assert send(routed(STAR), [(f"h{i}", f"h{i + 1}", MIB) for i in range(1, 9)]).use.pauses.sum() == 0


def test_a_pause_also_stops_flows_to_other_receivers():
    """h1 and h4 share an uplink. h1 could use a quarter of it, as one of four into h16; h4 would have the rest."""
    to_one = [(f"h{i}", "h16", 8 * MIB) for i in (1, 5, 6, 7)]
    together = send(routed(TREE), [*to_one, ("h4", "h12", 4 * MIB)], paths="table")
    alone = send(routed(TREE), [("h4", "h12", 4 * MIB)], paths="table")
    assert together.latency_ps[-1] > 1.3 * alone.latency_ps[-1] / 0.75


@settings(max_examples=12)
@given(
    seed=st.integers(0, 1 << 30),
    size_bytes=st.sampled_from([30, 5_000, 300_000]),
    buffer_bytes=st.sampled_from([0, 2_000, 30_000]),
    paths=st.sampled_from(["table", "ecmp", "spray", "adaptive"]),
    switching=st.sampled_from(["cut-through", "store-and-forward"]),
    control=st.sampled_from(["none", "dcqcn"]),
)
def test_no_buffer_overflows_and_all_arrives_under_random_traffic(
    seed: int, size_bytes: int, buffer_bytes: int, paths: str, switching: str, control: str
):
    """An overflow would be a SimulationBug: the head-room holds the packets in flight when a pause is sent."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a, b in zip(rng.integers(1, 17, 100), rng.integers(1, 5, 100), strict=True) if a != b]
    messages = [
        (f"h{a}", f"h{b}", int(rng.integers(size_bytes))) for a, b in pairs * (3 if size_bytes < 300_000 else 1)
    ]
    result = send(
        routed(FAST_TREE),
        messages,
        qp=np.arange(len(messages)) % 3,
        buffer_bytes=buffer_bytes,
        paths=paths,
        switching=switching,
        congestion_control=control,
    )
    assert result.done
    assert result.use.dropped_packets.sum() == 0


@pytest.mark.parametrize("control", ["none", "dcqcn"])
def test_a_cycle_of_pauses_is_reported(control: str):
    """Everybody on a ring of five sends two switches on, by the shorter way: min-hop leaves a circle of buffers."""
    ring = routed(f"torus:5,hosts=1,{ETHERNET}", engine="min-hop")
    messages = [(f"h{i + 1}", f"h{(i + 2) % 5 + 1}", 20 * MIB) for i in range(5)] * 2
    with pytest.raises(SubnetError, match="deadlock"):
        send(ring, messages, qp=[0] * 5 + [1] * 5, buffer_bytes=40_000, paths="table", congestion_control=control)


# -- ECMP -------------------------------------------------------------------------------------------------------------


def permutation(n: int, seed: int) -> list[tuple[str, str]]:
    """Send from every host to one under another leaf of four."""
    rng = np.random.default_rng(seed)
    while True:
        to = rng.permutation(n)
        if (to // 4 != np.arange(n) // 4).all():
            return [(f"h{i + 1}", f"h{to[i] + 1}") for i in range(n)]


def uplinks(result: Result) -> np.ndarray:
    """Return the bytes by [leaf, uplink]."""
    fabric = result.fabric
    names = [f"leaf{leaf}/{port}" for leaf in range(1, 9) for port in range(5, 9)]
    return result.use.xmit_bytes[[fabric.find_port(name).slot for name in names]].reshape(8, 4)


BIG_TREE = f"fat-tree:hosts=32,radix=8,{ETHERNET}"


def test_flows_with_equal_hashes_share_an_uplink_and_slow_down():
    """4 flows thrown onto 4 uplinks: the fullest of 8 leaves has 3 or 4 of them, and the last flow takes as long."""
    pairs = permutation(32, 1)
    result = send(routed(BIG_TREE), [(*pair, MIB) for pair in pairs], paths="ecmp")
    flows = np.rint(uplinks(result) / MIB)
    assert flows.sum() == 32
    assert flows.max() >= 2
    alone_ps = send(routed(BIG_TREE), [(*pairs[0], MIB)], paths="ecmp").last_arrival_ps
    assert result.last_arrival_ps > 0.95 * flows.max() * alone_ps


def test_the_hash_spreads_flows_over_uplinks_like_random_choice():
    """Flows in a bin of four: mean n/4, variance 3n/16, over 20 seeds of 32 flows from 8 leaves."""
    result = [
        np.rint(
            uplinks(send(routed(BIG_TREE), [(*pair, 40_960) for pair in permutation(32, seed)], seed=seed)) / 41_000
        )
        for seed in range(20)
    ]
    assert abs(np.var(result) - 3 / 4) < 0.15
    assert abs(np.mean(result, axis=(0, 1)) - 1).max() < 0.25


def test_more_queue_pairs_spread_better_and_spraying_best():
    pairs = permutation(32, 1)

    def goodput(parts: int, paths: str) -> float:
        messages = [(*pair, MIB // parts) for pair in pairs for _ in range(parts)]
        result = send(routed(BIG_TREE), messages, qp=list(range(parts)) * 32, paths=paths)
        assert result.retransmitted.sum() == 0  # out of order is no loss
        return result.goodput_gbit_s

    each, sixteen, sprayed = goodput(1, "ecmp"), goodput(16, "ecmp"), goodput(1, "spray")
    assert 1.3 * each < sixteen < sprayed
    assert sprayed > 0.75 * 32 * 98


# -- RoCEv1 -----------------------------------------------------------------------------------------------------------


def test_roce_v1_across_a_router_is_refused_with_sender_and_receiver():
    tree = routed(TREE)
    with pytest.raises(ConfigError, match=r"RoCEv1 cannot go from h1.* to h16"):
        send(tree, [("h1", "h2", 4096), ("h1", "h16", 4096)], network="roce-v1", routed=True)
    assert send(tree, [("h1", "h2", 4096)], network="roce-v1", routed=True).done  # below one leaf
    assert send(tree, [("h1", "h16", 4096)], network="roce-v1").done  # switches that do not route


def test_headers_of_roce_v2_are_ip_and_udp_those_of_v1_a_grh():
    tree = routed(TREE)
    for network, headers in (("roce", 38 + 20 + 8 + 12 + 4 + 16), ("roce-v1", 38 + 40 + 12 + 4 + 16)):
        result = send(tree, [("h1", "h2", 4096)], network=network)
        assert result.use.xmit_bytes[result.traffic.src[0]] == 4096 + headers


SPEEDS = {
    "10GbE": "SN2700",
    "25GbE": "SN2700",
    "40GbE": "SN2700",
    "50GbE": "SN2700",
    "100GbE": "SN2700",
    "200GbE": "SN3700",
    "400GbE": "SN5400",
    "800GbE": "SN5600",
}


@pytest.mark.parametrize(("speed", "switch"), SPEEDS.items())
def test_ecn_marks_before_pfc_pauses_at_every_speed(speed, switch):
    """Otherwise senders are stopped without a notice, and PFC blocks unrelated flows."""
    server = "host-xdr" if speed == "800GbE" else "host"
    fabric = routed(f"star:hosts=3,server={server},switch={switch},speed={speed}")
    traffic = incast(fabric, size_bytes=8_000_000, senders=2)
    state = plan(fabric, traffic, Options()).state
    for low_bytes, high_bytes in state.marks[:, :2]:
        assert 0 < low_bytes < high_bytes < state.pause_above.min()
    result = PacketEngine().run(fabric, traffic)
    assert result.use.marked_packets.sum() > 0
    assert result.use.pauses.sum() == 0


def test_each_port_marks_by_its_own_speed():
    fabric = faults.slow(routed("star:hosts=3,speed=400GbE"), "h1/1", "100GbE")
    state = plan(fabric, incast(fabric, size_bytes=1000, senders=2), Options()).state
    assert len(np.unique(state.marks, axis=0)) == 2
