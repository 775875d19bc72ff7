"""Segments on the wire and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.verbs.hca.packets import decode, encode
from weft.verbs.hca.segment import REQUESTS, Op, Segment, Service, packets_of
from weft.wire.format import Malformed
from weft.wire.headers import BTH, RETH, Opcode
from weft.wire.packet import Link, Packet
from weft.wire.roce import UDP, Ethernet, IPv4

U24, U32, U64 = st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)


@st.composite
def segments(draw):
    op = draw(st.sampled_from(list(Op)))
    only = {Op.ATOMIC_WRITE: [Service.RC], Op.FLUSH: [Service.RC], Op.RESYNC: [Service.RD]}
    service = draw(st.sampled_from(only.get(op, [Service.RC, Service.RD, Service.XRC])))
    run = op in (Op.SEND, Op.WRITE, Op.READ_RESPONSE)
    payload = (
        draw(st.binary(max_size=3000))
        if run
        else draw(st.binary(min_size=8, max_size=8))
        if op == Op.ATOMIC_WRITE
        else b""
    )
    result = Segment(
        op=op,
        service=service,
        dest_qp=draw(U24),
        psn=draw(U24),
        count=packets_of(len(payload), 256),
        p_key=draw(st.integers(0, 0xFFFF)),
        solicited=draw(st.booleans()),
        ack_request=draw(st.booleans()),
        payload=payload,
    )
    if op in (Op.WRITE, Op.READ, Op.ATOMIC_WRITE, Op.FLUSH):
        result.va, result.rkey, result.length = draw(U64), draw(U32), draw(U32)
    if op in (Op.COMPARE_SWAP, Op.FETCH_ADD):
        result.va, result.rkey, result.swap, result.compare = draw(U64), draw(U32), draw(U64), draw(U64)
    if op == Op.ATOMIC_RESPONSE:
        result.swap = draw(U64)
    if op in (Op.READ_RESPONSE, Op.ATOMIC_RESPONSE, Op.ACKNOWLEDGE):
        result.syndrome, result.msn = draw(st.sampled_from([0x1F, 0x21, 0x60])), draw(U24)
    if service == Service.RD:
        result.ee = draw(U24)
    if op in REQUESTS and service == Service.RD:
        result.source_qp, result.q_key = draw(U24), draw(U32)
    if op in REQUESTS and service == Service.XRC:
        result.srq = draw(U24)
    if op in (Op.SEND, Op.WRITE) and draw(st.booleans()):
        result.immediate = draw(U32)
    return result


@given(segments())
def test_encoded_segment_decodes_to_its_packets(segment):
    decoded = [decode(headers, payload) for headers, payload in encode(segment, 256)]
    expected = segment.packets(256)
    assert len(decoded) == len(expected) == segment.count
    for received, item in zip(decoded, expected, strict=True):
        assert (received.op, received.psn, received.first, received.last, received.payload) == (
            item.op,
            item.psn,
            item.first,
            item.last,
            item.payload,
        )
        assert (received.p_key, received.solicited, received.ack_request) == (
            item.p_key,
            item.solicited,
            item.ack_request,
        )
        assert (received.immediate, received.dest_qp) == (item.immediate, item.dest_qp)
        assert (received.ee, received.source_qp, received.q_key, received.srq) == (
            item.ee,
            item.source_qp,
            item.q_key,
            item.srq,
        )
        if item.first:
            assert (received.va, received.rkey, received.length, received.swap) == (
                item.va,
                item.rkey,
                item.length,
                item.swap,
            )


def test_only_the_first_packet_of_a_write_has_the_reth():
    segment = Segment(
        op=Op.WRITE, service=Service.RC, dest_qp=7, psn=9, count=3, va=5, rkey=6, length=600, payload=bytes(600)
    )
    opcodes = [
        (headers[0].opcode, any(isinstance(header, RETH) for header in headers)) for headers, _ in encode(segment, 256)
    ]
    assert opcodes == [
        (Opcode.RC_RDMA_WRITE_FIRST, True),
        (Opcode.RC_RDMA_WRITE_MIDDLE, False),
        (Opcode.RC_RDMA_WRITE_LAST, False),
    ]


def test_a_packet_of_roce_comes_back_as_it_was():
    segment = Segment(op=Op.SEND, service=Service.RC, dest_qp=7, psn=9, immediate=1234, payload=b"hello")
    ((headers, payload),) = encode(segment, 1024)
    frame = Packet((Ethernet(), IPv4(), UDP(), *headers), payload).pack()
    packet = Packet.parse(frame, Link.ETHERNET)
    at = packet.kinds.index(BTH)
    assert decode(packet.headers[at:], packet.payload).payload == b"hello"


def test_an_opcode_that_no_queue_pair_has_is_refused():
    with pytest.raises(Malformed):
        decode((BTH(opcode=Opcode.CNP),), b"")
