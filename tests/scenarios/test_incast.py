"""Incast: a victim's rate, from a count of the buffers' owners."""

from __future__ import annotations

from inspect import signature

import pytest

from weft.errors import ConfigError
from weft.scenarios import incast
from weft.scenarios.incast import KINDS

CREDITS, CONTROL, PFC, DCQCN, TCP = (kind.name for kind in KINDS)


@pytest.fixture(scope="module")
def finding():
    return incast.run(senders=8, size_bytes=8 << 20)


def row(finding, network):
    return dict(zip(finding.columns, next(row for row in finding.rows if row[0] == network), strict=True))


@pytest.mark.parametrize("network", [CREDITS, PFC])
def test_without_congestion_control_the_victim_gets_a_fair_share_of_the_blocked_trunk(finding, network):
    """The trunk is one of five inputs of the hot port; the victim gets as much of it as each of four far senders."""
    assert finding.figures["expected_slowdown_without_control"] == 20
    assert row(finding, network)["slowdown"] == pytest.approx(20, rel=0.15)


@pytest.mark.parametrize("network", [CREDITS, CONTROL, PFC, DCQCN])
def test_a_lossless_network_loses_nothing(finding, network):
    assert row(finding, network)["dropped"] == row(finding, network)["sent again"] == 0


def test_congestion_control_restores_most_of_the_victims_rate(finding):
    assert row(finding, CONTROL)["slowdown"] < 0.3 * row(finding, CREDITS)["slowdown"]
    assert row(finding, CONTROL)["marked"] > 0


def test_pauses_are_of_ethernet_and_marks_of_congestion_control(finding):
    assert [bool(row(finding, kind.name)["pauses"]) for kind in KINDS] == [False, False, True, True, False]
    assert [bool(row(finding, kind.name)["marked"]) for kind in KINDS][:4] == [False, True, False, True]


def test_the_incast_takes_at_least_the_time_of_the_receivers_port(finding):
    for kind in KINDS:
        each = row(finding, kind.name)
        assert each["incast ms"] >= 8 * (8 << 20) * 8e-6 / 400


def test_all_networks_have_the_same_cabling():
    roles = incast.assign_roles(9)
    assert (len(roles.far), len(roles.near)) == (4, 5)
    assert len({*roles.senders, roles.hot, *roles.victim}) == 12


def test_the_default_size_is_that_of_the_help():
    size = signature(incast.run).parameters["size_bytes"]
    assert f"host sends: {size.default >> 20}M." in size.annotation


@pytest.mark.parametrize("options", [{"senders": 1}, {"senders": 65}, {"size_bytes": 1000}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        incast.run(**options)
