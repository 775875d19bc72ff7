"""Whichever of OpenSM's dumps there are, the tables come out the same."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError, FileError
from weft.fabric.files.opensm import write_dumps
from weft.fabric.files.opensm_tables import read_tables
from weft.fabric.model import Fabric
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


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read_tables(tmp_path / "opensm.fdbs", weft.load(SPEC))


def test_without_guid2lid_the_subnet_list_says_who_has_which_lid(routed, tmp_path):
    write_dumps(routed, tmp_path)
    (tmp_path / "guid2lid").unlink()
    fabric = weft.load(SPEC)
    read_tables(tmp_path, fabric)
    assert np.array_equal(fabric.tables.lid, routed.tables.lid)
    assert np.array_equal(fabric.tables.lft, routed.tables.lft)


def test_without_any_lid_the_way_out_is_told(routed, tmp_path):
    write_dumps(routed, tmp_path)
    for name in ("guid2lid", "opensm-subnet.lst"):
        (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=r"OSM_CACHE_DIR.* or opensm-subnet\.lst"):
        read_tables(tmp_path, weft.load(SPEC))
