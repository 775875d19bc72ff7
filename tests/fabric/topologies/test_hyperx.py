from __future__ import annotations

import math

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.fabric.topologies import hyperx


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), st.integers(1, 3))
def test_it_is_the_hamming_graph_of_its_sizes(dims, hosts):
    """Ahn et al. 2009: switches are neighbours if they differ in one coordinate, which K_n × K_m × ... says too."""
    fabric = hyperx(dims, hosts=hosts)
    expected = nx.empty_graph(1)
    for axis, size in enumerate(dims):
        product = nx.cartesian_product(expected, nx.complete_graph(size))
        expected = product if axis == 0 else nx.relabel_nodes(product, {n: (*n[0], n[1]) for n in product})
    names = {place: f"sw{index + 1}" for index, place in enumerate(sorted(expected))}
    edges = {frozenset((link.a.node.name, link.b.node.name)) for link in fabric.all_links() if "h" not in str(link)}
    assert edges == {frozenset((names[a], names[b])) for a, b in expected.edges}
    assert len(fabric.links) == math.prod(dims) * hosts + len(expected.edges)


def test_ports_are_hosts_then_each_dimension_in_order():
    fabric = hyperx((4, 4), hosts=4)
    peers = [port.peer.node.name for port in fabric["sw6"].ports[:10]]
    assert peers == ["h21", "h22", "h23", "h24", "sw2", "sw10", "sw14", "sw5", "sw7", "sw8"]


def test_a_hypercube_is_a_hyperx_of_size_two():
    fabric = hyperx((2,) * 6, radix=7)
    assert len(fabric.switches) == 64
    assert all(len(switch.peers) == 7 for switch in fabric.switches)


def test_more_ports_than_the_switch_has_are_refused():
    with pytest.raises(ConfigError, match=r"needs 66 ports \(4 for hosts, 62 to switches\)"):
        hyperx((32, 32), hosts=4, switch="QM9700")
