"""Dimension order: grids are found whatever the order of the switches, paths are shortest, loads are in closed form."""

from __future__ import annotations

import itertools
import math
import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.routing.check import check
from weft.routing.engine import CannotRoute, Options, Subnet
from weft.routing.kernels.product import BACK, FULL, ON, RING, ROW, direction_along
from weft.routing.lids import assign_lids
from weft.routing.product import Dimension, NotAProduct, Product, factorise, find_neighbours, verify
from weft.routing.quality import measure
from weft.routing.route import reroute, route


def routed(fabric, **options):
    return route(fabric, Options(engine="dimension-order", **options))


def fabric_of(net, *, hosts=1, cables=1, seed=0, shuffled=True):
    """Build a fabric cabled like a graph, its switches in random order, with parallel cables."""
    order = sorted(net)
    if shuffled:
        random.Random(seed).shuffle(order)
    builder = FabricBuilder("graph")
    ports = hosts + cables * max((degree for _, degree in net.degree), default=0)
    switches = builder.add_nodes(NodeKind.SWITCH, [f"sw{i}" for i in range(len(order))], n_ports=ports)
    number = dict(zip(order, switches.tolist(), strict=True))
    adapters = builder.add_nodes(NodeKind.HCA, [f"h{i}" for i in range(hosts * len(order))], n_ports=1)
    builder.add_links(adapters, 1, np.repeat(switches, hosts), np.tile(np.arange(1, hosts + 1), len(order)), "EDR")
    used = dict.fromkeys(order, hosts)
    for a, b in net.edges:
        for _ in range(cables):
            used[a], used[b] = used[a] + 1, used[b] + 1
            builder.add_links(number[a], used[a], number[b], used[b], "EDR")
    return builder.build()


def subnet_of(fabric):
    lid, lmc = assign_lids(fabric)
    return Subnet(fabric=fabric, lid=lid, lmc=lmc)


def dimensions_of(fabric):
    return factorise(find_neighbours(subnet_of(fabric).graph)).dimensions


def product_of(factors):
    net = nx.empty_graph(1)
    for factor in factors:
        net = nx.cartesian_product(net, factor)
    return nx.convert_node_labels_to_integers(net)


def hop_counts(fabric):
    """Count pairs of switches by the length of a shortest path, with networkx."""
    graph = subnet_of(fabric).graph
    net = nx.Graph(zip(graph.near.tolist(), graph.far.tolist(), strict=True))
    lengths = [hops for _, reached in nx.all_pairs_shortest_path_length(net) for hops in reached.values()]
    return np.bincount(lengths)


# -- what is found --------------------------------------------------------------------------------------------------

factors = st.one_of(
    st.integers(2, 6).map(lambda n: ("row", nx.path_graph(n)) if n > 2 else ("full mesh", nx.path_graph(2))),
    st.integers(5, 8).map(lambda n: ("ring", nx.cycle_graph(n))),
    st.integers(3, 5).map(lambda n: ("full mesh", nx.complete_graph(n))),
)


@settings(max_examples=40)
@given(st.lists(factors, min_size=1, max_size=3), st.integers(0, 999), st.integers(1, 2))
def test_a_product_falls_into_the_factors_it_was_made_of(made_of, seed, cables):
    result = dimensions_of(fabric_of(product_of(factor for _, factor in made_of), seed=seed, cables=cables))
    assert sorted(map(str, result)) == sorted(f"{kind} of {len(factor)}" for kind, factor in made_of)


def test_a_ring_of_four_is_two_pairs():
    result = sorted(map(str, dimensions_of(weft.load("torus:4x5"))))
    assert result == ["full mesh of 2", "full mesh of 2", "ring of 5"]


def twisted_torus(size):
    """Build rows that close to rings one place further: locally a torus, globally not."""
    net = nx.grid_2d_graph(size, size)
    net.add_edges_from(((size - 1, j), (0, (j + 1) % size)) for j in range(size))
    net.add_edges_from(((i, size - 1), (i, 0)) for i in range(size))
    return nx.convert_node_labels_to_integers(net)


def klein_bottle(size):
    """Build rows that close to rings upside down."""
    net = nx.grid_2d_graph(size, size)
    net.add_edges_from(((size - 1, j), (0, size - 1 - j)) for j in range(size))
    net.add_edges_from(((i, size - 1), (i, 0)) for i in range(size))
    return nx.convert_node_labels_to_integers(net)


def without_an_edge(net):
    net = net.copy()
    net.remove_edge(*min(net.edges))
    return net


@pytest.mark.parametrize(
    "net",
    [
        twisted_torus(5),
        klein_bottle(6),
        nx.petersen_graph(),
        nx.complete_bipartite_graph(3, 3),
        nx.complete_bipartite_graph(2, 5),
        nx.star_graph(5),
        nx.circular_ladder_graph(7).subgraph(range(13)),
        nx.moebius_kantor_graph(),
        without_an_edge(product_of([nx.cycle_graph(5), nx.cycle_graph(6)])),
        without_an_edge(product_of([nx.complete_graph(4), nx.complete_graph(3)])),
        without_an_edge(nx.hypercube_graph(4)),
    ],
)
def test_graphs_that_are_no_grid_are_refused(net):
    with pytest.raises(NotAProduct):
        dimensions_of(fabric_of(nx.convert_node_labels_to_integers(net)))


@pytest.mark.parametrize(
    ("sizes", "edges", "message"),
    [
        ((3, 2), [(0, 1), (2, 3), (4, 5), (0, 2), (2, 4), (1, 3)], "lack neighbours"),
        ((2, 2), [(0, 1), (2, 3), (0, 3), (1, 2)], "along two dimensions"),
        ((4, 2), [(0, 1), (2, 3), (4, 5), (0, 2), (2, 4), (1, 3), (3, 5)], "6 switches do not fill a grid of 4x2"),
    ],
)
def test_a_grid_is_verified_link_by_link(sizes, edges, message):
    """Switch i stands at divmod(i, 2); edges that stay in a row point along the last dimension."""
    net = find_neighbours(subnet_of(fabric_of(nx.Graph(edges), shuffled=False)).graph)
    place = np.divmod(np.arange(len(net.first) - 1, dtype=np.int32), 2)
    along = (place[0][net.near] == place[0][net.far]).astype(np.int32)
    dimensions = tuple(
        Dimension(kind=FULL if size == 2 else ROW, size=size, place=where)
        for size, where in zip(sizes, place, strict=True)
    )
    with pytest.raises(NotAProduct, match=message):
        verify(net, Product(dimensions=dimensions, along=along))


def test_two_switches_cannot_stand_at_one_place():
    net = find_neighbours(subnet_of(fabric_of(nx.cycle_graph(4))).graph)
    pair = Dimension(kind=FULL, size=2, place=np.array([0, 0, 1, 1], np.int32))
    with pytest.raises(NotAProduct, match="4 switches do not fill a grid of 2x2"):
        verify(net, Product(dimensions=(pair, pair), along=np.zeros(len(net.far), np.int32)))


# -- where it leads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "lanes"),
    [
        ("star:hosts=3", 1),
        ("mesh:4x3x5", 1),
        ("mesh:7", 1),
        ("hyperx:4x4x3", 1),
        ("torus:2x2x2x2", 1),
        ("torus:3x3", 1),
        ("torus:4x4x4", 1),  # a hypercube of six dimensions: e-cube routing
        ("torus:5", 2),
        ("torus:5x5", 2),
        ("torus:8x8", 2),
        ("torus:5x5x5", 2),
        ("torus:6x6x6", 2),
        ("torus:5x2x7x3,hosts=2", 2),
        ("torus:6x4x5", 2),
    ],
)
@pytest.mark.parametrize("lmc", [0, 1])
def test_paths_are_shortest_and_free_of_deadlock(spec, lanes, lmc):
    fabric = routed(weft.load(spec), lmc=lmc, max_vls=lanes).fabric
    verdict = check(fabric)
    assert verdict.ok, verdict.explain()
    assert verdict.vls == lanes
    if "star" not in spec:
        local = hop_counts(fabric)
        assert max(verdict.hops) == len(local) - 1
        per_pair = [verdict.hops[hops] / count for hops, count in enumerate(local) if hops]
        assert len(set(per_pair)) == 1  # all switches are equal, so pairs of ports correspond to pairs of switches


def test_four_rings_take_all_four_bits_of_the_service_level():
    verdict = check(routed(weft.load("torus:5x5x5x5"), max_vls=2).fabric)
    assert verdict.ok, verdict.explain()
    assert verdict.vls == 2


def test_parallel_cables_are_used_equally():
    fabric = fabric_of(
        product_of([nx.complete_graph(4), nx.complete_graph(4), nx.complete_graph(3)]), hosts=2, cables=2
    )
    done = routed(fabric).fabric
    assert check(done).ok
    load = measure(done, bisections=2).load
    assert set(load) == {4 * 48 / 4 / 2, 4 * 48 / 3 / 2}


@pytest.mark.parametrize(("sizes", "hosts"), [((4, 3, 2), 2), ((5, 5), 1), ((2, 2, 2, 2), 1), ((8,), 3)])
def test_the_load_of_a_hyperx(sizes, hosts):
    """All-to-all: a link along a dimension of size k carries n / k * hosts**2 pairs that differ as its ends do."""
    n = math.prod(sizes)
    done = routed(weft.load(f"hyperx:{'x'.join(map(str, sizes))},hosts={hosts}")).fabric
    load = measure(done, bisections=2).load
    values, counts = np.unique(load, return_counts=True)
    expected = {}
    for k in sizes:
        expected[n / k * hosts**2] = expected.get(n / k * hosts**2, 0) + n * (k - 1)
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("sizes", "hosts"), [((5, 5), 1), ((7, 5), 1), ((8, 8), 1), ((6, 5), 2), ((8, 12), 1), ((6, 6, 6), 2)]
)
def test_the_load_of_a_torus(sizes, hosts):
    """A ring of k: k**2 / 8 pairs on each link, (k**2 - 1) / 8 if k is odd, for each way to choose the rest.

    In an even ring that is the mean: both directions of the k / 2 pairs that are opposite go by one half of it, and
    halves from k / 2 places cover the links evenly up to half a pair, or a whole one where k / 2 is even.
    """
    n = math.prod(sizes)
    done = routed(weft.load(f"torus:{'x'.join(map(str, sizes))},hosts={hosts}")).fabric
    quality = measure(done, bisections=2)
    axis = (done.ports.number[quality.links] - 1) // 2
    for dimension, k in enumerate(sizes):
        load, pairs = quality.load[axis == dimension], n / k * hosts**2
        uneven = 0 if k % 2 else 0.5 if k % 4 else 1
        assert load.mean() == (k**2 // 8 if k % 2 else k**2 / 8) * pairs
        assert load.max() <= (k**2 / 8 + uneven) * pairs


@pytest.mark.parametrize("spec", ["torus:6x6,hosts=2", "torus:8", "torus:6x8x5", "torus:5x5"])
def test_both_directions_have_one_service_level(spec):
    verdict = check(routed(weft.load(spec)).fabric)
    assert verdict.ok
    assert verdict.one_way == 0


@pytest.mark.parametrize("size", [4, 6])
def test_half_of_the_opposite_pairs_of_a_ring_cross_the_dateline_the_same_from_either_end(size):
    """Their two directions are equally long; the second coordinate takes part in the choice."""
    crossing = []
    for a, b, c in itertools.product(range(size), range(2), range(2)):
        source, target = np.array([a, b]), np.array([(a + size // 2) % size, c])
        there, back = (direction_along(RING, size, *ends, 0) for ends in ((source, target), (target, source)))
        assert {there, back} == {ON, BACK}
        crossing.append((source[0] < target[0]) != (there == ON))
    assert sum(crossing) == len(crossing) / 2


def test_paths_use_lane_one_only_across_the_dateline():
    """A ring of six: no path on lane 0 crosses it, every one on lane 1 does, and no link of a host is on lane 1."""
    done = routed(weft.load("torus:6,hosts=2")).fabric
    tables = done.tables
    graph = Subnet(fabric=done, lid=tables.lid, lmc=tables.lmc).graph
    leads_to = {(s, p): t for s, p, t in zip(graph.near.tolist(), graph.port.tolist(), graph.far.tolist(), strict=True)}
    crossing = set()
    for lid, target in zip(graph.lid.tolist(), graph.at.tolist(), strict=True):
        for source in range(6):
            local, passed = source, []
            while local != target:
                neighbour = leads_to[local, int(tables.lft[local, lid])]
                passed.append(frozenset((local, neighbour)))
                local = neighbour
            if tables.path_sl[source, lid]:
                crossing.update([frozenset(passed)])
            else:
                assert frozenset((0, 5)) not in passed
    assert all(frozenset((0, 5)) in passed for passed in crossing)
    for switch in done.switches:
        rows = tables.sl2vl[tables.first_pair[switch.index] :][: (len(switch.ports) + 1) ** 2]
        by_port = rows.reshape(len(switch.ports) + 1, -1, 16)
        assert (by_port[:, [1, 2], 1] == 1).all()
        assert not by_port[:, [1, 2], 0].any()
        assert not by_port[:, 3:].any()


# -- what it refuses --------------------------------------------------------------------------------------------------


def test_a_torus_that_lost_a_cable_is_refused_with_its_ends():
    broken = faults.remove_link(weft.load("torus:5x5"), "sw3/1")
    with pytest.raises(CannotRoute, match=r"sw3 has 3, sw8 has 3, all others have 4 neighbours\n.*dfsssp"):
        routed(broken)


def test_a_tree_is_refused():
    with pytest.raises(CannotRoute, match="neither a row, nor a ring, nor a full mesh\n"):
        routed(weft.load("fat-tree:hosts=64,radix=16"))


def test_a_ring_needs_two_lanes():
    with pytest.raises(CannotRoute, match=r"torus:5x5 needs 2 virtual lanes, the ports have 1\n.*up-down"):
        routed(weft.load("torus:5x5"), max_vls=1)


def test_five_rings_are_too_many():
    with pytest.raises(CannotRoute, match="each of its 5 rings, and there are 4"):
        routed(weft.load("torus:5x5x5x5x5"))


def test_a_lost_parallel_cable_changes_only_its_own_entries():
    before = routed(fabric_of(product_of([nx.cycle_graph(5), nx.complete_graph(3)]), hosts=2, cables=3))
    slot = int(measure(before.fabric, bisections=2).links[0])
    port = before.fabric.port(slot)
    after = reroute(faults.remove_link(before.fabric, port.name), before)
    assert check(after.fabric).ok
    changed = np.argwhere(after.tables.lft != before.tables.lft)
    switches = {before.fabric.tables.switch_row[end.node.index] for end in (port, port.peer)}
    assert set(changed[:, 0]) == switches
    assert after.changed_entries == len(changed)
    numbers = {before.fabric.tables.switch_row[end.node.index]: end.number for end in (port, port.peer)}
    assert all(before.tables.lft[switch, lid] == numbers[switch] for switch, lid in changed)
