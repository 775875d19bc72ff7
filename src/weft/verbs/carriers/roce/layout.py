"""Define the memory of the kernels, as structures whose fields Python and kernels read by the same names.

The ICRC covers the identification of IPv4. It is 0 in packets of a socket that never fragments, and n in the n-th
packet of UDP_SEGMENT (Linux, inet_gso_segment).
"""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_uint8
from typing import Any

from weft.wire.crc import ICRC_BYTES as ICRC_BYTES
from weft.wire.headers import LRH
from weft.wire.roce import UDP, IPv4, IPv6

# A msghdr with its control data and vectors, in words of 8 bytes.
NAME, NAME_BYTES, VECTORS, VECTOR_COUNT, CONTROL, CONTROL_BYTES = range(6)
CONTROL_AT, VECTORS_AT = 8, 24
SEGMENTS_MAX = 64  # packets of one message (UDP_MAX_SEGMENTS)
MESSAGE_WORDS = VECTORS_AT + 2 * (2 * SEGMENTS_MAX + 1)
HEAD_BYTES = 64  # for the transport headers
TEXT_BYTES = SEGMENTS_MAX * (HEAD_BYTES + 8)
ONES_BYTES = LRH.size  # in place of the LRH of an InfiniBand packet
IPV4_BYTES, UDP_BYTES = IPv4.size, UDP.size
OUTER_IPV4_BYTES = ONES_BYTES + IPV4_BYTES + UDP_BYTES
OUTER_BYTES_MAX = ONES_BYTES + IPv6.size + UDP_BYTES
SOL_IP, SOL_UDP, SOL_IPV6 = 0, 17, 41
UDP_SEGMENT, UDP_GRO, IP_TOS, IPV6_TCLASS = 103, 104, 1, 67
DONTWAIT = 0x40
CONGESTED = 3  # ECN: a switch has marked the packet
SOURCES_MAX, NAME_MAX = 32, 28
RUNS_MAX = 1024
STAGING_BYTES = 1 << 16
BULK_BYTES = (1 << 20) + (128 << 10)
_IPV4 = b"\x45\xff\0\0" + b"\0\0\x40\0" + b"\xff\x11\xff\xff"  # version; identification, DF; TTL, protocol
_IPV6 = b"\x6f\xff\xff\xff" + b"\0\0\x11\xff"


def _numbers(names: str) -> list[tuple[str, Any]]:
    return [(name, c_int64) for name in names.split()]


class Sending(ctypes.Structure):
    """A segment, which is packets with consecutive PSNs, and the memory for sending it.

    first: the next packet; most: packets of a system call; calls_max: system calls
    outer: address of the headers before the BTH for the ICRC
    address, size: the payload; packets: their number
    text: headers, pads and ICRCs
    heads: headers of the first packet, of those between, and of the last
    """

    _fields_ = [
        *_numbers("file first most calls_max outer outer_bytes address size mtu packets psn"),
        ("message", c_int64 * MESSAGE_WORDS),
        ("text", c_uint8 * TEXT_BYTES),
        ("heads", c_uint8 * HEAD_BYTES * 3),
        ("head_bytes", c_int64 * 3),
    ]

    def __init__(self) -> None:
        super().__init__()
        _link(self.message)


class Run(ctypes.Structure):
    """Consecutive packets of a message: the start and size of their payload in `bulk`, their number and source."""

    _fields_ = _numbers("start size count source tos is_ended")


class Receiving(ctypes.Structure):
    """A burst of received packets, and the memory for it.

    trusts: packets with a wrong ICRC are accepted; calls_max: system calls
    refused, sources, calls, run_count, filled: counters of the burst; `filled`: bytes of `bulk`
    bytes, unit, tos: size of the last message and of its packets, and its type of service
    kind, full: of the last run, and the payload size of its packets
    name: sender of the last message; staging: its bytes; identifications: of its packets, -1 if the ICRC is wrong
    outer: headers before the BTH for the ICRC
    bulk: contiguous payloads; heads: headers of a run's first and last packet; names: of the sources
    waves: see `incoming`
    """

    _fields_ = [
        *_numbers("file trusts calls_max refused sources calls run_count filled bytes unit tos kind full outer_bytes"),
        ("message", c_int64 * MESSAGE_WORDS),
        ("identifications", c_int64 * (2 * SEGMENTS_MAX)),
        ("waves", c_int64 * 8),
        ("runs", Run * RUNS_MAX),
        ("heads", c_uint8 * HEAD_BYTES * 2 * RUNS_MAX),
        ("names", c_uint8 * NAME_MAX * SOURCES_MAX),
        ("name", c_uint8 * NAME_MAX),
        ("outer", c_uint8 * OUTER_BYTES_MAX),
        ("staging", c_uint8 * STAGING_BYTES),
        ("bulk", c_uint8 * BULK_BYTES),
    ]

    def __init__(self, own: bytes, port: int, *, trusts: bool) -> None:
        super().__init__(trusts=trusts)
        message, outer = _link(self.message), outer_of(bytes(len(own)), own, 0, port)
        self.outer[: len(outer)], self.outer_bytes = outer, len(outer)
        message[NAME], message[VECTOR_COUNT] = ctypes.addressof(self.name), 1
        message[VECTORS_AT], message[VECTORS_AT + 1] = ctypes.addressof(self.staging), STAGING_BYTES


def _link(message: Any) -> Any:
    """Set the addresses of the vectors and the control data of a msghdr."""
    address = ctypes.addressof(message)
    message[VECTORS], message[CONTROL] = address + 8 * VECTORS_AT, address + 8 * CONTROL_AT
    return message


def outer_of(source: bytes, destination: bytes, source_port: int, port: int) -> bytes:
    """Return the headers that the ICRC covers before the BTH, with ones in variant fields. Lengths are set later."""
    ip = _IPV4 if len(source) == 4 else _IPV6
    udp = source_port.to_bytes(2, "big") + port.to_bytes(2, "big") + b"\0\0\xff\xff"
    return b"\xff" * ONES_BYTES + ip + source + destination + udp
