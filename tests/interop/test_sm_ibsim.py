"""Weft's subnet manager on ibsim, over both carriers: unmodified tools confirm its log and its dumps.

    weft sm --on umad -> libumad2sim -> ibsim           weft sm --on ibsim -> ibsim's sockets

Tables of the subnet administrator are tested in a lab: libumad2sim carries only single MADs.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft.fabric.files import ibnetdiscover
from weft.fabric.files.naming import node_id
from weft.fabric.kinds import NodeKind
from weft.fabric.tables import NO_ROUTE
from weft.lab import programs

pytestmark = pytest.mark.interop

_SPEC = importlib.util.spec_from_file_location("interop_managers", Path(__file__).with_name("managers.py"))
managers = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = managers
_SPEC.loader.exec_module(managers)

FABRIC = "fat-tree:hosts=16,radix=8,speed=HDR"
PRIORITY = "9"


class Managed:
    """An ibsim with weft's subnet manager at h1."""

    def __init__(self, start_ibsim, folder: Path, on: str) -> None:
        self.fabric = weft.load(FABRIC)
        self.sim = start_ibsim(ibnetdiscover.to_text(self.fabric), folder)
        self.sim.wait_until_up()
        options = ["--on", on, "-p", PRIORITY]
        environment = {}
        if on == "ibsim":
            options += ["--ibsim", self.sim.name, "--at", self.id("h1")]
        else:
            preloaded = {"LD_PRELOAD": str(programs.find_umad2sim())}
            environment = preloaded | {"IBSIM_SOCKNAME": self.sim.name, "SIM_HOST": self.id("h1")}
        self.manager = managers.Manager(folder / "sm", *options, **environment)

    def id(self, name: str) -> str:
        return node_id(NodeKind.HCA, self.fabric.find_node(name).guid)

    def tool(self, program: str, *arguments: str, host: str = "h3") -> str:
        return self.sim.run(program, *arguments, host=self.id(host))

    def end(self) -> None:
        self.manager.stop()
        self.sim.stop()


@pytest.fixture(scope="module", params=["umad", "ibsim"])
def managed(request, peer, start_ibsim, tmp_path_factory) -> Iterator[Managed]:
    peer("ibsim-run")
    item = Managed(start_ibsim, tmp_path_factory.mktemp("sm"), request.param)
    try:
        item.manager.wait_until_up()
        yield item
    finally:
        item.end()


@pytest.fixture
def swept(managed):
    """The fabric of the subnet manager's dumps."""
    return managed.manager.fabric()


def test_it_says_so(managed):
    log, last = managed.manager.log(), managed.manager.status.sweep
    assert "SUBNET UP: 6 switches, 16 adapters, 32 links, fat-tree" in log
    assert (last.switches, last.adapters, last.links, last.refused, last.oddities) == (6, 16, 32, (), ())


def test_ibnetdiscover_sees_the_cables_of_the_file_and_the_lids_of_the_dump(managed, swept, tmp_path):
    path = tmp_path / "seen.txt"
    path.write_text(managed.tool("ibnetdiscover"), encoding="utf-8")
    observed = ibnetdiscover.read(path)
    assert managers.graph(observed) == managers.graph(managed.fabric) == managers.graph(swept)
    assert managers.lids(observed) == managers.lids(swept)
    assert len(set(managers.lids(swept).values())) == 22


def test_iblinkinfo_and_ibstat_show_every_link_active(managed, swept):
    output = managed.tool("iblinkinfo", "-l")
    assert output.count("Active/  LinkUp") == 2 * len(managed.fabric.links)
    manager = int(swept.find_node("h1").lid)
    for host in ("h1", "h2", "h16"):
        port = managed.tool("ibstat", host=host)
        assert "State: Active" in port
        assert f"Base lid: {int(swept.find_node(host).lid)}\n" in port
        assert f"SM lid: {manager}\n" in port


def test_sminfo_names_the_master(managed, swept):
    lid, guid = int(swept.find_node("h1").lid), int(managed.fabric["h1/1"].guid)
    output = managed.tool("sminfo")
    assert output.startswith(f"sminfo: sm lid {lid} sm guid 0x{guid:x}, activity count ")
    assert output.endswith(f" priority {PRIORITY} state 3 SMINFO_MASTER\n")


def test_ibroute_and_dump_fts_show_the_tables_of_the_dump(managed, swept):
    tables = swept.tables
    rows = {
        node.name: {lid: port for lid, port in enumerate(tables.lft[tables.switch_row[node.index]]) if port != NO_ROUTE}
        for node in swept.switches
    }
    by_switch = managed.tool("dump_fts").split("Unicast lids ")[1:]
    assert {re.search(r"\((\w+)\):", part)[1]: routes(part) for part in by_switch} == rows
    assert routes(managed.tool("ibroute", str(int(swept.find_node("leaf2").lid)))) == rows["leaf2"]


def routes(shown: str) -> dict[int, int]:
    """Return the port by LID, from lines such as `0x0001 025 : (Switch portguid ...)`."""
    return {int(lid, 16): int(port) for lid, port in re.findall(r"^0x(\w{4}) (\d{3}) ", shown, re.MULTILINE)}


@pytest.mark.parametrize(("source", "target"), [("h1", "h2"), ("h1", "h16"), ("h16", "h1"), ("h7", "h9")])
def test_ibtracert_takes_the_way_of_the_dump(managed, swept, source, target):
    ends = [str(int(swept.find_node(name).lid)) for name in (source, target)]
    traced = managed.tool("ibtracert", *ends, host="h5")
    steps = re.findall(r"^\[(\d+)\] -> \w+ port \{0x\w+\}\[(\d+)\] lid .*\"(\w+)", traced, re.M)
    expected = [swept[port] for port in managers.way(swept, source, target)]
    assert [(int(out), int(into), name) for out, into, name in steps] == [
        (port.number, port.peer.number, port.peer.node.name) for port in expected
    ]


def test_saquery_gets_single_records(managed, swept):
    item, other = (str(int(swept.find_node(name).lid)) for name in ("h4", "h13"))
    path = managed.tool("saquery", "PR", "--src-to-dst", f"{item}:{other}")
    assert re.search(rf"dlid\.*{other}\n\s*slid\.*{item}\n", path)
    assert re.search(r"pkey\.*0xFFFF\n", path)
    assert re.search(r"rate\.*0x91\n", path)  # 200 Gbit/s, exactly
    node = managed.tool("saquery", "NR", other)
    assert f"node_guid...............0x{int(managed.fabric.find_node('h13').guid):016x}" in node
    assert "NodeDescription.........h13 mlx5_0" in node
    assert re.search(rf"GUID\.*0x{int(managed.fabric['h1/1'].guid):016x}\n", managed.tool("saquery", "SMIR"))
    assert "IsSM" in managed.tool("saquery", "PIR", f"{int(swept.find_node('h1').lid)}/1")
    assert "Capability mask" in managed.tool("saquery", "CPI")


@pytest.mark.parametrize(("query", "record", "records"), [("-g", "MCMemberRecord", 1), ("SMIR", "SMInfoRecord", 1)])
def test_saquery_prints_as_many_records_as_there_are(managed, swept, query, record, records):
    """saquery counts records by the length of the answer, of which ibsim carries one MAD."""
    output = managed.tool("saquery", query)
    assert len(re.findall(rf"^{record}\b", output, re.M)) == records, output


def test_perfquery_reaches_ports_by_lid(managed, swept):
    leaf, host = (str(int(swept.find_node(name).lid)) for name in ("leaf1", "h12"))
    counts = [int(re.search(r"PortXmitPkts:\.*(\d+)", managed.tool("perfquery", host, "1"))[1]) for _ in range(2)]
    assert 0 < counts[0] < counts[1]
    assert "PortRcvPkts" in managed.tool("perfquery", "-x", leaf, "1")
