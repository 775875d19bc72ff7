"""Whole packets, built and parsed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.wire.format import Malformed
from weft.wire.headers import AETH, BTH, DETH, GRH, IETH, LNH, LRH, RDETH, RETH, RWH, XRCETH, FlowControl, ImmDt, Opcode
from weft.wire.opcodes import CARRIES_NO_PAYLOAD, EXTENDED_HEADERS
from weft.wire.packet import Link, Packet, bth_at, icrc_is_right, read_transport
from weft.wire.roce import UDP, Ethernet, EtherType, IPv4, IPv6, Vlan, internet_checksum

ROUTES = {
    "local": (LRH(dlid=5, slid=6),),
    "global": (LRH(dlid=5, slid=6), GRH(sgid=1, dgid=2)),
    "RoCE v1": (Ethernet(), GRH(sgid=1, dgid=2)),
    "RoCE v1 tagged": (Ethernet(), Vlan(pcp=3), GRH()),
    "RoCE v2": (Ethernet(), IPv4(source=1, destination=2), UDP()),
    "RoCE v2 tagged over IPv6": (Ethernet(), Vlan(vid=9), IPv6(source=1, destination=2), UDP()),
}


def link_of(packet: Packet) -> Link:
    return Link.INFINIBAND if LRH in packet else Link.ETHERNET


@pytest.mark.parametrize("route", ROUTES)
@settings(max_examples=40)
@given(opcode=st.sampled_from(Opcode), payload=st.binary(max_size=300), psn=st.integers(0, 0xFFFFFF))
def test_a_packet_is_parsed_as_it_was_built(route, opcode, payload, psn):
    payload = b"" if opcode in CARRIES_NO_PAYLOAD else payload
    extended = tuple(kind() for kind in EXTENDED_HEADERS[opcode])
    packet = Packet((*ROUTES[route], BTH(opcode=opcode, psn=psn, dest_qp=7), *extended), payload)
    frame = packet.pack()
    again = Packet.parse(frame, link_of(packet))
    assert again.payload == payload
    assert again.kinds == packet.kinds
    assert again[BTH].replace(pad_cnt=0) == packet[BTH]
    assert again.pack() == frame
    assert icrc_is_right(frame, link_of(packet))


@pytest.mark.parametrize("route", ["local", "global"])
@pytest.mark.parametrize("opcode", Opcode)
def test_the_transport_is_found_in_the_bytes_where_a_parsed_packet_has_it(route, opcode):
    extended = tuple(kind() for kind in EXTENDED_HEADERS[opcode])
    frame = Packet((*ROUTES[route], BTH(opcode=opcode, dest_qp=7), *extended)).pack()
    parsed, at = Packet.parse(frame, Link.INFINIBAND), bth_at(frame)
    assert at == sum(header.size for header in parsed.headers[: parsed.kinds.index(BTH)])
    assert tuple(read_transport(frame, at)[0]) == parsed.headers[parsed.kinds.index(BTH) :]
    assert bth_at(frame[:-1]) == bth_at(frame + b"\0") == -1


def test_lengths_and_next_headers_follow_from_the_rest():
    packet = Packet((*ROUTES["global"], BTH(opcode=Opcode.RC_RDMA_WRITE_ONLY), RETH(dma_len=5)), b"12345")
    frame = packet.pack()
    sent = Packet.parse(frame, Link.INFINIBAND)
    assert len(frame) == 8 + 40 + 12 + 16 + 5 + 3 + 4 + 2
    assert (sent[LRH].lnh, sent[LRH].pkt_len) == (LNH.GRH, (len(frame) - 2) // 4)
    assert (sent[GRH].pay_len, sent[GRH].nxt_hdr, sent[BTH].pad_cnt) == (12 + 16 + 8 + 4, 0x1B, 3)


def test_ip_and_udp_headers_are_valid():
    body = (BTH(opcode=Opcode.UD_SEND_ONLY), DETH(q_key=1))
    frame = Packet((*ROUTES["RoCE v2"], *body), bytes(8)).pack()
    sent = Packet.parse(frame, Link.ETHERNET)
    assert sent[Ethernet].ether_type == EtherType.IPV4
    assert sent[IPv4].total_length == len(frame) - 14
    assert internet_checksum(sent[IPv4].raw) == 0
    assert (sent[UDP].destination_port, sent[UDP].length, sent[UDP].checksum) == (4791, len(frame) - 34, 0)


def test_the_udp_checksum_over_ipv6_is_the_captured_one(vectors):
    frame = next(vector.frame for vector in vectors if vector.name == "rocev2_uc_send_only_ipv6")
    sent = Packet.parse(frame, Link.ETHERNET)
    assert sent[UDP].checksum == 0xE7C5
    blank = tuple(header.replace(checksum=0) if isinstance(header, UDP) else header for header in sent.headers)
    assert Packet(blank, sent.payload).pack() == frame


def test_captured_packets_are_built_again_byte_by_byte(vectors):
    """But for the ICRC where the source had none, and the UDP checksum, which weft leaves out over IPv4."""
    captured = [vector for vector in vectors if vector.link is Link.ETHERNET]
    assert len(captured) == 8
    for vector in captured:
        packet, expected = Packet.parse(vector.frame, vector.link), bytearray(vector.frame)
        if IPv4 in packet:
            UDP.checksum.set(expected, 0, 34)
        again = packet.pack()
        assert again[:-4] == expected[: len(again) - 4], vector.name
        assert vector.icrc in (None, again[-4:])


def test_padding_behind_a_short_frame_is_no_payload(vectors):
    frame = next(vector.frame for vector in vectors if vector.name == "libtins_sv_pktlib4_rc_ack_credits")
    packet = Packet.parse(frame, Link.ETHERNET)
    assert len(frame) == 81
    assert (packet.payload, packet[AETH].syndrome, packet[AETH].msn) == (b"", 0x1B, 1)


def test_each_transport_puts_its_headers_in_front():
    assert EXTENDED_HEADERS[Opcode.RC_SEND_ONLY_WITH_INVALIDATE] == (IETH,)
    assert EXTENDED_HEADERS[Opcode.UD_SEND_ONLY_WITH_IMMEDIATE] == (DETH, ImmDt)
    assert EXTENDED_HEADERS[Opcode.RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE] == (RDETH, DETH, RETH, ImmDt)
    assert EXTENDED_HEADERS[Opcode.RD_RDMA_READ_RESPONSE_MIDDLE] == (RDETH,)
    assert EXTENDED_HEADERS[Opcode.XRC_SEND_FIRST] == (XRCETH,)
    assert EXTENDED_HEADERS[Opcode.XRC_ACKNOWLEDGE] == (AETH,)


def test_raw_packets_are_handed_on_as_they_are():
    raw = LRH(lnh=LNH.RAW, pkt_len=5).raw + RWH(ether_type=0x0800).raw + b"payload." + b"\0\0"
    packet = Packet.parse(raw, Link.INFINIBAND)
    assert (packet.kinds, packet.payload) == ((LRH, RWH), b"payload.")
    assert not icrc_is_right(raw, Link.INFINIBAND)
    with pytest.raises(ConfigError, match="LRH, RWH has no BTH"):
        packet.pack()


def test_a_raw_ipv6_packet_has_no_bth():
    raw = LRH(lnh=LNH.IPV6, pkt_len=14).raw + GRH(nxt_hdr=0x1B).raw + b"payload." + b"\0\0"
    packet = Packet.parse(raw, Link.INFINIBAND)
    assert (packet.kinds, packet.payload) == ((LRH, GRH), b"payload.")


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_a_frame_shorter_than_its_lrh_says_is_malformed(missing):
    frame = Packet((*ROUTES["local"], BTH(opcode=Opcode.RC_SEND_ONLY)), bytes(8)).pack()
    with pytest.raises(Malformed, match=f"32 bytes before the VCRC, the frame has {34 - missing} with it"):
        Packet.parse(frame[:-missing], Link.INFINIBAND)


def test_a_link_packet_has_six_bytes():
    assert FlowControl(op=0, fctbs=0xABC, vl=3, fccl=0x123).raw == bytes.fromhex("0abc31230000")


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ((LRH(), BTH(opcode=0x1E)), "opcode 0x1e, which is not in the standard"),
        ((LRH(), BTH(opcode=Opcode.RC_ACKNOWLEDGE)), "RC_ACKNOWLEDGE is followed by AETH, not nothing"),
        ((LRH(), BTH(opcode=Opcode.RC_SEND_ONLY), RETH()), "RC_SEND_ONLY is followed by nothing, not RETH"),
        ((GRH(), BTH()), "GRH, BTH cannot precede a BTH"),
        ((Ethernet(), LRH(), BTH()), "Ethernet, LRH, BTH cannot precede a BTH"),
        ((Ethernet(), IPv4(), BTH()), "Ethernet, IPv4, BTH cannot precede a BTH"),
    ],
)
def test_headers_that_do_not_go_together_are_refused(headers, message):
    with pytest.raises(ConfigError, match=message):
        Packet(headers).pack()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame[:38], "UDP at byte 34 needs 8 bytes"),
        (lambda frame: frame[:-1], "UDP has the packet end at 66, beyond the 65 bytes of the frame"),
        (lambda frame: frame[:12] + b"\x88\xcc" + frame[14:], "Ethertype 0x88cc carries no RoCE"),
        (lambda frame: frame[:23] + b"\x06" + frame[24:], "other than one whole UDP datagram"),
        (lambda frame: frame[:14] + b"\x46" + frame[15:], "without options"),
        (lambda frame: frame[:36] + b"\x00\x35" + frame[38:], "UDP port 53 is not RoCE's 4791"),
        (lambda frame: frame[:42] + b"\x1e" + frame[43:], "opcode 0x1e is not in the standard"),
        (lambda frame: frame[:38] + b"\x00\x17" + frame[40:], "padding and ICRC start at"),
    ],
)
def test_invalid_packets_are_malformed(change, message):
    frame = Packet((*ROUTES["RoCE v2"], BTH(opcode=Opcode.RC_SEND_ONLY)), bytes(8)).pack()
    with pytest.raises(Malformed, match=message):
        Packet.parse(change(frame), Link.ETHERNET)


def test_a_header_is_asked_for_by_its_kind():
    packet = Packet((LRH(dlid=9), BTH()))
    assert packet[LRH].dlid == 9
    with pytest.raises(KeyError, match="has no GRH, only LRH, BTH"):
        packet[GRH]
