"""Conservation of bytes, packets, credits and buffers, for any traffic."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.fabric import faults
from weft.fabric.kinds import NodeKind
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.layout.records import NONE
from weft.sim.packet.engine import PacketEngine, _Run
from weft.sim.packet.loop import run_events
from weft.sim.packet.plan import plan
from weft.sim.packet.state import Stop
from weft.sim.traffic import Operation, Traffic, Transport

SHAPES = ("star:hosts=5", "fat-tree:hosts=12,radix=8", "torus:3x3", "dragonfly:p=1,a=3,h=1")
WAYS = (
    {},
    {"switching": "store-and-forward", "buffer_bytes": 4160},
    {"paths": "adaptive"},
    {"paths": "spray", "buffer_bytes": 8320},
    {"congestion_control": "ib"},
    {"mtu_bytes": 1024},
    {"memory": "staged"},
    {"network": "roce"},
    {"network": "roce", "paths": "table", "congestion_control": "none", "buffer_bytes": 20_000},
    {"network": "tcp"},
    {"network": "tcp", "buffer_bytes": 30_000},
)
# The first routing of a shape may compile kernels.
FEW = {"max_examples": 25, "derandomize": True}


@cache
def routed(shape, ethernet):
    fabric = weft.load(f"{shape},speed=400GbE" if ethernet else shape)
    return route(fabric, RoutingOptions(adaptive=True)).fabric


def host_ports(fabric):
    return np.array([int(fabric.first_port[node.index]) + 1 for node in fabric.hcas])


@st.composite
def cases(draw, ways=WAYS):
    """Draw a fabric, traffic and options."""
    options = draw(st.sampled_from(ways))
    on_ethernet = options.get("network") in ("roce", "tcp")
    fabric = routed(draw(st.sampled_from(SHAPES)), on_ethernet)
    hosts = host_ports(fabric)
    n = draw(st.integers(1, 12))
    pairs = st.lists(st.sampled_from(hosts), min_size=2, max_size=2, unique=True)
    ends = np.array(draw(st.lists(pairs, min_size=n, max_size=n)))
    size_bytes = st.one_of(st.sampled_from([0, 1, 4096, 4097]), st.integers(0, 100_000))
    kinds = [(Operation.WRITE, Transport.RC), (Operation.SEND, Transport.RC), (Operation.READ, Transport.RC)]
    kinds += [] if options.get("network") == "tcp" else [(Operation.SEND, Transport.UC), (Operation.SEND, Transport.UD)]
    operation, transport = np.array(draw(st.lists(st.sampled_from(kinds), min_size=n, max_size=n))).T
    sizes = np.array(draw(st.lists(size_bytes, min_size=n, max_size=n)))
    after = [draw(st.lists(st.integers(0, i - 1), max_size=2)) if i else [] for i in range(n)]
    traffic = Traffic.make(
        ends[:, 0],
        ends[:, 1],
        np.where(transport == Transport.UD, np.minimum(sizes, 1024), sizes),
        start_ps=draw(st.lists(st.integers(0, 3_000_000), min_size=n, max_size=n)),
        delay_ps=draw(st.integers(0, 10_000)),
        operation=operation,
        transport=transport,
        qp=draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)),
        after=after,
    )
    return fabric, traffic, Options(**options, seed=draw(st.integers(1, 9)))


def run_dry(fabric, traffic, options):
    """Run until no packet is in flight (the engine stops at the last acknowledgement); return the run and its state."""
    run = _Run(plan(fabric, traffic, options))
    run.finish(None)
    state = run.state
    state.run.left[0] += 1
    state.run.until_ps[0] = 1 << 52
    while (why := run_events(state, 1_000_000)) == Stop.SLICE:
        pass
    assert why == Stop.DONE
    return run.result(traffic, 0.0), state


def check_empty(fabric, traffic, options, state):
    """Assert that no packet is left, all credits are returned, all buffers free, and no sender is paused."""
    fresh = plan(fabric, traffic, options).state
    assert state.run.alive[0] == 0
    assert (state.held == 0).all()
    assert (state.queues.head == NONE).all()
    assert (state.buffers.pausing == 0).all()
    assert (state.ports.busy == 0).all()
    assert (state.ports.waiting == 0).all()
    assert (state.ports.blocked == 0).all()
    if options.network not in ("roce", "tcp"):
        assert (state.queues.credits == fresh.queues.credits).all()


def check_flows(fabric, use):
    """Check that every switch sends or loses as many packets as it receives; as many bytes where nothing is lost."""
    peers = np.where(fabric.ports.peer >= 0, fabric.ports.peer, 0)
    plugged = fabric.ports.peer >= 0
    for switch in fabric.of_kind(NodeKind.SWITCH):
        local = plugged & (fabric.ports.node == switch)
        lost = int((use.corrupted_packets + use.dropped_packets)[local].sum())
        assert use.xmit_packets[peers[local]].sum() == use.xmit_packets[local].sum() + lost
        if not lost:
            assert use.xmit_bytes[peers[local]].sum() == use.xmit_bytes[local].sum()


@settings(**(FEW | {"max_examples": 60}))
@given(cases())
def test_all_traffic_arrives_and_no_credit_is_left_over(case):
    fabric, traffic, options = case
    result, state = run_dry(*case)
    assert result.done
    check_empty(fabric, traffic, result.options, state)
    check_flows(fabric, result.use)
    assert result.use.corrupted_packets.sum() == 0
    if options.network != "tcp":
        assert result.use.dropped_packets.sum() == 0
        assert result.retransmitted.sum() == 0
    rate_gbit_s = fabric.link_rate_gbit_s[fabric.ports.link[traffic.src]]
    assert (result.latency_ps >= traffic.size_bytes * 8_000 / rate_gbit_s).all()
    for message, first in enumerate(traffic.after_first[:-1]):
        before = traffic.after[first : traffic.after_first[message + 1]]
        assert result.start_ps[message] >= max(result.finish_ps[before] + traffic.delay_ps[message], default=0)
    assert PacketEngine().run(fabric, traffic, options).digest() == PacketEngine().run(*case).digest()


@settings(**FEW)
@given(cases(ways=[{}, {"switching": "store-and-forward"}]))
def test_hosts_send_the_payload_its_headers_and_an_acknowledgement_for_each_message(case):
    fabric, traffic, _ = case
    result, _ = run_dry(*case)
    written = traffic.operation != Operation.READ
    packets = np.maximum(-(-traffic.size_bytes // 4096), 1)
    first = np.where(traffic.transport == Transport.UD, 8, np.where(traffic.operation == Operation.WRITE, 16, 0))
    data_bytes = -(-traffic.size_bytes // 4) * 4 + 26 * packets + first
    sent = np.zeros(len(fabric.ports), np.int64)
    np.add.at(sent, traffic.src[written], data_bytes[written])
    np.add.at(sent, traffic.dst[written & (traffic.transport == Transport.RC)], 30)
    hosts = np.setdiff1d(host_ports(fabric), np.concatenate((traffic.src[~written], traffic.dst[~written])))
    assert (result.use.xmit_bytes[hosts] == sent[hosts]).all()


@pytest.mark.parametrize("paths", ["table", "adaptive"])
def test_bit_errors_lose_packets_and_no_message(paths):
    """RC retransmits lost packets until all arrive once: go-back-N in order, or only the lost packets out of order."""
    fabric = faults.degrade(routed("fat-tree:hosts=12,radix=8", False), "h1/1", 1e-6)
    rows = [("h1", f"h{i}", 100_000) for i in range(2, 9)] + [(f"h{i}", "h1", 100_000) for i in range(2, 9)]
    traffic = Traffic.of(fabric, rows)
    result, state = run_dry(fabric, traffic, Options(paths=paths, ack_timeout_exponent=4))
    assert result.done
    assert (result.acked_ps > 0).all()
    assert result.use.corrupted_packets.sum() > 0
    assert result.retransmitted.sum() > 0
    check_empty(fabric, traffic, result.options, state)
    check_flows(fabric, result.use)


def test_a_drop_tail_queue_loses_packets_and_tcp_brings_them_again():
    """Twelve senders, each limited to 15 Gbit/s by its copy, at a port of 100."""
    fabric = route(weft.load("star:hosts=13,speed=100GbE")).fabric
    traffic = Traffic.of(fabric, [(f"h{i}", "h1", 1_000_000) for i in range(2, 14)])
    result, state = run_dry(fabric, traffic, Options(network="tcp", paths="table", buffer_bytes=60_000))
    assert result.done
    assert result.use.dropped_packets[fabric["leaf1/1"].slot] > 0
    assert result.retransmitted.sum() >= result.use.dropped_packets.sum()
    check_empty(fabric, traffic, result.options, state)
    check_flows(fabric, result.use)
