"""Packets, flows and closed forms agree where theory has one answer; and the limits of closed forms."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import weft
from weft.collectives.ranks import place
from weft.collectives.schedules.ring import chain_broadcast, ring_all_reduce
from weft.collectives.traffic import program_traffic
from weft.fabric import faults
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.engines import ENGINES
from weft.sim.result import NEVER
from weft.sim.traffic import Operation, Traffic

TREE, STAR, ETHERNET = "fat-tree:hosts=16,radix=8", "star:hosts=8", "fat-tree:hosts=16,radix=8,speed=400GbE"


@cache
def routed(spec):
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def host_ports(fabric):
    return np.array([int(fabric.first_port[node.index]) + 1 for node in fabric.hcas])


def run_all(fabric, traffic, **options):
    return [engine.run(fabric, traffic, Options(**options)) for engine in ENGINES.values()]


def analytic(fabric, traffic, **options):
    return ENGINES["analytic"].run(fabric, traffic, Options(**options))


def packet_ps(fabric):
    """Return the time of a packet of 4096 bytes on the link."""
    shorter, longer = (analytic(fabric, Traffic.of(fabric, [("h2", "h1", size)])) for size in (40_960, 45_056))
    return longer.last_arrival_ps - shorter.last_arrival_ps


def check_same(fabric, traffic, **options):
    """Assert that all three engines give every message the same picosecond and every byte the same port."""
    packet, *rest = run_all(fabric, traffic, **options)
    for other in rest:
        for name in ("start_ps", "finish_ps", "acked_ps"):
            assert getattr(other, name).tolist() == getattr(packet, name).tolist(), (other.engine, name)
        for name in ("xmit_bytes", "xmit_packets", "busy_ps"):
            assert getattr(other.use, name).tolist() == getattr(packet.use, name).tolist(), (other.engine, name)
        assert (other.packets, other.packet_hops) == (packet.packets, packet.packet_hops)


def check_near(fabric, traffic, *, rounding_ps, part, **options):
    """Assert that closed forms equal flows except for rounding, and packets within a relative tolerance per message."""
    packet, flow, closed = run_all(fabric, traffic, **options)
    assert np.abs(closed.finish_ps - flow.finish_ps).max() <= rounding_ps
    assert closed.latency_ps == pytest.approx(packet.latency_ps, rel=part)
    return packet, closed


def twice(once, apart_ps):
    """Return the traffic and a copy of it that starts `apart_ps` later."""
    n, arcs = len(once), len(once.after)
    return Traffic.make(
        *(np.tile(column, 2) for column in (once.src, once.dst, once.size_bytes)),
        start_ps=np.repeat([0, apart_ps], n),
        after=(
            np.concatenate((once.after_first, once.after_first[1:] + arcs)),
            np.concatenate((once.after, once.after + n)),
        ),
    )


# -- one answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("switching", ["cut-through", "store-and-forward"])
@pytest.mark.parametrize("size_bytes", [0, 221, 4097, 100_000])
def test_a_message_alone_is_alpha_and_beta(size_bytes, switching):
    fabric = routed(TREE)
    for operation in Operation:
        check_same(fabric, Traffic.of(fabric, [("h1", "h16", size_bytes)], operation=operation), switching=switching)


@pytest.mark.parametrize("options", [{"memory": "staged"}, {"network": "tcp"}, {"network": "roce"}])
def test_memories_and_processors_on_the_way_cost_the_same(options):
    fabric = routed(ETHERNET)
    check_same(fabric, Traffic.of(fabric, [("h1", "h16", 1_000_001)]), **options)


@pytest.mark.parametrize("switching", ["cut-through", "store-and-forward"])
def test_a_chain_of_messages_is_the_sum_of_its_links(switching):
    """Each waits for the message before and a pause; the slowest cable is in the middle."""
    fabric = faults.slow(routed(STAR), "h3/1", "1xHDR")
    rows = [("h1", "h2", 50_000), ("h2", "h3", 50_000), ("h3", "h4", 50_000)]
    check_same(fabric, Traffic.of(fabric, rows, after=[[], [0], [1]], delay_ps=[0, 700, 70]), switching=switching)


@pytest.mark.parametrize("senders", [["h2"] * 5, ["h2", "h3", "h4", "h5", "h6"]])
def test_n_equal_flows_on_one_link_take_n_times_as_long(senders):
    """The flows are queue pairs of one adapter, or an incast. Packets end one turn apart, the last at the same time."""
    fabric = routed(STAR)
    n, beta_ps = len(senders), packet_ps(fabric)
    traffic = Traffic.of(fabric, [(sender, "h1", 100 * 4096) for sender in senders], qp=list(range(n)))
    packet, flow, closed = run_all(fabric, traffic)
    alone = analytic(fabric, Traffic.of(fabric, [("h2", "h1", 100 * 4096)]))
    assert closed.latency_ps == pytest.approx(alone.latency_ps[0] + (n - 1) * 100 * beta_ps, abs=beta_ps)
    assert np.abs(closed.finish_ps - flow.finish_ps).max() <= 1
    assert np.abs(closed.finish_ps - packet.finish_ps).max() <= 2 * n * beta_ps
    assert closed.last_arrival_ps == pytest.approx(packet.last_arrival_ps, abs=beta_ps)


def test_an_incast_of_four_between_leaves_ends_with_its_last_packet():
    fabric = routed(TREE)
    traffic = Traffic.of(fabric, [(f"h{i}", "h1", 1_000_000) for i in (5, 9, 13, 14)])
    packet, flow, closed = run_all(fabric, traffic)
    assert np.abs(closed.finish_ps - flow.finish_ps).max() <= 1
    assert closed.last_arrival_ps == pytest.approx(packet.last_arrival_ps, abs=packet_ps(fabric))


def test_unequal_flows_on_one_link_end_one_by_one():
    """Flows of 1 to 5 parts start together: processor sharing has a closed form, the sum of min(x, B)."""
    fabric = routed(STAR)
    part_bytes, part_ps = 100 * 4096, 100 * packet_ps(fabric)
    traffic = Traffic.of(fabric, [(f"h{i + 1}", "h1", i * part_bytes) for i in range(1, 6)])
    packet, flow, closed = run_all(fabric, traffic)
    parts = [sum(min(i, j) for j in range(1, 6)) for i in range(1, 6)]
    assert np.diff(closed.latency_ps) == pytest.approx(np.diff(parts) * part_ps, rel=1e-3)
    assert np.abs(closed.finish_ps - flow.finish_ps).max() <= 1
    assert np.abs(closed.finish_ps - packet.finish_ps).max() <= 10 * packet_ps(fabric)


@pytest.mark.parametrize("by", [4, 8])
def test_a_permutation_without_conflicts_runs_as_if_each_were_alone(by):
    fabric = routed(TREE)
    hosts = host_ports(fabric)
    traffic = Traffic.make(hosts, np.roll(hosts, -by), 1_000_000)
    packet, closed = check_near(fabric, traffic, rounding_ps=0, part=0.0001)
    alone = analytic(fabric, Traffic.of(fabric, [("h1", "h16", 1_000_000)]))
    assert (closed.latency_ps == alone.latency_ps[0]).all()
    assert closed.use.xmit_bytes.tolist() == packet.use.xmit_bytes.tolist()


def test_a_permutation_of_equal_messages_ends_with_its_most_loaded_link():
    """Static routes have conflicts: in all three engines no flow on that link gets more than its equal share."""
    fabric = routed(TREE)
    hosts = host_ports(fabric)
    order = np.random.default_rng(1).permutation(len(hosts))
    traffic = Traffic.make(hosts[order], hosts[np.roll(order, 1)], 1_000_000)
    packet, closed = check_near(fabric, traffic, rounding_ps=1, part=0.005)
    assert closed.latency_ps.max() > 1.8 * closed.latency_ps.min()
    assert closed.last_arrival_ps == pytest.approx(packet.last_arrival_ps, rel=0.0001)


def test_a_spread_permutation_runs_as_if_each_were_alone():
    """This holds for any permutation and any sizes if every flow is spread evenly over all spines."""
    fabric = routed(TREE)
    hosts = host_ports(fabric)
    order = np.random.default_rng(1).permutation(len(hosts))
    sizes = 100_000 * np.arange(1, len(hosts) + 1)
    traffic = Traffic.make(hosts[order], hosts[np.roll(order, 1)], sizes)
    flow, closed = (ENGINES[name].run(fabric, traffic, Options(paths="spray")) for name in ("flow", "analytic"))
    assert closed.finish_ps.tolist() == flow.finish_ps.tolist()
    alone = analytic(fabric, Traffic.of(fabric, [("h1", "h16", int(sizes[-1]))]), paths="spray")
    assert closed.latency_ps[-1] == alone.latency_ps[0]


def test_message_that_starts_as_another_ends_has_the_whole_link():
    fabric = routed(STAR)
    size_bytes = 100 * 4096
    alone = analytic(fabric, Traffic.of(fabric, [("h2", "h1", size_bytes)]))
    sending_ps = int(alone.use.busy_ps[alone.traffic.src[0]])
    traffic = Traffic.of(fabric, [("h2", "h1", size_bytes), ("h3", "h1", size_bytes)], start_ps=[0, sending_ps])
    for result in run_all(fabric, traffic):
        assert result.latency_ps == pytest.approx(alone.latency_ps[0], abs=packet_ps(fabric)), result.engine


def test_a_ring_all_reduce_is_its_steps_one_after_the_other():
    """2 (n - 1) times the time of one chunk alone: Patarasuk and Yuan's closed form."""
    fabric = routed(STAR)
    traffic = program_traffic(ring_all_reduce(8), place(fabric), 1 << 20)
    _, closed = check_near(fabric, traffic, rounding_ps=0, part=0.0001)
    step = analytic(fabric, Traffic.of(fabric, [("h1", "h2", (1 << 20) // 8)]))
    assert closed.last_arrival_ps == 14 * step.last_arrival_ps
    assert closed.events == 14


def test_a_slow_cable_holds_the_whole_ring():
    """In every step the cable still has data of the steps before: waves keep their backlog."""
    fabric = faults.slow(routed(STAR), "h2/1", "1xHDR")
    traffic = program_traffic(ring_all_reduce(8), place(fabric), 1 << 20)
    _, closed = check_near(fabric, traffic, rounding_ps=14, part=0.001)
    assert closed.last_arrival_ps > 3 * analytic(routed(STAR), traffic).last_arrival_ps


def test_slices_down_a_chain_follow_each_other():
    """All slices on a link have the same depth: they are one wave, in which they arrive one by one."""
    fabric = routed(STAR)
    traffic = program_traffic(chain_broadcast(8, 16), place(fabric), 1 << 21)
    _, closed = check_near(fabric, traffic, rounding_ps=16, part=0.001)
    assert closed.events == 7


@pytest.mark.parametrize("outstanding", [0, 1, 4])
@pytest.mark.parametrize("size_bytes", [8, 65_536])
def test_messages_of_one_queue_pair_follow_each_other_alike(size_bytes, outstanding):
    """Limits are the message rate, memory reads, and the window of unacknowledged messages."""
    fabric = routed(TREE)
    for operation in (Operation.WRITE, Operation.READ):
        rows = [("h1", "h16", size_bytes)] * 40
        traffic = Traffic.of(fabric, rows, outstanding=outstanding, operation=operation)
        packet, flow, closed = run_all(fabric, traffic)
        assert np.abs(closed.finish_ps - flow.finish_ps).max() <= len(rows)  # flows round each message
        rounded_ps = packet.packets / 2 if operation is Operation.WRITE else packet_ps(fabric)  # requests delay packets
        assert np.abs(closed.finish_ps - packet.finish_ps).max() <= rounded_ps
        assert closed.use.xmit_bytes.tolist() == packet.use.xmit_bytes.tolist()


def test_two_queue_pairs_share_a_port_message_by_message():
    """The k-th messages of both end together, as if each queue pair had half of the port from the start."""
    fabric = routed(STAR)
    traffic = Traffic.of(fabric, [("h2", "h1", 65_536)] * 40, qp=[0, 1] * 20)
    _, flow, closed = run_all(fabric, traffic)
    assert np.abs(closed.finish_ps - flow.finish_ps).max() <= 40


def test_collectives_far_apart_in_time_do_not_meet():
    """The second starts long after the first; its waves have the same depth."""
    fabric = faults.slow(routed(STAR), "h2/1", "1xHDR")
    once = program_traffic(ring_all_reduce(8), place(fabric), 1 << 20)
    n, apart_ps = len(once), 1_000_000_000
    result = analytic(fabric, twice(once, apart_ps)).finish_ps
    expected = analytic(fabric, once).finish_ps
    assert result[:n].tolist() == expected.tolist()
    assert result[n:].tolist() == (expected + apart_ps).tolist()


def test_a_stopped_run_says_what_has_arrived_and_what_was_sent():
    fabric = routed(TREE)
    traffic = Traffic.of(fabric, [("h1", "h16", 10_000), ("h2", "h15", 5_000_000)])
    _, flow, closed = run_all(fabric, traffic, stop_at_ps=50_000_000)
    assert closed.finish_ps.tolist() == flow.finish_ps.tolist()
    assert closed.acked_ps[1] == NEVER
    assert np.abs(closed.use.xmit_bytes - flow.use.xmit_bytes).max() <= 4096


# -- limits of closed forms --------------------------------------------------------------------------------------------


def test_closed_form_gives_no_bandwidth_of_a_limited_message_to_others():
    """Two to one, the first over a cable with an eighth of the rate. Closed forms give the second half of the last
    link instead of seven eighths: too long, at most by a factor of the number of sharers. The last message is exact."""
    fabric = faults.slow(routed(STAR), "h2/1", "1xHDR")
    packet, flow, closed = run_all(fabric, Traffic.of(fabric, [("h2", "h1", 1_000_000), ("h3", "h1", 1_000_000)]))
    alone = analytic(fabric, Traffic.of(fabric, [("h3", "h1", 1_000_000)]))
    for other in (packet, flow):
        assert 1.5 < closed.latency_ps[1] / other.latency_ps[1] < 2
        assert closed.last_arrival_ps == pytest.approx(other.last_arrival_ps, rel=1e-5)
    assert closed.latency_ps[1] < 2 * alone.latency_ps[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_closed_form_never_underestimates_a_busy_link(seed):
    """Random sizes and starts, one receiver: never too short, and exact for the last message."""
    fabric = routed(STAR)
    chance = np.random.default_rng(seed)
    rows = [(f"h{i % 7 + 2}", "h1", int(size)) for i, size in enumerate(chance.integers(1_000, 1_000_000, 20))]
    traffic = Traffic.of(fabric, rows, start_ps=chance.integers(100_000_000, size=20), qp=list(range(20)))
    _, flow, closed = run_all(fabric, traffic)
    later_ps = closed.finish_ps - flow.finish_ps
    assert later_ps.min() >= -20  # flows round at each change of rates
    assert later_ps.max() > 1_000_000
    assert closed.last_arrival_ps == pytest.approx(flow.last_arrival_ps, abs=100)  # another message may be the last


def test_collectives_that_overlap_take_the_time_of_the_link_that_they_share():
    """A collective starts during another of the same hosts, over a slow cable: their steps overlap at other depths."""
    fabric = faults.slow(routed(STAR), "h2/1", "1xHDR")
    once = program_traffic(ring_all_reduce(8), place(fabric), 1 << 20)
    _, flow, closed = run_all(fabric, twice(once, 30_000_000))
    assert closed.last_arrival_ps == pytest.approx(flow.last_arrival_ps, rel=0.05)
