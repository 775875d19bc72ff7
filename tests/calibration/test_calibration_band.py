"""Kinds of published figures, cross-validation, and errors of runs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from weft.calibration.band import Band, by_kind
from weft.calibration.cross_validation import cluster_rows, count_in_bands, leave_one_out
from weft.calibration.figure import Figure, mean_error, summary_cells
from weft.calibration.run import Run


def figure(cluster: str, slowdown: float, kind: tuple[str, ...] = ("ring",), size_bytes: int = 8) -> Figure:
    return Figure(
        run=cluster, cluster=cluster, kind=kind, size_bytes=size_bytes, measured=slowdown, predicted=1.0, limit=0.5
    )


FIGURES = [figure("a", 0.5), figure("a", 1.0), figure("b", 3.0, size_bytes=16)]


def test_figures_are_listed_by_kind_and_by_every_wider_kind():
    kinds = by_kind([figure("a", 1.0, ("ring", "NDR")), figure("b", 1.0, ("ring", "HDR"))])
    assert {kind: len(own) for kind, own in kinds.items()} == {
        (): 2,
        ("ring",): 2,
        ("ring", "NDR"): 1,
        ("ring", "HDR"): 1,
    }


def test_each_cluster_is_predicted_with_the_band_of_the_others():
    predictions = leave_one_out(
        (each.cluster for each in FIGURES),
        lambda cluster: (
            (each, Band(low=0.5, high=1.0 if cluster == "a" else 2.0, clusters=1))
            for each in FIGURES
            if each.cluster == cluster
        ),
    )
    assert count_in_bands(predictions) == (2, 3)
    rows = cluster_rows(predictions, lambda _, own: (f"{mean_error(own):.0%}",))
    assert rows == [("a", "2", "50%", "2 of 2"), ("b", "1", "67%", "0 of 1")]


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
