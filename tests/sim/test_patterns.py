"""Patterns: senders, receivers and times; all random choices follow from the seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ConfigError, UnknownName
from weft.fabric.kinds import NodeKind
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim import patterns
from weft.sim.patterns import PATTERNS, make, parameters_of
from weft.sim.traffic import Operation, Transport

WITHOUT_MANAGER = [name for name in PATTERNS if name != "multicast"]


@pytest.fixture(scope="module")
def tree() -> weft.Fabric:
    return route(weft.load("fat-tree:hosts=16,radix=8")).fabric


@pytest.fixture(scope="module")
def dragonfly() -> weft.Fabric:
    return route(weft.load("dragonfly:p=2,a=4,h=2")).fabric


@pytest.fixture(scope="module")
def suited(tree, superpod, dragonfly):
    """A fabric on which the pattern of a name has a meaning."""
    by_name = {"adversarial": dragonfly, "tornado": route(weft.load("torus:5x3,hosts=2")).fabric, "rails": superpod}
    return lambda name: by_name.get(name, tree)


@pytest.fixture(scope="module")
def superpod() -> weft.Fabric:
    return route(weft.load("superpod:su=1,servers=4")).fabric


@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 32))
def test_in_a_permutation_every_host_sends_and_receives_once_and_none_to_itself(tree, seed):
    traffic = patterns.permutation(tree, size_bytes=100, seed=seed)
    hosts = sorted(host_ports(tree).tolist())
    assert sorted(traffic.src.tolist()) == sorted(traffic.dst.tolist()) == hosts
    assert (traffic.src != traffic.dst).all()


def test_every_derangement_of_three_hosts_is_as_likely():
    fabric = route(weft.load("star:hosts=3")).fabric
    drawn = [tuple(patterns.permutation(fabric, seed=seed).dst.tolist()) for seed in range(200)]
    counts = {each: drawn.count(each) for each in set(drawn)}
    assert len(counts) == 2
    assert min(counts.values()) > 70


def test_an_incast_goes_to_one_from_others(tree):
    traffic = patterns.incast(tree, receiver="h5", senders=6, seed=3)
    assert {tree.port(slot).name for slot in traffic.dst} == {"h5/1"}
    assert len(set(traffic.src.tolist())) == 6
    assert "h5/1" not in {tree.port(slot).name for slot in traffic.src}


def test_an_incast_has_a_default_receiver_and_senders(tree):
    assert len(patterns.incast(tree)) == 8
    assert len(patterns.incast(tree, senders=1)) == 1
    assert len(patterns.incast(route(weft.load("star:hosts=3")).fabric)) == 2
    assert {tree.port(slot).name for slot in patterns.incast(tree).dst} == {"h1/1"}


def test_uniform_traffic_offers_the_load_that_was_asked_for(tree):
    duration_ps = 2_000_000_000
    traffic = patterns.uniform(tree, size_bytes=4096, load=0.6, duration_ps=duration_ps)
    offered_gbit_s = traffic.total_bytes * 8_000 / duration_ps
    assert offered_gbit_s == pytest.approx(0.6 * 16 * 400, rel=4 / len(traffic) ** 0.5)
    assert 0 <= traffic.start_ps.min() < traffic.start_ps.max() < duration_ps
    assert (np.diff(traffic.start_ps) >= 0).all()
    assert (traffic.src != traffic.dst).all()


def test_gaps_of_uniform_traffic_are_exponential(tree):
    """Their deviation is their mean."""
    traffic = patterns.uniform(tree, size_bytes=4096, load=0.5, duration_ps=1_000_000_000)
    gaps = np.concatenate([np.diff(traffic.start_ps[traffic.src == slot]) for slot in np.unique(traffic.src)])
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)


def test_every_other_host_receives_as_much_of_uniform_traffic(tree):
    traffic = patterns.uniform(tree, size_bytes=4096, load=0.8, duration_ps=1_000_000_000)
    first = host_ports(tree)[0]
    received = np.unique(traffic.dst[traffic.src == first], return_counts=True)[1]
    assert len(received) == 15
    assert received.min() > 0.75 * received.mean()


def test_a_shift_goes_so_many_places_on(tree):
    traffic = patterns.shift(tree, distance=3)
    hosts = host_ports(tree)
    assert traffic.src.tolist() == hosts.tolist()
    assert traffic.dst.tolist() == np.roll(hosts, -3).tolist()


def test_in_a_bisection_partners_send_to_each_other(tree):
    traffic = patterns.bisection(tree, seed=2)
    pairs = set(zip(traffic.src.tolist(), traffic.dst.tolist(), strict=True))
    assert len(pairs) == 16
    assert {(b, a) for a, b in pairs} == pairs


def test_all_to_all_is_every_pair_once(tree):
    traffic = patterns.all_to_all(tree, size_bytes=8)
    pairs = set(zip(traffic.src.tolist(), traffic.dst.tolist(), strict=True))
    assert len(traffic) == len(pairs) == 16 * 15
    assert (traffic.src != traffic.dst).all()
    assert len(set(traffic.dst[:16].tolist())) == 16, "nobody is first on everybody's list"


def test_rails_stay_below_one_leaf_in_a_superpod(superpod):
    traffic = patterns.rails(superpod)
    leaf = superpod.ports.node[superpod.ports.peer]
    assert len(traffic) == 32
    assert (superpod.nodes.kind[leaf[traffic.src]] == NodeKind.SWITCH).all()
    assert (leaf[traffic.src] == leaf[traffic.dst]).all()


@pytest.mark.parametrize("distance", [1, 2])
def test_adversarial_traffic_goes_to_all_hosts_of_a_later_group(dragonfly, distance):
    traffic = patterns.adversarial(dragonfly, distance=distance)
    src, dst = (switch_names(dragonfly, ends) for ends in (traffic.src, traffic.dst))
    group = {"from": [int(name[1]) for name in src], "to": [int(name[1]) for name in dst]}
    assert group["to"] == [(number - 1 + distance) % 9 + 1 for number in group["from"]]
    assert set(traffic.dst.tolist()) == set(host_ports(dragonfly).tolist())


def test_a_tornado_goes_two_of_five_and_one_of_three_switches_further():
    fabric = route(weft.load("torus:5x3,hosts=2")).fabric
    traffic = patterns.tornado(fabric)
    src, dst = (switch_names(fabric, ends) for ends in (traffic.src, traffic.dst))
    assert len(set(zip(src, dst, strict=True))) == 15
    pairs = sorted(set(zip(traffic.src.tolist(), traffic.dst.tolist(), strict=True)))
    assert len(pairs) == 30  # one receiver for each host
    for slots in pairs[:6]:
        there, _ = weft.path(fabric, *(fabric.port(slot).name for slot in slots))
        assert len(there.hops) == 1 + 2 + 1 + 1  # the host's link and three between switches


def switch_names(fabric: weft.Fabric, hosts: np.ndarray) -> list[str]:
    return [fabric.nodes.name[node] for node in fabric.ports.node[fabric.ports.peer[hosts]].tolist()]


@pytest.mark.parametrize("name", WITHOUT_MANAGER)
def test_every_pattern_takes_size_and_kind(suited, name):
    traffic = make(name, suited(name), size_bytes=1234, sl=2, operation=Operation.SEND, transport=Transport.UC)
    assert len(traffic) > 0
    assert set(traffic.size_bytes.tolist()) == {1234}
    assert set(traffic.sl.tolist()) == {2}
    assert set(traffic.operation.tolist()) == {Operation.SEND}
    assert set(traffic.transport.tolist()) == {Transport.UC}
    assert name.split("-")[0] in traffic.description


@pytest.mark.parametrize("name", [name for name in WITHOUT_MANAGER if "seed" in parameters_of(name)])
def test_the_seed_decides_and_is_in_the_description(suited, name):
    each, same, other = (make(name, suited(name), seed=seed) for seed in (7, 7, 8))
    assert np.array_equal(each.src, same.src)
    assert np.array_equal(each.dst, same.dst)
    assert not (np.array_equal(each.src, other.src) and np.array_equal(each.dst, other.dst))
    assert "seed 7" in each.description
    assert "seed 1" in make(name, suited(name)).description


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("incast", {"senders": 16}, "--senders must be 1 to 15"),
        ("incast", {"senders": 0}, "got 0"),
        ("incast", {"receiver": "leaf1"}, "leaf1 cannot send or receive"),
        ("adversarial", {}, "adversarial traffic goes from group to group of a dragonfly, and fat-tree"),
        ("tornado", {}, "tornado traffic needs a torus, a mesh or a HyperX"),
        ("uniform", {"load": 1.2}, "--load must be in (0, 1], got 1.2"),
        ("uniform", {"load": float("nan")}, "got nan"),
        ("uniform", {"duration_ps": 0}, "at least 1 ps"),
        ("uniform", {"size_bytes": 0}, "at least 1 byte"),
        ("uniform", {"size_bytes": 1 << 30}, "no message starts"),
        ("uniform", {"size_bytes": 1, "duration_ps": 10**12}, "messages are too many (limit 20,000,000)"),
        ("shift", {"distance": 32}, "to itself"),
        ("rails", {}, "has no rails"),
        ("permutation", {"size_bytes": -1}, "-1 bytes"),
        ("permutation", {"seed": -1}, "--seed must be 0 or more"),
        ("permutation", {"sl": 16}, "--sl must be 0 to 15"),
        ("permutation", {"load": 0.5}, "no parameter of permutation 'load'"),
    ],
)
def test_invalid_parameters_are_refused_with_the_rule(tree, name, arguments, words):
    with pytest.raises(ConfigError) as refused:
        make(name, tree, **arguments)
    assert words in str(refused.value)


def test_an_unknown_pattern_is_refused_with_near_ones(tree):
    with pytest.raises(UnknownName, match="did you mean incast"):
        make("incst", tree)


def test_a_fabric_without_lids_must_be_routed_first():
    with pytest.raises(ConfigError, match="Route the fabric first"):
        patterns.permutation(weft.load("star:hosts=4"))
