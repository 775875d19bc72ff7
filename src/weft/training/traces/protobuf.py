"""A reader of Protocol Buffers' wire format: a sequence of messages, and the fields of one.

A message is a row of fields, each a number with its way of being written, then the value: a varint, 8 bytes, a length
and as many bytes, or 4 bytes (protobuf.dev, Encoding). Repeated numbers may come packed into one field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, EIGHT, LENGTH, FOUR = 0, 1, 2, 5
Value = int | bytes


class Broken(Exception):
    """An error in the bytes of a message, with its position."""


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes of each length-prefixed message."""
    at = 0
    while at < len(data):
        begin = at
        size, at = _varint(data, at)
        if at + size > len(data):
            raise Broken(f"byte {begin:,}: a message of {size:,} bytes, and {len(data) - at:,} are left: cut short")
        yield at, data[at : at + size]
        at += size


def fields(data: bytes) -> Iterator[tuple[int, int, Value]]:
    """Yield number, wire type and value of each field."""
    at = 0
    while at < len(data):
        begin = at
        key, at = _varint(data, at)
        number, way = key >> 3, key & 7
        value: Value
        if way == VARINT:
            value, at = _varint(data, at)
        elif way == LENGTH:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif way in (EIGHT, FOUR):
            size = 8 if way == EIGHT else 4
            value, at = data[at : at + size], at + size
        else:
            raise Broken(f"byte {begin} of a message: field {number} is written in way {way}, of 0, 1, 2 and 5")
        if at > len(data) or not number:
            raise Broken(f"byte {begin} of a message: field {number} goes beyond its end")
        yield number, way, value


def numbers(way: int, value: Value) -> list[int]:
    """Return the values of a repeated varint field, packed or not."""
    if isinstance(value, int):
        return [value]
    if way != LENGTH:
        raise Broken("whole numbers written as a fixed number of bytes")
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(number)
    return found


def signed(value: int) -> int:
    """Decode int32 or int64, which are written modulo 2**64."""
    return value - (1 << 64) if value >> 63 else value


def zigzag(value: int) -> int:
    """Decode sint32 or sint64."""
    return value >> 1 ^ -(value & 1)


def real(value: bytes) -> float:
    """Decode double or float."""
    if len(value) not in (4, 8):
        raise Broken(f"a real number of {len(value)} bytes")
    found: float = struct.unpack("<d" if len(value) == 8 else "<f", value)[0]
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Broken(f"byte {at:,}: the end comes inside of a number")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise Broken(f"byte {at:,}: a number of over ten bytes")
