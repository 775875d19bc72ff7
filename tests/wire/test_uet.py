"""Ultra Ethernet's headers, byte by byte as linux/ultraeth.h places their fields. Round trips: test_all_formats."""

from __future__ import annotations

import pytest

from weft.wire import uet
from weft.wire.format import Malformed

REQUEST = uet.PdsRequest(
    type=uet.PdsType.RUD_REQUEST, next_header=uet.NextHeader.REQUEST, ack_request=1, psn=0x01020304, spdcid=5, dpdcid=6
)
WRITE = uet.SesRequest(
    opcode=uet.SesOpcode.WRITE,
    start_of_message=1,
    end_of_message=1,
    message_id=0x1122,
    index_generation=0x33,
    job_id=0x445566,
    pid_on_fep=0x777,
    resource_index=0x888,
    buffer_offset=9,
    initiator=10,
    match_bits=11,
    length=4096,
)


def test_the_fields_of_a_prologue_are_type_next_header_and_flags():
    """Five, four and seven bits of a big-endian word: 2 << 11, 3 << 7, AR = 1 << 3."""
    assert REQUEST.raw[:2] == (2 << 11 | 3 << 7 | 1 << 3).to_bytes(2, "big")
    assert REQUEST.raw[2:] == bytes.fromhex("0000 01020304 0005 0006")


@pytest.mark.parametrize(
    ("form", "field", "flags"),
    [
        (uet.PdsRequest, "congestion", 1 << 1),
        (uet.PdsRequest, "syn", 1 << 2),
        (uet.PdsRequest, "retransmitted", 1 << 4),
        (uet.PdsRequest, "crc", 1 << 6),
        (uet.PdsAck, "probed", 1 << 3),
        (uet.PdsAck, "marked", 1 << 5),
        (uet.PdsNack, "nack_type", 1 << 3),
        (uet.PdsNack, "retransmitted", 1 << 4),
    ],
)
def test_flags_are_the_bits_of_the_header_file(form, field, flags):
    raw = form(**{"type": 0, field: 1}).raw
    assert int.from_bytes(raw[:2], "big") == flags


def test_a_request_of_ses_has_the_offsets_of_the_header_file():
    raw = WRITE.raw
    assert len(raw) == 44
    assert (raw[0], raw[1]) == (uet.SesOpcode.WRITE, 0b11)
    assert raw[2:12] == bytes.fromhex("1122 33445566 0777 0888")
    assert [int.from_bytes(raw[at:end], "big") for at, end in ((12, 20), (20, 24), (24, 32), (40, 44))] == [
        9,
        10,
        11,
        4096,
    ]


def test_a_response_has_list_opcode_version_and_code_in_its_first_word():
    raw = uet.SesResponse(list=1, opcode=2, version=3, return_code=0x24, modified_length=7).raw
    assert int.from_bytes(raw[:2], "big") == 1 << 14 | 2 << 8 | 3 << 6 | 0x24
    assert raw[8:] == bytes.fromhex("00000007")


def test_a_packet_is_split_into_its_headers_and_payload():
    headers, payload = uet.read(REQUEST.raw + WRITE.raw + b"data")
    assert headers == [REQUEST, WRITE]
    assert payload == b"data"


def test_syn_gives_the_mode_and_offset_in_place_of_the_number_at_the_destination():
    start = uet.PdsStart(type=uet.PdsType.ROD_REQUEST, spdcid=1, mode=2, psn_offset=0xABC)
    (header,), _ = uet.read(start.raw)
    assert (type(header), header.raw[10:]) == (uet.PdsStart, bytes.fromhex("2abc"))


def test_an_ack_with_congestion_state_has_its_bitmap_behind_it():
    state = uet.PdsAckState(cc_type=1, maximum_psn_range=8, sack_bitmap=0b101)
    answer = uet.SesResponse(opcode=uet.SesResponseOpcode.RESPONSE, return_code=1)
    ack = uet.PdsAck(type=uet.PdsType.ACK_CC, next_header=uet.NextHeader.RESPONSE, cumulative_psn=41)
    headers, payload = uet.read(ack.raw + state.raw + answer.raw)
    assert (headers, payload) == ([ack, state, answer], b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x10", "the prologue has 2"),
        (uet.PdsRequest(type=uet.PdsType.UUD_REQUEST).raw, "type 6"),
        (uet.PdsRequest(type=uet.PdsType.RUD_REQUEST, next_header=1).raw, "next header 1"),
        (REQUEST.raw[:11], "ends in its PdsRequest, of 12"),
        (REQUEST.raw + WRITE.raw[:43], "ends in its SesRequest, of 44"),
    ],
)
def test_packets_of_unknown_layout_or_cut_short_are_refused(data, reason):
    with pytest.raises(Malformed, match=reason):
        uet.read(data)
