"""An intent is compiled to P_Keys, members and lanes; invalid ones are refused with their line."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from tests.tenants.wanted import EXAMPLE, INTENTS, NAMES, TENANTS, fabric, intent, refusal

from weft.errors import ConfigError
from weft.fabric.files.lab.document import Document
from weft.tenants.compile import compile_intent
from weft.tenants.intent import Class, Intent, IntentError, Service, Tenant, intent_of, lines_of, parse_intent
from weft.tenants.partitions import Allocation, Inventory, Member, Partition
from weft.tenants.quality import check_shares, lay_lanes


def test_tenants_are_full_members_and_limited_ones_of_a_service(tmp_path):
    compiled = compile_intent(intent(tmp_path, EXAMPLE), fabric(8, ports=2))
    acme, nas, beta = compiled.allocation.partitions.values()
    assert (acme.name, acme.p_key, acme.ipoib, acme.sl) == ("acme", 0x100, True, 1)
    assert acme.members == dict.fromkeys((0x101, 0x102, 0x201, 0x202), Member(index0=True))
    assert (beta.p_key, [*beta.members]) == (0x200, [0x302, 0x401, 0x9901])
    full = {guid for guid, member in nas.members.items() if member.full}
    assert (nas.p_key, nas.sl, full, nas.members.keys() - full) == (0x101, 2, {0x801, 0x802}, acme.members.keys())
    assert not compiled.allocation.default_is_full
    assert compiled.notes == (
        "tenant beta: 0x0000000000009901 is not in the fabric now; it gets its P_Keys when it comes up",
    )


def test_lanes_get_the_requested_shares(tmp_path):
    compiled = compile_intent(intent(tmp_path, EXAMPLE), fabric(8, ports=2))
    lanes = compiled.allocation.lanes
    assert lanes is not None
    assert (lanes.high_limit, lanes.vlarb_high, lanes.vlarb_low) == (1, ((1, 64),), ((0, 64), (2, 128), (2, 128)))
    assert lanes.sl2vl == (0, 1, 2, *[0] * 13)
    assert [(lane.name, lane.sl, lane.vl, lane.asked_percent, lane.given_percent) for lane in compiled.needs] == [
        ("no class", 0, 0, 10, 10),
        ("mpi", 1, 1, 50, 50),
        ("storage", 2, 2, 40, 40),
    ]


def test_without_classes_there_is_one_lane(tmp_path):
    compiled = compile_intent(intent(tmp_path, '[tenant.acme]\nhosts = ["h1"]'), fabric(data_vls=1))
    assert (compiled.allocation.lanes, compiled.needs) == (None, ())


OTHERS = Partition(name="theirs", p_key=0x6000, members={0x801: Member()}, sl=3)
ONE_CLASS = '[class.mpi]\nshare = 50\n[tenant.acme]\nhosts = ["h1"]\nclass = "mpi"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tenant.a]\np_key = "0x7fff"', "tenants.toml:2: tenant a: the P_Key 0x7fff is out of range: it must be"),
        ('p_keys = "0x10-0x20"\n[tenant.a]\np_key = 0x21', ":3: tenant a: the P_Key 0x0021 is out of range"),
        ('[tenant.a]\np_key = "0x0666"', "tenants.toml:2: tenant a: the P_Key 0x0666 is taken by a partition"),
        ("[tenant.a]\np_key = 1\n[tenant.b]\np_key = 1", ":4: tenant b: the P_Key 0x0001 is also requested by a"),
        ('[tenant.a]\np_key = "acme"', "is not a hexadecimal number"),
        ('p_keys = "7-0"', "tenants.toml:1: p_keys: must be a range within 0x0001-0x7ffe"),
        ('p_keys = "0x1-0x2"\n[tenant.a]\n[tenant.b]\n[tenant.c]', "tenant c: no P_Key of p_keys = '0x1-0x2' is free"),
        ('[tenant.a]\nhosts = ["h88"]', "tenants.toml:2: tenant a: there is no host 'h88'; did you mean h8"),
        ('[tenant.a]\nhosts = ["h[1-"]', "tenants.toml:2: tenant a: invalid 'h[1-"),
        ('[tenant.a]\nports = ["h1/9"]', "tenants.toml:2: tenant a: there is no port 'h1/9'; did you mean h1/1"),
        ('[tenant.a]\nguids = ["0x109"]', "there is no port with the GUID '0x0000000000000109'; did you mean"),
        ('[tenant.a]\nguids = ["0x100"]', "0x0000000000000100 is the node GUID of h1; give port GUIDs: 0x000"),
        ('[tenant.a]\nguids = ["zebra"]', "is not a hexadecimal number"),
        ('[tenant.a]\nhosts = ["h1"]\n[tenant.b]\nhosts = ["h1"]', "h1/1 (0x0000000000000101) is also in tenant b"),
        (
            '[tenant.a]\nhosts = ["h1"]\nexclusive = false\n[tenant.b]\nhosts = ["h1"]',
            "tenants.toml:4: tenant b: h1/1 (0x0000000000000101) is also in tenant a",
        ),
        ('[tenant.a]\nhosts = ["h1"]\n[service.s]\nhosts = ["h1"]', "h1/1 (0x0000000000000101) is also in service s"),
        (
            '[tenant.a]\nhosts = ["h1"]\nexclusive = false\nindex0 = true\n'
            '[tenant.b]\nhosts = ["h1"]\nexclusive = false\nindex0 = true',
            "tenants.toml:8: tenant b: h1/1 (0x0000000000000101) has the P_Key of a at index 0 already",
        ),
        ('[tenant.a]\nhosts = ["h[1-3]"]\nquota = { ports = 2 }', "3 ports exceed the quota of 2"),
        ('[tenant.a]\nhosts = ["h1"]\nquota = { hosts = ["h["] }', "in hostlist 'h['"),
        (ONE_CLASS + "quota.share = 40", "class mpi has 50 % of a link, more than the quota of 40 %"),
        ('[tenant.a]\nclass = "mpj"\n[class.mpi]\nshare = 9', "there is no class 'mpj'; did you mean mpi?"),
        ('[service.s]\ntenants = ["b"]\n[tenant.a]', "tenants.toml:2: service s: there is no tenant 'b'"),
        ("[class.a]\nshare = 60\n[class.b]\nshare = 50", "class b: the shares add up to 110 %, more than a link"),
        ("[class.a]\nshare = 60\n[class.b]\nshare = 40", "leaves nothing for traffic without a class"),
        ("[class.a]\nshare = 0", "share must be 1 to 99 %, got 0"),
        ("[class.a]\nshare = 100", "share must be 1 to 99 %, got 100"),
        ('[class.a]\nshare = 20\npriority = "high"', 'priority = "high" needs at least 50 % in total, got 20'),
        ('[class.a]\nshare = 1\npriority = "high"', 'priority = "high" needs at least 50 % in total, got 1'),
        ("[class.a]\nshare = 98", "2 % for no class and 98 % for a need 14 entries"),
        ("[service.a]\n[tenant.a]", "service a: a tenant has the same name"),
        ("[tenant.default]", "tenant default: a name must be a letter and up to 30"),
        (f"[tenant.{'a' * 32}]", "a name must be a letter and up to 30"),
        ("[tenant.a]\nhots = []", "tenants.toml:2: 'hots' is not valid; expected hosts, or another of the keys"),
        ('[tenant.a]\nclas = "mpi"', "tenants.toml:2: 'clas' is not valid; expected class, or another of the keys"),
        ("[tenants.a]", "tenants.toml:1: 'tenants' is not valid; expected tenant, or another of the keys"),
        ("[tenant.a]\nhosts = 7", "tenants.toml:2: '7' is not valid; expected a list"),
        ('[tenant.a]\nipoib = "yes"', "tenants.toml:2: 'yes' is not valid; expected bool"),
        ("tenant = 7", "tenants.toml:1: '7' is not valid; expected tables with names"),
        ("p_keys = 7", "tenants.toml:1: '7' is not valid; expected a range"),
    ],
)  # fmt: skip
def test_invalid_intents_are_refused_with_a_reason(tmp_path, text, said):
    assert said in refusal(tmp_path, text, fabric(), foreign_p_keys=frozenset({0x666}))


@pytest.mark.parametrize(
    "text",
    [
        '[tenant.a]\nhosts = ["h[1-3]"]\nquota = { ports = 3 }',
        ONE_CLASS + "quota.share = 50",
        'p_keys = "0x10-0x20"\n[tenant.a]\np_key = 0x20\n[tenant.b]\np_key = 0x10',
        'p_keys = "0x0001-0x7ffe"\n[tenant.a]\np_key = 0x7ffe',
    ],
)
def test_values_at_their_limit_are_allowed(tmp_path, text):
    assert compile_intent(intent(tmp_path, text), fabric(data_vls=2))
    check_shares({"a": Class(share=60), "b": Class(share=39)})


def test_a_p_key_that_becomes_free_is_assigned_last(tmp_path):
    """Another request for the P_Key of a partition goes first, and the partition gets a new one."""
    text = 'p_keys = "0x1-0x2"\n'
    before = Allocation(partitions={1: Partition(name="old", p_key=1)})

    def p_keys(tenants: str) -> dict[str, int]:
        compiled = compile_intent(intent(tmp_path, text + tenants), fabric(), before=before)
        return {partition.name: p_key for p_key, partition in compiled.allocation.partitions.items()}

    assert p_keys("[tenant.a]") == {"a": 2}
    assert p_keys("[tenant.a]\n[tenant.b]") == {"b": 1, "a": 2}
    assert p_keys("[tenant.old]\n[tenant.a]\np_key = 1") == {"a": 1, "old": 2}


def test_service_levels_follow_the_order_of_classes(tmp_path):
    text = '[class.x]\nshare = 20\n[class.y]\nshare = 20\n[tenant.a]\nclass = "y"\n[tenant.b]\nclass = "x"'
    compiled = compile_intent(intent(tmp_path, text), fabric())
    assert {lane.name: lane.sl for lane in compiled.needs} == {"no class": 0, "x": 1, "y": 2}


def test_lanes_stay_while_a_partition_outside_p_keys_uses_them(tmp_path):
    lanes, _ = lay_lanes({"mpi": Class(share=50)}, {"mpi": 3})
    expected = intent(tmp_path, 'p_keys = "0x1-0xff"\n[tenant.a]')
    for sl, kept in ((3, lanes), (0, None)):
        before = Allocation(partitions={0x6000: replace(OTHERS, sl=sl)}, lanes=lanes)
        assert compile_intent(expected, fabric(), before=before).allocation.lanes == kept


def test_notes_name_tenants_without_ports_or_with_limited_members_only(tmp_path):
    text = """
        [tenant.none]
        [tenant.single]
        hosts = ["h1"]
        membership = "limited"
        [tenant.pair]
        hosts = ["h2", "h3"]
        membership = "limited"
    """
    assert compile_intent(intent(tmp_path, text), fabric()).notes == (
        "tenant none has no ports",
        "tenant pair has limited members only: they do not reach each other",
    )


def test_more_lanes_than_a_port_has_are_refused(tmp_path):
    output = refusal(tmp_path, ONE_CLASS, fabric(data_vls=1))
    assert output.startswith("tenants.toml:5: tenant acme: 2 lanes are needed")
    assert "h1/1 (0x0000000000000101) has 1: use at most 0 classes" in output


def test_shares_are_refused_if_they_need_more_entries_than_the_arbitration_table_of_an_adapter():
    """ConnectX adapters have 8 entries of at most 255 units."""
    options, _ = lay_lanes({"mpi": Class(share=96.5)}, {"mpi": 1})
    assert len(options.vlarb_low) == 8
    with pytest.raises(IntentError, match=r"class mpi: .* need 9 entries of the arbitration table, which has 8"):
        lay_lanes({"mpi": Class(share=96.7)}, {"mpi": 1})
    with pytest.raises(IntentError, match=r"class b: 1 % for b and 60 % for a need .* entries"):
        lay_lanes({"a": Class(share=60), "b": Class(share=1)}, {"a": 1, "b": 2})


def test_lanes_are_ordered_by_service_level_and_list_the_share_that_they_get():
    options, lanes = lay_lanes({"a": Class(share=60, priority="high"), "b": Class(share=13)}, {"a": 2, "b": 1})
    assert (options.high_limit, options.sl2vl) == (2, (0, 1, 2, *[0] * 13))
    assert [(lane.name, lane.vl, lane.is_high, lane.given_percent) for lane in lanes] == [
        ("no class", 0, False, 22.7),
        ("b", 1, False, 10.6),
        ("a", 2, True, 66.7),
    ]
    options, lanes = lay_lanes({"a": Class(share=60)}, {"a": 1})
    assert (options.high_limit, options.vlarb_high, [lane.given_percent for lane in lanes]) == (0, ((0, 0),), [40, 60])


def test_an_error_outside_the_lines_of_a_document_has_no_line(tmp_path):
    path = tmp_path / "tenants.toml"
    path.write_text("[tenant.acme]\nhosts = []\n")
    with pytest.raises(IntentError) as error, lines_of(Document.load(path)):
        raise IntentError(("class", "mpi"), "no port is left")
    assert "tenants.toml" not in str(error.value)


def test_a_full_p_key_table_is_refused(tmp_path):
    text = '[tenant.a]\nhosts = ["h1"]\n[service.s]\nhosts = ["h2"]'
    output = refusal(tmp_path, text, fabric(p_keys=2))
    assert "h1/1 (0x0000000000000101) would need 3 P_Keys including Default's, but its table has 2" in output
    assert len(compile_intent(intent(tmp_path, text), fabric(p_keys=3)).allocation.partitions) == 2


def test_classes_are_refused_if_routing_needs_the_service_levels(tmp_path):
    output = refusal(tmp_path, ONE_CLASS, Inventory(fabric().ports, routing_sls=3))
    assert output.startswith("tenants.toml:1: class mpi: the routing engine of this fabric uses several")


def test_an_exclusive_tenant_cannot_have_the_subnet_managers_port(tmp_path):
    present = Inventory(fabric().ports, manager_guid=0x101)
    output = refusal(tmp_path, '[tenant.a]\nhosts = ["h1"]', present)
    assert output.startswith(
        "tenants.toml:1: tenant a: h1/1 (0x0000000000000101) is the subnet manager's port, which all"
    )
    assert compile_intent(
        intent(tmp_path, '[tenant.a]\nhosts = ["h1"]\nexclusive = false'), present
    ).allocation.partitions


def test_partitions_outside_p_keys_are_kept(tmp_path):
    before = Allocation(partitions={0x6000: OTHERS})
    compiled = compile_intent(intent(tmp_path, 'p_keys = "0x1-0xff"\n[tenant.a]'), fabric(), before=before)
    assert [*compiled.allocation.partitions] == [1, 0x6000]
    assert compiled.allocation.partitions[0x6000] == OTHERS
    output = refusal(tmp_path, f'p_keys = "0x1-0xff"\n{ONE_CLASS}', fabric(), before=before)
    assert "theirs=0x6000, which is outside p_keys, uses service level 3, which these classes would redefine" in output


def test_an_exclusive_tenant_shares_no_port_with_partitions_outside_p_keys(tmp_path):
    text = 'p_keys = "0x1-0xff"\n[tenant.a]\nhosts = ["h8"]\n'
    present = Allocation(partitions={0x6000: Partition(name="theirs", p_key=0x6000, members={0x801: Member()})})
    output = refusal(tmp_path, text, fabric(), before=present)
    assert output.startswith(
        "tenants.toml:2: tenant a: h8/1 (0x0000000000000801) is also a full member of theirs=0x6000"
    )
    assert compile_intent(intent(tmp_path, text + "exclusive = false"), fabric(), before=present)
    limited = Allocation(
        partitions={0x6000: Partition(name="store", p_key=0x6000, members={0x801: Member(full=False)})}
    )
    assert compile_intent(intent(tmp_path, text), fabric(), before=limited)


def test_a_port_that_is_down_keeps_its_membership(tmp_path):
    expected = intent(tmp_path, '[tenant.a]\nguids = ["0x101"]')
    present = compile_intent(expected, fabric()).allocation
    assert compile_intent(expected, Inventory(()), before=present).allocation == present


# -- what stays when something is added --------------------------------------------------------------------------------


@settings(max_examples=25)
@given(INTENTS, TENANTS, NAMES)
def test_adding_a_tenant_changes_no_other_p_key_or_service_level(wanted, tenant, name):
    """This holds wherever in the file it is added."""
    before = compile_intent(wanted, fabric()).allocation
    added = msgspec.structs.replace(tenant, p_key=None)
    more = msgspec.structs.replace(wanted, tenants={f"new-{name}": added} | wanted.tenants)
    after = compile_intent(more, fabric(), before=before).allocation
    assert {partition.name: (partition.p_key, partition.sl) for partition in before.partitions.values()}.items() <= {
        partition.name: (partition.p_key, partition.sl) for partition in after.partitions.values()
    }.items()


@settings(max_examples=25)
@given(INTENTS)
def test_compiling_twice_changes_nothing(wanted):
    before = compile_intent(wanted, fabric()).allocation
    assert compile_intent(wanted, fabric(), before=before).allocation == before


def test_a_new_class_does_not_change_lanes_of_others(tmp_path):
    before = compile_intent(intent(tmp_path, ONE_CLASS), fabric()).allocation
    after = compile_intent(intent(tmp_path, f"[class.new]\nshare = 20\n{ONE_CLASS}"), fabric(), before=before)
    assert {lane.name: lane.sl for lane in after.needs} == {"no class": 0, "mpi": 1, "new": 2}


def test_exclusive_tenants_have_index_0_by_default(tmp_path):
    text = """
        [tenant.alone]
        hosts = ["h1"]
        [tenant.shares]
        hosts = ["h2"]
        exclusive = false
        [tenant.asks]
        hosts = ["h2"]
        exclusive = false
        index0 = true
        [tenant.declines]
        hosts = ["h3"]
        index0 = false
    """
    result = compile_intent(intent(tmp_path, text), fabric()).allocation.partitions.values()
    assert {item.name: {member.index0 for member in item.members.values()} for item in result} == {
        "alone": {True}, "shares": {False}, "asks": {True}, "declines": {False},
    }  # fmt: skip


# -- limits and ties ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p_key", [0, 0x7FFF])
def test_the_p_key_of_default_and_0_are_no_partitions(p_key):
    with pytest.raises(ConfigError, match=r"of a must be from 0x0001 to 0x7ffe; 0x7fff is Default's"):
        Partition(name="a", p_key=p_key)
    assert Partition(name="a", p_key=1).label == "a=0x0001"
    assert Partition(name="a", p_key=0x7FFE).label == "a=0x7ffe"


@pytest.mark.parametrize(("routing_sls", "is_accepted"), [(1, True), (2, False)])
def test_classes_need_all_service_levels_but_one(tmp_path, routing_sls, is_accepted):
    wanted, ports = intent(tmp_path, ONE_CLASS), Inventory(fabric().ports, routing_sls=routing_sls)
    with nullcontext() if is_accepted else pytest.raises(IntentError, match="several service levels against deadlock"):
        compile_intent(wanted, ports)


@pytest.mark.parametrize(
    ("before", "classes", "sls"),
    [
        ({}, {"a": "y", "b": "x"}, {"x": 1, "y": 2, "z": 3}),
        ({"a": 3}, {"a": "x"}, {"x": 3, "y": 1, "z": 2}),
        ({"a": 2, "b": 1}, {"a": "x", "b": "x"}, {"x": 2, "y": 1, "z": 3}),  # the first partition of a class decides
        ({"a": 2, "b": 2}, {"a": "x", "b": "y"}, {"x": 2, "y": 1, "z": 3}),  # a level has one class
        ({"a": 2, "b": 3}, {"a": None, "b": "y"}, {"x": 1, "y": 3, "z": 2}),
        ({"a": 0, "b": 1}, {"a": "x", "b": "y"}, {"x": 2, "y": 1, "z": 3}),
    ],
)
def test_a_class_keeps_the_service_level_of_its_first_partition(before, classes, sls):
    allocation = Allocation(
        partitions={n: Partition(name=name, p_key=n, sl=sl) for n, (name, sl) in enumerate(before.items(), 1)}
    )
    tenants = {name: Tenant(class_=class_) for name, class_ in classes.items()}
    wanted = Intent(classes={name: Class(share=20) for name in "xyz"}, tenants=tenants)
    compiled = compile_intent(wanted, fabric(), before=allocation)
    assert {lane.name: lane.sl for lane in compiled.needs if lane.sl} == sls
    assert {item.name: item.sl for item in compiled.allocation.partitions.values()} == {
        name: sls.get(class_, 0) for name, class_ in classes.items()
    }


def test_an_unused_class_and_missing_ports_are_noted():
    down = tuple(replace(port, is_there=port.number == 1) for port in fabric(2, ports=2).ports)
    wanted = Intent(
        classes={"used": Class(share=20), "idle": Class(share=20)},
        tenants={"a": Tenant(hosts=("h1",), class_="used"), "b": Tenant(hosts=("h2",), absent=("0x999",))},
    )
    assert compile_intent(wanted, Inventory(down)).notes == (
        "tenant a: h1/2 is not in the fabric now; it gets its P_Keys when it comes up",
        "tenant b: h2/2, 0x0000000000000999 are not in the fabric now; they get their P_Keys when they come up",
        "class idle is not used",
    )


@pytest.mark.parametrize(
    ("tenants", "services", "place"),
    [
        ({"a": Tenant(hosts=("h1",)), "b": Tenant(hosts=("h1",), exclusive=False)}, {}, ("tenant", "a")),
        ({"a": Tenant(hosts=("h1",), exclusive=False), "b": Tenant(hosts=("h1",))}, {}, ("tenant", "b")),
        ({"a": Tenant(hosts=("h1",))}, {"s": Service(hosts=("h1",))}, ("tenant", "a")),
        (
            {name: Tenant(hosts=("h1",), exclusive=False, index0=True) for name in "abc"},
            {},
            ("tenant", "b", "index0"),
        ),
        (
            {"a": Tenant(hosts=("h1",), exclusive=False, index0=True), "b": Tenant(hosts=("h1",), exclusive=False)},
            {},
            None,
        ),
        ({"a": Tenant(hosts=("h1",), exclusive=False)}, {"s": Service(hosts=("h1",))}, None),
        ({"a": Tenant(hosts=("h1",))}, {"s": Service(hosts=("h[2-3]",)), "t": Service(hosts=("h2",))}, None),
    ],
)
def test_the_place_of_an_error_is_the_tenant_that_has_to_change(tenants, services, place):
    wanted = Intent(tenants=tenants, services=services)
    if place is None:
        compile_intent(wanted, fabric())
        return
    with pytest.raises(IntentError) as refused:
        compile_intent(wanted, fabric())
    assert refused.value.place == place


def test_a_host_that_is_a_member_of_a_service_and_its_tenant_is_a_full_member():
    wanted = Intent(tenants={"a": Tenant(hosts=("h[1-2]",), exclusive=False)}, services={"s": Service(hosts=("h1",))})
    service = compile_intent(wanted, fabric()).allocation.partitions[2]
    assert service.members == {0x101: Member(), 0x201: Member(full=False)}


def test_default_is_full_until_the_first_partition_and_then_stays_limited():
    empty, one = Intent(), Intent(tenants={"a": Tenant()})
    first = compile_intent(one, fabric()).allocation
    assert compile_intent(empty, fabric()).allocation.default_is_full
    assert not first.default_is_full
    assert not compile_intent(empty, fabric(), before=first).allocation.default_is_full


def test_an_intent_that_is_no_table_is_empty():
    assert intent_of(Document(path=Path("x"), data=[], text="")) == Intent()  # type: ignore[arg-type]
    assert parse_intent({"p_keys": "0x0010-0x0020"}).pool == range(0x10, 0x21)


@pytest.mark.parametrize(
    ("name", "is_accepted"),
    [("a" * 31, True), ("a" * 32, False), ("1a", False), ("a_-.1", True), ("DEFAULT", False), ("", False)],
)
def test_names_of_partitions_have_31_characters_and_start_with_a_letter(name, is_accepted):
    with nullcontext() if is_accepted else pytest.raises(IntentError, match="a letter and up to 30"):
        Intent(tenants={name: Tenant()})


@pytest.mark.parametrize(
    ("p_keys", "expected"),
    [
        ("0x1-0x7ffe", range(1, 0x7FFF)),
        (" 0X10 - 0x10 ", range(0x10, 0x11)),
        ("0x0-0x10", None),
        ("0x2-0x1", None),
        ("0x1-0x7fff", None),
        ("1-2", None),
    ],
)
def test_p_keys_are_a_range_without_default(p_keys, expected):
    with nullcontext() if expected else pytest.raises(IntentError, match="must be a range within 0x0001-0x7ffe"):
        assert Intent(p_keys=p_keys).pool == expected


@pytest.mark.parametrize(
    ("classes", "is_accepted"),
    [
        ({"a": Class(share=1)}, True),
        ({"a": Class(share=0.9)}, False),
        ({"a": Class(share=99)}, True),
        ({"a": Class(share=50), "b": Class(share=49)}, True),
        ({"a": Class(share=50), "b": Class(share=49.1)}, False),
        ({"a": Class(share=50, priority="high")}, True),
        ({"a": Class(share=49.9, priority="high")}, False),
        ({"a": Class(share=25, priority="high"), "b": Class(share=25, priority="high")}, True),
    ],
)
def test_shares_leave_one_percent_and_high_priority_has_half(classes, is_accepted):
    with nullcontext() if is_accepted else pytest.raises(IntentError, match="share"):
        check_shares(classes)
