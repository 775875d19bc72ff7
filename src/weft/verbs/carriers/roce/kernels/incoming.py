"""Receive packets with a kernel, as runs of consecutive packets of a message.

UDP_GRO joins packets. The ICRC of each is checked while its payload is copied to `bulk`, where the payloads of a run
are contiguous. A socket does not show the identification of IPv4, which the ICRC covers. If packets were not received
together, it is computed from the CRC: a CRC is linear, so each bit changes it by a value that depends on the length
only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.jit import lean_kernel, part
from weft.verbs.carriers.roce.kernels.native import crc_and_copy, crc_byte, crc_of, get24, outer_crc, recvmsg
from weft.verbs.carriers.roce.layout import (
    CONGESTED,
    CONTROL_AT,
    CONTROL_BYTES,
    DONTWAIT,
    ICRC_BYTES,
    IP_TOS,
    IPV6_TCLASS,
    NAME_BYTES,
    NAME_MAX,
    ONES_BYTES,
    OUTER_IPV4_BYTES,
    SEGMENTS_MAX,
    SOL_IP,
    SOL_IPV6,
    SOL_UDP,
    SOURCES_MAX,
    UDP_GRO,
    VECTORS_AT,
    Receiving,
)
from weft.verbs.shm.atomic import view_of
from weft.wire.headers import Opcode
from weft.wire.opcodes import EXTENDED_HEADERS

_IDENTIFICATION_BITS = 7  # UDP_SEGMENT counts to 64, or 128 in newer systems
_receiving = view_of(Receiving)

_BEGINS, _GOES_ON, _ENDS = 1, 2, 4
_PARTS = {"FIRST": _BEGINS, "MIDDLE": _GOES_ON, "LAST": _ENDS}


def _tables() -> tuple[Any, Any]:
    """Return [opcode] -> bytes of headers (0: invalid), and [opcode] -> its part of a message, with the kind above."""
    sizes, joins, kinds = np.zeros(256, np.int64), np.zeros(256, np.int64), list[str]()
    for opcode in Opcode:
        sizes[opcode] = 12 + sum(form.size for form in EXTENDED_HEADERS[opcode])
        words = opcode.name.removesuffix("_WITH_IMMEDIATE").removesuffix("_WITH_INVALIDATE").split("_")
        kind = "_".join(words[:-1])
        if words[-1] in _PARTS and words[0] in ("RC", "UC"):
            kinds += [kind] if kind not in kinds else []
            joins[opcode] = kinds.index(kind) << 3 | _PARTS[words[-1]]
    return sizes, joins


_HEADER_SIZES, _JOINS = _tables()


@part
def _read_control(box):
    """Read the control data of a message: the size of its joined packets, and the type of service."""
    message = box.message
    at, end = CONTROL_AT, CONTROL_AT + (message[CONTROL_BYTES] >> 3)
    box.tos = 0
    while at + 2 < end and message[at] >= 16:
        level, kind = message[at + 1] & 0xFFFFFFFF, message[at + 1] >> 32
        if level == SOL_UDP and kind == UDP_GRO:
            box.unit = max(1, message[at + 2] & 0xFFFFFFFF)
        elif (level == SOL_IP and kind == IP_TOS) or (level == SOL_IPV6 and kind == IPV6_TCLASS):
            box.tos = message[at + 2] & 0xFF
        at += (message[at] + 7) >> 3


@part
def _note_source(box):
    """Number the source of a message if it differs from the last one, and set its address for the ICRC."""
    names, name, outer, count = box.names, box.name, box.outer, box.sources
    same = count > 0
    for i in range(NAME_MAX):
        same = same and names[count - 1, i] == name[i]
    if same:
        return
    for i in range(NAME_MAX):
        names[count, i] = name[i]
    four = box.outer_bytes == OUTER_IPV4_BYTES
    for i in range(4 if four else 16):
        outer[ONES_BYTES + (12 if four else 8) + i] = name[(4 if four else 8) + i]
    outer[box.outer_bytes - 8], outer[box.outer_bytes - 7] = name[2], name[3]
    box.sources = count + 1
    box.kind = -1  # the next packet starts a run


@part
def _other_identification(difference, after, expected, waves):
    """Return the identification that explains a difference of the ICRC `after` bytes before its end; -1: none.

    `waves`: the effect of each of its bits on the CRC, for the last length.
    """
    if waves[0] != after:
        waves[0] = after
        for bit in range(_IDENTIFICATION_BITS):
            crc = crc_byte(np.uint32(0), np.uint8(1 << bit))
            for _ in range(after):
                crc = crc_byte(crc, np.uint8(0))
            waves[1 + bit] = crc
    for other in range(1 << _IDENTIFICATION_BITS):
        change = np.int64(0)
        for bit in range(_IDENTIFICATION_BITS):
            if (other ^ expected) >> bit & 1:
                change ^= waves[1 + bit]
        if change == difference:
            return other
    return -1


@part
def _check(box, at, size, head, payload, place):
    """Copy a payload to `bulk`; return the identification of the IP header, -1 if the ICRC is wrong."""
    staging, outer_bytes = box.staging, box.outer_bytes
    crc = outer_crc(box.outer.ctypes.data, outer_bytes, size, place)
    variant, staging[at + 4] = staging[at + 4], 0xFF
    crc = crc_of(crc, staging.ctypes.data + at, head)
    staging[at + 4] = variant
    body, covered = staging.ctypes.data + at + head, size - ICRC_BYTES
    crc = crc_and_copy(crc, body, box.bulk.ctypes.data + box.filled, payload)
    crc = crc_of(crc, body + payload, covered - head - payload)
    difference = np.int64(crc) ^ 0xFFFFFFFF
    for i in range(ICRC_BYTES):
        difference ^= np.int64(staging[at + covered + i]) << 8 * i
    if difference == 0:
        return place
    if outer_bytes != OUTER_IPV4_BYTES:
        return -1
    return _other_identification(difference, outer_bytes - (ONES_BYTES + 6) + covered, place, box.waves)


@part
def _continues(box, joins, at, payload):
    """Return whether a packet continues the last run."""
    staging = box.staging
    if box.kind != joins >> 3 or not joins & (_GOES_ON | _ENDS):
        return False
    if payload > box.full or payload == 0 or (payload < box.full and not joins & _ENDS):
        return False
    last = box.run_count - 1
    head = box.heads[last, 0]
    same = head[2] == staging[at + 2] and head[3] == staging[at + 3] and get24(head, 5) == get24(staging, at + 5)
    return same and get24(head, 9) + box.runs[last].count & 0xFFFFFF == get24(staging, at + 9)


@part
def _add(box, at, head, payload, joins):
    """Add a valid packet to the last run, or as a new run."""
    staging, heads = box.staging, box.heads
    if _continues(box, joins, at, payload):
        last = box.run_count - 1
        run = box.runs[last]
        run.count += 1
        run.size += payload
        run.tos = box.tos if box.tos & 3 == CONGESTED else run.tos
        heads[last, 0, 8] |= staging[at + 8] & 0x80  # acknowledgement request of any packet
        if joins & _ENDS:
            run.is_ended = 1
            for i in range(head):
                heads[last, 1, i] = staging[at + i]
    else:
        last = box.run_count
        run = box.runs[last]
        run.start, run.size, run.count = box.filled, payload, 1
        run.source, run.tos, run.is_ended = box.sources - 1, box.tos, 0
        for i in range(head):
            heads[last, 0, i] = staging[at + i]
        box.run_count, box.full = last + 1, payload
    box.filled += payload
    box.kind = joins >> 3 if joins & (_BEGINS | _GOES_ON) else -1


@part
def _take(box):
    """Check and add all packets of a message."""
    staging = box.staging
    for place, at in enumerate(range(0, box.bytes, box.unit)):
        size = min(box.unit, box.bytes - at)
        opcode, second = staging[at], np.int64(staging[at + 1])
        head = _HEADER_SIZES[opcode]
        pad = second >> 4 & 3
        payload = size - head - pad - ICRC_BYTES
        is_packet = head > 0 and payload >= 0 and second & 0xF == 0 and (pad == 0 or (payload + pad) & 3 == 0)
        identification = _check(box, at, size, head, payload, place) if is_packet else -1
        box.identifications[place % box.identifications.size] = identification
        if is_packet and (identification >= 0 or box.trusts != 0):
            _add(box, at, head, payload, _JOINS[opcode])
        else:
            box.refused += 1


@part
def _has_space(box):
    """Return whether the memory can take one more message."""
    fits = box.filled + box.staging.size <= box.bulk.size and box.run_count + 2 * SEGMENTS_MAX <= box.runs.size
    return fits and box.sources < SOURCES_MAX


@lean_kernel
def receive_burst(address):
    """Receive to the `Receiving` at an address until nothing is left or it is full; return the number of runs."""
    box = _receiving(address)
    box.refused, box.sources, box.calls, box.run_count, box.filled, box.kind = 0, 0, 0, 0, 0, -1
    while box.calls < box.calls_max and _has_space(box):
        box.message[NAME_BYTES], box.message[CONTROL_BYTES] = NAME_MAX, 8 * (VECTORS_AT - CONTROL_AT)
        box.name[:] = 0
        came = recvmsg(np.int32(box.file), np.uint64(box.message.ctypes.data), np.int32(DONTWAIT))
        if came < 0:
            break
        box.calls += 1
        box.bytes = came
        box.unit = max(1, came)
        _read_control(box)
        _note_source(box)
        _take(box)
    return box.run_count
