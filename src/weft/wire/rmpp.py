"""Transfers longer than one MAD: split a table into segments of the reliable multi-packet protocol, and join them.

Every segment repeats the class's header. The payload length of the first counts the bytes after the RMPP header of all
segments, including the class's header in each; that of the last counts its own, as the Linux kernel and OpenSM do.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.wire.fields import Buffer
from weft.wire.format import Malformed
from weft.wire.mad import MAD_BYTES, RESPONSE, RmppFlag, RmppMad, RmppType

_RMPP_DATA = MAD_BYTES - RmppMad.size  # 220 bytes, of which the SA's header takes 20


def split(header: bytes, data: bytes) -> list[bytes]:
    """Return the MADs that carry `data` after a class's header (56 bytes for the SA), with number, length and flags."""
    return [segment(header, data, number) for number in range(1, segments_of(header, data) + 1)]


def segments_of(header: bytes, data: bytes) -> int:
    """Return the number of segments."""
    return max(1, -(-len(data) // (MAD_BYTES - len(header))))


def segment(header: bytes, data: bytes, number: int) -> bytes:
    """Return one segment, from 1: a table of many megabytes is split only as needed."""
    each, count = MAD_BYTES - len(header), segments_of(header, data)
    pad = count * each - len(data)
    mad = bytearray(header + data[(number - 1) * each : number * each].ljust(each, b"\0"))
    first, last = number == 1, number == count
    length = _RMPP_DATA - pad if last else count * _RMPP_DATA - pad if first else 0
    RmppMad.rmpp_version.set(mad, 1)
    RmppMad.rmpp_type.set(mad, RmppType.DATA)
    RmppMad.rmpp_flags.set(mad, RmppFlag.ACTIVE | first * RmppFlag.FIRST | last * RmppFlag.LAST)
    RmppMad.data1.set(mad, number)
    RmppMad.data2.set(mad, length)
    return bytes(mad)


def join(segments: Iterable[Buffer], header_bytes: int) -> bytes:
    """Return the data of all segments, in any order; raise Malformed if one is missing or not a DATA segment."""
    by_number = {}
    for segment in segments:
        if len(segment) != MAD_BYTES or RmppMad.rmpp_type.get(segment) != RmppType.DATA:
            raise Malformed(f"an RMPP segment of {len(segment)} bytes is not a DATA segment of {MAD_BYTES}")
        by_number[RmppMad.data1.get(segment)] = segment
    last = max(by_number, default=0)
    if not last or sorted(by_number) != list(range(1, last + 1)):
        raise Malformed(f"RMPP segments {sorted(by_number)} are incomplete")
    if not RmppMad.rmpp_flags.get(by_number[last]) & RmppFlag.LAST:
        raise Malformed(f"RMPP segment {last} is not marked as the last")
    # Receivers tolerate an impossible length (Linux drivers/infiniband/core/mad_rmpp.c, get_mad_len): no padding then.
    pad = _RMPP_DATA - RmppMad.data2.get(by_number[last])
    data = b"".join(bytes(by_number[number][header_bytes:]) for number in range(1, last + 1))
    return data[: len(data) - pad] if 0 <= pad <= MAD_BYTES - header_bytes else data


def acknowledge(segment: Buffer, header_bytes: int, window: int) -> bytes:
    """Return the ACK of a DATA segment that lets the sender continue up to `window` segments further."""
    ack = bytearray(bytes(segment[:header_bytes]).ljust(MAD_BYTES, b"\0"))
    RmppMad.method.set(ack, RmppMad.method.get(segment) ^ RESPONSE)  # it travels against the data
    RmppMad.rmpp_type.set(ack, RmppType.ACK)
    RmppMad.rmpp_flags.set(ack, RmppFlag.ACTIVE)
    RmppMad.data2.set(ack, RmppMad.data1.get(segment) + window)
    return bytes(ack)
