"""Packets that a lab's port writes and reads equal those of `weft.wire.packet`, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.verbs.carriers.lab.carrier import _arrival, _packet
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.hca.packets import encode
from weft.verbs.hca.segment import Op, Segment, Service, packets_of
from weft.wire.format import Malformed
from weft.wire.headers import GRH, LRH
from weft.wire.packet import Packet

SEGMENTS = st.builds(
    lambda op, payload, psn, qp, p_key: Segment(
        op=op,
        service=Service.RC,
        dest_qp=qp,
        psn=psn,
        count=packets_of(len(payload), 256),
        p_key=p_key,
        payload=payload,
        va=psn << 20,
        length=len(payload),
    ),
    st.sampled_from((Op.SEND, Op.WRITE)),
    st.binary(max_size=700),
    st.integers(0, 0xFFFFFF),
    st.integers(0, 0xFFFFFF),
    st.integers(0, 0xFFFF),
)
GIDS = st.tuples(st.integers(1, (1 << 128) - 1), st.integers(1, (1 << 128) - 1))
WAYS = st.builds(
    AddressVector,
    st.integers(1, 0xBFFF),
    st.none() | GIDS,
    sl=st.integers(0, 15),
    flow_label=st.integers(0, 0xFFFFF),
    hop_limit=st.integers(0, 255),
    traffic_class=st.integers(0, 255),
)


@given(SEGMENTS, WAYS, st.integers(1, 0xBFFF))
def test_a_packet_is_what_the_wire_says_and_comes_back_as_it_was(segment, way, slid):
    for headers, payload in encode(segment, 256):
        result = _packet(way, slid, headers, payload)
        outer = [LRH(sl=way.sl, dlid=way.lid, slid=slid)]
        if way.gids is not None:
            theirs, ours = way.gids
            route = {"flow_label": way.flow_label, "hop_lmt": way.hop_limit, "t_class": way.traffic_class}
            outer.append(GRH(sgid=ours, dgid=theirs, **route))
        assert result == Packet((*outer, *headers), payload).pack()
        arrival = _arrival(result)
        assert (arrival.slid, arrival.sl, bytes(arrival.segment.payload)) == (slid, way.sl, payload)
        assert arrival.source == AddressVector(slid, way.gids and way.gids[::-1])


@given(SEGMENTS, WAYS, st.data())
def test_corrupted_frame_is_no_packet(segment, way, data):
    headers, payload = next(encode(segment, 256))
    result = bytearray(_packet(way, 5, headers, payload))
    first = 8 + (40 if way.gids is not None else 0) + 5  # after the last field that switches may change, resv8a
    bit = data.draw(st.integers(8 * first, 8 * (len(result) - 2) - 1))
    result[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Malformed):
        _arrival(bytes(result))


def test_a_piece_of_a_packet_is_none():
    for length in range(8, 30):
        with pytest.raises(Malformed):
            _arrival(bytes(length))
