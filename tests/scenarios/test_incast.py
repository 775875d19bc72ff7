"""Incast: what a victim gets, by counting who holds which buffer."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.scenarios import incast
from weft.scenarios.incast import KINDS

CREDITS, CONTROL, PFC, DCQCN, TCP = (kind.name for kind in KINDS)


@pytest.fixture(scope="module")
def found():
    return incast.run(senders=8, size_bytes=8 << 20)


def row(found, network):
    return dict(zip(found.columns, next(row for row in found.rows if row[0] == network), strict=True))


@pytest.mark.parametrize("network", [CREDITS, PFC])
def test_without_congestion_control_the_victim_gets_a_fair_share_of_the_blocked_trunk(found, network):
    """The trunk is one of five inputs of the hot port; the victim gets as much of it as each of four far senders."""
    assert found.figures["expected_slowdown_without_control"] == 20
    assert row(found, network)["slowdown"] == pytest.approx(20, rel=0.15)


@pytest.mark.parametrize("network", [CREDITS, CONTROL, PFC, DCQCN])
def test_a_lossless_network_loses_nothing(found, network):
    assert row(found, network)["dropped"] == row(found, network)["sent again"] == 0


def test_congestion_control_restores_most_of_the_victims_rate(found):
    assert row(found, CONTROL)["slowdown"] < 0.3 * row(found, CREDITS)["slowdown"]
    assert row(found, CONTROL)["marked"] > 0


def test_pauses_are_of_ethernet_and_marks_of_congestion_control(found):
    assert [bool(row(found, kind.name)["pauses"]) for kind in KINDS] == [False, False, True, True, False]
    assert [bool(row(found, kind.name)["marked"]) for kind in KINDS][:4] == [False, True, False, True]


def test_the_incast_takes_at_least_the_time_of_the_receivers_port(found):
    for kind in KINDS:
        one = row(found, kind.name)
        assert one["incast ms"] >= 8 * (8 << 20) * 8e-6 / 400


def test_all_networks_have_the_same_cabling():
    cast = incast.cast_for(9)
    assert (len(cast.far), len(cast.near)) == (4, 5)
    assert len({*cast.senders, cast.hot, *cast.victim}) == 12


@pytest.mark.parametrize("options", [{"senders": 1}, {"senders": 65}, {"size_bytes": 1000}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        incast.run(**options)
