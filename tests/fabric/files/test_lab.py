"""Lab files: they build the described fabric, errors have their line, and a written fabric reads back unchanged."""

from __future__ import annotations

import contextlib
import textwrap
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import ConfigError, FileError
from weft.fabric import catalog, faults
from weft.fabric.build import FabricBuilder
from weft.fabric.files import lab
from weft.fabric.files.lab.ranges import _step, _steps, compress, expand, runs
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.levels import islands
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds
from weft.fabric.servers import add_servers
from weft.fabric.spec import load

assert lab.__doc__ is not None
EXAMPLE = textwrap.dedent(
    "    name: two-racks" + lab.__doc__.partition("name: two-racks")[2].partition("`topology:")[0]
)


@pytest.fixture
def read(tmp_path):
    def read(text: str, name: str = "lab.yaml") -> Fabric:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return lab.read(path)

    return read


def again(fabric: Fabric, folder: Path) -> Fabric:
    path = folder / "again.yaml"
    path.write_text(lab.to_text(fabric), encoding="utf-8")
    return lab.read(path)


def facts(fabric: Fabric) -> tuple[object, ...]:
    """Return all values of a fabric, independent of the order of its nodes and links."""
    nodes = {}
    columns = (fabric.ports.guid, fabric.tables.lid, fabric.tables.lmc)
    for node in map(fabric.node, range(len(fabric.nodes))):
        i, slots = node.index, [int(fabric.first_port[node.index]) + n for n in range(len(node.ports) + 1)]
        nodes[node.name] = (
            *(node.kind, node.description, node.guid, node.model, node.group, len(node.ports)),
            node.server.name if node.server else "",
            *(int(getattr(fabric.nodes, key)[i]) for key in ("system_guid", "vendor_id", "device_id")),
            *(tuple(int(v) for v in column[slots]) for column in columns),
        )
    links = sorted(
        (*sorted((link.a.name, link.b.name)), link.label, link.medium, link.length_m, link.bit_error_rate)
        for link in fabric.all_links()
    )
    hurt = {fabric.port(slot).name for slot in fabric.receive_error_rate.nonzero()[0].tolist()}
    return nodes, links, hurt


# -- reading -------------------------------------------------------------------------------------------------------


def test_the_example_of_the_documentation_is_built_as_it_says(read):
    fabric = read(EXAMPLE)
    assert str(fabric["h1/1"].peer) == "leaf1/1"
    assert fabric["leaf1/1"].link.label == "4xNDR"  # both ends are
    assert fabric["leaf1/9"].link.label == "4xHDR"
    assert (fabric["leaf1/9"].link.length_m, fabric["leaf1/9"].link.medium) == (3, Medium.DAC)
    assert (fabric["dgx1/mlx5_0"].guid, fabric["dgx1/mlx5_0"].lid) == (0x0002C90300001230, 7)
    assert fabric["dgx1/mlx5_0/1"].guid == 0x0002C90300001231
    assert fabric["leaf1/33"].link.label == "4xNDR"  # a bare switch has no speed
    assert fabric["leaf1/2"].link.label == "1xSDR"
    assert fabric["leaf1/3"].link.bit_error_rate == 1e-9
    assert fabric["leaf1/4"].peer is None
    assert "h5" not in fabric
    assert len(fabric["dgx1"].gpus) == 8


def test_toml_says_the_same_as_yaml(read):
    toml = """
        [nodes]
        leaf1 = {model = "QM9700"}
        sw9 = {kind = "switch", ports = 36}
        "h1..8" = {server = "host"}
        dgx1 = {server = "dgx-h100"}
        "dgx1/mlx5_0" = {guid = 0x0002c90300001230, lid = 7}
        [[links]]
        ends = ["h1..8", "leaf1/1..8"]
        [[links]]
        ends = ["dgx1/mlx5_0", "leaf1/9"]
        speed = "HDR"
        length_m = 3
        medium = "dac"
        [[links]]
        ends = ["leaf1/33", "sw9/1"]
    """
    assert facts(read(toml, "lab.toml")) == facts(read(EXAMPLE.partition("faults:")[0]))


def test_a_device_without_a_port_takes_its_first_free_network_port(read):
    fabric = read("""
        nodes:
          s: {kind: switch, ports: 5}
          h1..3: {server: host}
          dgx1: {server: dgx-h100}
        links:
          - {ends: [h1..3, s], speed: EDR}
          - {ends: [dgx1, s], speed: EDR}
          - {ends: [dgx1/mlx5_0, s/2], speed: EDR}
    """)
    assert [str(port.peer) for port in fabric["s"].ports] == ["h1/1", "dgx1/mlx5_0/1", "h2/1", "h3/1", "dgx1/mlx5_3/1"]


def test_a_lab_starts_from_a_topology_and_adds_to_it(read):
    fabric = read("""
        topology: star:hosts=4,radix=8
        format: 1
        nodes:
          monitor: {server: host}
          leaf1: {description: "the old one", lid: 3}
        links: [[monitor, leaf1]]
    """)
    assert fabric["monitor/1"].peer.name == "leaf1/5"
    assert (fabric["leaf1"].description, fabric["leaf1"].lid) == ("the old one", 3)
    star = load("star:hosts=4,radix=8")
    assert [fabric[name].guid for name in star.nodes.name] == star.nodes.guid.tolist()


def test_a_lab_starts_from_a_dump_beside_it(read, tmp_path):
    from weft.fabric import files

    builder = FabricBuilder("two hosts")
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    builder.add_links(hosts[0], 1, hosts[1], 1, "HDR")
    builder.set_port_guid(int(hosts[0]), 1, 0x77)
    fabric = builder.build()
    fabric.tables.lid[fabric.find_port("h1/1").slot] = 9
    files.write(fabric, tmp_path / "dump.net")
    port = read("topology: dump.net\nnodes: {h3: {server: host}}")["h1/1"]
    assert (port.lid, port.guid, port.link.label) == (9, 0x77, "4xHDR")


def test_made_up_guids_give_way_to_those_that_are_there(read, tmp_path):
    """The third host of three has the GUID that a third node would get, and a told GUID is that of the fourth."""
    from weft.fabric import files

    fabric = faults.kill(load("star:hosts=3,radix=8"), "h1")
    files.write(fabric, tmp_path / "dump.net")
    made_up = int(fabric["leaf1"].guid) + 0x100
    fabric = read(f"topology: dump.net\nnodes:\n  a1..2: {{server: host}}\n  leaf1: {{guid: {made_up:#x}}}")
    assert fabric["leaf1"].guid == made_up
    assert len(set(fabric.nodes.guid.tolist())) == len(fabric.nodes)
    assert fabric["a1/1"].guid == fabric["a1"].guid + 1


def test_nodes_may_swap_their_guids(read):
    star = load("star:2")
    messages = "".join(f"  {a}: {{guid: {star[b].guid}}}\n" for a, b in (("h1", "h2"), ("h2", "h1")))
    fabric = read(f"topology: star:2\nnodes:\n{messages}")
    assert (fabric["h1"].guid, fabric["h2/1"].guid) == (star["h2"].guid, star["h1/1"].guid)


def test_the_default_speed_is_that_of_the_slower_device(read):
    text = "nodes: {a: {model: QM9700}, b: {model: QM8700}, h1: {server: host}}\nlinks: [[a/1, b/1], [h1, b/2]]"
    fabric = read(text)
    assert [link.label for link in fabric.all_links()] == ["4xHDR", "4xHDR"]


def test_an_adapter_belongs_to_the_server_of_its_name_by_default(read):
    fabric = read("""
        nodes:
          a: {model: ConnectX-7}
          b/mlx5_0: {model: ConnectX-7}
          c: {kind: hca, ports: 2, box: b}
          d: {kind: hca, ports: 1, box: ""}
          b/gpu0: {kind: gpu, ports: 1}
          gpu: {kind: gpu, ports: 1}
          leaf1/sharp: {kind: aggregation, ports: 1}
    """)
    servers = {name: str(fabric.find_node(name).server or "none") for name in fabric.nodes.name}
    recorded = {"a": "a", "b/mlx5_0": "b", "c": "b", "b/gpu0": "b"}
    assert servers == {**dict.fromkeys(fabric.nodes.name, "none"), **recorded}


def test_words_that_yaml_makes_booleans_and_numbers_of_stay_names(read):
    fabric = read("nodes: {no: {server: host}, 1e3: {server: host}, 12:30: {server: host}}\nlinks: [[no, 1e3]]")
    assert fabric.nodes.name == ("no", "1e3", "12:30")


def test_a_lid_may_be_given_for_each_port(read):
    fabric = read("nodes: {a: {kind: hca, ports: 2, lid: {1: 5, 2: 6}, lmc: {2: 1}, port_guid: {2: 0x77}}}")
    assert [(port.lid, port.lmc) for port in fabric["a"].ports] == [(5, 0), (6, 1)]
    assert fabric["a/2"].guid == 0x77


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("nodes:\n  a: {modle: QM9700}", 2, "'modle' is not valid; expected model, or another of the keys kind, model"),
        ("nodes:\n  a: {model: QM970}", 2, "did you mean QM9700"),
        ("nodes:\n  a: {server: dgx-h10}", 2, "did you mean dgx-h100"),
        ("nodes:\n  a: {kind: swich, ports: 3}", 2, "did you mean switch"),
        ("nodes:\n  a: {kind: switch}", 2, "the number of ports"),
        ("nodes:\n  a: {kind: switch, ports: many}", 2, "'many' is not valid; expected a whole number"),
        ("nodes:\n  a: {kind: switch, ports: 2000}", 2, "expected a whole number <= 1024"),
        ("nodes:\n  a: {model: H100}", 2, "this is a gpu"),
        ("nodes:\n  a: {server: host}\n  a: {server: host}", 3, "line 2 has this one"),
        ("nodes:\n  a1..3: {server: host}\n  a2: {server: host}", 3, "a2 is in line 2"),
        ("nodes:\n  a b: {server: host}", 2, "no blanks"),
        ("nodes:\n  a3..1: {server: host}", 2, "it must increase"),
        ("nodes:\n  a1..2: {server: host, guid: 0x5}", 2, "no guid for a range"),
        ("nodes:\n  a: {server: host, ports: 3}", 2, "the template defines it"),
        ("nodes:\n  a: {server: host}\n  b: {lid: 3}", 3, "A new one needs kind, model or server"),
        ("nodes:\n  a: {server: host, guid: 0x5}\n  b: {server: host, guid: 0x5}", 3, "another GUID: a has this one"),
        ("nodes:\n  a: {server: host, guid: xyz}", 2, "not a hexadecimal number"),
        ("nodes:\n  a: {server: host, lid: 50000}", 2, "expected a whole number <"),
        ("nodes:\n  a: {server: dgx-h100, lid: 5}", 2, "use a key a/mlx5_0"),
        ("nodes:\n  a: {server: host, lid: {3: 5}}", 2, "ports from 0 to 1"),
        ("nodes:\n  a: host", 2, "'host' is not valid; expected a mapping"),
        ("nodes: [a]", 1, "expected a mapping"),
        ("topology: fat-tre:16", 1, "did you mean fat-tree"),
        ("topology: other.yaml", 1, "not another lab file"),
        ("nodes:\n  a: {server: host}\nlinks:\n  - [a, b]", 4, "there is no node, port or server 'b'"),
        ("nodes:\n  leaf1: {model: QM9700}\nlinks:\n  - [leaf1/1, leaf1/65]", 4, "did you mean"),
        ("nodes:\n  leaf1: {model: QM9700}\nlinks:\n  - [leaf1/1, leaf1/0]", 4, "management port"),
        (
            "nodes:\n  leaf1: {model: QM9700}\nlinks:\n  - [leaf1/1]",
            4,
            "'[leaf1/1]' is not valid; expected a list of length 2",
        ),
        ("nodes:\n  s: {model: QM9700}\nlinks:\n  - [s/1, s/2]\n  - [s/3, s/2]", 5, "s/2 is cabled on line 4"),
        ("nodes:\n  s: {model: QM9700}\nlinks:\n  - [s/1, s/1]", 4, "s/1 is cabled on line 4"),
        ("nodes:\n  a1..2: {server: host}\nlinks:\n  - [a1, a2]\n  - [a1, a2]", 5, "a free network port"),
        ("nodes:\n  s: {model: QM9700}\nlinks:\n  - [s/1..4, s/5..7]", 4, "not 4 and 3"),
        ("nodes:\n  s1..2: {kind: switch, ports: 3}\nlinks:\n  - [s1/1, s2/1]", 4, "expected a speed"),
        ("nodes:\n  s1..2: {model: QM9700}\nlinks:\n  - {ends: [s1, s2], speed: NRD}", 4, "did you mean NDR"),
        ("nodes:\n  s1..2: {model: QM9700}\nlinks:\n  - {ends: [s1, s2], speed: 3xNDR}", 4, "no width 3x"),
        ("nodes:\n  s1..2: {model: QM9700}\nlinks:\n  - {ends: [s1, s2], medium: wet}", 4, "there is no medium"),
        ("nodes:\n  s1..2: {model: QM9700}\nlinks:\n  - {ends: [s1, s2], length_m: -1}", 4, "expected a number >= 0"),
        ("topology: star:4\nfaults:\n  - {slow: leaf9/1, to: SDR}", 3, "there is no port 'leaf9/1'"),
        ("topology: star:4\nfaults:\n  - {slow: leaf1/1, to: XDR}", 3, "give a slower speed"),
        ("topology: star:4\nfaults:\n  - {slow: leaf1/1}", 3, "a mapping with to"),
        ("topology: star:4\nfaults:\n  - {burn: leaf1/1}", 3, "slow, degrade, remove_link, kill"),
        ("topology: star:4\nfault: []", 2, "expected faults"),
        ("nodes:\n  a: {server: host\n", 3, "expected YAML"),
        ("a: &x 1\nb: *x", 2, "aliases are not supported"),
        ("a: !!python/none 1", 1, "tags are not supported"),
        ("a: 1\n---\nb: 1", 2, "one document"),
        ("[" * 5000, 1, "levels"),
    ],
)
def test_errors_name_the_line(read, text, line, message):
    with pytest.raises(FileError) as caught:
        read(text)
    assert caught.value.line == line
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[nodes]\nleaf1 = {model = "QM9700"}\nleaf2 = {model = "QM970"}', 3),
        ('[nodes.leaf1]\nmodel = "QM9700"\n[nodes.leaf2]\nmodle = "QM9700"', 4),
        ('[nodes.s]\nmodel = "QM9700"\n[[links]]\nends = ["s/1", "s/2"]\n[[links]]\nends = ["s/1", "s/3"]', 5),
        ('[nodes.s]\nmodel = "QM9700"\n[[links]]\nends = ["s/1", "s/2"]\n[[links]]\nends = ["s/9", "x/3"]', 6),
        ('links = [\n  ["a", "b"],\n  {ends = ["a"]},\n]', 2),
        ("[nodes]\na = ]", 2),
        ("a = " + "1" * 5000, 1),
        ("a = " + "[" * 100_000, None),  # more than any library raises the limit of recursion to
    ],
)
def test_toml_has_lines_too(read, text, line):
    with pytest.raises(FileError) as caught:
        read(text, "lab.toml")
    assert caught.value.line == line


# -- writing -------------------------------------------------------------------------------------------------------


def test_a_small_tree_is_pleasant_to_read():
    expected = """\
        # A weft lab file, from fat-tree:hosts=12,switch=QM9700,radix=8
        format: 1
        nodes:
          h1..12: {server: host}
          leaf1..3: {model: QM9700, ports: 8}
          spine1..2: {model: QM9700, ports: 8}
        links:
          - {ends: [h1..4, leaf1/1..4], length_m: 3, medium: dac}
          - {ends: [h5..8, leaf2/1..4], length_m: 3, medium: dac}
          - {ends: [h9..12, leaf3/1..4], length_m: 3, medium: dac}
          - {ends: [leaf1/5..6, spine1/1..2], length_m: 10, medium: transceiver}
          - {ends: [leaf1/7..8, spine2/1..2], length_m: 10, medium: transceiver}
          - {ends: [leaf2/5..6, spine1/3..4], length_m: 10, medium: transceiver}
          - {ends: [leaf2/7..8, spine2/3..4], length_m: 10, medium: transceiver}
          - {ends: [leaf3/5..6, spine1/5..6], length_m: 10, medium: transceiver}
          - {ends: [leaf3/7..8, spine2/5..6], length_m: 10, medium: transceiver}
    """
    assert lab.to_text(load("fat-tree:hosts=12,switch=QM9700,radix=8")) == textwrap.dedent(expected)


@pytest.mark.parametrize(
    "spec",
    [
        "star:1",
        "fat-tree:hosts=40,radix=8",
        "fat-tree:hosts=6,server=dgx-h100",
        "superpod:su=1",
        "dragonfly:p=2,a=4,h=2",
        "dragonfly+:p=2,leaves=2,spines=2,h=2,g=3",
        "torus:3x3x2",
    ],
)
def test_every_topology_reads_back_as_it_was(spec, tmp_path):
    fabric = load(spec)
    assert facts(again(fabric, tmp_path)) == facts(fabric)


def test_a_real_fabric_reads_back_as_it_was(ndr_dump, tmp_path):
    fabric = load(str(ndr_dump))
    assert facts(again(fabric, tmp_path)) == facts(fabric)


@pytest.mark.slow
def test_selene_reads_back_as_it_was(selene_dump, tmp_path):
    fabric = load(str(selene_dump))
    assert facts(again(fabric, tmp_path)) == facts(fabric)


def test_a_fabric_with_faults_reads_back_unchanged(tmp_path):
    """Nodes after a dead one keep their GUIDs, so those must be in the file; a server that lost a GPU is not whole."""
    fabric = faults.kill(load("fat-tree:hosts=4,server=dgx-h100"), "dgx2/gpu3")
    fabric = faults.degrade(faults.slow(faults.kill(fabric, "dgx1"), "leaf1/9", "1xEDR"), "leaf1/10", 1.25e-9)
    fabric = faults.degrade(fabric, "leaf1/11", 1e-9, one_way=True)
    text = lab.to_text(fabric)
    assert "dgx2/gpu2: {kind: gpu" in text
    assert "dgx3..4: {server: dgx-h100}" in text
    assert facts(again(fabric, tmp_path)) == facts(fabric)


def test_port_guids_of_their_own_read_back(tmp_path):
    builder = FabricBuilder("x")
    switch, hca = (builder.add_nodes(kind, [name], n_ports=4) for kind, name in zip(NodeKind, "sh", strict=False))
    for number in range(5):
        builder.set_port_guid(int(switch[0]), number, 0x99)
    builder.set_port_guid(int(hca[0]), 3, 0x98)
    fabric = builder.build()
    assert "s: {kind: switch, ports: 4, port_guid: 0x0000000000000099}" in lab.to_text(fabric)
    assert 'h: {kind: hca, ports: 4, box: "", port_guid: {3: 0x0000000000000098}}' in lab.to_text(fabric)
    assert facts(again(fabric, tmp_path)) == facts(fabric)


def test_the_same_lid_on_two_islands_reads_back(tmp_path):
    fabric = load("star:2")
    fabric.tables.lid[[fabric.find_port("h1/1").slot, fabric.find_port("h2/1").slot]] = 5
    assert "h2: {server: host, lid: 5}" in lab.to_text(fabric)
    assert facts(again(fabric, tmp_path)) == facts(fabric)


def test_a_server_is_not_whole_if_its_nodes_are_in_two_groups(tmp_path):
    fabric = load("superpod:su=2")
    moved = fabric.nodes.group.copy()
    moved[fabric.find_node("dgx1/gpu0").index] = 1
    nodes = replace(fabric.nodes, group=moved)
    columns = (fabric.links, fabric.ports.guid, fabric.models, fabric.servers, fabric.groups)
    fabric = Fabric.assemble("moved", nodes, *columns)
    assert "dgx1/gpu0: {kind: gpu, model: H100, ports: 19, group: su2" in lab.to_text(fabric)
    assert facts(again(fabric, tmp_path)) == facts(fabric)


def test_a_server_is_not_whole_if_a_node_elsewhere_has_its_name(tmp_path):
    builder = FabricBuilder("x")
    add_servers(builder, "dgx-h100", ["a"])
    builder.add_nodes(NodeKind.SWITCH, ["a"], n_ports=2)
    fabric = builder.build()
    assert facts(again(fabric, tmp_path)) == facts(fabric)


def test_a_name_that_looks_like_a_range_is_refused():
    builder = FabricBuilder("x")
    builder.add_nodes(NodeKind.HCA, ["h1..2"], n_ports=1)
    with pytest.raises(ConfigError, match="are a range"):
        lab.to_text(builder.build())


# -- ranges --------------------------------------------------------------------------------------------------------


def test_ranges_count_over_nodes_or_ports_and_keep_zeros():
    assert expand("leaf1/9..11") == ["leaf1/9", "leaf1/10", "leaf1/11"]
    assert expand("n008..010/1") == ["n008/1", "n009/1", "n010/1"]
    assert expand("h1") == ["h1"]
    assert runs([["n008", "n009", "n010"]], [""] * 3) == [(0, 2)]
    assert runs([["n008", "n009", "n010"]], ["a", "a", "b"]) == [(0, 1), (2, 2)]
    for wrong in ("h1..2/1..2", "h1..2..3", "h1..99999999"):
        with pytest.raises(ConfigError):
            expand(wrong)


@given(st.lists(st.from_regex(r"[a-c]?(0?[0-9]{1,2}[/x]){0,2}[0-9]{1,2}", fullmatch=True), max_size=8))
def test_runs_can_be_written_as_ranges(names):
    counted = [f"{name}-{i}" for name in names for i in range(3)]
    for columns in ([counted], [counted, counted[::-1]]):
        cuts = runs(columns, [""] * len(counted))
        for column in columns:
            ranges = (compress(column[first], column[last]) for first, last in cuts)
            assert [name for text in ranges for name in expand(text)] == column


def test_a_range_is_cut_where_a_reader_refuses_it():
    assert runs([[f"h{i}" for i in range(70_000)]], [""] * 70_000) == [(0, 65_535), (65_536, 69_999)]


# -- anything ------------------------------------------------------------------------------------------------------

PIECES = ["", ": ", "{", "]", "..", "0", "-1", "/", "null", "- ", "\n", "leaf1", "h1..9", "1e400", "nan", "é", "\t"]
NAMES = st.text(st.characters(exclude_categories=("Cs", "Zs", "Zl", "Zp", "Cc")), min_size=1, max_size=6)


@st.composite
def fabrics(draw) -> Fabric:
    """Draw a small fabric with any content of a lab file."""
    builder = FabricBuilder("made up\n\x07: [")
    names = [
        name.replace("/", "").replace("..", "") or f"n{i}" for i, name in enumerate(draw(st.lists(NAMES, max_size=6)))
    ]
    names = list(dict.fromkeys(f"{name}{draw(st.sampled_from(['', '/x', '/gpu1']))}" for name in names))
    names = [name for name in names if not name.isspace() and len(name.split()) == 1]
    number = st.integers(1, (1 << 64) - 300)
    boxes = builder.add_servers(["box", "b1..x", *(name.partition("/")[0] for name in names)])
    groups = builder.add_groups(["su1", "no"])
    for name in names:
        builder.add_nodes(
            draw(st.sampled_from(NodeKind)),
            [name],
            n_ports=draw(st.integers(1, 5)),
            descriptions=[
                draw(st.sampled_from([name, f"{name} mlx5_0", 'say "hi": \\ # 1', "", "\x07\u2028~", "null"]))
            ],
            model=draw(st.sampled_from(["", "QM9700", "ConnectX-7", "home made", "H100"])),
            vendor_id=draw(st.sampled_from([0, 0x2C9])),
            device_id=draw(st.sampled_from([0, 4129])),
            server=draw(st.sampled_from([-1, *boxes.tolist()])),
            group=draw(st.sampled_from([-1, *groups.tolist()])),
            guid=np.uint64(draw(st.one_of(st.just(0), number))),
            system_guid=np.uint64(draw(st.one_of(st.just(0), number))),
        )
    try:
        bare = builder.build()
    except ConfigError:  # the same GUID twice
        return FabricBuilder("nothing").build()
    free = [(node, port) for node in range(len(names)) for port in range(1, int(bare.nodes.n_ports[node]) + 1)]
    order = draw(st.permutations(free))
    for (a, a_port), (b, b_port) in zip(order[::2], order[1::2], strict=False):
        line = draw(st.sampled_from(speeds()))
        builder.add_links(
            *(a, a_port, b, b_port, (line, draw(st.sampled_from(line.widths)))),
            medium=draw(st.sampled_from(Medium)),
            length_m=draw(st.floats(0, 1000, width=32)),
            bit_error_rate=draw(st.sampled_from([0.0, 1e-9, 0.123456789012345678])),
        )
        if draw(st.booleans()):
            builder.set_port_guid(a, a_port, draw(number))
    fabric = builder.build()
    for slot in range(len(fabric.ports)):
        fabric.tables.lid[slot] = draw(st.sampled_from([0, 0, 7, 0xBFFF]))
        fabric.tables.set_lmc(slot, draw(st.sampled_from([0, 0, 7])))
    return fabric


@settings(max_examples=60)
@given(fabric=fabrics())
def test_any_fabric_reads_back_as_it_was(fabric, tmp_path):
    assert facts(again(fabric, tmp_path)) == facts(fabric)


@settings(max_examples=200)
@given(text=st.text(), name=st.sampled_from(["fuzz.yaml", "fuzz.toml"]))
def test_random_text_is_read_or_refused_with_a_reason(text, name, read):
    refused_or_read(read, text, name)


@settings(max_examples=100)
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused_with_a_reason(data, read):
    text = EXAMPLE
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        pieces = [
            "",
            ": ",
            "{",
            "]",
            "..",
            "0",
            "-1",
            "/",
            "null",
            "- ",
            "\n",
            "leaf1",
            "h1..9",
            "1e400",
            "nan",
            "é",
            "\t",
        ]
        text = text[:start] + data.draw(st.one_of(st.sampled_from(pieces), st.text(max_size=4))) + text[end:]
    refused_or_read(read, text, "fuzz.yaml")


def refused_or_read(read, text: str, name: str) -> None:
    with contextlib.suppress(ConfigError):
        read(text, name)


# -- the examples --------------------------------------------------------------------------------------------------

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_two_racks_have_four_cables_from_each_leaf_to_each_spine():
    fabric = lab.read(EXAMPLES / "two-racks.yaml")
    assert fabric["spine1"].peers == 4 * [fabric["leaf1"]] + 4 * [fabric["leaf2"]]
    assert fabric["monitor/1"].peer.name == "leaf1/9"


def test_rails_keep_to_one_leaf_each_and_storage_runs_slower():
    fabric = lab.read(EXAMPLES / "rails.yaml")
    for rail, device in enumerate(catalog.server("dgx-h100").compute, 1):
        assert {fabric[f"dgx{i}/{device}/1"].peer.node.name for i in range(1, 5)} == {f"leaf{rail}"}
    assert fabric["storage1/1"].link.label == "4xHDR"
    assert [len(island) for island in islands(fabric)] == [32 + 8 + 2, 4 + 2 + 1]


def test_a_bad_day_has_four_faults():
    good, bad = load("fat-tree:hosts=64,radix=16,switch=QM9700"), lab.read(EXAMPLES / "bad-day.yaml")
    assert bad["leaf1/3"].link.label == "1xNDR"
    assert bad["leaf2/9"].link.bit_error_rate == 1e-9
    assert bad["leaf3/14"].peer is None
    assert "spine2" not in bad
    assert len(good.links) - len(bad.links) == len(good["spine2"].peers) + 1


def test_servers_with_other_cards_and_fewer_rails_are_whole_too(tmp_path):
    fabric = load("superpod:su=1,servers=3,server=dgx-h100+ConnectX-8+4rails,ufm=2,leaves=1")
    text = lab.to_text(fabric)
    assert "  dgx1..3: {server: dgx-h100+ConnectX-8+4rails, group: su1}\n" in text
    assert "  ufm1..2: {server: ufm+ConnectX-8, group: su1}\n" in text
    (tmp_path / "lab.yaml").write_text(text)
    assert set(map(str, lab.read(tmp_path / "lab.yaml").all_links())) == set(map(str, fabric.all_links()))


def test_a_base_port_0_is_written_and_read(read):
    fabric = read("nodes:\n  sw1: {kind: switch, ports: 4, base_port_0: true}\n  sw2: {kind: switch, ports: 4}\n")
    again = read(lab.to_text(fabric))
    for item in (fabric, again):
        assert item.nodes.enhanced_port_0.tolist() == [False, True]


@given(
    st.sampled_from(["h", "é", "", "n1x"]),
    st.sampled_from([0, 7, 98, 997, 10**16 - 3, 10**17 - 3, 10**18 - 3]),
    st.integers(1, 4),
    st.lists(st.integers(0, 4), min_size=2, max_size=8),
)
def test_names_compared_all_at_once_count_up_as_they_do_pair_by_pair(prefix, first, width, counts):
    """Numbers with carries and zeros in front, repeated ones, and some that are too long for a range."""
    names = [f"{prefix}{first + count:0{width}}/1" for count in counts]
    assert _steps(names, np.ones(len(names) - 1, bool)).tolist() == [_step(a, b) for a, b in pairwise(names)]
