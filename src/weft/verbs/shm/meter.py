"""The meter of a path: what would have gone over the wire is counted, and takes the time that it would have taken.

is open, request packets, their bytes, response packets, their bytes, latency in ns, ps per byte, when the link is
free again in ns                                                                words, see `weft.lab.metered_paths`
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba.core import types

from weft.jit import Kernel, part
from weft.verbs.enums import ibv_wr_opcode
from weft.verbs.shm.atomic import peek, poke
from weft.wire.crc import ICRC_BYTES
from weft.wire.headers import AETH, BTH, RETH, AtomicAckETH, AtomicETH, ImmDt

IS_OPEN, REQUESTS, REQUEST_BYTES, RESPONSES, RESPONSE_BYTES, LATENCY_NS, BYTE_PS, FREE_NS = range(8)
METER_WORDS = 8

CARRIED = tuple(ibv_wr_opcode)[:7]  # what a path carries, and as plain numbers, which kernels take
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, SWAP, ADD = (int(opcode) for opcode in CARRIED)
RECEIVED, ATOMICS, ANSWERED = (SEND, SEND_IMM, WRITE_IMM), (SWAP, ADD), (READ, SWAP, ADD)

_MONOTONIC = 1  # clock of Linux
_HEADERS, _RETH, _IMM, _AETH = BTH.size + ICRC_BYTES, RETH.size, ImmDt.size, AETH.size
_ATOMIC, _VALUE = AtomicETH.size, AtomicAckETH.size

_clock: Kernel = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))


def open_meter() -> npt.NDArray[np.int64]:
    """One that nobody reads: the way is open, and takes no time."""
    meter = np.zeros(METER_WORDS, np.int64)
    meter[IS_OPEN] = 1
    return meter


@part
def now_ns(scratch: int) -> int:
    _clock(_MONOTONIC, scratch)
    return peek(scratch, 0) * 1_000_000_000 + peek(scratch, 1)


@part
def _padded(size: int, packets: int) -> int:
    return (size + 3) // 4 * 4 + packets * _HEADERS


@part
def count(meter: int, op: int, size: int, packets: int) -> None:
    """A request, there and back."""
    sent, there, came, back = packets, _padded(size, packets), 1, _HEADERS + _AETH
    if op == READ:
        sent, there = 1, _HEADERS + _RETH
        came, back = packets, _padded(size, packets) + min(packets, 2) * _AETH
    elif op in ATOMICS:
        there, back = _HEADERS + _ATOMIC, _HEADERS + _AETH + _VALUE
    else:
        if op in (WRITE, WRITE_IMM):
            there += _RETH
        if op in (SEND_IMM, WRITE_IMM):
            there += _IMM
    poke(meter, REQUESTS, peek(meter, REQUESTS) + sent)
    poke(meter, REQUEST_BYTES, peek(meter, REQUEST_BYTES) + there)
    poke(meter, RESPONSES, peek(meter, RESPONSES) + came)
    poke(meter, RESPONSE_BYTES, peek(meter, RESPONSE_BYTES) + back)


@part
def takes_time(meter: int) -> bool:
    return peek(meter, LATENCY_NS) != 0 or peek(meter, BYTE_PS) != 0


@part
def wait(meter: int, clock: int, op: int, size: int) -> None:
    """Until the message would have arrived, on links that take time. `clock`: an address for two words."""
    if not takes_time(meter):
        return
    latency_ns, begin_ns = peek(meter, LATENCY_NS), max(now_ns(clock), peek(meter, FREE_NS))
    end_ns = begin_ns + size * peek(meter, BYTE_PS) // 1000
    poke(meter, FREE_NS, end_ns)
    arrives_ns = end_ns + (2 * latency_ns if op in ANSWERED else latency_ns)
    while now_ns(clock) < arrives_ns:
        pass
