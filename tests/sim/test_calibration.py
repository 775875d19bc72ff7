"""Calibration of the simulator by the user's measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.errors import UnknownName
from weft.sim.calibration import (
    BANDWIDTH_LIMIT,
    LATENCY_LIMIT,
    RATE_LIMIT,
    SMALL_BANDWIDTH_LIMIT,
    find,
    measurements,
    run,
)

QUICK_BYTES = 128 * 1024  # beyond, only the largest size: the line is full and nothing else changes
PROMISED = [each for each in measurements() if each.promised]


@pytest.mark.parametrize("measurement", PROMISED, ids=lambda each: each.name)
def test_promised_figures_are_within_their_limits(measurement):
    sizes = [int(row[0]) for row in measurement.rows if row[0] <= QUICK_BYTES]
    broken = [figure for figure in run(measurement, sizes) if not figure.is_within_limit]
    assert not broken


def test_large_messages_of_the_hdr_sweep_are_within_their_limit():
    assert all(figure.is_within_limit for figure in run(find("hdr-write-bw"), [8 << 20]))


def test_the_limits_are_those_promised():
    assert (BANDWIDTH_LIMIT, SMALL_BANDWIDTH_LIMIT, RATE_LIMIT, LATENCY_LIMIT) == (0.05, 0.15, 0.15, 0.10)
    must = {"hdr-write-bw", "ndr-write-bw", "ndr-send-bw", "ndr-read-bw", "ndr-send-lat"}
    assert must <= {each.name for each in PROMISED}


def test_most_promised_figures_were_not_fitted():
    """A constant for each point would agree with everything and predict nothing."""
    for each in PROMISED:
        if len(each.rows) > 4:
            assert len(each.fitted) <= 4


def test_an_unpromised_measurement_has_a_reason():
    for each in measurements():
        assert each.promised or each.note or each.source.startswith("github.com"), each.name


def test_a_figure_off_by_more_than_its_limit_is_broken():
    (figure, _) = run(find("ndr-write-bw"))
    assert figure.is_within_limit
    assert abs(figure.error) < 0.01
    assert replace(figure, measured=figure.predicted / 1.06).is_within_limit is False
    assert replace(figure, measured=figure.predicted / 1.06, limit=None).is_within_limit is None


def test_an_unknown_measurement_is_refused():
    with pytest.raises(UnknownName, match="hdr-write-bw"):
        find("hdr-write-bv")
