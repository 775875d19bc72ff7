"""ibdmchk and OpenSM check weft's routing; weft's `check` must agree with ibdmchk on OpenSM's tables.

ibdmchk follows every path from adapter to adapter and looks for credit loops with an algorithm and a parser of its own;
docs/design/0006-routing-checks.md lists what it can check.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import numpy as np
import pytest
from tests.broken import pull_cables
from tests.interop.ibdm import assert_agree

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.files import ibnetdiscover
from weft.fabric.files import opensm as files
from weft.fabric.files.naming import node_id
from weft.fabric.files.opensm_tables import read_tables
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.subnets import by_subnet, subnets_of, take_subnet
from weft.fabric.tables import NO_ROUTE
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.lids import assign_lids, ports_with_lids
from weft.routing.route import route

pytestmark = pytest.mark.interop

SMALL = [
    "ndr",
    "fat-tree:hosts=128,radix=8",
    "dragonfly:p=2,a=4,h=2",
    "torus:3x4x5",
]
LARGE = "fat-tree:hosts=648,radix=36"  # as large as two levels of such switches can be
SEEDS = [0, 1]  # 0: complete fabric; else 5 % of the cables between switches are missing


def lane_is_service_level(fabric: Fabric) -> bool:
    """Return whether each SL maps to its own VL, as ibdmchk assumes for the first hop of paths from switches."""
    tables = fabric.tables
    used = np.unique(tables.path_sl) if "path_sl" in vars(tables) else np.zeros(1, np.uint8)
    return "sl2vl" not in vars(tables) or bool((tables.sl2vl[:, used] == used).all())


def load(request: pytest.FixtureRequest, name: str, seed: int) -> Fabric:
    dumps = {"selene": "selene_dump", "ndr": "ndr_dump"}
    fabric = weft.load(str(request.getfixturevalue(dumps[name])) if name in dumps else name)
    return pull_cables(fabric, 0.05, seed) if seed else fabric


# -- weft's tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [*SMALL, LARGE])
def test_ibdmchk_finds_no_error_in_tables_of_auto(request, ibdm, name, seed):
    fabric = route(load(request, name, seed)).fabric
    switches = lane_is_service_level(fabric)
    report = ibdm.check(fabric, switches=switches)
    adapters = len(fabric.of_kind(NodeKind.HCA, NodeKind.AGGREGATION))
    assert report.paths == adapters * (adapters - 1)
    assert report.missing == 0
    assert report.credit_loop is False
    assert_agree(check(fabric, hosts_only=True), report)
    verdict = check(fabric)
    assert verdict.ok
    assert report.all_paths == (verdict.pairs if switches else 0)


@pytest.mark.parametrize("name", ["fat-tree:hosts=54,radix=6", "dragonfly:p=2,a=4,h=2", "torus:5x5"])
def test_ibdmchk_finds_no_fault_in_several_lids_per_port(ibdm, name):
    """ibdmchk expects base LIDs of 1, 3, 5, ...; those of OpenSM and weft are multiples of 2."""
    fabric, lmc = weft.load(name), 1
    hosts, switches = ports_with_lids(fabric)
    ports = np.concatenate((hosts, switches))
    fabric.tables.lid[ports] = 1 + (np.arange(len(ports)) << lmc)
    fabric.tables.set_lmc(hosts, lmc)
    fabric = route(fabric, Options(lmc=lmc)).fabric
    report = ibdm.check(fabric)
    assert report.paths == len(hosts) * (len(hosts) - 1) << lmc
    assert report.missing == 0
    assert report.credit_loop is False
    assert_agree(check(fabric, hosts_only=True), report)


@pytest.mark.parametrize("name", ["torus:5x5", "dragonfly:p=2,a=4,h=2"])
@pytest.mark.parametrize("engine", ["dfsssp", "up-down", "min-hop"])
def test_ibdmchk_and_weft_agree_on_every_engine(ibdm, name, engine):
    fabric = route(weft.load(name), Options(engine=engine)).fabric
    assert lane_is_service_level(fabric)
    for switches in (False, True):
        report = ibdm.check(fabric, switches=switches)
        assert_agree(check(fabric, hosts_only=True), report)
        assert report.credit_loop is (engine == "min-hop")


@pytest.mark.parametrize("switches", [False, True])
def test_paths_between_switches_can_close_a_loop_where_those_of_hosts_do_not(ibdm, switches):
    """Shortest paths between the spines of a pod go down and up again."""
    fabric = route(weft.load("fat-tree:hosts=54,radix=6"), Options(engine="min-hop")).fabric
    assert ibdm.check(fabric, switches=switches).credit_loop is switches
    assert bool(check(fabric, hosts_only=not switches).credit_loop) is switches


@pytest.mark.parametrize("seed", range(6))
def test_ibdmchk_and_weft_agree_on_broken_tables(ibdm, seed):
    """Both find the same missing pairs after random entries are overwritten."""
    fabric = route(weft.load("dragonfly:p=2,a=4,h=2"), Options(engine="min-hop")).fabric
    lft, chance = fabric.tables.lft, np.random.default_rng(seed)
    for _ in range(3):
        row, lid = chance.integers(len(lft)), chance.integers(1, lft.shape[1])
        lft[row, lid] = chance.choice([NO_ROUTE, 3, 4, 5, 6])
    assert_agree(check(fabric, hosts_only=True), ibdm.check(fabric))


# -- does ibdmchk check lanes?   ---------------------------------------------------------------------------------------


def ring_on_two_lanes() -> Fabric:
    """Return four switches that send clockwise. Paths through sw1 have SL 1: on its own VL no SL closes the loop."""
    builder = FabricBuilder("ring")
    switches = builder.add_nodes(NodeKind.SWITCH, [f"sw{i}" for i in range(1, 5)], n_ports=4)
    hosts = builder.add_nodes(NodeKind.HCA, [f"h{i}" for i in range(1, 5)], n_ports=1)
    builder.add_links(switches, 2, np.roll(switches, -1), 3, "EDR")
    builder.add_links(hosts, 1, switches, 1, "EDR")
    fabric = builder.build()
    tables = fabric.tables
    tables.lid[:] = assign_lids(fabric)[0]
    for local in range(4):
        for present in range(4):
            lid = fabric.find_node(f"h{present + 1}").lid
            tables.lft[local, lid] = 1 if local == present else 2
            tables.path_sl[local, lid] = local > present > 0
    return fabric


def test_ibdmchk_reports_the_loop_without_files_of_lanes(ibdm):
    fabric = ring_on_two_lanes()
    fabric.tables.sl2vl[:] = np.arange(16)
    assert ibdm.check(fabric, lanes=False).credit_loop


def test_ibdmchk_honours_service_levels(ibdm):
    fabric = ring_on_two_lanes()
    fabric.tables.sl2vl[:] = np.arange(16)
    assert ibdm.check(fabric).credit_loop is False
    assert check(fabric, hosts_only=True).ok


def test_ibdmchk_honours_sl_to_vl(ibdm):
    """Two service levels on one lane close the loop again."""
    fabric = ring_on_two_lanes()
    fabric.tables.sl2vl[:] = 0
    assert ibdm.check(fabric).credit_loop
    assert check(fabric, hosts_only=True).credit_loop


@pytest.mark.parametrize("stays_up", [True, False])
def test_ibdmchk_honours_lanes_by_port(ibdm, stays_up):
    """SL 1 changes to VL 1 where it enters sw1 by port 3; if sw2 maps it back to VL 0, the loop is closed."""
    fabric = ring_on_two_lanes()
    for name in ("sw1", "sw2") if stays_up else ("sw1",):
        first = fabric.tables.first_pair[fabric.find_node(name).index]
        fabric.tables.sl2vl[first + 3 * 5 : first + 4 * 5, 1] = 1
    report = ibdm.check(fabric)
    assert report.lanes == 2
    assert report.credit_loop is not stays_up
    assert_agree(check(fabric, hosts_only=True), report)


# -- OpenSM's tables ---------------------------------------------------------------------------------------------------


@pytest.fixture
def by_opensm(opensm) -> Callable[..., Fabric]:
    """A function that returns a fabric as OpenSM discovered it on ibsim, with OpenSM's tables."""

    def run(fabric: Fabric, *arguments: str) -> Fabric:
        host = node_id(NodeKind.HCA, fabric.hcas[0].guid)
        folder = opensm(ibnetdiscover.to_text(fabric), host, *arguments)
        observed = files.read(folder / "opensm-subnet.lst")
        read_tables(folder, observed)
        shutil.rmtree(folder)
        return observed

    return run


@pytest.mark.parametrize(
    ("name", "engine", "seed"),
    [
        *(("ndr", engine, 1) for engine in ("minhop", "updn", "ftree")),
        ("ndr", "ftree", 0),
        *((SMALL[1], engine, seed) for engine in ("minhop", "updn", "ftree") for seed in SEEDS),
        (LARGE, "ftree", 1),
        *((name, "minhop", seed) for name in SMALL[2:] for seed in SEEDS),  # other engines need a tree
    ],
)
def test_weft_and_ibdmchk_agree_on_opensms_tables(request, ibdm, by_opensm, name, engine, seed):
    """If an engine fails, OpenSM falls back to minhop; those tables are checked too."""
    fabric = by_opensm(load(request, name, seed), "-R", engine)
    verdict = check(fabric, hosts_only=True)
    assert_agree(verdict, ibdm.check(fabric))
    if name.startswith("torus"):
        assert verdict.credit_loop


def test_ibdmchk_agrees_on_each_of_several_subnets(ibdm):
    """The subnets have no routers: ibdmchk does not follow their ports."""
    whole = route(weft.load("subnets:2,routers=2,of=fat-tree:hosts=12,radix=8"), Options(engine="up-down")).fabric
    for subnet in by_subnet(whole).values():
        fabric = subnet.subset(subnet.nodes.kind != NodeKind.ROUTER)
        report = ibdm.check(fabric)
        assert (report.paths, report.missing, report.credit_loop) == (12 * 11, 0, False)
        assert_agree(check(fabric, hosts_only=True), report)


def test_opensm_manages_one_subnet_of_a_larger_fabric_on_ibsim(ibdm, by_opensm):
    """ibsim knows no routers, so their ports are free there."""
    whole = weft.load("subnets:2,routers=2,of=fat-tree:hosts=12,radix=8")
    for part in subnets_of(whole):
        subnet = take_subnet(whole, part)[1]
        fabric = by_opensm(subnet.subset(subnet.nodes.kind != NodeKind.ROUTER), "-R", "updn")
        verdict = check(fabric, hosts_only=True)
        assert (verdict.ok, verdict.pairs) == (True, 12 * 11)
        assert_agree(verdict, ibdm.check(fabric))
