from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.topologies import slim_fly
from weft.routing.check import check
from weft.routing.route import route


def switch_graph(fabric: Fabric) -> nx.Graph:
    links = [(link.a.node, link.b.node) for link in fabric.all_links()]
    return nx.Graph((a.name, b.name) for a, b in links if a.name.startswith("sw") and b.name.startswith("sw"))


@pytest.mark.parametrize("q", [3, 5, 7, 11, 13])
def test_any_two_switches_are_two_hops_apart_with_the_published_numbers(q):
    """Besta and Hoefler 2014: 2q² switches with (3q - δ)/2 network ports each for q = 4w + δ."""
    fabric = slim_fly(q)
    graph = switch_graph(fabric)
    delta = 1 if q % 4 == 1 else -1
    ports = (3 * q - delta) // 2
    assert len(graph) == 2 * q * q
    assert {degree for _, degree in graph.degree()} == {ports}
    assert nx.diameter(graph) == 2
    assert len(fabric.hcas) == 2 * q * q * ((ports + 1) // 2)
    assert len(fabric.links) == len(fabric.hcas) + q * q * ports


def test_q_of_five_is_the_hoffman_singleton_graph():
    """Seven neighbours, diameter 2 and girth 5: only one graph has them. 200 servers, as installed at CSCS."""
    graph = switch_graph(slim_fly(5))
    assert nx.is_strongly_regular(graph)
    assert nx.girth(graph) == 5
    assert len(slim_fly(5).hcas) == 200


def test_ports_are_hosts_then_the_column_then_the_other_half():
    """Switch (1, 0) is the first of the second group: its column by distances 1 and 4, then y = m x + c."""
    fabric = slim_fly(5, hosts=1)
    peers = [port.peer.node.name for port in fabric["sw11"].ports[:8]]
    row_of_column = [0, 4, 3, 2, 1]  # c = y - m x for m = 0 to 4
    assert peers == ["h11", "sw12", "sw15", *(f"sw{10 * m + 5 + c + 1}" for m, c in enumerate(row_of_column))]


def test_a_group_stands_together_and_other_cables_cross_the_hall():
    fabric = slim_fly(5, hosts=1)
    nodes, links = fabric.nodes, fabric.links
    ends = fabric.ports.node[np.stack((links.a, links.b))]
    switches = np.isin(ends, [node.index for node in fabric.switches]).all(axis=0)
    same = nodes.group[ends[0]] == nodes.group[ends[1]]
    assert set(links.length_m[switches & same]) == {10.0}
    assert set(links.length_m[switches & ~same]) == {30.0}
    assert (np.bincount(nodes.group[[node.index for node in fabric.switches]]) == 10).all()


def test_it_is_routed_by_two_hops_without_deadlock():
    verdict = check(route(weft.load("slim-fly:q=5,hosts=1")).fabric)
    assert verdict.ok
    assert len(verdict.hops) == 3


@pytest.mark.parametrize(("q", "near"), [(9, "7 or 11"), (1, "3 or 5"), (2, "3 or 5"), (15, "13 or 17")])
def test_a_number_that_is_not_an_odd_prime_is_refused(q, near):
    with pytest.raises(ConfigError, match=f"q={q} is not an odd prime: give {near}"):
        slim_fly(q)


def test_more_ports_than_the_switch_has_are_refused():
    with pytest.raises(ConfigError, match=r"needs 65 ports \(22 for hosts, 43 to switches\)"):
        slim_fly(29, switch="QM9700")


def test_a_server_of_eight_rails_gets_its_ports():
    fabric = weft.load("slim-fly:q=5,server=dgx-h100")
    assert len(fabric.servers) == 50
    assert len(switch_graph(fabric)) == 50
