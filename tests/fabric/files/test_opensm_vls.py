"""The files that tell ibdmchk of lanes; that it understands them stands in tests/interop."""

from __future__ import annotations

import numpy as np
import pytest

from weft.fabric.build import FabricBuilder
from weft.fabric.files.opensm_vls import path_sl_text, sl2vl_text, write_vls
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric


@pytest.fixture
def fabric() -> Fabric:
    """Two switches with a host each; LIDs 1 and 2 are the switches', 4 and 5 h1's, 8 h2's."""
    builder = FabricBuilder("two switches")
    switches = builder.add_nodes(NodeKind.SWITCH, ["sw1", "sw2"], n_ports=3, guid=[0xA1, 0xA2])
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2", "h3"], n_ports=1, guid=[0xB100, 0xB200, 0xB300])
    builder.add_links(hosts[:2], 1, switches, 1, "EDR")
    builder.add_links(switches[0], 3, switches[1], 3, "EDR")
    made = builder.build()
    for name, lid in (("sw1/0", 1), ("sw2/0", 2), ("h1/1", 4), ("h2/1", 8)):
        made.tables.lid[made.find_port(name).slot] = lid
    made.tables.set_lmc(made.find_port("h1/1").slot, 1)
    return made


def test_every_path_to_a_lid_of_another_node_has_a_line(fabric):
    """By the switch that a path begins at; h3 is plugged in nowhere."""
    fabric.tables.path_sl[0, [2, 8]] = 3
    fabric.tables.path_sl[1, 5] = 15
    assert path_sl_text(fabric).splitlines() == [
        *("0x00000000000000a1 2 3", "0x00000000000000a1 4 0", "0x00000000000000a1 5 0", "0x00000000000000a1 8 3"),
        *("0x00000000000000a2 1 0", "0x00000000000000a2 4 0", "0x00000000000000a2 5 15", "0x00000000000000a2 8 0"),
        *("0x000000000000b100 1 0", "0x000000000000b100 2 3", "0x000000000000b100 8 3"),
        *("0x000000000000b200 1 0", "0x000000000000b200 2 0", "0x000000000000b200 4 0", "0x000000000000b200 5 15"),
    ]


def test_every_pair_of_plugged_ports_of_a_switch_has_a_line(fabric):
    first = fabric.tables.first_pair[fabric.find_node("sw2").index]
    fabric.tables.sl2vl[first + 1 * 4 + 3] = np.arange(16)[::-1]
    lines = sl2vl_text(fabric).splitlines()
    nothing = " ".join(["0x00"] * 8)
    assert [line for line in lines if not line.endswith(nothing)] == [
        "0x00000000000000a2 1 3 0xfe 0xdc 0xba 0x98 0x76 0x54 0x32 0x10"
    ]
    assert lines[:3] == [f"0x00000000000000a1 0 {port} {nothing}" for port in (0, 1, 3)]
    assert len(lines) == 2 * 3 * 3


def test_both_files_are_written(fabric, tmp_path):
    write_vls(fabric, tmp_path)
    assert (tmp_path / "opensm.psl").read_text(encoding="utf-8") == path_sl_text(fabric)
    assert (tmp_path / "opensm.slvl").read_text(encoding="utf-8") == sl2vl_text(fabric)
