"""Lengths by hand, media by reach, and what runs through trays."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import Medium
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.racks import place
from weft.plan.floor.room import Room
from weft.plan.floor.trays import cross_columns

# One row, two racks: 2 x 8U of servers in A01, the switch in A02 with a unit free above it.
TWO_RACKS = Room(rack_u=17, switches="end")


def cabled(spec: str, room: Room = Room()) -> Cabling:  # noqa: B008 - it is frozen
    return cable(place(weft.load(spec), room))


def test_two_racks_by_hand() -> None:
    """Up from the middle of the box to the trays at 2.6 m, 0.6 m to the next rack, down, and 0.3 m at both ends."""
    result = cabled("star:hosts=2,server=dgx-h100", TWO_RACKS)
    assert [result.racks.position(box) for box in range(3)] == ["A01-U1", "A01-U9", "A02-U16"]
    unit_m = 0.04445
    for box, middle_u in ((0, 4), (1, 12)):
        mine = result.route_m[result.low_box == box]
        by_hand_m = 0.3 + (2.6 - middle_u * unit_m) + 0.6 + (2.6 - 15.5 * unit_m) + 0.3
        assert mine == pytest.approx(by_hand_m, abs=5e-4)
    assert set(result.length_m.tolist()) == {7.0}
    assert result.trays.row_cables.tolist() == [[16, 16]]
    assert result.trays.fullest == ("the tray above A01", 16)
    assert result.bundles == 1


def test_lower_trays_bring_the_same_cables_into_the_reach_of_copper() -> None:
    low = msgspec.structs.replace(TWO_RACKS, tray_m=0.8)
    assert {part.name for part in cabled("star:hosts=2,server=dgx-h100", low).parts} == {"NDR-DAC"}


def test_two_adapters_of_a_server_share_a_plug_and_so_a_leaf_or_light() -> None:
    """Rails of a DGX H100 lead to two leaves by one cage of two ports: no copper has such plugs. Single cards may."""
    room = Room(rack_power_w=50_000)  # all in one rack
    rails, single = (cabled(f"superpod:su=1,servers=4,server={server}", room) for server in ("dgx-h100", "dgx-a100"))
    to_server = rails.racks.tier[rails.low_box] == 0
    assert rails.route_m[to_server].max() < 2
    assert rails.optical[to_server].all()
    assert not single.optical[single.route_m < 2].any()
    one_leaf = cabled("star:hosts=2,server=dgx-h100")
    assert {part.name for part in one_leaf.parts} == {"NDR-DAC"}  # both ports of a cage to one cage of the switch


def test_inside_a_rack_a_cable_goes_straight() -> None:
    result = cabled("star:hosts=2")
    racks = result.racks
    assert set(racks.rack.tolist()) == {0}
    assert result.route_m == pytest.approx(
        np.abs(racks.u[result.low_box] - racks.u[result.high_box]) * 0.04445 + 0.6, abs=5e-4
    )


@pytest.mark.parametrize(("trays", "columns"), [(1, [2]), (2, [0, 3]), (3, [0, 2, 3])])
def test_cross_trays_are_spread_evenly_and_a_single_tray_is_in_the_middle(trays: int, columns: list[int]) -> None:
    room = Room(racks_per_row=3, rack_u=10, cross_trays=trays)
    assert cross_columns(place(weft.load("star:hosts=6,server=dgx-h100"), room)).tolist() == columns


def test_a_cable_runs_from_the_lower_tier_and_in_a_tier_from_the_first_box() -> None:
    for spec in ("torus:3x3", "superpod:su=1,radix=8"):
        result = cabled(spec)
        tier, low, high = result.racks.tier, result.low_box, result.high_box
        assert ((tier[low] < tier[high]) | ((tier[low] == tier[high]) & (low < high))).all()
    assert (tier[high] == 2).any()


def test_over_the_nearest_cross_tray_to_another_row() -> None:
    """Racks of one server each, at most three in a row, trays at both ends: from A01 half a rack to the left one."""
    room = Room(racks_per_row=3, rack_u=10, cross_trays=2)
    result = cabled("star:hosts=6,server=dgx-h100", room)
    racks = result.racks
    assert racks.names == ("A01", "A02", "B01", "B02", "C01", "C02", "C03")
    network = int(racks.rack[racks.tier.argmax()])
    for item in range(6):
        rack = int(racks.rack[item])
        if racks.row[rack] != racks.row[network]:
            columns = min(
                racks.column[rack] + racks.column[network] + 1, 5 - racks.column[rack] - racks.column[network]
            )
            along_m = columns * 0.6 + abs(racks.row[rack] - racks.row[network]) * 2.4
            mine = result.route_m[result.low_box == item]
            assert mine == pytest.approx(along_m + 5.2 - (4 + 8.5) * 0.04445 + 0.6, abs=5e-4)
    assert result.trays.cross_cables.sum() > 0


def test_every_cable_is_sold_is_long_enough_and_reaches() -> None:
    for spec in ("superpod:su=2", "superpod:su=2,server=dgx-a100", "fat-tree:hosts=128,radix=16", "torus:4x4"):
        result = cabled(spec)
        for length_m, route_m, part in zip(result.length_m, result.route_m, result.part, strict=True):
            assert route_m <= length_m
            assert length_m in result.parts[part].lengths_m
        links = result.fabric.links
        assert (links.length_m[result.link] == result.length_m.astype(np.float32)).all()
        assert {Medium(int(item)) for item in links.medium[result.link]} == {part.medium for part in result.parts}


def test_a_tray_carries_what_lies_in_it() -> None:
    """Each cable fills the places from its rack to the other, or to the cross tray: counted one by one."""
    result = cabled("superpod:su=4", Room(racks_per_row=10))
    racks, trays = result.racks, result.trays
    by_hand = np.zeros_like(trays.row_cables)
    between = np.zeros_like(trays.cross_cables)
    for a, b, cross in zip(racks.rack[result.low_box], racks.rack[result.high_box], result.cross, strict=True):
        if a == b:
            continue
        if cross < 0:
            low, high = sorted((racks.column[a], racks.column[b]))
            by_hand[racks.row[a], low : high + 1] += 1
            continue
        for rack in (a, b):
            edge, column = trays.cross_column[cross], racks.column[rack]
            by_hand[racks.row[rack], min(edge, column) : max(edge, column + 1)] += 1
        low, high = sorted((racks.row[a], racks.row[b]))
        between[cross, low:high] += 1
    assert (by_hand == trays.row_cables).all()
    assert (between == trays.cross_cables).all()


def test_two_links_of_a_cage_have_one_medium_and_copper_one_length() -> None:
    result = cabled("superpod:su=1")
    for joint in np.unique(result.joint):
        mine = result.joint == joint
        assert len(set(result.part[mine].tolist())) == 1
        if not result.optical[mine].any():
            assert len(set(result.length_m[mine].tolist())) == 1


def test_no_twin_port_copper_between_cages_that_lead_to_several() -> None:
    """The four links of a switch in a torus lead to four switches: no cable has plugs like that, however near."""
    torus = cabled("torus:4x4")
    between = torus.racks.tier[torus.low_box] == 1
    assert torus.route_m[between].min() < 1
    assert torus.optical[between].all()


def test_a_hall_that_no_medium_spans_is_refused_with_a_room_that_works() -> None:
    room = Room(racks_per_row=1, aisle_m=30)
    with pytest.raises(
        ConfigError,
        match=r"the cable .* from .* to .* is 160.6 m long, and the longest HDR cable, HDR-AOC, "
        r"reaches 100 m.\n  It is in reach with racks_per_row = \d+",
    ):
        cabled("superpod:su=3,server=dgx-a100", room)


def test_reaches_are_those_of_the_published_guides() -> None:
    path = Path(__file__).parents[3] / "shared" / "figures" / "hardware_prices_cables.json"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    messages = {record["id"]: record["value"] for record in json.loads(path.read_text())["records"]}
    for name, record in (
        ("NDR-DAC", "ndr_dac_switch"),
        ("NDR-DAC-split", "ndr_dac_splitter"),
        ("NDR-ACC", "ndr_acc"),
        ("NDR-ACC-split", "ndr_acc"),
    ):
        part = catalog.find(name)
        assert isinstance(part, catalog.Cable)
        assert [part.lengths_m[0], part.reach_m] == messages[record]["length_m"]
    assert catalog.cable_for("NDR", 50).name == "NDR-SR4"
    assert catalog.cable_for("NDR", 50).reach_m == messages["ndr_mm"]["reach_m_om4"]
    assert catalog.cable_for("NDR", 51).reach_m == messages["ndr_sm"]["reach_m"]
    assert catalog.cable_for("HDR", 100).reach_m == messages["hdr_aoc"]["max_m"]
    assert catalog.cable_for("HDR", 2.1).lengths_m[0] == messages["hdr_aoc"]["listed_m"][0]
