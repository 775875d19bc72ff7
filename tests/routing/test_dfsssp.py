"""DFSSSP: shortest paths by networkx's count, even loads by closed form, and no more lanes than it has to."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from tests.broken import pull_cables

import weft
from weft.fabric import faults
from weft.routing import engine, layers
from weft.routing.check import check
from weft.routing.engine import CannotRoute, Options, Subnet
from weft.routing.quality import measure
from weft.routing.route import reroute, route

FABRICS = (
    "star:hosts=3",
    "torus:5x4,hosts=2",
    "mesh:3x4",
    "dragonfly:p=2,a=4,h=2",
    "dragonfly+:p=2,leaves=2,spines=2,h=2,g=5",
    "fat-tree:hosts=50,radix=8",
    "superpod:su=1,servers=5",
)


def routed(fabric, **options):
    return route(fabric, Options(engine="dfsssp", **options))


def hop_counts(fabric):
    """Count pairs of a port with a LID and a LID of another by the length of a shortest path, with networkx."""
    graph = Subnet(fabric=fabric, lid=fabric.tables.lid, lmc=fabric.tables.lmc).graph
    net = nx.Graph(zip(graph.near.tolist(), graph.far.tolist(), strict=True))
    net.add_nodes_from(range(graph.n_switches))
    lids = np.bincount(graph.at, minlength=graph.n_switches)
    ports = np.bincount(np.unique(np.stack((graph.at, graph.out)), axis=1)[0], minlength=graph.n_switches)
    counts = {}
    for source, hops in nx.all_pairs_shortest_path_length(net):
        for target, length in hops.items():
            sources = ports[source] - (source == target)
            counts[length] = counts.get(length, 0) + int(sources * lids[target])
    return {length: count for length, count in counts.items() if count}


@pytest.mark.parametrize("spec", FABRICS)
def test_all_paths_are_shortest_and_free_of_deadlock(spec):
    fabric = routed(weft.load(spec)).fabric
    verdict = check(fabric)
    assert verdict.ok, verdict.explain()
    assert verdict.hops == hop_counts(fabric)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_damage_changes_nothing_about_that(seed):
    fabric = routed(pull_cables(weft.load("torus:5x5x3"), 0.1, seed), max_vls=15).fabric
    verdict = check(fabric)
    assert verdict.ok, verdict.explain()
    assert verdict.hops == hop_counts(fabric)


def test_real_fabrics_take_few_lanes(selene_dump):
    """Selene, where OpenSM's fat-tree and up/down engines give up and its min-hop can deadlock."""
    verdict = check(routed(weft.load(str(selene_dump))).fabric)
    assert verdict.ok, verdict.explain()
    assert verdict.vls <= 5


@pytest.mark.parametrize(
    ("spec", "lanes"),
    [
        ("mesh:4x4", 2),
        ("torus:5x5", 3),
        ("torus:6x6,hosts=2", 3),
        ("torus:4x4x4", 4),
        ("torus:5x5x5", 6),
        ("torus:8x8x8", 13),
        ("dragonfly:p=4,a=8,h=4", 4),
        ("hyperx:4x4,hosts=2", 2),
    ],
)
def test_so_many_lanes_are_enough(spec, lanes):
    verdict = check(routed(weft.load(spec), max_vls=lanes).fabric)
    assert verdict.vls <= lanes
    assert verdict.one_way == 0


@pytest.mark.parametrize(("lanes", "load"), [(9, 152), (5, 168), (3, 264)])
def test_fewer_lanes_are_paid_for_by_a_less_even_load(lanes, load):
    """Trees by LID, by switch and by weights."""
    fabric = routed(weft.load("torus:6x6,hosts=2"), max_vls=lanes).fabric
    assert check(fabric).vls == lanes
    assert measure(fabric, bisections=2).all_to_all.max_load == load


def test_every_path_is_reversible_in_a_torus_that_lost_cables():
    verdict = check(routed(pull_cables(weft.load("torus:6x6,hosts=2"), 0.05, 1)).fabric)
    assert verdict.ok
    assert verdict.one_way == 0


def test_a_full_tree_is_loaded_evenly():
    """All-to-all on 16 leaves of 8 hosts and 8 uplinks: 8 hosts to 120 others over 8 uplinks."""
    quality = measure(routed(weft.load("fat-tree:hosts=128,radix=16")).fabric, bisections=2)
    assert (quality.load == 8 * 120 // 8).all()


@pytest.mark.parametrize("spec", ["torus:8x8", "dragonfly:p=4,a=8,h=4", "hyperx:4x4,hosts=4"])
def test_the_fullest_link_carries_less_than_under_min_hop(spec):
    """Looking at loads along the whole path beats looking at the next link alone."""
    fabric = weft.load(spec)
    loads = {
        engine: measure(route(fabric, Options(engine=engine, max_vls=15)).fabric, bisections=2).all_to_all.max_load
        for engine in ("dfsssp", "min-hop")
    }
    assert loads["dfsssp"] < loads["min-hop"]


def test_the_service_level_of_a_path_is_its_lane():
    fabric = weft.load("torus:5x5")
    tables = routed(fabric, max_vls=4).tables
    assert tables.path_sl.max() > 0
    assert (tables.sl2vl[:, :4] == np.arange(4)).all()  # switches and adapters
    assert (tables.sl2vl < 4).all()


def test_one_lane_leaves_the_tables_of_lanes_alone():
    tables = routed(weft.load("fat-tree:hosts=16,radix=8")).tables
    assert not {"path_sl", "sl2vl"} & set(vars(tables))


def test_too_few_lanes_are_refused_with_the_number_needed():
    with pytest.raises(
        CannotRoute, match=r"dfsssp routing of torus:5x5 needs 3 virtual lanes, the ports have 2\n.*up-down"
    ):
        routed(weft.load("torus:5x5"), max_vls=2)


def test_more_lanes_than_there_can_be(monkeypatch):
    for module in (engine, layers):
        monkeypatch.setattr(module, "MOST_VLS", 2)
    with pytest.raises(CannotRoute, match="needs more than 2 virtual lanes"):
        routed(weft.load("torus:5x5"), max_vls=2)


def test_two_islands_are_named():
    fabric = weft.load("mesh:2x2")
    for port in ("sw1/1", "sw2/1"):
        fabric = faults.remove_link(fabric, port)
    with pytest.raises(CannotRoute, match="2 islands: sw1, sw2; sw3, sw4"):
        routed(fabric)


def test_rerouting_after_a_fault_changes_only_broken_entries():
    """An entry changes if its port is gone, or leads no nearer any more; no other does."""
    before = routed(weft.load("dragonfly:p=2,a=4,h=2"))
    after = reroute(faults.remove_link(before.fabric, "g1s1/3"), before)
    assert check(after.fabric).ok
    graph = Subnet(fabric=after.fabric, lid=after.tables.lid, lmc=after.tables.lmc).graph
    net = nx.Graph(zip(graph.near.tolist(), graph.far.tolist(), strict=True))
    hops = dict(nx.all_pairs_shortest_path_length(net))
    leads_to = {(s, p): t for s, p, t in zip(graph.near.tolist(), graph.port.tolist(), graph.far.tolist(), strict=True)}
    old, new = before.tables.lft, after.tables.lft
    changed = 0
    for target, lid in zip(graph.at.tolist(), graph.lid.tolist(), strict=True):
        for switch in range(graph.n_switches):
            by = leads_to.get((switch, int(old[switch, lid])))
            still_good = switch == target or (by is not None and hops[by][target] < hops[switch][target])
            assert still_good == (old[switch, lid] == new[switch, lid])
            changed += not still_good
    assert after.changed_entries == changed > 0


def test_several_lids_of_a_host_take_different_ways():
    """Two spines, two LIDs: between leaves each goes by its own."""
    tables = routed(weft.load("fat-tree:hosts=16,radix=8"), lmc=1)
    graph = Subnet(fabric=tables.fabric, lid=tables.tables.lid, lmc=tables.tables.lmc).graph
    first = np.flatnonzero(graph.is_host[:-1] & (np.diff(graph.at) == 0) & (np.diff(graph.out) == 0))
    elsewhere = np.flatnonzero(graph.hosts)[:, None] != graph.at[first]
    ways = tables.tables.lft[np.flatnonzero(graph.hosts)]
    differ = ways[:, graph.lid[first]] != ways[:, graph.lid[first + 1]]
    assert differ[elsewhere].mean() > 0.9


def test_a_tree_needs_one_lane():
    fabric = route(weft.load("fat-tree:hosts=16,radix=8"), Options(engine="dfsssp", max_vls=1)).fabric
    assert (check(fabric).ok, check(fabric).vls) == (True, 1)
