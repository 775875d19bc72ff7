"""The files of virtual lanes for ibdmchk; tests/interop tests that ibdmchk reads them."""

from __future__ import annotations

import numpy as np
import pytest

from weft.errors import FileError
from weft.fabric.build import FabricBuilder
from weft.fabric.files.opensm_vls import path_sl_text, read_vls, sl2vl_text, write_vls
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric


@pytest.fixture
def fabric() -> Fabric:
    """A fabric of two switches with a host each; LIDs 1 and 2 are the switches', 4 and 5 h1's, 8 h2's."""
    builder = FabricBuilder("two switches")
    switches = builder.add_nodes(NodeKind.SWITCH, ["sw1", "sw2"], n_ports=3, guid=[0xA1, 0xA2])
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2", "h3"], n_ports=1, guid=[0xB100, 0xB200, 0xB300])
    builder.add_links(hosts[:2], 1, switches, 1, "EDR")
    builder.add_links(switches[0], 3, switches[1], 3, "EDR")
    result = builder.build()
    for name, lid in (("sw1/0", 1), ("sw2/0", 2), ("h1/1", 4), ("h2/1", 8)):
        result.tables.lid[result.find_port(name).slot] = lid
    result.tables.set_lmc(result.find_port("h1/1").slot, 1)
    return result


def test_every_path_to_a_lid_of_another_node_has_a_line(fabric):
    """A path is listed by its first switch; h3 has no cable."""
    fabric.tables.path_sl[0, [2, 8]] = 3
    fabric.tables.path_sl[1, 5] = 15
    assert path_sl_text(fabric).splitlines() == [
        *("0x00000000000000a1 2 3", "0x00000000000000a1 4 0", "0x00000000000000a1 5 0", "0x00000000000000a1 8 3"),
        *("0x00000000000000a2 1 0", "0x00000000000000a2 4 0", "0x00000000000000a2 5 15", "0x00000000000000a2 8 0"),
        *("0x000000000000b100 1 0", "0x000000000000b100 2 3", "0x000000000000b100 8 3"),
        *("0x000000000000b200 1 0", "0x000000000000b200 2 0", "0x000000000000b200 4 0", "0x000000000000b200 5 15"),
    ]


def test_every_pair_of_plugged_ports_of_a_switch_and_every_port_of_an_adapter_has_a_line(fabric):
    first = fabric.tables.first_pair[fabric.find_node("sw2").index]
    fabric.tables.sl2vl[first + 1 * 4 + 3] = np.arange(16)[::-1]
    lines = sl2vl_text(fabric).splitlines()
    nothing = " ".join(["0x00"] * 8)
    assert [line for line in lines if not line.endswith(nothing)] == [
        "0x00000000000000a2 1 3 0xfe 0xdc 0xba 0x98 0x76 0x54 0x32 0x10"
    ]
    assert lines[:3] == [f"0x00000000000000a1 0 {port} {nothing}" for port in (0, 1, 3)]
    assert len(lines) == 2 * 3 * 3 + 2
    assert lines[-2:] == [f"0x000000000000b{host}00 0 1 {nothing}" for host in (1, 2)]


def test_both_files_are_written_and_removed_where_there_is_one_lane(fabric, tmp_path):
    fabric.tables.sl2vl[:] = 0
    write_vls(fabric, tmp_path)
    assert (tmp_path / "opensm.psl").read_text(encoding="utf-8") == path_sl_text(fabric)
    assert (tmp_path / "opensm.slvl").read_text(encoding="utf-8") == sl2vl_text(fabric)
    del fabric.tables.sl2vl
    write_vls(fabric, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_both_files_are_read_as_they_were_written(fabric, tmp_path):
    tables, random = fabric.tables, np.random.default_rng(1)
    tables.path_sl[:, [1, 2, 4, 5, 8]] = random.integers(0, 16, (2, 5))
    tables.path_sl[[0, 0, 0, 1, 1], [1, 4, 5, 2, 8]] = 0  # no line says how a node reaches itself
    tables.sl2vl[:] = random.integers(0, 16, tables.sl2vl.shape)
    write_vls(fabric, tmp_path)
    texts = path_sl_text(fabric), sl2vl_text(fabric)
    levels = tables.path_sl.copy()
    del tables.path_sl, tables.sl2vl
    assert read_vls(tmp_path, fabric)
    assert np.array_equal(tables.path_sl, levels)
    assert (path_sl_text(fabric), sl2vl_text(fabric)) == texts


def test_a_directory_without_them_changes_nothing(fabric, tmp_path):
    assert not read_vls(tmp_path, fabric)
    assert not {"path_sl", "sl2vl"} & set(vars(fabric.tables))


VLS = " ".join(["0x00"] * 8)


@pytest.mark.parametrize(
    ("paths", "tables", "why"),
    [
        ("0xb100 8", f"0xa1 0 1 {VLS}", r"opensm\.psl:1: .*a node GUID, a LID and an SL"),
        ("0xb100 8 16", f"0xa1 0 1 {VLS}", "an SL from 0 to 15"),
        ("0xb100 9 1", f"0xa1 0 1 {VLS}", "a LID from 1 to 8"),
        ("0xcc 8 1", f"0xa1 0 1 {VLS}", "the GUID of a node"),
        ("0xb100 8 1\n0xa1 8 2", f"0xa1 0 1 {VLS}", r"opensm\.psl:2: .*SL 1, as for other nodes of the same switch"),
        ("0xb100 8 1", "0xa1 0 1 0x00", r"opensm\.slvl:1: .*VLs of SL 0 to 15"),
        ("0xb100 8 1", f"0xa1 0 4 {VLS}", "from 0 to 3"),
        ("0xb100 8 1", f"0xb100 1 1 {VLS}", "in port 0 of an adapter"),
        ("0xb100 8 1", None, r"no opensm\.slvl beside it"),
        (None, f"0xa1 0 1 {VLS}", r"no opensm\.psl beside it"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_changed(fabric, tmp_path, paths, tables, why):
    for name, text in (("opensm.psl", paths), ("opensm.slvl", tables)):
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=why):
        read_vls(tmp_path, fabric)
    assert "path_sl" not in vars(fabric.tables)
