"""qos-policy.conf; tests/interop/test_qos_opensm.py has OpenSM's results for the same files."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import FileError
from weft.fabric.kinds import NodeKind
from weft.sm.qos.policy import Level, Policy, PortIdentity, parse_policy

DEFAULT = """
qos-levels
    qos-level
        name: DEFAULT
        use: default QoS level
        sl: 0
    end-qos-level
    qos-level
        name: Whole Set   # blanks and case do not count
        sl: 1
        mtu-limit: 4
        rate-limit: 5
        pkey: 0x8010-0x20, 0x1234
        packet-life: 8
    end-qos-level
end-qos-levels
"""
ANY = PortIdentity(guid=1)


def parse(text: str) -> Policy:
    return parse_policy(text, "qos-policy.conf")


def group(*lines: str) -> Policy:
    """Return a policy with one rule, for requests from a group of ports."""
    body = "\n".join(lines)
    return parse(
        "qos-match-rules\nqos-match-rule\nsource: it\nqos-level-name: wholeset\n"
        "end-qos-match-rule\nend-qos-match-rules\n"
        f"port-groups\nport-group\nname: it\n{body}\nend-port-group\nend-port-groups\n{DEFAULT}"
    )


def ulps(*lines: str) -> Policy:
    body = "\n".join(lines)
    return parse(f"qos-ulps\ndefault : 0\n{body}\nend-qos-ulps\n")


def sl(policy: Policy, source: PortIdentity = ANY, destination: PortIdentity = ANY, **said: int) -> int:
    return policy.level_for(source=source, destination=destination, **said).sl


def test_a_level_has_all_that_the_file_says():
    policy = group("node-type: ALL")
    assert policy.level_for(source=ANY, destination=ANY) == Level(
        name="Whole Set", sl=1, mtu_limit=4, rate_limit=5, packet_life=8, p_key=((0x10, 0x20), (0x1234, 0x1234))
    )
    level = policy.level_for(source=ANY, destination=ANY)
    assert [level.allows(p_key) for p_key in (0x10, 0x8020, 0x21, 0x9234)] == [True, True, False, True]
    assert policy.default.allows(0x21)


PORTS = {
    "storage": PortIdentity(guid=0x1000, node_description="vs1 HCA-1", number=2, p_keys=frozenset({0x8005})),
    "switch": PortIdentity(guid=0x2000, kind=NodeKind.SWITCH, partitions=frozenset({"Part1"})),
    "router": PortIdentity(guid=0x3000, kind=NodeKind.ROUTER, is_self=True),
    "reducer": PortIdentity(guid=0x4000, kind=NodeKind.AGGREGATION, p_keys=frozenset({0x0007})),
}


@pytest.mark.parametrize(
    ("line", "members"),
    [
        ("port-guid: 0x1000, 0x2fff-0x3fff", {"storage", "router"}),
        ("port-guid: 0x4000-0x3001", {"reducer"}),  # in either order
        ("port-name: vs1 HCA-1/P2, other/P1", {"storage"}),
        ('port-name: "vs1 HCA-1/p2"', {"storage"}),
        ("port-name: vs1 HCA-1/P1", set()),
        ("pkey: 5-6", {"storage"}),
        ("pkey: 0x8007", {"reducer"}),
        ("partition: Part1", {"switch"}),
        ("partition: part1", set()),
        ("node-type: ca", {"storage", "reducer"}),
        ("node-type: SWITCH,Self", {"switch", "router"}),
        ("node-type: all", {"storage", "switch", "router", "reducer"}),
        ("pkey: 5\npartition: Part1", {"storage", "switch"}),
        ("use: nobody", set()),
    ],
)
def test_a_port_belongs_to_a_group_by_any_of_its_lines(line, members):
    policy = group(line)
    assert {name for name, port in PORTS.items() if sl(policy, source=port) == 1} == members


def rules(*each: str) -> Policy:
    """Return a policy with named levels and these rules, whose lines are separated by semicolons."""
    body = "".join("qos-match-rule\n" + item.replace("; ", "\n") + "\nend-qos-match-rule\n" for item in each)
    levels = "".join(f"qos-level\nname: L{n}\nsl: {n}\nend-qos-level\n" for n in range(1, 9))
    groups = (
        "port-group\nname: A\nport-guid: 0xA\nend-port-group\nport-group\nname: B\nport-guid: 0xB\nend-port-group\n"
    )
    return parse(
        f"port-groups\n{groups}end-port-groups\n{DEFAULT}qos-levels\n{levels}end-qos-levels\n"
        f"qos-match-rules\n{body}end-qos-match-rules\n"
    )


A, B, C = (PortIdentity(guid=guid) for guid in (0xA, 0xB, 0xC))


def test_the_first_rule_that_matches_wins():
    policy = rules("source: A; qos-level-name: L1", "destination: B; qos-level-name: L2", "qos-level-name: L3")
    assert [sl(policy, *ends) for ends in ((A, B), (C, B), (B, A))] == [1, 2, 3]


def test_a_rule_matches_only_if_all_that_it_says_does():
    policy = rules("source: A; destination: B, A; qos-class: 7-9,11; service-id: 22; pkey: 0x8001; qos-level-name: L4")
    output = {"qos_class": 8, "service_id": 22, "p_key": 1}
    assert sl(policy, A, B, **output) == sl(policy, A, A, **output) == 4
    assert sl(policy, B, B, **output) == sl(policy, A, C, **output) == 0
    assert sl(policy, A, B, **{**output, "p_key": 0x8001}) == 4  # full and limited keys match the same partition
    assert [sl(policy, A, B, **{**output, key: 10}) for key in output] == [0, 0, 0]


def test_a_query_that_does_not_say_what_a_rule_asks_for_does_not_match():
    for rule, output in (
        ("qos-class: 0-4095", "qos_class"),
        ("service-id: 0-99", "service_id"),
        ("pkey: 0-0x7fff", "p_key"),
    ):
        policy = rules(f"{rule}; qos-level-name: L5")
        assert (sl(policy), sl(policy, **{output: 0})) == (0, 5)


@pytest.mark.parametrize(
    ("line", "said", "other"),
    [
        ("sdp : 3", {"service_id": 0x1FFFF}, {"service_id": 0x20000}),
        ("SDP, port-num 10000-20000 : 3", {"service_id": 0x10000 + 20000}, {"service_id": 0x10000 + 20001}),
        ("rds : 3", {"service_id": 0x10648CA}, {"service_id": 0x10648CB}),
        ("rds,port-num 25000:3", {"service_id": 0x1060000 + 25000}, {"service_id": 0x10648CA}),
        ("iSER : 3", {"service_id": 0x1060CBC}, {"service_id": 0x10648CA}),
        ("ipoib : 3", {"p_key": 0xFFFF}, {"p_key": 0x8001}),
        ("ipoib, pkey 0x8001 : 3", {"p_key": 1}, {"p_key": 0xFFFF}),
        ("any, service-id 0x6234 : 3", {"service_id": 0x6234}, {"service_id": 0x6235}),
        ("any, pkey 5, 7-8 : 3", {"p_key": 8}, {"p_key": 6}),
        ("srp, target-port-guid 0xB : 3", {"destination": B}, {"source": B}),
        ("any, target-port-guid 0xA-0xB : 3", {"destination": A}, {"source": A}),
        ("any, source-port-guid 0xA : 3", {"source": A}, {"destination": A}),
        ("any, source-target-port-guid 0xA, 0xB : 3", {"source": A, "destination": B}, {"source": A}),
    ],
)
def test_a_ulp_is_known_by_service_partition_or_port(line, said, other):
    policy = ulps(line)
    assert sl(policy, **said) == 3
    assert sl(policy, **other) == 0


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [("sl", 0, 15), ("mtu-limit", 1, 5), ("rate-limit", 2, 24), ("packet-life", 0, 63), ("pkey", 0, 0xFFFF)],
)
def test_numbers_of_a_level_have_limits(key, low, high):
    def level(number: int) -> str:
        sl = "" if key == "sl" else "sl: 1\n"
        return f"qos-levels\nqos-level\nname: DEFAULT\n{sl}{key}: {number}\nend-qos-level\nend-qos-levels\n"

    for number in (low, high):
        assert parse(level(number))
    for number in (low - 1, high + 1):
        with pytest.raises(FileError, match=f"a number from {low} to {high}"):
            parse(level(number))


@pytest.mark.parametrize(
    ("line", "high"), [("service-id", (1 << 64) - 1), ("pkey", 0xFFFF), ("target-port-guid", (1 << 64) - 1)]
)
def test_lists_of_ulps_have_limits(line, high):
    assert ulps(f"any, {line} 0-{high} : 3")
    with pytest.raises(FileError, match="a number from 0 to"):
        ulps(f"any, {line} {high + 1} : 3")


def test_ports_of_ulps_have_16_bits():
    """Bit 15 must not be masked as in a P_Key, where it is the membership bit."""
    policy = ulps("sdp, port-num 32768-65535 : 3", "any, pkey 0x8005 : 4")
    assert [sl(policy, service_id=0x10000 + port) for port in (0, 32767, 32768, 65535)] == [0, 0, 3, 3]
    assert [sl(policy, p_key=p_key) for p_key in (5, 0x8005)] == [4, 4]


def test_default_services_of_ulps_are_single_ports():
    for ulp, port in (("rds", 0x48CA), ("iser", 0x0CBC)):
        policy, base = ulps(f"{ulp} : 3"), 0x1060000
        assert [sl(policy, service_id=base + port + step) for step in (-1, 0, 1)] == [0, 3, 0]
    assert [sl(ulps("sdp : 3"), service_id=number) for number in (0xFFFF, 0x10000)] == [0, 3]


def test_sections_need_a_rule_or_a_group():
    for text, message in (
        ("qos-ulps\nend-qos-ulps\n", "one rule"),
        ("port-groups\nend-port-groups\n", "one port-group"),
    ):
        with pytest.raises(FileError, match=f"{message} at least"):
            parse(DEFAULT + text)
    assert parse(f"{DEFAULT}qos-match-rules\nend-qos-match-rules\n").rules == ()


@pytest.mark.parametrize(("name", "is_good"), [("a/P1", True), ("a/p999", True), ("a/P0", False), ("a/P1000", False)])
def test_a_port_name_ends_with_a_number_from_1_to_999(name, is_good):
    with contextlib.nullcontext() if is_good else pytest.raises(FileError, match="node description and port number"):
        group(f"port-name: {name}")


def test_the_managers_own_port_belongs_only_to_groups_of_self():
    own = PortIdentity(guid=7, is_self=True)
    assert (sl(group("node-type: SELF"), own), sl(group("node-type: SELF"))) == (1, 0)
    assert sl(group("port-guid: 8"), own) == 0


def test_ulps_come_after_rules_and_their_default_after_the_level():
    text = "qos-ulps\ndefault : 7\nipoib : 6\nend-qos-ulps\n"
    rule = "qos-match-rule\npkey: 0x7fff\nqos-level-name: whole set\nend-qos-match-rule\n"
    rule = f"qos-match-rules\n{rule}end-qos-match-rules\n"
    assert [sl(parse(text), p_key=0xFFFF), sl(parse(text))] == [6, 7]
    assert [sl(parse(text + DEFAULT + rule), p_key=0xFFFF), sl(parse(text + DEFAULT))] == [1, 0]


def test_settings_without_effect_are_noted():
    policy = parse(f"{DEFAULT}qos-setup\nvlarb-tables\nend-vlarb-tables\nend-qos-setup\n")
    assert policy.notes == ("qos-policy.conf:17: qos-setup has no effect, as in OpenSM: set qos_* options",)
    again = "qos-levels\nqos-level\nname: default\nsl: 9\npath-bits: 1\nend-qos-level\nend-qos-levels\n"
    assert sl(parse(DEFAULT + again)) == 0
    assert "the first counts" in parse(DEFAULT + again).notes[0]
    assert "path-bits" in parse(again).notes[0]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "DEFAULT"),
        ("qos-level\n", 1, "a section"),
        (DEFAULT.removesuffix("end-qos-levels\n"), 2, "end-qos-levels somewhere after it"),
        (f"{DEFAULT}qos-levels\nqos-level\nname: a\nsl: 16\nend-qos-level\nend-qos-levels", 20, "from 0 to 15"),
        (f"{DEFAULT}qos-levels\nqos-level\nsl: 1\nend-qos-level\nend-qos-levels", 18, "name in every qos-level"),
        (f"{DEFAULT}qos-levels\nqos-level\nname: a\nname: b\nend-qos-level\nend-qos-levels", 20, "name once"),
        (f"{DEFAULT}qos-levels\nqos-level\nmtu: 3\nend-qos-level\nend-qos-levels", 19, "mtu-limit"),
        (f"{DEFAULT}qos-ulps\nsrp : 3\nend-qos-ulps", 18, "srp, target-port-guid"),
        (f"{DEFAULT}qos-ulps\nmpi, port-num 4 : 3\nend-qos-ulps", 18, "any, service-id"),
        (f"{DEFAULT}qos-ulps\nsdp, port-num 65536 : 3\nend-qos-ulps", 18, "from 0 to 65535"),
        (f"{DEFAULT}qos-ulps\nsdp 3\nend-qos-ulps", 18, "a colon and a service level"),
    ],
)
def test_errors_are_refused_with_their_line(text, line, message):
    with pytest.raises(FileError, match=message) as caught:
        parse(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("line", "message"), [("source: C", "a port-group: A, B"), ("qos-class: 9-", "number from 0 to 4095")]
)
def test_a_rule_about_what_is_not_there_is_refused(line, message):
    with pytest.raises(FileError, match=message):
        rules(f"{line}; qos-level-name: L1")


WORDS = st.sampled_from(
    [*DEFAULT.split("\n"), "port-groups", "port-group", "end-port-group", "qos-ulps", "sdp : 1", ":"]
)


@settings(max_examples=30)
@given(st.lists(WORDS | st.text()))
def test_no_text_is_too_odd_to_be_refused(lines):
    with contextlib.suppress(FileError):
        parse("\n".join(lines))
