"""Names from node descriptions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.fabric.build import FabricBuilder
from weft.fabric.files.naming import adapter_kind, name_nodes, node_id
from weft.fabric.kinds import NodeKind

SWITCH, HCA, AGGREGATION, ROUTER = NodeKind.SWITCH, NodeKind.HCA, NodeKind.AGGREGATION, NodeKind.ROUTER


def name(*nodes: tuple[NodeKind, str], home: dict[int, int] | None = None) -> list[tuple[str, str]]:
    """Name and server of these nodes; their GUIDs are 1, 2, ..."""
    ids = [node_id(kind, guid) for guid, (kind, _) in enumerate(nodes, 1)]
    homes = [(home or {}).get(i, -1) for i in range(len(nodes))]
    return list(zip(*name_nodes([kind for kind, _ in nodes], [text for _, text in nodes], ids, homes), strict=True))


@pytest.mark.parametrize(
    ("kind", "description", "expected"),
    [
        (SWITCH, "leaf1", ("leaf1", "")),
        (SWITCH, "MF0;LG01-02:MQM8700/U1", ("LG01-02", "")),
        (SWITCH, "MF0;dir1:MCS8500/L16/U2", ("dir1", "")),
        (SWITCH, "SUN DCS 36P QDR ibsw1 10.0.0.1", ("SUN-DCS-36P-QDR-ibsw1-10.0.0.1", "")),
        (SWITCH, "leaf 'a'; rm -rf /", ("leaf-a-rm-rf", "")),
        (SWITCH, "Quantum Mellanox Technologies", ("S-0000000000000001", "")),
        (SWITCH, "", ("S-0000000000000001", "")),
        (SWITCH, " - / - ", ("S-0000000000000001", "")),
        (HCA, "h1 mlx5_0", ("h1", "h1")),
        (HCA, "h1", ("h1", "h1")),
        (HCA, "selene-cache-02 mlx5_1 ", ("selene-cache-02", "selene-cache-02")),
        (HCA, "MT4129 ConnectX7   Mellanox Technologies", ("H-0000000000000001", "")),
        (HCA, "localhost HCA-1", ("H-0000000000000001", "")),
        (HCA, "(none) mlx5_0", ("H-0000000000000001", "")),
        (HCA, "   ", ("H-0000000000000001", "")),
        (ROUTER, "router to B", ("router-to-B", "")),
        (ROUTER, "", ("R-0000000000000001", "")),
    ],
)
def test_a_description_gives_a_name_and_a_server(kind, description, expected):
    assert name((kind, description)) == [expected]


def test_adapters_of_one_server_go_by_server_and_device():
    assert name((HCA, "luna-0123 mlx5_4"), (HCA, "luna-0123 mlx5_5")) == [
        ("luna-0123/mlx5_4", "luna-0123"),
        ("luna-0123/mlx5_5", "luna-0123"),
    ]


def test_a_device_is_never_a_bare_number_for_that_would_be_a_port():
    assert name((HCA, "node1 1"), (HCA, "node1 2")) == [("node1/hca1", "node1"), ("node1/hca2", "node1")]


def test_the_chips_of_a_director_switch_say_where_they_sit():
    chips = ["MF0;dir1:MCS8500/L16/U2", "MF0;dir1:MCS8500/S01/U1"]
    assert [n for n, _ in name(*((SWITCH, chip) for chip in chips))] == ["dir1-L16-U2", "dir1-S01-U1"]


def test_twins_keep_their_ids_and_are_in_no_known_server():
    """Two servers are called ubuntu: the server of each HCA is unknown."""
    twins = name((HCA, "ubuntu mlx5_0"), (HCA, "ubuntu mlx5_0"), (HCA, "ubuntu mlx5_1"))
    assert twins == [("H-0000000000000001", ""), ("H-0000000000000002", ""), ("ubuntu/mlx5_1", "ubuntu")]


def test_a_switch_does_not_hide_a_server():
    nodes = name((SWITCH, "gpu1"), (HCA, "gpu1 mlx5_0"), (HCA, "gpu1 mlx5_1"))
    assert nodes == [("S-0000000000000001", ""), ("gpu1/mlx5_0", "gpu1"), ("gpu1/mlx5_1", "gpu1")]


def test_a_description_cannot_take_the_id_of_another():
    assert [n for n, _ in name((SWITCH, "S-0000000000000002"), (SWITCH, ""))] == [
        "S-0000000000000001",
        "S-0000000000000002",
    ]


def test_aggregation_nodes_go_by_their_switch():
    text = "Mellanox Technologies Aggregation Node"
    nodes = name((SWITCH, "leaf1"), (AGGREGATION, text), (AGGREGATION, text), home={1: 0})
    assert [n for n, _ in nodes] == ["leaf1", "leaf1/sharp", "H-0000000000000003"]


def test_two_aggregation_nodes_of_one_switch_keep_their_ids():
    nodes = name((SWITCH, "leaf1"), (AGGREGATION, "x"), (AGGREGATION, "x"), home={1: 0, 2: 0})
    assert [n for n, _ in nodes] == ["leaf1", "H-0000000000000002", "H-0000000000000003"]


@pytest.mark.parametrize(
    ("device_id", "description", "kind"),
    [
        (0xCF09, "anything", AGGREGATION),
        (0, "Mellanox Technologies Aggregation Node", AGGREGATION),
        (0, "leaf1/sharp", AGGREGATION),
        (0x101B, "h1 mlx5_0", HCA),
    ],
)
def test_aggregation_nodes_are_identified_by_device_or_description(device_id, description, kind):
    assert adapter_kind(device_id, description) == kind


WORDS = st.sampled_from(["h1", "h2", "h1 mlx5_0", "h1 mlx5_1", "S-0000000000000001", "h1/sharp", "MF0;h1:Q/U1", "1"])


@given(
    st.lists(st.tuples(st.sampled_from([SWITCH, HCA, AGGREGATION, ROUTER]), st.text() | WORDS), max_size=8), st.data()
)
def test_any_descriptions_give_names_that_a_fabric_takes(nodes, data):
    switches = [i for i, (kind, _) in enumerate(nodes) if kind == SWITCH]
    inside = {
        i: data.draw(st.sampled_from([-1, *switches])) for i, (kind, _) in enumerate(nodes) if kind == AGGREGATION
    }
    named = name(*nodes, home=inside)
    builder = FabricBuilder("any")
    for node, (kind, _) in zip(named, nodes, strict=True):
        builder.add_nodes(kind, [node[0]], n_ports=1)
    fabric = builder.build()
    for node, (kind, _) in zip(named, nodes, strict=True):
        assert fabric.find_node(node[0]).kind == kind
        assert re.fullmatch(r"[\w./-]+", node[0])
