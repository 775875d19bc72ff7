"""The picture of link load: its bars are counts, and its bytes are the same every time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import ConfigError
from weft.routing.engine import Options
from weft.routing.histogram import bar_edges, count_bars, draw_loads
from weft.routing.quality import Quality, measure
from weft.routing.route import route


@pytest.fixture(scope="module")
def qualities() -> dict[str, Quality]:
    fabric = weft.load("torus:3x3,hosts=2")
    return {name: measure(route(fabric, Options(engine=name)).fabric, bisections=4) for name in ("up-down", "min-hop")}


loads = st.lists(st.integers(0, 5000).map(float), min_size=1, max_size=50).map(np.array)


@given(one=loads, other=loads, own_port=st.integers(1, 2000))
def test_every_busy_link_is_in_one_bar_and_none_straddles_the_load_of_a_host_port(one, other, own_port):
    edges = bar_edges([one, other], own_port)
    assert edges[0] == 0
    assert 80 <= len(edges) - 1 <= 81
    assert own_port in edges
    assert (np.diff(edges) > 0).all()
    for load in (one, other):
        counts = count_bars(load, edges)
        assert len(counts) == len(edges) - 1
        assert counts.sum() == (load > 0).sum()
        assert counts[edges[1:] > own_port].sum() == (load > own_port).sum()


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
    """What the font lacks becomes a box, and dollars are no mathematics."""
    draw_loads(tmp_path / "loads.svg", "織物 costs $1 and $2_{", qualities)
    assert "織物 costs $1 and $2_{" in " ".join(re.findall(r"<!-- (.*?) -->", (tmp_path / "loads.svg").read_text()))


def test_an_unknown_suffix_is_refused(qualities, tmp_path):
    with pytest.raises(ConfigError, match=r"\.png or \.svg"):
        draw_loads(tmp_path / "loads.jpg", "torus", qualities)
