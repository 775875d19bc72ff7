"""The fat-tree engine against closed forms, and where others give up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broken import pull_cables

import weft
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import islands
from weft.fabric.model import Fabric
from weft.routing.check import check
from weft.routing.engine import CannotRoute, Options
from weft.routing.quality import measure
from weft.routing.route import Routing, route


def routed(fabric: Fabric, **options: object) -> Routing:
    return route(fabric, Options(engine="fat-tree", **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "bound"),
    [
        ("fat-tree:hosts=128,radix=16", 8 * 120 // 8),  # from a leaf: its hosts, to all others, over its uplinks
        ("fat-tree:hosts=1024,radix=16", 8 * 1016 // 8),
        ("fat-tree:hosts=192,radix=16,oversubscription=3", 12 * 180 // 4),
        ("fat-tree:hosts=3456,radix=36,pods=12", 3438),
    ],
)
def test_no_link_carries_more_than_the_tree_must(spec, bound):
    """All-to-all: the fullest link carries exactly the load of even spreading."""
    assert measure(routed(weft.load(spec)).fabric).all_to_all.max_load == bound


def test_every_shift_of_a_full_tree_is_free_of_contention():
    """Zahavi's result: with destination-modulo tables, host i sending to i + k never shares a link, for any k."""
    for spec in ("fat-tree:hosts=128,radix=16", "fat-tree:hosts=128,radix=8"):
        assert measure(routed(weft.load(spec)).fabric).shifts.worst.max_load == 1


@pytest.mark.parametrize(
    "spec",
    [
        "superpod:su=6,server=dgx-a100,radix=16",  # two spines of each rail in a group of cores
        "superpod:su=8,server=dgx-a100,radix=16",
        "superpod:su=4,server=dgx-a100,radix=8",
        "superpod:su=4,server=host-hdr,radix=4",  # one rail
        "superpod:su=12,server=hgx-h100-4nic,radix=16",
    ],
)
def test_every_shift_of_a_superpod_of_three_tiers_is_free_of_contention(spec):
    """Its pods are rails: neighbours in the list of hosts are in different pods, and cores join mixed groups."""
    quality = measure(routed(weft.load(spec)).fabric)
    assert quality.shifts.worst.max_load == 1
    assert quality.all_to_all.slowdown == pytest.approx(1)


def test_a_tree_that_is_not_full_is_still_evenly_loaded():
    """The last leaf has half its hosts; no link carries twice the mean."""
    fabric = weft.load("fat-tree:hosts=60,radix=16")
    load = measure(routed(fabric).fabric).all_to_all
    assert load.max_load <= 2 * load.mean_load


@settings(max_examples=25)
@given(hosts=st.integers(13, 120), radix=st.sampled_from([8, 12]), fraction=st.floats(0, 0.3), seed=st.integers(0, 99))
def test_any_damaged_tree_that_hangs_together_is_routed_without_deadlock(hosts, radix, fraction, seed):
    fabric = pull_cables(weft.load(f"fat-tree:hosts={hosts},radix={radix}"), fraction, seed)
    whole = len(islands(fabric)) == 1 and all(node.peers for node in fabric.switches)
    if not whole:
        with pytest.raises(CannotRoute, match="islands"):
            routed(fabric)
        return
    verdict = check(routed(fabric).fabric)
    assert verdict.ok, verdict.explain()
    assert verdict.vls == 1


def test_a_leaf_that_is_not_beside_the_trunk_spreads_destinations_over_its_parallel_cables():
    """Four hosts on `t`, below which three branches end in leaves with two cables up each."""
    builder = FabricBuilder("branches")
    top, *switches = builder.add_nodes(NodeKind.SWITCH, ["t", "m1", "m2", "m3", "e1", "e2", "e3"], n_ports=8).tolist()
    hosts = builder.add_nodes(NodeKind.HCA, [f"h{number}" for number in range(7)], n_ports=1).tolist()
    builder.add_links(hosts[:4], 1, top, [1, 2, 3, 4], "EDR")
    builder.add_links(hosts[4:], 1, switches[3:], 1, "EDR")
    builder.add_links(top, [5, 6, 7], switches[:3], 1, "EDR")
    for port in (2, 3):
        builder.add_links(switches[:3], port, switches[3:], port, "EDR")
    fabric = route(builder.build(), Options(engine="fat-tree")).fabric
    lids = fabric.tables.lid[[fabric.find_port(f"h{number}/1").slot for number in range(4)]]
    for leaf in ("e1", "e2", "e3"):
        ports = fabric.tables.lft[fabric.tables.switch_row[fabric.node_index[leaf]], lids]
        assert sorted(ports.tolist()) == [2, 2, 3, 3]


def test_leaf_to_leaf_paths_are_shortest_on_the_real_selene(selene):
    """Up/down rooted at a leaf needs 72 link crossings more than shortest paths, of 53 million."""
    best = measure(route(selene, Options(engine="min-hop")).fabric, bisections=2)
    ours = measure(routed(selene).fabric, bisections=2)
    assert best.load.sum() <= ours.load.sum() <= best.load.sum() * 1.00001
    assert ours.all_to_all.max_load <= best.all_to_all.max_load


def test_a_torus_is_refused_with_an_alternative():
    with pytest.raises(CannotRoute, match=r'needs a tree.*\n  Route with engine="up-down", or "dfsssp"'):
        routed(weft.load("torus:4x4"))


def test_islands_are_named():
    fabric = weft.load("fat-tree:hosts=16,radix=8")
    for port in fabric["leaf1"].ports[4:]:
        fabric = faults.remove_link(fabric, port.name)
    with pytest.raises(CannotRoute, match=r"2 islands: .*; leaf1"):
        routed(fabric)


def test_the_lids_of_a_port_take_disjoint_paths():
    """LMC 2 and 8 spines: the four LIDs of a host come through four different spines, from every leaf."""
    fabric = routed(weft.load("fat-tree:hosts=128,radix=16"), lmc=2).fabric
    lft, row = fabric.tables.lft, fabric.tables.switch_row
    base = int(fabric["h50/1"].lid)
    for leaf in (node for node in fabric.switches if node.name.startswith("leaf")):
        if leaf.index != fabric["h50/1"].peer.node.index:
            ways = {fabric[f"{leaf.name}/{lft[row[leaf.index], lid]}"].peer.node.name for lid in range(base, base + 4)}
            assert len(ways) == 4


def test_two_hosts_back_to_back_need_no_tables():
    builder = FabricBuilder("back to back")
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    builder.add_links(hosts[0], 1, hosts[1], 1, "NDR")
    with pytest.raises(CannotRoute, match="has no switch"):
        route(builder.build())


def test_the_root_can_be_named_and_must_be_a_switch():
    fabric = weft.load("fat-tree:hosts=32,radix=8")
    assert not np.array_equal(routed(fabric, root="leaf5").tables.lft, routed(fabric, root="leaf1").tables.lft)
    with pytest.raises(weft.errors.ConfigError, match="h1 is not a switch"):
        routed(fabric, root="h1")
