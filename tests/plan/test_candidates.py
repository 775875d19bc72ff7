"""Topologies side by side: counts, closed forms, and the cost of a lost part."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.plan.candidates import Candidate, compare_topologies
from weft.plan.request import Request


@pytest.fixture(scope="module")
def rows() -> dict[str, Candidate]:
    return {row.name: row for row in compare_topologies(Request(gpus=256))}


def test_every_topology_holds_the_adapters(rows: dict[str, Candidate]) -> None:
    assert set(rows) == {"fat tree", "fat tree, 2 planes", "dragonfly+", "slim fly", "rail-only"}
    assert all(row.endpoints >= 256 for row in rows.values())
    assert {rows[name].endpoints for name in rows if name != "slim fly"} == {256}


def test_counts_are_those_of_the_rules(rows: dict[str, Candidate]) -> None:
    """256 hosts on 64 ports: 8 leaves, 4 spines; on 128 ports in two planes twice 4 and 2; a switch for each rail."""
    assert (rows["fat tree"].switches, rows["fat tree"].links) == (12, 256)
    assert (rows["fat tree, 2 planes"].switches, rows["fat tree, 2 planes"].links) == (12, 512)
    assert (rows["rail-only"].switches, rows["rail-only"].links) == (8, 0)


def test_a_lost_part_costs_the_share_of_its_plane(rows: dict[str, Candidate]) -> None:
    one, two = rows["fat tree"], rows["fat tree, 2 planes"]
    assert (one.dead_leaf_hosts, one.dead_leaf_loss, one.dead_plane_loss) == (32, 1.0, 1.0)
    assert (two.dead_leaf_hosts, two.dead_leaf_loss, two.dead_plane_loss) == (64, 0.5, 0.5)
    assert rows["rail-only"].dead_spine_loss is None


def test_fat_trees_have_the_whole_rate_in_an_all_to_all(rows: dict[str, Candidate]) -> None:
    assert rows["fat tree"].all_to_all == rows["rail-only"].all_to_all == 1.0
    assert rows["fat tree"].worst_shift == 1.0
    slim_fly = rows["slim fly"].worst_shift
    assert slim_fly is not None
    assert slim_fly < 1


def test_an_hpn_pod_is_compared_on_400g_ethernet() -> None:
    names = [row.name for row in compare_topologies(Request(gpus=64, fabric="roce-400"))]
    assert "HPN pod" in names


def test_compare_chooses_the_planes_itself() -> None:
    from weft.api.purchases import compare_topologies as compare

    with pytest.raises(ConfigError, match="leave out --topology, --planes, --breakout and --grow-to"):
        compare(gpus=64, planes=2)
