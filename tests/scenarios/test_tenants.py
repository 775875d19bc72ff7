"""Tenants that attack each other get nowhere; and if there were a way, the scenario would find it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.fabric.forwarding import Reason
from weft.fabric.kinds import NodeKind
from weft.fabric.spec import load
from weft.scenarios import tenants
from weft.scenarios.managed import ManagedSubnet
from weft.scenarios.tenants import CROSSING, FORGED, GUESSED, OWN, RAW, Attack
from weft.sm.conf.options import Options
from weft.tenants.compile import compile_intent
from weft.tenants.intent import parse_intent
from weft.tenants.simulate import planned_inventory
from weft.wire.headers import BTH, DETH, LRH, Opcode
from weft.wire.packet import Link, icrc_is_right, parse

STEPS: list[tuple[int, int]] = []


@pytest.fixture(scope="module")
def finding():
    return tenants.run(attempts=3_000, progress=lambda done, total, name: STEPS.append((done, total)))


def test_each_kind_of_switch_is_a_step_of_two(finding):
    assert STEPS == [(0, 2), (1, 2)]


def test_nothing_gets_across_where_switches_check_keys(finding):
    assert finding.figures["cross_tenant_attempts"] > 3_000
    assert finding.figures["cross_tenant_deliveries"] == 0
    assert finding.figures["proved"] == [True] * 6
    assert "0 of 3,550 packets across tenants were delivered" in finding.finding


def test_no_port_obeys_a_foreign_subnet_manager(finding):
    assert finding.figures["foreign_sets"] == 2 * 3 * (16 + 6 * 8)  # each port, three times with each kind of switch
    assert finding.figures["foreign_sets_taken"] == 0
    assert "0 were obeyed" in finding.finding


def test_without_an_m_key_ports_obey_a_foreign_subnet_manager():
    """Else zero would prove nothing."""
    net = ManagedSubnet(load(tenants.SPEC), Options())
    allocation = compile_intent(parse_intent(tenants.INTENT), planned_inventory(load(tenants.SPEC))).allocation
    attack = Attack(net.devices, net.hosts.astype("int64"), net.carrier.slot, allocation, 1)
    tenants._invade(net, attack)
    assert attack.foreign_sets_taken == attack.foreign_sets


def test_packets_within_a_tenant_arrive(finding):
    """Else zero would prove nothing. Some are lost at the moment of a fault, and only then."""
    assert finding.figures["controls_lost_in_calm"] == 0
    assert 0.8 < finding.figures["control_deliveries"] / finding.figures["control_attempts"] < 1


def test_switches_count_every_packet_that_they_stop(finding):
    assert finding.figures["violations_counted"] == finding.figures["violations"] > 2_000


def test_without_checks_forged_keys_and_raw_packets_open_the_door(finding):
    without = finding.figures["without_checks"]
    assert without[OWN]["delivered"] == 0
    assert without[FORGED]["delivered"] > 0.8 * without[FORGED]["sent"]
    assert without[RAW]["delivered"] > 0.8 * without[RAW]["sent"]
    assert finding.figures["unguarded_ports"] == 16


def test_the_chart_counts_packets_across_tenants_only(finding, tmp_path):
    tenants.draw(finding, tmp_path / "tenants.svg")
    drawn = (tmp_path / "tenants.svg").read_text()
    assert drawn.count("<!-- 0 delivered -->") >= 5
    assert drawn.count("#8e44ad") == 4  # a tenant's own bars, and the legend


def test_no_packet_crosses_right_after_a_fault(finding):
    """A switch that has restarted holds no keys yet, and passes nothing on."""
    lost = {(row[0], row[1]): row[-1] for row in finding.rows}
    assert all(count > 0 for count in lost.values())


def test_a_door_that_is_open_is_found(monkeypatch):
    write = tenants.write_partitions
    monkeypatch.setattr(tenants, "write_partitions", lambda expected: write(replace(expected, default_is_full=True)))
    figures = tenants.run(attempts=1_000).figures
    assert figures["cross_tenant_deliveries"] > 100
    assert not any(figures["proved"])


def test_no_packet_crosses_while_the_subnet_manager_configures(tmp_path):
    """Leaves restart with no tables but the standard's; after each wave of MADs by which they get theirs."""
    fabric = load(tenants.SPEC)
    allocation = compile_intent(parse_intent(tenants.INTENT), planned_inventory(fabric)).allocation
    (tmp_path / "partitions.conf").write_text(tenants.write_partitions(allocation))
    net = ManagedSubnet(fabric, Options(partition_config_file=tmp_path / "partitions.conf"))
    attack = Attack(net.devices, net.hosts.astype("int64"), net.carrier.slot, allocation, seed=1)
    exchange, waves = net.carrier.exchange, []

    def watched(mads, *args, **arguments):
        answers = exchange(mads, *args, **arguments)
        attack.send(100, is_calm=False)
        waves.append(len(mads))
        return answers

    net.carrier.exchange = watched
    for node in net.fabric.of_kind(NodeKind.SWITCH).tolist()[:2]:
        tenants._restart(net, node)
        net.settle()
    assert len(waves) > 20
    crossing = [attack.tallies[kind] for kind in (*CROSSING, RAW)]
    assert sum(each.delivered for each in crossing) == 0
    assert sum(each.ends.get(Reason.INBOUND, 0) for each in crossing) > 100


def test_attempts_are_whole_packets_of_both_transports_on_all_service_levels():
    fabric = load(tenants.SPEC)
    allocation = compile_intent(parse_intent(tenants.INTENT), planned_inventory(fabric)).allocation
    attack, _ = tenants._attack("both", allocation, 1_000, seed=1)
    packets = [row.tobytes() for row in attack._packets(attack.strangers, np.full(len(attack.strangers), 0x8001))]
    read = [parse(raw, Link.INFINIBAND)[0] for raw in packets]
    assert all(icrc_is_right(raw, Link.INFINIBAND) for raw in packets)
    assert {each[BTH].opcode for each in read} == {Opcode.RC_SEND_ONLY, Opcode.UD_SEND_ONLY}
    assert {each[LRH].sl for each in read} == set(range(16))
    assert {each[DETH].q_key for each in read if DETH in each} == {0x1234}
    assert attack.tallies[GUESSED].ends.keys() <= {Reason.INBOUND, Reason.OUTBOUND, Reason.INACTIVE, Reason.NO_ROUTE}
    assert sum(attack.tallies[kind].sent for kind in CROSSING) == 1_000


def test_too_few_attempts_are_refused():
    with pytest.raises(ConfigError, match="--attempts must be 1,000 or more"):
        tenants.run(attempts=10)


def tallied(sent: int, delivered: int, **ends: int) -> SimpleNamespace:
    return SimpleNamespace(sent=sent, delivered=delivered, ends={Reason[name]: count for name, count in ends.items()})


def test_packets_are_counted_by_the_place_that_stopped_them():
    kinds = (*tenants.KINDS,)
    tallies = {kind: tallied(100, 10, INBOUND=60, P_KEY=20) for kind in kinds}
    attack = SimpleNamespace(tallies=tallies, controls_lost=1, counted=55, foreign_sets=7, foreign_sets_taken=0)
    assert tenants._row(tenants.CHECK, OWN, attack) == (
        "check keys", "one that the sender holds", 100, 10, 60, 0, 20, 10,
    )  # fmt: skip
    proof = SimpleNamespace(ok=True, unguarded=("h1/1", "h2/1"))
    trusting = SimpleNamespace(
        tallies={kind: tallied(50, 5) for kind in kinds}, controls_lost=2, foreign_sets=3, foreign_sets_taken=1
    )
    figures = tenants._figures({tenants.CHECK: (attack, [proof]), tenants.TRUST: (trusting, [proof])})
    crossing = len({*CROSSING, RAW})
    assert (figures["cross_tenant_attempts"], figures["cross_tenant_deliveries"]) == (100 * crossing, 10 * crossing)
    assert (figures["violations"], figures["violations_counted"]) == (60 * len(kinds), 55)
    assert (figures["controls_lost_in_calm"], figures["foreign_sets"], figures["foreign_sets_taken"]) == (3, 10, 1)
    assert (figures["unguarded_ports"], figures["proved"]) == (2, [True, True])
    assert figures["without_checks"][FORGED] == {"sent": 50, "delivered": 5}
    assert "the tables prove the same each time" in tenants._sentence(figures)
    assert "THE TABLES DO NOT PROVE IT" in tenants._sentence(figures | {"proved": [True, False]})
