"""Topologies side by side: counts, closed forms, and the cost of a lost part."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.ids import Lid
from weft.plan import candidates
from weft.plan.candidates import Candidate, compare_topologies, explain_gaps
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


def test_networks_with_more_ports_than_lids_are_measured_with_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 hosts in a subnet of 200 LIDs; planes of one box have the bandwidth of one."""
    monkeypatch.setattr(Lid, "FIRST_MULTICAST", 200)
    rows = {row.name: row for row in compare_topologies(Request(gpus=256, server="dgx-b300", switch="Q3400"))}
    one, four = rows["fat tree"], rows["fat tree, 4 planes"]
    assert one.all_to_all == four.all_to_all == 1.0
    assert (one.bisection, one.worst_shift) == (four.bisection, four.worst_shift)
    assert one.dead_spine_loss == pytest.approx(4 * four.dead_spine_loss)


def test_paths_of_large_networks_are_measured_without_proofs(
    monkeypatch: pytest.MonkeyPatch, rows: dict[str, Candidate]
) -> None:
    monkeypatch.setattr(candidates, "_MOST_PROVED", 100)
    large = {row.name: row for row in compare_topologies(Request(gpus=256))}
    assert large == rows, "with lanes the paths are the same"
    why = "Measured by paths alone, since proofs for more than 100 endpoints take too long"
    names = "fat tree, fat tree, 2 planes, dragonfly+, slim fly"
    assert explain_gaps([*large.values()]) == f"{why}: {names}."
    assert explain_gaps([large["rail-only"], large["dragonfly+"]]) == (
        f"{why}: dragonfly+. No slim fly of these switches has so many endpoints."
    )


def test_networks_that_take_too_long_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_MOST_MEASURED", 100)
    rows = {row.name: row for row in compare_topologies(Request(gpus=256))}
    assert rows["dragonfly+"].bisection is rows["fat tree"].dead_spine_loss is None
    assert rows["rail-only"].bisection is not None
    assert explain_gaps([*rows.values()]) == (
        "Not measured, since routing more than 100 endpoints takes too long: fat tree, fat tree, 2 planes, dragonfly+, "
        "slim fly."
    )


def test_each_step_of_the_measurement_is_named() -> None:
    steps: list[str] = []
    compare_topologies(Request(gpus=128), progress=steps.append)
    assert steps[:4] == ["fat tree: price", "fat tree: routes", "fat tree: loads", "fat tree: dead spine"]


def test_complete_comparison_has_no_gaps_to_explain(rows: dict[str, Candidate]) -> None:
    assert explain_gaps([*rows.values()]) == ""
