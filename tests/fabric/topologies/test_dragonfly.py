from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.summary import summarise
from weft.fabric.topologies import dragonfly, dragonfly_plus
from weft.fabric.topologies.dragonfly import fit_dragonfly_plus
from weft.routing.check import check
from weft.routing.route import route


def cables_between_groups(fabric: Fabric) -> Counter[tuple[str, str]]:
    ends = ((link.a.node.group, link.b.node.group) for link in fabric.all_links())
    return Counter((min(pair), max(pair)) for pair in ends if pair[0] != pair[1])


@pytest.mark.parametrize(("p", "a", "h", "groups"), [(4, 8, 4, 33), (6, 12, 6, 73), (2, 4, 2, 9), (1, 1, 3, 4)])
def test_a_full_dragonfly_has_one_cable_between_every_two_of_ah_plus_1_groups(p, a, h, groups):
    """Kim et al. 2008: g = ah + 1, N = ap(ah + 1)."""
    fabric = dragonfly(p, a=a, h=h)
    assert len(fabric.groups) == groups
    assert len(fabric.switches) == groups * a
    assert len(fabric.hcas) == groups * a * p
    assert len(fabric.links) == groups * (a * p + a * (a - 1) // 2) + groups * a * h // 2
    between = cables_between_groups(fabric)
    assert len(between) == groups * (groups - 1) // 2
    assert set(between.values()) == {1}


def test_every_switch_of_a_full_dragonfly_uses_all_its_ports():
    fabric = dragonfly(4, a=8, h=4, radix=15)
    assert all(port.peer for switch in fabric.switches for port in switch.ports)


def test_ports_are_hosts_then_the_own_group_then_the_others():
    fabric = dragonfly(4, a=8, h=4)
    peers = [port.peer.node for port in fabric["g2s3"].ports[:15]]
    assert [node.name for node in peers[:4]] == ["h41", "h42", "h43", "h44"]
    assert [node.name for node in peers[4:11]] == [f"g2s{n}" for n in (1, 2, 4, 5, 6, 7, 8)]
    assert [node.group for node in peers[11:]] == ["group11", "group12", "group13", "group14"]


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_global_cables_are_even_between_groups_and_over_switches(a, h, data):
    """At most one port per group stays empty, and only where the numbers leave no symmetric use for it: the rest is
    even.
    """
    g = data.draw(st.integers(2, a * h + 1), label="g")
    fabric = dragonfly(1, a=a, h=h, g=g)
    between = cables_between_groups(fabric)
    each = [between[min(pair), max(pair)] for pair in combinations(fabric.groups, 2)]
    assert min(each) >= 1
    assert max(each) - min(each) <= 1
    empty_ports = g * a * h - 2 * sum(each)
    left_over = a * h % (g - 1)
    assert empty_ports == (g if left_over % 2 and g % 2 else 0)
    used = [sum(peer.group != switch.group for peer in switch.peers) for switch in fabric.switches]
    assert set(used) <= {h, h - 1}


def test_more_groups_than_global_cables_reach_are_refused():
    with pytest.raises(ConfigError, match="g=34 groups are too many: with 32 global links each, at most 33"):
        dragonfly(4, a=8, h=4, g=34)


def test_more_ports_than_the_switch_has_are_refused():
    with pytest.raises(ConfigError, match=r"needs 65 ports \(30 for hosts, 31 local, 4 global\), QM9700 has 64"):
        dragonfly(30, a=32, h=4, switch="QM9700")


def test_dragonfly_plus_has_leaves_and_spines_in_every_group():
    """Shpiner et al. 2017: bipartite groups, global cables on the spines."""
    fabric = dragonfly_plus(4, leaves=3, spines=2, h=2)
    assert len(fabric.groups) == 5
    assert len(fabric.switches) == 5 * (3 + 2)
    assert len(fabric.hcas) == 5 * 3 * 4
    assert [str(port.peer) for port in fabric["g2leaf3"].ports[:7]] == [
        *("h21/1", "h22/1", "h23/1", "h24/1", "g2spine1/3", "g2spine2/3", "None")
    ]
    assert [port.peer.node.name for port in fabric["g2spine1"].ports[:3]] == ["g2leaf1", "g2leaf2", "g2leaf3"]
    assert [port.peer.node.group for port in fabric["g2spine1"].ports[3:5]] == ["group3", "group4"]
    assert set(cables_between_groups(fabric).values()) == {1}


@pytest.mark.parametrize(("p", "leaves", "what"), [(60, 4, "a leaf"), (1, 60, "a spine")])
def test_a_dragonfly_plus_that_needs_more_ports_is_refused(p, leaves, what):
    with pytest.raises(ConfigError, match=what):
        dragonfly_plus(p, leaves=leaves, spines=8, h=8, switch="QM9700")


@given(st.integers(2, 60), st.sampled_from([1, 4, 8]), st.sampled_from([36, 40, 64]))
def test_a_dragonfly_plus_that_is_fitted_is_balanced_and_has_a_server_on_every_leaf(servers, rails, radix):
    chosen = fit_dragonfly_plus(servers, rails=rails, radix=radix)
    assert (chosen["spines"], chosen["h"]) == (chosen["p"] * rails, chosen["leaves"])
    fabric = dragonfly_plus(server=f"dgx-h100+{rails}rails", radix=radix, **chosen)
    assert len(fabric.servers) == servers
    leaves = [node for node in fabric.switches if "leaf" in node.name]
    hosts = [sum(peer.kind == NodeKind.HCA for peer in leaf.peers) // rails for leaf in leaves]
    assert min(hosts) >= 1
    assert max(hosts) - min(hosts) <= 1


def test_a_dragonfly_plus_has_several_cables_between_leaf_and_spine():
    """Ports of 400 Gbit/s between switches whose other ports are split: each takes two of a leaf's 128."""
    spec = "dragonfly+:p=16,leaves=3,spines=4,h=5,g=3,cables=2,switch=QM9700,speed=2xNDR,uplink=4xNDR"
    fabric = weft.load(spec)
    leaf = fabric["g1leaf2"]
    assert [port.peer.node.name for port in leaf.ports if port.peer][16:] == [f"g1spine{n}" for n in "11223344"]
    cabled = [port.number for port in leaf.ports if port.peer]
    assert cabled == [*range(1, 17), *range(17, 33, 2)]
    assert {port.link.label for port in leaf.ports if port.peer and port.number > 16} == {"4xNDR"}
    spine_tier, leaf_tier = reversed(summarise(fabric).tiers)
    assert leaf_tier.free_ports == 9 * (128 - 16 - 2 * 8)
    assert spine_tier.free_ports == 12 * (128 - 2 * (6 + 5))
    assert check(route(fabric).fabric).ok


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("uplink=2xHDR", "uplink=2xHDR is no speed of QM9700"),
        ("cables=8,speed=2xNDR,uplink=4xNDR", "a leaf: 8 for hosts, 64 to spines, 2 for each"),
    ],
)
def test_uplinks_that_the_switch_lacks_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        weft.load(f"dragonfly+:p=8,leaves=2,spines=8,h=2,g=3,switch=QM9700,{options}")
