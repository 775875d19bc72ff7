"""Headers of Ultra Ethernet Transport: packet delivery (PDS) and semantics (SES), which follow UDP.

    PDS request or acknowledgement    a packet's number in its delivery context (PDC), flags, and the next header
    SES request or response           an operation on a message: job, addressed process and index, offset, matching bits

`read` splits a packet into its headers and its payload. The first packets of a context have SYN set, and a mode and an
offset in place of the context's number at the destination: `PdsStart`.

Certainty: none of this was tested against a device. The layouts are those of the header `linux/ultraeth.h` that was
proposed for Linux in 2025, after the UE 1.0 specification. That header has no layout of encrypted, RUDI and UUD
packets, of control messages, and of small and medium SES requests and of responses with data: `read` refuses them. Its
mask of the PSN offset, 0xff1, is taken for 0xfff, since the field has twelve bits.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`
from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, reserved
from weft.wire.format import Format, Malformed


class PdsType(IntEnum):
    """The type of a packet, in its first five bits."""

    ENCRYPTED = 1
    RUD_REQUEST = 2  # reliable, unordered
    ROD_REQUEST = 3  # reliable, ordered
    RUDI_REQUEST = 4  # reliable, unordered, idempotent
    RUDI_RESPONSE = 5
    UUD_REQUEST = 6  # unreliable, unordered
    ACK = 7
    ACK_CC = 8
    ACK_CCX = 9
    NACK = 10
    CONTROL = 11


class NextHeader(IntEnum):
    """The SES header after PDS."""

    NONE = 0
    REQUEST_SMALL = 1
    REQUEST_MEDIUM = 2
    REQUEST = 3
    RESPONSE = 4
    RESPONSE_DATA = 5
    RESPONSE_DATA_SMALL = 6
    PDS = 15


class NackCode(IntEnum):
    """The reason of a NACK."""

    TRIMMED = 0x01
    TRIMMED_LAST_HOP = 0x02
    TRIMMED_ACK = 0x03
    NO_PDC = 0x04
    NO_CCC = 0x05
    NO_BITMAP = 0x06
    NO_PACKET_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OUT_OF_WINDOW = 0x0B
    FIRST_ROD_OUT_OF_ORDER = 0x0C
    ROD_OUT_OF_ORDER = 0x0D
    INVALID_DPDCID = 0x0E
    CLOSING = 0x10
    PACKET_NOT_RECEIVED = 0x12
    INVALID_SYN = 0x15
    INFERRED_LOSS = 0x1A


class SesOpcode(IntEnum):
    """The operation of a request."""

    NOOP = 0x00
    WRITE = 0x01
    READ = 0x02
    ATOMIC = 0x03
    FETCHING_ATOMIC = 0x04
    SEND = 0x05
    RENDEZVOUS_SEND = 0x06
    DATAGRAM_SEND = 0x07
    DEFERRABLE_SEND = 0x08
    TAGGED_SEND = 0x09
    MSG_ERROR = 0x0F


class SesResponseOpcode(IntEnum):
    """The kind of a response."""

    DEFAULT = 0
    RESPONSE = 1
    WITH_DATA = 2


class PdsRequest(Format, size=12):
    """A request of RUD or ROD in a context that both ends know."""

    type = bits(5, of=PdsType)
    next_header = bits(4, of=NextHeader)
    crc = bits(1)
    _ = reserved(1)
    retransmitted = bits(1)
    ack_request = bits(1)
    syn = bits(1)
    congestion = bits(1)  # a congestion control header follows
    _ = reserved(1)
    clear_psn_offset = bits(16)  # from the PSN: up to it, the destination may forget
    psn = bits(32)
    spdcid = bits(16)
    dpdcid = bits(16)


class PdsStart(Format, size=12):
    """A request with SYN: the source does not know the context's number at the destination yet."""

    type = bits(5, of=PdsType)
    next_header = bits(4, of=NextHeader)
    crc = bits(1)
    _ = reserved(1)
    retransmitted = bits(1)
    ack_request = bits(1)
    syn = bits(1, default=1)
    congestion = bits(1)
    _ = reserved(1)
    clear_psn_offset = bits(16)
    psn = bits(32)
    spdcid = bits(16)
    mode = bits(4)
    psn_offset = bits(12)  # of this packet from the context's first


class PdsAck(Format, size=12):
    """An acknowledgement of all packets up to `cumulative_psn`; ACK_CC has a `PdsAckState` behind it."""

    type = bits(5, of=PdsType, default=PdsType.ACK)
    next_header = bits(4, of=NextHeader)
    crc = bits(1)
    marked = bits(1)  # the packet arrived with an ECN mark
    retransmitted = bits(1)
    probed = bits(1)
    request = bits(2)  # of a clear or a close
    _ = reserved(1)
    ack_psn_offset = bits(16)
    cumulative_psn = bits(32)
    spdcid = bits(16)
    dpdcid = bits(16)


class PdsAckState(Format, size=20):
    """Selective acknowledgements and the state of congestion control, after the ACK of ACK_CC."""

    cc_type = bits(4)
    cc_flags = bits(4)
    maximum_psn_range = bits(8)
    sack_psn_offset = bits(16)
    sack_bitmap = bits(64)
    cc_state = bits(64)


class PdsNack(Format, size=16):
    """A negative acknowledgement, such as of a packet that a switch trimmed."""

    type = bits(5, of=PdsType, default=PdsType.NACK)
    next_header = bits(4, of=NextHeader)
    _ = reserved(1)
    marked = bits(1)
    retransmitted = bits(1)
    nack_type = bits(1)
    _ = reserved(3)
    code = bits(8, of=NackCode)
    vendor_code = bits(8)
    psn = bits(32)  # or the number of a packet without a PSN
    spdcid = bits(16)
    dpdcid = bits(16)
    payload = bits(32)


class SesRequest(Format, size=44):
    """A request of the standard size."""

    _ = reserved(2)
    opcode = bits(6, of=SesOpcode)
    version = bits(2)
    delivery_complete = bits(1)
    initiator_error = bits(1)
    relative = bits(1)  # the process is one of the job's
    header_data_present = bits(1)
    end_of_message = bits(1)
    start_of_message = bits(1)
    message_id = bits(16)
    index_generation = bits(8)
    job_id = bits(24)
    _ = reserved(4)
    pid_on_fep = bits(12)  # process at the fabric end point
    _ = reserved(4)
    resource_index = bits(12)
    buffer_offset = bits(64)
    initiator = bits(32)
    match_bits = bits(64)
    header_data = bits(64)
    length = bits(32)  # bytes of the message


class SesResponse(Format, size=12):
    """A response without data."""

    list = bits(2)  # 0: expected, 1: overflow
    opcode = bits(6, of=SesResponseOpcode)
    version = bits(2)
    return_code = bits(6)  # 1: OK
    message_id = bits(16)
    index_generation = bits(8)
    job_id = bits(24)
    modified_length = bits(32)


_REQUESTS = (PdsType.RUD_REQUEST, PdsType.ROD_REQUEST)
_FORMS: dict[int, type[Format]] = {PdsType.ACK: PdsAck, PdsType.ACK_CC: PdsAck, PdsType.NACK: PdsNack}
_NEXT: dict[int, type[Format]] = {NextHeader.REQUEST: SesRequest, NextHeader.RESPONSE: SesResponse}


def read(data: bytes) -> tuple[list[Format], bytes]:
    """Return the headers of a packet, from the first byte after UDP, and its payload."""
    if len(data) < 2:
        raise Malformed(f"a UET packet of {len(data)} bytes: the prologue has 2")
    kind, following = data[0] >> 3, int.from_bytes(data[:2], "big") >> 7 & 0xF
    form = _FORMS.get(kind)
    if kind in _REQUESTS:
        form = PdsStart if data[1] & 4 else PdsRequest
    if form is None:
        raise Malformed(f"a UET packet of type {kind}: weft has no layout of this type")
    forms: list[type[Format]] = [form, PdsAckState] if kind == PdsType.ACK_CC else [form]
    if following != NextHeader.NONE:
        if following not in _NEXT:
            raise Malformed(f"a UET packet with next header {following}: weft has no layout of this header")
        forms.append(_NEXT[following])
    headers: list[Format] = []
    at = 0
    for each in forms:
        if len(data) < at + each.size:
            raise Malformed(f"a UET packet of {len(data)} bytes ends in its {each.__name__}, of {each.size}")
        headers.append(each.unpack(data, at))
        at += each.size
    return headers, data[at:]
