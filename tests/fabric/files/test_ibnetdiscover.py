"""ibnetdiscover's output, read and written."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError, FileError
from weft.fabric.build import FabricBuilder
from weft.fabric.files import ibnetdiscover
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.servers import add_servers
from weft.fabric.spec import load
from weft.fabric.views import Link
from weft.ids import Guid

EXAMPLE = (Path(__file__).parent / "data" / "ibnetdiscover.txt").read_text(encoding="utf-8")


@pytest.fixture
def read(tmp_path):
    """Read a text as if it were a file."""

    def read(text: str | bytes) -> Fabric:
        path = tmp_path / "net"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return ibnetdiscover.read(path)

    return read


@pytest.fixture(scope="session")
def selene(selene_dump):
    return ibnetdiscover.read(selene_dump)


@pytest.fixture(scope="session")
def ndr(ndr_dump):
    return ibnetdiscover.read(ndr_dump)


def count(fabric: Fabric) -> dict[str, int]:
    return {kind.name: len(fabric.of_kind(kind)) for kind in NodeKind if len(fabric.of_kind(kind))}


def records(text: str) -> list[str]:
    """Return all lines but comments (the header has a date), without trailing blanks."""
    return [line for line in text.rstrip().splitlines() if not line.startswith("#")]


# -- real fabrics -----------------------------------------------------------------------------------------------------


def test_selene_is_read_whole(selene):
    assert count(selene) == {"SWITCH": 666, "HCA": 3675, "AGGREGATION": 666}
    assert len(selene.links) == 12_852  # 25,704 ports with a cable
    assert {link.label for link in selene.all_links()} == {"4xHDR"}
    assert len(selene.servers) == 469


def test_a_switch_of_selene_is_as_its_record_says(selene):
    switch = selene.find_node("MLG01-02")
    assert switch.description == "MF0;MLG01-02:MQM8700/U1"
    assert switch.model == "QM8700"
    assert (switch.guid, switch.lid, len(switch.ports)) == (Guid(0x1C34DA0300728866), 1600, 41)
    assert str(switch.port(2).peer) == "selene-cache-02/1"
    assert str(switch.port(41).peer) == "MLG01-02/sharp/1"
    assert switch.port(3).peer is None


def test_an_adapter_of_selene_is_as_its_record_says(selene):
    adapter = selene.find_node("selene-cache-02")
    assert adapter.description == "selene-cache-02 mlx5_1 ", "with the blank that the host's file has"
    assert (adapter.port(1).guid, adapter.port(1).lid, adapter.port(1).lmc) == (Guid(0x1C34DA0300608908), 256, 0)
    assert (adapter.fabric.nodes.vendor_id[adapter.index], adapter.fabric.nodes.device_id[adapter.index]) == (
        713,
        0x101B,
    )


def test_a_server_of_selene_has_its_eight_rails(selene):
    """mlx5_4, 5, 10 and 11 plug into the storage fabric, which is another dump."""
    assert {str(hca) for hca in selene["luna-0123"].hcas} == {f"luna-0123/mlx5_{n}" for n in (0, 1, 2, 3, 6, 7, 8, 9)}


def test_the_ndr_fabric_is_read_whole(ndr):
    assert count(ndr) == {"SWITCH": 40, "HCA": 542, "AGGREGATION": 40}
    assert {link.label for link in ndr.all_links()} == {"4xNDR"}
    assert ndr.find_node("A09-P1-IBLEAF-04-04").model == "QM9700"


def test_unnamed_adapters_are_named_by_their_ids(ndr):
    nameless = Counter(node.description for node in ndr.hcas if node.name == f"H-{node.guid:016x}")
    assert nameless == {
        "MT4129 ConnectX7   Mellanox Technologies": 69,
        "localhost HCA-1": 1,
        "localhost HCA-2": 1,
        "localhost HCA-6": 1,
    }


@pytest.mark.parametrize("which", ["selene", "ndr"])
def test_a_dump_is_written_back_line_for_line(which, request):
    fabric, dump = request.getfixturevalue(which), request.getfixturevalue(f"{which}_dump")
    assert records(ibnetdiscover.to_text(fabric)) == records(dump.read_text(encoding="utf-8"))


# -- forms ------------------------------------------------------------------------------------------------------------


def test_the_example_is_written_back_line_for_line(read):
    assert records(ibnetdiscover.to_text(read(EXAMPLE))) == records(EXAMPLE)


def grouped(text: str) -> str:
    """Return the output of `ibnetdiscover -g`: records of a chassis come twice, with their positions."""
    head, *blocks = text.split("\n\n")
    messages = [re.sub(r"(sysimgguid=\w+)", r"\1\t\t# Chassis 1 (dir1)", block) for block in blocks]
    messages = [re.sub(r"(switchguid=.*\))", r"\1\t# Line 4 Chip 2", block) for block in messages]
    messages = [re.sub(r"^(\[\d+\])", r"\1[ext 7]", block, flags=re.MULTILINE) for block in messages]
    messages = [re.sub(r'("\[\d+\])', r"\1[ext 12]", block) for block in messages]
    chassis = "\n\n".join(messages[:2])
    return f"{head}\n\nChassis 1 (guid 0x2c9)\n\n# Spine Nodes\n{chassis}\n\n# Chassis Switches\n" + (
        f"{chassis}\n\nNon-Chassis Nodes\n\n" + "\n\n".join(messages[2:])
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text.replace("\n", "\r\n"), id="carriage returns"),
        pytest.param(lambda text: text.replace("\t", " "), id="tabs as blanks"),
        pytest.param(lambda text: text.replace("\t", ""), id="tabs lost"),
        pytest.param(lambda text: re.sub(r"(\dx[A-Z]\w+)\n", r"\1 s=4 w=2 v=4\n", text), id="-f"),
        pytest.param(grouped, id="-g"),
        pytest.param(lambda text: f"=~=~ PuTTY log 2021.06.15 =~=~\r\n\r\r\n[root@ufm ~]# ls\n{text}", id="log before"),
        pytest.param(lambda text: f"{text}\r[root@ufm ~]# ", id="prompt after"),
        pytest.param(lambda text: f"\ufeff{text}", id="byte order mark"),
        pytest.param(lambda text: re.sub(r"^\[\d+\]\t\"[HS].*\n", "", text, flags=re.MULTILINE, count=4), id="one end"),
    ],
)
def test_the_same_fabric_comes_out_of_every_form(read, change):
    changed = change(EXAMPLE)
    assert changed != EXAMPLE
    assert records(ibnetdiscover.to_text(read(changed))) == records(EXAMPLE)


def test_an_adapter_that_only_its_switch_mentions_has_guid_and_lid(read):
    lines = [line for line in EXAMPLE.splitlines() if not line.startswith("[1](2c90300000201)")]
    port = read("\n".join(lines)).find_port("h2/1")
    assert (port.guid, port.lid, str(port.peer)) == (Guid(0x2C90300000201), 2, "leaf1/2")


def test_a_net_file_by_hand_gets_the_guids_that_ibsim_gives(data):
    fabric = ibnetdiscover.read(data / "ibsim.net")
    assert count(fabric) == {"SWITCH": 2, "HCA": 2, "ROUTER": 1}
    assert [f"{node.guid}" for node in map(fabric.find_node, ("Switch1", "Switch2", "Hca1", "Hca2"))] == [
        "0x0000000000200000",
        "0x0000000000200001",
        "0x0000000000100000",
        "0x0000000000100003",
    ]
    links = {f"{link} {link.label}" for link in fabric.all_links()}
    assert links == {
        "Switch1/1 - Hca1/1 4xSDR",
        "Switch1/2 - Hca2/2 4xSDR",
        "Switch1/3 - Switch2/3 4xSDR",
        "Switch1/4 - Switch2/4 4xSDR",
        "Switch2/5 - Router1/1 4xEDR",
    }
    assert not fabric.tables.lid.any()


@pytest.mark.parametrize("rates", [("", '# "a" lid 0 2xEDR'), ('# "b" lid 0 2xEDR', "")])
def test_a_rate_that_one_end_mentions_is_the_rate(read, rates):
    fabric = read(f'Switch 2 "a"\n[1] "b"[1] {rates[0]}\n\nSwitch 2 "b"\n[1] "a"[1] {rates[1]}\n')
    assert fabric.link(0).label == "2xEDR"


def test_the_ports_of_a_switch_share_its_guid_and_lid(read):
    fabric = read(
        'switchguid=0x50(57)\nSwitch 2 "a" # "a" enhanced port 0 lid 9 lmc 0\n[1](58) "a"[2](59) # lid 7 lmc 0\n'
    )
    assert [port.guid for port in (fabric.find_port("a/0"), *fabric.find_node("a").ports)] == [Guid(0x57)] * 3
    assert fabric.tables.lid.tolist() == [9, 0, 0]
    assert "switchguid=0x50(57)\n" in ibnetdiscover.to_text(fabric)


@pytest.mark.parametrize("rate", ["1xSDR", "4xDDR", "8xQDR", "4xFDR10", "12xFDR", "4xEDR", "2xHDR", "4xNDR", "4xXDR"])
def test_all_rates_are_read_and_written(read, rate):
    text = EXAMPLE.replace("2xHDR", rate)
    assert records(ibnetdiscover.to_text(read(text))) == records(text)


def test_a_lid_that_no_subnet_manager_gave_is_none(read):
    """Ports that are up but not yet configured have LID 65535."""
    assert read(EXAMPLE.replace("lid 2 ", "lid 65535 ")).find_port("h2/1").lid == 0


def test_a_description_keeps_quotes_and_blanks(read):
    fabric = read(EXAMPLE.replace('"leaf2"', '"the "big" leaf2  "'))
    assert fabric.find_node("the-big-leaf2").description == 'the "big" leaf2  '


def test_routers_and_adapters_back_to_back_are_written_as_the_tool_does(read):
    builder = FabricBuilder("pair")
    builder.add_nodes(NodeKind.ROUTER, ["r1"], n_ports=2)
    builder.add_nodes(NodeKind.HCA, ["h1"], n_ports=1, descriptions=["h1 mlx5_0"])
    builder.add_links(0, 2, 1, 1, "EDR")
    text = ibnetdiscover.to_text(builder.build())
    assert text.splitlines()[4:] == [
        "",
        "vendid=0x0",
        "devid=0x0",
        "sysimgguid=0x2c90300000200",
        "caguid=0x2c90300000200",
        'Ca\t1 "H-0002c90300000200"\t\t# "h1 mlx5_0"',
        '[1](2c90300000201) \t"R-0002c90300000100"[2] (2c90300000102) \t\t# lid 0 lmc 0 "r1" lid 0 4xEDR',
        "",
        "vendid=0x0",
        "devid=0x0",
        "sysimgguid=0x2c90300000100",
        "rtguid=0x2c90300000100",
        'Rt\t2 "R-0002c90300000100"\t\t# "r1"',
        '[2](2c90300000102) \t"H-0002c90300000200"[1] (2c90300000201) \t\t# lid 0 lmc 0 "h1 mlx5_0" lid 0 4xEDR',
    ]
    assert records(ibnetdiscover.to_text(read(text))) == records(text)


# -- what the tool cannot see -----------------------------------------------------------------------------------------


def test_only_the_adapters_of_a_dgx_are_written(read):
    builder = FabricBuilder("one dgx")
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=64)
    rails = add_servers(builder, "dgx-h100", ["dgx1"]).compute[0]
    builder.add_links(rails, 1, leaf, np.arange(1, len(rails) + 1), "NDR")
    observed = read(ibnetdiscover.to_text(builder.build()))
    assert set(count(observed)) == {"SWITCH", "HCA"}
    assert {len(hca.ports) for hca in observed.hcas} == {1}
    assert [str(port.peer) for port in observed.find_node("leaf1").ports[:2]] == ["dgx1/mlx5_0/1", "dgx1/mlx5_3/1"]
    assert len(observed.links) == 8


def test_a_fabric_without_infiniband_is_refused():
    fabric = load("star:hosts=2,switch=SN4700")
    with pytest.raises(ConfigError, match="no InfiniBand link"):
        ibnetdiscover.to_text(fabric)


def test_other_networks_are_not_written(read):
    builder = FabricBuilder("two networks")
    leaf = builder.add_nodes(NodeKind.SWITCH, ["ib", "ethernet", "spare"], n_ports=4)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=2)
    builder.add_links(hosts, 1, leaf[0], [1, 2], "HDR")
    builder.add_links(hosts, 2, leaf[1], [1, 2], "100GbE")
    observed = read(ibnetdiscover.to_text(builder.build()))
    assert set(observed.nodes.name) == {"ib", "h1", "h2"}, "nor of what no cable leads to"
    assert len(observed.links) == 2


def test_a_description_cannot_break_the_file(read):
    builder = FabricBuilder('a\n[1] "x"[1]')
    builder.add_nodes(NodeKind.SWITCH, ["s1"], n_ports=1, descriptions=['a\n[1] "x"[1]\u2028b'])
    assert read(ibnetdiscover.to_text(builder.build())).node(0).description == 'a [1] "x"[1] b'


@pytest.mark.parametrize("kind", [NodeKind.SWITCH, NodeKind.HCA])
def test_a_node_without_ports_is_written_and_read(read, kind):
    builder = FabricBuilder("bare")
    builder.add_nodes(kind, ["bare"], n_ports=0)
    assert read(ibnetdiscover.to_text(builder.build())).find_node("bare").ports == []


def test_an_empty_fabric_is_only_a_header():
    assert ibnetdiscover.to_text(FabricBuilder("nothing").build()).count("\n") == 3


# -- refusals ---------------------------------------------------------------------------------------------------------

TWO = 'Switch 2 "a"\n[1] "b"[1]\n\nSwitch 2 "b"\n[1] "a"[1]\n'


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", None, "records of ibnetdiscover"),
        ("# only\n# comments\n", None, "records of ibnetdiscover"),
        ("hello\n" + TWO, 1, "a line of ibnetdiscover"),
        ("vendid=0x1000000\n" + TWO, 1, "at most 0xffffff"),
        ("devid=0x10000\n" + TWO, 1, "at most 0xffff"),
        ("caguid=0x11112222333344445\n" + TWO, 1, "a line of ibnetdiscover"),
        ("caguid=0x1\n" + TWO, 2, "another kind of node after caguid="),
        ('[1] "a"[1]\n' + TWO, 1, "a node before its ports"),
        ('Switch "a"\n', 1, "the number of ports"),
        ('Switch 255 "a"\n', 1, "at most 254 ports"),
        ('Switch 9999999999999999999 "a"\n', 1, "the number of ports"),
        (TWO + 'Switch 2 "a"\n', 6, "another id: line 1 has a node with this one"),
        ('switchguid=0x5\nSwitch 1 "a"\n\nswitchguid=0x5\nSwitch 1 "b"\n', 5, "another GUID: the node of line 2"),
        ('Switch 2 "a"\n[3] "b"[1]\n\nSwitch 2 "b"\n', 2, "a port from 1 to 2, not 3"),
        ('Switch 2 "a"\n[1] "b"[3]\n\nSwitch 2 "b"\n', 2, "a port from 1 to 2, not 3"),
        ('Switch 2 "a"\n[0] "b"[1]\n\nSwitch 2 "b"\n', 2, "a port from 1 to 2, not 0"),
        ('Switch 2 "a"\n[1] "c"[1]\n', 2, '"c" has no record'),
        ('Switch 2 "a"\n[1] "a"[1]\n', 2, "a cable with another port at its end"),
        ('Switch 2 "a"\n[1]\n', 2, "a port and its peer"),
        ('Switch 2 "a"\n[1] "a"[2] w=4\n', 2, "a port and its peer"),
        ('Switch 2 "a"\n[1] "a"[2] # "a" lid 1 4x???\n', 2, "in place of 4x???"),
        ('Switch 2 "a"\n[1] "a"[2] # "a" lid 1 3xHDR\n', 2, "in place of 3xHDR"),
        ('Switch 2 "a"\n[1] "a"[2] # "a" lid 1 16xPCIe5\n', 2, "in place of 16xPCIe5"),
        ('Switch 2 "a" # "a" enhanced port 0 lid 49152 lmc 0\n', 1, "a unicast LID"),
        ('Switch 2 "a" # "a" enhanced port 0 lid 1 lmc 8\n', 1, "an LMC from 0 to 7"),
        ('include "other.net"\n', 1, "a line of ibnetdiscover"),
    ],
)
def test_invalid_values_are_refused_with_their_line(read, text, line, expected):
    with pytest.raises(FileError) as refused:
        read(text)
    assert refused.value.line == line
    assert expected in refused.value.expected


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ('Switch 2 "a"\n[1] "b"[1]\n\nSwitch 2 "b"\n[1] "a"[2]\n', 2, 5),
        ('Switch 2 "a"\n[1] "b"[1]\n[2] "b"[1]\n\nSwitch 2 "b"\n', 2, 3),
        ('Switch 2 "a"\n[1] "b"[1]\n[1] "b"[2]\n\nSwitch 2 "b"\n', 2, 3),
        ('Switch 2 "a"\n[1] "b"[1] # "b" lid 0 4xHDR\n\nSwitch 2 "b"\n[1] "a"[1] # "a" lid 0 4xEDR\n', 2, 5),
    ],
)
def test_two_lines_that_contradict_each_other_are_both_named(read, text, first, second):
    with pytest.raises(FileError) as refused:
        read(text)
    assert refused.value.line == second
    assert f"on line {first}" in refused.value.expected
    assert text.splitlines()[first - 1] in refused.value.expected


def test_bytes_that_are_not_text_are_refused_by_their_line(read):
    with pytest.raises(FileError) as refused:
        read(EXAMPLE.encode().replace(b"leaf2", b"leaf\xff"))
    assert refused.value.line == 10


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        ibnetdiscover.read(tmp_path / "nothing")


# -- anything at all --------------------------------------------------------------------------------------------------


@given(st.data())
def test_no_text_whatever_escapes_as_another_error(tmp_path_factory, mutate, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.ibnetdiscover"
    path.write_bytes(data.draw(st.binary() | st.text().map(str.encode) | mutate(EXAMPLE.encode())))
    try:
        fabric = ibnetdiscover.read(path)
    except ConfigError:
        return
    path.write_text(ibnetdiscover.to_text(fabric), encoding="utf-8")
    again = ibnetdiscover.read(path)
    assert sorted(again.nodes.guid) == sorted(in_sight(fabric))
    assert {link_ends(link) for link in again.all_links()} == {link_ends(link) for link in fabric.all_links()}


def test_a_node_that_no_cable_leads_to_is_read_and_not_written(read):
    fabric = read(EXAMPLE + 'Ca\t1 "H-00000000000000aa"\t\t# "spare"\n')
    assert 0xAA in fabric.nodes.guid
    again = read(ibnetdiscover.to_text(fabric))
    assert sorted(again.nodes.guid) == sorted(in_sight(fabric)) == sorted(set(fabric.nodes.guid) - {0xAA})


def in_sight(fabric: Fabric) -> list[int]:
    """Return the GUIDs of cabled nodes, or of all nodes if there is no cable."""
    wired = {port.node.guid for link in fabric.all_links() for port in (link.a, link.b)}
    return [guid for guid in fabric.nodes.guid.tolist() if guid in wired or not wired]


def link_ends(link: Link) -> tuple[str, frozenset[tuple[Guid, int]]]:
    return link.label, frozenset((port.node.guid, port.number) for port in (link.a, link.b))


def test_base_and_enhanced_port_0_are_kept(tmp_path):
    text = 'Switch 2 "S-{0:016x}"\t\t# "s{0}" {1} port 0 lid 0 lmc 0\n[1]\t"S-{2:016x}"[1]\n\n'
    (tmp_path / "net").write_text(text.format(1, "base", 2) + text.format(2, "enhanced", 1))
    fabric = ibnetdiscover.read(tmp_path / "net")
    assert fabric.nodes.enhanced_port_0.tolist() == [False, True]
    written = ibnetdiscover.to_text(fabric)
    assert '"s1" base port 0 lid' in written
    assert '"s2" enhanced port 0 lid' in written


@pytest.mark.parametrize("adapter_first", [True, False])
def test_an_adapters_own_line_precedes_that_of_its_peer(read, adapter_first):
    """GUID, LID and LMC: the switch knows no LMC, and may know an older LID."""
    adapter = (
        'Ca\t1 "H-000000000000b100"\t\t# "h1 mlx5_0"\n'
        '[1](b101) \t"S-00000000000000a1"[1]\t\t# lid 8 lmc 1 "sw1" lid 2 4xEDR\n'
    )
    switch = (
        'Switch\t4 "S-00000000000000a1"\t\t# "sw1" base port 0 lid 2 lmc 0\n'
        '[1]\t"H-000000000000b100"[1](b1ff) \t\t# "h1 mlx5_0" lid 9 4xEDR\n'
    )
    fabric = read("\n".join((adapter, switch) if adapter_first else (switch, adapter)))
    (hca,) = fabric.hcas
    assert (int(hca.port(1).guid), int(hca.lid), hca.port(1).lmc) == (0xB101, 8, 1)


def test_a_base_port_0_stays_one(read):
    text = ibnetdiscover.to_text(load("star:hosts=2")).replace("enhanced port 0", "base port 0")
    assert "base port 0 lid" in ibnetdiscover.to_text(read(text))
