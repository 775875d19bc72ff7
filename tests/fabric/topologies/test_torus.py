from __future__ import annotations

import math

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.topologies import mesh, torus

dimensions = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def switch_graph(fabric: Fabric) -> nx.MultiGraph:
    graph = nx.MultiGraph()
    graph.add_nodes_from(node.name for node in fabric.switches)
    graph.add_edges_from((link.a.node.name, link.b.node.name) for link in fabric.all_links() if "h" not in str(link))
    return graph


@given(dimensions, st.booleans())
def test_the_grid_is_the_one_that_networkx_makes(dims, wrap):
    """The order is the same: networkx counts the last dimension slowest, so it gets them reversed."""
    fabric = (torus if wrap else mesh)(dims)
    expected = nx.grid_graph(dims[::-1], periodic=[wrap and size > 2 for size in dims[::-1]])
    names = {place: f"sw{index + 1}" for index, place in enumerate(sorted(expected))}
    graph = switch_graph(fabric)
    assert set(graph) == set(names.values())
    assert len(graph.edges) == len(expected.edges)
    assert {frozenset(edge) for edge in nx.Graph(graph).edges} == {
        frozenset((names[a], names[b])) for a, b in expected.edges
    }


@pytest.mark.parametrize("dims", [(4, 4, 4), (3, 5), (8,), (3, 3, 3, 3)])
def test_a_torus_has_as_many_cables_as_switches_in_each_dimension(dims):
    fabric = torus(dims, hosts=2)
    switches = math.prod(dims)
    assert len(fabric.links) == switches * (len(dims) + 2)


def test_odd_ports_lead_ahead_and_even_ports_back():
    fabric = torus((3, 4, 5))
    home = fabric["sw1"]
    assert [port.peer.name for port in home.ports[:6]] == ["sw21/2", "sw41/1", "sw6/4", "sw16/3", "sw2/6", "sw5/5"]
    assert home.ports[6].peer.name == "h1/1"


@given(dimensions, st.booleans())
def test_a_walk_through_a_plus_port_comes_back_by_the_minus_port(dims, wrap):
    fabric = (torus if wrap else mesh)(dims)
    for switch in fabric.switches:
        for port in switch.ports[: 2 * len(dims)]:
            if port.peer:
                assert {port.number, port.peer.number} == {
                    (port.number - 1) // 2 * 2 + 1,
                    (port.number - 1) // 2 * 2 + 2,
                }


def test_a_torus_of_size_two_has_one_cable_as_a_mesh_has():
    assert len(torus((2, 2)).links) == len(mesh((2, 2)).links) == 4 + 4
    assert str(torus((2,))["sw1/2"].peer) == "None"


def test_the_edge_of_a_mesh_is_open():
    fabric = mesh((4, 4), hosts=2)
    assert [str(port.peer) for port in fabric["sw1"].ports[:6]] == ["sw5/2", "None", "sw2/4", "None", "h1/1", "h2/1"]
    assert len(fabric.links) == 2 * 4 * 3 + 32


def test_more_ports_than_the_switch_has_are_refused():
    with pytest.raises(ConfigError, match=r"torus: a switch needs 7 ports \(6 for 3 dimensions, 1 for hosts\)"):
        torus((2, 2, 2), radix=6)
