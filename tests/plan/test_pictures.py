"""The floor from above: every rack once and in its place, to scale, problems marked, names unchanged."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.draw.scene import Box, Role, Scene, TextStyle, text_extent
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.racks import place
from weft.plan.floor.room import Room
from weft.plan.pictures import draw_floor, lay_out_floor
from weft.plan.plan import make_plan
from weft.plan.request import Request
from weft.plan.size import size


@pytest.fixture(scope="module")
def hall() -> Cabling:
    """A hall of three rows, the last one not full."""
    return cable(place(weft.load("superpod:su=2"), Room(racks_per_row=8)))


@pytest.fixture(scope="module")
def scene(hall: Cabling) -> Scene:
    return lay_out_floor(hall)


def racks_in(scene: Scene) -> dict[str, list[Box]]:
    result: dict[str, list[Box]] = {}
    for box in scene.boxes:
        if box.role is Role.BLOCK:
            result.setdefault(box.title.partition("\n")[0], []).append(box)
    return result


def units_per_m(scene: Scene) -> float:
    """Return the scale, read from the bar labelled with its metres."""
    output = next(text for text in scene.texts if text.text.endswith(" m"))
    bar = next(line for line in scene.lines if line.points[0][1] == line.points[1][1] == output.y)
    return (bar.points[1][0] - bar.points[0][0]) / float(output.text.split()[0])


def test_every_rack_is_drawn_once_in_its_place_and_to_scale(hall: Cabling, scene: Scene) -> None:
    room, per_m, drawn = hall.racks.room, units_per_m(scene), racks_in(scene)
    assert set(drawn) == set(hall.racks.names)
    for rack, name in enumerate(hall.racks.names):
        left = min(box.x - box.width / 2 for box in drawn[name])
        top = min(box.y - box.height / 2 for box in drawn[name])
        assert left == pytest.approx(hall.racks.column[rack] * room.rack_width_m * per_m)
        assert top == pytest.approx(hall.racks.row[rack] * room.row_pitch_m * per_m)
        assert {box.width for box in drawn[name]} == {room.rack_width_m * per_m}
        assert sum(box.height for box in drawn[name]) == pytest.approx(room.rack_depth_m * per_m)
    output = Counter(text.text for text in scene.texts)
    assert {output[name] for name in hall.racks.names} == {1}
    assert output["40.8"] == 16


def test_a_rack_has_the_colour_of_each_tier_in_it(hall: Cabling) -> None:
    """Leaves on top of servers are both visible, by the units that they take."""
    mixed = place(weft.load("superpod:su=1"), Room(switches="top"))
    rack = int(mixed.rack[mixed.boxes.index("leaf1")])
    drawn = racks_in(lay_out_floor(cable(mixed)))[mixed.names[rack]]
    units = [int(mixed.height_u[(mixed.rack == rack) & (mixed.tier == tier)].sum()) for tier in (0, 1)]
    assert len({box.ink for box in drawn}) == 2
    assert [box.height for box in drawn] == pytest.approx([n / sum(units) * 2 * drawn[0].width for n in units])


def test_a_search_finds_every_box_in_its_rack(hall: Cabling, scene: Scene) -> None:
    racks, drawn = hall.racks, [box for box in scene.boxes if box.role is Role.BLOCK]
    where = {name: box.title.partition("\n")[0] for box in drawn for name in box.names}
    assert where == {name: racks.names[rack] for name, rack in zip(racks.boxes, racks.rack.tolist(), strict=True)}
    assert sorted(node for box in drawn for node in box.nodes) == list(range(len(racks.box_of)))


def test_a_rack_that_all_switches_left_is_empty(hall: Cabling) -> None:
    """`optimise` can produce such a floor."""
    leaf = int(hall.racks.rack[hall.racks.boxes.index("leaf1")])
    rack = np.where(hall.racks.rack == leaf, 0, hall.racks.rack)
    observed = racks_in(lay_out_floor(replace(hall, racks=replace(hall.racks, rack=rack))))
    (empty,) = observed[hall.racks.names[leaf]]
    assert empty.ink == -1
    assert "0.0 kW, 0 of 48 U" in empty.title


def test_trays_say_how_many_cables_they_have_and_the_fullest_is_ringed(hall: Cabling, scene: Scene) -> None:
    output = {line.title: line for line in scene.lines if "tray" in line.title}
    counts = [*hall.trays.row_cables.ravel().tolist(), *hall.trays.cross_cables.ravel().tolist()]
    assert sorted(int(title.split("\n")[1].split()[0].replace(",", "")) for title in output) == sorted(
        filter(None, counts)
    )
    name, cables = hall.trays.fullest
    (x, y), (right, bottom) = output[f"{name.removeprefix('the ')}\n{cables:,} cables"].points
    ring = next(box for box in scene.boxes if box.role is Role.MARK)
    assert (ring.x, ring.y) == ((x + right) / 2, (y + bottom) / 2)
    widest = max(output.values(), key=lambda line: line.width)
    assert widest.points == ((x, y), (right, bottom))
    assert f"the fullest: {name}" in {text.text for text in scene.texts}


def test_a_rack_over_its_power_is_outlined_and_counted(hall: Cabling, scene: Scene) -> None:
    assert not [box for box in scene.boxes if box.role is Role.OUTLINE]
    hot = np.where(hall.racks.rack == 3, 20_000.0, hall.racks.power_w)
    observed = lay_out_floor(replace(hall, racks=replace(hall.racks, power_w=hot)))
    outline, legend = [box for box in observed.boxes if box.role is Role.OUTLINE]
    assert outline.x == racks_in(observed)[hall.racks.names[3]][0].x
    alarms = [text.text for text in observed.texts if text.style is TextStyle.ALARM]
    assert alarms == ["80.0", f"1 rack over {hall.racks.room.filled_w / 1000:.1f} kW"]
    assert legend.y > outline.y


def test_power_that_is_not_known_is_not_nothing() -> None:
    observed = lay_out_floor(cable(place(weft.load("fat-tree:hosts=8,radix=16"))))
    output = [text.text for text in observed.texts]
    assert "≥0.8" in output
    assert any("0.8 kW and 8 boxes of unknown power" in text for text in output)


def test_the_picture_in_the_documents_is_what_a_plan_draws(tmp_path: Path) -> None:
    draw_floor(make_plan(size(Request(gpus=1024))).cabling, tmp_path / "floor.svg")
    remaining = Path(__file__).parents[2] / "docs" / "floor.svg"
    assert (tmp_path / "floor.svg").read_bytes() == remaining.read_bytes(), (
        "draw it again: weft plan --gpus 1024, and copy its floor.svg to docs"
    )


def test_letters_do_not_touch(scene: Scene) -> None:
    areas = [text_extent(text) for text in scene.texts]
    for i, (left, top, right, bottom) in enumerate(areas):
        for other in areas[i + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf", ".html"])
def test_every_format_of_pictures_and_names_as_they_are(hall: Cabling, suffix: str, tmp_path: Path) -> None:
    odd = replace(hall.racks, fabric=replace(hall.racks.fabric, spec="<a & b>"), names=("<&>", *hall.racks.names[1:]))
    draw_floor(replace(hall, racks=odd), tmp_path / f"floor{suffix}")
    data = (tmp_path / f"floor{suffix}").read_bytes()
    if suffix == ".svg":
        output = {element.text for element in ET.fromstring(data).iter("{http://www.w3.org/2000/svg}text")}
        assert {"<&>", "Floor of <a & b>"} <= output
    assert len(data) > 5000
