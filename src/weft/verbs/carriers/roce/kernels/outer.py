"""Compute the CRC of the headers before the BTH, and read and write numbers in network order."""

from __future__ import annotations

import numpy as np

from weft.jit import part
from weft.verbs.carriers.roce.kernels.native import crc_of, store_byte
from weft.verbs.carriers.roce.layout import IPV4_BYTES, ONES_BYTES, OUTER_IPV4_BYTES, UDP_BYTES


@part
def _put16(address, value):
    store_byte(np.uint64(address), np.uint8(value >> 8 & 0xFF))
    store_byte(np.uint64(address + 1), np.uint8(value & 0xFF))


@part
def get24(text, at):
    return np.int64(text[at]) << 16 | np.int64(text[at + 1]) << 8 | np.int64(text[at + 2])


@part
def outer_crc(outer, outer_bytes, size, identification):
    """Return the CRC of the headers at the address `outer` for a datagram of this size."""
    udp = size + UDP_BYTES
    if outer_bytes == OUTER_IPV4_BYTES:
        _put16(outer + ONES_BYTES + 2, udp + IPV4_BYTES)
        _put16(outer + ONES_BYTES + 4, identification)
    else:
        _put16(outer + ONES_BYTES + 4, udp)
    _put16(outer + outer_bytes - 4, udp)
    return crc_of(np.uint32(0xFFFFFFFF), outer, outer_bytes)
