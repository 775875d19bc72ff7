"""Load and bandwidth: closed forms first, then an oracle in plain Python."""

from __future__ import annotations

from collections import Counter
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ConfigError, SubnetError
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.routing import quality
from weft.routing.engine import Options
from weft.routing.patterns import bisection, host_ports
from weft.routing.quality import Quality, measure
from weft.routing.route import route


def routed(fabric: Fabric | str, engine: str = "fat-tree", lmc: int = 0) -> Fabric:
    fabric = weft.load(fabric) if isinstance(fabric, str) else fabric
    return route(fabric, Options(engine=engine, lmc=lmc)).fabric


def switches_in_a_row(hosts: list[int], trunk: str = "NDR", host_speed: str = "NDR") -> Fabric:
    """Build a row of switches with so many hosts each, NDR, and one link from each to the next."""
    builder = FabricBuilder("row")
    rows = builder.add_nodes(NodeKind.SWITCH, [f"sw{n}" for n in range(1, len(hosts) + 1)], n_ports=40)
    for switch, count in zip(rows, hosts, strict=True):
        names = [f"h{builder.n_nodes + n}" for n in range(count)]
        builder.add_links(
            builder.add_nodes(NodeKind.HCA, names, n_ports=1), 1, switch, np.arange(1, count + 1), host_speed
        )
    if len(rows) > 1:
        builder.add_links(rows[:-1], 40, rows[1:], 39, trunk)
    return builder.build()


def link_loads(fabric: Fabric, result: Quality) -> dict[str, float]:
    return {fabric.port(int(slot)).name: float(load) for slot, load in zip(result.links, result.load, strict=True)}


# -- closed forms -----------------------------------------------------------------------------------------------------


def test_a_star_is_a_crossbar():
    """Every host's own port carries all of its flows, and no other link is a bottleneck."""
    result = measure(routed("star:hosts=12", "up-down"))
    assert result.all_to_all.max_load == result.all_to_all.mean_load == 11
    assert [pattern.slowdown for pattern in result.patterns] == [1, 1]
    assert (result.shifts.shifts, result.shifts.mean, result.shifts.worst.max_load) == (11, 1, 1)
    assert (result.bisection.mean, result.bisection.minimum, result.bisection.standard_error) == (1, 1, 0)


@pytest.mark.parametrize(
    ("spec", "per_leaf", "uplinks"),
    [
        ("fat-tree:hosts=32,radix=8", 4, 4),
        ("fat-tree:hosts=648,radix=36", 18, 18),
        ("fat-tree:hosts=96,radix=16,oversubscription=3", 12, 4),
    ],
)
def test_a_full_tree_carries_all_to_all_evenly(spec, per_leaf, uplinks):
    """The traffic that leaves a leaf is spread over its uplinks, and the same comes down."""
    result = measure(routed(spec), bisections=2)
    expected = per_leaf * (result.hosts - per_leaf) / uplinks
    assert (result.load == expected).all()
    assert result.all_to_all.max_load == result.all_to_all.mean_load == expected
    assert result.all_to_all.slowdown == max(1, expected / (result.hosts - 1))


@pytest.mark.parametrize("spec", ["fat-tree:hosts=128,radix=16", "fat-tree:hosts=128,radix=8"])
def test_destination_modulo_routes_every_shift_without_contention(spec):
    """Full trees of two and three levels: Zahavi, "D-Mod-K routing providing non-blocking traffic", 2010."""
    result = measure(routed(spec))
    assert result.shifts.shifts == result.shifts.total == 127
    assert result.shifts.mean == result.shifts.worst.max_load == 1


def test_one_link_between_two_switches_carries_all_pairs_across():
    n = 5
    fabric = routed(switches_in_a_row([n, n]), "up-down")
    result = measure(fabric)
    assert link_loads(fabric, result) == {"sw1/40": n * n, "sw2/39": n * n}
    assert result.all_to_all.slowdown == n * n / (2 * n - 1)
    assert (result.shifts.worst.max_load, result.shifts.worst.pattern) == (n, f"shift by {n}")
    ring = result.patterns[1]
    assert (ring.pattern, ring.flows, ring.max_load, ring.slowdown) == ("ring", 2 * n, 1, 1)
    assert result.all_to_all.worst_link in ("sw1/40", "sw2/39")


def test_the_worst_link_is_named():
    """Four switches in a row: the middle link separates most pairs, 8 times 8, equally in both directions."""
    fabric = routed(switches_in_a_row([4, 4, 4, 4]), "up-down")
    result = measure(fabric)
    assert link_loads(fabric, result)[result.all_to_all.worst_link] == result.all_to_all.max_load == 64
    assert result.all_to_all.worst_link in ("sw2/40", "sw3/39")
    assert result.all_to_all.mean_load == (48 + 64 + 48) / 3


def test_a_link_of_twice_the_rate_bears_half_the_load():
    slow, fast = (measure(routed(switches_in_a_row([6, 6], trunk), "up-down")) for trunk in ("NDR", "XDR"))
    assert slow.all_to_all.max_load == 36
    assert fast.all_to_all.max_load == 18
    assert fast.host_rate_gbit_s == 400
    assert fast.bisection.mean > slow.bisection.mean


def test_slow_host_ports_are_the_limit_of_a_crossbar_too():
    """HDR hosts on an NDR trunk: it takes two of their flows for a load of 1."""
    result = measure(routed(switches_in_a_row([3, 3], "NDR", "HDR"), "up-down"))
    assert result.host_rate_gbit_s == 200
    assert result.all_to_all.max_load == 9 / 2
    assert result.all_to_all.slowdown == 1


def test_several_paths_share_a_flow():
    """Half of every flow takes each path with LMC 1: the sum of loads stays."""
    each, two = (measure(routed("fat-tree:hosts=32,radix=8", lmc=lmc), bisections=20) for lmc in (0, 1))
    assert two.load.sum() == each.load.sum() == 2 * 32 * 28
    assert (two.load == each.load).all()
    assert two.bisection.mean != each.bisection.mean


def test_random_bisections_of_a_full_tree_meet_as_balls_in_bins():
    """A flow shares its uplink with those of the 17 others on its leaf whose receivers share its spine; no flows meet
    downwards.

    So a flow that leaves gets E[1 / (1 + X)], X hypergeometric: 17 draws of 646, of which 34 take my uplink.
    """
    result = measure(routed("fat-tree:hosts=648,radix=36"), bisections=200).bisection
    share = sum(comb(34, x) * comb(612, 17 - x) / comb(646, 17) / (1 + x) for x in range(18))
    expected = share * 630 / 647 + 17 / 647
    assert result.mean == pytest.approx(expected, abs=0.01)
    assert result.minimum < result.mean


def test_oversubscription_bounds_the_effective_bisection_bandwidth():
    """A leaf of 12 hosts and 4 uplinks cannot send more than 4; the few pairs within a leaf come on top."""
    result = measure(routed("fat-tree:hosts=96,radix=16,oversubscription=3")).bisection
    within = 11 / 95
    assert 0.2 < result.mean < 1 / 3 * (1 - within) + within


# -- chance -----------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_result():
    fabric = routed("fat-tree:hosts=54,radix=12", "min-hop")
    each, same, other = measure(fabric, seed=3), measure(fabric, seed=3), measure(fabric, seed=4)
    assert (each.bisection, each.shifts, each.patterns) == (same.bisection, same.shifts, same.patterns)
    assert each.bisection != other.bisection
    assert each.seed == 3


def test_the_standard_error_shrinks_with_the_root_of_the_number():
    fabric = routed("fat-tree:hosts=54,radix=12")
    few, many = (measure(fabric, bisections=n).bisection for n in (50, 1250))
    assert few.standard_error / many.standard_error == pytest.approx(5, rel=0.35)
    assert abs(few.mean - many.mean) < 4 * few.standard_error
    assert many.minimum <= few.minimum  # the same seed: the first 50 are the same


def test_large_fabrics_are_measured_by_a_sample_of_shifts(monkeypatch):
    fabric = routed("torus:4x4,hosts=4", "up-down")
    every = measure(fabric, bisections=2).shifts
    monkeypatch.setattr(quality, "SHIFT_FLOWS", 64 * 20)
    some = measure(fabric, bisections=2).shifts
    assert (every.shifts, some.shifts, some.total) == (63, 20, 63)
    assert some.mean == pytest.approx(every.mean, rel=0.25)
    assert some.worst.max_load <= every.worst.max_load
    assert some == measure(fabric, bisections=2).shifts


def test_no_shift_is_drawn_twice(monkeypatch):
    """62 of 63 shifts are drawn: the sum lacks the load of one of them."""
    fabric = routed("torus:4x4,hosts=4", "up-down")
    every = measure(fabric, bisections=2).shifts
    monkeypatch.setattr(quality, "SHIFT_FLOWS", 64 * 62)
    for seed in range(5):
        some = measure(fabric, seed=seed, bisections=2).shifts
        assert some.shifts == 62
        assert 1 <= round(63 * every.mean - 62 * some.mean, 6) <= every.worst.max_load


# -- an oracle --------------------------------------------------------------------------------------------------------


@st.composite
def fabrics(draw) -> Fabric:
    """Draw a few switches in a random connected graph with random hosts, links of two speeds."""
    hosts = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6).filter(lambda counts: sum(counts) >= 2))
    builder = FabricBuilder("random")
    switches = builder.add_nodes(NodeKind.SWITCH, [f"sw{n}" for n in range(len(hosts))], n_ports=40)
    free = dict.fromkeys(switches.tolist(), 1)

    def port(switch: int) -> int:
        free[switch] += 1
        return free[switch] - 1

    for switch, count in zip(switches.tolist(), hosts, strict=True):
        for _ in range(count):
            host = builder.add_nodes(NodeKind.HCA, [f"h{builder.n_nodes}"], n_ports=1)
            builder.add_links(host, 1, switch, port(switch), draw(st.sampled_from(["HDR", "NDR"])))
    links = [(draw(st.integers(0, n - 1)), n) for n in range(1, len(hosts))]
    pairs = st.tuples(st.integers(0, len(hosts) - 1), st.integers(0, len(hosts) - 1)).filter(
        lambda ends: ends[0] != ends[1]
    )
    links += draw(st.lists(pairs, max_size=6)) if len(hosts) > 1 else []
    for a, b in links:
        builder.add_links(a, port(a), b, port(b), draw(st.sampled_from(["NDR", "XDR"])))
    return builder.build()


def walk(fabric: Fabric, sender: int, receiver: int) -> list[list[str]]:
    """Return the ports that send on the path to each LID of the receiver, by following names."""
    ways = []
    destination = fabric.port(receiver)
    for offset in range(1 << destination.lmc):
        local = fabric.port(sender)
        way = [local.name]
        while local.peer.name != destination.name:
            switch = local.peer.node
            out = fabric.tables.lft[fabric.tables.switch_row[switch.index], destination.lid + offset]
            local = switch.port(int(out))
            way.append(local.name)
        ways.append(way)
    return ways


def oracle_load(fabric: Fabric, flows: list[tuple[int, int]], host_rate_gbit_s: float) -> Counter[str]:
    load: Counter[str] = Counter()
    for sender, receiver in flows:
        ways = walk(fabric, sender, receiver)
        load[ways[0][0]] += host_rate_gbit_s / fabric.find_port(ways[0][0]).link.rate_gbit_s
        for way in ways:
            for name in way[1:]:
                load[name] += host_rate_gbit_s / fabric.find_port(name).link.rate_gbit_s / len(ways)
    return load


@settings(max_examples=60)
@given(fabric=fabrics(), lmc=st.integers(0, 2), seed=st.integers(0, 9))
def test_load_and_bandwidth_match_a_walk_by_name(fabric, lmc, seed):
    fabric = routed(fabric, "min-hop", lmc)
    hosts = host_ports(fabric).tolist()
    result = measure(fabric, seed=seed, bisections=2)
    rates = Counter(fabric.port(slot).link.rate_gbit_s for slot in hosts)
    assert rates[result.host_rate_gbit_s] == max(rates.values())

    load = oracle_load(fabric, [(a, b) for a in hosts for b in hosts if a != b], result.host_rate_gbit_s)
    assert link_loads(fabric, result) == pytest.approx({name: load[name] for name in link_loads(fabric, result)})
    own = max(
        value for name, value in load.items() if name.startswith("h") or fabric.find_port(name).peer.name[0] == "h"
    )
    assert result.all_to_all.slowdown == pytest.approx(max(load.values()) / own)

    rng, shares = np.random.default_rng(seed), []
    for _ in range(2):
        flows = [(hosts[a], hosts[b]) for a, b in bisection(len(hosts), rng).tolist()]
        load = oracle_load(fabric, flows, result.host_rate_gbit_s)
        worst = [max(load[name] for way in walk(fabric, *flow) for name in way) for flow in flows]
        shares.append(sum(1 / heaviest for heaviest in worst) / len(flows))
    assert result.bisection.mean == pytest.approx(np.mean(shares))
    assert result.bisection.minimum == pytest.approx(min(shares))


@pytest.mark.parametrize(
    ("spec", "lmc"),
    [
        ("fat-tree:hosts=32,radix=8", 0),
        ("superpod:su=1,servers=8", 1),
        ("dragonfly+:p=4,leaves=4,spines=4,h=4,g=5", 2),
        ("slim-fly:q=5", 0),
    ],
)
def test_trees_of_paths_carry_the_same_load_as_the_paths_one_by_one(monkeypatch, spec, lmc):
    fabric = routed(spec, "auto", lmc)
    with monkeypatch.context() as patch:
        patch.setattr(quality._Network, "_follow_all_to_all", lambda *_: pytest.fail("one by one"))
        whole = quality.load_all_to_all(fabric)
    monkeypatch.setattr(quality._Network, "_add_all_to_all", lambda self, load: False)
    assert (quality.load_all_to_all(fabric) == whole).all()


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [NO_ROUTE, 0, 17, 39, 2])
def test_tables_that_do_not_arrive_are_refused_by_name(port):
    """No entry, the switch itself, a port that is not there or not plugged in, the wrong host."""
    fabric = routed("fat-tree:hosts=32,radix=8")
    row = fabric.tables.switch_row[fabric.find_node("leaf1").index]
    fabric.tables.lft[row, fabric.find_port("h1/1").lid] = port
    with pytest.raises(SubnetError, match=r"do not lead from h(?!1/)\d+/1 to h1/1"):
        measure(fabric)


def test_a_port_that_is_not_there_is_not_one_of_the_next_switch():
    """Slots of switches follow each other: the tenth port of an 8-port leaf must not be taken for leaf2/1."""
    fabric = routed("fat-tree:hosts=32,radix=8")
    row = fabric.tables.switch_row[fabric.find_node("leaf1").index]
    assert fabric.find_port("leaf2/1").slot == fabric.first_port[fabric.find_node("leaf1").index] + 10
    fabric.tables.lft[row, fabric.find_port("h5/1").lid] = 10
    with pytest.raises(SubnetError, match=r"do not lead from h1/1 to h5/1"):
        measure(fabric)


def test_a_forwarding_loop_is_refused_by_name():
    fabric = routed(switches_in_a_row([2, 2]), "up-down")
    lid = fabric.find_port("h5/1").lid
    assert fabric.find_port("h5/1").peer.node.name == "sw2"
    fabric.tables.lft[1, lid] = 39
    with pytest.raises(SubnetError, match=r"do not lead from h\d/1 to h5/1"):
        measure(fabric)


def test_a_fabric_without_routes_or_partners_is_refused():
    with pytest.raises(ConfigError, match="star:hosts=4 has 0"):
        measure(weft.load("star:hosts=4"))
    with pytest.raises(ConfigError, match="star:hosts=1 has 1"):
        measure(routed("star:hosts=1", "up-down"))


def test_too_few_bisections_and_a_negative_seed_are_refused():
    fabric = routed("star:hosts=4", "up-down")
    with pytest.raises(ConfigError, match="--bisections must be at least 2"):
        measure(fabric, bisections=1)
    with pytest.raises(ConfigError, match="--seed must be 0 or more"):
        measure(fabric, seed=-1)


def test_large_fabrics_get_fewer_bisections(monkeypatch):
    fabric = routed("star:hosts=8", "up-down")
    monkeypatch.setattr(quality, "BISECTION_FLOWS", 8 * 6)
    assert measure(fabric).bisection.bisections == 6
    assert measure(fabric, bisections=3).bisection.bisections == 3
    monkeypatch.setattr(quality, "BISECTION_FLOWS", 8)
    assert measure(fabric).bisection.bisections == 4
