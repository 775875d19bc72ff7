"""Plans list the changes; apply makes them, and applying again changes nothing."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests.tenants.memory import MemoryDriver
from tests.tenants.wanted import EXAMPLE, INTENTS, fabric, intent

from weft.errors import SubnetError
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.apply import apply, apply_change, plan_change, remove_all
from weft.tenants.drivers.driver import Checked, FabricChangedError
from weft.tenants.intent import Intent, Tenant
from weft.tenants.partitions import Allocation, Inventory, Member, Partition
from weft.tenants.reconcile import Names, compare, lines, records


@settings(max_examples=25)
@given(INTENTS, INTENTS)
def test_after_apply_the_plan_is_empty(first, then):
    driver = MemoryDriver(fabric())
    for expected in (first, then):
        change = apply(driver, expected)
        assert driver.allocation == change.compiled.allocation
        assert plan_change(driver, expected).plan.is_empty
    closed = driver.allocation.default_is_full
    assert apply(driver, remove_all(then)).plan.after == Allocation(default_is_full=closed) == driver.allocation
    apply_change(driver, plan_change(driver, remove_all(then), open_default=True))
    assert driver.allocation == Allocation()


@settings(max_examples=25)
@given(INTENTS, INTENTS)
def test_the_changes_of_a_plan_lead_to_the_desired_state(first, then):
    before = plan_change(MemoryDriver(fabric()), first).compiled.allocation
    after = plan_change(MemoryDriver(fabric()), then).compiled.allocation
    plan = compare(before, after)
    partitions = dict(before.partitions)
    for change in plan.partitions:
        present = partitions.pop(change.partition.p_key, None)
        members = dict(present.members) if present else {}
        for guid, (old, new) in change.members.items():
            assert members.pop(guid, None) == old
            members |= {} if new is None else {guid: new}
        if change.after is not None:
            assert members == change.after.members
            partitions[change.after.p_key] = change.after
    assert partitions == after.partitions


def shown(plan):
    return "\n".join([*lines(plan, Names(fabric(8, ports=2))), plan.summary])


def test_a_plan_is_printed_as_terraform_does(tmp_path):
    driver = MemoryDriver(fabric(8, ports=2))
    change = apply(driver, intent(tmp_path, EXAMPLE))
    assert shown(change.plan) == textwrap.dedent(
        """\
        + acme=0x0100, SL 1, IPoIB
            + h[1-2] full, index 0
        + nas=0x0101, SL 2
            + h8 full
            + h[1-2] limited
        + beta=0x0200
            + h3/2, h4/1, 0x0000000000009901 full, index 0
        ~ Default=0x7fff
            ~ members full -> limited
        + lanes
            + high_limit 1
            + vlarb_high 1:64
            + vlarb_low 0:64,2:128,2:128
            + sl2vl 0,1,2,0,0,0,0,0,0,0,0,0,0,0,0,0
        Plan: 3 to create, 2 to change, 0 to destroy."""
    )
    less = EXAMPLE.replace("h[1-2]", "h[2-3]").replace('"h3/2"', "").replace("ipoib = true", 'membership = "limited"')
    change = apply(driver, intent(tmp_path, less.replace("[service.nas]", "[service.san]")))
    assert shown(change.plan) == textwrap.dedent(
        """\
        ~ acme=0x0100, SL 1
            ~ ipoib on -> off
            ~ h2 full, index 0 -> limited, index 0
            + h3 limited, index 0
            - h1 full, index 0
        - nas=0x0101, SL 2
            - h8 full
            - h[1-2] limited
        + san=0x0102, SL 2
            + h8 full
            + h[2-3] limited
        ~ beta=0x0200
            - h3/2 full, index 0
        Plan: 1 to create, 2 to change, 1 to destroy."""
    )
    assert [
        (record["action"], record["name"], len(record["members"])) for record in records(change.plan, Names(fabric()))
    ] == [
        ("change", "acme", 6),
        ("destroy", "nas", 6),
        ("create", "san", 6),
        ("change", "beta", 1),
    ]
    assert shown(plan_change(driver, intent(tmp_path, less)).plan).endswith("1 to destroy.")


def test_applying_twice_writes_nothing(tmp_path):
    driver = MemoryDriver(fabric(8, ports=2))
    for _ in range(2):
        change = apply(driver, intent(tmp_path, EXAMPLE))
    assert (driver.writes, shown(change.plan)) == (1, "No changes: the fabric matches the intent.")


def test_a_refused_change_leaves_the_fabric_unchanged(tmp_path):
    driver = MemoryDriver(fabric(8, ports=2))
    driver.refuses = True
    with pytest.raises(SubnetError, match="h1/1 refuses"):
        apply(driver, intent(tmp_path, EXAMPLE))
    assert driver.allocation == Allocation()


def test_a_fabric_that_loses_a_change_is_detected(tmp_path):
    driver = MemoryDriver(fabric(8, ports=2))
    driver.forgets = True
    with pytest.raises(
        SubnetError, match=r"memory accepted the change but now reports a different state(.|\n)*\+ acme=0x0100"
    ):
        apply(driver, intent(tmp_path, EXAMPLE))


def test_an_outdated_plan_is_not_applied(tmp_path):
    driver = MemoryDriver(fabric(8, ports=2))
    change = plan_change(driver, intent(tmp_path, EXAMPLE))
    apply(driver, intent(tmp_path, "[tenant.other]"))
    with pytest.raises(FabricChangedError):
        apply_change(driver, change)
    assert [partition.name for partition in driver.allocation.partitions.values()] == ["other"]


def test_drifted_ports_are_in_the_plan_and_repaired_by_apply(tmp_path):
    driver, expected = MemoryDriver(fabric(8, ports=2)), intent(tmp_path, EXAMPLE)
    apply(driver, expected)
    driver.drift.append("h2/1: lacks P_Key 0x8100")
    change = plan_change(driver, expected)
    assert (change.plan.is_empty, change.is_empty, change.drift) == (True, False, ("h2/1: lacks P_Key 0x8100",))
    repair = "To repair: the P_Key tables of 1 port, which differ from the subnet manager's configuration."
    assert change.summary == repair
    assert driver.drift, "a plan repairs nothing"
    apply_change(driver, change)
    assert plan_change(driver, expected).is_empty
    driver.drift.append("h2/1: lacks P_Key 0x8100")
    assert (
        plan_change(driver, remove_all(expected)).summary == f"Plan: 0 to create, 1 to change, 3 to destroy. {repair}"
    )


def test_ports_that_differ_after_one_repair_are_an_error(tmp_path):
    driver, expected = MemoryDriver(fabric(8, ports=2)), intent(tmp_path, EXAMPLE)
    apply(driver, expected)
    calls: list[bool] = []
    driver.check = lambda repair: calls.append(repair) or Checked(differences=tuple("abcdef"), repaired=())
    with pytest.raises(SubnetError, match=r"memory still differs after the repair: a; b; c; d$"):
        apply(driver, expected)
    assert calls == [False, True, False]


def test_changed_options_and_lanes_are_printed_and_recorded():
    """Only the QoS options that differ are printed."""
    lanes = QosOptions(high_limit=4, vlarb_low=((0, 64), (1, 64)), sl2vl=(0, 1) * 8)
    limited = Partition(name="a", p_key=1, sl=2, mtu_bytes=4096, members={0x101: Member(full=False)})
    before = Allocation(partitions={1: limited}, default_is_full=False, lanes=lanes)
    after = Allocation(partitions={1: Partition(name="a", p_key=1, ipoib=True)}, lanes=replace(lanes, high_limit=5))
    names = Names(fabric())
    assert [*lines(compare(before, after), names)] == [
        "~ a=0x0001, IPoIB",
        "    ~ ipoib off -> on",
        "    ~ sl 2 -> 0",
        "    ~ mtu_bytes 4096 -> none",
        "    - h1 limited",
        "~ Default=0x7fff",
        "    ~ members limited -> full",
        "~ lanes",
        "    ~ high_limit 4 -> 5",
    ]
    assert [*lines(compare(before, replace(before, lanes=None)), names)] == [
        "- lanes",
        "    - high_limit 4",
        "    - vlarb_low 0:64,1:64",
        "    - sl2vl 0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1",
    ]
    partition, default, changed = records(compare(before, after), names)
    member = {"guid": "0x0000000000000101", "port": "h1/1", "is_there": True, "before": "limited", "after": None}
    assert (partition["p_key"], partition["sl"], partition["ipoib"]) == ("0x0001", 0, True)
    assert (partition["members"], partition["changed"]["sl"]) == ([member], {"before": 2, "after": 0})
    assert default == {
        "action": "change", "what": "Default", "p_key": "0x7fff", "before": "limited", "after": "full"
    }  # fmt: skip
    assert (changed["action"], changed["before"]["high_limit"], changed["after"]["high_limit"]) == ("change", "4", "5")
    ends = [(before, replace(before, lanes=None)), (replace(before, lanes=None), before)]
    assert [records(compare(*pair), names)[0]["action"] for pair in ends] == ["destroy", "create"]


def test_a_record_of_a_port_has_its_name_and_whether_it_is_in_the_fabric():
    present, down = fabric(2).ports
    names = Names(Inventory((present, replace(down, is_there=False))))
    assert [(names.record(guid)["port"], names.record(guid)["is_there"]) for guid in (0x101, 0x201, 0x999)] == [
        ("h1/1", True),
        ("h2/1", False),
        ("", False),
    ]


RED = Partition(name="red", p_key=1, members={0x101: Member()})


@pytest.mark.parametrize(
    ("before", "after", "summary"),
    [
        ({}, {}, "No changes: the fabric matches the intent."),
        ({}, {"partitions": {1: RED}}, "Plan: 1 to create, 0 to change, 0 to destroy."),
        ({"partitions": {1: RED}}, {}, "Plan: 0 to create, 0 to change, 1 to destroy."),
        ({}, {"default_is_full": False}, "Plan: 0 to create, 1 to change, 0 to destroy."),
        ({}, {"lanes": QosOptions()}, "Plan: 0 to create, 1 to change, 0 to destroy."),
        (
            {"partitions": {1: RED}},
            {"partitions": {1: replace(RED, sl=1)}, "default_is_full": False, "lanes": QosOptions()},
            "Plan: 0 to create, 3 to change, 0 to destroy.",
        ),
        (
            {"partitions": {1: RED}},
            {"partitions": {2: replace(RED, p_key=2)}},
            "Plan: 1 to create, 0 to change, 1 to destroy.",
        ),
    ],
)
def test_a_plan_counts_partitions_and_the_common_settings(before, after, summary):
    plan = compare(Allocation(**before), Allocation(**after))
    assert (plan.summary, plan.is_empty) == (summary, before == after)


def test_members_that_stay_are_not_in_a_change():
    old = replace(RED, members={0x101: Member(), 0x201: Member(), 0x301: Member(), 0x401: Member(index0=True)})
    new = replace(RED, members={0x101: Member(), 0x201: Member(full=False), 0x501: Member(index0=True)})
    (change,) = compare(Allocation(partitions={1: old}), Allocation(partitions={1: new})).partitions
    assert [*change.members] == [0x201, 0x501, 0x301, 0x401]
    assert (change.action, change.options) == ("change", {})
    text = [*lines(compare(Allocation(partitions={1: old}), Allocation(partitions={1: new})), Names(fabric()))]
    assert text == [
        "~ red=0x0001",
        "    ~ h2 full -> limited",
        "    + h5 full, index 0",
        "    - h3 full",
        "    - h4 full, index 0",
    ]


def test_ports_are_named_by_host_if_all_of_a_host_are_listed():
    names = Names(fabric(12, ports=2))
    assert names.spell([0x101, 0x102, 0x201, 0x202]) == "h[1-2]"
    assert names.spell([0x999, 0x102, 0xA01, 0x201, 0x202]) == "h2, h1/2, h10/1, 0x0000000000000999"
    assert names.spell([0xA01, 0x301]) == "h3/1, h10/1"  # in the order of numbers
    assert names.spell([]) == ""


def test_lanes_that_stay_are_not_in_a_plan():
    lanes = QosOptions(high_limit=4, sl2vl=(0, 1) * 8)
    plan = compare(Allocation(lanes=lanes), Allocation(lanes=replace(lanes, high_limit=4)))
    assert plan.is_empty
    plan = compare(Allocation(), Allocation(lanes=lanes))
    assert [*lines(plan, Names(fabric()))] == [
        "+ lanes",
        "    + high_limit 4",
        "    + sl2vl 0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1",
    ]


def test_default_is_opened_only_if_no_partition_is_left():
    driver = MemoryDriver(fabric())
    driver.allocation = Allocation(partitions={1: RED}, default_is_full=False)
    kept, removed = Intent(tenants={"red": Tenant(hosts=("h1",))}), Intent()
    for wanted, opens, expected in ((kept, True, False), (removed, False, False), (removed, True, True)):
        assert plan_change(driver, wanted, open_default=opens).compiled.allocation.default_is_full is expected


def test_the_range_of_p_keys_stays_when_all_is_removed():
    assert remove_all(Intent(p_keys="0x0010-0x0020", tenants={"a": Tenant()})) == Intent(p_keys="0x0010-0x0020")
