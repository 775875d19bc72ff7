"""Send segments with a kernel and few system calls.

    FIRST | MIDDLE MIDDLE ... MIDDLE LAST       packets of one size in one call, up to 64 KiB, and a shorter one last;
                                                UDP_SEGMENT splits them

Payloads are not copied: the system call reads them in place, and headers, pads and ICRCs from `text`.
"""

from __future__ import annotations

import numpy as np

from weft.jit import lean_kernel, part
from weft.verbs.carriers.roce.kernels.native import crc_byte, crc_of, errno, outer_crc, sendmsg
from weft.verbs.carriers.roce.layout import (
    CONTROL_AT,
    CONTROL_BYTES,
    DONTWAIT,
    ICRC_BYTES,
    SOL_UDP,
    UDP_SEGMENT,
    VECTOR_COUNT,
    VECTORS_AT,
    Sending,
)
from weft.verbs.shm.atomic import view_of

DATAGRAM_MAX = 65_000  # bytes of one message; the limit is 65,507 over IPv4
_sending = view_of(Sending)


@part
def _template(box, index):
    return 0 if index == 0 else 2 if index == box.packets - 1 else 1


@part
def _payload(box, index):
    return min(box.mtu, box.size - index * box.mtu)


@part
def _packet_bytes(box, index):
    return box.head_bytes[_template(box, index)] + (_payload(box, index) + 3 & ~3) + ICRC_BYTES


@part
def _write_head(box, index, at, crc):
    """Write the transport headers to `text`; return the CRC after them."""
    kind, text, psn = _template(box, index), box.text, box.psn + index
    size = box.head_bytes[kind]
    for i in range(size):
        text[at + i] = box.heads[kind, i]
    text[at + 1] |= (-_payload(box, index) & 3) << 4
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
def _fill(box):
    """Fill the msghdr with packets from `first` on, all of one size but a shorter last; return their number."""
    unit = _packet_bytes(box, box.first)
    message, text = box.message, box.text
    packets, total, at, vector, chunk = 0, 0, 0, VECTORS_AT, 0
    while packets < box.most and box.first + packets < box.packets:
        index = box.first + packets
        length, payload = _packet_bytes(box, index), _payload(box, index)
        if length > unit or total + length > DATAGRAM_MAX:
            break
        crc = _write_head(box, index, at, outer_crc(box.outer, box.outer_bytes, length, packets))
        at += box.head_bytes[_template(box, index)]
        message[vector], message[vector + 1] = text.ctypes.data + chunk, at - chunk
        message[vector + 2], message[vector + 3] = box.address + index * box.mtu, payload
        vector, chunk = vector + 4, at
        at = _write_tail(text, at, crc_of(crc, box.address + index * box.mtu, payload), -payload & 3)
        packets, total = packets + 1, total + length
        if length < unit:
            break
    message[vector], message[vector + 1] = text.ctypes.data + chunk, at - chunk
    message[VECTOR_COUNT] = (vector + 2 - VECTORS_AT) // 2
    message[CONTROL_BYTES] = 24 if packets > 1 else 0
    message[CONTROL_AT], message[CONTROL_AT + 1], message[CONTROL_AT + 2] = 18, SOL_UDP | UDP_SEGMENT << 32, unit
    return packets


@lean_kernel
def send_train(address):
    """Send packets of the `Sending` at an address from `first` on, which advances; return an errno, or 0."""
    box = _sending(address)
    for _ in range(box.calls_max):
        if box.first == box.packets:
            break
        count = _fill(box)
        if sendmsg(np.int32(box.file), np.uint64(box.message.ctypes.data), np.int32(DONTWAIT)) < 0:
            return errno()
        box.first += count
    return 0
