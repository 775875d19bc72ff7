"""Unmodified OpenSM manages a lab, and the tools of infiniband-diags report the true fabric.

Everything runs through Debian's libumad2sim, as it does on ibsim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.interop.ibdm import assert_agree
from tests.interop.managed import Managed
from tests.patience import PATIENCE_S

import weft
from weft.fabric.files import ibnetdiscover
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.lab import preload, programs
from weft.routing.check import check
from weft.routing.engine import Options
from weft.routing.route import route
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic
from weft.wire.port_info import PortState

pytestmark = pytest.mark.interop

SMALL = "fat-tree:hosts=16,radix=8,speed=HDR"
Start = Callable[..., Managed]


@pytest.fixture
def managed(peer, tmp_path, monkeypatch) -> Iterator[Start]:
    """Start a lab of a fabric; it ends with the test."""
    for program in ("opensm", "ibsim-run"):
        peer(program)
    monkeypatch.setenv("WEFT_UMAD2SIM", str(programs.find_umad2sim()))
    running: list[Managed] = []

    def start(fabric: str | Fabric) -> Managed:
        result = Managed(weft.load(fabric) if isinstance(fabric, str) else fabric, tmp_path)
        result.lab.__enter__()
        running.append(result)
        return result

    yield start
    for item in running:
        item.end()


def graph(fabric: Fabric) -> set[str]:
    """Return the cables with their rates and the nodes with their GUIDs."""
    cables = {f"{link.label} {sorted(map(str, (link.a, link.b)))}" for link in fabric.all_links()}
    return cables | {f"{node.name} {node.guid}" for node in (*fabric.switches, *fabric.hcas)}


def errors(log: str) -> list[str]:
    return [line for line in log.splitlines() if " ERR " in line]


ENGINES = {"minhop": [], "updn": [], "ftree": [], "dfsssp": ["-Q"]}


# -- OpenSM brings it up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "engine"),
    [
        *(("star:4,server=host-xdr", engine) for engine in ENGINES),
        *(("fat-tree:hosts=128,radix=8,speed=NDR", engine) for engine in ENGINES),
        ("fat-tree:hosts=648,radix=36,speed=HDR", "ftree"),
    ],
)
def test_opensm_brings_a_lab_up(managed, spec, engine):
    """Every port is Active, and OpenSM's tables connect every pair without a credit loop."""
    item = managed(spec)
    log = item.sweep(item.fabric.servers[0], "-R", engine, *ENGINES[engine])
    assert errors(log) == []
    assert item.states() == {PortState.ACTIVE}
    lids = item.fabric.tables.lid[item.fabric.tables.lid > 0]
    assert len(set(lids.tolist())) == len(item.fabric.switches) + len(item.fabric.hcas)
    assert check(item.fabric, hosts_only=True).ok
    assert not item.lab.errors.counts


@pytest.mark.parametrize("spec", ["opensm-subnet.lst", "fat-tree:hosts=16,radix=8"])
def test_the_dumps_of_opensm_on_a_lab_of_ndr_are_checked(managed, tmp_path, capsys, spec):
    """OpenSM has no name for NDR and writes guid2lid to another folder: its dumps suffice all the same."""
    from weft.cli.route import check as command

    item = managed("fat-tree:hosts=16,radix=8")
    dumps, cache = tmp_path / "dumps", tmp_path / "cache"
    dumps.mkdir()
    cache.mkdir()
    words = ("opensm", "-o", "-R", "ftree", "-D", "0x43", "-f", str(tmp_path / "log"))
    item.lab.run("h1", *words, folder=tmp_path, timeout_s=PATIENCE_S, OSM_TMP_DIR=str(dumps), OSM_CACHE_DIR=str(cache))
    assert "SPD=??" in (dumps / "opensm-subnet.lst").read_text()
    assert not (dumps / "guid2lid").exists()
    command(str(dumps / spec) if spec.endswith("lst") else spec, tables=dumps, hosts_only=True)
    output = capsys.readouterr().out
    assert ("cable ends with SPD=?? (OpenSM cannot write rates above HDR) read as NDR" in output) == spec.endswith(
        "lst"
    )
    assert "no credit loop" in output


def test_opensm_brings_a_dragonfly_up_without_deadlock(managed):
    item = managed("dragonfly:p=2,a=4,h=2,speed=EDR")
    assert errors(item.sweep("h1", "-R", "dfsssp", "-Q")) == []
    assert item.states() == {PortState.ACTIVE}
    assert check(item.fabric).missing == 0
    assert item.fabric.tables.sl2vl.max() == 7


@pytest.mark.slow
def test_opensm_brings_selene_up(managed, ibdm, selene_dump):
    """666 switches, and adapters with names that repeat.

    Its min-hop paths are as long as weft's, pair by pair. They can deadlock: weft and ibdmchk report it, weft with the
    ports. ibdmchk walks every pair, which takes a minute, so it gets all switches but only every fifth server.
    """
    item = managed(ibnetdiscover.read(selene_dump))
    host = item.fabric.hcas[0].name
    (item.folder / "selene").mkdir()
    log = item.sweep(host)
    assert errors(log) == []
    assert item.states() == {PortState.ACTIVE}
    verdict = check(item.fabric)
    assert verdict.missing == 0
    assert all(name in item.fabric for name in verdict.credit_loop)
    assert len(verdict.credit_loop) >= 3
    ours = route(item.fabric, Options(engine="min-hop")).fabric
    assert np.array_equal(ours.tables.lid, item.fabric.tables.lid)
    lids = ours.tables.lid[ours.tables.lid > 0]
    assert len(lids) > 4_341
    assert np.array_equal(switch_hops(ours, lids), switch_hops(item.fabric, lids))
    nodes = item.fabric.nodes
    some = item.fabric.subset((nodes.kind == NodeKind.SWITCH) | (nodes.server % 5 == 0))
    report = ibdm.check(some, shell=True)
    assert report.credit_loop
    assert_agree(check(some, hosts_only=True), report)


def switch_hops(fabric: Fabric, lids: np.ndarray) -> np.ndarray:
    """Follow all tables at once; return the links between switches as int16[switch, index of lids]."""
    graph_ports = np.full((len(fabric.switches), 256), -1, np.int32)  # [switch, port] -> switch behind it
    tables, ports = fabric.tables, fabric.ports
    rows = tables.switch_row[ports.node]
    plugged = np.flatnonzero((rows >= 0) & (ports.peer >= 0))
    graph_ports[rows[plugged], ports.number[plugged]] = tables.switch_row[ports.node[ports.peer[plugged]]]
    local = np.repeat(np.arange(len(tables.lft))[:, None], len(lids), axis=1)
    hops = np.zeros(local.shape, np.int16)
    for _ in range(16):
        present = graph_ports[local, tables.lft[local, lids]]
        if (present < 0).all():
            break
        hops += present >= 0
        local = np.where(present >= 0, present, local)
    return hops


# -- tools report the true fabric --------------------------------------------------------------------------------------


@pytest.fixture
def small(managed) -> Managed:
    """A lab of 16 hosts on a tree of two levels, with OpenSM running at h1."""
    item = managed(SMALL)
    item.manage("h1")
    item.wait_for(lambda: item.ups("h1") > 0, "SUBNET UP")
    return item


def lid(one: Managed, name: str) -> str:
    return str(int(one.fabric.find_node(name).lid))


def test_ibnetdiscover_sees_the_fabric_as_it_is(small):
    path = small.folder / "seen.txt"
    path.write_text(small.tool("h3", "ibnetdiscover"), encoding="utf-8")
    observed = ibnetdiscover.read(path)
    assert graph(observed) == graph(small.fabric)
    assert {node.name: int(node.lid) for node in (*observed.switches, *observed.hcas)} == {
        node.name: int(node.lid) for node in (*small.fabric.switches, *small.fabric.hcas)
    }


def test_smpquery_and_sminfo_answer_right(small):
    """Every attribute that smpquery knows, by LID and by a directed path; and the subnet manager."""
    fabric = small.fabric
    leaf, host = lid(small, "leaf1"), lid(small, "h9")

    def query(*words: str) -> str:
        return re.sub(r"\.{2,}", " ", small.tool("h2", "smpquery", *words))

    ports = int(fabric.nodes.n_ports[fabric.find_node("leaf1").index])
    assert re.search(rf"NodeType: Switch\nNumPorts: {ports}\n", query("nodeinfo", leaf))
    assert query("nodedesc", leaf).strip() == "Node Description: leaf1"
    assert query("-D", "nodedesc", "0,1").strip() == f"Node Description: {fabric['h2/1'].peer.node.name}"
    port = query("portinfo", leaf, "1")
    assert "LinkState: Active" in port
    assert "LinkSpeedExtActive: 53.125 Gbps" in port
    assert f"LinearFdbTop: {max(fabric.tables.lid)}" in query("switchinfo", leaf)
    assert re.search(r"0: 0xffff ", query("pkeys", host))
    assert "SL2VL table: Lid" in query("sl2vl", leaf, "1")
    assert "Low priority VL Arbitration Table" in query("vlarb", leaf, "1")
    assert f"0x{int(fabric['h9/1'].guid):016x}" in query("guidinfo", host)
    assert "StateChangeEnable: 0x00" in query("mlnxextportinfo", leaf, "1")
    assert re.search(rf"sm lid {lid(small, 'h1')} .*SMINFO_MASTER", small.tool("h5", "sminfo"))


def test_ibroute_and_dump_fts_show_the_tables(small):
    fabric = small.fabric
    row = fabric.tables.lft[fabric.tables.switch_row[fabric.find_node("leaf1").index]]
    output = dict(re.findall(r"^0x([0-9a-f]{4}) (\d{3}) ", small.tool("h2", "ibroute", lid(small, "leaf1")), re.M))
    assert output == {f"{at:04x}": f"{port:03}" for at, port in enumerate(row.tolist()) if port != 0xFF}
    everything = small.tool("h2", "dump_fts")
    assert everything.count("Unicast lids") == len(fabric.switches)


def test_ibtracert_follows_the_tables(small):
    """The path is h1, a leaf, a spine, a leaf, h16, by the ports of the tables."""
    traced = small.tool("h2", "ibtracert", lid(small, "h1"), lid(small, "h16"))
    names = re.findall(r'"(\w+)(?: mlx5_\d+)?"', traced)
    assert (names[0], names[-1], len(set(names))) == ("h1", "h16", 5)


def test_iblinkinfo_shows_every_link_active(small):
    output = small.tool("h2", "iblinkinfo", "-l")
    active = [line for line in output.splitlines() if "Active/  LinkUp" in line]
    assert len(active) == 2 * len(small.fabric.links)
    assert all(re.search(r"\( 4X +53.125 Gbps ", line) for line in active)


def test_ibqueryerrors_finds_every_port_well_and_one_with_a_bad_cable_not(managed, monkeypatch):
    """weft's preload is needed: libumad2sim copies 224 of a MAD's 256 bytes, and the last counters are in the rest."""
    if preload.library() is None:
        pytest.skip("there is no C compiler for weft's preload: make peers")
    monkeypatch.delenv("WEFT_UMAD2SIM")
    item = managed(SMALL)
    item.manage("h1")
    item.wait_for(lambda: item.ups("h1") > 0, "SUBNET UP")
    assert "22 nodes checked, 0 bad nodes found" in item.tool("h2", "ibqueryerrors")
    item.lab.degrade("h5/1", 1e-4)
    for _ in range(15):
        item.lab.run("h5", "smpquery", "-t", "20", "nodeinfo", lid(item, "h9"), folder=item.folder)
    result = item.tool("h2", "ibqueryerrors", "-t", "20", status=1)
    bad = set(re.findall(r"GUID 0x([0-9a-f]+) port \d+: \[SymbolErrorCounter == \d+", result))
    assert bad
    assert bad <= {f"{int(end.guid):x}" for end in (item.fabric["h5/1"], item.fabric["h5/1"].peer.node)}


def test_perfquery_counts_the_mads(small):
    """A port that carried MADs has counted them, in 32 and in 64 bits."""
    leaf = lid(small, "leaf1")
    port = str(small.fabric["h2/1"].peer.number)
    counts = [
        int(re.search(r"PortRcvPkts:\.*(\d+)", small.tool("h2", "perfquery", *extended, leaf, port))[1])
        for extended in ([], ["-x"], [])
    ]
    assert 0 < counts[0] < counts[1] < counts[2]


def test_saquery_answers(small):
    item, other = lid(small, "h1"), lid(small, "h16")
    path = small.tool("h2", "saquery", "PR", "--src-to-dst", f"{item}:{other}")
    assert re.search(rf"slid\.*{item}\b", path)
    assert re.search(rf"dlid\.*{other}\b", path)
    assert "Capability mask" in small.tool("h2", "saquery", "CPI")


def test_ibportstate_takes_a_link_down_and_up(small):
    """MADs alone do it: the port is disabled, its peer is down, OpenSM is notified, and the link comes back."""
    leaf, port = lid(small, "leaf1"), str(small.fabric["h2/1"].peer.number)
    ups = small.ups("h1")
    assert "Active" in small.tool("h3", "ibportstate", leaf, port)
    small.tool("h3", "ibportstate", leaf, port, "disable")
    small.wait_for(lambda: small.ups("h1") > ups, "a sweep after trap 128")
    assert re.search(r"PhysLinkState:\.*Disabled", small.tool("h3", "smpquery", "portinfo", leaf, port))
    small.tool("h3", "ibportstate", leaf, port, "enable")
    small.wait_for(lambda: small.states() == {PortState.ACTIVE}, "the link Active again")


# -- what happens while it runs ---------------------------------------------------------------------------------------


def test_a_broken_cable_is_told_by_trap_128_and_routed_around(small):
    fabric, lab = small.fabric, small.lab
    spine = next(link for link in fabric.all_links() if "spine" in str(link.b) + str(link.a))
    ups = small.ups("h1")
    lab.break_cable(str(spine.a))
    small.wait_for(lambda: small.ups("h1") > ups, "a sweep after trap 128")
    assert "num:128" in small.log("h1")
    standing = lab.fabric_now()
    assert len(standing.links) == len(fabric.links) - 1
    assert check(standing, hosts_only=True).ok
    ups = small.ups("h1")
    lab.fix()
    small.wait_for(lambda: small.ups("h1") > ups, "a sweep after it came back")
    small.wait_for(lambda: small.states() == {PortState.ACTIVE}, "all links Active")
    assert check(fabric, hosts_only=True).ok


def test_the_standby_takes_over_when_the_master_is_killed(managed):
    item = managed(SMALL)
    options = item.folder / "options"
    options.write_text("sminfo_polling_timeout 300\npolling_retry_number 2\n")
    master = item.manage("h1", "-F", str(options), "-p", "10")
    item.wait_for(lambda: item.ups("h1") > 0, "SUBNET UP")
    item.manage("h2", "-F", str(options), "-p", "5")
    item.wait_for(lambda: "STANDBY" in item.log("h2"), "the second in STANDBY")
    assert "MASTER" in item.tool("h5", "sminfo")
    master.kill()
    item.wait_for(lambda: item.ups("h2") > 0, "SUBNET UP by the second")
    assert re.search(rf"sm lid {lid(item, 'h2')} .*MASTER", item.tool("h5", "sminfo"))
    assert [client["at"] for client in item.lab.state()["clients"]] == ["h2"]


def test_partitions_and_lanes_that_opensm_sets_are_in_the_tables_and_the_engine_runs_on_them(managed):
    item = managed(SMALL)
    guids = ", ".join(f"0x{int(item.fabric[f'h{n}/1'].guid):x}=full" for n in (2, 3))
    partitions = item.folder / "partitions"
    partitions.write_text(f"Default=0x7fff: ALL=full, SELF=full;\nblue=0x0123, sl=3: {guids};\n")
    options = item.folder / "options"
    options.write_text("qos TRUE\nqos_max_vls 8\nqos_sl2vl 0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7\n")
    item.sweep("h1", "-P", str(partitions), "-F", str(options))
    tables = item.fabric.tables
    members = {host for host in range(1, 17) if 0x8123 in tables.pkey[item.fabric[f"h{host}/1"].slot].tolist()}
    assert members == {2, 3}
    leaf = item.fabric.find_node("leaf1").index
    ports = int(item.fabric.nodes.n_ports[leaf]) + 1
    row = tables.sl2vl[int(tables.first_pair[leaf]) + 1 * ports + 2]
    assert row.tolist() == [0, 1, 2, 3, 4, 5, 6, 7] * 2
    result = PacketEngine().run(item.lab.fabric_now(), Traffic.of(item.fabric, [("h1", "h16", 1 << 16)], sl=5))
    assert result.done


def test_copies_for_a_group_go_along_the_tree_that_opensm_plants(managed):
    item = managed(SMALL)
    item.manage("h1")
    item.wait_for(lambda: item.ups("h1") > 0, "SUBNET UP")
    report = item.lab.traffic("multicast", 10_000, senders=16)
    assert report["delivered"] == 16
    assert report["copies"] == {f"h{number}/1": 15 * 3 for number in range(1, 17)}


def test_congestion_control_that_opensm_sets_is_what_ibccquery_reads_and_p_keys_are_whole(managed):
    """ibsim mistakes the class for another one and overwrites the P_Keys."""
    item = managed(SMALL)
    options = item.folder / "options"
    options.write_text(
        "congestion_control TRUE\ncc_sw_cong_setting_control_map 0x8\ncc_sw_cong_setting_threshold 0xe\n"
        "cc_ca_cong_entries 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8 0x9 0xa 0xb 0xc 0xd 0xe 0xf 0x10\n"
    )
    before = item.fabric.tables.pkey.copy()
    item.manage("h1", "-F", str(options))

    def is_set() -> bool:
        if not item.ups("h1"):
            return False
        requests = ("ibccquery", "SwitchCongestionSetting", lid(item, "leaf1"))
        result = item.lab.run("h2", *requests, folder=item.folder).stdout
        return bool(re.search(r"Threshold:\.+0x0e", result)) and bool(re.search(r"Control_Map:\.+0x00000008", result))

    item.wait_for(is_set, "SwitchCongestionSetting of leaf1")
    assert "Lid" in item.tool("h2", "ibccquery", "CACongestionSetting", lid(item, "h5"))
    assert (item.fabric.tables.pkey[:, 1:] == before[:, 1:]).all()
    assert (item.fabric.tables.pkey[item.fabric["h5/1"].slot, :1] & 0x7FFF == 0x7FFF).all()
