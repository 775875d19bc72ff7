"""Places of devices: each once, none over height or power, units together, and clear errors for bad rooms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.plan.floors import check_racks

import weft
from weft.errors import ConfigError, FileError
from weft.fabric import catalog
from weft.fabric.model import Fabric
from weft.plan.floor.racks import Racks, place, row_name
from weft.plan.floor.room import Room, read_room
from weft.plan.plan import make_plan
from weft.plan.request import Request
from weft.plan.size import size

SPECS = (
    "superpod:su=2",
    "superpod:su=1,servers=4",
    "superpod:su=2,server=dgx-a100",
    "fat-tree:hosts=64,radix=16",
    "torus:4x4",
    "dragonfly+:p=4,leaves=4,spines=4,h=4",
    "star:hosts=3,server=dgx-b200",
)


@pytest.mark.parametrize("switches", ["middle", "end", "top"])
@pytest.mark.parametrize("spec", SPECS)
def test_every_box_stands_somewhere_and_no_rack_is_too_full(spec: str, switches: str) -> None:
    for room in (Room(switches=switches), Room(switches=switches, racks_per_row=3, rack_power_w=15_000)):  # type: ignore[arg-type]
        racks = place(weft.load(spec), room)
        check_racks(racks)
        assert len(racks.boxes) == len(racks.fabric.servers) + len(racks.fabric.switches)


def in_rack(racks: Racks, name: str) -> set[str]:
    rack = racks.names.index(name)
    return {racks.boxes[box] for box in np.flatnonzero(racks.rack == rack).tolist()}


def test_a_unit_stands_around_its_leaves_and_spines_in_the_middle_of_the_hall() -> None:
    racks = place(weft.load("superpod:su=4"))
    assert in_rack(racks, "A01") == {"dgx1", "dgx2", "dgx3", "dgx4"}
    assert in_rack(racks, "A05") == {f"leaf{n}" for n in range(1, 9)}
    assert in_rack(racks, "A10") == {f"spine{n}" for n in range(1, 17)}
    assert in_rack(racks, "A15") == {f"leaf{n}" for n in range(9, 17)}
    assert (len(racks.names), racks.names[-1]) == (37, "B18")


def test_the_wrong_end_of_the_row_and_the_top_of_the_racks() -> None:
    fabric = weft.load("superpod:su=2")
    end, top = (place(fabric, Room(switches=where)) for where in ("end", "top"))  # type: ignore[arg-type]
    assert in_rack(end, "A18") | in_rack(end, "A19") >= {f"leaf{n}" for n in range(1, 17)}
    assert all(len([name for name in in_rack(top, f"A{n:02d}") if "leaf" in name]) == 1 for n in range(1, 9))


def test_a_large_hall_is_no_corridor_unless_rows_are_that_short() -> None:
    fabric = weft.load("superpod:su=32,server=host")
    racks, narrow = place(fabric, Room(rack_u=4)), place(fabric, Room(rack_u=4, racks_per_row=20))
    shapes = [(item.row.max() + 1) * 2.4 / ((item.column.max() + 1) * 0.6) for item in (racks, narrow)]
    assert 0.5 < shapes[0] < 2
    assert shapes[1] > 3


def test_servers_of_one_leaf_share_a_rack_with_it() -> None:
    racks = place(weft.load("fat-tree:hosts=64,radix=16"))
    assert in_rack(racks, "A01") == {*(f"h{n}" for n in range(1, 33)), *(f"leaf{n}" for n in range(1, 5))}


def test_leaves_stand_amid_the_servers_of_their_rack_or_above_them_or_together_at_the_end() -> None:
    fabric = weft.load("fat-tree:hosts=60,server=host-hdr")
    amid, top, end = (place(fabric, Room(switches=where)) for where in ("middle", "top", "end"))  # type: ignore[arg-type]
    leaf = amid.boxes.index("leaf1")
    assert [racks.position(leaf) for racks in (amid, top, end)] == ["A01-U11", "A01-U47", "A04-U47"]
    assert [racks.position(amid.boxes.index("host11")) for racks in (amid, top)] == ["A01-U13", "A01-U11"]
    assert end.position(end.boxes.index("leaf2")) == "A04-U45"


def test_fewer_servers_in_a_rack_where_power_allows_no_more() -> None:
    racks = place(weft.load("superpod:su=1"), Room(rack_power_w=25_000))
    assert in_rack(racks, "A01") == {"dgx1", "dgx2"}


def test_plugs_of_switches_count_in_the_power_of_racks() -> None:
    """Four DGX H100 and eight leaves draw 46.8 kW with passive cables. Optics in their ports draw up to 9 W each."""
    fabric = weft.load("superpod:su=1,servers=4")
    racks = place(fabric)
    cabled = Counter(fabric.nodes.name[node] for end in fabric.link_nodes for node in end[fabric.network_links])
    for box in np.flatnonzero(racks.tier > 0).tolist():
        assert racks.power_w[box] == 747 + 9 * cabled[racks.boxes[box]]
    assert (racks.power_w[racks.tier == 0] == 10_200).all()
    servers = {"dgx1", "dgx2", "dgx3", "dgx4"}
    assert servers in [in_rack(racks, name) for name in racks.names]
    with_room = place(fabric, Room(rack_power_w=50_000))
    assert {*servers, *(f"leaf{n}" for n in range(1, 9))} in [in_rack(with_room, name) for name in with_room.names]
    assert with_room.rack_power_w.max() > 47_000


def test_optics_of_unknown_power_are_said_and_not_counted() -> None:
    racks = place(weft.load("fat-tree:hosts=8,radix=8,speed=EDR"))
    output = "the catalog has no power for EDR optics: they are not counted in the power of racks"
    assert output in racks.assumed
    switches = racks.tier > 0
    recorded = {model: catalog.switch(model).power_w for model in set(np.array(racks.models)[switches].tolist())}
    assert racks.power_w[switches].tolist() == [
        recorded[racks.models[box]] for box in np.flatnonzero(switches).tolist()
    ]


def test_plugs_that_come_later_do_not_draw_today() -> None:
    today, whole = (make_plan(size(Request(gpus=248, grow_to=grown))).racks for grown in (1016, None))
    leaf = [racks.power_w[racks.boxes.index("leaf1")] for racks in (today, whole)]
    assert leaf == [747 + 9 * (31 + 32), 747 + 9 * (31 + 32)]
    spine = today.power_w[today.boxes.index("spine1")]
    assert spine < 747 + 9 * 64


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (Room(rack_power_w=10_000), r"dgx1 \(dgx-h100\) draws 10,200 W and a rack has 10,000 W.*rack_power_w = 10200"),
        (Room(rack_u=6), r"dgx1 \(dgx-h100\) is 8U high and a rack has 6U; set rack_u = 8 or more"),
    ],
)
def test_a_server_that_no_rack_holds_is_named_with_the_room_that_would(room: Room, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        place(weft.load("superpod:su=1"), room)


def test_real_fabrics_stand_in_racks_and_what_was_assumed_is_said(selene: Fabric) -> None:
    racks = place(selene)
    check_racks(racks)
    assert any("servers of unknown model are as many U high as they have adapters" in item for item in racks.assumed)
    assert place(weft.load("superpod:su=1")).assumed == ()
    luna = [racks.boxes.index(name) for name in ("luna-0090", "luna-0092")]
    assert racks.rack[luna[0]] == racks.rack[luna[1]] or abs(np.subtract(*racks.column[racks.rack[luna]])) < 6


def test_rows_are_named_as_in_a_spreadsheet() -> None:
    assert [row_name(row) for row in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


def test_a_room_is_a_toml_file_with_any_of_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "room.toml"
    path.write_text('racks_per_row = 12\nswitches = "end"\n')
    assert read_room(path) == read_room(path.rename(tmp_path / "room")) == Room(racks_per_row=12, switches="end")
    assert Room(feeds=1, cross_trays=1, air_delta_k=1) != Room()  # the least


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rack_per_row = 3", r"room.toml:2: .*racks_per_row"),
        ("rack_u = 0", r"room.toml:2: .*from 1"),
        ("rack_u = 47.5", r"room.toml:2: .*whole number"),
        ('switches = "left"', r"room.toml:2: 'left' is not valid; expected middle, end or top"),
        ("tray_m = 2.0", r"tray_m = 2 is below the top of racks of 48U, 2.13 m.*tray_m = 2.4 or rack_u = 44"),
        ("slack_m = nan", r"room.toml:2"),
    ],
)
def test_a_room_that_cannot_be_is_refused_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "room.toml"
    path.write_text(f"# mine\n{line}\n")
    with pytest.raises(FileError, match=said):
        read_room(path)


@pytest.mark.parametrize("switches", ["middle", "end", "top"])
def test_rack_scale_system_has_its_own_rack_and_power(switches: str) -> None:
    """It has its own cabinet, whether the room's racks are lower or higher."""
    for room in (Room(switches=switches, rack_u=42), Room(switches=switches, rack_u=60, tray_m=3)):  # type: ignore[arg-type]
        racks = place(weft.load("superpod:su=2,server=gb200-nvl72"), room)
        shared = Counter(racks.rack.tolist())
        own = [int(racks.rack[racks.boxes.index(name)]) for name in racks.fabric.servers]
        assert [shared[rack] for rack in own] == [1, 1, 1]
        assert racks.rack_power_w[own].tolist() == [120_000] * 3
        assert not (racks.rack_power_w > racks.limit_w).any()  # and none is drawn as if it had too little
        assert set(np.delete(racks.limit_w, own).tolist()) == {room.filled_w}
    with pytest.raises(ConfigError, match=r"nvl1 .*rack_power_w = "):
        place(weft.load("superpod:su=2,server=gb200-nvl72"), Room(rack_power_w=500, switches=switches))  # type: ignore[arg-type]


def test_power_limit_given_for_the_room_holds_for_delivered_racks() -> None:
    """A rack of 120 kW is exempt from the default limit if none is given, with a note."""
    fabric = weft.load("superpod:su=2,server=gb200-nvl72")
    with pytest.raises(ConfigError, match=r"nvl1 \(gb200-nvl72\) draws 120,000 W and a rack has 60,000 W.*= 120000"):
        place(fabric, Room(rack_power_w=60_000))
    racks = place(fabric, Room(rack_power_w=130_000))
    assert set(racks.limit_w.tolist()) == {130_000}
    assert not racks.assumed
    assert "each gb200-nvl72 is a rack that draws 120 kW" in place(fabric).assumed[0]
