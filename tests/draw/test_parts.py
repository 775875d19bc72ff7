"""Parts of a picture: servers and switches in natural order, ranges of names, bad links."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.draw.parts import find_parts, span
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.files.hostlist import natural
from weft.fabric.kinds import NodeKind


def test_names_sort_as_people_read_them() -> None:
    names = ["leaf10", "leaf2", "a", "leaf1", "leaf1b", "9", "leaf", ""]
    assert sorted(names, key=natural) == ["", "9", "a", "leaf", "leaf1", "leaf1b", "leaf2", "leaf10"]


@pytest.mark.parametrize(
    ("names", "short"),
    [
        ([], ""),
        (["leaf3"], "leaf3"),
        (["leaf1", "leaf2", "leaf3"], "leaf1..3"),
        (["leaf1", "leaf3"], "leaf1 … leaf3"),
        (["A1", "B2"], "A1 … B2"),
        (["LG09-01", "LG09-02"], "LG09-01..02"),
        (["x", "y"], "x … y"),
    ],
)
def test_a_run_of_names_is_written_as_a_range(names: list[str], short: str) -> None:
    assert span(names) == short


def test_a_server_is_one_part_and_an_aggregation_node_belongs_to_its_switch() -> None:
    builder = FabricBuilder("one of each")
    server = builder.add_servers(["dgx1"])
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=9)
    sharp = builder.add_nodes(NodeKind.AGGREGATION, ["leaf1/sharp"], n_ports=1)
    hcas = builder.add_nodes(NodeKind.HCA, ["dgx1/mlx5_0", "dgx1/mlx5_1"], n_ports=1, server=server)
    builder.add_links(hcas, 1, leaf, [1, 2], "NDR")
    builder.add_links(sharp, 1, leaf, 9, "NDR")
    parts = find_parts(builder.build())
    assert parts.names == ("dgx1", "leaf1")
    assert parts.is_switch.tolist() == [False, True]
    assert parts.nodes == [(2, 3), (0, 1)]
    assert parts.level.tolist() == [0, 1]
    assert parts.inner_links == [(), (2,)]


def test_links_with_bit_errors_and_links_slower_than_their_tier_are_bad() -> None:
    fabric = weft.load("fat-tree:hosts=32,radix=16")
    assert not find_parts(fabric).bad.any()
    fabric = faults.slow(faults.degrade(fabric, "leaf1/9", 1e-9), "h7/1", "1xNDR")
    assert {str(fabric.link(int(i))) for i in np.flatnonzero(find_parts(fabric).bad)} == {
        "h7/1 - leaf1/7",
        "leaf1/9 - spine1/1",
    }


def test_two_generations_of_hosts_are_not_bad_links() -> None:
    """If the links of a tier have different speeds, none counts as slow."""
    builder = FabricBuilder("mixed")
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=20)
    hosts = builder.add_nodes(NodeKind.HCA, [f"h{i}" for i in range(20)], n_ports=1)
    builder.add_links(hosts[:14], 1, leaf, 1 + np.arange(14), "NDR")
    builder.add_links(hosts[14:], 1, leaf, 15 + np.arange(6), "HDR")
    assert not find_parts(builder.build()).bad.any()
