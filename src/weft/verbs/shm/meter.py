"""The meter of a path: what would have gone over the wire is counted, and takes the time that it would have taken."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

from numba.core import types

from weft.jit import Kernel, part
from weft.verbs.shm.atomic import add, view
from weft.verbs.shm.record import Record, u64
from weft.verbs.shm.requests import ANSWERED, ATOMICS, READ, SEND_IMM, WRITE, WRITE_IMM
from weft.wire.crc import ICRC_BYTES
from weft.wire.headers import AETH, BTH, RETH, AtomicAckETH, AtomicETH, ImmDt

_MONOTONIC = 1  # clock of Linux
_HEADERS, _RETH, _IMM, _AETH = BTH.size + ICRC_BYTES, RETH.size, ImmDt.size, AETH.size
_ATOMIC, _VALUE = AtomicETH.size, AtomicAckETH.size

_clock: Kernel = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))


class Timespec(Record):
    """The struct timespec of the system."""

    seconds: u64
    nanoseconds: u64


_timespec = view(Timespec)


@part
def now_ns(scratch: int) -> int:
    """Return the monotonic time; `scratch` is the address of a Timespec."""
    _clock(_MONOTONIC, scratch)
    now = _timespec(scratch)
    return now.seconds * 1_000_000_000 + now.nanoseconds


@part
def _padded(size: int, packets: int) -> int:
    return (size + 3) // 4 * 4 + packets * _HEADERS


@part
def count(meter, op: int, size: int, packets: int, more: int, is_reliable: bool) -> None:
    """Count the packets of a request and its response (RC only), with `more` bytes of another header.

    Threads that send from several queue pairs may share a meter.
    """
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
    add(meter, "requests", sent)
    add(meter, "request_bytes", there + more)
    if is_reliable:
        add(meter, "responses", came)
        add(meter, "response_bytes", back)


@part
def takes_time(meter) -> bool:
    return meter.latency_ns != 0 or meter.byte_ps != 0


@part
def wait(meter, clock: int, op: int, size: int) -> None:
    """Wait until the message would have arrived, on links with a delay. `clock` is the address of a Timespec."""
    if not takes_time(meter):
        return
    latency_ns, begin_ns = meter.latency_ns, max(now_ns(clock), meter.free_ns)
    end_ns = begin_ns + size * meter.byte_ps // 1000
    meter.free_ns = end_ns
    arrives_ns = end_ns + (2 * latency_ns if op in ANSWERED else latency_ns)
    while now_ns(clock) < arrives_ns:
        pass
