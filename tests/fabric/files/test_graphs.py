"""GraphML and JSON: another program finds the same nodes, links and attributes in them."""

from __future__ import annotations

import json
import re

import networkx as nx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.files import graphs
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.spec import load

SPECS = ["star:3", "fat-tree:hosts=12,radix=8", "fat-tree:hosts=2,server=dgx-h100", "dragonfly:p=2,a=4,h=1"]


def from_graphml(fabric: Fabric, tmp_path) -> nx.Graph:
    path = tmp_path / "fabric.graphml"
    path.write_text(graphs.to_graphml(fabric), encoding="utf-8")
    return nx.read_graphml(path)


def from_json(fabric: Fabric, tmp_path) -> nx.Graph:
    return nx.node_link_graph(json.loads(graphs.to_json(fabric)), edges="links")


def check_graph(graph: nx.Graph, fabric: Fabric) -> None:
    """Assert that a graph agrees with its fabric."""
    assert set(graph.nodes) == set(fabric.nodes.name)
    for node in map(fabric.node, range(len(fabric.nodes))):
        output = graph.nodes[node.name]
        assert output["kind"] == node.kind.name.lower()
        assert output["guid"] == str(node.guid)
        assert output["ports"] == len(node.ports)
        assert output["description"] == node.description
        assert output.get("model", "") == node.model
        assert output.get("server", "") == (node.server.name if node.server else "")
        assert output.get("group", "") == node.group
    output = sorted(
        (*sorted([edge["source_port"], edge["target_port"]]), edge["label"], edge["rate_gbit_s"])
        for _, _, edge in graph.edges(data=True)
    )
    assert output == sorted(
        (*sorted([link.a.name, link.b.name]), link.label, link.rate_gbit_s) for link in fabric.all_links()
    )
    for a, b, edge in graph.edges(data=True):
        assert {a, b} == {edge["source_port"].rpartition("/")[0], edge["target_port"].rpartition("/")[0]}


@pytest.mark.parametrize("read", [from_graphml, from_json])
@pytest.mark.parametrize("spec", SPECS)
def test_networkx_reads_the_same_fabric(read, spec, tmp_path):
    fabric = load(spec)
    check_graph(read(fabric, tmp_path), fabric)


@pytest.mark.parametrize("read", [from_graphml, from_json])
def test_parallel_links_and_loops_stay_apart(read, tmp_path):
    builder = FabricBuilder("parallel")
    a, b = builder.add_nodes(NodeKind.SWITCH, ["a", "b"], n_ports=8)
    builder.add_links(a, [1, 2, 3], b, [1, 2, 3], "HDR")
    builder.add_links(a, 5, a, 6, "HDR")
    graph = read(builder.build(), tmp_path)
    assert graph.number_of_edges("a", "b") == 3
    assert graph.number_of_edges("a", "a") == 1


@pytest.mark.parametrize("read", [from_graphml, from_json])
def test_known_values_are_written_and_unknown_ones_omitted(read, tmp_path):
    builder = FabricBuilder("known")
    a, b = builder.add_nodes(NodeKind.SWITCH, ["a", "b"], n_ports=8)
    builder.add_links(a, 1, b, 1, "HDR", medium=Medium.AOC, length_m=2.5, bit_error_rate=1e-9)
    builder.add_links(a, 2, b, 2, "HDR")
    fabric = builder.build()
    fabric.tables.lid[fabric.find_port("a/0").slot] = 17
    graph = read(fabric, tmp_path)
    assert graph.nodes["a"]["lid"] == 17
    assert "lid" not in graph.nodes["b"]
    recorded, unknown = sorted(
        (edge for _, _, edge in graph.edges(data=True)), key=lambda edge: edge["source_port"] + edge["target_port"]
    )
    assert (recorded["medium"], recorded["length_m"], recorded["bit_error_rate"]) == ("aoc", 2.5, 1e-9)
    assert unknown.keys().isdisjoint({"medium", "length_m", "bit_error_rate"})


def test_levels_of_a_tree_are_in_the_graph(tmp_path):
    graph = from_graphml(load("fat-tree:hosts=12,radix=8"), tmp_path)
    assert [graph.nodes[name]["level"] for name in ("h1", "leaf1", "spine1")] == [0, 1, 2]


def test_json_names_the_version_and_the_spec():
    data = json.loads(graphs.to_json(load("star:hosts=3,radix=8")))
    assert data["weft"] == weft.__version__
    assert data["spec"].startswith("star:")
    assert data["links"][0].keys() >= {"source", "target", "key"}  # d3-force and graphology want these names
    assert [node["id"] for node in data["nodes"]] == ["h1", "h2", "h3", "leaf1"]


@pytest.mark.parametrize("read", [from_graphml, from_json])
@settings(max_examples=50)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
@example(text="---")  # a comment of XML holds no two dashes
def test_any_description_survives(read, text, tmp_path):
    """Characters that XML cannot contain are escaped; all line ends are equal in XML."""
    builder = FabricBuilder(f"spec -- {text}")
    builder.add_nodes(NodeKind.HCA, ["h1"], n_ports=1, descriptions=[text])
    output = read(builder.build(), tmp_path).nodes["h1"]["description"]
    assert output == text or (read is from_graphml and re.search("[\x00-\x1f\ufffe\uffff]", text))
