"""The rule for the width of a band, and cross-validation with it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from weft.calibration.band import Band, by_kind, count_clusters, draw, narrowest
from weft.calibration.cross_validation import cluster_rows, count_in_bands, leave_one_out
from weft.calibration.figure import Figure, mean_error, summary_cells
from weft.calibration.run import Run


def figure(cluster: str, slowdown: float, kind: tuple[str, ...] = ("ring",), size_bytes: int = 8) -> Figure:
    return Figure(
        run=cluster, cluster=cluster, kind=kind, size_bytes=size_bytes, measured=slowdown, predicted=1.0, limit=0.5
    )


FIGURES = [figure("a", 0.5), figure("a", 1.0), figure("b", 3.0, size_bytes=16)]


def test_a_band_covers_every_cluster_and_more_the_fewer_there_are():
    both, one_side = draw(FIGURES), draw(FIGURES, symmetric=False)
    assert (one_side.low, one_side.high, one_side.clusters) == pytest.approx((0.5**1.5, 3**1.5, 2))
    assert (both.low, both.high) == pytest.approx((3**-1.5, 3**1.5))
    assert draw(FIGURES, clusters=1).high == pytest.approx(3**2)


def test_coverage_drops_the_outermost_figures_of_a_cluster():
    figures = [figure("a", 2.0)] * 99 + [figure("a", 50.0)]
    assert draw(figures, coverage=0.9).high == pytest.approx(2.0**2)


def test_coverage_drops_as_many_figures_at_both_ends():
    band = draw([figure("a", 2.0**exponent) for exponent in range(5)], coverage=0.5, symmetric=False)
    assert (band.low, band.high) == pytest.approx((2.0**2, 8.0**2))  # the quartiles, twice as far for one cluster


def test_a_band_can_be_widened_to_a_least_width():
    band = Band(low=0.5, high=1.1, clusters=2).at_least(0.2)
    assert (band.low, band.high) == pytest.approx((0.5, 1.2214), rel=1e-4)


def test_a_kind_that_one_cluster_published_is_taken_wider():
    kinds = by_kind([figure("a", 1.0, ("ring", "NDR")), figure("b", 1.0, ("ring", "HDR"))])

    assert [len(each) for each in kinds.values()] == [2, 2, 1, 1]  # (), ring, NDR and HDR

    def clusters(kind: tuple[str, ...]) -> int:
        return count_clusters(kinds.get(kind, ()))

    assert narrowest(("ring", "NDR"), clusters) == ("ring",)
    assert narrowest(("tree", "NDR"), clusters) == ()
    assert narrowest(("tree", "NDR"), clusters, least=1) == ("tree",)


def test_each_cluster_is_predicted_with_the_band_of_the_others():
    predictions = leave_one_out(
        (each.cluster for each in FIGURES),
        lambda cluster: (
            (each, draw([other for other in FIGURES if other.cluster != cluster]))
            for each in FIGURES
            if each.cluster == cluster
        ),
    )
    assert count_in_bands(predictions) == (3, 3)
    rows = cluster_rows(predictions, lambda _, own: (f"{mean_error(own):.0%}",))
    assert rows == [("a", "2", "50%", "2 of 2"), ("b", "1", "67%", "1 of 1")]


def test_the_summary_of_a_run_names_the_worst_figure():
    assert summary_cells("run", FIGURES) == ("run", "3", "55.6%", "+100% at 8 B")
    assert [each.is_within_limit for each in FIGURES] == [False, True, False]


def test_an_error_as_large_as_its_limit_is_within_it_and_without_a_limit_there_is_no_verdict():
    exact = Figure(run="a", measured=2.0, predicted=3.0, limit=0.5)
    assert (exact.is_within_limit, exact.size_bytes) == (True, 0)
    assert replace(exact, limit=None).is_within_limit is None


def test_a_run_with_an_unknown_field_is_refused():
    fields = {"name": "a", "source": "a paper", "date": "2026-11-02"}
    assert msgspec.convert(fields, Run).name == "a"
    with pytest.raises(msgspec.ValidationError, match="unknown field `sourc`"):
        msgspec.convert(fields | {"sourc": "a typing error"}, Run)
