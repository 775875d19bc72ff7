"""The subnet manager is killed: existing routes carry on, new connections wait, the standby goes on where it ended."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.scenarios import sm_failover


@pytest.fixture(scope="module")
def finding():
    return sm_failover.run()


def test_traffic_continues_on_existing_routes(finding):
    outage = finding.figures["messages"]["outage"]
    assert outage["delivered"] == outage["sent"] > 50


def test_no_new_connection_can_be_established_until_the_standby_is_master(finding):
    paths = finding.figures["path_queries"]
    assert paths["outage"]["sent"] > 0
    assert paths["outage"]["answered"] == 0
    assert paths["after"]["answered"] > 0


def test_the_new_master_changes_no_lid_and_no_route(finding):
    assert (finding.figures["lids_changed"], finding.figures["routes_changed"], finding.figures["pairs_missing"]) == (
        0,
        0,
        0,
    )


def test_the_new_master_knows_the_registrations_of_the_old_one(finding):
    assert finding.figures["service_kept"]
    assert finding.figures["group_kept"]
    assert "the service and the group registered before" in finding.finding


def test_opensm_is_cited_beside_it(finding):
    assert finding.figures["opensm_default_s"] == 52.9
    assert "52.9 s" in finding.finding


@pytest.mark.parametrize("options", [{"polling_ms": 0}, {"polling_ms": 20_000}, {"retries": 0}, {"retries": 99}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        sm_failover.run(**options)
