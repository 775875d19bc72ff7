from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

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
def test_a_switch_s_level_is_its_distance_to_the_nearest_host_through_switches(fabric):
    graph, level = graph_of(fabric), levels(fabric)
    hosts = [n for n in graph if fabric.nodes.kind[n] == NodeKind.HCA]
    through = nx.Graph([e for e in graph.edges if not set(e) <= set(hosts)])
    directed = nx.DiGraph((u, v) for a, b in through.edges for u, v in ((a, b), (b, a)) if v not in hosts)
    sources = set(hosts) & set(directed)
    reach = nx.multi_source_dijkstra_path_length(directed, sources) if sources else {}
    for node in range(len(fabric.nodes)):
        if fabric.nodes.kind[node] == NodeKind.SWITCH:
            assert level[node] == reach.get(node, NO_LEVEL)
