"""Define the layout of msghdr for both kernels, and the headers that the ICRC covers before the BTH.

The ICRC covers the identification of IPv4. It is 0 in packets of a socket that never fragments, and n in the n-th
packet of UDP_SEGMENT (Linux, inet_gso_segment).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.jit import part
from weft.verbs.carriers.roce.kernels.native import crc_of
from weft.wire.crc import ICRC_BYTES as ICRC_BYTES
from weft.wire.headers import LRH
from weft.wire.roce import UDP, IPv4

Array = np.ndarray[Any, Any]

# A msghdr with its control data and vectors, in words of 8 bytes.
NAME, NAME_BYTES, VECTORS, VECTOR_COUNT, CONTROL, CONTROL_BYTES = range(6)
CONTROL_AT, VECTORS_AT = 8, 24
SEGMENTS_MAX = 64  # packets of one message (UDP_MAX_SEGMENTS)
MESSAGE_WORDS = VECTORS_AT + 2 * (2 * SEGMENTS_MAX + 1)
HEAD_BYTES = 64  # for the transport headers
ONES_BYTES = LRH.size  # in place of the LRH of an InfiniBand packet
IPV4_BYTES, UDP_BYTES = IPv4.size, UDP.size
OUTER_IPV4_BYTES = ONES_BYTES + IPV4_BYTES + UDP_BYTES
SOL_IP, SOL_UDP, SOL_IPV6 = 0, 17, 41
UDP_SEGMENT, UDP_GRO, IP_TOS, IPV6_TCLASS = 103, 104, 1, 67
DONTWAIT = 0x40
_IPV4 = b"\x45\xff\0\0" + b"\0\0\x40\0" + b"\xff\x11\xff\xff"  # version; identification, DF; TTL, protocol
_IPV6 = b"\x6f\xff\xff\xff" + b"\0\0\x11\xff"


def new_message() -> Array:
    message = np.zeros(MESSAGE_WORDS, np.int64)
    address = message.ctypes.data
    message[VECTORS], message[CONTROL] = address + 8 * VECTORS_AT, address + 8 * CONTROL_AT
    return message


def outer_of(source: bytes, destination: bytes, source_port: int, port: int) -> Array:
    """Return the headers that the ICRC covers before the BTH, with ones in variant fields. Lengths are set later."""
    ip = _IPV4 if len(source) == 4 else _IPV6
    udp = source_port.to_bytes(2, "big") + port.to_bytes(2, "big") + b"\0\0\xff\xff"
    return np.frombuffer(b"\xff" * ONES_BYTES + ip + source + destination + udp, np.uint8).copy()


@part
def put16(text, at, value):
    text[at], text[at + 1] = value >> 8 & 0xFF, value & 0xFF


@part
def get24(text, at):
    return np.int64(text[at]) << 16 | np.int64(text[at + 1]) << 8 | np.int64(text[at + 2])


@part
def outer_crc(outer, size, identification):
    """Return the CRC of the headers before the BTH for a datagram of this size."""
    udp = size + UDP_BYTES
    if outer.size == OUTER_IPV4_BYTES:
        put16(outer, ONES_BYTES + 2, udp + IPV4_BYTES)
        put16(outer, ONES_BYTES + 4, identification)
    else:
        put16(outer, ONES_BYTES + 4, udp)
    put16(outer, outer.size - 4, udp)
    return crc_of(np.uint32(0xFFFFFFFF), outer.ctypes.data, outer.size)
