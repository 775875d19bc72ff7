"""Traffic patterns: senders and receivers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.routing.lids import assign_lids
from weft.routing.patterns import bisection, host_ports, rails, shift


def with_lids(fabric: Fabric) -> Fabric:
    fabric.tables.lid[:] = assign_lids(fabric)[0]
    return fabric


def rail_names(fabric: Fabric) -> list[tuple[str, str]]:
    hosts = host_ports(fabric)
    return [
        (fabric.port(int(hosts[a])).node.name, fabric.port(int(hosts[b])).node.name) for a, b in rails(fabric, hosts)
    ]


def two_servers(adapters: dict[str, list[str]]) -> Fabric:
    """Build servers with these adapters, all on one switch, cabled in this order."""
    builder = FabricBuilder("servers")
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=20)
    port = 0
    for server, devices in adapters.items():
        (index,) = builder.add_servers([server])
        for device in devices:
            port += 1
            node = builder.add_nodes(NodeKind.HCA, [f"{server}/{device}"], n_ports=1, server=index)
            builder.add_links(node, 1, leaf, port, "NDR")
    return with_lids(builder.build())


@given(n=st.integers(2, 40), k=st.integers(1, 39))
def test_a_shift_is_a_permutation_by_k_places(n, k):
    flows = shift(n, k)
    assert flows[:, 0].tolist() == list(range(n))
    assert sorted(flows[:, 1].tolist()) == list(range(n))
    assert ((flows[:, 1] - flows[:, 0]) % n == k % n).all()


def test_a_ring_closes():
    assert shift(3, 1).tolist() == [[0, 1], [1, 2], [2, 0]]


@given(n=st.integers(2, 41), seed=st.integers(0, 99))
def test_in_a_bisection_every_host_exchanges_with_one_partner(n, seed):
    """Both ways at once; of an odd number one rests."""
    flows = bisection(n, np.random.default_rng(seed))
    partner = dict(flows.tolist())
    assert len(flows) == len(partner) == n // 2 * 2
    assert all(partner[other] == host != other for host, other in partner.items())


def test_all_bisections_come_up():
    """Four hosts have three pairings."""
    rng = np.random.default_rng(1)
    visited = {frozenset(frozenset(flow) for flow in bisection(4, rng).tolist()) for _ in range(100)}
    assert len(visited) == 3


def test_host_ports_stand_in_the_order_of_the_fabric_and_are_adapters_with_a_lid():
    fabric = with_lids(weft.load("fat-tree:hosts=16,radix=8"))
    assert [fabric.port(int(slot)).name for slot in host_ports(fabric)] == [f"h{n}/1" for n in range(1, 17)]
    fabric.tables.lid[fabric["h3/1"].slot] = 0
    assert [fabric.port(int(slot)).name for slot in host_ports(fabric)][:3] == ["h1/1", "h2/1", "h4/1"]


def test_rails_join_the_same_rail_of_neighbours():
    pairs = rail_names(with_lids(weft.load("superpod:su=1")))
    assert len(pairs) == 32 * 8
    assert ("dgx1/mlx5_0", "dgx2/mlx5_0") in pairs
    assert ("dgx32/mlx5_0", "dgx1/mlx5_0") in pairs
    assert all(a.split("/")[1] == b.split("/")[1] for a, b in pairs)


def test_rails_go_by_the_number_in_the_name_not_by_the_order_of_a_dump():
    fabric = two_servers({"a": ["mlx5_10", "mlx5_2"], "b": ["mlx5_3", "mlx5_2"]})
    assert ("a/mlx5_2", "b/mlx5_2") in rail_names(fabric)
    assert ("a/mlx5_10", "b/mlx5_3") in rail_names(fabric)


@pytest.mark.parametrize(
    ("adapters", "flows"),
    [
        ({"a": ["mlx5_0"], "b": ["mlx5_0"]}, 0),  # single rails: that is the ring
        ({"a": ["mlx5_0", "mlx5_1"], "b": ["mlx5_0"]}, 0),  # no receiver
        ({"a": ["mlx5_0", "mlx5_1", "mlx5_2"], "b": ["mlx5_0", "mlx5_1"]}, 4),  # the third rail has no neighbour
    ],
)
def test_servers_without_a_neighbour_on_a_rail_send_nothing_there(adapters, flows):
    assert len(rail_names(two_servers(adapters))) == flows
