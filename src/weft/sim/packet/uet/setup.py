"""The state of Ultra Ethernet at the start of a run: contexts, thresholds of the switches, and the round trip.

Thresholds are those of the reference simulator, by the bytes that the longest path holds (BDP) at the rate of each
port: a queue is full at one BDP, or without trimming at five; marking begins at a fifth of one and is certain at four
fifths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.forwarding import ANY
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.sim.adaptive import POLICIES
from weft.sim.congestion import MILLION, NEVER_BYTES, Control
from weft.sim.engine import FullQueue, Options, Switching
from weft.sim.layout.posting import Posting
from weft.sim.layout.records import NONE, FlowControl, Records, distinct_rows, records
from weft.sim.layout.wiring import Wiring
from weft.sim.packet.uet.records import ENTROPIES, EXPRESS, NOTE, PDC, PULLER, SLOT, Entropy
from weft.units import transfer_ps

PATHS = 4096  # longest of which the round trip is taken: so many pairs of hosts, evenly among all
TRIM_BDPS, DROP_BDPS = 1, 5
MARK_LOW, MARK_HIGH = 0.2, 0.8  # in BDPs
WINDOW_BDPS = 1.5  # largest window
ACK_EVERY_BYTES = 16_384
LEAST_SLOTS, SLOTS_OF_WINDOW = 64, 8  # packet numbers between the first missing packet and the newest, in windows
TIMEOUT_PS, TIMEOUT_QUEUES = 15_000_000, 6  # and the time to drain so many queues


class Uet(NamedTuple):
    """The arrays of Ultra Ethernet in `State`, each of one row on other networks."""

    notes: Records
    pdcs: Records
    sent: Records
    has_arrived: NDArray[np.uint8]
    recycled: NDArray[np.int16]
    skips: NDArray[np.uint8]
    express: Records
    pullers: Records


def no_uet() -> Uet:
    return Uet(
        notes=records(1, NOTE),
        pdcs=records(1, PDC),
        sent=records(1, SLOT),
        has_arrived=np.zeros(1, np.uint8),
        recycled=np.zeros(1, np.int16),
        skips=np.zeros((1, 1), np.uint8),
        express=records(1, EXPRESS),
        pullers=records(1, PULLER),
    )


def network_rtt_ps(wiring: Wiring, posting: Posting, options: Options) -> int:
    """Return the longest round trip of a full packet and its ACK without queues."""
    pairs, _ = distinct_rows(np.column_stack((posting.messages.src, posting.messages.dst, posting.messages.dlid)))
    pairs = pairs[:: -(-len(pairs) // PATHS)].astype(np.int64)
    src, dst, dlid = pairs.T
    zeros = np.zeros_like(src)
    packets = np.column_stack((wiring.slot[src], dlid, zeros, np.full_like(src, ANY), zeros))
    walks = walk_all(arrays(wiring.fabric), np.ascontiguousarray(packets), paths=True)
    full, ack = (int(posting.size_bytes[size]) for size in (-1, posting.ack_size))
    serial_ps = np.array([[transfer_ps(size, rate) for size in (full, ack)] for rate in wiring.rate_gbit_s])
    longest_ps = 0
    for row in range(len(pairs)):
        ports = wiring.port_of_slot[walks.out[row, : walks.hops[row]]]
        each_ps = serial_ps[wiring.ports.rate[ports]]
        sends_ps = each_ps.sum() if options.switching is Switching.STORE_AND_FORWARD else each_ps.max(axis=0).sum()
        wires_ps = wiring.arrival_ps[ports] + wiring.arrival_ps[wiring.ports.peer[ports]]
        host = wiring.host[dst[row]]
        longest_ps = max(longest_ps, int(sends_ps + wires_ps.sum() + posting.ack_ps[host]))
    return longest_ps


def set_up_uet(
    wiring: Wiring, posting: Posting, options: Options, control: Control, run: Records, rtt_ps: int, n_packets: int
) -> Uet:
    """Return the arrays, and set the rules in the run."""
    qps = posting.qps
    full_bytes = int(posting.size_bytes[-1])
    line_gbit_s = float(wiring.port_rate_gbit_s[wiring.host_ports].max())
    queue_bytes = _bdp_bytes(rtt_ps, line_gbit_s, full_bytes) * _queue_bdps(options)
    run.network_rtt_ps = rtt_ps
    run.trims = options.full_queue is not FullQueue.DROP
    run.grants = control.grants
    run.entropy = POLICIES[str(options.paths)].entropy
    has_errors = bool((wiring.ports.bytes_per_error > 0).any())
    if options.link_retry and not has_errors:
        raise ConfigError(
            f"--link-retry changes nothing: no cable of {wiring.fabric.spec} has bit errors. Leave it out"
        )
    cut = any(fault.startswith("cut:") for fault in options.faults)
    run.detects_gaps = options.full_queue is FullQueue.DROP or cut or has_errors
    run.ack_every_bytes = options.ack_every_bytes or ACK_EVERY_BYTES
    run.speculative_bytes = int(WINDOW_BDPS * rtt_ps * line_gbit_s / 8_000)
    if run.flow[0] == FlowControl.TRIM:  # with credits the timeout is that of RC
        run.timeout_ps = TIMEOUT_PS + TIMEOUT_QUEUES * transfer_ps(queue_bytes, line_gbit_s)
    if options.link_retry:
        wiring.ports.retry_ps = wiring.arrival_ps + wiring.arrival_ps[np.maximum(wiring.ports.peer, 0)]
    pdcs = records(len(qps), PDC)
    window = max(LEAST_SLOTS, SLOTS_OF_WINDOW * int(run.speculative_bytes[0]) // full_bytes)
    packets = np.bincount(posting.messages.qp, posting.messages.packets, minlength=len(qps))
    slots = 1 << np.ceil(np.log2(np.clip(packets, 1, window))).astype(np.int64)
    pdcs.first, pdcs.mask = np.cumsum(slots) - slots, slots - 1
    random = np.random.default_rng(options.seed)
    pdcs.order = random.integers(ENTROPIES, size=len(qps))
    pdcs.speculates, pdcs.credit_bytes = 1, run.speculative_bytes[0]
    pdcs.next_pull = NONE
    by_bitmap = run.entropy[0] in (Entropy.BITMAP, Entropy.MIXED)
    pullers = records(len(posting.hosts), PULLER)
    pullers.active = pullers.active_last = pullers.idle = pullers.idle_last = NONE
    pullers.line_ps_per_kib = np.rint(1024 * 8_000 / wiring.port_rate_gbit_s[wiring.host_ports])
    return Uet(
        notes=records(n_packets, NOTE),
        pdcs=pdcs,
        sent=records(int(slots.sum()), SLOT),
        has_arrived=np.zeros(int(slots.sum()), np.uint8),
        recycled=np.zeros(int(slots.sum()), np.int16),
        skips=np.zeros((len(qps), ENTROPIES) if by_bitmap else (1, 1), np.uint8),
        express=records(len(wiring.ports) * int(run.n_vls[0]), EXPRESS),
        pullers=pullers,
    )


def _queue_bdps(options: Options) -> int:
    return DROP_BDPS if options.full_queue is FullQueue.DROP else TRIM_BDPS


def _bdp_bytes(rtt_ps: int, gbit_s: float, full_bytes: int) -> int:
    """Return the bytes of whole packets that a path holds at a rate."""
    return -(-int(rtt_ps * gbit_s / 8_000) // full_bytes) * full_bytes


def thresholds(
    wiring: Wiring, options: Options, control: Control, rtt_ps: int, full_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the limit of the data in an output queue ([port]), and the marks as in `State.marks`."""
    rates = wiring.port_rate_gbit_s
    line_gbit_s = float(rates[wiring.host_ports].max())
    share = rates / line_gbit_s  # a slower port has a smaller queue
    bdp = _bdp_bytes(rtt_ps, line_gbit_s, full_bytes)
    limit = share * (options.buffer_bytes or bdp * _queue_bdps(options))
    marks = np.zeros((len(wiring.ports), 4), np.int64)
    marks[:, 0] = np.ceil(bdp * MARK_LOW / full_bytes) * full_bytes * share
    marks[:, 1] = np.ceil(bdp * MARK_HIGH / full_bytes) * full_bytes * share
    marks[:, 2] = MILLION
    if control.grants:  # credits, not marks, keep the queue in front of the receiver short
        to_host = wiring.host[np.maximum(wiring.ports.peer, 0)] >= 0
        marks[to_host, :2] = NEVER_BYTES
    return np.maximum(limit, 2 * full_bytes).astype(np.int64), marks
