"""The flow engine by itself: fair rates, paths of flows, and refusals."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.flow.engine import FlowEngine
from weft.sim.flow.fair import fair_rates
from weft.sim.flow.loop import run_moments
from weft.sim.flow.plan import RATE_TOLERANCE, plan
from weft.sim.flow.state import Stop, make_nodes
from weft.sim.layout.records import NONE
from weft.sim.patterns import uniform
from weft.sim.result import NEVER
from weft.sim.traffic import Traffic

TREE = "fat-tree:hosts=16,radix=8"


@cache
def routed(spec):
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def host_ports(fabric):
    return np.array([int(fabric.first_port[node.index]) + 1 for node in fabric.hcas])


def run(fabric, rows, *, columns=None, **options):
    return FlowEngine().run(fabric, Traffic.of(fabric, rows, **(columns or {})), Options(**options))


def textbook_rates(capacity, shares):
    """Compute max-min fair rates by the textbook: all grow together, and a flow on a full link stops.

    `shares` has for each flow its share on each of its links.
    """
    rates = np.zeros(len(shares))
    growing = set(range(len(shares)))
    room = {link: capacity[link] for flow in shares for link in flow}
    while growing:
        use = dict.fromkeys(room, 0.0)
        for flow in growing:
            for link, share in shares[flow].items():
                use[link] += share
        step = min(room[link] / share for link, share in use.items() if share)
        for flow in growing:
            rates[flow] += step
        for link, share in use.items():
            room[link] -= share * step
        full = {link for link, share in use.items() if share and room[link] < 1e-9 * capacity[link]}
        growing = {flow for flow in growing if not full & set(shares[flow])}
    return rates


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_rates_of_random_flows_over_random_links_are_those_of_the_textbook(data):
    links = data.draw(st.integers(1, 12))
    capacity = np.array(data.draw(st.lists(st.floats(0.5, 100), min_size=links, max_size=links)))
    paths = data.draw(st.lists(st.sets(st.integers(0, links - 1), min_size=1, max_size=4), min_size=1, max_size=30))
    first = np.concatenate(([0], np.cumsum([len(path) for path in paths])))
    rate, bottleneck = fair_rates(first, np.array([link for path in paths for link in path], np.int32), capacity)
    expected = textbook_rates(capacity, [dict.fromkeys(path, 1.0) for path in paths])
    assert rate == pytest.approx(expected, rel=1e-6)
    assert all(link in path for link, path in zip(bottleneck.tolist(), paths, strict=True))


def random_traffic(fabric, seed, messages):
    """Return messages of random sizes between random hosts that start at random times."""
    chance = np.random.default_rng(seed)
    src, dst = chance.choice(host_ports(fabric), (2, messages))
    apart = src != dst
    sizes, start_ps = chance.integers(1, 1_000_000, messages), chance.integers(20_000_000, size=messages)
    return Traffic.make(src[apart], dst[apart], sizes[apart], start_ps=start_ps[apart])


@pytest.mark.parametrize("paths", ["table", "adaptive"])
@pytest.mark.parametrize("spec", [TREE, "torus:4x4", "dragonfly:p=1,a=4,h=1"])
@pytest.mark.parametrize("seed", [1, 2])
def test_rates_are_max_min_fair_at_every_moment(spec, paths, seed):
    """Random flows that start and end at random over cables of several rates: rates are those of a solver without
    shortcuts, and the load of each link is their sum."""
    fabric = faults.slow(routed(spec), "h2/1", "1xHDR")
    state = plan(fabric, random_traffic(fabric, seed, 80), Options(paths=paths)).state
    state.run.until_ps, state.run.tolerance = 1 << 52, 1e-12
    nodes = [slice(*state.node_first[flow : flow + 2]) for flow in range(len(state.flows))]
    shares = [dict(zip(state.node_class[at].tolist(), state.node_share[at].tolist(), strict=True)) for at in nodes]
    most = 0
    while run_moments(state, 5):
        active = np.flatnonzero(state.flows.message >= 0)
        expected = textbook_rates(state.classes.capacity, [shares[flow] for flow in active])
        assert state.flows.rate[active] == pytest.approx(expected, rel=1e-9)
        load = np.zeros(len(state.classes))
        for flow, rate in zip(active, expected, strict=True):
            load[state.node_class[nodes[flow]]] += rate * state.node_share[nodes[flow]]
        assert state.classes.load == pytest.approx(load, rel=1e-9, abs=1e-12)
        most = max(most, len(active))
    assert most > 10


def latencies(traffic, fabric, tolerance, batch_ps=None):
    state = plan(fabric, traffic, Options()).state
    state.run.until_ps, state.run.tolerance = 1 << 52, tolerance
    if batch_ps is not None:
        state.run.batch_ps = batch_ps
    run_moments(state, 1 << 40)
    return state.messages.finish_ps - state.messages.start_ps


def test_rates_kept_within_the_tolerance_change_arrivals_by_less():
    """Uniform traffic at a high load, where nearly every start and end moves the rates of a large part of the flows."""
    fabric = routed("fat-tree:hosts=64,radix=16")
    traffic = uniform(fabric, size_bytes=65_536, load=0.8, duration_ps=30_000_000)
    exact, near = (latencies(traffic, fabric, tolerance, 0) for tolerance in (1e-12, RATE_TOLERANCE))
    assert (exact != near).any()
    assert np.abs(near / exact - 1).max() < 2 * RATE_TOLERANCE
    assert near.mean() == pytest.approx(exact.mean(), rel=RATE_TOLERANCE / 5)


@pytest.mark.parametrize("size_bytes", [8192, 65_536])
def test_changes_that_wait_for_others_hardly_move_arrivals(size_bytes):
    fabric = routed("fat-tree:hosts=128,radix=8")
    traffic = uniform(fabric, size_bytes=size_bytes, load=0.9, duration_ps=300 * size_bytes)
    exact, near = latencies(traffic, fabric, 1e-12, 0), latencies(traffic, fabric, RATE_TOLERANCE)
    error = np.abs(near / exact - 1)
    assert 1e-4 < error.mean() < 0.01
    assert error.max() < 0.15
    assert near.mean() == pytest.approx(exact.mean(), rel=0.01)


def assert_max_min_fair(state):
    """Check the rates of all flows under way, and the loads of all links."""
    active = np.flatnonzero(state.flows.message >= 0)
    nodes = [slice(*state.node_first[flow : flow + 2]) for flow in active]
    shares = [dict(zip(state.node_class[at].tolist(), state.node_share[at].tolist(), strict=True)) for at in nodes]
    expected = textbook_rates(state.classes.capacity, shares)
    assert state.flows.rate[active] == pytest.approx(expected, rel=1e-9)
    load = np.zeros(len(state.classes))
    for rate, flow in zip(expected, shares, strict=True):
        load[list(flow)] += rate * np.array(list(flow.values()))
    assert state.classes.load == pytest.approx(load, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("messages", "fresh"), [(1500, True), (500, False)])
def test_rates_after_changes_that_waited_are_max_min_fair(messages, fresh):
    """With many changes among the flows under way they are solved from scratch, with few of them as one at a time."""
    fabric = faults.slow(routed("fat-tree:hosts=64,radix=16"), "h2/1", "1xHDR")
    chance = np.random.default_rng(1)
    src = chance.integers(0, 64, messages)
    dst = (src + chance.integers(1, 64, messages)) % 64
    ports = host_ports(fabric)
    sizes = chance.integers(1, 40_000 if fresh else 400_000, messages)
    traffic = Traffic.make(
        ports[src], ports[dst], sizes, start_ps=chance.integers(3_000_000 if fresh else 8_000_000, size=messages)
    )
    state = plan(fabric, traffic, Options()).state
    state.run.until_ps, state.run.tolerance = 1 << 52, 1e-12
    checked = waits = 0
    while run_moments(state, 1):
        waits += int(state.run.waiting[0])
        active = np.flatnonzero(state.flows.message >= 0)
        if waits > 100 * (checked + 1) and not state.run.waiting[0]:
            assert (state.flows.linked[active]).all()
            assert_max_min_fair(state)
            checked += 1
    assert checked > 3
    assert (state.parts.solution.max() > 0) == fresh


def test_bursts_and_single_changes_take_turns():
    """A burst is solved from scratch, without the lists of links that the single changes after it need."""
    fabric = faults.slow(routed("fat-tree:hosts=64,radix=16"), "h2/1", "1xHDR")
    chance = np.random.default_rng(2)
    bursts, each, singles = 5, 250, 4
    begin_ps = 2_000_000 * (1 + np.arange(bursts))
    burst_ps = (begin_ps[:, None] + chance.integers(50_000, size=(bursts, each))).ravel()
    single_ps = (begin_ps[:, None] + 500_000 + 300_000 * np.arange(singles)).ravel()
    start_ps = np.concatenate((np.zeros(500, np.int64), burst_ps, single_ps))
    sizes = np.concatenate((np.full(500, 1_000_000), chance.integers(1, 4000, bursts * each), np.full(20, 50_000)))
    src = chance.integers(0, 64, len(start_ps))
    dst = (src + chance.integers(1, 12, len(start_ps))) % 64  # few pairs: queue pairs send several messages
    ports = host_ports(fabric)
    state = plan(fabric, Traffic.make(ports[src], ports[dst], sizes, start_ps=start_ps), Options()).state
    state.run.until_ps, state.run.tolerance = int(begin_ps[-1]) + 2_000_000, 1e-12
    fresh, turns, last = 0, [], -1
    while run_moments(state, 1) == Stop.SLICE:
        if state.run.waiting[0] or state.run.solutions[0] == last:
            continue
        turns.append(fresh < (fresh := int(state.parts.solution.max())))
        last = int(state.run.solutions[0])
        if turns[-1:] != turns[-2:-1]:
            assert_max_min_fair(state)
    assert sum(before != after for before, after in pairwise(turns)) >= 2 * bursts - 1


def test_links_that_carry_the_same_flows_are_one():
    """A shift between leaves leaves every flow alone on its path, host to host: one class of links each."""
    fabric = routed(TREE)
    hosts = host_ports(fabric)
    plan_of_run = plan(fabric, Traffic.make(hosts, np.roll(hosts, -4), 1000), Options())
    assert len(plan_of_run.state.classes) == len(hosts)


def test_nothing_is_solved_for_messages_that_follow_each_other():
    fabric = routed(TREE)
    result = run(fabric, [("h1", "h16", 1_000_000)] * 20)
    assert result.events == 1


def test_a_flow_that_ends_leaves_its_rate_to_the_others():
    """Three to one, of 1, 2 and 3 parts: the first ends after 3 parts' time, the second after 5, the last after 6."""
    fabric = routed("star:hosts=6")
    part = 4_096_000
    result = run(fabric, [("h2", "h1", part), ("h3", "h1", 2 * part), ("h4", "h1", 3 * part)])
    each, two = (run(fabric, [("h2", "h1", n * part)]).latency_ps[0] for n in (1, 2))
    assert (result.latency_ps - each) / (two - each) + 1 == pytest.approx([3, 5, 6], rel=1e-5)


@pytest.mark.parametrize("paths", ["adaptive", "spray"])
def test_a_spread_flow_takes_an_even_part_of_every_spine(paths):
    fabric = routed(TREE)
    result = run(fabric, [("h1", "h16", 4_000_000)], paths=paths)
    leaf = fabric.ports.node[fabric.ports.peer[host_ports(fabric)[0]]]
    mine = fabric.ports.node == leaf
    up = result.use.xmit_bytes[mine]
    up = up[up > 4_000_000 // 8]
    assert len(up) == 4
    assert up.max() - up.min() <= 1
    packets = result.use.xmit_packets[mine][result.use.xmit_bytes[mine] > 4_000_000 // 8]
    assert result.use.xmit_packets[host_ports(fabric)[0]] == 977  # packets of 4,096 bytes
    assert packets.tolist() == [244] * 4


def test_a_spread_permutation_runs_at_line_rate_on_a_tree_that_does_not_block():
    fabric = routed(TREE)
    hosts = host_ports(fabric)
    order = np.random.default_rng(3).permutation(len(hosts))
    traffic = Traffic.make(hosts[order], hosts[np.roll(order, 1)], 2_000_000)
    spread, table = (FlowEngine().run(fabric, traffic, Options(paths=paths)) for paths in ("spray", "table"))
    alone = run(fabric, [("h1", "h16", 2_000_000)]).latency_ps[0]
    assert spread.latency_ps.max() <= alone * 1.001
    assert table.latency_ps.max() > alone * 1.9


def test_a_slow_cable_holds_only_the_flows_that_take_it():
    fabric = faults.slow(routed("star:hosts=6"), "h2/1", "1xHDR")
    result = run(fabric, [("h2", "h1", 1_000_000), ("h3", "h1", 1_000_000)])
    alone = run(fabric, [("h3", "h1", 1_000_000)]).latency_ps[0]
    assert result.latency_ps[0] == run(fabric, [("h2", "h1", 1_000_000)]).latency_ps[0]
    assert alone * 1.05 < result.latency_ps[1] < alone * 1.25


def test_a_stopped_run_reports_arrivals_and_bytes_sent():
    fabric = routed(TREE)
    result = run(fabric, [("h1", "h16", 10_000), ("h2", "h15", 5_000_000)], stop_at_ps=50_000_000)
    assert result.finish_ps[0] > 0
    assert result.finish_ps[1] == result.acked_ps[1] == NEVER
    sent = result.use.xmit_bytes[result.traffic.src[1]]
    assert 2_000_000 < sent < 2_500_000


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda fabric: fabric, {"watch": ("h1/1",)}, "no queues"),
        (lambda fabric: fabric, {"buffer_bytes": 65_536}, "buffer_bytes has no effect on flows"),
        (lambda fabric: fabric, {"skip_tolerance": 0.1}, "skip_tolerance has no effect on flows"),
        (lambda fabric: fabric, {"ack_timeout_exponent": 4}, "ack_timeout_exponent has no effect on flows"),
        (lambda fabric: fabric, {"congestion_control": "ib"}, "congestion_control has no effect on flows"),
        (lambda fabric: faults.degrade(fabric, "h1/1", 1e-8), {}, "bit errors"),
        (lambda fabric: faults.degrade(fabric, "leaf1/1", 1e-8, one_way=True), {}, "bit errors"),
    ],
)
def test_features_without_a_flow_model_are_refused(change, options, words):
    with pytest.raises(ConfigError, match=words):
        run(change(routed(TREE)), [("h1", "h16", 1000)], **options)


@pytest.mark.parametrize("network", ["roce", "tcp"])
def test_the_options_of_a_result_are_accepted_again(network):
    fabric = routed(f"{TREE},speed=400GbE")
    result = run(fabric, [("h1", "h16", 1000)], network=network)
    assert FlowEngine().run(fabric, result.traffic, result.options).digest() == result.digest()


def test_a_bad_cable_without_traffic_is_accepted():
    for elsewhere in ({"port_name": "h2/1"}, {"port_name": "h1/1", "one_way": True}):
        fabric = faults.degrade(routed(TREE), **elsewhere, bit_error_rate=1e-8)
        assert run(fabric, [("h1", "h16", 1000)]).done


@pytest.mark.parametrize("n", [0, 1, 3])
def test_columns_of_any_number_of_nodes_have_one_layout(n):
    """Kernels are compiled for a layout, and numpy calls a column of one row contiguous."""
    columns = make_nodes(np.array([0, n]), np.arange(n, dtype=np.int32), np.full(n, 0.5))
    assert not any(column.flags.c_contiguous for column in columns.values())
    assert columns["node_class"][:n].tolist() == list(range(n))
    assert columns["node_share"][:n].tolist() == [0.5] * n
    assert columns["node_flow"][:n].tolist() == [0] * n
    assert columns["node_next"][:n].tolist() == columns["node_prev"][:n].tolist() == [NONE] * n
