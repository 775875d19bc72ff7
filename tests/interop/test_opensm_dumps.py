"""OpenSM's dumps of a fabric: weft reads them, writes the same dumps, and ibdmchk accepts these."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from weft.fabric.files import ibnetdiscover
from weft.fabric.files import opensm as files
from weft.fabric.files.naming import node_id
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.fabric.tables import NO_ROUTE

pytestmark = pytest.mark.interop

SPECS = ["fat-tree:hosts=120,switch=QM8700", "dragonfly:p=2,a=4,h=2,speed=EDR"]


@pytest.fixture
def managed(opensm):
    """A function that returns a topology and the folder of OpenSM's dumps of it."""

    def run(spec: str, *arguments: str) -> tuple[Fabric, Path]:
        fabric = load(spec)
        host = node_id(NodeKind.HCA, fabric.hcas[0].guid)
        return fabric, opensm(ibnetdiscover.to_text(fabric), host, *arguments)

    return run


def read_all(folder: Path) -> Fabric:
    fabric = files.read(folder / "opensm-subnet.lst")
    files.apply_guid2lid(fabric, files.read_guid2lid(folder / "guid2lid"))
    files.read_fdbs(folder / "opensm.fdbs", fabric)
    return fabric


def lines(text: str) -> list[str]:
    """Return the lines, sorted, without data that a fabric does not keep: revisions, and the subnet manager's host."""
    return sorted(re.sub("-SM|Rev:000000A1|Rev:00000000", "", text).splitlines())


@pytest.mark.parametrize("spec", SPECS)
def test_dumps_are_read_back_whole(managed, spec):
    fabric, folder = managed(spec)
    read = read_all(folder)
    assert sorted(read.nodes.guid) == sorted(fabric.nodes.guid)
    assert sorted(read.nodes.name) == sorted(fabric.nodes.name)
    assert {f"{link.label} {sorted(map(str, (link.a, link.b)))}" for link in read.all_links()} == {
        f"{link.label} {sorted(map(str, (link.a, link.b)))}" for link in fabric.all_links()
    }
    assert np.count_nonzero(read.tables.lid) == len(fabric.nodes)
    assert (read.tables.lft[:, 1:] != NO_ROUTE).all()
    from_fdbs = read.tables.lft
    files.read_lfts(folder / "opensm-lfts.dump", read)
    assert np.array_equal(read.tables.lft, from_fdbs)


@pytest.mark.parametrize("arguments", [(), ("-l", "2")], ids=["", "lmc 2"])
@pytest.mark.parametrize("spec", SPECS)
def test_weft_writes_what_opensm_wrote(managed, spec, arguments):
    _, folder = managed(spec, *arguments)
    fabric = read_all(folder)
    for name, text in (
        ("opensm-subnet.lst", files.subnet_lst_text(fabric)),
        ("opensm.fdbs", files.fdbs_text(fabric)),
        ("opensm-lfts.dump", files.lfts_text(fabric)),
        ("guid2lid", files.guid2lid_text(fabric)),
    ):
        assert lines(text) == lines((folder / name).read_text(encoding="utf-8")), name


def test_the_original_fabric_takes_opensms_lids_and_routes(managed):
    """Not only the fabric that was read from the same dumps."""
    fabric, folder = managed(SPECS[0])
    files.apply_guid2lid(fabric, files.read_guid2lid(folder / "guid2lid"))
    files.read_fdbs(folder / "opensm.fdbs", fabric)
    assert lines(files.fdbs_text(fabric)) == lines((folder / "opensm.fdbs").read_text(encoding="utf-8"))


def test_ibdmchk_finds_all_paths_in_the_dumps_of_weft(managed, ibdmchk, tmp_path):
    fabric, folder = managed(SPECS[0])
    files.apply_guid2lid(fabric, files.read_guid2lid(folder / "guid2lid"))
    files.read_fdbs(folder / "opensm.fdbs", fabric)
    (tmp_path / "weft").mkdir()
    files.write_dumps(fabric, tmp_path / "weft")
    verdict = ibdmchk(tmp_path / "weft")
    hosts = len(fabric.of_kind(NodeKind.HCA))
    assert f"-I- Defined {len(fabric.nodes)}/{len(fabric.nodes)} systems/nodes" in verdict
    assert f"-I- Scanned:{hosts * (hosts - 1)} CA to CA paths" in verdict
    assert "-I- no credit loops found" in verdict
    assert "-E-" not in verdict


def test_ibdmchk_sees_a_path_that_is_missing(managed, ibdmchk, tmp_path):
    """ibdmchk reports an error for wrong tables."""
    fabric, folder = managed(SPECS[0])
    files.apply_guid2lid(fabric, files.read_guid2lid(folder / "guid2lid"))
    files.read_fdbs(folder / "opensm.fdbs", fabric)
    first_leaf = fabric.tables.switch_row[fabric.find_node("leaf1").index]
    fabric.tables.lft[first_leaf, fabric.find_node("h120").lid] = NO_ROUTE
    (tmp_path / "weft").mkdir()
    files.write_dumps(fabric, tmp_path / "weft")
    assert "missing paths" in ibdmchk(tmp_path / "weft")
