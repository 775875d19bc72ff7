"""The same bytes in kernels: fields and checksums of many packets at once.

`put` and `take` are for other layers' kernels too. A field's position is a constant there:

    PSN = BTH.psn.bit                    # at the top of the module
    put(row, 8 * 42 + PSN, 24, psn)      # in a kernel: the BTH starts at byte 42 of this row
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from weft.jit import lean_kernel, part


def _crc_table(polynomial):
    """Return the effect of each byte on a CRC whose least significant bit goes first."""
    crc = np.arange(256, dtype=np.int64)
    for _ in range(8):
        crc = crc >> 1 ^ np.where(crc & 1, polynomial, 0)
    return crc


def _sliced(table):
    """Return the tables for slicing by 8: table k moves a byte k places further (Kounavis and Berry 2005)."""
    tables = [table]
    for _ in range(7):
        tables.append(tables[-1] >> 8 ^ table[tables[-1] & 0xFF])
    return np.array(tables)


CRC32 = _sliced(_crc_table(0xEDB88320))
_CRC16 = _crc_table(0xD008)


@part
def take(row, bit, width):
    """Read a number of up to 64 bits; one of 64 is signed, as all numbers in kernels."""
    value, at, shift = np.int64(0), bit + width, 0
    while shift < width:
        low = -at & 7
        count = min(8 - low, width - shift)
        value |= (np.int64(row[at - 1 >> 3]) >> low & (1 << count) - 1) << shift
        at, shift = at - count, shift + count
    return value


@part
def put(row, bit, width, value):
    """Write a number of up to 64 bits; the bits around it do not change."""
    at, left = bit + width, width
    while left > 0:
        low = -at & 7
        count = min(8 - low, left)
        mask = (1 << count) - 1 << low
        row[at - 1 >> 3] = np.int64(row[at - 1 >> 3]) & ~mask | value << low & mask
        value, at, left = value >> count, at - count, left - count


@lean_kernel
def read_column(rows, bit, width, out):
    """Read a field of every row."""
    for i in range(rows.shape[0]):
        out[i] = take(rows[i], bit, width)


@lean_kernel
def write_column(rows, bit, width, values):
    """Write a field of every row; a single value is for all rows."""
    step = 0 if values.size == 1 else 1
    for i in range(rows.shape[0]):
        put(rows[i], bit, width, values[i * step])


@part
def crc32_byte(crc, byte):
    return crc >> 8 ^ CRC32[0, (crc ^ byte) & 0xFF]


@lean_kernel
def icrc_rows(rows, first, ends, mask, seed, out):
    """Compute the ICRC of each row from byte `first` to its end, with the mask's ones; see `weft.wire.crc.icrc`."""
    for i in range(rows.shape[0]):
        row, at, end, crc = rows[i], first, ends[i], np.int64(seed ^ 0xFFFFFFFF)
        for k in range(mask.size):
            crc = crc32_byte(crc, np.int64(row[at + k] | mask[k]))
        at += mask.size
        while at + 8 <= end:
            crc ^= np.int64(row[at]) | np.int64(row[at + 1]) << 8
            crc ^= np.int64(row[at + 2]) << 16 | np.int64(row[at + 3]) << 24
            crc = (
                CRC32[7, crc & 0xFF]
                ^ CRC32[6, crc >> 8 & 0xFF]
                ^ CRC32[5, crc >> 16 & 0xFF]
                ^ CRC32[4, crc >> 24]
                ^ CRC32[3, row[at + 4]]
                ^ CRC32[2, row[at + 5]]
                ^ CRC32[1, row[at + 6]]
                ^ CRC32[0, row[at + 7]]
            )
            at += 8
        while at < end:
            crc = crc32_byte(crc, np.int64(row[at]))
            at += 1
        out[i] = crc ^ 0xFFFFFFFF


@lean_kernel
def vcrc_rows(rows, first, ends, out):
    """Compute the VCRC of each row; see `weft.wire.crc.vcrc`."""
    for i in range(rows.shape[0]):
        row, crc = rows[i], np.int64(0xFFFF)
        for at in range(first, ends[i]):
            crc = crc >> 8 ^ _CRC16[(crc ^ np.int64(row[at])) & 0xFF]
        out[i] = crc ^ 0xFFFF
