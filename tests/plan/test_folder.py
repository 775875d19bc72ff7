"""A plan's folder: all of it or nothing, and what is in it is what was planned."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.plan import folder
from weft.plan.folder import default_name, write_folder
from weft.plan.plan import Plan, make_plan
from weft.plan.request import Request
from weft.plan.size import count, size


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(size(Request(gpus=48, grow_to=128, ufm_hosts=True)))


def ends(fabric: Fabric) -> set[str]:
    return {str(link) for link in fabric.all_links()}


def test_the_folder_has_the_fabric_the_bill_the_cables_and_the_pictures(plan, tmp_path):
    written = write_folder(plan, tmp_path / "p")
    names = {str(path.relative_to(tmp_path / "p")) for path in written}
    assert names == {*folder.FILES} - {"racks"} | {"racks/row-A.svg"}
    for name in ("fabric.yaml", "cables.ndt"):
        read = weft.load(str(tmp_path / "p" / name))
        assert read.network_links.sum() == len(plan.cabling)
    assert ends(weft.load(str(tmp_path / "p" / "fabric.yaml"))) == ends(plan.size.fabric)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "p" / "cables.csv").read_text())))
    assert len(rows) == len(plan.cabling)
    assert json.loads((tmp_path / "p" / "plan.json").read_text()) == json.loads(json.dumps(plan.report()))
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_present_racks_keep_their_place_in_the_later_fabric(plan):
    whole = make_plan(size(Request(gpus=128, ufm_hosts=True))).racks
    later = {name: whole.position(box) for box, name in enumerate(whole.boxes)}
    today = {name: plan.racks.position(box) for box, name in enumerate(plan.racks.boxes)}
    assert len(today) < len(later)
    assert today.items() <= later.items()


def test_an_older_plan_is_replaced_when_the_new_one_is_whole(plan, tmp_path, monkeypatch):
    path = tmp_path / "p"
    write_folder(plan, path)
    before = (path / "plan.json").read_text()
    monkeypatch.setattr(folder, "draw_floor", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_folder(make_plan(size(Request(gpus=8))), path)
    assert (path / "plan.json").read_text() == before
    assert [item.name for item in tmp_path.iterdir()] == ["p"]
    monkeypatch.undo()
    write_folder(make_plan(size(Request(gpus=8))), path)
    assert json.loads((path / "plan.json").read_text())["servers"] == 1


def test_folder_without_a_plan_is_refused_and_kept(plan, tmp_path):
    def refuse(path: Path, says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            write_folder(plan, path)

    (tmp_path / "file").write_text("mine")
    refuse(tmp_path / "file", "exists and is not a folder; give another --folder NAME")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("mine")
    refuse(tmp_path / "thesis", "thesis has chapter1.tex, which is not part of a plan")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "floor.svg").write_text("mine")
    refuse(tmp_path / "pictures", "has no plan.json")
    refuse(tmp_path / "nowhere" / "p", "no such folder")
    assert (tmp_path / "pictures" / "floor.svg").read_text() == "mine"


def test_names_of_folders(plan):
    assert default_name(plan.size) == "plan-dgx-h100-48"
    fabric = weft.load("torus:4x4,hosts=2")
    assert default_name(count(fabric.spec, fabric)) == "plan-torus-4x4-hosts-2"
