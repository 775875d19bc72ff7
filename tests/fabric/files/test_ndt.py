"""Cable plans: the formats of UFM's own files, refused files, and written plans that read back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import ConfigError, FileError
from weft.fabric.build import FabricBuilder
from weft.fabric.files import ndt
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.spec import load

SHORT = "#StartDevice,StartPort,EndDevice,EndPort,LinkType\n"
LONG = (
    ",rack #,U height,#Fields:StartDevice,StartPort,StartDeviceLocation,EndDevice,EndPort,EndDeviceLocation,U height,"
)
LONG += "LinkType,Speed,,Cable Length,,,,,\n"


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> Fabric:
        path = tmp_path / "plan.ndt"
        path.write_text(text, encoding="utf-8")
        return ndt.read(path)

    return read


def cables(fabric: Fabric) -> set[tuple[str, str, str, float]]:
    """Return the cables outside boxes: ports, rate, length."""
    return {
        (*sorted((link.a.name, link.b.name)), link.label, round(link.length_m, 3))
        for link in map(fabric.link, fabric.network_links.nonzero()[0].tolist())
        if NodeKind.AGGREGATION not in (link.a.node.kind, link.b.node.kind)
    }


def test_the_short_form_of_a_host_plan(read):
    """UFM's own tests name the port of a host by its name and the adapter's."""
    fabric = read(
        SHORT + "SAT111092710053,SAT111092710053 ibp11s0f0,SAT11-0101-0927-20IB0,Port 1, Data\n"
        "SAT111092710053,SAT111092710053 ibp21s0f0,SAT11-0101-0927-20IB0,Port 2, Data\n"
        "SAT111092710037,SAT111092710037 ibp11s0f0,SAT11-0101-0927-20IB0,Port 3, Data\n"
    )
    assert fabric.servers == ("SAT111092710053", "SAT111092710037")
    assert [hca.name for hca in fabric.hcas] == [
        "SAT111092710053/ibp11s0f0",
        "SAT111092710053/ibp21s0f0",
        "SAT111092710037",
    ]
    assert fabric["SAT11-0101-0927-20IB0/3"].peer.node.description == "SAT111092710037 ibp11s0f0"


def test_the_line_cards_of_a_director_are_switches_of_their_own(read):
    fabric = read(SHORT + "leaf1,Port 21,dir1,Blade 16_Port 2/20,Data\nleaf1,Port 22,dir1,Blade 04_Port 1/7,Data\n")
    assert [switch.name for switch in fabric.switches] == ["leaf1", "dir1-L16-U2", "dir1-L4-U1"]
    assert fabric["leaf1/21"].peer.name == "dir1-L16-U2/20"
    fabric = read(SHORT + "leaf1,Port 21,dir1,Blade 16_Port 2/1,Data\nleaf1,Port 22,h1,Port 1,Data\n")
    assert [switch.name for switch in fabric.switches] == ["leaf1", "dir1"]


def test_the_long_form_tells_speed_and_length(read):
    fabric = read(
        LONG + ",Rack 1,U41,leaf1,Port 21,F01,spine1,Port 1,F02,U25,Data,200000,200G HDR cable,10,,,,,x\n"
        ",Rack 1,U41,leaf1,Port 22,F01,spine1,Port 2,F02,U25,Data,100000,,2.5 m,,,,,\n"
        ",Rack 1,U41,leaf1,Port 23,F01,spine1,Port 3,F02,U25,Data,56000,,,,,,,\n"
        ",Rack 1,U41,leaf1,Port 24,F01,spine1,Port 4,F02,U25,Data,2xNDR,,,,,,,\n"
        ",Rack 1,U41,leaf1,Port 25,F01,spine1,Port 5,F02,U25,Data,40000,,,,,,,\n"
    )
    assert [(link.label, link.length_m) for link in fabric.all_links()] == [
        ("4xHDR", 10),
        ("4xEDR", 2.5),
        ("4xFDR", 0),
        ("2xNDR", 0),
        ("4xQDR", 0),
    ]


@pytest.mark.parametrize(
    ("device", "port", "name"),
    [
        ("s", "Port 21", "s/21"),
        ("s", "21", "s/21"),
        ("s", "Port 1/21", "s/21"),
        ("s", "IB1/21", "s/21"),
        ("s", "Port 1/11/1", "s/21"),  # the first port of cage 11 of a switch with two ports in a cage
        ("s", "Port 1/11/2", "s/22"),
        ("dgx1", "mlx5_3", "dgx1/1"),
        ("dgx1", "dgx1 mlx5_3/2", "dgx1/2"),
        ("dgx1", "HCA-1/1", "dgx1/1"),
        ("dgx1", "ib0", "dgx1/1"),
        ("Server 1", "IB Port 3", "Server-1/1"),
        ("r-ufm64 mlx5_0", "Port 1", "r-ufm64/1"),
    ],
)
def test_ports_have_many_spellings(read, device, port, name):
    fabric = read(SHORT + f"{device},{port},other,Port 9,Data\nother,Port 8,third,Port 2,Data\nx,mlx5_0,third,3,\n")
    assert fabric["other/9"].peer.name == name


def test_without_adapters_a_single_cable_in_port_1_makes_a_host(read):
    fabric = read(SHORT + "h1,Port 1,leaf1,Port 1,Data\nh2,Port 1,leaf1,Port 2,Data\nleaf1,Port 3,spine1,Port 7,Data\n")
    assert [node.name for node in fabric.hcas] == ["h1", "h2"]
    fabric = read(SHORT + "h1,mlx5_0,leaf1,Port 1,Data\nleaf1,Port 3,spine1,Port 1,Data\n")
    assert [node.name for node in fabric.hcas] == ["h1"]


def test_a_cable_from_both_ends_and_an_empty_port(read):
    """UFM's plan creator writes them so, for merging subnets."""
    fabric = read(
        "StartDevice,StartPort,EndDevice,EndPort,State,Domain\n"
        "a,Port 2,b,Port 3,Active,In-Scope\nb,Port 3,a,Port 2,Active,In-Scope\na,Port 36,,,Disabled,Boundary\n"
    )
    assert len(fabric.links) == 1
    assert len(fabric["a"].ports) == 36


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("cyber sport > usual sport", 1, "a header with the columns"),
        ("#StartDevice,EndDevice,EndPort,LinkType\na,b,Port 1,Data", 1, "StartPort"),
        (SHORT + "a,abra,a,cadabra,Data", 2, "'abra' is not valid; expected a port"),
        (SHORT + "a,Port 1,b,Port 1/2/3/4,Data", 2, "'Port 1/2/3/4' is not valid; expected a port"),
        (SHORT + "a,Port 0,b,Port 1,Data", 2, "from 1 to 1024"),
        (SHORT + "a,Port 1,a,Port 1,Data", 2, "between two ports"),
        (SHORT + "a,Port 1,b,Port 1,Data\n\nc,Port 1,b,Port 1,Data", 4, "line 2 has a cable in it"),
        (SHORT + ",Port 1,b,Port 1,Data", 2, "the name of a device"),
        (SHORT, 1, "no cables"),
        ("", 1, "a header"),
        (LONG + ",,,a,Port 1,,b,Port 1,,,Data,123,,,,,,", 2, "200000 (HDR)"),
        (LONG + ",,,a,Port 1,,b,Port 1,,,Data,HDR,,long,,,,", 2, "in metres"),
        (SHORT + 'a,"Port 1\n', 2, "comma-separated values"),
    ],
)
def test_errors_name_the_line(read, text, line, message):
    with pytest.raises(FileError) as caught:
        read(text)
    assert caught.value.line == line
    assert message in str(caught.value)


def test_a_plan_is_written_as_ufm_reads_it():
    """UFM takes `Port N` for a switch and wants the host's name in its port."""
    assert ndt.to_text(load("star:hosts=2,switch=QM9700")) == (
        "#StartDevice,StartPort,EndDevice,EndPort,LinkType,Speed,,Cable Length\n"
        "h1,h1 mlx5_0,leaf1,Port 1,Data,400000,4xNDR cable,3\n"
        "h2,h2 mlx5_0,leaf1,Port 2,Data,400000,4xNDR cable,3\n"
    )


def test_line_cards_are_written_as_blades_without_inner_links():
    builder = FabricBuilder("director")
    card, leaf = builder.add_nodes(NodeKind.SWITCH, ["dir1-L16-U2", "leaf1"], n_ports=41)
    sharp = builder.add_nodes(NodeKind.AGGREGATION, ["leaf1/sharp"], n_ports=1)
    builder.add_links(leaf, [21, 41], [card, sharp[0]], [20, 1], "HDR")
    assert ndt.to_text(builder.build()).splitlines()[1:] == [
        "leaf1,Port 21,dir1,Blade 16_Port 2/20,Data,200000,4xHDR cable,"
    ]


@pytest.mark.parametrize("spec", ["star:4", "fat-tree:hosts=40,radix=8", "superpod:su=1", "dragonfly:p=2,a=4,h=2"])
def test_the_cables_of_a_topology_read_back(spec, read):
    fabric = load(spec)
    again = read(ndt.to_text(fabric))
    assert cables(again) == cables(fabric)
    assert {n.name for n in again.switches} == {n.name for n in fabric.switches}


@st.composite
def fabrics(draw) -> Fabric:
    """Draw switches, line cards of a director, and hosts with one or two adapters; every box has a cable."""
    builder = FabricBuilder("made up")
    hosts, boxes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    names = [f"leaf{i}" for i in range(boxes)] + ["dir-L1-U1", "dir-L1-U2"]
    switches = builder.add_nodes(NodeKind.SWITCH, names, n_ports=40)
    free = iter(draw(st.permutations([(int(s), p) for s in switches for p in range(1, 41)])))
    for i in range(hosts):
        devices = draw(st.sampled_from([["mlx5_0"], ["mlx5_0", "mlx5_1"]]))
        names = [f"h{i}"] if len(devices) == 1 else [f"h{i}/{device}" for device in devices]
        for name, device in zip(names, devices, strict=True):
            hca = builder.add_nodes(NodeKind.HCA, [name], descriptions=[f"h{i} {device}"], n_ports=2)
            builder.add_links(
                hca, draw(st.sampled_from([1, 2])), *next(free), "NDR", length_m=draw(st.sampled_from([0, 2.5]))
            )
    for _ in range(3):
        (a, a_port), (b, b_port) = next(free), next(free)
        builder.add_links(a, a_port, b, b_port, draw(st.sampled_from(["HDR", "2xNDR", "SDR", "400GbE"])))
    return builder.build()


RELAXED = settings(max_examples=80)


@RELAXED
@given(fabric=fabrics())
def test_the_cables_of_any_fabric_read_back(fabric, read):
    """All but directors of which only one card has cables: that one reads back as a plain switch."""
    again = read(ndt.to_text(fabric))
    cards = [n.name for n in again.switches if n.name.startswith("dir")]
    if len(cards) != 1:
        assert cables(again) == cables(fabric)


@RELAXED
@given(text=st.text() | st.text('abPort 123,/"#\n').map(SHORT.__add__) | st.binary().map(lambda b: b.decode("latin-1")))
def test_random_text_is_read_or_refused_with_a_reason(text, read):
    with contextlib.suppress(ConfigError):
        read(text)


@RELAXED
@given(data=st.data())
def test_a_mutated_plan_is_read_or_refused_with_a_reason(data, read):
    text = (
        LONG
        + ",,,h1,h1 mlx5_0,,leaf1,Port 1,,,Data,200000,200G HDR cable,40,,,,\n,,,leaf1,Port 2,,d,Blade 1_Port 1/1\n"
    )
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        text = text[:start] + data.draw(st.text(max_size=4)) + text[start + data.draw(st.integers(0, 6)) :]
    with contextlib.suppress(ConfigError):
        read(text)
