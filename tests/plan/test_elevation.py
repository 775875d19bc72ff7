"""Racks from the front: every box once, in its rack and at its units; every unit numbered; power below."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import weft
from weft.draw.scene import Box, Role, Scene, box_extent, text_extent
from weft.errors import ConfigError
from weft.plan.elevation import draw_row, lay_out_row, split_row
from weft.plan.floor.racks import Racks, place
from weft.plan.floor.room import UNIT_M, Room


@pytest.fixture(scope="module")
def racks() -> Racks:
    return place(weft.load("superpod:su=2"), Room(racks_per_row=9))


@pytest.fixture(scope="module")
def rows(racks: Racks) -> list[Scene]:
    return [lay_out_row(racks, row) for row in range(int(racks.row.max()) + 1)]


def boxes_in(scene: Scene) -> list[Box]:
    return [box for box in scene.boxes if box.role is Role.HOST and box.title]


def test_every_box_is_drawn_once_and_at_its_units(racks: Racks, rows: list[Scene]) -> None:
    drawn = Counter(box.title.partition("\n")[0] for scene in rows for box in boxes_in(scene))
    assert drawn == Counter(racks.boxes)
    for row, scene in enumerate(rows):
        frames = [box for box in scene.boxes if box.role is Role.FRAME]
        unit = frames[0].height / racks.room.rack_u
        assert frames[0].width / unit == pytest.approx(racks.room.rack_width_m / UNIT_M)
        floor = box_extent(frames[0])[3]
        for box in boxes_in(scene):
            index = racks.boxes.index(box.title.partition("\n")[0])
            rack = racks.rack[index]
            lowest, highest = racks.u[index] - 1, racks.u[index] - 1 + racks.height_u[index]
            assert racks.row[rack] == row
            assert racks.position(index) in box.title
            assert floor - box.y == pytest.approx(unit * (lowest + highest) / 2)
            assert box.height == pytest.approx(unit * (highest - lowest), rel=0.1)
            frame = frames[int(racks.column[rack] - racks.column[racks.row == row].min())]
            assert box.x == frame.x


def test_a_box_says_which_nodes_it_is(racks: Racks, rows: list[Scene]) -> None:
    observed = sorted(node for scene in rows for box in boxes_in(scene) for node in box.nodes)
    assert observed == list(range(len(racks.box_of)))


def test_every_fifth_rack_has_unit_numbers_and_every_box_its_name_and_model(racks: Racks, rows: list[Scene]) -> None:
    for row, scene in enumerate(rows):
        output = Counter(text.text for text in scene.texts)
        local = (racks.row == row).nonzero()[0]
        assert {output[f"{unit}"] for unit in range(1, racks.room.rack_u + 1)} == {-(-len(local) // 5)}
        for box in (racks.row[racks.rack] == row).nonzero()[0].tolist():
            assert output[racks.boxes[box]] == 1
            assert output[racks.models[box]] >= 1
        assert {output[racks.names[rack]] for rack in local.tolist()} == {1}
    assert sum(text.text == "40.8 kW of 47.0 kW" for scene in rows for text in scene.texts) == 16


def test_letters_do_not_touch(racks: Racks, rows: list[Scene]) -> None:
    """Nor does one leave its box; units are too small for more than one line."""
    assert_apart(rows[0])
    assert_apart(lay_out_row(replace(racks, boxes=tuple(f"{name} of the eastern hall" for name in racks.boxes)), 0))


def assert_apart(scene: Scene) -> None:
    areas = [text_extent(text) for text in scene.texts]
    for i, (left, top, right, bottom) in enumerate(areas):
        for other in areas[i + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_a_rack_over_its_power_is_outlined(racks: Racks) -> None:
    hot = lay_out_row(replace(racks, power_w=racks.power_w * 1.2), 0)
    assert sum(box.role is Role.OUTLINE for box in hot.boxes) == 8 + 1  # racks of servers; the legend
    assert "8 racks over 47.0 kW" in {text.text for text in hot.texts}


def test_a_row_that_is_not_there_is_refused_with_those_that_are(racks: Racks) -> None:
    with pytest.raises(ConfigError, match=r"row 7 has no racks; rows are 0 \(A\), 1 \(B\)"):
        lay_out_row(racks, 7)


def test_a_long_row_is_split_into_pictures_that_fit_a_page() -> None:
    racks = place(weft.load("superpod:su=2"))
    pieces = split_row(racks, 0)
    assert len(pieces) > 1
    assert max(piece.width for piece in pieces) < 1_256  # out of a page's 1,320, less its margins
    output = Counter(text.text for piece in pieces for text in piece.texts if text.text in racks.names)
    assert output == {name: 1 for name, row in zip(racks.names, racks.row.tolist(), strict=True) if row == 0}


def test_long_and_odd_names_fit_and_stay_what_they_are(racks: Racks, tmp_path: Path) -> None:
    leaf, server = racks.boxes.index("leaf1"), racks.boxes.index("dgx1")
    names = list(racks.boxes)
    names[leaf], names[server] = "<leaf&1>" * 8, '"<dgx>"'
    odd = replace(racks, boxes=tuple(names))
    draw_row(odd, 0, tmp_path / "row.svg")
    root = ET.parse(tmp_path / "row.svg").getroot()
    texts = {element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")}
    tips = {(element.text or "").partition("\n")[0] for element in root.iter("{http://www.w3.org/2000/svg}title")}
    assert '"<dgx>"' in texts
    assert {names[leaf], names[server]} <= tips
    assert [text for text in texts if text.startswith("<leaf&1>") and "…" in text]
