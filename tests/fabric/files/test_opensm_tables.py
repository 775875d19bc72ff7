"""The tables are the same from any of OpenSM's dumps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError, FileError
from weft.fabric.files.opensm import write_dumps
from weft.fabric.files.opensm_tables import read_tables
from weft.fabric.model import Fabric
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.route import route

SPEC = "fat-tree:hosts=16,radix=8"


@pytest.fixture(scope="module")
def routed() -> Fabric:
    return route(weft.load(SPEC)).fabric


@pytest.mark.parametrize("left_out", ["opensm-lfts.dump", "opensm.fdbs"])
def test_a_directory_with_either_file_of_routes_is_enough(routed, tmp_path, left_out):
    write_dumps(routed, tmp_path)
    (tmp_path / left_out).unlink()
    fabric = weft.load(SPEC)
    read_tables(tmp_path, fabric)
    assert np.array_equal(fabric.tables.lid, routed.tables.lid)
    assert np.array_equal(fabric.tables.lft, routed.tables.lft)


@pytest.mark.parametrize("name", ["opensm-lfts.dump", "opensm.fdbs"])
def test_a_file_of_routes_goes_with_the_lids_that_the_fabric_has(routed, tmp_path, name):
    write_dumps(routed, tmp_path)
    fabric = weft.load(SPEC)
    fabric.tables.lid[:] = routed.tables.lid
    read_tables(tmp_path / name, fabric)
    assert np.array_equal(fabric.tables.lft, routed.tables.lft)


def test_a_directory_without_routes_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"opensm\.fdbs or opensm-lfts\.dump"):
        read_tables(tmp_path, weft.load(SPEC))


def test_missing_files_are_refused(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read_tables(tmp_path / "opensm.fdbs", weft.load(SPEC))


def test_without_guid2lid_lids_come_from_the_subnet_list(routed, tmp_path):
    write_dumps(routed, tmp_path)
    (tmp_path / "guid2lid").unlink()
    fabric = weft.load(SPEC)
    read_tables(tmp_path, fabric)
    assert np.array_equal(fabric.tables.lid, routed.tables.lid)
    assert np.array_equal(fabric.tables.lft, routed.tables.lft)


def test_without_lids_the_error_names_the_files_that_have_them(routed, tmp_path):
    write_dumps(routed, tmp_path)
    for name in ("guid2lid", "opensm-subnet.lst"):
        (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=r"OSM_CACHE_DIR.* or opensm-subnet\.lst"):
        read_tables(tmp_path, weft.load(SPEC))


@pytest.mark.parametrize(
    ("spec", "engine"),
    [
        ("torus:6x6,hosts=2", "dimension-order"),
        ("torus:5x5", "dfsssp"),
        ("dragonfly:p=2,a=4,h=2", "dragonfly"),
    ],
)
def test_lanes_come_back_as_they_were_written(tmp_path, spec, engine):
    routed = route(weft.load(spec), Options(engine=engine, lmc=1)).fabric
    write_dumps(routed, tmp_path)
    fabric = weft.load(spec)
    assert read_tables(tmp_path, fabric)
    before, after = check(routed), check(fabric)
    assert before.ok
    assert before.vls > 1
    assert replace(after, spec="") == replace(before, spec="")


def test_a_file_of_routes_alone_says_nothing_of_lanes(routed, tmp_path):
    write_dumps(route(weft.load("torus:5x5")).fabric, tmp_path)
    fabric = weft.load("torus:5x5")
    assert read_tables(tmp_path, fabric)
    assert not read_tables(tmp_path / "opensm.fdbs", fabric)
    assert not {"path_sl", "sl2vl"} & set(vars(fabric.tables))


def test_the_subnet_list_has_the_lmc_of_a_guid2lid_beside_it(tmp_path):
    routed = route(weft.load(SPEC), Options(lmc=2)).fabric
    write_dumps(routed, tmp_path)
    lst = tmp_path / "opensm-subnet.lst"
    assert (weft.load(str(lst)).tables.lmc.max(), routed.tables.lmc.max()) == (2, 2)
    h1, h2 = (weft.load(str(lst)).find_port(name).slot for name in ("h1/1", "h2/1"))
    shifted = (tmp_path / "guid2lid").read_text(encoding="utf-8").replace("0x0004 0x0007", "0x0104 0x0107")
    (tmp_path / "guid2lid").write_text(shifted, encoding="utf-8")
    lmc = weft.load(str(lst)).tables.lmc
    assert (lmc[h1], lmc[h2]) == (0, 2), "an entry for another LID is ignored"
    (tmp_path / "guid2lid").unlink()
    assert not weft.load(str(lst)).tables.lmc.any()
