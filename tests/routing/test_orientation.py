"""Hops to the root of a subnet, and the choice of the root."""

from __future__ import annotations

import networkx
import pytest

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.routing.graph import switch_graph
from weft.routing.lids import assign_lids
from weft.routing.orientation import default_root, hops_from


def graph_of(fabric):
    return switch_graph(fabric, *assign_lids(fabric, 0))


def row_of_switches(count: int, *, apart: int = 0):
    """Build a row of switches, each with a host, and `apart` more that are not connected to it."""
    builder = FabricBuilder("row")
    names = [f"sw{number}" for number in range(count + apart)]
    switches = builder.add_nodes(NodeKind.SWITCH, names, n_ports=4)
    builder.add_links(switches[: count - 1], 2, switches[1:count], 1, "EDR")
    adapters = builder.add_nodes(NodeKind.HCA, [f"h{number}" for number in range(len(names))], n_ports=1)
    builder.add_links(adapters, 1, switches, 3, "EDR")
    return builder.build()


@pytest.mark.parametrize("spec", ["torus:4x5", "fat-tree:hosts=54,radix=6", "dragonfly:p=2,a=4,h=2"])
def test_hops_are_the_shortest_distances(spec):
    graph = graph_of(weft.load(spec))
    expected = networkx.Graph(zip(graph.near.tolist(), graph.far.tolist(), strict=True))
    for root in range(0, graph.n_switches, 3):
        hops = hops_from(graph, root)
        assert dict(enumerate(hops.tolist())) == networkx.single_source_shortest_path_length(expected, root)


def test_switches_that_the_root_does_not_reach_are_farther_than_all_others():
    graph = graph_of(row_of_switches(9, apart=2))
    assert hops_from(graph, 0).tolist() == [*range(9), 11, 11]


def test_the_root_of_a_row_in_which_every_switch_has_hosts_is_its_middle():
    assert default_root(graph_of(row_of_switches(9))) == 4
    assert default_root(graph_of(row_of_switches(8))) == 3  # the first of two


def test_the_root_of_a_tree_is_the_first_leaf_with_most_links():
    fabric = weft.load("fat-tree:hosts=16,radix=8")
    assert fabric.nodes.name[graph_of(fabric).switches[default_root(graph_of(fabric))]] == "leaf1"


def test_a_switch_with_one_host_is_a_leaf():
    builder = FabricBuilder("one host on each leaf")
    spine, *leaves = builder.add_nodes(NodeKind.SWITCH, ["spine", "leaf1", "leaf2", "leaf3"], n_ports=4)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2", "h3"], n_ports=1)
    builder.add_links(spine, [1, 2, 3], leaves, 1, "EDR")
    builder.add_links(hosts, 1, leaves, 2, "EDR")
    assert default_root(graph_of(builder.build())) == 1
