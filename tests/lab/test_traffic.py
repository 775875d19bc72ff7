"""Data of the packet engine in a running lab: on its tables, and into its counters."""

from __future__ import annotations

import pytest

import weft
from weft.errors import ConfigError, UnknownName
from weft.fabric.counters import Counter
from weft.lab.lab import Lab
from weft.routing.route import route


@pytest.fixture
def lab():
    """Routed by weft: no subnet manager is needed to have tables."""
    with Lab(route(weft.load("fat-tree:hosts=16,radix=8")).fabric) as running:
        yield running


def test_traffic_is_counted_at_the_ports_that_it_passes(lab):
    before = lab.fabric.counters[:, Counter.PORT_XMIT_DATA_WORDS].sum()
    report = lab.traffic(size_bytes=100_000)
    assert report["delivered"] == report["messages"] == 16
    after = lab.fabric.counters[:, Counter.PORT_XMIT_DATA_WORDS].sum()
    assert 4 * (after - before) > 2 * report["payload_bytes"], "each message passes two links or more"


def test_a_bad_cable_shows_in_the_counters_of_its_ports(lab):
    lab.degrade("leaf1/5", 1e-6)
    report = lab.traffic("all-to-all", 200_000)
    assert report["corrupted_packets"] > 0
    errors = lab.fabric.counters[:, Counter.PORT_RCV_ERRORS]
    cable = {lab.fabric["leaf1/5"].slot, lab.fabric["leaf1/5"].peer.slot}
    assert errors.sum() > 0
    assert set(errors.nonzero()[0].tolist()) <= cable


def test_tables_that_still_lead_to_a_broken_cable_are_refused_by_its_name(lab):
    lab.break_cable("leaf1/5")
    with pytest.raises(ConfigError, match=r"leaf1/5.*no cable"):
        lab.traffic("all-to-all", 1_000)


def test_a_host_without_its_cable_takes_no_part(lab):
    lab.break_cable("h3/1")
    assert lab.traffic("shift", 1_000)["messages"] == 15


def test_what_there_is_not_is_refused_by_name(lab):
    with pytest.raises(UnknownName, match="did you mean incast"):
        lab.traffic("incst")
    with pytest.raises(UnknownName, match="zigzag"):
        lab.traffic(paths="zigzag")
