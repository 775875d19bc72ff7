"""Frames that an Ethernet port of a lab writes and reads equal those of `weft.wire.packet`, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.verbs.carriers.lab.ethernet_frames import arrival_of, frame_of, is_ipv4
from weft.verbs.hca.packets import encode
from weft.verbs.hca.segment import Op, Segment, Service, packets_of
from weft.wire.format import Malformed
from weft.wire.packet import Link, Packet, icrc_is_right
from weft.wire.roce import UDP, Ethernet, EtherType, IPv4, local_mac

_IPV4 = 0xFFFF << 32
SEGMENTS = st.builds(
    lambda op, payload, psn, qp: Segment(
        op=op,
        service=Service.RC,
        dest_qp=qp,
        psn=psn,
        count=packets_of(len(payload), 256),
        p_key=0xFFFF,
        payload=payload,
        va=psn << 20,
        length=len(payload),
    ),
    st.sampled_from((Op.SEND, Op.WRITE)),
    st.binary(max_size=700),
    st.integers(0, 0xFFFFFF),
    st.integers(0, 0xFFFFFF),
)
ADDRESS = st.integers(1, (1 << 32) - 1)


@given(SEGMENTS, ADDRESS, ADDRESS, st.integers(0, 255), st.integers(1, 255))
def test_frames_are_those_of_the_wire_package(segment, to, own, traffic_class, ttl):
    gids = _IPV4 | to, _IPV4 | own
    for headers, payload in encode(segment, 256):
        frame = frame_of(gids, headers, payload, traffic_class, ttl)
        link = Ethernet(destination=local_mac(to), source=local_mac(own), ether_type=EtherType.IPV4)
        ip = IPv4(dscp=traffic_class >> 2, ecn=traffic_class & 3, ttl=ttl, source=own, destination=to)
        assert frame == Packet((link, ip, UDP(), *headers), payload).pack()
        assert icrc_is_right(frame, Link.ETHERNET)
        arrival = arrival_of(frame)
        assert arrival.segment.payload == payload
        assert arrival.source.gids == (gids[1], gids[0]), "the answer goes back to the sender"
        assert arrival.grh[20:] == frame[14:34]


def test_a_router_may_lower_the_ttl_and_no_other_byte():
    segment = Segment(op=Op.SEND, service=Service.RC, dest_qp=7, psn=1, p_key=0xFFFF, payload=b"abcdefg", length=7)
    (headers, payload) = next(iter(encode(segment, 256)))
    frame = frame_of((_IPV4 | 1, _IPV4 | 2), headers, payload, 0, 64)
    for at in range(14, len(frame)):
        changed = frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :]
        if at - 14 in (1, 8, 10, 11, 26, 27) or at - 42 == 4:  # DSCP and ECN, TTL, checksums; resv8a
            assert arrival_of(changed).segment.payload == b"abcdefg"
        else:
            with pytest.raises(Malformed):
                arrival_of(changed)


@pytest.mark.parametrize("cut", [0, 13, 41, 57])
def test_truncated_frames_are_malformed(cut):
    segment = Segment(op=Op.SEND, service=Service.RC, dest_qp=7, psn=1, p_key=0xFFFF, payload=b"", length=0)
    (headers, payload) = next(iter(encode(segment, 256)))
    with pytest.raises(Malformed):
        arrival_of(frame_of((_IPV4 | 1, _IPV4 | 2), headers, payload, 0, 64)[:cut])


def test_gids_of_infiniband_are_no_addresses():
    assert is_ipv4(_IPV4 | 5)
    assert not is_ipv4(0xFE80 << 112 | 5)
    assert not is_ipv4(5)
