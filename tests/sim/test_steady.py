"""A steady load: rates by the tables, waiting ports, and counters."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.collectives.ranks import place
from weft.errors import ConfigError, UnknownName
from weft.fabric import faults
from weft.fabric.counters import Counter
from weft.fabric.forwarding import Reason
from weft.fabric.joined_subnets import join_subnets
from weft.routing.patterns import rail_rings
from weft.routing.route import route
from weft.sim.flow.fair import fair_rates
from weft.sim.result import XMIT_WAIT_TICK_PS
from weft.sim.steady import Degradation, LoadJob, settle
from weft.sim.steady_counts import advance
from weft.sim.traffic import find_host_port

TREE = "fat-tree:hosts=16,radix=8"
DATA = 4096 / 4122  # payload per byte on the wire
LINE_GBIT_S = 394.92  # NDR's 400 less the overhead of the line


@pytest.fixture(scope="module")
def tree():
    return route(weft.load(TREE)).fabric


def job(fabric, pattern, *hosts, share=1.0, name="one"):
    slots = np.array([find_host_port(fabric, host) for host in hosts], np.int64)
    return LoadJob(name=name, pattern=pattern, hosts=slots, share=share)


def slot(fabric, name):
    return fabric[name].slot


def hop(fabric, src, dst):
    """Return the slots by which packets leave along a path."""
    steady = settle(fabric, [job(fabric, "ring", src, dst)])
    return steady.hop[: steady.hop_first[1]].tolist()


def test_flows_share_the_fullest_link_first():
    rate, held_by = fair_rates(np.array([0, 2, 3, 4]), np.array([0, 1, 0, 1], np.int32), np.array([10.0, 4.0]))
    assert rate.tolist() == [2, 8, 2]
    assert held_by.tolist() == [1, 0, 1]


def test_a_flow_alone_on_its_path_gets_its_demand(tree):
    steady = settle(tree, [job(tree, "ring", "h1", "h2", share=0.5)])
    assert steady.job_gbit_s[0] == pytest.approx(LINE_GBIT_S * DATA, rel=1e-4)
    assert steady.job_gbit_s[0] == pytest.approx(steady.job_wanted_gbit_s[0])
    assert not steady.wait.any()


@pytest.mark.parametrize(("servers", "spec"), [(32, "superpod:su=1"), (64, "superpod:su=2,servers=64")])
def test_a_ring_on_rails_stays_below_the_leaf_of_its_rail(servers, spec):
    """8 rings of one flow per server: 2 hops inside a scalable unit, and 2 more up and down where a ring crosses."""
    fabric = route(weft.load(spec)).fabric
    slots = np.concatenate([_compute_ports(fabric, f"dgx{number}") for number in range(1, servers + 1)])
    steady = settle(fabric, [LoadJob(name="train", pattern="ring", hosts=slots)])
    hops = np.diff(steady.hop_first)
    crossing = {32: 0, 64: 8 * 2}[servers]  # from dgx32 to dgx33 and from dgx64 to dgx1, on each rail
    assert (np.sort(hops) == np.repeat((2, 4), (8 * servers - crossing, crossing))).all()
    assert steady.job_slowest[0] == pytest.approx(1)
    assert not steady.wait.any()


def _compute_ports(fabric, server):
    return place(fabric, [server]).adapters[0]


def test_ring_of_one_server_has_all_its_ports():
    fabric = route(weft.load("superpod:su=1")).fabric
    slots = _compute_ports(fabric, "dgx1")
    assert rail_rings(fabric, slots).tolist() == [[rail, (rail + 1) % 8] for rail in range(8)]
    lone = np.concatenate((slots, _compute_ports(fabric, "dgx3")[:7]))  # the last rail of dgx1 has no partner
    assert rail_rings(fabric, lone).tolist() == [
        pair for rail in range(7) for pair in ([rail, 8 + rail], [8 + rail, rail])
    ]


def test_packets_to_another_subnet_carry_a_global_route_header():
    """40 bytes more in each packet that crosses the router: ten words more at its ports, and as much less payload."""
    joined = join_subnets(route(weft.load("subnets:2,of=star:hosts=2")).fabric)
    near = settle(joined, [job(joined, "incast", "s1-h2", "s1-h1")])
    far = settle(joined, [job(joined, "incast", "s2-h1", "s1-h1")])
    sender, router = slot(joined, "s1-h1/1"), slot(joined, "router1/2")
    assert near.words[sender] == pytest.approx((4096 + 24) / 4)
    assert far.words[sender] == far.words[router] == pytest.approx((4096 + 24 + 40) / 4)
    assert far.busy[router] == pytest.approx(1.0)
    assert far.job_gbit_s[0] / near.job_gbit_s[0] == pytest.approx(4122 / 4162, rel=1e-6)
    assert far.job_wanted_gbit_s[0] == pytest.approx(far.job_gbit_s[0], rel=1e-6)


def test_an_incast_shares_the_cable_of_its_receiver_and_its_senders_wait(tree):
    hosts = ["h16", "h1", "h5", "h9"]
    steady = settle(tree, [job(tree, "incast", *hosts)])
    assert steady.job_gbit_s[0] == pytest.approx(LINE_GBIT_S * DATA, rel=1e-4)
    assert steady.job_slowest[0] == pytest.approx(1 / 3, rel=1e-4)
    last = slot(tree, "h16/1")
    assert steady.busy[tree.ports.peer[last]] == pytest.approx(1)
    assert steady.wait[tree.ports.peer[last]] == pytest.approx(0, abs=1e-6), "it sends all the time"
    for sender in hosts[1:]:
        assert steady.wait[slot(tree, f"{sender}/1")] == pytest.approx(2 / 3, rel=1e-4)


def test_a_slow_receiver_makes_its_switch_port_wait(tree):
    host = slot(tree, "h16/1")
    steady = settle(tree, [job(tree, "ring", "h1", "h16")], Degradation(accept_share={host: 0.2}))
    facing = tree.ports.peer[host]
    assert steady.busy[facing] == pytest.approx(0.2)
    assert steady.wait[facing] == pytest.approx(0.8)
    assert steady.wait[slot(tree, "h1/1")] == pytest.approx(0.8)
    assert not steady.wait[host], "no congestion for its own messages"


def test_jobs_that_meet_on_a_cable_share_it(tree):
    out = hop(tree, "h1", "h16")[1]  # the leaf's output port
    rest = [f"h{n}" for n in range(5, 17) if hop(tree, "h2", f"h{n}")[1] == out and n != 16]
    jobs = [job(tree, "ring", "h1", "h16", name="a"), job(tree, "ring", "h2", rest[0], name="b")]
    steady = settle(tree, jobs)
    assert steady.busy[out] == pytest.approx(1)
    assert steady.job_slowest == pytest.approx([0.5, 0.5], rel=1e-4)


def test_nothing_is_sent_where_no_table_leads(tree):
    way = hop(tree, "h1", "h16")
    broken = faults.remove_link(tree, tree.port(way[1]).name)
    steady = settle(broken, [job(broken, "ring", "h1", "h16")])
    assert steady.job_slowest[0] == 0
    assert steady.lost[0] == (way[1], Reason.INACTIVE, 1)
    counts = advance(steady, 60.0, np.random.default_rng(1))
    ((at, why, packets), *_) = counts.dropped
    assert (at, why) == (way[1], Reason.INACTIVE)
    assert packets == pytest.approx(60 / 0.0671, rel=0.2), "it tries again each time its timeout is over"


def test_a_minute_is_counted_at_both_ends_of_every_cable(tree):
    steady = settle(tree, [job(tree, "all-to-all", *(f"h{n}" for n in range(1, 17)), share=0.7)])
    counters = advance(steady, 60.0, np.random.default_rng(1)).counters
    peer = tree.ports.peer
    up = np.flatnonzero(peer >= 0)
    for sent, received in (("XMIT_DATA_WORDS", "RCV_DATA_WORDS"), ("XMIT_PKTS", "RCV_PKTS")):
        assert (counters[up, Counter[f"PORT_{received}"]] == counters[peer[up], Counter[f"PORT_{sent}"]]).all()
    host = slot(tree, "h1/1")
    assert counters[host, Counter.PORT_XMIT_DATA_WORDS] * 32 / 60e9 == pytest.approx(0.7 * LINE_GBIT_S, rel=1e-3)
    assert counters[host, Counter.PORT_XMIT_WAIT] == 0


def test_waiting_is_counted_in_ticks(tree):
    steady = settle(tree, [job(tree, "ring", "h1", "h16")], Degradation(accept_share={slot(tree, "h16/1"): 0.2}))
    counters = advance(steady, 10.0, np.random.default_rng(1)).counters
    assert counters[slot(tree, "h1/1"), Counter.PORT_XMIT_WAIT] == pytest.approx(8e12 / XMIT_WAIT_TICK_PS, rel=1e-6)


@pytest.mark.parametrize("pattern", ["ring", "all-to-all", "permutation", "incast", "storage"])
def test_the_same_seed_counts_the_same(tree, pattern):
    hosts = [f"h{n}" for n in range(1, 17)]
    bad = faults.degrade(tree, "leaf1/5", 1e-9)
    each, other = (
        advance(settle(bad, [job(bad, pattern, *hosts)]), 30.0, np.random.default_rng(7)).counters for _ in range(2)
    )
    assert (each == other).all()
    assert each[:, Counter.PORT_XMIT_PKTS].any()


# -- errors -----------------------------------------------------------------------------------------------------------


def test_bits_err_on_an_idle_line_too(tree):
    bad = faults.degrade(tree, "leaf1/5", 1e-11, one_way=True)
    counters = advance(settle(bad, []), 100.0, np.random.default_rng(1)).counters
    assert np.flatnonzero(counters.any(axis=1)).tolist() == [slot(bad, "leaf1/5")], "the receiving end alone"
    assert counters[slot(bad, "leaf1/5"), Counter.SYMBOL_ERROR] == pytest.approx(400e9 * 100 * 1e-11, abs=5 * 400**0.5)


def test_spoilt_packets_are_counted_where_they_were_hit_and_as_remote_errors_further_on(tree):
    way = hop(tree, "h1", "h16")
    hit = int(tree.ports.peer[way[0]])
    bad = faults.degrade(tree, tree.port(hit).name, 1e-9, one_way=True)
    counters = advance(settle(bad, [job(bad, "ring", "h1", "h16")]), 60.0, np.random.default_rng(1)).counters
    errors, remote = counters[:, Counter.PORT_RCV_ERRORS], counters[:, Counter.PORT_RCV_REMOTE_PHYSICAL_ERRORS]
    assert np.flatnonzero(errors).tolist() == [hit]
    assert errors[hit] == pytest.approx(60 * LINE_GBIT_S, rel=0.05), "one in 1e9 bits of packets"
    assert counters[hit, Counter.SYMBOL_ERROR] == pytest.approx(60 * 400, rel=0.05)
    assert sorted(np.flatnonzero(remote).tolist()) == sorted(tree.ports.peer[way[1:]].tolist())
    assert set(remote[remote > 0].tolist()) == {errors[hit]}


def test_good_cables_hardly_err_and_not_all_the_same(tree):
    counters = advance(settle(tree, []), 86_400.0, np.random.default_rng(1)).counters
    errors = counters[:, Counter.SYMBOL_ERROR]
    assert 0 < (errors > 0).sum() < len(errors)
    assert errors.max() <= 86_400 * 400e9 * 1e-15 + 5 * 6


def test_errors_cost_the_flows_that_meet_them(tree):
    ways = [job(tree, "ring", "h1", "h16", name="a"), job(tree, "ring", "h2", "h3", name="b")]
    bad = faults.degrade(tree, "h1/1", 1e-7)
    steady = settle(bad, ways)
    assert 0.05 < steady.job_slowest[0] < 0.2
    assert steady.job_slowest[1] == pytest.approx(1)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"pattern": "rings"}, UnknownName, "ring"),
        ({"share": 0.0}, ConfigError, r"must be in \(0, 1\], got 0"),
        ({"share": 1.5}, ConfigError, "got 1.5"),
        ({"hosts": ("h1", "h2", "h1")}, ConfigError, "job one lists a host twice"),
        ({"hosts": ("h1",)}, ConfigError, "job one has 1 host; give 2 or more"),
    ],
)
def test_an_invalid_job_is_refused_by_its_name(tree, arguments, kind, message):
    words = {"pattern": "ring", "hosts": ("h1", "h2"), "share": 1.0} | arguments
    with pytest.raises(kind, match=message):
        settle(tree, [job(tree, words["pattern"], *words["hosts"], share=words["share"])])


def test_too_many_pairs_are_refused_before_they_are_made(tree):
    crowd = LoadJob(name="one", pattern="all-to-all", hosts=np.arange(11_664))
    with pytest.raises(ConfigError, match="11,664 hosts makes 136,048,896 pairs, the limit is 2,000,000"):
        settle(tree, [crowd])


def test_advancing_by_zero_seconds_is_refused(tree):
    with pytest.raises(ConfigError, match="the time to advance must be above 0"):
        advance(settle(tree, []), 0.0, np.random.default_rng(1))
