"""What RoCE's carrier does in a hurry is what `packets` and zlib do."""

from __future__ import annotations

import random
import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.verbs.test_packets import segments

from weft.jit import kernel
from weft.verbs.carriers.headers import pack, unpack
from weft.verbs.carriers.kernels import native
from weft.verbs.transport.packets import encode
from weft.verbs.transport.segment import Segment

MTU = 256


def headers(packet: Segment) -> bytes:
    """By objects."""
    ((made, _),) = encode(packet, MTU)
    return b"".join(header.raw for header in made)


@given(segments())
def test_headers_are_those_of_packets(segment):
    packets = segment.packets(MTU)
    if len(packets) == 1:
        assert pack(segment) == headers(packets[0])
        return
    assert pack(segment, is_last=False) == headers(packets[0])
    assert without_psn(pack(segment, is_first=False)) == without_psn(headers(packets[-1]))
    for between in packets[1:-1]:
        between.ack_request = False
        assert without_psn(pack(segment, is_first=False, is_last=False)) == without_psn(headers(between))


def without_psn(head: bytes) -> bytes:
    """The kernel writes it."""
    return head[:9] + bytes(3) + head[12:]


@given(segments())
def test_headers_are_read_as_they_were_written(segment):
    for packet in segment.packets(MTU):
        found = unpack(headers(packet) + b"whatever follows", packet.payload)
        assert headers(found) == headers(packet)
        assert (found.op, found.first, found.last, found.payload) == (
            packet.op,
            packet.first,
            packet.last,
            packet.payload,
        )


@kernel
def crcs(data, copy, other):
    """Of the same bytes, by what the machine has and by tables, also while they are copied."""
    begin, at, size = np.uint32(0xFFFFFFFF), data.ctypes.data, data.size
    return (
        native.crc_of(begin, at, size),
        native.crc_of_by_tables(begin, at, size),
        native.crc_and_copy(begin, at, copy.ctypes.data, size),
        native.crc_and_copy_by_tables(begin, at, other.ctypes.data, size),
    )


@given(st.integers(0, 20), st.integers(0, 9000), st.integers())
def test_every_crc_is_that_of_zlib(skipped, size, seed):
    data = random.Random(seed).randbytes(skipped + size)
    copies = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    found = crcs(np.frombuffer(data, np.uint8)[skipped:], *copies)
    assert {int(one) ^ 0xFFFFFFFF for one in found} == {zlib.crc32(data[skipped:])}
    assert [copy.tobytes() for copy in copies] == [data[skipped:]] * 2


def test_the_errno_is_of_the_call_before():
    @kernel
    def send_nowhere():
        native.sendmsg(np.int32(-1), np.uint64(0), np.int32(0))
        return native.errno()

    assert send_nowhere() == 9  # EBADF
