"""A follower reports how a subnet differs from its plan, its tenants and its routing policy."""

from __future__ import annotations

import pytest

import weft
from weft.errors import FileError
from weft.fabric.tables import NO_ROUTE
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.monitor.poll import Poller
from weft.plan.audit.positions import Planned
from weft.routing.route import route
from weft.sm.run import SubnetManager
from weft.tenants.intent import Intent, Tenant
from weft.twin.deviations import Comparison, Expected
from weft.twin.follow import Follower
from weft.twin.history import History
from weft.twin.metrics import render
from weft.twin.policy import Policy, read_policy
from weft.twin.source import RunningSubnet
from weft.wire.mad import Method

TREE = "fat-tree:hosts=16,radix=8"
TENANTS = Intent(tenants={"blue": Tenant(hosts=("h[5-6]",)), "red": Tenant(hosts=("h[7-8]",))})


@pytest.fixture
def lab():
    with Lab(weft.load(TREE)) as running:
        manager = IbsimCarrier("h1", running.sockname)
        SubnetManager(manager).run(once=True)
        manager.close()
        yield running


@pytest.fixture
def follow(lab):
    carrier = IbsimCarrier("h2", lab.sockname)
    yield lambda expected: Follower(RunningSubnet(Poller(carrier)), History("sqlite://"), expected=expected)
    carrier.close()


def slot(lab, name):
    return lab.fabric.find_port(name).slot


def give_keys(lab):
    """Isolate blue and red, as a subnet manager on h1 writes it, without checks at switches."""
    keys = lab.fabric.tables.pkey
    for host in range(1, 17):
        keys[slot(lab, f"h{host}/1"), :2] = 0xFFFF if host == 1 else 0x7FFF, 0
    for host, key in ((5, 0x8021), (6, 0x8021), (7, 0x8033), (8, 0x8033)):
        keys[slot(lab, f"h{host}/1"), 1] = key


def test_a_cable_that_is_pulled_deviates_from_the_plan_until_it_is_back(lab, follow):
    follower = follow(Expected(plan=Planned(fabric=weft.load(TREE))))
    follower.poll()
    assert follower.deviations == {}
    lab.break_cable("leaf1/5")
    changes = {(each.kind, each.name): each.after for each in follower.poll()}
    assert changes["plan", "leaf1/5"] == "leaf1/5 - spine1/1 is missing" == follower.deviations["plan", "leaf1/5"]
    assert 'weft_deviations{kind="plan"} 1\n' in render(follower).decode()
    assert 'weft_deviation{kind="plan",name="leaf1/5"} 1\n' in render(follower).decode()
    lab.fix()
    assert [each.after for each in follower.poll() if each.kind == "plan"] == [None]


def test_a_tenant_that_reaches_another_or_loses_a_port_is_reported_by_sender(lab, follow):
    give_keys(lab)
    follower = follow(Expected(tenants=TENANTS))
    follower.poll()
    assert follower.deviations == {}
    keys = lab.fabric.tables.pkey
    keys[slot(lab, "h8/1"), 2] = 0x8021
    follower.poll()
    assert follower.deviations["isolation", "h8/1"] == "reaches h5/1, h6/1 on 0x0021 (blue)"
    assert follower.deviations["isolation", "h5/1"] == "reaches h8/1 on 0x0021 (blue)"
    keys[slot(lab, "h8/1"), 1:3] = 0
    follower.poll()
    assert follower.deviations["isolation", "h8/1"] == "does not reach h7/1 on 0x0033 (red)"
    assert set(follower.deviations) == {("isolation", "h7/1"), ("isolation", "h8/1")}


def test_a_subnet_manager_on_another_host_is_foreign(lab, follow):
    follower = follow(Expected(policy=Policy(managers=("h[1-2]",))))
    follower.poll()
    assert follower.deviations == {}
    other = IbsimCarrier("h9", lab.sockname)
    other.set_is_sm(True)
    follower.poll()
    lid = lab.fabric.find_port("h9/1").lid
    text = f"a subnet manager that the policy does not allow: LID {lid}, not the master"
    assert follower.deviations == {("foreign-sm", "h9"): text}
    other.close()
    assert follow(Expected(policy=Policy(managers=("h2",)))).poll() == []


def test_tables_that_change_without_a_cable_are_reported_and_proofs_are_repeated(lab, follow):
    follower = follow(Expected(policy=Policy(steady=True, proved=True)))
    follower.poll()
    assert follower.deviations == {}
    lid = lab.fabric.find_port("h9/1").lid
    lab.fabric.tables.lft[0, lid] = NO_ROUTE
    follower.poll()
    switch = lab.fabric.nodes.name[lab.fabric.tables.switch_row.tolist().index(0)]
    steady, reach = follower.deviations["tables", switch], follower.deviations["tables", "reach"]
    assert steady.startswith("other routes to 1 LID since ")
    assert "pairs cannot communicate: " in reach
    assert len(follower.deviations) == 2


def test_tables_may_change_within_ten_seconds_after_a_cable():
    comparison = Comparison(Expected(policy=Policy(steady=True)))
    before = route(weft.load(TREE)).fabric
    assert comparison.compare(before, 0.0) == {}
    broken = route(before.without("leaf1/5")).fabric
    assert comparison.compare(broken, 1.0) == {}
    changed = broken.configured(broken.tables)
    changed.tables.lft = broken.tables.lft.copy()
    changed.tables.lft[0, 1] ^= 1
    assert comparison.compare(changed, 10.9) == {}  # the manager may still write
    assert comparison.compare(changed, 11.0) == {}  # settled: these tables are the reference
    changed.tables.lft[0, 2] ^= 1
    assert [name for _, name in comparison.compare(changed, 12.0)] == ["leaf1"]


def test_a_check_is_repeated_after_its_input_has_changed():
    comparison = Comparison(Expected())
    first, again, other = (comparison._cached("tables", checksum, dict) for checksum in (1, 1, 2))
    assert again is first
    assert other is not first


def test_a_follower_sends_only_gets(lab):
    carrier = IbsimCarrier("h2", lab.sockname)
    exchange, methods = carrier.exchange, set()

    def record(mads, *others, **options):
        methods.update(mads[:, 3].tolist())
        return exchange(mads, *others, **options)

    carrier.exchange = record
    Follower(RunningSubnet(Poller(carrier)), History("sqlite://")).poll()
    carrier.close()
    assert methods == {Method.GET}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no rule"),
        ("manager = ['h1']", "manager"),
        ("steady = 'yes'", "policy.toml:1"),
        ("proved = true\nmanagers = ['h[1-']", "h[1-"),
    ],
)
def test_a_policy_without_a_known_rule_is_refused(tmp_path, text, reason):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(FileError) as refused:
        read_policy(path)
    assert reason in str(refused.value)


def test_a_policy_lists_hosts_as_a_hostlist(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('managers = ["h[1-2]", "spine1"]\n')
    policy = read_policy(path)
    assert policy.manager_names == {"h1", "h2", "spine1"}
    assert (policy.steady, policy.proved) == (False, False)
