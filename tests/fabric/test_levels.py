from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import NO_LEVEL, islands, levels
from weft.fabric.model import Fabric


def random_fabric(kinds: list[int], pairs: list[tuple[int, int]]) -> Fabric:
    builder = FabricBuilder("random")
    for index, kind in enumerate(kinds):
        builder.add_nodes(NodeKind(kind), [f"n{index}"], n_ports=100)
    used = [0] * len(kinds)
    for a, b in pairs:
        if a % len(kinds) != b % len(kinds):
            ends = a % len(kinds), b % len(kinds)
            for end in ends:
                used[end] += 1
            builder.add_links(ends[0], used[ends[0]], ends[1], used[ends[1]], "EDR")
    return builder.build()


fabrics = st.builds(
    random_fabric,
    st.lists(st.sampled_from([NodeKind.SWITCH, NodeKind.SWITCH, NodeKind.HCA]), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60),
)


def graph_of(fabric: Fabric) -> nx.Graph:
    graph = nx.Graph()
    graph.add_edges_from(zip(*(end.tolist() for end in fabric.link_nodes), strict=True))
    return graph


@given(fabrics)
def test_islands_are_the_connected_parts_that_networkx_finds(fabric):
    assert {frozenset(part.tolist()) for part in islands(fabric)} == {
        frozenset(part) for part in nx.connected_components(graph_of(fabric))
    }
    sizes = [len(part) for part in islands(fabric)]
    assert sizes == sorted(sizes, reverse=True)


@given(fabrics)
def test_a_switch_s_level_is_its_distance_to_the_nearest_host_or_that_of_its_likes(fabric):
    graph, level = graph_of(fabric), levels(fabric)
    hosts = [n for n in graph if fabric.nodes.kind[n] == NodeKind.HCA]
    through = nx.Graph([e for e in graph.edges if not set(e) <= set(hosts)])
    directed = nx.DiGraph((u, v) for a, b in through.edges for u, v in ((a, b), (b, a)) if v not in hosts)
    sources = set(hosts) & set(directed)
    reach = nx.multi_source_dijkstra_path_length(directed, sources) if sources else {}
    for node in range(len(fabric.nodes)):
        if fabric.nodes.kind[node] == NodeKind.SWITCH:
            assert level[node] == lowered(directed, reach, node)


def lowered(graph: nx.DiGraph, reach: dict[int, int], node: int) -> int:
    """Return its distance, or that of a switch with the same neighbours above."""
    far = reach.get(node, NO_LEVEL)
    above = set(graph.predecessors(node)) & set(graph.successors(node)) if far > 2 else set()
    if len(above) < 2 or any(reach[n] >= far for n in above):
        return far
    likes = [n for n in reach if reach[n] == far - 2 and above <= set(graph.successors(n))]
    below = [n for n in reach if reach[n] == far - 2]
    plugged = [n for n in below if any(reach[m] == far - 1 for m in graph.successors(n))]
    ups = [sum(reach[n] == far - 1 for n in graph.successors(like)) for like in likes]
    return far - 2 if 2 * len(plugged) >= len(below) and any(2 * len(above) > up for up in ups) else far


def without_hosts_of(fabric: Fabric, *leaves: str) -> Fabric:
    level = levels(fabric)
    bare = {fabric.find_node(name).index for name in leaves}
    keep = np.ones(len(level), bool)
    for near, far in (fabric.link_nodes, fabric.link_nodes[::-1]):
        keep[near[(level[near] == 0) & np.isin(far, list(bare))]] = False
    return fabric.subset(keep)


@pytest.mark.parametrize(
    ("spec", "leaves"),
    [
        ("fat-tree:hosts=16,radix=8", ["leaf2"]),
        ("fat-tree:hosts=16,radix=8", ["leaf2", "leaf4"]),
        ("fat-tree:hosts=128,radix=8,levels=3", ["leaf2"]),
        ("fat-tree:hosts=128,radix=8,levels=3", ["leaf1", "leaf2", "leaf7"]),
        ("superpod:su=1,server=dgx-h100", ["leaf3"]),
        ("superpod:su=4,server=dgx-h100", ["leaf3", "leaf12"]),
        ("dragonfly:p=2,a=4,h=2", []),
        ("torus:4x4,hosts=1", []),
    ],
)
def test_a_switch_that_loses_its_hosts_keeps_its_level(spec, leaves):
    fabric = weft.load(spec)
    now = levels(bare := without_hosts_of(fabric, *leaves))
    before = dict(zip(fabric.nodes.name, levels(fabric).tolist(), strict=True))
    assert {bare.nodes.name[i]: int(now[i]) for i in bare.of_kind(NodeKind.SWITCH).tolist()} == {
        fabric.nodes.name[i]: before[fabric.nodes.name[i]] for i in fabric.of_kind(NodeKind.SWITCH).tolist()
    }


def test_a_core_that_is_left_with_one_pod_stays_a_core():
    fabric = weft.load("fat-tree:hosts=128,radix=8,levels=3")
    core = next(i for i in fabric.of_kind(NodeKind.SWITCH).tolist() if levels(fabric)[i] == 3)
    a, b = fabric.link_nodes
    at_core = np.flatnonzero((a == core) | (b == core))
    keep = np.ones(len(fabric.links), bool)
    keep[at_core[1:]] = False
    assert levels(fabric.subset(keep_links=keep))[core] == 3


def test_a_spine_board_below_which_nothing_is_plugged_is_a_spine():
    """A director's board without leaves is not above the boards that it is connected to."""
    builder = FabricBuilder("director")
    top = builder.add_nodes(NodeKind.SWITCH, ["s1", "s2"], n_ports=8)
    boards = builder.add_nodes(NodeKind.SWITCH, ["l1", "l2", "l3"], n_ports=8)
    for i, board in enumerate(boards.tolist()):
        builder.add_links([board, board], [1, 2], top, [i + 1, i + 1], "HDR")
    for i, board in enumerate(boards.tolist()[:2]):
        leaf = builder.add_nodes(NodeKind.SWITCH, [f"leaf{i}"], n_ports=8)
        host = builder.add_nodes(NodeKind.HCA, [f"h{i}"], n_ports=1)
        builder.add_links(board, 3, leaf, 1, "HDR")
        builder.add_links(leaf, 2, host, 1, "HDR")
    assert levels(builder.build())[:5].tolist() == [3, 3, 2, 2, 2]


def test_an_aggregation_node_shares_the_level_of_its_switch_whatever_else_it_is_plugged_into() -> None:
    """Else a switch whose aggregation node reaches a host would be drawn as a host."""
    fabric = random_fabric([NodeKind.SWITCH, NodeKind.AGGREGATION, NodeKind.HCA], [(1, 0), (1, 2)])
    assert levels(fabric).tolist() == [NO_LEVEL, NO_LEVEL, 0]
