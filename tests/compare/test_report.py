"""The page: finding first, everything inside, nothing from elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from itertools import pairwise
from pathlib import Path

import pytest

import weft
from weft.compare.curves import COLOURS, Axis, Curve, draw_curves, powers
from weft.compare.formatting import show_time
from weft.compare.outcome import Comparison
from weft.compare.report import check_path, to_html
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.plan.bill import Bill, Item


@pytest.fixture(scope="module")
def page(found: Comparison) -> str:
    return to_html(found)


def test_the_finding_comes_first_and_how_far_to_trust_it_next(found: Comparison, page: str) -> None:
    text = unescape(re.sub(r"<[^>]+>", "", page.partition("<body>")[2])).replace("\xa0", " ")
    assert found.trust in text
    assert text.index(found.finding) < text.index(found.trust) < text.index("where the time goes")


def test_the_table_of_the_page_is_sorted_by_time_with_the_ratio_to_the_fastest(found: Comparison, page: str) -> None:
    rows = re.findall(r"<tr>.*?</tr>", page.partition("<table")[2].partition("</table>")[0], flags=re.DOTALL)[1:]
    times_us = sorted(outcome.time_us for outcome in found.outcomes)
    assert len(rows) == len(times_us) > 2
    for row, time_us in zip(rows, times_us, strict=True):
        assert f">{show_time(time_us)}<" in row
        assert f">{time_us / times_us[0]:,.2f}<" in row


def test_the_page_needs_no_network(page: str) -> None:
    elsewhere = re.sub(r"xmlns=(\"|&quot;)http://www.w3.org/2000/svg", "", page)
    assert not re.findall(r"https?://|url\(|@import|<script|<link|src=", elsewhere)


def test_the_page_has_every_fabric_in_table_words_and_curves(found: Comparison, page: str) -> None:
    for outcome in found.outcomes:
        assert unescape(page).count(outcome.interconnect.label) >= 5  # table, why, two curves, costs
        assert outcome.fabric.spec in page
    assert page.count('class="curve"') == 2 * len(found.outcomes)
    assert all(f">{point.at}</text>" in page for point in found.outcomes[0].by_servers)  # a tick for each


def test_the_page_shows_the_first_fabric_and_the_crowded_one(found: Comparison, page: str) -> None:
    assert page.count("<iframe") == 2
    roce = next(outcome for outcome in found.outcomes if outcome.interconnect.name == "roce-400")
    assert str(roce.bottleneck) in unescape(page)


def test_the_colour_of_a_fabric_is_its_alone(found: Comparison, page: str) -> None:
    """The colour is the same in every report, whatever else is compared; the parts of a time have other colours."""
    every = catalog.interconnects()
    assert len(set(COLOURS)) == len(COLOURS) >= len(every)
    assert not {colour for colour in COLOURS if colour in page.partition("</style>")[0]}
    for outcome in found.outcomes:
        swatch = f'style="background:{COLOURS[every.index(outcome.interconnect)]}"></span>{outcome.interconnect.label}'
        assert page.count(swatch) == 3  # table, why, costs


def test_the_parts_of_a_time_fill_its_bar_and_cables_are_busy_at_most_all_of_the_time(page: str) -> None:
    for bar in re.findall(r'<div class="bar">(.*?)</div>', page):
        assert sum(map(float, re.findall(r"width:([\d.]+)%", bar))) == pytest.approx(100, abs=0.05)
    busy = [float(value) for value in re.findall(r"busy, % of the time ([\d.]+)", page)]
    assert 99 < max(busy) <= 100


def test_the_power_is_unknown_if_that_of_a_switch_is(found: Comparison) -> None:
    items = (Item(kind="cable", name="cable without power", count=1), Item(kind="switch", name="x", count=1, power_w=2))
    for power_w, shown in ((2000.0, "2.0 kW<br><small>without cable without power</small>"), (None, "not known")):
        bill = Bill(items=(items[0], replace(items[1], power_w=power_w)))
        page = to_html(replace(found, outcomes=(replace(found.outcomes[0], bill=bill),)))
        assert f">{shown}</td>" in page.partition("What it costs")[2]


def test_the_page_has_the_whole_bill(found: Comparison, page: str) -> None:
    costs = unescape(page.partition("What it costs")[2])
    for outcome in found.outcomes:
        assert all(str(line) in costs for line in outcome.bill.lines)
        assert str(outcome.bill.per_gpu) in costs
    assert "16-port NDR switch" in costs
    assert "not a product: a QM9700 has 64 ports" in costs
    assert "--prices FILE" in costs


def test_the_page_has_the_command_that_made_it(found: Comparison, page: str) -> None:
    assert f"weft {weft.__version__}: <code>weft compare {found.spec} --job all_gather:1G --fabrics ndr,xdr," in page
    assert "--seed 1</code>" in page


def test_names_in_the_page_are_escaped(found: Comparison) -> None:
    assert "<b>&" not in to_html(replace(found, spec="<b>&"))


def test_a_report_is_an_html_file_in_a_folder_that_is_there(found: Comparison, tmp_path: Path) -> None:
    check_path(tmp_path / "a.html")
    with pytest.raises(ConfigError, match=r"must end with \.html"):
        check_path(tmp_path / "a.pdf")
    with pytest.raises(ConfigError, match="no folder"):
        check_path(tmp_path / "nosuch" / "a.html")


def test_labels_at_the_ends_of_curves_do_not_touch() -> None:
    curves = [
        Curve(
            name=f"c{i}",
            colour="#000",
            points=((1.0, 10.0), (100.0, 50.0 + i / 100)),
            band=((9.0, 11.0),) * 2,
            tips=("", ""),
        )
        for i in range(6)
    ]
    axis = Axis(label="", ticks=powers(1, 100, 10), show=str)
    svg = draw_curves(curves, axis, axis, mark=10)
    heights = sorted(float(y) for y in re.findall(r'class="end" x="[\d.]+" y="([\d.]+)"', svg))
    assert len(heights) == 6
    assert min(b - a for a, b in pairwise(heights)) >= 14.9


def test_a_plot_reaches_from_its_first_tick_to_its_last() -> None:
    curve = Curve(
        name="c", colour="#000", points=((10.0, 10.0), (1000.0, 1000.0)), band=((9.0, 11.0),) * 2, tips=("",) * 2
    )
    axis = Axis(label="", ticks=powers(10, 1000, 10), show=str)
    svg = draw_curves([curve], axis, axis, mark=10)
    (left, right), *_ = re.findall(r'class="grid" d="M([\d.]+) [\d.]+H([\d.]+)"', svg)
    upright = [float(x) for x in re.findall(r'class="grid" d="M([\d.]+) [\d.]+V', svg)]
    assert upright == [float(left), (float(left) + float(right)) / 2, float(right)]


def test_ticks_enclose_the_values() -> None:
    assert powers(3, 120, 10) == (1, 10, 100, 1000)
    assert powers(1024, 4096, 4) == (1024, 4096)
    assert powers(5, 5, 10) == (1, 10)
    assert powers(10, 10, 10) == (10, 100)
