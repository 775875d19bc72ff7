"""OpenSM's files, read and written. OpenSM wrote the examples in data/ for a small subnet."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError, FileError
from weft.fabric.build import FabricBuilder
from weft.fabric.files import opensm
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.fabric.tables import NO_ROUTE
from weft.ids import Guid, Lid
from weft.routing.route import route

DATA = Path(__file__).parent / "data"
READERS = {
    "opensm-subnet.lst": lambda path, _: opensm.read(path),
    "opensm.fdbs": opensm.read_fdbs,
    "opensm-lfts.dump": opensm.read_lfts,
    "dump_fts.txt": opensm.read_lfts,
    "guid2lid": lambda path, fabric: opensm.apply_guid2lid(fabric, opensm.read_guid2lid(path)),
}


def read_routed(folder: Path) -> Fabric:
    """Return the subnet of a folder, with its LIDs and routes."""
    fabric = opensm.read(folder / "opensm-subnet.lst")
    opensm.apply_guid2lid(fabric, opensm.read_guid2lid(folder / "guid2lid"))
    opensm.read_fdbs(folder / "opensm.fdbs", fabric)
    return fabric


@pytest.fixture
def folder(data) -> Path:
    return data / "opensm"


@pytest.fixture
def fabric(folder) -> Fabric:
    return read_routed(folder)


@pytest.fixture
def example(tmp_path, folder):
    """A file of the example with some text replaced."""

    def write(name: str, old: str = "", new: str = "") -> Path:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new, 1) if old else new, encoding="utf-8")
        return tmp_path / name

    return write


def lines(text: str) -> list[str]:
    return sorted(re.sub("Rev:000000A1", "Rev:00000000", text).splitlines())


# -- opensm-subnet.lst ------------------------------------------------------------------------------------------------


def test_a_subnet_list_is_read_whole(folder):
    fabric = opensm.read(folder / "opensm-subnet.lst")
    assert sorted(fabric.nodes.name) == ["h1", "h2", "h3", "leaf1", "leaf2"]
    assert {f"{link} {link.label}" for link in fabric.all_links()} == {
        "h1/1 - leaf1/1 4xHDR",
        "h2/1 - leaf1/2 4xEDR",
        "h3/2 - leaf2/1 4xFDR10",
        "leaf1/7 - leaf2/7 4xHDR",
        "leaf1/8 - leaf2/8 2xHDR",
    }
    leaf, adapter = fabric.find_node("leaf1"), fabric.find_node("h3")
    assert (leaf.lid, leaf.model, leaf.description) == (4, "QM8700", "MF0;leaf1:MQM8700/U1")
    assert (adapter.port(2).lid, adapter.port(2).guid, adapter.model) == (3, Guid(0x2C90300000302), "ConnectX-6")


def test_a_subnet_list_is_written_as_opensm_wrote_it(fabric, folder):
    expected = (folder / "opensm-subnet.lst").read_text(encoding="utf-8")
    assert lines(opensm.subnet_lst_text(fabric, sm_lid=1)) == lines(expected)


def test_guids_and_lids_of_a_subnet_list_are_hexadecimal(tmp_path):
    fabric = route(load("fat-tree:hosts=32,radix=8")).fabric
    (tmp_path / "opensm-subnet.lst").write_text(opensm.subnet_lst_text(fabric))
    result = opensm.read(tmp_path / "opensm-subnet.lst")
    assert max(port.lid for host in fabric.hcas for port in host.ports) >= 0x20
    for node in fabric.hcas:
        port = result.find_node(node.name).port(1)
        assert (port.lid, port.guid) == (node.port(1).lid, node.port(1).guid)


def test_links_without_lids_are_not_active(fabric):
    fabric.tables.lid[:] = 0
    text = opensm.subnet_lst_text(fabric)
    assert "LOG=ACT" not in text
    assert "-SM" not in text


@pytest.mark.parametrize(
    ("lane", "rate"), [("2.5", "SDR"), ("14", "FDR"), ("25", "EDR"), ("100", "NDR"), ("200", "XDR")]
)
def test_lane_speeds_are_read_and_written(folder, tmp_path, lane, rate):
    path = tmp_path / "opensm-subnet.lst"
    path.write_text(re.sub("SPD=50", f"SPD={lane}", (folder / path.name).read_text(encoding="utf-8")), encoding="utf-8")
    fabric = opensm.read(path)
    assert fabric.find_port("h1/1").link.label == f"4x{rate}"
    assert f"SPD={lane}\n" in opensm.subnet_lst_text(fabric)


# -- routes -----------------------------------------------------------------------------------------------------------


def test_routes_are_read_into_the_forwarding_tables(fabric):
    leaf1, leaf2 = (fabric.tables.lft[fabric.tables.switch_row[fabric.find_node(n).index]] for n in ("leaf1", "leaf2"))
    assert leaf1.tolist() == [NO_ROUTE, 1, 2, 7, 0, 8]
    assert leaf2.tolist() == [NO_ROUTE, 7, 8, 1, 7, 0]


@pytest.mark.parametrize("name", ["opensm-lfts.dump", "dump_fts.txt"])
def test_all_files_of_routes_say_the_same(fabric, folder, name):
    from_fdbs = fabric.tables.lft
    fabric.tables.lft = np.zeros_like(from_fdbs)
    opensm.read_lfts(folder / name, fabric)
    assert np.array_equal(fabric.tables.lft, from_fdbs)


@pytest.mark.parametrize("run", ["opensm", "opensm-lmc2"])
def test_routes_and_lids_are_written_as_opensm_wrote_them(data, run):
    fabric = read_routed(data / run)
    assert opensm.fdbs_text(fabric) == (data / run / "opensm.fdbs").read_text(encoding="utf-8")
    assert lines(opensm.guid2lid_text(fabric)) == lines((data / run / "guid2lid").read_text(encoding="utf-8"))


def test_lfts_are_written_as_opensm_wrote_them(fabric, folder):
    assert opensm.lfts_text(fabric) == (folder / "opensm-lfts.dump").read_text(encoding="utf-8")


@pytest.fixture
def ring() -> Fabric:
    """Return a ring of four switches by their ports 1 (clockwise) and 2, with a host at port 3 of each."""
    builder = FabricBuilder("ring")
    switches = builder.add_nodes(NodeKind.SWITCH, ["s0", "s1", "s2", "s3"], n_ports=3)
    hosts = builder.add_nodes(NodeKind.HCA, ["h0", "h1", "h2", "h3"], n_ports=1)
    builder.add_links(switches, 1, np.roll(switches, -1), 2, "EDR")
    builder.add_links(switches, 3, hosts, 1, "EDR")
    fabric = builder.build()
    fabric.tables.lid[fabric.first_port[switches]] = np.arange(1, 5)
    fabric.tables.lid[fabric.first_port[hosts] + 1] = np.arange(5, 9)
    return fabric


def test_hops_and_better_ways_are_counted(ring):
    """All routes go clockwise: three switches to the left neighbour, where one would be enough."""
    ring.tables.lft[:] = 1
    for n in range(4):
        ring.tables.lft[n, [n + 1, n + 5]] = 0, 3
    ring.tables.lft[0, 6] = NO_ROUTE
    ring.tables.lft[0, 7] = 3
    assert opensm.fdbs_text(ring).splitlines()[:10] == [
        "dump_ucast_routes: Switch 0x0002c90300000100",
        "LID    : Port : Hops : Optimal",
        "0x0001 : 000  : 00   : yes",
        "0x0002 : 001  : 01   : yes",
        "0x0003 : 001  : 02   : yes",
        "0x0004 : 001  : 03   : No 1 hop path possible via port 2!",
        "0x0005 : 003  : 01   : yes",
        "0x0006 : UNREACHABLE",
        "0x0007 : 003  : HOPS UNKNOWN",
        "0x0008 : 001  : 04   : No 2 hop path possible via port 2!",
    ]


def test_hops_to_an_uncabled_adapter_are_unknown(ring):
    cut = ring.subset(keep_links=np.arange(len(ring.links)) < 4)
    cut.tables.lft[:] = 1
    assert "0x0008 : 001  : HOPS UNKNOWN\n" in opensm.fdbs_text(cut)


def test_a_route_to_an_unassigned_lid_is_written_as_unknown(ring, tmp_path):
    ring.tables.lft[:] = 1
    ring.tables.lid[ring.tables.lid == 6] = 0
    assert "0x0006 : UNREACHABLE\n" in opensm.fdbs_text(ring)
    text = opensm.lfts_text(ring)
    assert "0x0006 001 # unknown node and type\n" in text
    before = ring.tables.lft
    (tmp_path / "lfts").write_text(text, encoding="utf-8")
    opensm.read_lfts(tmp_path / "lfts", ring)
    assert np.array_equal(ring.tables.lft, before)


def test_dumps_of_a_fabric_without_switches_are_empty():
    builder = FabricBuilder("lonely")
    builder.add_nodes(NodeKind.HCA, ["h1"], n_ports=1)
    fabric = builder.build()
    assert opensm.subnet_lst_text(fabric) == opensm.fdbs_text(fabric) == opensm.lfts_text(fabric) == ""


def test_a_switch_of_another_network_has_no_table():
    builder = FabricBuilder("two networks")
    switches = builder.add_nodes(NodeKind.SWITCH, ["ethernet", "ib"], n_ports=4)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=2)
    builder.add_links(hosts, 1, switches[0], [1, 2], "100GbE")
    builder.add_links(hosts, 2, switches[1], [1, 2], "HDR")
    fabric = builder.build()
    guid = fabric.find_node("ib").guid
    assert re.findall("Switch (0x.*)", opensm.fdbs_text(fabric)) == [str(guid)]
    assert re.findall("guid (0x[0-9a-f]*) ", opensm.lfts_text(fabric)) == [str(guid)]


def test_dumps_written_are_read_back(fabric, tmp_path):
    opensm.write_dumps(fabric, tmp_path)
    again = read_routed(tmp_path)
    assert np.array_equal(np.sort(again.tables.lid), np.sort(fabric.tables.lid))
    assert lines(opensm.fdbs_text(again)) == lines(opensm.fdbs_text(fabric))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "guid2lid",
        "opensm-lfts.dump",
        "opensm-subnet.lst",
        "opensm.fdbs",
    ]


def test_a_folder_that_is_not_there_is_an_error_of_the_user(fabric, tmp_path):
    with pytest.raises(ConfigError, match="cannot write"):
        opensm.write_dumps(fabric, tmp_path / "nothing")


# -- guid2lid ---------------------------------------------------------------------------------------------------------


def test_lids_are_read_by_port_guid(data):
    assert opensm.read_guid2lid(data / "opensm-lmc2" / "guid2lid")[Guid(0x0002C90300000101)] == (Lid(4), Lid(7))


def test_lids_and_lmc_are_given_to_ports(data):
    fabric = read_routed(data / "opensm-lmc2")
    port, leaf = fabric.find_port("h1/1"), fabric.find_port("leaf1/0")
    assert (port.lid, port.lmc, leaf.lid, leaf.lmc) == (4, 2, 16, 0)


def test_new_lids_drop_the_routes_by_the_old_ones(fabric, data):
    opensm.apply_guid2lid(fabric, opensm.read_guid2lid(data / "opensm-lmc2" / "guid2lid"))
    assert fabric.tables.lft.shape[1] == 18
    assert (fabric.tables.lft == NO_ROUTE).all()


def test_ports_that_left_the_subnet_are_passed_over(fabric):
    opensm.apply_guid2lid(fabric, {Guid(0xDEAD): (Lid(1), Lid(1)), Guid(0x0002C90300000101): (Lid(2), Lid(2))})
    assert fabric.tables.lid[fabric.tables.lid > 0].tolist() == [2]


def test_the_lids_of_another_fabric_are_refused(fabric):
    with pytest.raises(ConfigError, match="none of the 1 port GUIDs"):
        opensm.apply_guid2lid(fabric, {Guid(0xDEAD): (Lid(1), Lid(1))})


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new", "line", "expected"),
    [
        ("opensm-subnet.lst", "", "", None, "lines of an opensm-subnet.lst"),
        ("opensm-subnet.lst", "", "hello", 1, "as OpenSM writes"),
        ("opensm-subnet.lst", "SPD=50", "SPD=51", 1, "or ??, which OpenSM writes above HDR"),
        ("opensm-subnet.lst", "PHY=4x", "PHY=??", 1, "an InfiniBand rate"),
        ("opensm-subnet.lst", "SPD=25", "SPD=50", 5, "the same cable as on line 2"),
        ("opensm-subnet.lst", "{h1 mlx5_0}", "{h9 mlx5_0}", 4, "the same as on line 1"),
        ("opensm-subnet.lst", "LID:0001", "LID:C001", 1, "a unicast LID"),
        ("opensm.fdbs", "", "", None, "dump_ucast_routes"),
        ("opensm.fdbs", "", "hello", 1, "dump_ucast_routes"),
        ("opensm.fdbs", "0x0001 : 001", "0x0001 : 01 ", 3, "a route such as"),
        ("opensm.fdbs", "0x0001 : 001", "0x000g : 001", 3, "a route such as"),
        ("opensm.fdbs", "0x0001 : 001", "0x0001 ; 001", 3, "a route such as"),
        ("opensm.fdbs", "0x0001 : 001 ", "0x0001 : 0011", 3, "a route such as"),
        ("opensm.fdbs", "0x0001 : 001", "0x0001 : UNREACHED", 3, "a route such as"),
        ("opensm.fdbs", "0x0001 : 001", "0x0001 : 009", 3, "a port of the switch, from 0 to 8"),
        ("opensm.fdbs", "0x0001 : 001", "0x0006 : 001", 3, "apply its guid2lid first"),
        ("opensm.fdbs", "0x0001 : 001", "0x0002 : 001", 3, "one route for each LID"),
        ("opensm.fdbs", "0x1c34da0300728866", "0x1c34da0300728867", 1, "it has none with that GUID"),
        ("opensm.fdbs", "dump_ucast_routes: Switch 0x1c34da0300728866\n", "", 2, "a line with the switch before"),
        (
            "opensm.fdbs",
            "dump_ucast_routes: Switch 0x1c34da0300728966\n",
            "",
            None,
            "one for each switch that has a LID",
        ),
        ("opensm-lfts.dump", "0x0001 001 # Ch", "0x0009 001 # Ch", 2, "apply its guid2lid first"),
        ("opensm-lfts.dump", "Unicast lids", "Multicast mlids", 1, "Unicast lids"),
        ("guid2lid", "", "0x1 0x1", 1, "a port GUID, its first and its last LID"),
        ("guid2lid", "", "0x1 0x0000 0x0000", 1, "unicast LIDs"),
        ("guid2lid", "", "0x1 0x0002 0x0001", 1, "unicast LIDs"),
        ("guid2lid", "", "0x1 0x0001 0x0003", 1, "1, 2, 4"),
        ("guid2lid", "", "0x1 0x0001 0x0002", 1, "a multiple"),
        ("guid2lid", "", "0x1 0xc000 0xc000", 1, "unicast LIDs"),
        ("guid2lid", "", "0x1 0x0001 0x0001\n\n0x2 0x0001 0x0001", 3, "line 1 has 0x0001"),
        ("guid2lid", "", "0x1 0x0001 0x0001\n\n0x1 0x0002 0x0002", 3, "each port GUID once"),
    ],
)
def test_invalid_values_are_refused_with_their_line(fabric, example, name, old, new, line, expected):
    before = fabric.tables.lft.copy()
    with pytest.raises(FileError) as refused:
        READERS[name](example(name, old, new), fabric)
    assert refused.value.line == line
    assert expected in refused.value.expected
    assert np.array_equal(fabric.tables.lft, before), "a file that is refused changes nothing"


@pytest.mark.parametrize("name", READERS)
def test_no_text_whatever_escapes_as_another_error(tmp_path_factory, mutate, name):
    path = tmp_path_factory.mktemp("fuzz") / name
    content = (DATA / "opensm" / name).read_bytes()

    @given(st.binary() | st.text().map(str.encode) | mutate(content))
    def fuzz(text: bytes) -> None:
        path.write_bytes(text)
        fabric = read_routed(DATA / "opensm")
        try:
            READERS[name](path, fabric)
        except ConfigError:
            return
        opensm.write_dumps(fabric, path.parent)

    fuzz()


def test_a_speed_that_opensm_has_no_word_for_is_ndr_and_is_said(tmp_path):
    """SPD=?? is above HDR, so at least NDR; the fabric's changes mention it."""
    text = opensm.subnet_lst_text(load("fat-tree:hosts=16,radix=8"))
    assert "SPD=100" in text
    (tmp_path / "opensm-subnet.lst").write_text(text.replace("SPD=100", "SPD=??"))
    fabric = opensm.read(tmp_path / "opensm-subnet.lst")
    assert {link.label for link in fabric.all_links()} == {"4xNDR"}
    (change,) = fabric.changes
    assert change.startswith(f"{2 * len(fabric.links)} cable ends with SPD=??")
