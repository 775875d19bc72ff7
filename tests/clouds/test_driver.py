"""The mechanism driver and its resync, without Neutron. tests/interop/test_neutron.py runs Neutron itself."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest
from tests.clouds.neutron_stub import Neutron
from tests.clouds.test_members import NETWORK, PORT, segment
from tests.patience import wait_until

from weft.clouds.openstack.members import LONGEST_PREFIX, Rules
from weft.errors import ConfigError
from weft.tenants.drivers.ufm_rest import UfmError

GUID, OTHER = 0x08C0EB0300123456, 0xABC
NAME = Rules(frozenset(["ib"])).partition(NETWORK, [segment()]).name
BOUND = PORT | {"id": "p1", "network_id": NETWORK, "status": "DOWN"}
UNBOUND = BOUND | {"binding:vif_type": "unbound"}
OTHER_BOUND = BOUND | {"binding:profile": {"guid": hex(OTHER)}}
BAD = BOUND | {"binding:profile": {"guid": "none"}}
NETWORK_ROW = {"id": NETWORK, **{f"provider:{key}": value for key, value in segment().items()}}


@pytest.fixture
def neutron(server) -> Neutron:
    return Neutron(ufm_url=server.url, physical_networks=["ib"])


@pytest.fixture
def driver_module(neutron, monkeypatch):
    yield neutron.driver(monkeypatch)
    for name in ("options", "resync", "driver"):
        sys.modules.pop(f"weft.clouds.openstack.{name}", None)


@pytest.fixture
def driver(driver_module):
    result = driver_module.WeftMechanismDriver()
    result.initialize()
    return result


@pytest.fixture
def resync(driver):
    module = sys.modules["weft.clouds.openstack.resync"]
    return lambda: module.resync(driver.ufm, driver.rules)


def network(*segments) -> SimpleNamespace:
    return SimpleNamespace(current={"id": NETWORK}, network_segments=list(segments or [segment()]))


def change(original, current, on=None) -> SimpleNamespace:
    return SimpleNamespace(original=original, current=current, network=on or network(), plugin_context=None)


OFF_FABRIC = network(segment(physical="eth"))

# -- networks ---------------------------------------------------------------------------------------------------------


def test_secrets_are_not_logged_and_options_have_their_limits(driver_module):
    (group, options), *_ = driver_module.options.list_options()
    by_name = {option.name: vars(option) for option in options}
    assert group == "ml2_weft"
    assert {name for name, option in by_name.items() if option.get("secret")} == {"ufm_token", "ufm_password"}
    defaults = {"ufm_timeout": 10.0, "physical_networks": [], "prefix": "neutron", "ip_over_ib": True, "index0": False}
    assert {name: option["default"] for name, option in by_name.items() if "default" in option} == {
        **defaults,
        "resync_interval": 60,
    }
    assert (by_name["ufm_timeout"]["min"], by_name["resync_interval"]["min"]) == (0.1, 0)
    prefix = by_name["prefix"]["regex"]
    assert re.fullmatch(prefix, "n" * LONGEST_PREFIX)
    assert not re.fullmatch(prefix, "n" * (LONGEST_PREFIX + 1))
    assert re.fullmatch(prefix, "n")


@pytest.mark.parametrize("missing", ["ufm_url", "physical_networks"])
def test_the_driver_needs_a_ufm_and_infiniband_networks(neutron, driver_module, missing):
    setattr(neutron.settings, missing, None)
    with pytest.raises(ConfigError, match="set ufm_url and physical_networks"):
        driver_module.WeftMechanismDriver().initialize()


@pytest.mark.parametrize(("interval_s", "workers"), [(60, 1), (0, 0)])
def test_an_interval_of_zero_turns_the_resync_off(neutron, driver, interval_s, workers):
    neutron.settings.resync_interval = interval_s
    assert len(driver.get_workers()) == workers


def test_a_network_is_a_partition_while_it_exists(driver, server):
    driver.create_network_precommit(network())
    assert server.partitions == {}
    driver.create_network_postcommit(network())
    driver.create_network_postcommit(OFF_FABRIC)
    assert {p_key: item["partition"] for p_key, item in server.partitions.items()} == {100: NAME}
    driver.delete_network_postcommit(OFF_FABRIC)
    assert len(server.partitions) == 1
    driver.delete_network_postcommit(network())
    assert server.partitions == {}


def test_a_network_with_two_infiniband_segments_is_a_bad_request(driver, driver_module):
    with pytest.raises(driver_module.BadPort, match="2 segments on InfiniBand"):
        driver.create_network_precommit(network(segment(number=1), segment(number=2)))


def test_a_network_whose_p_key_is_taken_is_a_conflict(driver, driver_module, server):
    server.partitions[100] = {"partition": "other", "ip_over_ib": True, "guids": {}}
    with pytest.raises(driver_module.PKeyTaken, match="taken at UFM"):
        driver.create_network_postcommit(network())


@pytest.mark.parametrize("status", [500, 404])
def test_a_network_needs_a_ufm_that_answers(driver, driver_module, server, status):
    server.status = status
    with pytest.raises(driver_module.UfmUnavailable):
        driver.create_network_postcommit(network())


# -- ports ------------------------------------------------------------------------------------------------------------


def bound_by(driver, port, *segments):
    bindings = []
    context = SimpleNamespace(
        current=port, segments_to_bind=segments, set_binding=lambda *words: bindings.append(words)
    )
    driver.bind_port(context)
    return bindings


@pytest.mark.parametrize(("kind", "vif_type"), [("baremetal", "other"), ("direct", "ib_hostdev")])
def test_a_port_with_an_adapter_is_bound_to_the_infiniband_segment_only(driver, kind, vif_type):
    port, ours = UNBOUND | {"binding:vnic_type": kind}, {"id": "s2", **segment()}
    details = {"physical_network": "ib", "port_filter": False}
    assert bound_by(driver, port, {"id": "s1", **segment(physical="eth")}, ours, ours) == [("s2", vif_type, details)]
    assert bound_by(driver, port | {"binding:vnic_type": "normal"}, ours) == []


@pytest.mark.parametrize(
    ("before", "now", "waits"),
    [(UNBOUND, BOUND, True), (BOUND, BOUND, False), (BOUND, UNBOUND, False), (BOUND, OTHER_BOUND, True)],
)
def test_a_port_waits_for_its_new_membership(driver, neutron, before, now, waits):
    driver.update_port_precommit(change(before, now, OFF_FABRIC))
    assert neutron.waiting == []
    driver.update_port_precommit(change(before, now))
    assert neutron.waiting == ["p1"] * waits


@pytest.mark.parametrize(
    ("before", "now", "members"),
    [(UNBOUND, BOUND, {GUID}), (BOUND, OTHER_BOUND, {OTHER}), (BOUND, UNBOUND, set()), (BOUND, BOUND, {GUID})],
)
def test_the_members_of_a_partition_are_its_bound_ports(driver, neutron, server, before, now, members):
    driver.update_port_precommit(change(UNBOUND, before))
    driver.update_port_postcommit(change(UNBOUND, before))
    driver.update_port_precommit(change(before, now))
    driver.update_port_postcommit(change(before, now, OFF_FABRIC))
    driver.update_port_postcommit(change(before, now))
    assert (server.members(100), neutron.waiting) == (members, [])
    driver.delete_port_postcommit(change(None, now, OFF_FABRIC))
    assert server.members(100) == members
    driver.delete_port_postcommit(change(None, now))
    assert server.members(100) == set()


def test_deleting_an_unbound_port_asks_ufm_nothing(driver, server):
    driver.delete_port_postcommit(change(None, UNBOUND))
    assert server.calls == []


def test_an_invalid_guid_is_refused_when_it_is_set_and_ignored_later(driver, driver_module):
    driver.create_port_precommit(change(None, BAD, OFF_FABRIC))
    with pytest.raises(driver_module.BadPort, match="'none' is not a hexadecimal number"):
        driver.create_port_precommit(change(None, BAD))
    with pytest.raises(driver_module.BadPort, match="'none' is not a hexadecimal number"):
        driver.update_port_precommit(change(BOUND, BAD))
    driver.update_port_precommit(change(BAD, BAD | {"name": "new"}))


def test_a_port_stays_down_while_ufm_is_away_and_a_refusal_is_an_error(driver, driver_module, neutron, server):
    server.status = 503
    driver.update_port_precommit(change(UNBOUND, BOUND))
    driver.update_port_postcommit(change(UNBOUND, BOUND))
    assert neutron.waiting == ["p1"]
    assert "Retried every 60 s" in neutron.errors[0]
    server.status = 404
    with pytest.raises(driver_module.UfmUnavailable):
        driver.update_port_postcommit(change(UNBOUND, BOUND))


# -- resync -----------------------------------------------------------------------------------------------------------


def partition(*guids: int, name: str = NAME) -> dict[str, object]:
    return {"partition": name, "ip_over_ib": True, "guids": {f"{guid:016x}": False for guid in guids}}


@pytest.mark.parametrize(
    ("current", "changed"),
    [
        ({}, True),
        ({100: partition()}, True),
        ({100: partition(GUID)}, False),
        ({100: partition(GUID, OTHER)}, True),
        ({100: partition(OTHER)}, True),
        ({100: partition(GUID), 101: partition(name="neutron-" + "0" * 20)}, True),
    ],
)
def test_resync_makes_ufm_match_neutron(neutron, server, resync, current, changed):
    neutron.networks, neutron.ports = [NETWORK_ROW], [BOUND, UNBOUND | {"id": "p2"}]
    neutron.waiting = ["p1"] * 2
    server.partitions |= current
    assert resync() == changed
    assert (server.partitions.keys(), server.members(100)) == ({100}, {GUID})
    assert len(neutron.waiting) == (0 if changed else 1)


def test_resync_creates_the_partition_of_a_network_without_ports_once(neutron, server, resync):
    neutron.networks = [NETWORK_ROW, {"id": "eth", "provider:network_type": "flat", "provider:physical_network": "ib"}]
    assert resync()
    assert server.members(100) == set()
    server.calls.clear()
    assert not resync()
    assert [call for call in server.calls if not call.startswith("GET")] == []


def test_resync_leaves_partitions_of_others_alone_and_goes_on_after_a_taken_p_key(neutron, server, resync):
    server.partitions |= {100: partition(OTHER, name="other"), 7: partition(OTHER, name="neutron-x")}
    neutron.networks, neutron.ports = [NETWORK_ROW], [BOUND]
    neutron.networks += [{**NETWORK_ROW, "id": "f" * 32, "provider:segmentation_id": 101}]
    neutron.waiting = ["p1"]
    assert resync()
    assert (server.members(100), server.members(7), server.members(101)) == ({OTHER}, {OTHER}, set())
    assert "taken at UFM" in neutron.errors[0]
    assert neutron.waiting == ["p1"]


def test_resync_replaces_the_partition_of_a_network_that_had_the_p_key_before(neutron, server, resync):
    server.partitions[100] = partition(OTHER, name="neutron-" + "0" * 20)
    neutron.networks, neutron.ports = [NETWORK_ROW], [BOUND | {"status": "ACTIVE"}]
    assert resync()
    assert (server.partitions[100]["partition"], server.members(100)) == (NAME, {GUID})


def test_resync_ends_after_three_rounds_of_changes(neutron, server, resync, monkeypatch):
    neutron.networks = [NETWORK_ROW]
    monkeypatch.setattr(server, "answer", lambda *call, answer=server.answer: forgetful(server, answer, *call))
    assert resync()
    assert sum(call.endswith("pkeys/add") for call in server.calls) == 3


def forgetful(server, answer, method, path, body):
    """Answer as a UFM whose partitions vanish before they are listed."""
    if (method, path) == ("GET", "resources/pkeys"):
        server.partitions.clear()
    return answer(method, path, body)


def test_resync_raises_while_ufm_is_away(neutron, server, resync):
    neutron.networks, server.status = [NETWORK_ROW], 503
    with pytest.raises(UfmError):
        resync()


def test_resync_raises_when_ufm_goes_away_between_two_calls(neutron, server, resync, monkeypatch):
    neutron.networks = [NETWORK_ROW]
    monkeypatch.setattr(server, "answer", lambda method, path, body: (200 if path == "resources/pkeys" else 503, {}))
    with pytest.raises(UfmError):
        resync()
    assert neutron.errors == []


def test_the_worker_resyncs_until_it_is_stopped_and_survives_errors(neutron, driver, server):
    neutron.settings.resync_interval = 0.01
    neutron.networks, server.status = [NETWORK_ROW], 503
    (worker,) = driver.get_workers()
    worker.start()
    wait_until(lambda: neutron.errors)
    neutron.networks, server.status = [{}], 200
    wait_until(lambda: "weft's resync failed" in neutron.errors)
    neutron.networks = [NETWORK_ROW]
    wait_until(lambda: server.partitions)
    worker.reset()
    worker.stop()
    worker.wait()
