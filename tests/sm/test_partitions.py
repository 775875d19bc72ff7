"""Partition files, and the P_Key tables that they define. tests/interop has OpenSM's results for the same files."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sm.desk import Desk

import weft
from weft.errors import FileError
from weft.fabric.build import FabricBuilder
from weft.fabric.files.text import read_text
from weft.fabric.kinds import NodeKind
from weft.sm.discovery.known import carried_over
from weft.sm.pkey.partitions import NO_FILE, Everyone, Member, Membership, Partition, Partitions
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.sm.pkey.table_upload import _not_in, _without_what_moves, read_pkeys
from weft.sm.pkey.tables import INBOUND, OUTBOUND, may_talk, wanted_pkeys
from weft.sm.port_info import _raw_filters
from weft.wire.bulk import column, fill
from weft.wire.port_info import PortInfo
from weft.wire.smp import DirectedSmp, SmpAttribute, SwitchInfo

FABRIC = weft.load("fat-tree:hosts=8,radix=4,speed=HDR")
SLOT = {name: int(FABRIC.first_port[node]) for node, name in enumerate(FABRIC.nodes.name)}
OWN = SLOT["h1"] + 1
ENDS = [SLOT[f"h{n}"] + 1 for n in range(1, 9)] + [SLOT[node.name] for node in FABRIC.switches]
FULL, LIMITED, BOTH = Membership.FULL, Membership.LIMITED, Membership.BOTH


def guid(name: str) -> int:
    return int(FABRIC.ports.guid[SLOT[name] + 1])


def keys(text: str, name: str, **options: object) -> list[int]:
    """Return the used part of a port's table."""
    table = wanted_pkeys(parse_partitions(text), FABRIC, OWN, **options).table
    return np.trim_zeros(table[SLOT[name] + 1], "b").tolist()


def only(text: str, name: str = "Red") -> Partition:
    return next(partition for partition in parse_partitions(text).partitions if partition.name == name)


# -- the file ---------------------------------------------------------------------------------------------------------


def test_without_a_file_all_are_full_members_of_default_with_ipoib():
    assert wanted_pkeys(NO_FILE, FABRIC, OWN).table[ENDS, :2].tolist() == [[0xFFFF, 0]] * len(ENDS)
    (group,) = NO_FILE.partitions[0].groups
    assert str(group.mgid) == "ff12:401b:ffff:0000:0000:0000:ffff:ffff"
    assert (group.rate, group.mtu, group.q_key) == (3, 4, 0x0B1B)


def test_a_file_without_any_definition_is_no_file():
    read = parse_partitions("# nothing\n\n")
    assert read.partitions == NO_FILE.partitions
    assert "no partition is defined" in read.notes[0]


def test_default_is_limited_but_for_the_manager_where_the_file_does_not_speak_of_it():
    text = "Red=0x10 : ALL=full ;"
    assert keys(text, "h1") == [0xFFFF, 0x8010]
    assert keys(text, "h2") == [0x7FFF, 0x8010]
    assert "no rule for Default=0x7fff" in parse_partitions(text).notes[0]


def test_flags_are_those_of_the_broadcast_group():
    red = only("Red=0x10,ipoib,rate=7,mtu=5,sl=3,scope=2,scope=0xe,Q_Key=0x22,TClass=9,FlowLabel=0x12345:ALL;")
    (group,) = red.groups
    assert (group.rate, group.mtu, group.sl, red.sl) == (7, 5, 3, 3)
    assert str(group.mgid) == "ff12:401b:8010:0000:0000:0000:ffff:ffff"
    assert (group.scope, group.q_key, group.t_class, group.flow_label) == (2, 0x22, 9, 0x12345)


def test_the_broadcast_group_is_link_local_and_other_groups_follow_the_scope():
    red = only("Red=0x10,ipoib,scope=5:\n mgid=ff12::1\n mgid=ff12:401b::ffff:ffff\n mgid=ff12:401b::16\n ALL;")
    assert [str(group.mgid)[:14] for group in red.groups] == ["ff12:401b:8010", "ff15:0000:0000"]


def test_without_qos_the_sl_of_a_partition_is_0_and_that_of_a_group_its_own():
    text = "Red=0x10,ipoib,sl=3:\n mgid=ff12:401b::16\n mgid=ff12::1,sl=2\n ALL;"
    (red,) = [partition for partition in parse_partitions(text, qos=False).partitions if partition.name == "Red"]
    assert (red.sl, [group.sl for group in red.groups]) == (0, [0, 0, 2])
    assert any(
        "sl=3 of partition Red=0x0010 counts with QoS only" in note for note in parse_partitions(text, qos=False).notes
    )
    assert [group.sl for group in only(text).groups] == [3, 3, 2]


@pytest.mark.parametrize(
    ("flags", "mgid", "why"),
    [
        ("", "ff12:401b::16", "there is no broadcast group ff12:401b:8010"),
        (",ipoib", "ff12:401b::16,scope=5", "there is no broadcast group ff15:401b:8010"),
        ("", "ff12:a01b::1", "link-local MGIDs with a01b"),
        ("", "ff15:a01b::1", "link-local MGIDs with a01b"),
        ("", "ff32::1", "three flags"),
        (",mtu=9", "ff12::1", "mtu=9,rate=3 are no codes"),
        (",rate=x", "ff12::1", "mtu=4,rate=0 are no codes"),
    ],
)
def test_groups_that_opensm_refuses_are_left_out(flags, mgid, why):
    read = parse_partitions(f"Red=0x10{flags}:\n mgid={mgid}\n ALL;")
    (red,) = [partition for partition in read.partitions if partition.name == "Red"]
    assert len(red.groups) == (flags == ",ipoib")
    assert any("is left out: " + why in note for note in read.notes), read.notes


def test_the_manual_pages_own_line_is_understood():
    read = parse_partitions("ShareIO = 0x80 : defmember=limited : 0x123456, 0x123458=full;\nB=0x81:defmember=full:0x5;")
    share, b = read.partitions[1:]
    assert [member.label for member in share.members] == ["0x0000000000123456=limited", "0x0000000000123458=full"]
    assert [member.label for member in b.members] == ["0x0000000000000005=full"]
    assert any("'defmember' behind a colon" in note for note in read.notes)


def test_groups_of_ip_get_the_partitions_key_and_inherit_its_flags():
    red = only(
        "Red=0x10,ipoib,rate=6,TClass=7:\n mgid=ff12:401b::16 # IGMP\n mgid=ff18::1,sl=2,Q_Key=0xDEADBEEF\n"
        " mgid=ff12:601b:8010::2\n ALL;"
    )
    _, igmp, other, routers = red.groups
    assert (str(igmp.mgid)[:14], igmp.rate, igmp.q_key, igmp.t_class) == ("ff12:401b:8010", 6, 0x0B1B, 0)
    assert (str(other.mgid)[:9], other.sl, other.q_key) == ("ff12:0000", 2, 0xDEADBEEF)  # the scope is overridden
    assert str(routers.mgid)[:14] == "ff12:601b:8010"
    assert [member.who for member in red.members] == [Everyone.ALL]


NOTED = {
    "Red=0x10,wrong: ALL;": "1: the flag 'wrong' is not known",
    "Red=0x10,sl=16: ALL;": "1: sl=16 is not a number from 0 to 15",
    "Red=0x10,mtu=2048: ALL;": "1: mtu=2048 is no code of the standard",
    "Red=0x10,rate=6x: ALL;": "1: rate=6x is read as 6",
    "Red=0x10,defmember: ALL;": "1: defmember= is not",
    "Red=0x10: ALL=most;": "1: ALL=most is not full, limited or both: taken as limited",
    "Red=0x10: ALL=;": "1: ALL= has no value: taken as full",
    "Red=0x8010: ALL;": "1: only the low 15 bits of the P_Key 0x8010 count: 0x0010",
    "Red=0: ALL;": "1: P_Key 0 is none: partition 'Red' gets 0x0001",
    "Red=0x10: ALL;\nBlue=0x10: SELF;": "2: P_Key 0x0010 is that of partition 'Red': 'Blue' is merged",
    "Red=0x10,sl=1: ALL;\nRed=0x10: SELF;": "2: partition Red=0x0010 has sl=1 before, now 0",
    "Red=0x10: 0x5=full;\nRed=0x10: 0x5;": "2: in partition Red=0x0010 0x0000000000000005=limited takes back",
    "Red=0x10: SELF=full, ALL;": "1: in partition Red=0x0010 ALL=limited takes back SELF=full (line 1)",
    "Red=0x10: ALL\n;": "2: a line that begins with ';'",
    "Red=0x10:\nmgid=fe80::1\nALL;": "2: mgid=fe80::1 is not a multicast GID",
    "Red=0x10:\nmgid\nALL;": "2: mgid= is not a multicast GID",
    "Red=0x10:\nmgid=ff12::1,odd\nALL;": "2: the flag 'odd' of a group",
    "Red=0x10:\nmgid=ff12:401b::16,rate=7\nALL;": "2: mgid=ff12:401b::16 is a group of IP, and its rate or MTU",
    "Red=0x10:\nmgid=ff12:401b:8011::16\nALL;": "2: mgid=ff12:401b:8011::16 is a group of IP, and its P_Key 0x8011",
    "Red=0x10,ipoib: ALL;\nRed=0x10,ipoib,rate=7: ALL;": "2: the group ff12:401b:8010",
    "Red=0x10: NONE;": "1: partition Red=0x0010 has no members",
    f"Red=0x10: {', ' * 3000}ALL;": "1: longer than 4094 characters",
}


@pytest.mark.parametrize("text", NOTED)
def test_lines_that_opensm_ignores_or_merges_are_noted(text):
    notes = parse_partitions("Default=0x7fff: ALL=full;" + text).notes
    assert [note for note in notes if note.startswith(f"partitions.conf:{NOTED[text]}")], notes


def test_a_clean_file_has_no_notes():
    assert (
        parse_partitions("Default=0x7fff : ALL, SELF=full ;\nRed , ipoib : 0x123456=full, 0x3456789034=limi ;").notes
        == ()
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# a\nRed=0x10\n: ALL;", 2),
        ("Red=0x10: ALL,\n everybody;", 2),
        ("Red=0x1g: ALL;", 1),
        ("Red=0x10: ALL,\n 0x0002c90300001231z;", 2),
        ("Red=0x10: ALL,\n 0x0;", 2),
        ("Red=0x10: ALL;\r\n", 1),
    ],
)
def test_lines_that_opensm_rejects_are_refused(text, line, tmp_path):
    (tmp_path / "p.conf").write_text(text, newline="")
    with pytest.raises(FileError, match="OpenSM would drop the whole file") as caught:
        parse_partitions(read_text(tmp_path / "p.conf"), qos=False)
    assert caught.value.line == line


@given(st.text(alphabet="Redfult0x71=,:;# \n\tALS_CmgidIPoib8", max_size=80))
@settings(max_examples=300)
def test_any_text_is_read_or_refused(text):
    """And after any accepted file every port is in Default and has no key twice."""
    try:
        partitions = parse_partitions(text)
    except FileError:
        return
    assert all(0 < partition.p_key <= 0x7FFF for partition in partitions.partitions)
    table = wanted_pkeys(partitions, FABRIC, OWN).table[ENDS] & 0x7FFF
    assert (table == 0x7FFF).any(axis=1).all()
    for row in table:
        used = row[row > 0]
        assert len(set(used.tolist())) == len(used)


# -- the tables -------------------------------------------------------------------------------------------------------

_members = st.builds(
    Member,
    who=st.sampled_from([*Everyone, *(guid(f"h{n}") for n in range(1, 5)), 0xDEAD]),
    membership=st.sampled_from(Membership),
    index0=st.booleans(),
)
_keys = st.sampled_from([0x7FFF, 0x0001, 0x0100, 0x0203, 0x0302, 0x0003])
_rules = st.lists(st.tuples(_keys, _members), max_size=12)


def meant(who: Everyone | int, slot: int) -> bool:
    kind = FABRIC.nodes.kind[FABRIC.ports.node[slot]]
    if who is Everyone.ALL or (who is Everyone.SELF and slot == OWN):
        return True
    if who is Everyone.ALL_CAS:
        return bool(kind == NodeKind.HCA)
    if who is Everyone.ALL_SWITCHES:
        return bool(kind == NodeKind.SWITCH)
    return who == FABRIC.ports.guid[slot]


def one_by_one(rules: list[tuple[int, Member]], slot: int, allow_both: bool) -> list[int]:
    """Return the result of OpenSM's functions for a port, one call after the other."""
    full: set[int] = set()
    limited: set[int] = set()
    index0 = 0
    for p_key, member in rules:
        if not meant(member.who, slot):
            continue
        full.discard(p_key)
        limited.discard(p_key)
        for is_full in (True, False):
            if member.membership is (LIMITED if is_full else FULL) or (
                member.membership is BOTH and not is_full and not allow_both
            ):
                continue
            (full if is_full else limited).add(p_key)
            if member.index0:
                index0 = p_key | (0x8000 if is_full else 0)
            elif index0 & 0x7FFF == p_key:
                index0 = 0
    mask = 0xFFFF if allow_both else 0x7FFF
    first = index0 or (0xFFFF if allow_both else 0x7FFF)
    row = [0]
    for p_key in sorted(full | limited, key=lambda key: key.to_bytes(2, "little")):
        for key in [p_key] * (p_key in limited) + [p_key | 0x8000] * (p_key in full):
            if key & mask == first & mask:
                row[0] = key
            else:
                row.append(key)
    return row


@given(_rules, st.booleans())
@settings(max_examples=200)
def test_all_ports_at_once_is_each_port_one_by_one(rules, allow_both):
    ranked = [
        (p_key, Member(who=m.who, membership=m.membership, index0=m.index0, rank=rank))
        for rank, (p_key, m) in enumerate(rules)
    ]
    partitions = tuple(
        Partition(name=f"{p_key:x}", p_key=p_key, members=tuple(m for key, m in ranked if key == p_key))
        for p_key in dict(ranked)
    )
    result = wanted_pkeys(Partitions(partitions=partitions), FABRIC, OWN, allow_both=allow_both)
    for slot in ENDS:
        row = one_by_one(ranked, slot, allow_both)
        assert result.table[slot].tolist() == row + [0] * (128 - len(row))


def test_a_key_keeps_its_index_and_new_ones_go_behind():
    result = np.zeros((len(FABRIC.ports), 128), np.uint16)
    result[ENDS, :5] = 0xFFFF, 0, 0x8003, 0x0002, 0x8001
    text = "Default=0x7fff: ALL=full; A=1: ALL; C=3: ALL=full; D=4: ALL;"
    remaining = keys(text, "h3", found=result, keep_indexes=True)
    assert remaining == [0xFFFF, 0, 0x8003, 0, 0x0001, 0x0004]
    assert keys(text, "h3", found=result) == [0xFFFF, 0x0001, 0x8003, 0x0004]


def test_a_key_that_does_not_fit_behind_goes_to_a_free_place():
    result = np.zeros((len(FABRIC.ports), 128), np.uint16)
    result[ENDS, 3] = 0x8001
    cap = np.full(len(FABRIC.nodes), 4)
    text = "A=1: ALL=full; B=2: ALL; C=3: ALL; D=4: ALL;"
    created = wanted_pkeys(parse_partitions(text), FABRIC, OWN, found=result, keep_indexes=True, partition_cap=cap)
    assert created.table[SLOT["h2"] + 1, :5].tolist() == [0x7FFF, 0x0002, 0x0003, 0x8001, 0]
    dropped = [note for note in created.notes if "no room for 0x0004 in a P_Key table of 4 entries" in note]
    assert dropped
    assert "and 10 more" in dropped[0]


def test_index_0_is_cleared_for_default_and_never_filled_by_another():
    result = np.zeros((len(FABRIC.ports), 128), np.uint16)
    result[ENDS, :3] = 0x8001, 0xFFFF, 0x8002
    text = "Default=0x7fff: ALL=full; A=1: ALL=full; B=2: ALL=full;"
    assert keys(text, "h3", found=result, keep_indexes=True) == [0xFFFF, 0, 0x8002, 0x8001]
    cap = np.full(len(FABRIC.nodes), 2)  # with both keys, Default's limited one is not at index 0
    assert keys("A=1: ALL=full;", "h3", allow_both=True, partition_cap=cap) == [0, 0x8001]


def test_ports_that_are_not_there_are_named():
    text = "Red=0x10: 0xdead=full, 0xbeef;\nBlue=0x20: ALL;"
    notes = wanted_pkeys(parse_partitions(text), FABRIC, OWN).notes
    expected = "partition Red=0x0010: there is no port 0x000000000000dead (line 1), 0x000000000000beef (line 1)"
    assert notes == (expected,)
    above_all = wanted_pkeys(parse_partitions("Red=0x10: 0xfffffffffffffffe;"), FABRIC, OWN).notes
    assert "there is no port 0xfffffffffffffffe (line 1)" in above_all[0]


def test_keys_of_switch_ports_stay_where_switches_enforce_nothing():
    result = np.zeros((len(FABRIC.ports), 128), np.uint16)
    external = next(slot for slot in range(len(FABRIC.ports)) if slot not in ENDS and FABRIC.ports.number[slot] > 0)
    result[external, 2] = 0x8123
    created = wanted_pkeys(parse_partitions("A=1: ALL;"), FABRIC, OWN, found=result, part_enforce="off")
    assert created.table[external, 2] == 0x8123


def test_a_manager_that_is_not_a_full_member_of_default_is_named():
    assert (
        "limited members cannot reach the SA"
        in wanted_pkeys(parse_partitions("Default=0x7fff: ALL;"), FABRIC, OWN).notes[0]
    )


# -- switches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enforce", "bits"), [("both", INBOUND | OUTBOUND), ("in", INBOUND), ("out", OUTBOUND), ("off", 0)]
)
def test_switch_ports_facing_adapters_check_the_keys_of_what_is_attached(enforce, bits):
    text = f"Default=0x7fff: ALL, SELF=full;\nRed=0x10: {guid('h2'):#x}=both; Blue=0x20,indx0: {guid('h2'):#x};"
    result = wanted_pkeys(parse_partitions(text), FABRIC, OWN, allow_both=True, part_enforce=enforce)
    facing = int(FABRIC.ports.peer[SLOT["h2"] + 1])
    inner = [int(slot) for slot in np.concatenate((FABRIC.links.a, FABRIC.links.b)) if _between_switches(int(slot))]
    assert inner
    assert result.enforcement[facing] == bits
    assert result.programmed[facing] == bool(bits)
    assert not result.enforcement[inner].any()
    assert not result.programmed[inner].any()
    if bits:
        assert result.table[SLOT["h2"] + 1, :5].tolist() == [0x0020, 0x0010, 0x8010, 0x7FFF, 0]
        assert result.table[facing, :4].tolist() == [0x0020, 0x8010, 0x7FFF, 0]


def _between_switches(slot: int) -> bool:
    kinds = FABRIC.nodes.kind[FABRIC.ports.node[[slot, FABRIC.ports.peer[slot]]]]
    return bool((kinds == NodeKind.SWITCH).all())


def test_a_switch_that_cannot_hold_the_keys_does_not_check():
    cap = np.full(len(FABRIC.nodes), 2)
    text = f"Red=0x10: {guid('h2'):#x}; Blue=0x20: {guid('h2'):#x}, {guid('h3'):#x};"
    result = wanted_pkeys(parse_partitions(text), FABRIC, OWN, enforcement_cap=cap)
    facing = {name: int(FABRIC.ports.peer[SLOT[name] + 1]) for name in ("h2", "h3")}
    assert result.enforcement[facing["h2"]] == 0
    assert result.enforcement[facing["h3"]] == INBOUND | OUTBOUND
    port = FABRIC.port(facing["h2"]).name
    assert f"{port}: more P_Keys than the switch can check: packets pass there unchecked" in result.notes


def test_end_ports_with_a_cable_and_the_managers_own_are_programmed():
    """An adapter has two ports, of which one has a cable."""
    builder = FabricBuilder("spare")
    switch = builder.add_nodes(NodeKind.SWITCH, ["sw"], n_ports=2)
    builder.add_links(builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=2), 1, switch, [1, 2], "NDR")
    fabric = builder.build()
    for own, expected in (("h1/1", {"sw/0", "h1/1", "h2/1"}), ("h1/2", {"sw/0", "h1/1", "h1/2", "h2/1"})):
        result = wanted_pkeys(NO_FILE, fabric, fabric[own].slot, part_enforce="off")
        assert {fabric.port(slot).name for slot in np.flatnonzero(result.programmed).tolist()} == expected


@pytest.mark.parametrize(
    ("table", "other", "new"), [(0x0001, 0x8001, 0), (0x8001, 0x0001, 1), (0x8001, 0x8001, 0), (0x8002, 0x8001, 1)]
)
def test_a_full_key_includes_the_limited_one(table, other, new):
    tables = (np.array([[key, 0]], np.uint16) for key in (table, other))
    assert len(_not_in(*tables, np.array([0]))[0]) == new


def test_of_adapters_without_a_lid_only_the_first_block_of_keys_is_read():
    """They have just started with one key; other ports may have keys in all 128 entries."""
    desk, read = Desk("star:hosts=2"), []

    def note(mads, answers, answered):
        kind = column(mads, DirectedSmp.attribute_id) == SmpAttribute.P_KEY_TABLE
        read.extend(column(mads[kind], DirectedSmp.attribute_modifier).tolist())

    desk.net.tampers.append(note)
    view = desk.view
    desk.net.devices.tables.pkey[desk.net.fabric["h2/1"].slot, 100] = 0x8123
    slots = np.array([desk.slot("h1"), desk.slot("h2")])
    for lids, blocks, last in (((0, 0), [0, 0], 0), ((0, 7), [0, 0, 1, 2, 3], 0x8123)):
        infos, contents = view.port_info[slots], carried_over(None, view)
        fill(infos, PortInfo.lid, np.array(lids))
        view.port_info[slots] = infos
        read.clear()
        read_pkeys(desk.state.sender, view, contents, slots)
        assert read == blocks
        assert contents.keys[slots].all()
        assert contents.tables.pkey[slots, 0].tolist() == [0xFFFF, 0xFFFF]
        assert contents.tables.pkey[slots[1], 100] == last


# -- matching keys -----------------------------------------------------------------------------------------------------


def test_limited_members_do_not_talk_to_each_other():
    assert may_talk([0x7FFF, 0x8010], [0x7FFF, 0x0010]) == [0x8010]
    assert may_talk([0x7FFF], [0xFFFF]) == [0x7FFF]
    assert may_talk([0x0001, 0x8001], [0x0001]) == [0x8001]
    assert may_talk([0x8000], [0x8000]) == []
    assert may_talk([0x8102, 0x8201], [0x8201, 0x0102]) == [0x8201, 0x8102]


def test_members_of_different_tenants_share_no_key():
    red, blue = ("h2", "h3"), ("h4", "h5")
    text = "Red: {}=full,{}=full;Blue: {}=full,{}=full;".format(*(f"{guid(name):#x}" for name in (*red, *blue)))
    table = wanted_pkeys(parse_partitions(text), FABRIC, OWN).table
    for a, b in itertools.product((*red, *blue), repeat=2):
        same = (a in red) == (b in red)
        held = (set(table[SLOT[name] + 1].tolist()) for name in (a, b))
        assert bool(may_talk(*held)) == same


@pytest.mark.parametrize(("held", "given"), [(0x8001, 0x8001), (0x8001, 0x0001), (0x0001, 0x8001)])
def test_a_key_that_moves_to_another_port_is_removed_before_it_is_written_there(held, given):
    current, expected = (np.array(keys, np.uint16) for keys in ([[0x8002, held], [0x8002, 0]], [[0, 0], [0, given]]))
    (first,) = _without_what_moves(current, expected)
    assert first.tolist() == [[0x8002, 0], [0x8002, 0]]
    expected[1, 1] = 0x8003
    assert not list(_without_what_moves(current, expected))


@pytest.mark.parametrize("can_inbound", [0, 1])
@pytest.mark.parametrize("can_outbound", [0, 1])
@pytest.mark.parametrize("enforced", [0, INBOUND, OUTBOUND, INBOUND | OUTBOUND])
def test_raw_packets_are_filtered_where_keys_are_checked_and_the_switch_can(can_inbound, can_outbound, enforced):
    view = Desk("star:hosts=2").view
    fill(view.switch_info, SwitchInfo.filter_raw_inbound_cap, can_inbound)
    fill(view.switch_info, SwitchInfo.filter_raw_outbound_cap, can_outbound)
    slots = view.plugged[view.is_switch[view.fabric.ports.node[view.plugged]]]
    filters = {
        field.name: value.tolist() for _, field, value in _raw_filters(view, slots, np.full(2, enforced, np.uint8))
    }
    assert filters == {
        "filter_raw_inbound": [int(bool(enforced & INBOUND) and can_inbound)] * 2,
        "filter_raw_outbound": [int(bool(enforced & OUTBOUND) and can_outbound)] * 2,
    }


def test_a_rule_may_name_the_port_with_the_lowest_or_the_highest_guid():
    guids = {int(FABRIC.ports.guid[slot]): slot for slot in ENDS}
    for number in (min(guids), max(guids)):
        table = wanted_pkeys(parse_partitions(f"Red=0x10: {number:#x}=full;"), FABRIC, OWN).table
        assert [slot for slot in ENDS if 0x8010 in table[slot]] == [guids[number]]
