"""Transfers of more than one MAD."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.wire import rmpp
from weft.wire.format import Malformed
from weft.wire.mad import MAD_BYTES, Method, RmppFlag, RmppMad, RmppType
from weft.wire.sa import SA_HEADER_BYTES, SaMad

HEADER = SaMad(method=Method.GET_TABLE_RESP, transaction_id=7, attribute_offset=14).raw[:SA_HEADER_BYTES]


def lengths(segments: list[bytes]) -> list[int]:
    return [RmppMad.data2.get(segment) for segment in segments]


@given(st.binary(max_size=2000), st.randoms(use_true_random=False), st.sampled_from([SA_HEADER_BYTES, 40, 64]))
def test_segments_are_joined_in_whatever_order_they_come(data, order, header_bytes):
    header = HEADER[:header_bytes].ljust(header_bytes, b"\1")
    segments = rmpp.split(header, data)
    assert all(len(segment) == MAD_BYTES for segment in segments)
    order.shuffle(segments)
    assert rmpp.join(segments, header_bytes) == data


def test_payload_lengths_match_linux():
    """drivers/infiniband/core/mad_rmpp.c, send_next_seg: 220 bytes a segment, the SA's 20 of header included."""
    assert lengths(rmpp.split(HEADER, bytes(112))) == [132]
    assert lengths(rmpp.split(HEADER, bytes(500))) == [3 * 220 - 100, 0, 120]
    assert lengths(rmpp.split(HEADER, b"")) == [20]


def test_flags_say_first_and_last():
    active, first, last = RmppFlag.ACTIVE, RmppFlag.FIRST, RmppFlag.LAST
    flags = [RmppMad.rmpp_flags.get(segment) for segment in rmpp.split(HEADER, bytes(500))]
    assert flags == [active | first, active, active | last]
    assert RmppMad.rmpp_flags.get(rmpp.split(HEADER, b"")[0]) == active | first | last


def test_every_segment_repeats_the_header():
    for number, segment in enumerate(rmpp.split(HEADER, bytes(500)), 1):
        mad = SaMad.unpack(segment)
        assert (mad.transaction_id, mad.attribute_offset, mad.data1, mad.rmpp_version) == (7, 14, number, 1)


def test_a_gap_is_malformed():
    segments = rmpp.split(HEADER, bytes(500))
    with pytest.raises(Malformed, match=r"\[1, 3\] are incomplete"):
        rmpp.join([segments[0], segments[2]], SA_HEADER_BYTES)
    with pytest.raises(Malformed, match="segment 2 is not marked as the last"):
        rmpp.join(segments[:2], SA_HEADER_BYTES)
    with pytest.raises(Malformed, match=r"\[\] are incomplete"):
        rmpp.join([], SA_HEADER_BYTES)
    with pytest.raises(Malformed, match="not a DATA segment"):
        rmpp.join([rmpp.acknowledge(segments[0], SA_HEADER_BYTES, 1)], SA_HEADER_BYTES)


def test_a_length_that_cannot_be_is_forgiven_as_linux_does():
    segment = bytearray(rmpp.split(HEADER, b"x")[0])
    RmppMad.data2.set(segment, 0xFFFFFFFF)
    assert len(rmpp.join([segment], SA_HEADER_BYTES)) == 200
    for length, data_bytes in ((220, 200), (221, 200), (20, 0), (19, 200)):
        RmppMad.data2.set(segment, length)
        assert len(rmpp.join([segment], SA_HEADER_BYTES)) == data_bytes


@pytest.mark.parametrize("size_bytes", [MAD_BYTES - 1, MAD_BYTES + 1])
def test_a_segment_of_another_size_than_a_mad_is_malformed(size_bytes):
    segment = rmpp.split(HEADER, b"x")[0].ljust(size_bytes, b"\0")[:size_bytes]
    with pytest.raises(Malformed, match=f"segment of {size_bytes} bytes is not a DATA segment"):
        rmpp.join([segment], SA_HEADER_BYTES)


def test_an_ack_travels_against_the_data():
    ack = SaMad.unpack(rmpp.acknowledge(rmpp.split(HEADER, bytes(500))[1], SA_HEADER_BYTES, window=4))
    assert (ack.method, ack.rmpp_type, ack.transaction_id) == (Method.GET_TABLE, RmppType.ACK, 7)
    assert (ack.data1, ack.data2) == (2, 6)
