"""Words of partitions.conf: numbers in C's syntax, flags of groups with their limits, MGIDs, names."""

from __future__ import annotations

import pytest

from weft.errors import FileError
from weft.ids import Gid
from weft.sm.pkey.conf_groups import Flags, broadcast_of, mgid_refusal, refusal, strtoul
from weft.sm.pkey.partitions import NO_FILE, Group, broadcast_mgid, with_scope
from weft.sm.pkey.partitions_conf import _Reader, parse_partitions


@pytest.mark.parametrize(
    ("text", "number", "rest"),
    [
        ("17", 17, ""),
        (" \t+017x", 15, "x"),
        ("0x1F 2", 31, " 2"),
        ("0X1f", 31, ""),
        ("0", 0, ""),
        ("08", 0, "8"),
        ("-1", (1 << 64) - 1, ""),
        ("-0", 0, ""),
        ("x1", 0, "x1"),
        ("", 0, ""),
        (str((1 << 64) - 1), (1 << 64) - 1, ""),
        (str(1 << 64), (1 << 64) - 1, ""),
        ("90", 90, ""),
    ],
)
def test_numbers_are_read_as_c_reads_them(text, number, rest):
    assert strtoul(text) == (number, rest)


@pytest.mark.parametrize(
    ("flag", "good", "bad"),
    [
        ("scope", (1, 15), (0, 16)),
        ("sl", (0, 15), (16,)),
        ("FlowLabel", (0, 0xFFFFF), (0x100000,)),
        ("mtu", (1, 5), ()),
        ("Q_Key", (0, 0xFFFFFFFF), ()),
        ("TClass", (0, 255), ()),
    ],
)
def test_a_flag_beyond_its_limits_is_ignored_with_a_note(flag, good, bad):
    for number in (*good, *bad):
        flags, notes = Flags(), []
        assert flags.take(flag, str(number), notes.append)
        assert bool(notes) == (number in bad)
        if number not in bad:
            field = {"FlowLabel": "flow_label", "Q_Key": "q_key", "TClass": "t_class", "scope": "scopes"}.get(
                flag, flag
            )
            assert getattr(flags, field) == ((number,) if flag == "scope" else number)


def test_flags_are_cut_to_their_width_and_read_up_to_the_first_other_character():
    """A service level or a flow label must be a whole number."""
    flags, notes = Flags(), []
    for name, value in (("TClass", "0x1ff"), ("Q_Key", "0x1ffffffff"), ("rate", "6x"), ("mtu", "6"), ("rate", "23")):
        assert flags.take(name, value, notes.append)
    assert (flags.t_class, flags.q_key, flags.rate, flags.mtu) == (0xFF, 0xFFFFFFFF, 23, 6)
    assert notes == [
        "rate=6x is read as 6",
        "mtu=6 is no code of the standard: its groups are left out",
        "rate=23 is no code of the standard: its groups are left out",
    ]
    for value, taken in (("3x", False), ("", False), (None, False), ("3 x", True), ("3", True)):
        flags = Flags(sl=9)
        assert flags.take("sl", value, notes.append)
        assert flags.sl == (3 if taken else 9), value
    assert not flags.take("rates", "3", notes.append)


@pytest.mark.parametrize(
    ("mtu", "rate", "is_code"),
    [(0, 3, False), (1, 2, True), (5, 22, True), (6, 3, False), (4, 1, False), (4, 23, False)],
)
def test_a_group_needs_codes_of_the_standard(mtu, rate, is_code):
    assert ("are no codes" not in refusal(Group(mgid=Gid.parse("ff12::1"), mtu=mtu, rate=rate), ())) == is_code


@pytest.mark.parametrize(
    ("mgid", "why"),
    [
        ("ff12::1", ""),
        ("ff32::1", "reserved"),
        ("ff52::1", "reserved"),
        ("ff92::1", "reserved"),
        ("ff15:a01b::1", ""),
        ("ff12:a01b::1", "made by the subnet administrator only"),
        ("ff12:401b:8010::16", "there is no broadcast group ff12:401b:8010:0000:0000:0000:ffff:ffff"),
        ("ff15:601b:8010::16", "there is no broadcast group ff15:401b:8010:0000:0000:0000:ffff:ffff"),
        ("ff12:401b:8010::ffff:ffff", ""),
    ],
)
def test_an_mgid_is_refused_with_its_reason(mgid, why):
    number = int(Gid.parse(mgid))
    assert why in mgid_refusal(number, ())
    assert bool(mgid_refusal(number, ())) == bool(why)
    if "broadcast" in why:
        assert mgid_refusal(number, {broadcast_of(number)}) == ""


def test_groups_without_flags_have_opensms_values():
    group, flags = NO_FILE.partitions[0].groups[0], Flags()
    assert (group.rate, group.mtu, group.sl, group.scope, group.q_key, group.t_class) == (3, 4, 0, 2, 0x0B1B, 0)
    assert flags.groups(Gid.parse("ff12::1")) == [Group(mgid=Gid.parse("ff12::1"))]
    assert str(broadcast_mgid(0x7FFF)) == "ff12:401b:ffff:0000:0000:0000:ffff:ffff"
    assert str(with_scope(Gid.parse("ff1f::1"), 5))[:4] == "ff15"


def names(text: str) -> dict[int, str]:
    return {partition.p_key: partition.name for partition in parse_partitions(text).partitions}


def test_names_are_cut_after_31_characters():
    assert names(f"{'n' * 32}=5: ALL;")[5] == "n" * 31
    assert not any("merged" in note for note in parse_partitions(f"{'n' * 32}=5: ALL;{'n' * 33}=5: SELF;").notes)


def test_a_partition_without_a_p_key_is_that_of_its_name_or_gets_the_lowest_free_one():
    """OpenSM selects among partitions of the same name the first by P_Key, low byte first."""
    assert names("a: ALL; b=1: ALL; c: ALL; 7: ALL;") == {0x7FFF: "Default", 1: "a", 2: "c", 7: "0007"}
    several = parse_partitions("a=0x0102: 0x1; a=0x0201: 0x2; a: 0x3;")
    assert [member.who for member in several.by_p_key(0x0201).members] == [2, 3]
    assert names("x=0x7ffe: ALL;")[0x7FFE] == "x"
    reader = _Reader("partitions.conf", qos=True)
    reader.generated = 0x7FFD
    assert reader.free_p_key() == 0x7FFE
    with pytest.raises(FileError, match="all 32766 are taken"):
        reader.free_p_key()


@pytest.mark.parametrize(("length", "noted"), [(4094, False), (4095, True)])
def test_a_line_longer_than_opensms_buffer_is_noted(length, noted):
    text = "Default=0x7fff: ALL=full;".ljust(length)
    assert any("longer than 4094" in note for note in parse_partitions(text).notes) == noted


@pytest.mark.parametrize(("count", "more"), [(3, ""), (4, " and 1 more")])
def test_three_rules_that_are_taken_back_are_named(count, more):
    ports = ", ".join(f"{number:#x}=full" for number in range(1, count + 1))
    (note,) = parse_partitions(f"Default=0x7fff: ALL;a=5: {ports}, ALL=limited;").notes
    assert note.count("(line 1)") == 3
    assert note.endswith(f"0x0000000000000003=full (line 1){more}: the last counts")


def test_a_note_has_the_line_of_its_partition():
    notes = parse_partitions("Default=0x7fff: ALL=full;\n\nRed=0x10: NONE;\nBlue=0x11: ALL;\n\n").notes
    assert notes == ("partitions.conf:3: partition Red=0x0010 has no members and is left out",)
