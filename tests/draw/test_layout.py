"""Layouts, whatever the renderer: nothing lost, nothing twice, nothing on top of another, and each in its place."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.draw import lay_out
from weft.draw.layout.painter import middle_of
from weft.draw.scene import Box, Canvas, Role, Scene, TextStyle, box_extent, rotate, text_width
from weft.draw.sheet import Legend
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric

SPECS = [
    "star:hosts=1",
    "star:hosts=16",
    "star:hosts=2,server=dgx-h100",
    "fat-tree:hosts=32,radix=16",
    "fat-tree:hosts=100,radix=8",
    "fat-tree:hosts=1024",
    "fat-tree:hosts=64,server=dgx-h100",
    "superpod:su=1",
    "superpod:su=4,server=dgx-h100",
    "superpod:su=9",
    "dragonfly:p=2,a=4,h=2",
    "dragonfly:p=1,a=1,h=1",
    "dragonfly+:p=4,leaves=4,spines=4,h=2",
    "torus:8",
    "torus:4x4",
    "torus:3x4x5,hosts=2",
    "torus:2x3x2x3",
    "mesh:7",
    "mesh:3x5",
    "hyperx:4x4,hosts=9",
    "hyperx:6",
]
SWITCHES = (Role.LEAF, Role.SPINE, Role.CORE)
HOSTS = (Role.HOST, Role.CELL, Role.BLOCK)


@cache
def drawn(spec: str) -> tuple[Fabric, Scene]:
    fabric = weft.load(spec)
    return fabric, lay_out(fabric)


def assert_all_is_there(fabric: Fabric, scene: Scene) -> None:
    """Check that every node is in exactly one box, every link in a line or a box."""
    nodes = Counter(node for box in scene.boxes for node in box.nodes)
    assert nodes == Counter(range(len(fabric.nodes)))
    links = {link for line in scene.lines for link in line.links} | {link for box in scene.boxes for link in box.links}
    assert links == set(range(len(fabric.links)))


def overlap(a: Box, b: Box) -> bool:
    left, top, right, bottom = box_extent(a)
    other_left, other_top, other_right, other_bottom = box_extent(b)
    return left < other_right and other_left < right and top < other_bottom and other_top < bottom


@pytest.mark.parametrize("spec", SPECS)
def test_every_node_has_one_box_and_every_link_a_line_or_a_box(spec: str) -> None:
    assert_all_is_there(*drawn(spec))


@pytest.mark.parametrize("spec", SPECS)
def test_boxes_of_switches_and_hosts_do_not_overlap(spec: str) -> None:
    _, scene = drawn(spec)
    if any(box.angle_deg % 90 for box in scene.boxes):
        pytest.skip("boxes are turned: their extents overlap where they do not")
    boxes = sorted((box for box in scene.boxes if box.nodes), key=lambda box: box_extent(box)[0])
    for i, box in enumerate(boxes):
        rest = itertools.takewhile(lambda other: box_extent(other)[0] < box_extent(box)[2], boxes[i + 1 :])  # noqa: B023
        assert not [other.title for other in rest if overlap(box, other)], box.title


@pytest.mark.parametrize("spec", SPECS)
def test_lines_end_at_boxes_and_all_is_on_the_sheet(spec: str) -> None:
    _, scene = drawn(spec)
    for line in scene.lines:
        if line.links:
            assert 0 <= line.a < len(scene.boxes)
            assert 0 <= line.b < len(scene.boxes)
    assert len({(text.x, text.y) for text in scene.texts}) == len(scene.texts)
    for box in scene.boxes:
        left, top, right, bottom = box_extent(box)
        assert left >= scene.left
        assert top >= scene.top
        assert right <= scene.left + scene.width
        assert bottom <= scene.top + scene.height


@pytest.mark.parametrize("spec", ["fat-tree:hosts=32,radix=16", "fat-tree:hosts=100,radix=8", "superpod:su=9"])
def test_cores_are_above_spines_above_leaves_above_hosts(spec: str) -> None:
    _, scene = drawn(spec)
    heights = [[box.y for box in scene.boxes if box.role is role and box.nodes] for role in reversed(SWITCHES)]
    heights.append([box.y for box in scene.boxes if box.role in HOSTS and (box.nodes or box.links)])
    rows = [row for row in heights if row]
    assert all(max(upper) < min(lower) for upper, lower in itertools.pairwise(rows))
    assert all(len(set(row)) == 1 for row in rows[:-1])


def test_hosts_with_an_adapter_alone_are_closed_and_many_are_cells_in_rows() -> None:
    for spec, role, rows in (("star:hosts=1", Role.HOST, 1), ("fat-tree:hosts=1024", Role.CELL, 8)):
        heights = [box.y for box in drawn(spec)[1].boxes if box.nodes and box.role not in SWITCHES]
        assert len(set(heights)) == rows
        assert {box.role for box in drawn(spec)[1].boxes if box.nodes} <= {role, *SWITCHES}


@pytest.mark.parametrize("spec", ["fat-tree:hosts=32,radix=16", "dragonfly:p=2,a=4,h=2"])
def test_lines_end_at_the_upper_or_lower_edge_of_switches(spec: str) -> None:
    _, scene = drawn(spec)
    for line in scene.lines:
        for end, point in ((line.a, line.points[0]), (line.b, line.points[-1])):
            box = scene.boxes[end]
            if end >= 0 and box.role in SWITCHES:
                _, height = rotate(point[0] - box.x, point[1] - box.y, -box.angle_deg)
                assert abs(height) == pytest.approx(box.height / 2)


def test_a_host_stands_within_the_width_of_its_leaf_s_rack() -> None:
    """leaf1 has h1 to h8, left of leaf2, which has h9 to h16."""
    fabric = weft.load("fat-tree:hosts=32,radix=16")
    scene = lay_out(fabric)
    place = {box.title.partition("\n")[0]: box for box in scene.boxes if box.nodes}
    racks = [box for box in scene.boxes if box.role is Role.FRAME]
    assert len(racks) == 4
    for rack, leaf in zip(racks, range(1, 5), strict=True):
        names = [f"leaf{leaf}", *(f"h{host}" for host in range(8 * leaf - 7, 8 * leaf + 1))]
        left, top, right, bottom = box_extent(rack)
        for box in (place[name] for name in names):
            inner = box_extent(box)
            assert left <= inner[0]
            assert top <= inner[1]
            assert inner[2] <= right
            assert inner[3] <= bottom


def test_a_scalable_unit_frames_its_servers_and_its_eight_leaves() -> None:
    fabric = weft.load("superpod:su=4")
    scene = lay_out(fabric)
    frames = [box for box in scene.boxes if box.role is Role.FRAME]
    assert [frame.title for frame in frames] == ["su1", "su2", "su3", "su4"]
    inside = [box for box in scene.boxes if box.nodes and overlap(box, frames[1])]
    kinds = Counter(fabric.node(box.nodes[0]).kind for box in inside)
    assert kinds == {NodeKind.SWITCH: 8, NodeKind.HCA: 32}
    assert {fabric.node(node).group for box in inside for node in box.nodes} == {"su2"}


def test_the_groups_of_a_dragonfly_stand_evenly_around_the_centre() -> None:
    scene = lay_out(weft.load("dragonfly:p=2,a=4,h=2"))
    frames = [box for box in scene.boxes if box.role is Role.FRAME]
    assert len(frames) == 9
    assert np.ptp([math.hypot(frame.x, frame.y) for frame in frames]) < 1e-6
    angles = np.array([math.degrees(math.atan2(frame.y, frame.x)) for frame in frames])
    assert np.allclose(np.diff(angles) % 360, 40)
    assert frames[0].title == "group1"
    assert frames[0].x == pytest.approx(0, abs=1e-6)
    assert frames[0].y < 0


def test_the_frames_of_a_ring_do_not_overlap() -> None:
    """A frame in its upright position leaves every corner of its neighbour outside."""
    scene = lay_out(weft.load("dragonfly:p=4,a=8,h=4"))
    frames = [box for box in scene.boxes if box.role is Role.FRAME]
    assert len(frames) == 33
    for a, b in itertools.pairwise([*frames, frames[0]]):
        turn = math.radians(a.angle_deg)
        for u, v in itertools.product((-b.width / 2, b.width / 2), (-b.height / 2, b.height / 2)):
            other = math.radians(b.angle_deg)
            x = b.x + u * math.cos(other) - v * math.sin(other) - a.x
            y = b.y + u * math.sin(other) + v * math.cos(other) - a.y
            along, out = x * math.cos(turn) + y * math.sin(turn), -x * math.sin(turn) + y * math.cos(turn)
            assert abs(along) > a.width / 2 or abs(out) > a.height / 2


def test_global_links_of_a_dragonfly_cross_the_inside_of_the_ring() -> None:
    fabric = weft.load("dragonfly:p=2,a=4,h=2")
    scene = lay_out(fabric)
    inner = min(math.hypot(box.x, box.y) for box in scene.boxes if box.role is Role.LEAF)
    group = fabric.nodes.group
    a, b = (group[end] for end in fabric.link_nodes)
    between = [line for line in scene.lines if line.links and a[line.links[0]] != b[line.links[0]]]
    assert len(between) == 36  # 9 groups, each two joined once
    assert all(math.hypot(*line.points[1]) < inner for line in between)


def test_links_inside_each_group_of_a_dragonfly_bow_outwards() -> None:
    fabric = weft.load("dragonfly:p=2,a=4,h=2")
    a, b = (fabric.nodes.group[end] for end in fabric.link_nodes)
    is_local = (a == b) & (fabric.nodes.kind[fabric.link_nodes[0]] == NodeKind.SWITCH)
    is_local &= fabric.nodes.kind[fabric.link_nodes[1]] == NodeKind.SWITCH
    local = [line for line in lay_out(fabric).lines if line.links and is_local[line.links[0]]]
    assert len(local) == 9 * 6  # all pairs of the 4 switches of a group
    for line in local:
        first, bend, last = (math.hypot(*point) for point in line.points)
        assert bend > max(first, last)


def test_a_mesh_is_a_grid_and_its_links_run_along_it() -> None:
    fabric = weft.load("mesh:3x5")
    scene = lay_out(fabric)
    place = {box.nodes[0]: (box.x, box.y) for box in scene.boxes if box.role is Role.LEAF}
    assert len({x for x, _ in place.values()}) == 5
    assert len({y for _, y in place.values()}) == 3
    is_switch = fabric.nodes.kind == NodeKind.SWITCH
    for line in scene.lines:
        if line.links and all(is_switch[end[line.links[0]]] for end in fabric.link_nodes):
            (x0, y0), (x1, y1) = line.points
            assert (x0 == x1) != (y0 == y1)


def test_the_rings_of_a_torus_close_in_arcs() -> None:
    """4 rows and 4 columns, each with 3 straight links and an arc."""
    fabric = weft.load("torus:4x4")
    switch_links = [line for line in lay_out(fabric).lines if line.links and not _has_host(fabric, line.links[0])]
    assert Counter(len(line.points) for line in switch_links) == {2: 24, 3: 8}


def test_the_arcs_of_a_torus_of_many_layers_stand_out_from_its_straight_lines() -> None:
    """The arc rises by more than the distance between layers: otherwise it would run along a straight line of another
    layer.
    """
    fabric = weft.load("torus:8x8x8")
    scene = lay_out(fabric)
    arcs = [np.array(line.points) for line in scene.lines if len(line.points) == 3]
    assert len(arcs) == 3 * 64
    place = {box.title.partition("\n")[0]: np.array((box.x, box.y)) for box in scene.boxes if box.role is Role.LEAF}
    layer = np.linalg.norm(place["sw65"] - place["sw1"])
    assert min(np.linalg.norm((2 * arc[1] - arc[0] - arc[2]) / 4) for arc in arcs) > layer


def test_layers_of_a_torus_are_shifted_copies_of_each_other() -> None:
    scene = lay_out(weft.load("torus:2x3x4"))
    place = {box.title.partition("\n")[0]: np.array((box.x, box.y)) for box in scene.boxes if box.role is Role.LEAF}
    shifts = {tuple(np.round(place[f"sw{i + 12}"] - place[f"sw{i}"], 6)) for i in range(1, 13)}
    assert len(shifts) == 1
    right, up = shifts.pop()
    assert right > 0
    assert up < 0


def test_a_torus_with_a_dead_switch_stays_a_grid() -> None:
    whole, broken = (lay_out(f) for f in (weft.load("torus:4x4"), faults.kill(weft.load("torus:4x4"), "sw6")))
    places = [{box.title.partition("\n")[0]: (box.x, box.y) for box in s.boxes if box.nodes} for s in (whole, broken)]
    assert {name: place for name, place in places[0].items() if name not in ("sw6", "h6")}.items() <= places[1].items()


def test_a_fabric_without_spec_or_groups_is_a_ring_if_no_switch_is_above_another() -> None:
    """A torus read from a file has no spec."""
    fabric = weft.load("torus:8")
    builder = FabricBuilder("from a file")
    switches = builder.add_nodes(NodeKind.SWITCH, [f"s{i}" for i in range(8)], n_ports=4)
    hosts = builder.add_nodes(NodeKind.HCA, [f"x{i}" for i in range(8)], n_ports=1)
    builder.add_links(hosts, 1, switches, 1, "HDR")
    builder.add_links(switches, 2, np.roll(switches, -1), 3, "HDR")
    for scene in (lay_out(fabric), lay_out(builder.build())):
        radii = [math.hypot(box.x, box.y) for box in scene.boxes if box.role is Role.LEAF]
        assert len(radii) == 8
        assert np.ptp(radii) < 1e-6
        assert {len(line.points) for line in scene.lines if line.a >= 0} == {2}  # straight, unlike those of groups


def test_nodes_without_a_path_to_a_host_are_shown_as_cut_off() -> None:
    for spec, port in (("fat-tree:hosts=8,radix=4", "h4/1"), ("torus:3x3", "h4/1"), ("dragonfly:p=2,a=2,h=1", "h4/1")):
        fabric = faults.remove_link(weft.load(spec), port)
        scene = lay_out(fabric)
        assert_all_is_there(fabric, scene)
        assert "cut off: 1" in [text.text for text in scene.texts]


def test_a_server_of_a_ring_with_a_cable_to_a_switch_that_leads_to_no_host_is_drawn_whole() -> None:
    """An odd one: a GPU of srv1 is cabled to a switch of its own, which makes that switch no leaf."""
    builder = FabricBuilder("odd")
    server = builder.add_servers(["srv1"])
    switches = builder.add_nodes(NodeKind.SWITCH, ["s1", "s2", "s3", "s4"], n_ports=4)
    gpu = builder.add_nodes(NodeKind.GPU, ["srv1/gpu0"], n_ports=1, server=server)
    hcas = builder.add_nodes(NodeKind.HCA, ["srv1/mlx5_0", "h2", "h3"], n_ports=1, server=[0, -1, -1])
    builder.add_links(gpu, 1, switches[3], 1, "EDR")
    builder.add_links(hcas, 1, switches[:3], 1, "EDR")
    builder.add_links(switches[:2], 2, switches[1:3], 3, "EDR")
    fabric = builder.build()
    assert_all_is_there(fabric, lay_out(fabric))


def test_a_huge_tree_is_drawn_with_trunks_and_counted_blocks() -> None:
    """27,648 hosts: a block for each of 864 leaves, a trunk for each of 27 pods inside and one to the cores."""
    fabric = weft.load("fat-tree:hosts=27648")
    scene = lay_out(fabric)
    assert_all_is_there(fabric, scene)
    assert len(scene.boxes) < 4000
    trunks = [line for line in scene.lines if len(line.links) == 1024]
    assert len(trunks) == 2 * 27
    assert "all 1,024 links between two rows" in {text.text for text in scene.texts}
    blocks = [box for box in scene.boxes if box.role is Role.BLOCK]
    assert {len(block.nodes) for block in blocks} == {32}


def test_up_to_eight_hosts_have_the_number_of_each_port_at_its_end_of_the_link() -> None:
    """h1, h2 and h3 each at port 1, close above the hosts; leaf1 at 1 to 3 from left to right, close below it."""
    _, scene = drawn("star:hosts=3")
    numbers = [text for text in scene.texts if text.style == "port"]
    middle = np.mean([text.y for text in numbers])
    numbers.sort(key=lambda text: (text.y > middle, text.x))
    assert [text.text for text in numbers] == ["1", "2", "3", "1", "1", "1"]
    assert not [text for text in lay_out(weft.load("star:hosts=9")).texts if text.style == "port"]


def test_selene_is_drawn_whole_with_its_dead_ends_apart(selene: Fabric) -> None:
    scene = lay_out(selene)
    assert_all_is_there(selene, scene)
    assert "lead to no host" in [text.text for text in scene.texts]
    frame = next(box for box in scene.boxes if box.title == "switches that lead to no host")
    inside = {box.title.partition("\n")[0] for box in scene.boxes if box.nodes and overlap(box, frame)}
    assert inside == {"MSPINE4-01", "MLG01-05"}


def test_chips_of_different_directors_have_different_labels() -> None:
    builder = FabricBuilder("directors")
    chips = [f"site1-0101-{rack}-01ib1-A-S{board:02d}-U1" for rack in ("0903", "0905") for board in range(1, 21)]
    cores = builder.add_nodes(NodeKind.SWITCH, chips, n_ports=40)
    leaves = builder.add_nodes(NodeKind.SWITCH, ["leaf1", "leaf2"], n_ports=80)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
    builder.add_links(hosts, 1, leaves, 80, "HDR")
    for port, leaf in enumerate(leaves.tolist(), 1):
        builder.add_links(leaf, np.arange(1, len(chips) + 1), cores, port, "HDR")
    labels = [text.text for text in lay_out(builder.build()).texts if text.angle_deg == -90 and "U1" in text.text]
    assert len(labels) == len(chips) == len(set(labels))
    assert {"0903-01ib1-A-S01-U1", "0905-01ib1-A-S20-U1"} <= set(labels)


def _has_host(fabric: Fabric, link: int) -> bool:
    return any(fabric.nodes.kind[end[link]] != NodeKind.SWITCH for end in fabric.link_nodes)


KINDS = st.sampled_from([NodeKind.SWITCH, NodeKind.SWITCH, NodeKind.HCA, *NodeKind])
NODES = st.lists(st.tuples(KINDS, st.sampled_from(["sw", "n"]), st.integers(-1, 2), st.integers(-1, 1)), max_size=25)
SPEEDS = st.sampled_from(["EDR", "EDR", "1xEDR", "NDR", "400GbE", "NVLink4"])
LINKS = st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24), SPEEDS, st.sampled_from([0, 0, 1e-9])), max_size=50)


@settings(max_examples=60)
@given(st.sampled_from(["random", "torus:2x2", "/some/file.txt"]), NODES, LINKS, st.booleans())
def test_any_fabric_is_drawn_whole(spec: str, nodes: list, links: list, by_metric: bool) -> None:
    """Several servers, groups, speeds, islands, parallel and bad cables, nodes of odd kinds."""
    builder = FabricBuilder(spec)
    builder.add_groups(["g1", "g2", "g3"])
    builder.add_servers(["srv1", "srv2"])
    for index, (kind, prefix, group, server) in enumerate(nodes):
        server = -1 if kind == NodeKind.SWITCH else server
        builder.add_nodes(kind, [f"{prefix}{index}"], n_ports=60, group=group, server=server)
    used = Counter[int]()
    for a, b, speed, error in links:
        if a != b and max(a, b) < len(nodes):
            used.update((a, b))
            builder.add_links(a, used[a], b, used[b], speed, bit_error_rate=error)
    fabric = builder.build()
    metric = np.linspace(0, 1, len(fabric.links)) if by_metric else None
    assert_all_is_there(fabric, lay_out(fabric, metric=metric))


def test_a_title_in_bold_letters_has_room_on_a_small_sheet() -> None:
    title = "superpod:su=1,leaves=1,switch=QM9700"
    scene = lay_out(weft.load("fat-tree:hosts=2,radix=4"), title=title)
    (text,) = [text for text in scene.texts if text.style is TextStyle.TITLE]
    assert text.text == title
    (contents,) = [text for text in scene.texts if text.text == "2 hosts, 1 switch, 2 links"]
    assert text.y + text.size < contents.y + contents.size < min(box_extent(box)[1] for box in scene.boxes)
    assert text.x + 0.69 * text.size * len(title) <= scene.left + scene.width  # DejaVu Sans Bold, on average


@pytest.mark.parametrize(
    ("turn_deg", "angle_deg", "upright_deg"),
    [(0, -90, -90), (30, 0, 30), (30, -90, -60), (90, 0, -90), (120, 0, -60), (120, -90, 30), (270, -90, 0)],
)
def test_texts_of_a_turned_part_are_turned_and_upright(turn_deg: float, angle_deg: float, upright_deg: float) -> None:
    canvas = Canvas()
    with canvas.turned(turn_deg):
        canvas.text(0, 0, "name", 10, angle_deg=angle_deg)
    assert canvas.texts[0].angle_deg == upright_deg


def test_the_middle_of_a_line_and_of_a_curve_is_on_it() -> None:
    assert middle_of(((0.0, 2.0), (4.0, 8.0))) == (2.0, 5.0)
    assert middle_of(((0.0, 2.0), (4.0, 6.0), (8.0, 2.0))) == (4.0, 4.0)


def test_east_asian_letters_are_wider_than_others() -> None:
    assert text_width("図図", 10) > text_width("éé", 10) == pytest.approx(text_width("ee", 10))


def test_entries_of_a_legend_stand_beside_each_other() -> None:
    canvas = SimpleNamespace(lines=[], text=lambda *_, **__: None)
    legend = Legend(canvas=canvas, left=0.0, right=1000.0, x=0.0, y=0.0)
    for text in ("leaf to spine", "host"):
        legend.entry(text, 0)
    first, second = (line.points[0][0] for line in canvas.lines)
    assert second >= first + 34 + text_width("leaf to spine", 10)
