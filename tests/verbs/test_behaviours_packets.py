"""Required behaviour of an InfiniBand transport, as in test_behaviours.py, visible only in the bytes of packets."""

from __future__ import annotations

import sys

import pytest
from tests.verbs.segments import arrive, request
from tests.verbs.wires import ALL, Wire, connected

from weft.verbs.enums import IBV_SEND_SOLICITED, ibv_qp_state, ibv_wc_status, ibv_wr_opcode
from weft.verbs.hca.packets import decode, encode
from weft.verbs.hca.segment import Op, Segment, Service
from weft.verbs.hca.work import SendWork
from weft.wire.format import Format, Malformed
from weft.wire.headers import AETH, BTH, AtomicETH, ImmDt, Opcode

W = ibv_wr_opcode
OK = int(ibv_wc_status.IBV_WC_SUCCESS)


def headers_of(segment: Segment, mtu_bytes: int = 1024) -> list[tuple[Format, ...]]:
    return [headers for headers, _ in encode(segment, mtu_bytes)]


@pytest.mark.parametrize(("size", "pad", "is_right"), [(5, 3, True), (5, 1, False), (8, 3, False), (0, 1, False)])
def test_11_padding_makes_a_multiple_of_four(size, pad, is_right):
    headers = (BTH(opcode=Opcode.RC_SEND_ONLY, pad_cnt=pad),)
    if is_right:
        assert len(decode(headers, bytes(size)).payload) == size
    else:
        with pytest.raises(Malformed, match="padding"):
            decode(headers, bytes(size))


def test_12_a_responder_without_a_count_of_credits_says_so():
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    wire.a.send(a, 1, 0, 10)
    wire.run()
    ((bth, aeth),) = headers_of(wire.ends["b"].sent[0])
    assert (bth.opcode, bth.psn) == (Opcode.RC_ACKNOWLEDGE, 0)
    assert (aeth.syndrome, aeth.msn) == (0x1F, 1)


def test_23_numbers_are_of_the_host_in_memory_and_big_endian_on_the_wire():
    wire = Wire()
    a, _ = connected(wire)
    wire.b.put(0, (0x0102).to_bytes(8, sys.byteorder))
    target = {"va": wire.b.at, "rkey": wire.b.region.key}
    wire.a.send(a, 1, 8, 8, W.IBV_WR_ATOMIC_CMP_AND_SWP, compare=0x0102, swap=0x0304, **target)
    wire.run()
    ((_, requests),), ((_, _, answered),) = headers_of(wire.ends["a"].sent[0]), headers_of(wire.ends["b"].sent[0])
    assert isinstance(requests, AtomicETH)
    assert requests.raw[12:] == bytes((0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 1, 2))
    assert answered.raw == bytes((0, 0, 0, 0, 0, 0, 1, 2))
    assert wire.a.get(8, 8) == (0x0102).to_bytes(8, sys.byteorder)
    assert wire.b.get(0, 8) == (0x0304).to_bytes(8, sys.byteorder)


@pytest.mark.parametrize("opcode", [W.IBV_WR_SEND_WITH_IMM, W.IBV_WR_RDMA_WRITE_WITH_IMM])
def test_29_immediate_data_is_in_the_last_packet_only_with_the_bytes_that_it_has(opcode):
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 3000)
    wire.a.send(a, 1, 0, 3000, opcode, immediate=0x01020304, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    packets = headers_of(wire.ends["a"].sent[0])
    assert [any(isinstance(header, ImmDt) for header in headers) for headers in packets] == [False, False, True]
    assert packets[-1][-1].raw == bytes((1, 2, 3, 4))


def test_31_all_answers_of_a_read_but_those_in_the_middle_have_an_aeth():
    wire = Wire()
    a, _ = connected(wire)
    for number, size in enumerate((4096, 10)):
        wire.a.send(a, number, 0, size, W.IBV_WR_RDMA_READ, va=wire.b.at, rkey=wire.b.region.key)
    wire.run()
    packets = [headers for sent in wire.ends["b"].sent for headers in headers_of(sent)]
    assert [(item[0].psn, Opcode(item[0].opcode).name.removeprefix("RC_RDMA_READ_RESPONSE_")) for item in packets] == [
        (0, "FIRST"),
        (1, "MIDDLE"),
        (2, "MIDDLE"),
        (3, "LAST"),
        (4, "ONLY"),
    ]
    assert [any(isinstance(item, AETH) for item in headers) for headers in packets] == [True, False, False, True, True]


def test_35_the_last_packet_says_that_it_is_solicited():
    wire = Wire()
    a, b = connected(wire)
    wire.b.receive(b, 1, 0, 3000)
    a.post_send(
        SendWork(wr_id=1, opcode=W.IBV_WR_SEND, places=(wire.a.place(0, 3000),), flags=IBV_SEND_SOLICITED),
    )
    wire.a.adapter.wake(a)
    wire.run()
    assert [headers[0].se for headers in headers_of(wire.ends["a"].sent[0])] == [0, 0, 1]


def test_39_a_flush_says_what_it_is_for():
    wire = Wire()
    a, _ = connected(wire, access=ALL)
    work = SendWork(wr_id=1, opcode=W.IBV_WR_FLUSH, va=wire.b.at, rkey=wire.b.region.key, length=64, flush=2)
    a.post_send(work)
    wire.a.adapter.wake(a)
    wire.run()
    ((bth, feth, reth),) = headers_of(wire.ends["a"].sent[0])
    assert (bth.opcode, feth.plt, feth.sel, reth.dma_len) == (Opcode.RC_FLUSH, 2, 0, 64)


def test_46_another_version_of_the_transport_is_none():
    with pytest.raises(Malformed, match="version 1"):
        decode((BTH(opcode=Opcode.RC_SEND_ONLY, t_ver=1),), b"")


def test_46_a_packet_of_another_service_is_none_of_a_queue_pair():
    wire = Wire()
    _, b = connected(wire)
    wire.b.receive(b, 1, 0, 10)
    stranger = request(b, Op.SEND, 0, b"x")
    stranger.service = Service.UC
    arrive(wire, stranger)
    assert (wire.b.done(), wire.ends["b"].sent, b.state) == ([], [], ibv_qp_state.IBV_QPS_RTS)
