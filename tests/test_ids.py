from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.ids import Gid, Guid, Lid, PKey


def test_they_print_as_operators_write_them():
    assert str(Guid(0x0002C90300001230)) == "0x0002c90300001230"
    assert str(Lid(17)) == "17"
    assert str(PKey(0x8001)) == "0x8001"
    assert str(Gid.of(0x0002C90300001230)) == "fe80:0000:0000:0000:0002:c903:0000:1230"
    assert f"{Guid(1)}" == "0x0000000000000001"


@pytest.mark.parametrize(("kind", "bits"), [(Guid, 64), (Lid, 16), (PKey, 16), (Gid, 128)])
def test_a_value_beyond_its_width_is_refused(kind, bits):
    assert kind((1 << bits) - 1) == (1 << bits) - 1
    for wrong in (1 << bits, -1):
        with pytest.raises(ConfigError, match=f"{kind.__name__} .* does not fit in {bits} bits"):
            kind(wrong)


@given(st.integers(0, 2**64 - 1))
def test_a_guid_parses_its_own_text(value):
    assert Guid.parse(str(Guid(value))) == value
    assert Guid.parse(f"{value:x}") == value, "ibnetdiscover writes port GUIDs without leading zeros"


@given(st.integers(0, 2**128 - 1))
def test_a_gid_parses_its_own_text_and_is_prefix_and_guid(value):
    gid = Gid.parse(str(Gid(value)))
    assert gid == value
    assert Gid.of(gid.guid, gid.prefix) == gid


@pytest.mark.parametrize(("kind", "text"), [(Guid, "xyz"), (Lid, "leaf"), (PKey, ""), (Gid, "fe80"), (Lid, "70000")])
def test_nonsense_is_refused_with_the_way_out(kind, text):
    with pytest.raises(ConfigError, match="write "):
        kind.parse(text)


def test_lids_know_their_range():
    assert Lid(0xC000).is_multicast
    assert not Lid(0xFFFF).is_multicast


def test_two_limited_members_of_a_partition_may_not_talk():
    full, limited, other = PKey(0x8001), PKey(0x0001), PKey(0x8002)
    assert full.matches(limited)
    assert limited.matches(full)
    assert full.matches(full)
    assert not limited.matches(limited)
    assert not full.matches(other)
    assert not PKey(0x8000).matches(PKey(0x8000)), "partition 0 is invalid"
