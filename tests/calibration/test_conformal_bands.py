"""Bands by leaving out whole sources: coverage of new sources, and width by the published figures."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from weft.calibration.conformal import LEAST_SCALE, PRIOR, Bands
from weft.calibration.cross_validation import CLASS_COLUMNS, class_rows, count_in_bands, leave_sources_out
from weft.calibration.figure import Figure


def figure(source: str, slowdown: float, kind: tuple[str, ...]) -> Figure:
    return Figure(run=source, cluster=source, kind=kind, measured=slowdown, predicted=1.0)


def draw_sources(count: int, *, spread: float, kind: tuple[str, ...] = ("ring",), seed: int = 1) -> list[Figure]:
    """Return ten figures of each source, whose errors have a part in common."""
    random = np.random.default_rng(seed)
    return [
        figure(f"{kind[0]}-{source}", exp(common + error), kind)
        for source, common in enumerate(random.normal(0, spread, count))
        for error in random.normal(0, spread / 2, 10)
    ]


def test_nine_of_ten_new_sources_have_85_percent_of_their_figures_in_the_band():
    bands = Bands.of(draw_sources(40, spread=0.5))
    held: dict[str, int] = {}
    for each in draw_sources(400, spread=0.5, seed=2):
        held[each.cluster] = held.get(each.cluster, 0) + each.is_in(bands.band_for(each.kind))
    assert 0.85 <= sum(inside >= 8.5 for inside in held.values()) / len(held) <= 0.95


def test_sources_of_few_figures_count_together_as_one():
    """Alone, the worst figure of each would be the level of a source."""
    many = draw_sources(12, spread=0.2)
    worst = [figure(f"few-{number}", 1.2 if number else 5.0, ("ring",)) for number in range(8)]
    assert Bands.of([*many, *worst]).quantile < 1.5 * Bands.of(many).quantile


def test_a_class_with_larger_errors_has_a_wider_band():
    bands = Bands.of([*draw_sources(12, spread=0.2), *draw_sources(12, spread=0.8, kind=("tree",))])
    assert bands.band_for(("tree",)).high > 1.5 * bands.band_for(("ring",)).high


def test_a_kind_without_sources_has_the_scale_of_its_wider_kind():
    bands = Bands.of(draw_sources(12, spread=0.5, kind=("ring", "large")))
    wider, narrower = bands.band_for(("ring",)), bands.band_for(("ring", "small"))
    assert (narrower.low, narrower.high) == (wider.low, wider.high)
    assert narrower.kind == "ring"
    assert narrower.clusters == 12
    assert not narrower.far


def test_an_unseen_class_is_named_and_its_band_is_no_narrower_than_that_of_a_seen_class():
    figures = [*draw_sources(12, spread=0.2), *draw_sources(4, spread=0.8, kind=("tree",))]
    bands = Bands.of(figures)
    unseen, seen = bands.band_for(("pairs",)), bands.band_for(("ring",))
    assert unseen.far == ("no published run of pairs",)
    assert unseen.kind == "any kind"
    assert unseen.low < seen.low
    assert unseen.high > seen.high
    other = bands.band_for(("ring",), unlike=("4,096 nodes",))
    assert other.far == ("4,096 nodes",)
    assert other.high >= seen.high


def test_an_error_that_all_sources_share_moves_the_band_but_not_off_the_prediction():
    figures = [figure(f"{number}", 2.0, ("ring",)) for number in range(20)]
    band = Bands.of(figures).band_for(("ring",))
    assert band.low == 1.0
    assert band.high >= 2.0
    assert log(band.high) < log(2.0) + 3 * LEAST_SCALE


def test_one_source_moves_a_kind_by_its_share_beside_the_wider_kind():
    figures = [figure(f"{number}", 1.0, ("ring", "large")) for number in range(20)]
    alone = Bands.of([*figures, figure("alone", 4.0, ("tree", "large"))])
    centre, _ = alone._scale(("tree",))
    root = log(4.0) / 21
    assert centre == pytest.approx((PRIOR * root + log(4.0)) / (PRIOR + 1))


def test_leaving_sources_out_counts_the_bands_that_hold_by_class():
    figures = [*draw_sources(12, spread=0.3), figure("far", 50.0, ("tree",))]
    predictions = leave_sources_out(figures)
    inside, count = count_in_bands(predictions)
    assert count == 121
    assert predictions["far"][0].band.far
    assert not predictions["far"][0].is_in_band
    assert 0.8 < inside / count < 1
    rows = class_rows(predictions)
    assert [row[:3] for row in rows] == [("tree", "1", "1"), ("ring", "12", "120")]
    assert all(len(row) == len(CLASS_COLUMNS) for row in rows)
    assert rows[0][3:6] == ("98%", "-98%", "98%")
