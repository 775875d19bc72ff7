"""Slices are written so that parse_partitions, which other tests compare with OpenSM, reads the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.sm.pkey.partitions import DEFAULT_P_KEY, Everyone, Membership, broadcast_mgid
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.tenants.drivers.partition_files import (
    as_read,
    check_name,
    definition_of,
    read_definitions,
    read_partition,
    write_definitions,
    write_partitions,
)
from weft.tenants.partitions import LAST_P_KEY, Allocation, Member, Partition


def is_name(text: str) -> bool:
    try:
        check_name(text)
    except ConfigError:
        return False
    return True


NAMES = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=33).filter(is_name),
    st.sampled_from(["Default", "ALL", "0x7fff", "12", "a b", "ä" * 15, "n" * 31, "mgid", "ipoib"]),
)
SLICES = st.builds(
    Partition,
    name=NAMES,
    p_key=st.integers(1, LAST_P_KEY),
    members=st.dictionaries(st.integers(1, 2**64 - 1), st.builds(Member, st.booleans(), st.booleans()), max_size=5),
    ipoib=st.booleans(),
    sl=st.integers(0, 15),
    mtu_bytes=st.sampled_from([None, 256, 512, 1024, 2048, 4096]),
    rate_gbit_s=st.sampled_from([None, 2.5, 5, 10, 14, 25, 100, 400, 600]),
)


@given(st.lists(SLICES, max_size=4, unique_by=lambda one: one.p_key), st.booleans())
def test_written_partitions_are_read_back(partitions, default_is_full):
    expected = Allocation(partitions={one.p_key: one for one in partitions}, default_is_full=default_is_full)
    text = write_partitions(expected)
    assert read_definitions(text) == as_read(expected.partitions)
    for partition in partitions:
        assert read_partition(definition_of(partition).partition()) == as_read(expected.partitions)[partition.p_key]
    assert as_read(as_read(expected.partitions)) == as_read(expected.partitions)
    output = parse_partitions(text)
    assert [note for note in output.notes if "has no members" not in note and "the last counts" not in note] == []
    default = output.by_p_key(DEFAULT_P_KEY)
    assert default is not None
    assert default.groups[0].mgid == broadcast_mgid(DEFAULT_P_KEY)
    last = {member.who: member.membership for member in default.members}
    assert last[Everyone.ALL] == (Membership.FULL if default_is_full else Membership.LIMITED)
    assert last[Everyone.SELF] == Membership.FULL


def test_each_line_has_one_port():
    acme = Partition(name="acme", p_key=0x101, members={0xA: Member(), 0xB: Member(full=False)}, ipoib=True, sl=2)
    assert write_definitions([acme]) == (
        "acme=0x0101,ipoib,sl=2 :\n 0x000000000000000a=full,\n 0x000000000000000b=limited ;\n"
    )
    assert write_definitions([replace(acme, members={})]) == "acme=0x0101,ipoib,sl=2 : NONE ;\n"


@pytest.mark.parametrize("name", ["", " a", "a\n", "a,b", "a=b", "a:b", "a;b", "a#b", "n" * 32, "ä" * 16])
def test_an_invalid_partition_name_is_refused(name):
    with pytest.raises(ConfigError, match="the partition name"):
        write_definitions([Partition(name=name, p_key=1)])


@pytest.mark.parametrize(("what", "value"), [("mtu_bytes", 1500), ("rate_gbit_s", 3.0), ("rate_gbit_s", 800.0)])
def test_a_limit_without_a_code_is_refused(what, value):
    with pytest.raises(ConfigError, match=r"acme=0x0001, .* must be one of .*"):
        write_definitions([replace(Partition(name="acme", p_key=1), **{what: value})])


def test_members_with_index_0_have_a_definition_of_their_own():
    first, other = {0xA: Member(index0=True)}, {0xB: Member()}
    acme = Partition(name="acme", p_key=0x101, members=first)
    own = "acme=0x0101,indx0 :\n 0x000000000000000a=full ;\n"
    assert write_definitions([acme]) == own
    both = write_definitions([replace(acme, members=first | other)])
    assert both == "acme=0x0101 :\n 0x000000000000000b=full ;\n" + own
