"""Published runs of OSU's programs: nine of ten figures lie in the band, and what is off is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.collectives.osu.bench import Test as OsuTest
from weft.collectives.osu.bench import band_of
from weft.collectives.osu.calibration import Figure, compare, find, mean_error, runs, summary
from weft.errors import UnknownName

# How far off the mean of each promised run is: a change for the better shows as one for the worse does.
MEAN_ERRORS = {
    "hdr-latency": 0.03,
    "hdr-latency-2": 0.04,
    "edr-latency": 0.09,
    "roce-latency": 0.02,
    "tcp-latency": 0.07,
    "hdr-bw": 0.02,
    "hdr100-bibw": 0.13,
    "roce-bw": 0.02,
    "hdr-barrier-2x96": 0.05,
    "hdr-barrier-4x96": 0.18,
    "hdr-allreduce-2x96": 0.32,
    "hdr-allreduce-4x96": 0.24,
    "roce-allreduce-4x36": 0.29,
}


@pytest.fixture(scope="module")
def compared() -> dict[str, tuple[Figure, ...]]:
    return {run.name: compare(run) for run in runs() if run.promised}


def test_the_mean_errors_of_promised_runs_are_where_they_were(compared):
    assert {name: mean_error(figures) for name, figures in compared.items()} == pytest.approx(MEAN_ERRORS, abs=0.02)


def test_the_document_has_their_rows(compared):
    text = (Path(__file__).parents[3] / "docs" / "osu.md").read_text()
    for row in summary((run, compared[run.name]) for run in runs() if run.promised)[0]:
        assert f"| {' | '.join(row[:5])} |" in text


def test_nine_of_ten_figures_lie_in_their_band(compared):
    for small in (True, False):
        for kind in ("latency", "bandwidth", "collective"):
            figures = [
                figure
                for run in runs()
                if run.promised and _kind(run.test) == kind
                for figure in compared[run.name]
                if (figure.row.size_bytes <= 2048) is small
            ]
            inside = sum(figure.kept for figure in figures)
            assert inside >= 0.85 * len(figures), (kind, small)
    every = [figure for figures in compared.values() for figure in figures]
    assert sum(figure.kept for figure in every) >= 0.9 * len(every)


def _kind(test: OsuTest) -> str:
    return "bandwidth" if test.is_bandwidth else "latency" if test is OsuTest.LATENCY else "collective"


def test_a_band_has_the_figure_in_it():
    for test in OsuTest:
        for size in (8, 1 << 20):
            band = band_of(test, size)
            assert band.low < 1 < band.high


def test_the_summary_names_the_worst_and_counts_the_promised(compared):
    rows, note = summary((run, compared[run.name]) for run in runs() if run.promised)
    assert len(rows) == len(MEAN_ERRORS)
    worst = next(row for row in rows if row[0] == "edr-latency")
    assert worst[3].endswith("at 128 B")
    assert "figures of promised runs" in note


def test_a_run_that_is_not_promised_says_why():
    assert all(run.note for run in runs() if not run.promised)
    with pytest.raises(UnknownName, match="hdr-latency"):
        find("hdr-latenzy")
