"""Lay out the ports, the queues of their VLs and the input buffers in memory, for few cache lines in each step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.sim.engine import Options
from weft.sim.layout.records import NONE, FlowControl, Records, records, records_in_rows, rows_of_bytes
from weft.sim.layout.rules import Rules
from weft.sim.layout.wiring import Wiring, whole_blocks
from weft.sim.packet.state import BUFFER, LOSSY, PAUSED, PORT, QUEUE, QUEUE_BEGIN, QUEUE_ROW_BYTES

HALF_LINE_BYTES = 32
# Switch chips have 3 to 5 KB of buffer per Gbit/s (Tomahawk 5: 165 MB for 51.2 Tbit/s, Tomahawk 3: 64 MB for 12.8
# Tbit/s), shared among ports by need. Here an input has the share of its port before it pauses, and an output that
# drops has the share of a few idle ports too.
BUFFER_BYTES_PER_GBIT_S = 3000
OUTPUT_PARTS = 4


def pause_bytes(options: Options, rate_gbit_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the fill level at which an input of a port pauses ([rate])."""
    part = np.ceil(BUFFER_BYTES_PER_GBIT_S * rate_gbit_s).astype(np.int64)
    return np.full_like(part, options.buffer_bytes) if options.buffer_bytes else part


def credit_room(wiring: Wiring, full_bytes: int) -> NDArray[np.int64]:
    """Return the input buffer of each VL of a port, for credits: two round trips of its link and four packets."""
    loop_ps = wiring.arrival_ps[np.maximum(wiring.ports.peer, 0)] + wiring.credit_ps
    in_flight_bytes = loop_ps * wiring.port_rate_gbit_s / 8_000
    return whole_blocks(np.ceil(2 * in_flight_bytes) + 4 * int(whole_blocks(np.array(full_bytes))))


def make_buffers(
    wiring: Wiring, options: Options, rules: Rules, n_vls: int, full_bytes: int
) -> tuple[Records, NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """Return the input side of each port, and the bytes held for each VL ([port, VL]), in the same rows of memory;
    [queue] -> output queue limit; [queue] -> fill level for a pause.
    """
    ports = wiring.ports
    n = len(ports)
    held_end = BUFFER.itemsize + n_vls * np.dtype(np.int32).itemsize
    rows = rows_of_bytes(n, -(-held_end // HALF_LINE_BYTES) * HALF_LINE_BYTES)
    buffers = records_in_rows(rows, 0, BUFFER)
    held = rows[:, BUFFER.itemsize : held_end].view(np.int32)
    peer = np.maximum(ports.peer.astype(np.int64), 0)
    buffers.peer, buffers.owner, buffers.rate = peer, ports.owner, ports.rate
    buffers.number = np.arange(n) - wiring.first
    buffers.cut_in = ports.cut_through[peer]
    buffers.extra = LOSSY * (ports.bytes_per_error > 0)
    rate_gbit_s = wiring.port_rate_gbit_s
    loop_ps = wiring.arrival_ps[peer] + wiring.credit_ps  # round trip of the link that ends at this port
    in_flight_bytes = loop_ps * rate_gbit_s / 8_000
    unit = int(whole_blocks(np.array(full_bytes)))
    if rules.flow is FlowControl.CREDITS:
        room = credit_room(wiring, full_bytes)
        if options.buffer_bytes:
            room = np.full(n, max(int(whole_blocks(np.array(options.buffer_bytes))), unit))
        buffers.room = room
        return buffers, held, np.zeros(1, np.int64), np.zeros(1, np.int64)
    share = pause_bytes(options, rate_gbit_s)
    limit = share if options.buffer_bytes else OUTPUT_PARTS * share
    # Until a pause takes effect, a round trip is in flight and up to a packet at either end; rounding to blocks at
    # most doubles it.
    headroom = 2 * (np.ceil(in_flight_bytes).astype(np.int64) + 3 * unit)
    buffers.room = share + headroom if rules.flow is FlowControl.PAUSE else PAUSED
    port = np.repeat(np.arange(n), n_vls)
    return buffers, held, np.maximum(limit, 2 * full_bytes)[port], share[port]


def make_ports(
    wiring: Wiring, hosts: Records, buffers: Records, rules: Rules, n_vls: int
) -> tuple[Records, Records, NDArray[np.int64]]:
    """Return the ports, a queue for every port and VL with credits for the buffer at its far end, and [queue] -> time
    since when it is blocked.

    With one VL a port and its queue share memory, with several a queue and its time.
    """
    plugs = wiring.ports
    ports = records(len(plugs), PORT)
    rows = rows_of_bytes(len(plugs) * n_vls, QUEUE_ROW_BYTES)
    queues, stuck_ps = records_in_rows(rows, 0, QUEUE), rows[:, QUEUE.itemsize :].view(np.int64)[:, 0]
    if n_vls == 1:
        queues = records_in_rows(_bytes(ports), QUEUE_BEGIN, QUEUE)
    for name in ("peer", "wire_line", "rate", "cut_through"):
        ports[name] = plugs[name]
    ports.sending_from = NONE
    ports.gated[hosts.port] = hosts.ps_per_kib > 0
    queues.port = np.repeat(np.arange(len(ports)), n_vls)
    queues.head = queues.tail = queues.ring = NONE
    queues.credits = np.repeat(buffers.room[buffers.peer], n_vls) if rules.flow is FlowControl.CREDITS else PAUSED >> 1
    return ports, queues, stuck_ps


def _bytes(rows: Records) -> NDArray[np.uint8]:
    """Return records as rows of bytes."""
    bytes_of: NDArray[np.uint8] = rows.view(np.ndarray).view(np.uint8).reshape(len(rows), -1)
    return bytes_of
