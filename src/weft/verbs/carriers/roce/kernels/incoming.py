"""Receive packets with a kernel, as runs of consecutive packets of a message.

UDP_GRO joins packets. The ICRC of each is checked while its payload is copied to `bulk`, where the payloads of a run
are contiguous. A socket does not show the identification of IPv4, which the ICRC covers. If packets were not received
together, it is computed from the CRC: a CRC is linear, so each bit changes it by a value that depends on the length
only.
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
    IP_TOS,
    IPV6_TCLASS,
    NAME,
    NAME_BYTES,
    ONES_BYTES,
    OUTER_IPV4_BYTES,
    SEGMENTS_MAX,
    SOL_IP,
    SOL_IPV6,
    SOL_UDP,
    UDP_GRO,
    VECTOR_COUNT,
    VECTORS_AT,
    Array,
    get24,
    new_message,
    outer_crc,
    outer_of,
)
from weft.verbs.carriers.roce.kernels.native import crc_and_copy, crc_byte, crc_of, recvmsg
from weft.wire.headers import Opcode
from weft.wire.opcodes import EXTENDED_HEADERS

# Counters and state of a burst: system calls, bytes of the last message and of its packets, its type of service; of the
# last run the kind, and the payload size of its packets.
REFUSED, SOURCES, CALLS, RUNS, FILLED, BYTES, UNIT, TOS, KIND, FULL = range(10)
TALLY_WORDS = 10
CONGESTED = 3  # ECN: a switch has marked the packet
SOURCES_MAX, NAME_MAX = 32, 28
_STAGING_BYTES = 1 << 16
_IDENTIFICATION_BITS = 7  # UDP_SEGMENT counts to 64, or 128 in newer systems
RUN = np.dtype([(name, np.int64) for name in ("start", "size", "count", "source", "tos", "is_ended")], align=True)

_BEGINS, _GOES_ON, _ENDS = 1, 2, 4
_PARTS = {"FIRST": _BEGINS, "MIDDLE": _GOES_ON, "LAST": _ENDS}


def _tables() -> tuple[Array, Array]:
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


HEADER_SIZES, JOINS = _tables()


class In(NamedTuple):
    """The memory of the receiving kernel."""

    message: Any  # int64[MESSAGE_WORDS]
    name: Any  # uint8[NAME_MAX]: sender of a message
    staging: Any  # uint8[]: a message as received
    bulk: Any  # uint8[]: contiguous payloads
    outer: Any  # headers before the BTH for the ICRC
    runs: Any  # RUN[]
    heads: Any  # uint8[run, 2, HEAD_BYTES]: headers of its first and last packet
    names: Any  # uint8[SOURCES_MAX, NAME_MAX]
    tally: Any  # int64[TALLY_WORDS]
    identifications: Any  # int64[]: of the packets of the last message; -1 if the ICRC is wrong
    waves: Any  # int64[8]: see `_other_identification`


def new_in(own: bytes, port: int, *, bulk_bytes: int, runs: int) -> In:
    message = new_message()
    name, staging = np.zeros(NAME_MAX, np.uint8), np.zeros(_STAGING_BYTES, np.uint8)
    message[NAME], message[VECTOR_COUNT] = name.ctypes.data, 1
    message[VECTORS_AT], message[VECTORS_AT + 1] = staging.ctypes.data, staging.size
    return In(
        message,
        name,
        staging,
        np.zeros(bulk_bytes, np.uint8),
        outer_of(bytes(len(own)), own, 0, port),
        np.zeros(runs, RUN),
        np.zeros((runs, 2, HEAD_BYTES), np.uint8),
        np.zeros((SOURCES_MAX, NAME_MAX), np.uint8),
        np.zeros(TALLY_WORDS, np.int64),
        np.zeros(2 * SEGMENTS_MAX, np.int64),
        np.zeros(8, np.int64),
    )


@part
def _read_control(message, tally):
    """Read the control data of a message: the size of its joined packets, and the type of service."""
    at, end = CONTROL_AT, CONTROL_AT + (message[CONTROL_BYTES] >> 3)
    tally[TOS] = 0
    while at + 2 < end and message[at] >= 16:
        level, kind = message[at + 1] & 0xFFFFFFFF, message[at + 1] >> 32
        if level == SOL_UDP and kind == UDP_GRO:
            tally[UNIT] = max(1, message[at + 2] & 0xFFFFFFFF)
        elif (level == SOL_IP and kind == IP_TOS) or (level == SOL_IPV6 and kind == IPV6_TCLASS):
            tally[TOS] = message[at + 2] & 0xFF
        at += (message[at] + 7) >> 3


@part
def _note_source(box):
    """Number the source of a message if it differs from the last one, and set its address for the ICRC."""
    names, name, outer, count = box.names, box.name, box.outer, box.tally[SOURCES]
    same = count > 0
    for i in range(NAME_MAX):
        same = same and names[count - 1, i] == name[i]
    if same:
        return
    for i in range(NAME_MAX):
        names[count, i] = name[i]
    four = outer.size == OUTER_IPV4_BYTES
    for i in range(4 if four else 16):
        outer[ONES_BYTES + (12 if four else 8) + i] = name[(4 if four else 8) + i]
    outer[outer.size - 8], outer[outer.size - 7] = name[2], name[3]
    box.tally[SOURCES] = count + 1
    box.tally[KIND] = -1  # the next packet starts a run


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
    staging, outer, tally = box.staging, box.outer, box.tally
    crc = outer_crc(outer, size, place)
    variant, staging[at + 4] = staging[at + 4], 0xFF
    crc = crc_of(crc, staging.ctypes.data + at, head)
    staging[at + 4] = variant
    body, covered = staging.ctypes.data + at + head, size - ICRC_BYTES
    crc = crc_and_copy(crc, body, box.bulk.ctypes.data + tally[FILLED], payload)
    crc = crc_of(crc, body + payload, covered - head - payload)
    difference = np.int64(crc) ^ 0xFFFFFFFF
    for i in range(ICRC_BYTES):
        difference ^= np.int64(staging[at + covered + i]) << 8 * i
    if difference == 0:
        return place
    if outer.size != OUTER_IPV4_BYTES:
        return -1
    return _other_identification(difference, outer.size - (ONES_BYTES + 6) + covered, place, box.waves)


@part
def _continues(box, joins, at, payload):
    """Return whether a packet continues the last run."""
    tally, staging = box.tally, box.staging
    if tally[KIND] != joins >> 3 or not joins & (_GOES_ON | _ENDS):
        return False
    if payload > tally[FULL] or payload == 0 or (payload < tally[FULL] and not joins & _ENDS):
        return False
    last = tally[RUNS] - 1
    head = box.heads[last, 0]
    same = head[2] == staging[at + 2] and head[3] == staging[at + 3] and get24(head, 5) == get24(staging, at + 5)
    return same and get24(head, 9) + box.runs[last].count & 0xFFFFFF == get24(staging, at + 9)


@part
def _add(box, at, head, payload, joins):
    """Add a valid packet to the last run, or as a new run."""
    staging, tally, heads = box.staging, box.tally, box.heads
    if _continues(box, joins, at, payload):
        last = tally[RUNS] - 1
        run = box.runs[last]
        run.count += 1
        run.size += payload
        run.tos = tally[TOS] if tally[TOS] & 3 == CONGESTED else run.tos
        heads[last, 0, 8] |= staging[at + 8] & 0x80  # acknowledgement request of any packet
        if joins & _ENDS:
            run.is_ended = 1
            for i in range(head):
                heads[last, 1, i] = staging[at + i]
    else:
        last = tally[RUNS]
        run = box.runs[last]
        run.start, run.size, run.count = tally[FILLED], payload, 1
        run.source, run.tos, run.is_ended = tally[SOURCES] - 1, tally[TOS], 0
        for i in range(head):
            heads[last, 0, i] = staging[at + i]
        tally[RUNS], tally[FULL] = last + 1, payload
    tally[FILLED] += payload
    tally[KIND] = joins >> 3 if joins & (_BEGINS | _GOES_ON) else -1


@part
def _take(box, sizes, joins, trusts):
    """Check and add all packets of a message."""
    staging, tally = box.staging, box.tally
    for place, at in enumerate(range(0, tally[BYTES], tally[UNIT])):
        size = min(tally[UNIT], tally[BYTES] - at)
        opcode, second = staging[at], np.int64(staging[at + 1])
        head = sizes[opcode]
        pad = second >> 4 & 3
        payload = size - head - pad - ICRC_BYTES
        is_packet = head > 0 and payload >= 0 and second & 0xF == 0 and (pad == 0 or (payload + pad) & 3 == 0)
        identification = _check(box, at, size, head, payload, place) if is_packet else -1
        box.identifications[place % box.identifications.size] = identification
        if is_packet and (identification >= 0 or trusts):
            _add(box, at, head, payload, joins[opcode])
        else:
            tally[REFUSED] += 1


@kernel
def receive_burst(
    file, trusts, calls, sizes, joins,
    message, name, staging, bulk, outer, runs, heads, names, tally, identifications, waves,
):  # fmt: skip
    """Receive with at most `calls` system calls; return the number of runs. Arguments from `message` on are an `In`.

    It ends when nothing is left, or when the memory is full. A NamedTuple is slow to pass, so its fields are passed.
    """
    box = In(message, name, staging, bulk, outer, runs, heads, names, tally, identifications, waves)
    tally[:] = 0
    tally[KIND] = -1
    for _ in range(calls):
        room = tally[FILLED] + box.staging.size <= box.bulk.size and tally[RUNS] + 2 * SEGMENTS_MAX <= box.runs.size
        if not room or tally[SOURCES] == SOURCES_MAX:
            break
        message[NAME_BYTES], message[CONTROL_BYTES] = NAME_MAX, 8 * (VECTORS_AT - CONTROL_AT)
        box.name[:] = 0
        came = recvmsg(np.int32(file), np.uint64(message.ctypes.data), np.int32(DONTWAIT))
        if came < 0:
            break
        tally[CALLS] += 1
        tally[BYTES] = came
        tally[UNIT] = max(1, came)
        _read_control(message, tally)
        _note_source(box)
        _take(box, sizes, joins, trusts)
    return tally[RUNS]
