"""Cables to pull and to order: every cable on its own line, UFM's file reads back, plugs are counted once."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.parts import list_parts
from weft.plan.floor.racks import place
from weft.plan.floor.room import Room
from weft.plan.floor.schedule import COLUMNS, _write, to_csv, to_ndt
from weft.plan.plan import make_plan
from weft.plan.size import count


def cabled(spec: str, room: Room = Room()) -> Cabling:  # noqa: B008 - it is frozen
    return cable(place(weft.load(spec), room))


def ends_of(fabric: Fabric) -> dict[frozenset[str], tuple[str, float]]:
    """Return the speed and length of cables by the names of their ports."""
    links = (fabric.link(int(i)) for i in fabric.network_links.nonzero()[0])
    return {
        frozenset((link.a.name, link.b.name)): (link.label, link.length_m)
        for link in links
        if NodeKind.AGGREGATION not in (link.a.node.kind, link.b.node.kind)
    }


@pytest.mark.parametrize(
    "spec", ["superpod:su=1", "superpod:su=1,server=dgx-a100", "torus:3x3", "fat-tree:hosts=20,radix=8,speed=2xHDR"]
)
def test_ufm_s_plan_is_read_back_to_the_same_cables(spec: str, tmp_path: Path) -> None:
    result = cabled(spec)
    path = tmp_path / "cables.ndt"
    path.write_text(to_ndt(result))
    assert ends_of(weft.load(str(path))) == ends_of(result.fabric)


def test_a_real_fabric_s_plan_is_read_back(ndr_dump: Path, tmp_path: Path) -> None:
    result = cabled(str(ndr_dump))
    path = tmp_path / "cables.ndt"
    path.write_text(to_ndt(result))
    assert ends_of(weft.load(str(path))) == ends_of(result.fabric)


def test_a_line_says_all_that_a_technician_needs() -> None:
    result = cabled("superpod:su=1")
    rows = list(csv.DictReader(io.StringIO(to_csv(result))))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 512
    assert list(rows[0].values()) == [
        *("1", "server-leaf", "A01-U1 dgx1/mlx5_0/1 > A06-U47 leaf1/1", "A06-U47 leaf1/1 > A01-U1 dgx1/mlx5_0/1"),
        *("dgx1/mlx5_0/1", "A01", "1", "leaf1/1", "A06", "47"),
        *("4xNDR", "TRANSCEIVER", "NDR-SR4", "7", "6.55", "tray A", "1"),
    ]
    assert {row["tier"] for row in rows} == {"server-leaf", "leaf-spine"}
    assert {row["route"] for row in csv.DictReader(io.StringIO(to_csv(cabled("star:hosts=2"))))} == {"in the rack"}
    far = csv.DictReader(io.StringIO(to_csv(cabled("superpod:su=4"))))
    assert "tray B, cross tray 2, tray A" in {row["route"] for row in far}


def test_plugs_are_counted_once() -> None:
    """32 DGX H100 with 4 cages of 2 ports, 8 leaves, 4 spines: 256 links each way, two in each cage of a switch."""
    result = cabled("superpod:su=1")
    parts = list_parts(result)
    links = {entry.name: int((result.part == i).sum()) for i, entry in enumerate(result.parts)}
    ordered = {name: sum(part.count for part in parts if part.name == name) for name in {part.name for part in parts}}
    assert links == {"NDR-ACC": 256, "NDR-SR4": 256}
    assert ordered["MCA4J80"] == 256 / 2  # both ends twin-port cages
    assert ordered["MMA4Z00-NS"] == 256 / 2  # at leaves, two links each
    assert ordered["MMA4Z00-NS-FLT"] == 32 * 4  # at servers
    assert ordered["MFP7E10"] == 256
    assert {part.kind for part in parts} == {"cable", "transceiver", "fibre"}


def test_a_splitter_serves_two_adapters_and_a_transceiver_at_an_adapter_one() -> None:
    result = cabled("fat-tree:hosts=40,server=host", Room(switches="end", slack_m=0.7))
    parts = {part.name: 0 for part in list_parts(result)}
    for part in list_parts(result):
        parts[part.name] += part.count
    optical = int(result.optical.sum())
    assert 0 < optical < 40
    assert (parts["MMA4Z00-NS400"], parts["MMA4Z00-NS"]) == (optical, optical / 2)
    assert parts["MCA7J60"] == (40 - optical) / 2


def test_400_gigabit_ethernet_has_parts_that_fit_its_cages() -> None:
    """QSFP-DD cages of an SN5400 have one port each, of eight lanes; those of a DGX H100 two ports of four lanes."""
    result = cabled("superpod:su=1,server=dgx-h100+ConnectX-7-EN,switch=SN5400")
    ordered = Counter[str]()
    for part in list_parts(result):
        ordered[part.name] += part.count
    assert ordered == {"MFA1U60-W": 256, "MMS1V00-WM": 256, "MMS4X00-NS-FLT": 32 * 4, "MFP7E30": 256}
    hosts = cabled("fat-tree:hosts=8,server=host+ConnectX-7-EN,switch=SN5400,speed=400GbE")
    assert {part.name for part in list_parts(hosts)} == {"MMS1V00-WM", "MMS4X00-NS400", "MFP7E30"}
    near = cabled("torus:2x2,server=host+ConnectX-7-EN,switch=SN5400,speed=400GbE")
    assert "MCP1660-W" in {part.name for part in list_parts(near)}


def order(spec: str) -> Counter[str]:
    ordered = Counter[str]()
    for part in list_parts(cabled(spec)):
        ordered[part.name] += part.count
    return ordered


def test_an_sn5600_split_to_400_gigabit_has_twin_port_osfp_plugs() -> None:
    """A finned plug serves two ports in each switch cage, a flat plug two ports in each cage of a server."""
    ordered = order("superpod:su=1,server=dgx-h100+ConnectX-7-EN,switch=SN5600")  # 64 servers
    assert ordered["MMA4Z00-NS-T"] + 2 * ordered["MCP4Y10"] == (512 + 2 * 512) / 2
    assert ordered["MMA4Z00-NS-FLT"] == 64 * 4
    assert not {"MMS1V00-WM", "MFA1U60-W"} & set(ordered)
    two_ports = order("superpod:su=1,server=dgx-b300+ConnectX-8-EN,switch=SN5600,servers=8,leaves=4")
    assert two_ports["MMA4Z00-NS-FLT"] == 8 * 8  # a cage for each ConnectX-8


def test_xdr_has_finned_plugs_in_switches_and_flat_ones_in_adapters() -> None:
    fabric = "superpod:su=1,server=dgx-b300,servers=8,leaves=4"
    ordered = order(fabric)
    uplinks = len(cabled(fabric)) - 64
    assert ordered == {"MMS4A20-XM800": 64, "MMS4A00-XM": 64 / 2 + uplinks, "MFP7E30": 64 + uplinks}


def test_switches_whose_cages_no_cable_joins_are_refused() -> None:
    tree = weft.load("fat-tree:hosts=129,switch=SN5600")
    model = tree.nodes.model.copy()
    model[tree["spine1"].index] = len(tree.models)
    mixed = replace(tree, models=(*tree.models, "SN5400"), nodes=replace(tree.nodes, model=model))
    with pytest.raises(ConfigError, match="no 400GbE cable with plugs for OSFP and QSFP56-DD cages"):
        cable(place(mixed))


def test_a_tier_has_one_name() -> None:
    chain = weft.load("mesh:5")
    deep = chain.subset(np.array([name == "h1" or name.startswith("sw") for name in chain.nodes.name]))
    plan = make_plan(count("deep", deep))
    assert list(plan.size.switches) == ["leaf", "spine", "core", "tier4", "tier5"]
    assert {run.between for run in plan.runs} == {
        *("server-leaf", "leaf-spine", "spine-core", "core-tier4", "tier4-tier5"),
    }


def test_a_cage_with_one_port_takes_one_cable_for_each_link() -> None:
    result = cabled("superpod:su=1,server=dgx-a100")
    assert sum(part.count for part in list_parts(result)) == len(result) == 320


def test_cells_with_commas_quotes_or_line_breaks_are_quoted() -> None:
    for cell in ("a,b", 'c"d', "e\nf"):
        assert [*csv.reader(io.StringIO(_write(("x", "y"), [[cell], ["1"]])))] == [["x", "y"], [cell, "1"]]
    assert _write(("x", "y"), [["g"], ["4"]]) == "x,y\ng,4\n"
