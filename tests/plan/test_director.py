"""A director: chips to the subnet manager, one chassis with boards to the buyer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import files
from weft.fabric.kinds import Medium
from weft.fabric.model import Fabric
from weft.fabric.prices import read_prices
from weft.plan.bill import Bill, bill_of
from weft.plan.floor.boxes import _assumptions
from weft.plan.floor.cables import cable
from weft.plan.floor.racks import place
from weft.plan.floor.room import Room
from weft.plan.size import count

CHIP_W, PLUG_W = 253, 6


@pytest.fixture(scope="module")
def full() -> Fabric:
    return weft.load("star:hosts=800,switch=CS8500")


@pytest.fixture(scope="module")
def small() -> Fabric:
    return weft.load("star:hosts=100,switch=CS8500")


def parts(bill: Bill) -> dict[str, int]:
    return {item.name: item.count for item in bill.items if item.kind in ("switch", "board")}


def test_a_full_director_is_a_clos_of_60_chips_without_blocking(full: Fabric) -> None:
    chips = full.switches
    assert len(chips) == 60
    assert len({full.nodes.system_guid[chip.index] for chip in chips}) == 1
    inside = full.links.medium == Medium.BOARD
    assert (int(inside.sum()), int((~inside).sum())) == (800, 800)
    assert full.find_node("dir1-S20-U1").description == "MF0;dir1:MCS8500/S20/U1"
    assert all(len(full.find_node(f"dir1-{name}").peers) == 40 for name in ("L20-U2", "S20-U1"))


def test_routes_through_a_director_pass_one_chip_or_three_and_cannot_deadlock(small: Fabric) -> None:
    routing = weft.route(small)
    assert weft.check(routing).ok
    for far, chips in (("h20", 1), ("h21", 3), ("h100", 3)):
        assert len(weft.path(routing, "h1", far)[0].hops) == chips + 1


def test_a_director_is_one_switch_of_a_size_and_its_inner_links_are_no_cables(full: Fabric) -> None:
    sized = count(full.spec, full)
    assert (sized.switches, sized.cables) == ({"leaf": 1}, {"node_leaf": 800})


def test_a_director_is_billed_by_its_chassis_and_boards(full: Fabric, small: Fabric) -> None:
    whole, partial = (bill_of(fabric, read_prices()) for fabric in (full, small))
    names = ("CS8500 chassis", "CS8500 leaf board", "CS8500 spine board", "CS8500 management module")
    assert parts(whole) == dict(zip(names, (1, 20, 20, 2), strict=True))
    assert parts(partial) == dict(zip(names, (1, 3, 20, 2), strict=True)), "100 ports need three boards of 40"
    boards = [item for item in whole.items if item.kind in ("switch", "board")]
    assert sum(item.power_w or 0 for item in boards) == 60 * CHIP_W
    assert sum(item.total.low_usd for item in boards) == 60 * 40 * 500, "a chip is priced as a switch of 40 ports"
    assert whole.count("switch") == 1
    assert whole.complete


def test_prices_of_a_users_file_apply_to_boards(small: Fabric, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('"CS8500 spine board" = { usd = 7000, source = "offer 1", date = 2026-11-02 }\n', encoding="utf-8")
    (spine,) = (item for item in bill_of(small, read_prices(path)).items if item.name == "CS8500 spine board")
    assert spine.total.low_usd == 20 * 7000


def test_a_board_with_several_chips_says_so(small: Fabric) -> None:
    notes = {item.name: item.note for item in bill_of(small, read_prices()).items if item.kind in ("switch", "board")}
    assert notes.pop("CS8500 leaf board") == "2 chips of 40 ports"
    assert set(notes.values()) == {""}


@pytest.mark.parametrize("form", ["ibnetdiscover", "lab"])
def test_a_director_that_is_read_from_a_file_is_billed_the_same(small: Fabric, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"director.{'yaml' if form == 'lab' else 'txt'}"
    path.write_text(files.to_text(small, form), encoding="utf-8")
    assert parts(bill_of(weft.load(str(path)), read_prices())) == parts(bill_of(small, read_prices()))


def test_a_director_is_one_box_of_29_units_with_the_power_of_its_chips_and_plugs(full: Fabric) -> None:
    racks = place(full, Room())
    (box,) = (i for i, name in enumerate(racks.boxes) if name == "dir1")
    assert (racks.height_u[box], racks.models[box]) == (29, "CS8500")
    assert racks.power_w[box] == 60 * CHIP_W + 800 * PLUG_W
    assert len(cable(racks)) == 800


def test_directors_of_unknown_model_or_that_of_one_chip_are_named() -> None:
    models, chips = ["CS8500", "QM8700", "", ""], np.array([60, 30, 20, 40])
    (switches, directors) = _assumptions(models, chips, np.zeros(4, int), np.ones(4))
    assert switches.startswith("2 switches of unknown model")
    assert directors == "3 directors of unknown model have the height of one switch for each chip"


def test_a_rack_without_the_power_for_a_director_is_refused(full: Fabric) -> None:
    with pytest.raises(ConfigError, match=r"dir1 \(CS8500\) draws 19,980 W and a rack has 12,000 W"):
        place(full, Room(rack_power_w=12_000))


def test_a_director_has_a_fixed_number_of_ports() -> None:
    with pytest.raises(ConfigError, match="hosts=801 need 801 ports, CS8500 has 800"):
        weft.load("star:hosts=801,switch=CS8500")
    with pytest.raises(ConfigError, match="radix is not for the director CS8500"):
        weft.load("star:hosts=8,switch=CS8500,radix=36")
