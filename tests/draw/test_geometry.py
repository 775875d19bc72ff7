"""The geometry of finished files: everything on the paper, in front of its background, named by texts that fit."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import weft
from weft.draw import lay_out
from weft.draw.inks import BOX_STYLES, PAPER, TEXT_STYLES
from weft.draw.scene import BOLD, Box, Canvas, Line, Role, Scene, Text, TextStyle, rotate, text_extent, text_width
from weft.draw.sheet import add_title, cut
from weft.draw.svg import both_styles, to_svg
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric

SVG = "{http://www.w3.org/2000/svg}"
SPECS = [
    "star:hosts=1",
    "star:hosts=2,server=dgx-h100",
    "fat-tree:hosts=32,radix=16",
    "fat-tree:hosts=100,radix=8",
    "fat-tree:hosts=1024",
    "fat-tree:hosts=64,server=dgx-h100",
    "superpod:su=4,server=dgx-h100",
    "superpod:su=9",
    "dragonfly:p=2,a=4,h=2",
    "dragonfly+:p=4,leaves=4,spines=4,h=2",
    "torus:8",
    "torus:4x4",
    "torus:3x4x5,hosts=2",
    "mesh:3x5",
    "hyperx:4x4,hosts=9",
]
NAMED = (Role.LEAF, Role.SPINE, Role.CORE, Role.HOST, Role.HCA, Role.GPU, Role.NVSWITCH, Role.PCIE, Role.CPU)
BACKGROUND, MARKS = {Role.FRAME, Role.BLOCK}, {Role.MARK, Role.OUTLINE}


def with_dead_ends() -> Fabric:
    """Return four leaves under four spines, and switches beyond a spine that lead to no host, all with long names."""
    builder = FabricBuilder("dead ends")
    names = [f"leaf-of-the-{room}-room-in-the-north" for room in ("first", "second", "third", "fourth")]
    leaves = builder.add_nodes(NodeKind.SWITCH, names, n_ports=40)
    spines = builder.add_nodes(NodeKind.SWITCH, [f"spine{i}" for i in range(4)], n_ports=40)
    hosts = builder.add_nodes(NodeKind.HCA, [f"h{i}" for i in range(8)], n_ports=1)
    former = builder.add_nodes(
        NodeKind.SWITCH, [f"former-switch-{i}-of-the-network-in-the-south" for i in range(8)], n_ports=40
    )
    builder.add_links(hosts, 1, leaves[np.arange(8) // 2], 1 + np.arange(8) % 2, "NDR")
    builder.add_links(leaves[:, None], 10 + np.arange(4), spines, 1 + np.arange(4)[:, None], "NDR")
    builder.add_links(spines[0], 10, former[0], 1, "NDR")
    builder.add_links(np.full(7, former[0]), 2 + np.arange(7), former[1:], 1, "NDR")
    return builder.build()


def with_leaf_pairs() -> Fabric:
    """Return 132 hosts with a cable each, on four leaves of which each two are joined, under two spines."""
    builder = FabricBuilder("leaf pairs")
    leaves = builder.add_nodes(NodeKind.SWITCH, [f"leaf{i}" for i in range(4)], n_ports=40)
    spines = builder.add_nodes(NodeKind.SWITCH, ["spine1", "spine2"], n_ports=40)
    hosts = builder.add_nodes(NodeKind.HCA, [f"h{i}" for i in range(132)], n_ports=1)
    builder.add_links(hosts, 1, leaves[np.arange(132) // 33], 1 + np.arange(132) % 33, "NDR")
    builder.add_links(leaves[:, None], 34 + np.arange(2), spines, 1 + np.arange(4)[:, None], "NDR")
    builder.add_links(leaves[::2], 40, leaves[1::2], 40, "NDR")
    return builder.build()


BUILT = {"dead ends": with_dead_ends, "leaf pairs": with_leaf_pairs}


def fabric_of(spec: str) -> Fabric:
    name, fault, _ = spec.partition(" with a bad link")
    fabric = BUILT[name]() if name in BUILT else weft.load(name)
    return faults.degrade(fabric, "leaf2/12", 1e-9) if fault else fabric


@cache
def drawn(spec: str) -> Scene:
    return lay_out(fabric_of(spec))


@dataclass(frozen=True, slots=True)
class Shape:
    """A rectangle or a circle of a file."""

    x: float  # centre
    y: float
    width: float
    height: float
    angle_deg: float

    def distance(self, x: float, y: float) -> float:
        """Return how far outside a point is, at most 0 inside."""
        along, across = rotate(x - self.x, y - self.y, -self.angle_deg)
        return max(abs(along) - self.width / 2, abs(across) - self.height / 2)

    def corners(self) -> list[tuple[float, float]]:
        turned = [
            rotate(u * self.width / 2, v * self.height / 2, self.angle_deg)
            for u, v in itertools.product((-1, 1), (-1, 1))
        ]
        return [(self.x + u, self.y + v) for u, v in turned]


@cache
def read(spec: str) -> ET.Element:
    return ET.fromstring(to_svg(drawn(spec)))


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def shape_of(element: ET.Element) -> Shape:
    get = {key: float(value) for key, value in element.attrib.items() if key in ("x", "y", "cx", "cy", "r")}
    if "r" in get:
        return Shape(get["cx"], get["cy"], 2 * get["r"], 2 * get["r"], 0)
    width, height = float(element.attrib["width"]), float(element.attrib["height"])
    angle = numbers(element.get("transform", "0"))[0]
    return Shape(get["x"] + width / 2, get["y"] + height / 2, width, height, angle)


def shapes(root: ET.Element) -> dict[int, Shape]:
    """Return each box of a file by its number."""
    return {int(e.attrib["id"][1:]): shape_of(e) for e in root.iter() if e.get("id", "").startswith("b")}


def points_of(path: ET.Element) -> list[tuple[float, float]]:
    """Return points of a line: of a curve 9, otherwise its ends."""
    at = numbers(path.attrib["d"])
    points = list(zip(at[::2], at[1::2], strict=True))
    if len(points) == 2:
        return points
    (x0, y0), (x1, y1), (x2, y2) = points
    mixes = [((1 - t) ** 2, 2 * t * (1 - t), t * t) for t in np.linspace(0, 1, 9).tolist()]
    return [(a * x0 + b * x1 + c * x2, a * y0 + b * y1 + c * y2) for a, b, c in mixes]


def corners_of(text: Text) -> list[tuple[float, float]]:
    """Return the corners of a text; capital letters have 0.7 of its size."""
    left = {"start": 0.0, "middle": -0.5, "end": -1.0}[text.anchor] * text.width
    ends = itertools.product((left, left + text.width), (-0.35 * text.size, 0.35 * text.size))
    return [(text.x + u, text.y + v) for u, v in (rotate(*end, text.angle_deg) for end in ends)]


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*SPECS, *BUILT])
def test_boxes_lines_and_texts_lie_on_the_paper(spec: str) -> None:
    root = read(spec)
    left, top, width, height = numbers(root.attrib["viewBox"])
    points = [point for shape in shapes(root).values() for point in shape.corners()]
    points += [point for path in root.iter(f"{SVG}path") for point in points_of(path)]
    points += [point for text in drawn(spec).texts for point in corners_of(text)]
    assert all(left < x < left + width and top < y < top + height for x, y in points)


def test_the_paper_includes_lines_beyond_all_boxes() -> None:
    canvas = Canvas()
    canvas.box(Box(x=50, y=50, width=10, height=10, role=Role.LEAF))
    canvas.lines.append(Line(points=((-300, -20), (700, 90)), ink=0, width=1))
    scene = cut(canvas, "", ())
    assert scene.left < -300 < 700 < scene.left + scene.width
    assert scene.top < -20 < 90 < scene.top + scene.height < 200


@pytest.mark.parametrize("spec", [*SPECS, "fat-tree:hosts=32,radix=16 with a bad link"])
def test_frames_are_painted_first_then_lines_boxes_marks_and_texts(spec: str) -> None:
    order = [_layer(element) for element in read(spec) if element.tag != f"{SVG}style"]
    assert order == sorted(order)
    assert {0, 2, 5} <= set(order)
    assert ("bad" in spec) == (4 in order)


def _layer(element: ET.Element) -> int:
    if element.tag == f"{SVG}text":
        return 5
    if element.tag == f"{SVG}g":
        return 2
    role = element.attrib["class"].split()[0]
    return 0 if role == "paper" else 1 if role in BACKGROUND else 4 if role in MARKS else 3


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("spec", SPECS)
def test_every_colour_that_a_file_uses_is_defined_in_both_themes(spec: str, dark: bool) -> None:
    light_rules, _, dark_rules = both_styles(drawn(spec)).partition("@media")
    rules: dict[str, str] = {}
    for kind, rule in re.findall(r"\.(\w+)\{([^}]*)\}", dark_rules if dark else light_rules):
        rules[kind] = f"{rules.get(kind, '')};{rule}"
    for element in read(spec).iter():
        kinds = element.get("class", "").split()
        if element.tag == f"{SVG}g":
            assert "stroke:#" in rules[kinds[0]]
        elif kinds:
            assert "fill:" in rules[kinds[0]], kinds
            assert all("fill:#" in rules[kind] for kind in kinds[1:] if kind != "node")


# -- lines -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*SPECS, *BUILT])
def test_lines_end_at_the_boxes_that_they_join(spec: str) -> None:
    root, scene = read(spec), drawn(spec)
    boxes = shapes(root)
    joining = [path for path in root.iter(f"{SVG}path") if path.get("data-e")]
    assert len(joining) == sum(line.a >= 0 for line in scene.lines)
    for path in joining:
        ends, points = [boxes.get(int(end)) for end in path.attrib["data-e"].split()], points_of(path)
        orders = [(points[0], points[-1]), (points[-1], points[0])]
        assert (
            min(max(box.distance(*at) if box else 0 for box, at in zip(ends, order, strict=True)) for order in orders)
            < 3
        ), (path.attrib["d"], ends)


def test_tiers_of_a_wide_picture_are_further_apart() -> None:
    """Otherwise its lines would be nearly level."""
    gaps = {}
    for spec in ("star:hosts=16", "fat-tree:hosts=32,radix=16", "fat-tree:hosts=1024"):
        boxes = [box for box in drawn(spec).boxes if box.nodes]
        width = max(box.x for box in boxes) - min(box.x for box in boxes)
        spines = [box.y + box.height / 2 for box in boxes if box.role is Role.SPINE]
        if spines:
            leaves = [box.y - box.height / 2 for box in boxes if box.role is Role.LEAF]
            gaps[width] = min(leaves) - max(spines)
    narrow, wide = sorted(gaps)
    assert gaps[narrow] > 100
    assert gaps[wide] > 1.5 * gaps[narrow]


# -- frames and names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        "fat-tree:hosts=128,radix=8",
        "superpod:su=4,server=dgx-h100",
        "superpod:su=9",
        "dragonfly:p=2,a=4,h=2",
        "dragonfly+:p=4,leaves=4,spines=4,h=2",
    ],
)
def test_the_frame_of_a_group_encloses_its_switches_and_hosts(spec: str) -> None:
    fabric, scene = weft.load(spec), drawn(spec)
    frames = {box.title.partition("\n")[0]: shape for box, shape in _boxes(scene) if box.role is Role.FRAME}
    groups = {name: index for index, name in enumerate(fabric.groups)}
    for box, shape in _boxes(scene):
        names = {fabric.node(node).group for node in box.nodes} - {""}
        for name in names & groups.keys() & frames.keys():
            assert max(frames[name].distance(*corner) for corner in shape.corners()) <= 0, (name, box.title)
    assert set(fabric.groups) <= frames.keys()


def test_equal_racks_fill_the_width_of_their_pod() -> None:
    scene = drawn("fat-tree:hosts=128,radix=8")
    leaves = [box for box in scene.boxes if box.role is Role.LEAF]
    pods = [box for box in scene.boxes if box.role is Role.FRAME]
    assert len(pods) == 8
    for pod in pods:
        own = sorted(leaf.x for leaf in leaves if abs(leaf.x - pod.x) < pod.width / 2)
        assert len(own) == 4
        assert (own[0] + own[-1]) / 2 == pytest.approx(pod.x, abs=1)
        assert 4 * (own[1] - own[0]) == pytest.approx(pod.width, rel=0.1)


def test_switches_that_lead_to_no_host_lie_in_their_frame() -> None:
    scene = drawn("dead ends")
    (frame,) = [shape for box, shape in _boxes(scene) if box.title == "switches that lead to no host"]
    apart = [shape for box, shape in _boxes(scene) if box.title.startswith("former-switch")]
    assert len(apart) == 8
    assert max(frame.distance(*corner) for shape in apart for corner in shape.corners()) <= 0
    others = [shape for box, shape in _boxes(scene) if box.nodes and shape not in apart]
    assert all(frame.distance(shape.x, shape.y) > 0 for shape in others)


@pytest.mark.parametrize(
    "spec", ["star:hosts=2,server=dgx-h100", "star:hosts=1,server=dgx-a100", "star:hosts=2,server=hgx-a100-4"]
)
def test_an_open_server_encloses_its_devices_their_wires_and_its_name(spec: str) -> None:
    scene = drawn(spec)
    frames = [shape for box, shape in _boxes(scene) if box.role is Role.FRAME]
    devices = [shape for box, shape in _boxes(scene) if box.role in NAMED[4:]]
    assert frames
    for frame in frames:
        own = [shape for shape in devices if frame.distance(shape.x, shape.y) < 0]
        assert max(frame.distance(*corner) for shape in own for corner in shape.corners()) <= 0
        named = [text for text in scene.texts if frame.distance(text.x, text.y) < 0 and text.size == 12]
        assert len(named) == 1
        assert max(frame.distance(*corner) for corner in corners_of(named[0])) <= 0
    inner = [
        line
        for line in scene.lines
        if line.links and {scene.boxes[end].role for end in (line.a, line.b)} <= set(NAMED[4:])
    ]
    points = [point for line in inner for point in ((line.points[0]), line.points[-1])]
    assert all(min(frame.distance(*point) for frame in frames) <= 0 for point in points)


def _boxes(scene: Scene) -> list[tuple[Box, Shape]]:
    return [(box, Shape(box.x, box.y, box.width, box.height, box.angle_deg)) for box in scene.boxes]


@pytest.mark.parametrize("spec", [*SPECS, *BUILT])
def test_a_name_does_not_cross_the_border_of_its_box(spec: str) -> None:
    scene = drawn(spec)
    named = [shape for box, shape in _boxes(scene) if box.role in NAMED and box.nodes]
    for text in (text for text in scene.texts if text.style in (TextStyle.LABEL, TextStyle.INVERSE)):
        for shape in (shape for shape in named if shape.distance(text.x, text.y) < 0):
            assert max(shape.distance(*corner) for corner in corners_of(text)) <= 0, text.text


@pytest.mark.parametrize("spec", [*SPECS, *BUILT, "fat-tree:hosts=512,radix=16", "superpod:su=2"])
def test_no_text_covers_another(spec: str) -> None:
    texts = [text for text in drawn(spec).texts if text.text and text.style is not TextStyle.PORT]
    level = [text for text in texts if text.angle_deg % 90 == 0]
    for a, b in itertools.combinations(level, 2):
        (left, top, right, bottom), (x0, y0, x1, y1) = text_extent(a), text_extent(b)
        assert not (left < x1 and x0 < right and top + 2 < y1 and y0 + 2 < bottom), (a.text, b.text)


@pytest.mark.parametrize("spec", ["dragonfly:p=2,a=4,h=2", "torus:4x4", "hyperx:4x4,hosts=1", "star:hosts=1"])
def test_names_of_few_hosts_are_whole_and_level_in_their_box(spec: str) -> None:
    scene = drawn(spec)
    hosts = {box.title.partition("\n")[0]: box for box in scene.boxes if box.role is Role.HOST}
    texts = {text.text: text for text in scene.texts}
    assert hosts
    for name, box in hosts.items():
        turn = (texts[name].angle_deg - box.angle_deg) % 180
        assert min(turn, 180 - turn) == pytest.approx(0), name


def test_each_host_of_joined_leaves_is_a_cell_with_a_line_to_its_leaf() -> None:
    scene = drawn("leaf pairs")
    hosts = {index: box for index, box in enumerate(scene.boxes) if box.role is Role.CELL and box.nodes}
    assert len(hosts) == 132
    leaves = [
        scene.boxes[line.b if line.a in hosts else line.a] for line in scene.lines if {line.a, line.b} & set(hosts)
    ]
    assert [box.role for box in leaves] == [Role.LEAF] * 132


@pytest.mark.parametrize("alone", [2, 40, 300])
@pytest.mark.parametrize("kind", [NodeKind.HCA, NodeKind.SWITCH])
def test_nodes_without_a_cable_are_in_rows_below_the_picture_and_their_heading(alone: int, kind: NodeKind) -> None:
    builder = FabricBuilder("alone")
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf"], n_ports=4)
    builder.add_links(builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1), 1, leaf, 1 + np.arange(2), "NDR")
    apart = set(builder.add_nodes(kind, [f"x{i}" for i in range(alone)], n_ports=4).tolist())
    scene = lay_out(builder.build())
    (heading,) = [text for text in scene.texts if text.text == f"cut off: {alone}"]
    boxes = [shape for box, shape in _boxes(scene) if apart & set(box.nodes)]
    rest = [shape for box, shape in _boxes(scene) if box.nodes and not apart & set(box.nodes)]
    assert len(boxes) == alone
    assert min(shape.y - shape.height / 2 for shape in boxes) > heading.y
    assert heading.y > max(shape.y + shape.height / 2 for shape in rest)
    assert min(shape.x - shape.width / 2 for shape in boxes) >= heading.x
    for a, b in itertools.combinations(boxes, 2):
        assert abs(a.x - b.x) >= (a.width + b.width) / 2 - 0.01 or abs(a.y - b.y) >= (a.height + b.height) / 2 - 0.01


# -- legend and colours ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", ["fat-tree:hosts=32,radix=16", "fat-tree:hosts=100,radix=8", "star:hosts=2,server=dgx-h100", "torus:4x4"]
)
def test_each_speed_of_the_legend_has_the_colour_and_number_of_its_lines(spec: str) -> None:
    scene = drawn(spec)
    strokes = [line for line in scene.lines if not line.links]
    entries = [text for text in scene.texts if re.search(r"  [\d,]+ links?$", text.text)]
    assert entries
    for entry in entries:
        (stroke,) = [s for s in strokes if s.points[0][1] == entry.y and 0 < entry.x - s.points[1][0] < 20]
        shown = sum(len(line.links) for line in scene.lines if line.ink == stroke.ink)
        assert shown == int(re.findall(r"  ([\d,]+) ", entry.text)[0].replace(",", ""))


def test_the_cells_of_a_colour_bar_touch_each_other_between_its_two_numbers() -> None:
    fabric = weft.load("fat-tree:hosts=32,radix=16")
    scene = lay_out(fabric, metric=np.linspace(0, 7000, len(fabric.links)), metric_label="Gbit/s")
    y = next(text.y for text in scene.texts if text.text == "7,000")
    cells = [shape for box, shape in _boxes(scene) if box.role is Role.CELL and box.y == y]
    edges = [(shape.x - shape.width / 2, shape.x + shape.width / 2) for shape in cells]
    assert all(right >= left for (_, right), (left, _) in itertools.pairwise(edges))
    assert [shape.height for shape in cells] == sorted(shape.height for shape in cells)
    at = {text.text: text for text in scene.texts if text.y == y}
    assert at["Gbit/s"].x + at["Gbit/s"].width < at["0"].x
    assert at["0"].x + at["0"].width < edges[0][0]
    assert edges[-1][1] < at["7,000"].x


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_are_legible_on_paper_and_on_boxes_in_both_themes(theme: str) -> None:
    """WCAG 2 asks for a contrast of 4.5 for texts, 3 for large ones."""
    colour = {style: getattr(ink, theme) for style, ink in TEXT_STYLES.items()}
    fill = {role: getattr(look.fill, theme) for role, look in BOX_STYLES.items()}
    paper = getattr(PAPER, theme)
    on_paper = set(TextStyle) - {TextStyle.INVERSE}
    assert {style: contrast(colour[style], paper) for style in on_paper if contrast(colour[style], paper) < 4} == {}
    for role in NAMED:
        style = TextStyle.INVERSE if role in (Role.LEAF, Role.SPINE, Role.CORE) else TextStyle.LABEL
        assert contrast(colour[style], fill[role]) >= 4.5, role


@pytest.mark.parametrize(
    ("bold", "text"), list(itertools.product([False, True], ["fat-tree:hosts=1024,radix=64", "Aggregate bandwidth"]))
)
def test_the_width_of_a_text_is_estimated_to_a_fifth(bold: bool, text: str) -> None:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    real = TextPath((0, 0), text, size=100, prop=font).get_extents().width
    estimated = text_width(text, 100 * (BOLD if bold else 1))
    assert 0.95 * real <= estimated <= 1.2 * real


def test_a_title_is_cut_to_the_width_of_the_picture_only_if_it_is_longer() -> None:
    canvas = Canvas()
    canvas.box(Box(x=0, y=0, width=1000, height=10, role=Role.LEAF))
    long, short = "a-title-of-many-words" * 10, "a title of five words"
    add_title(canvas, short, "")
    add_title(canvas, long, "")
    shown = [text for text in canvas.texts if text.style is TextStyle.TITLE]
    assert shown[0].text == short
    assert 800 < shown[1].width <= 1000
    assert "…" in shown[1].text


def test_corners_of_a_turned_frame_are_those_of_a_rectangle() -> None:
    shape = Shape(10, 0, 4, 2, 90)
    assert sorted((round(x), round(y)) for x, y in shape.corners()) == [(9, -2), (9, 2), (11, -2), (11, 2)]
    assert shape.distance(10, 2) == pytest.approx(0, abs=1e-9)
    assert math.isclose(shape.distance(12, 0), 1)
