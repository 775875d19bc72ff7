"""The four formats: well-formed, complete, escaped, offline, reproducible; and refusals."""

from __future__ import annotations

import itertools
import re
import struct
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.draw import draw, lay_out
from weft.draw.inks import ALWAYS, BAD, RAMP_STEPS, _mix
from weft.draw.scene import Box, Role, box_extent
from weft.draw.svg import to_svg
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric

SVG = "{http://www.w3.org/2000/svg}"
WEIRD = ["<leaf&1>", "h\"1'", "]]>", "$x_1$", "ü中\U0001f600", "a\x01b", "</script>", "{braces}", "\udc80"]


@pytest.fixture
def small() -> Fabric:
    return weft.load("fat-tree:hosts=32,radix=16")


@pytest.fixture
def weird() -> Fabric:
    """Return a fabric with names that need escapes, that a font lacks, and that XML cannot contain."""
    builder = FabricBuilder('a <spec> & a "title"')
    leaf = builder.add_nodes(NodeKind.SWITCH, WEIRD[:1], n_ports=20)
    hosts = builder.add_nodes(NodeKind.HCA, WEIRD[1:], n_ports=1)
    builder.add_links(hosts, 1, leaf, 1 + np.arange(len(hosts)), "EDR")
    return builder.build()


def texts(root: ET.Element) -> set[str]:
    return {element.text or "" for element in root.iter(f"{SVG}text")}


def test_svg_is_well_formed_and_has_every_name_at_32_hosts(small: Fabric, tmp_path: Path) -> None:
    draw(small, tmp_path / "fabric.svg")
    root = ET.parse(tmp_path / "fabric.svg").getroot()
    assert root.tag == f"{SVG}svg"
    assert set(small.nodes.name) <= texts(root)
    sizes = Counter((float(box.get("width", 0)), float(box.get("height", 0))) for box in root.iter(f"{SVG}rect"))
    drawn = Counter((round(box.width, 1), round(box.height, 1)) for box in lay_out(small).boxes)
    assert drawn <= sizes
    assert {"4xNDR  64 links", "fat-tree:hosts=32,radix=16", "32 hosts, 6 switches, 64 links"} <= texts(root)
    tips = {element.text for element in root.iter(f"{SVG}title")}
    assert "leaf1/9 - spine1/1\n4xNDR, 400 Gbit/s, transceivers 10 m" in tips


def test_names_are_escaped_and_characters_invalid_in_xml_replaced(weird: Fabric, tmp_path: Path) -> None:
    draw(weird, tmp_path / "fabric.svg")
    output = texts(ET.parse(tmp_path / "fabric.svg").getroot())
    assert {name for name in WEIRD if "\x01" not in name and "\udc80" not in name} <= output
    assert {"a\ufffdb", "\ufffd", 'a <spec> & a "title"'} <= output


def test_png_of_any_name_is_written(weird: Fabric, tmp_path: Path) -> None:
    draw(weird, tmp_path / "fabric.png")
    assert (tmp_path / "fabric.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_pdf_is_one_page_of_the_size_of_the_scene(small: Fabric, tmp_path: Path) -> None:
    draw(small, tmp_path / "fabric.pdf")
    data = (tmp_path / "fabric.pdf").read_bytes()
    scene = lay_out(small)
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", data)
    assert data.startswith(b"%PDF-")
    assert data.rstrip().endswith(b"%%EOF")
    assert data.count(b"/Type /Page ") == 1
    assert box
    assert [float(side) for side in box.groups()] == pytest.approx([0.72 * scene.width, 0.72 * scene.height], abs=1)


@pytest.fixture
def han(tmp_path: Path) -> Path:
    """A font with one letter, the 中 of `weird`."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.ttLib.tables._g_l_y_f import Glyph

    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "middle"])
    builder.setupCharacterMap({ord("中"): "middle"})
    builder.setupGlyf({".notdef": Glyph(), "middle": Glyph()})
    builder.setupHorizontalMetrics({".notdef": (1000, 0), "middle": (1000, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "House Han", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "han.ttf")
    return tmp_path / "han.ttf"


def test_missing_letters_come_from_other_fonts_or_are_reported(
    weird: Fabric, han: Path, tmp_path: Path, capsys, caplog, monkeypatch
) -> None:
    from matplotlib import font_manager

    ours = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", ours)
    draw(weird, tmp_path / "without.png")
    messages = capsys.readouterr().err
    assert messages.startswith("weft: no installed font has 中: boxes are shown instead; install a font")
    assert messages.count("\n") == 1
    font_manager.fontManager.addfont(han)
    draw(weird, tmp_path / "with.png")
    assert capsys.readouterr().err == ""
    assert caplog.text == ""  # matplotlib would warn that this font has no bold face
    assert (tmp_path / "with.png").read_bytes() != (tmp_path / "without.png").read_bytes()


def test_png_has_the_signature_a_sensible_size_and_a_picture_in_it(small: Fabric, tmp_path: Path) -> None:
    from matplotlib.image import imread

    draw(small, tmp_path / "fabric.png")
    data = (tmp_path / "fabric.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    assert 1000 < width < 4000
    assert 400 < height < width
    pixels = (imread(tmp_path / "fabric.png")[:, :, :3] * 255).astype(int)
    assert 0.5 < (pixels == 255).all(axis=2).mean() < 0.95
    ndr = np.abs(pixels - np.array([0x0B, 0x6F, 0xB8])).max(axis=2) < 40
    assert ndr.sum() > 1000


@pytest.mark.parametrize("suffix", [".svg", ".html", ".png", ".pdf"])
def test_the_same_fabric_gives_the_same_bytes(suffix: str, small: Fabric, tmp_path: Path) -> None:
    draw(small, tmp_path / f"one{suffix}")
    draw(weft.load(small.spec), tmp_path / f"two{suffix}")
    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


class _Outline(HTMLParser):
    """A parser that collects tags and the attributes that could load a resource."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        self.ids |= {value or "" for name, value in attrs if name == "id"}


def test_html_stands_alone(weird: Fabric, tmp_path: Path) -> None:
    """No address, nothing loaded, one script that no name can end early."""
    draw(weird, tmp_path / "fabric.html")
    page = (tmp_path / "fabric.html").read_text(encoding="utf-8")
    outline = _Outline()
    outline.feed(page)
    assert not re.search(r"https?://|//[a-z]|@import|url\(", page.replace("// ", ""))
    assert outline.loads == []
    assert outline.tags.count("script") == 1
    assert page.count("</script>") == 1
    assert "link" not in outline.tags
    assert {"search", "tip", "fit"} <= outline.ids
    assert "prefers-color-scheme: dark" in page


def test_every_id_that_the_page_s_script_asks_for_is_there(small: Fabric, tmp_path: Path) -> None:
    draw(small, tmp_path / "fabric.html")
    page = (tmp_path / "fabric.html").read_text(encoding="utf-8")
    outline = _Outline()
    outline.feed(page)
    assert set(re.findall(r'getElementById\("(\w+)"\)', page)) <= outline.ids
    joined = {f"b{end}" for pair in re.findall(r'data-e="(\d+ \d+)"', page) for end in pair.split()}
    hung = {f"b{box}" for box in re.findall(r'data-on="(\d+)"', page)}
    assert joined
    assert hung
    assert joined | hung <= outline.ids


def test_a_search_of_the_page_finds_the_hosts_that_a_block_stands_for(small: Fabric) -> None:
    """The script searches `data-names`, and finds the switch of a cell by `data-on`; box 0 can be one."""
    leaf = Box(x=0, y=0, width=20, height=10, role=Role.LEAF, title="leaf1", nodes=(0,))
    block = Box(x=0, y=20, width=20, height=10, role=Role.BLOCK, names=("h1", "h&2"), nodes=(1, 2))
    cell = Box(x=0, y=40, width=20, height=10, role=Role.CELL, nodes=(3,), hangs_on=0)
    root = ET.fromstring(to_svg(replace(lay_out(small), boxes=(leaf, block, cell), lines=(), texts=())))
    boxes = {box.get("id"): box for box in root.iter() if box.get("id")}
    assert [boxes[name].get("data-names") for name in ("b0", "b1", "b2")] == [None, "h1 h&2", None]
    assert [boxes[name].get("data-on") for name in ("b0", "b1", "b2")] == [None, None, "0"]


def test_a_bad_link_is_red_dashed_ringed_and_named(small: Fabric) -> None:
    fabric = faults.degrade(small, "leaf2/12", 1e-9)
    scene = lay_out(fabric)
    bad = [line for line in scene.lines if line.bad and line.links]
    assert [str(fabric.link(line.links[0])) for line in bad] == ["leaf2/12 - spine1/8"]
    assert bad[0].ink == BAD
    assert [box for box in scene.boxes if box.role is Role.MARK]
    output = [text.text for text in scene.texts]
    assert "1 bad link" in output
    assert "leaf2/12 - spine1/8  4xNDR, 400 Gbit/s, transceivers 10 m, bit error rate 1e-09" in output


@pytest.mark.parametrize("hosts", [2, 6, 60])
def test_a_bad_link_inside_a_server_is_ringed_too(hosts: int) -> None:
    """The server may be drawn open, as a box with a name, or as a column of cells."""
    fabric = weft.load(f"fat-tree:hosts={hosts},server=dgx-h100")
    scene = lay_out(faults.degrade(fabric, "dgx2/nvswitch0/3", 1e-10))
    (mark,) = (box for box in scene.boxes if box.role is Role.MARK)
    edges = [box_extent(box) for box in scene.boxes if re.match(r"dgx2(/|\n|$)", box.title)]
    assert min(left for left, *_ in edges) < mark.x < max(right for _, _, right, _ in edges)
    assert min(top for _, top, *_ in edges) < mark.y < max(bottom for *_, bottom in edges)


def test_a_bad_link_is_found_among_thousands() -> None:
    fabric = faults.slow(weft.load("fat-tree:hosts=4096"), "h3170/1", "4xEDR")
    scene = lay_out(fabric)
    (line,) = (line for line in scene.lines if line.bad and line.links)
    assert str(fabric.link(line.links[0])) == "h3170/1 - leaf100/2"
    (mark,) = (box for box in scene.boxes if box.role is Role.MARK)
    (cell,) = (box for box in scene.boxes if box.role is Role.CELL and box.ink == BAD)
    assert (mark.x, mark.y) == pytest.approx((cell.x, cell.y), abs=1)
    assert mark.width > cell.width


def test_a_metric_colours_links_from_pale_to_strong_and_widens_them(small: Fabric) -> None:
    metric = np.arange(len(small.links), dtype=float)
    metric[3] = np.nan
    scene = lay_out(small, metric=metric, metric_label="errors")
    lines = {line.links[0]: line for line in scene.lines if line.links}
    assert len(lines) == len(small.links)
    recorded = [lines[i] for i in range(len(metric)) if i != 3]
    assert all(a.ink <= b.ink and a.width < b.width for a, b in itertools.pairwise(recorded))
    assert recorded[-1].ink - recorded[0].ink == RAMP_STEPS - 1
    assert lines[3].ink < recorded[0].ink
    assert {"errors", "0", "63", "unknown"} <= {text.text for text in scene.texts}
    assert any("errors 42" in line.title for line in scene.lines)


def test_colours_are_mixed_by_share() -> None:
    assert [_mix("#ff8000", "#000080", share) for share in (0, 0.25, 1)] == ["#ff8000", "#bf6020", "#000080"]


def test_a_metric_equal_on_all_links_widens_none(small: Fabric) -> None:
    """An even load is not highlighted; a single busy link is."""
    metric = np.ones(len(small.links))
    even = {line.links[0]: line for line in lay_out(small, metric=metric).lines if line.links}
    metric[7] = 2.0
    odd = {line.links[0]: line for line in lay_out(small, metric=metric).lines if line.links}
    assert odd[7].width > 5 * even[7].width
    assert odd[8].width == even[8].width


def test_the_legend_tells_how_many_links_a_stroke_stands_for() -> None:
    """Leaves of 1,024 hosts have 2 links to each spine and 32 to hosts."""
    several = lay_out(weft.load("fat-tree:hosts=1024"))
    assert {"2 links", "9 links or more"} <= {text.text for text in several.texts}
    single = lay_out(weft.load("star:hosts=4"))
    assert "1 link" not in {text.text for text in single.texts}


def test_unknown_is_in_the_legend_only_where_a_line_shows_it() -> None:
    """Links inside a closed server have no metric and no line."""
    fabric = weft.load("superpod:su=1,servers=8")
    metric = np.where(fabric.network_links, 1.0, np.nan)
    assert "unknown" not in {text.text for text in lay_out(fabric, metric=metric).texts}
    metric[np.flatnonzero(fabric.network_links)[0]] = np.nan
    assert "unknown" in {text.text for text in lay_out(fabric, metric=metric).texts}


def test_a_bundle_has_the_colour_of_its_highest_link() -> None:
    """Two links between each leaf and spine, one of them busy."""
    fabric = weft.load("fat-tree:hosts=1024")
    metric = np.zeros(len(fabric.links))
    busy = fabric.find_port("leaf5/40").link
    assert busy is not None
    metric[busy.index] = 1.0
    scene = lay_out(fabric, metric=metric)
    inks = {line.ink for line in scene.lines if busy.index in line.links}
    assert inks == {max(line.ink for line in scene.lines)} == {len(ALWAYS) + RAMP_STEPS - 1}


@pytest.mark.parametrize(
    ("metric", "shape"), [(np.zeros(3), "3"), (np.zeros((64, 2)), "64 x 2"), (np.float64(1.0), "one")]
)
def test_a_metric_of_another_length_is_refused(metric: np.ndarray, shape: str, small: Fabric, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"the metric has {shape} values, the fabric has 64 links: give one for each"):
        draw(small, tmp_path / "fabric.svg", metric=metric)
    assert not list(tmp_path.iterdir())


def test_a_metric_that_has_no_place_on_a_scale_is_refused(small: Fabric) -> None:
    metric = np.zeros(64)
    metric[0] = np.inf
    with pytest.raises(ConfigError, match="the metric of h1/1 - leaf1/1 is infinite"):
        lay_out(small, metric=metric)
    with pytest.raises(ConfigError, match="not an array of numbers"):
        lay_out(small, metric=np.array(["x"] * 64))


def test_a_constant_metric_has_one_colour(small: Fabric) -> None:
    for value in (0.0, 7.0, -7.0):
        scene = lay_out(small, metric=np.full(64, value))
        assert len({line.ink for line in scene.lines if line.links}) == 1


def test_another_suffix_is_refused_with_the_four_that_work(small: Fabric, tmp_path: Path) -> None:
    for name in ("fabric.eps", "fabric"):
        with pytest.raises(ConfigError, match=r"\.svg, \.png, \.pdf, \.html"):
            draw(small, tmp_path / name)
    draw(small, tmp_path / "FABRIC.SVG")
    with pytest.raises(ConfigError, match="cannot write"):
        draw(small, tmp_path / "no" / "fabric.svg")


def test_the_title_is_given_or_the_spec_or_the_file_name(small: Fabric) -> None:
    assert lay_out(small).title == "fat-tree:hosts=32,radix=16"
    assert lay_out(small, title="Our cluster").title == "Our cluster"


@pytest.mark.parametrize(("spec", "most_bytes"), [("fat-tree:hosts=4096", 3e6), ("superpod:su=16", 3e6)])
def test_thousands_of_hosts_make_a_file_of_a_few_megabytes(spec: str, most_bytes: float, tmp_path: Path) -> None:
    draw(weft.load(spec), tmp_path / "fabric.svg")
    assert (tmp_path / "fabric.svg").stat().st_size < most_bytes
