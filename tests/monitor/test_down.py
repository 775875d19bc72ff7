"""Cables, switches and hosts that are down, and GUIDs that are not unique, as a poller reports them."""

from __future__ import annotations

import pytest
from tests.fabric.duplicates import with_port_guid
from tests.monitor.watched import Watched

import weft
from weft.errors import ConfigError
from weft.monitor.change import between
from weft.monitor.columns import Column
from weft.monitor.diagnose import diagnose
from weft.monitor.exporter import render
from weft.monitor.impact import read_jobs, read_routed
from weft.monitor.poll import Poller
from weft.monitor.ports import Cabling, cabling_of
from weft.monitor.watch import Latest
from weft.wire.port_info import PortInfo, PortPhysicalState


def diagnosis_of(poller: Poller):
    """Return the diagnosis of two polls."""
    return diagnose([between(poller.poll(), poller.poll())])


def planned(seen: Watched, plan=None) -> Poller:
    """Return a new poller with a plan, by default the fabric's own cabling."""
    return Poller(seen.carrier, expected=plan or cabling_of(seen.fabric))


def only(diagnosis):
    (suspect,) = diagnosis.suspects
    return suspect


def test_a_planned_cable_that_was_never_up_is_a_suspect():
    observed = Watched()
    observed.break_("leaf1/3")
    assert diagnosis_of(Poller(observed.carrier)).is_well  # without a plan there is no evidence
    suspect = only(diagnosis_of(planned(observed)))
    assert (suspect.kind, suspect.ends, suspect.confidence) == ("link down", ("leaf1/3", "spine1/1"), 1.0)
    assert suspect.evidence[:2] == ("leaf1/3 is Down (Polling).", "spine1/1 is Down (Polling).")


def test_a_cable_that_an_earlier_poll_saw_is_a_suspect_once_and_for_as_long_as_it_is_out():
    observed = Watched()
    observed.poll()
    observed.break_("leaf1/3")
    for _ in range(3):
        suspect = only(diagnosis_of(observed.poller))
        assert (suspect.kind, suspect.ends) == ("link down", ("leaf1/3", "spine1/1"))


def test_evidence_of_a_link_that_went_down_while_it_was_watched_has_its_counts():
    observed = Watched()
    before = observed.poll()
    observed.break_("leaf1/3")
    suspect = only(diagnose([between(before, observed.poll())]))
    assert suspect.kind == "link down"
    assert any("The link went down once" in line for line in suspect.evidence)


def test_a_port_that_was_disabled_is_reported_as_disabled():
    observed = Watched()
    slot = observed.slot("leaf1/3")
    observed.break_("leaf1/3")
    PortInfo.port_physical_state.set(observed.devices.info(slot), PortPhysicalState.DISABLED)
    suspect = only(diagnosis_of(planned(observed)))
    assert "leaf1/3 is Down (Disabled)." in suspect.evidence
    assert "ibportstate" in suspect.action


@pytest.mark.parametrize("is_planned", [True, False])
def test_a_switch_that_is_down_is_named_instead_of_its_cables_and_hosts(is_planned):
    observed = Watched()
    observed.poll()
    observed.break_("leaf3")
    suspect = only(diagnosis_of(planned(observed) if is_planned else observed.poller))
    assert (suspect.kind, suspect.ends, suspect.name) == ("switch down", ("leaf3",), "leaf3")
    assert "none of its 4 cables is up" in suspect.evidence[0]
    assert "2 host ports behind it cannot be reached: h5/1, h6/1." in suspect.evidence[1]
    latest = Latest(every_s=1.0, reading=observed.poll(), diagnosis=diagnosis_of(observed.poller))
    metrics = render(latest, now_s=0.0).decode()
    assert "\nweft_links_down 4\n" in metrics
    assert 'weft_suspect_confidence{port="leaf3",peer="",kind="switch down"} 1.0\n' in metrics


def test_a_host_that_does_not_answer_is_a_link_that_is_down():
    observed = Watched()
    observed.break_("h5")
    suspect = only(diagnosis_of(planned(observed)))
    assert (suspect.kind, suspect.ends) == ("link down", ("leaf3/1", "h5/1"))
    assert suspect.evidence == ("leaf3/1 is Down (Polling).", "h5 does not answer.")
    assert "Check whether h5 is switched on" in suspect.action


def drops(poller: Poller, *ports: str):
    """Return the diagnosis of two polls, between which packets without a route arrive at these ports."""
    change = between(poller.poll(), poller.poll())
    for port in ports:
        slot = change.ports.fabric.find_port(port).slot
        for column in (Column.PORT_RCV_SWITCH_RELAY_ERRORS, Column.DLID_MAPPING):
            change.delta[slot, column], change.known[slot, column] = 5000, True
    return diagnose([change])


def test_drops_of_packets_to_an_absent_host_are_noted_as_its_consequence():
    observed = Watched()
    observed.break_("h5")
    diagnosis = drops(planned(observed), "leaf1/1", "leaf2/1")
    assert only(diagnosis).kind == "link down"
    (note,) = diagnosis.notes
    assert note.startswith("2 ports received packets for LIDs without a route (leaf1/1, leaf2/1). h5 does not answer")


def test_drops_are_suspects_while_all_hosts_answer():
    observed = Watched()
    observed.break_("leaf1/3")
    diagnosis = drops(planned(observed), "leaf1/1")
    assert [suspect.kind for suspect in diagnosis.suspects] == ["link down", "misrouted"]


def test_a_server_without_any_adapter_is_named_instead_of_its_cables():
    observed = Watched("superpod:su=1,radix=8,servers=2")
    observed.break_("dgx2")
    suspect = only(diagnosis_of(planned(observed)))
    assert (suspect.kind, suspect.ends) == ("host down", ("dgx2",))
    assert "8 cables to it are down" in suspect.evidence[0]


def test_a_cable_that_was_moved_is_not_down():
    item, other = ("a/1", "b/1"), ("a/1", "b/2")
    cabling = Cabling(cables=frozenset([item]), switches=frozenset("ab"))
    now = Cabling(cables=frozenset([other]), switches=frozenset("ab"))
    assert cabling.updated(now).missing(now) == []


def test_subnets_of_a_plan_that_the_poller_is_not_in_are_not_missing():
    observed = Watched()
    mine = cabling_of(observed.fabric)
    plan = Cabling(cables=mine.cables | {("other/1", "switch/1")}, switches=mine.switches | {"switch"})
    assert diagnosis_of(planned(observed, plan)).is_well


def test_two_ports_with_one_guid_are_a_suspect_that_names_the_winner():
    observed = Watched(with_port_guid(weft.load("fat-tree:hosts=8,radix=4"), "h7/1", of="h5/1"))
    suspect = only(diagnosis_of(planned(observed)))
    assert (suspect.kind, suspect.ends) == ("duplicate GUID", ("h7/1", "h5/1"))
    assert suspect.evidence[0] == f"h7/1 has the port GUID {observed.fabric.find_port('h5/1').guid} of h5/1."


def test_a_plan_of_another_fabric_is_refused():
    plan = Cabling(cables=frozenset([("node1/1", "switch1/1")]), switches=frozenset(["switch1"]))
    with pytest.raises(ConfigError, match="the plan is of another fabric: it has node1"):
        planned(Watched(), plan).poll()


def test_a_job_is_weighed_without_its_hosts_that_are_down():
    observed = Watched()
    observed.break_("h5")
    fabric = read_routed(observed.carrier.carrier)
    (job,) = read_jobs(
        fabric, [{"name": "train", "pattern": "ring", "hosts": [f"h{n}" for n in range(1, 9)], "wanted_gbit_s": 800.0}]
    )
    assert len(job.hosts) == 7


def test_a_port_that_a_device_of_the_plan_has_and_this_one_has_not_is_named():
    observed = Watched()
    mine = cabling_of(observed.fabric)
    plan = Cabling(cables=mine.cables | {("leaf1/33", "spine1/34")}, switches=mine.switches)
    suspect = only(diagnosis_of(planned(observed, plan)))
    assert suspect.evidence[0] == "leaf1 has no port 33: the plan has another device there."
