"""networkx finds no cycle in the channel dependencies of any layer."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from tests.broken import pull_cables

import weft
from weft.fabric.kinds import NodeKind
from weft.routing.basic_engines import MinHop, UpDown
from weft.routing.engine import Options, Subnet
from weft.routing.layers import fill_sl2vl, find_layers
from weft.routing.lids import assign_lids


def subnet_of(fabric):
    lid, lmc = assign_lids(fabric)
    return Subnet(fabric=fabric, lid=lid, lmc=lmc)


def layers_of(fabric, engine):
    subnet = subnet_of(fabric)
    return subnet.graph, (lft := engine.route(subnet, Options()).lft), find_layers(subnet.graph, lft)


def dependencies(graph, lft, layer):
    """Return the channel dependency graph of each layer, built path by path."""
    edge_at = {(int(s), int(p)): e for e, (s, p) in enumerate(zip(graph.near, graph.port, strict=True))}
    result = {}
    for index, source in np.ndindex(len(graph.lid), graph.n_switches):
        local, path = source, []
        while local != graph.at[index]:
            path.append(edge_at[local, int(lft[local, graph.lid[index]])])
            local = int(graph.far[path[-1]])
        result.setdefault(int(layer[source, graph.at[index]]), nx.DiGraph()).add_edges_from(itertools.pairwise(path))
    return result


@pytest.mark.parametrize(
    "spec", ["torus:7", "torus:5x5", "torus:3x4x3", "dragonfly:p=1,a=4,h=2", "fat-tree:hosts=50,radix=8"]
)
def test_no_layer_has_a_circle(spec):
    graph, lft, layer = layers_of(weft.load(spec), MinHop())
    of_layer = dependencies(graph, lft, layer)
    assert sorted(of_layer) == list(range(len(of_layer)))
    assert all(nx.is_directed_acyclic_graph(each) for each in of_layer.values())


@pytest.mark.parametrize("seed", range(5))
def test_no_layer_has_a_circle_in_broken_fabrics(seed):
    broken = pull_cables(weft.load("torus:5x4x3"), 0.15, seed)
    graph, lft, layer = layers_of(broken, MinHop())
    assert all(nx.is_directed_acyclic_graph(each) for each in dependencies(graph, lft, layer).values())


@pytest.mark.parametrize("spec", ["torus:5x5", "dragonfly:p=1,a=4,h=2", "fat-tree:hosts=50,radix=8"])
def test_both_directions_between_switches_of_hosts_are_in_one_layer(spec):
    graph, _, layer = layers_of(weft.load(spec), MinHop())
    hosts = graph.hosts > 0
    assert layer.any()
    assert (layer == layer.T)[hosts].all()


@pytest.mark.parametrize("size", [5, 6, 7])
def test_a_ring_takes_two_layers(size):
    """A single layer is impossible: shortest paths both ways round close two cycles. Two are enough: a dateline for
    each.
    """
    _, _, layer = layers_of(weft.load(f"torus:{size}"), MinHop())
    assert layer.max() == 1


@pytest.mark.parametrize(
    "spec", ["torus:5x5", "dragonfly:p=2,a=4,h=2", "fat-tree:hosts=120,radix=8", "hyperx:4x3", "star:hosts=3"]
)
def test_paths_without_a_cycle_stay_in_one_layer(spec):
    _, _, layer = layers_of(weft.load(spec), UpDown())
    assert not layer.any()


def test_most_paths_stay_in_the_first_layer():
    """A layer takes all that it can: in a torus well over half of the paths fit beside each other."""
    _, _, layer = layers_of(weft.load("torus:5x5"), MinHop())
    counts = np.bincount(layer.ravel())
    assert counts[0] > layer.size / 2
    assert (np.diff(counts) < 0).all()


def test_sl2vl_goes_by_the_kinds_of_the_two_ports():
    fabric = weft.load("mesh:2x2,radix=8")
    tables = fabric.tables.like()
    kind = (fabric.ports.number == 1).astype(np.intp)  # port 1 is special, others are not
    lanes = np.zeros((2, 2, 16), np.uint8)
    lanes[1, 0], lanes[0, 1, 3] = 5, 7
    fill_sl2vl(fabric, tables, kind, kind, lanes)
    (switch,) = fabric.of_kind(NodeKind.SWITCH)[1:2].tolist()
    rows = tables.sl2vl[tables.first_pair[switch] :][: 9 * 9].reshape(9, 9, 16)
    assert (rows[1, [0, 2, 8]] == 5).all()
    assert (rows[[0, 4], 1, 3] == 7).all()
    assert not rows[1, 1].any()
    assert not rows[[0, 4], 1, :3].any()
    (host,) = fabric.of_kind(NodeKind.HCA)[:1].tolist()
    assert not tables.sl2vl[tables.first_pair[host] :][:2].any()
