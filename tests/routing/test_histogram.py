"""The picture of link load: its bars are counts, and its bytes are the same every time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.routing import histogram
from weft.routing.engine import Options
from weft.routing.histogram import bar_edges, count_bars, draw_loads
from weft.routing.quality import Quality, measure
from weft.routing.route import route


@pytest.fixture(scope="module")
def qualities() -> dict[str, Quality]:
    fabric = weft.load("torus:3x3,hosts=2")
    return {name: measure(route(fabric, Options(engine=name)).fabric, bisections=4) for name in ("up-down", "min-hop")}


loads = st.lists(st.integers(0, 5000).map(float), min_size=1, max_size=50).map(np.array)


@given(each=loads, other=loads, own_port=st.integers(1, 2000))
def test_every_busy_link_is_in_one_bar_and_none_straddles_the_load_of_a_host_port(each, other, own_port):
    edges = bar_edges([each, other], own_port)
    assert edges[0] == 0
    assert 80 <= len(edges) - 1 <= 81
    assert own_port in edges
    assert (np.diff(edges) > 0).all()
    for load in (each, other):
        counts = count_bars(load, edges)
        assert len(counts) == len(edges) - 1
        assert counts.sum() == (load > 0).sum()
        assert counts[edges[1:] > own_port].sum() == (load > own_port).sum()


def test_a_bar_includes_its_right_edge_and_no_idle_link():
    assert count_bars(np.array([0.0, 0.5, 1.0, 1.5, 2.0]), np.array([0.0, 1.0, 2.0])).tolist() == [2, 2]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_loads_give_the_same_bytes(qualities, tmp_path, suffix):
    paths = [tmp_path / f"{name}{suffix}" for name in ("one", "other")]
    for path in paths:
        draw_loads(path, "torus", qualities)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_png_is_a_png_and_an_svg_is_xml(qualities, tmp_path):
    draw_loads(tmp_path / "loads.png", "torus", qualities)
    assert (tmp_path / "loads.png").read_bytes().startswith(b"\x89PNG")
    draw_loads(tmp_path / "loads.svg", "torus", qualities)
    assert ElementTree.parse(tmp_path / "loads.svg").getroot().tag.endswith("svg")


def test_names_of_any_script_can_be_in_the_title(qualities, tmp_path):
    """Characters that the font lacks become boxes, and dollar signs start no formula."""
    draw_loads(tmp_path / "loads.svg", "織物 costs $1 and $2_{", qualities)
    assert "織物 costs $1 and $2_{" in " ".join(re.findall(r"<!-- (.*?) -->", (tmp_path / "loads.svg").read_text()))


def test_an_unknown_suffix_is_refused(qualities, tmp_path):
    with pytest.raises(ConfigError, match=r"\.png, \.svg, \.pdf"):
        draw_loads(tmp_path / "loads.jpg", "torus", qualities)


def rows_of(qualities: dict[str, Quality]) -> Figure:
    figure = Figure(figsize=(10, 1.75 + 1.3 * len(qualities)))
    FigureCanvasAgg(figure)
    histogram._draw(figure, "a fabric", qualities)
    figure.canvas.draw()
    return figure


def test_the_name_of_an_engine_and_its_figures_do_not_touch(qualities):
    quality = qualities["up-down"]
    worst = replace(quality.all_to_all, worst_link="site1-0101-0903-01ib1-A-L16-U2/23", max_load=4112.0)
    quality = replace(quality, patterns=(worst, *quality.patterns[1:]))
    for engine in ("dimension-order, 2 lanes, can deadlock", "dfsssp"):
        (axes,) = rows_of({engine: quality}).axes
        left, right = (next(t for t in axes.findobj(Text) if t.get_text().startswith(w)) for w in (engine, "max 4,112"))
        assert left.get_window_extent().x1 + 10 < right.get_window_extent().x0
        assert right.get_text().endswith(f"± {quality.bisection.standard_error:.4f}")
    assert "site1-0101-0903-01ib1-A-L16-U2/23" in right.get_text()


def test_all_bars_are_within_the_axes(qualities):
    for axes in rows_of(qualities).axes:
        left, right = axes.get_xlim()
        assert left < min(bar.get_x() for bar in axes.patches)
        assert max(bar.get_x() + bar.get_width() for bar in axes.patches) < right


def test_links_without_slowdown_are_not_coloured_as_slow():
    """A host at half the rate of the others is the bottleneck: no link between switches is busier."""
    fabric = faults.slow(weft.load("fat-tree:hosts=16,radix=8,oversubscription=1.5"), "h1/1", "4xEDR")
    quality = measure(route(fabric, Options(engine="min-hop")).fabric, bisections=4)
    assert quality.all_to_all.slowdown == 1
    assert quality.all_to_all.max_load > quality.hosts - 1
    (axes,) = rows_of({"min-hop": quality}).axes
    slow = [bar for bar in axes.patches if bar.get_height() and bar.get_facecolor() == to_rgba(histogram._BEYOND)]
    assert not slow
