"""Send segments with a kernel and few system calls.

    FIRST | MIDDLE MIDDLE ... MIDDLE LAST       packets of one size in one call, up to 64 KiB, and a shorter one last;
                                                UDP_SEGMENT splits them

Payloads are not copied: the system call reads them in place, and headers, pads and ICRCs from `text`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.jit import kernel, part
from weft.verbs.carriers.roce.kernels.layout import (
    CONTROL_AT,
    CONTROL_BYTES,
    DONTWAIT,
    HEAD_BYTES,
    ICRC_BYTES,
    SEGMENTS_MAX,
    SOL_UDP,
    UDP_SEGMENT,
    VECTOR_COUNT,
    VECTORS_AT,
    new_message,
    outer_crc,
)
from weft.verbs.carriers.roce.kernels.native import crc_byte, crc_of, errno, sendmsg

DATAGRAM_MAX = 65_000  # bytes of one message; the limit is 65,507 over IPv4
TEXT_BYTES = SEGMENTS_MAX * (HEAD_BYTES + 8)


class Out(NamedTuple):
    """The memory of the sending kernel."""

    message: Any  # int64[MESSAGE_WORDS]
    text: Any  # uint8[TEXT_BYTES]: headers, pads and ICRCs
    heads: Any  # uint8[3, HEAD_BYTES]: headers of a segment's first packet, of those between, and of its last
    head_bytes: Any  # int64[3]


class Train(NamedTuple):
    """A segment: packets with consecutive PSNs."""

    address: int
    size: int
    mtu: int
    packets: int
    psn: int


def new_out() -> Out:
    return Out(
        new_message(), np.zeros(TEXT_BYTES, np.uint8), np.zeros((3, HEAD_BYTES), np.uint8), np.zeros(3, np.int64)
    )


@part
def _template(train, index):
    return 0 if index == 0 else 2 if index == train.packets - 1 else 1


@part
def _payload(train, index):
    return min(train.mtu, train.size - index * train.mtu)


@part
def _packet_bytes(out, train, index):
    return out.head_bytes[_template(train, index)] + (_payload(train, index) + 3 & ~3) + ICRC_BYTES


@part
def _write_head(out, train, index, at, crc):
    """Write the transport headers to `text`; return the CRC after them."""
    kind, text, psn = _template(train, index), out.text, train.psn + index
    size = out.head_bytes[kind]
    for i in range(size):
        text[at + i] = out.heads[kind, i]
    text[at + 1] |= (-_payload(train, index) & 3) << 4
    text[at + 9], text[at + 10], text[at + 11] = psn >> 16 & 0xFF, psn >> 8 & 0xFF, psn & 0xFF
    variant, text[at + 4] = text[at + 4], 0xFF
    crc = crc_of(crc, text.ctypes.data + at, size)
    text[at + 4] = variant
    return crc


@part
def _write_tail(text, at, crc, pad):
    """Write padding and ICRC; return the offset of the next header."""
    for _ in range(pad):
        text[at] = 0
        crc = crc_byte(np.uint32(crc), np.uint8(0))
        at += 1
    icrc = np.int64(crc) ^ 0xFFFFFFFF
    for i in range(ICRC_BYTES):
        text[at + i] = icrc >> 8 * i & 0xFF
    return at + ICRC_BYTES


@part
def _fill(out, outer, train, first, most):
    """Fill the msghdr with packets from `first` on, all of one size but a shorter last; return their number."""
    unit = _packet_bytes(out, train, first)
    message, text = out.message, out.text
    packets, total, at, vector, chunk = 0, 0, 0, VECTORS_AT, 0
    while packets < most and first + packets < train.packets:
        index = first + packets
        length, payload = _packet_bytes(out, train, index), _payload(train, index)
        if length > unit or total + length > DATAGRAM_MAX:
            break
        crc = _write_head(out, train, index, at, outer_crc(outer, length, packets))
        at += out.head_bytes[_template(train, index)]
        message[vector], message[vector + 1] = text.ctypes.data + chunk, at - chunk
        message[vector + 2], message[vector + 3] = train.address + index * train.mtu, payload
        vector, chunk = vector + 4, at
        at = _write_tail(text, at, crc_of(crc, train.address + index * train.mtu, payload), -payload & 3)
        packets, total = packets + 1, total + length
        if length < unit:
            break
    message[vector], message[vector + 1] = text.ctypes.data + chunk, at - chunk
    message[VECTOR_COUNT] = (vector + 2 - VECTORS_AT) // 2
    message[CONTROL_BYTES] = 24 if packets > 1 else 0
    message[CONTROL_AT], message[CONTROL_AT + 1], message[CONTROL_AT + 2] = 18, SOL_UDP | UDP_SEGMENT << 32, unit
    return packets


@kernel
def send_train(
    file, first, most, calls, outer, message, text, heads, head_bytes, address, size, mtu, packets, psn
):  # fmt: skip
    """Send packets from `first` on with `calls` system calls of `most` packets; return the next packet and an errno.

    The arguments from `message` on are an `Out` and a `Train`, which are slow to pass as such.
    """
    out, train = Out(message, text, heads, head_bytes), Train(address, size, mtu, packets, psn)
    for _ in range(calls):
        if first == train.packets:
            break
        count = _fill(out, outer, train, first, most)
        if sendmsg(np.int32(file), np.uint64(out.message.ctypes.data), np.int32(DONTWAIT)) < 0:
            return first, errno()
        first += count
    return first, 0
