"""The model of steady load against the packet engine and the flow engine, where they must agree."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.fabric import faults
from weft.fabric.counters import Counter
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim import steady
from weft.sim.engine import Options
from weft.sim.flow.engine import FlowEngine
from weft.sim.packet.engine import PacketEngine
from weft.sim.steady import LoadJob, settle
from weft.sim.steady_counts import advance
from weft.sim.traffic import Traffic, find_host_port

MESSAGE_BYTES = 1 << 20
STOP_PS = 100_000_000


@pytest.fixture(scope="module")
def tree():
    return route(weft.load("fat-tree:hosts=16,radix=8")).fabric


def job(fabric, pattern, hosts):
    return LoadJob(
        name="one", pattern=pattern, hosts=np.array([find_host_port(fabric, host) for host in hosts], np.int64)
    )


def stream_gbit_s(fabric, dst, messages, seeds):
    """Return the packet engine's throughput from h1 with one message after another."""
    traffic = Traffic.of(fabric, [("h1", dst, MESSAGE_BYTES)] * messages)
    ends_ps = [PacketEngine().run(fabric, traffic, Options(seed=seed)).finish_ps.max() for seed in range(seeds)]
    return messages * MESSAGE_BYTES * 8_000 / float(np.mean(ends_ps))


@pytest.mark.parametrize("dst", ["h2", "h16"])
def test_going_back_costs_what_it_costs_the_packet_engine(tree, dst, monkeypatch):
    """Timeouts do not occur: with these seeds none of the few packets is lost twice."""
    monkeypatch.setattr(steady, "RETRY_S", 0.0)
    bad = faults.degrade(tree, "h1/1", 1e-7, one_way=False)
    whole, left = (settle(item, [job(item, "ring", ["h1", dst])]).job_gbit_s[0] / 2 for item in (tree, bad))
    cost = whole - stream_gbit_s(bad, dst, 100, seeds=2)
    assert whole - left == pytest.approx(cost, rel=0.25)


def test_timeouts_cost_what_they_cost_the_packet_engine(tree):
    bad = faults.degrade(tree, "h1/1", 1e-6)
    left = settle(bad, [job(bad, "ring", ["h1", "h2"])]).job_gbit_s[0] / 2
    assert left < 0.01 * settle(tree, [job(tree, "ring", ["h1", "h2"])]).job_gbit_s[0]
    assert left == pytest.approx(stream_gbit_s(bad, "h2", 100, seeds=4), rel=0.35)


@pytest.mark.parametrize("engine", ["packet", "steady"])
def test_damaged_packets_are_among_those_that_came(tree, engine):
    """The standard counts packets with errors in PortRcvPkts and PortRcvData, and NVIDIA in unicast packets."""
    bad = faults.degrade(tree, "h1/1", 1e-7, one_way=False)
    if engine == "packet":
        PacketEngine().run(bad, Traffic.of(bad, [("h1", "h2", MESSAGE_BYTES)] * 20)).write_counters()
        counters = bad.counters
    else:
        counters = advance(settle(bad, [job(bad, "ring", ["h1", "h2"])]), 1.0, np.random.default_rng(1)).counters
    port = bad.find_port("h1/1").peer
    sent, came = counters[port.peer.slot], counters[port.slot]
    assert came[Counter.PORT_RCV_ERRORS] > 0
    for words in ("DATA_WORDS", "PKTS"):
        assert came[Counter[f"PORT_RCV_{words}"]] == sent[Counter[f"PORT_XMIT_{words}"]]
    assert came[Counter.PORT_UNICAST_RCV_PKTS] == came[Counter.PORT_RCV_PKTS]


@pytest.mark.parametrize("senders", [["h1", "h5", "h9"], ["h13", "h14", "h15"], ["h1", "h2", "h5", "h6"]])
def test_ports_before_an_incast_wait_as_long_as_in_the_packet_engine(tree, senders):
    result = settle(tree, [job(tree, "incast", ["h16", *senders])])
    traffic = Traffic.of(tree, [(sender, "h16", 4 * MESSAGE_BYTES) for sender in senders])
    use = PacketEngine().run(tree, traffic, Options(stop_at_ps=STOP_PS)).use
    for slot in np.unique(result.hop).tolist():
        name = tree.port(slot).name
        assert result.wait[slot] == pytest.approx(use.xmit_wait_ps[slot] / STOP_PS, abs=0.04), name
        assert result.busy[slot] == pytest.approx(use.busy_ps[slot] / STOP_PS, abs=0.04), name


@pytest.mark.parametrize("spec", ["fat-tree:hosts=16,radix=8", "torus:4x4,hosts=2", "dragonfly:a=4,p=2,h=2"])
@pytest.mark.parametrize("pattern", ["permutation", "all-to-all"])
def test_flows_get_the_rates_of_the_flow_engine(spec, pattern):
    fabric = route(weft.load(spec)).fabric
    hosts = host_ports(fabric).astype(np.int64)
    result = settle(fabric, [LoadJob(name="one", pattern=pattern, hosts=hosts)])
    pairs = hosts[steady.PATTERNS[pattern](fabric, hosts, np.random.default_rng(1))]
    traffic = Traffic.make(pairs[:, 0], pairs[:, 1], 1 << 30)
    use = FlowEngine().run(fabric, traffic, Options(stop_at_ps=STOP_PS)).use
    np.testing.assert_allclose(result.busy, use.busy_ps / STOP_PS, atol=0.02)
