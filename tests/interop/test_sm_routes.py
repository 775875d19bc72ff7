"""ibdmchk checks the dumps of weft's subnet manager, and dump_fts reads the same tables from the switches of ibsim.

ibdmchk reads the subnet, the routes and the lanes with its own parser, follows every path and checks for credit loops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.interop.ibdm import routes_to_shown

import weft
from weft.fabric.files import ibnetdiscover
from weft.fabric.files import opensm as files
from weft.fabric.files.naming import node_id
from weft.fabric.files.opensm_tables import read_tables
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.fabric.views import Node
from weft.mad.ibsim_client import IbsimCarrier
from weft.routing.check import check
from weft.sm.conf.options import Options
from weft.sm.run import SubnetManager

pytestmark = pytest.mark.interop


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The state of ibsim after a sweep, and the state that the subnet manager reports."""

    sim: object
    host: str  # a node's ID
    manager: SubnetManager
    dumps: Path

    def fabric(self) -> Fabric:
        result = files.read(self.dumps / "opensm-subnet.lst")
        read_tables(self.dumps, result)
        return result

    def tool(self, program: str, *arguments: str) -> str:
        return self.sim.run(program, *arguments, host=self.host)


@pytest.fixture
def sweep(ibsim, tmp_path) -> Iterator[Callable[..., Swept]]:
    """Bring a fabric up in ibsim, from its first host."""

    def run(fabric: Fabric, *engines: str) -> Swept:
        sim = ibsim(ibnetdiscover.to_text(fabric))
        host = node_id(NodeKind.HCA, fabric.hcas[0].guid)
        dumps = tmp_path / "dumps"
        dumps.mkdir()
        carrier = IbsimCarrier(host, sim.name)
        manager = SubnetManager(carrier, Options(routing_engine=engines or ("auto",)), dump=dumps)
        try:
            assert manager.run(once=True)
        finally:
            carrier.close()
        assert manager.report.refused == ()
        return Swept(sim=sim, host=host, manager=manager, dumps=dumps)

    return run


def routes(shown: str) -> dict[str, dict[int, int]]:
    """Return the ports by switch and LID from the output of dump_fts."""
    parts = shown.split("Unicast lids ")[1:]
    return {
        re.search(r"guid 0x(\w+)", part)[1]: {
            int(lid, 16): int(port) for lid, port in re.findall(r"^0x(\w{4}) (\d{3}) ", part, re.MULTILINE)
        }
        for part in parts
    }


def dumped_routes(fabric: Fabric, *some: Node) -> dict[str, dict[int, int]]:
    """Return the ports by switch and LID from the dumps, for some switches or all."""
    lft, row = fabric.tables.lft, fabric.tables.switch_row
    return {
        f"{int(node.guid):016x}": {
            int(lid): int(lft[row[node.index], lid]) for lid in np.flatnonzero(lft[row[node.index]] != NO_ROUTE)
        }
        for node in some or fabric.switches
    }


@pytest.mark.parametrize(
    ("spec", "engine"),
    [
        ("fat-tree:hosts=648,radix=36,speed=HDR", "fat-tree"),
        ("dragonfly:p=2,a=4,h=2,speed=HDR", "dragonfly"),
        ("torus:3x4x5,speed=HDR", "dimension-order"),
        ("torus:4x5,speed=HDR", "dfsssp"),
    ],
)
def test_ibdmchk_finds_no_fault_in_the_dumps_and_the_switches_hold_them(sweep, ibdmchk, spec, engine):
    fabric = weft.load(spec)
    done = sweep(fabric, *([] if engine == "fat-tree" else [engine]))
    assert done.manager.report.engine == engine
    hosts = len(fabric.hcas)
    output = ibdmchk(done.dumps)
    assert f"-I- Scanned:{hosts * (hosts - 1)} CA to CA paths" in output
    assert "-I- no credit loops found" in output
    lanes = int(re.search(r"Credit Loops \d+ SLs, (\d+) VLs used", output)[1])
    assert (lanes > 1) == (engine != "fat-tree")
    assert routes(done.tool("dump_fts")) == dumped_routes(done.fabric())


def test_ibdmchk_sees_the_credit_loop_of_an_engine_that_leaves_one(sweep, ibdmchk):
    """ibdmchk reports the error."""
    assert "-E- credit loops in routing" in ibdmchk(sweep(weft.load("torus:4x5,speed=HDR"), "min-hop").dumps)


def test_smpquery_reads_the_lanes_of_the_dump(sweep):
    """SL to VL of every pair of different ports of a switch."""
    done = sweep(weft.load("dragonfly:p=2,a=4,h=2,speed=HDR"), "dragonfly")
    switch = done.fabric().switches[5]
    lines = [line.split() for line in (done.dumps / "opensm.slvl").read_text().splitlines()]
    expected = {
        (int(into), int(out)): [int(digit, 16) for pair in pairs for digit in pair[2:]]
        for guid, into, out, *pairs in lines
        if int(guid, 16) == switch.guid and (into != out or into == "0")
    }
    output = {}
    for out in sorted({out for _, out in expected}):
        text = done.tool("smpquery", "sl2vl", str(int(switch.lid)), str(out))
        for into, lanes in re.findall(r"in +(\d+), out +\d+: \|(.*)\|", text):
            output[int(into), out] = [int(lane) for lane in lanes.split("|")]
    assert {pair: output[pair] for pair in expected} == expected
    assert len(set(map(tuple, expected.values()))) > 1


def keep_some_adapters(dumps: Path, one_in: int) -> int:
    """Remove the other adapters from the dumps, with their cables and routes; return the number of those left."""
    subnet, routes = dumps / "opensm-subnet.lst", dumps / "opensm.fdbs"
    adapter = re.compile(r"\{ CA .*?NodeGUID:(\w+)")
    lines = subnet.read_text(encoding="utf-8").splitlines(keepends=True)
    of_line = [adapter.search(line) for line in lines]
    some = set(sorted({result[1] for result in of_line if result})[::one_in])
    remaining = [line for line, result in zip(lines, of_line, strict=True) if not result or result[1] in some]
    subnet.write_text("".join(remaining), encoding="utf-8")
    routes.write_text(routes_to_shown(routes.read_text(encoding="utf-8"), "".join(remaining)), encoding="utf-8")
    return len(some)


@pytest.mark.slow
def test_selene_comes_up_in_ibsim(sweep, ibdmsh, selene_dump, tmp_path):
    """666 switches, every fifth server: ibdmchk finds all paths and no loop; ibnetdiscover and ibroute show the same.

    With all 4,341 adapters OpenSM brings it up (test_lab_opensm.py), and ibsim shows it as it is
    (test_ibsim_roundtrip.py). ibdmchk walks every pair, so it gets every seventh adapter. weft's `check` gets all.
    """
    selene = weft.load(str(selene_dump))
    fabric = selene.subset((selene.nodes.kind == NodeKind.SWITCH) | (selene.nodes.server % 5 == 0))
    done = sweep(fabric)
    swept = done.fabric()
    assert len(swept.switches) == 666
    output = keep_some_adapters(done.dumps, 7)
    assert output > 100
    text = ibdmsh(done.dumps)
    assert f"-I- Scanned:{output * (output - 1)} CA to CA paths" in text
    assert "-I- no credit loops found" in text
    verdict = check(swept)
    assert verdict.ok
    ends = len(swept.switches) + len(swept.hcas)
    assert verdict.pairs == ends * (ends - 1)
    path = tmp_path / "seen.txt"
    path.write_text(done.tool("ibnetdiscover"), encoding="utf-8")
    observed = ibnetdiscover.read(path)
    assert len(observed.links) == len(fabric.links)
    by_guid = {node.guid: int(node.lid) for node in (*swept.switches, *swept.hcas)}
    assert {node.guid: int(node.lid) for node in (*observed.switches, *observed.hcas)} == by_guid
    for switch in list(swept.switches)[::222]:
        assert routes(done.tool("ibroute", str(int(switch.lid)))) == dumped_routes(swept, switch)
