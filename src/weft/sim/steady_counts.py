"""The counters of ports under a steady load: `advance` draws them, deterministically from its generator.

Bits err on the line whether it is idle or not; those within a packet corrupt it. The receiving port counts an error. A
cut-through switch, which has forwarded half of the packet by then, marks its end as bad (EBP), so every further port on
the path counts PortRcvRemotePhysicalErrors. A flow without a path retries after each timeout.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.counters import Counter, FecCounter, new_counters, new_fec_counters
from weft.fabric.forwarding import Reason
from weft.fabric.model import Fabric
from weft.sim.fec import BLOCK_BITS, SYMBOLS
from weft.sim.result import XMIT_WAIT_TICK_PS
from weft.sim.steady import RETRY_S, Steady
from weft.wire.crc import VCRC_BYTES

MOST_S = 1e8  # three years; a 64-bit counter holds twenty
_ONCE_PULLED = 0.02  # share of the cables that were replugged at some time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """The counts to add to the counters."""

    counters: NDArray[np.int64]  # [slot, Counter]
    fec: NDArray[np.int64]  # [slot, FecCounter]
    dropped: tuple[tuple[int, Reason, int], ...]  # slot, reason, packets; not included in `counters`


def advance(steady: Steady, seconds: float, rng: np.random.Generator) -> Counts:
    if not 0 < seconds <= MOST_S:
        raise ConfigError(f"the time to advance must be above 0 and at most {MOST_S:g} s, got {seconds:g}")
    fabric = steady.fabric
    counters = new_counters(len(fabric.ports))
    up = np.flatnonzero(fabric.ports.peer >= 0)
    peer = fabric.ports.peer[up]
    packets = _whole(steady.packets_s * seconds, rng)
    words = np.rint(packets * steady.words).astype(np.int64)
    for sent, received, amount in (
        (Counter.PORT_XMIT_DATA_WORDS, Counter.PORT_RCV_DATA_WORDS, words),
        (Counter.PORT_XMIT_PKTS, Counter.PORT_RCV_PKTS, packets),
        (Counter.PORT_UNICAST_XMIT_PKTS, Counter.PORT_UNICAST_RCV_PKTS, packets),
    ):
        counters[:, sent] = amount
        counters[up, received] = amount[peer]
    counters[:, Counter.PORT_XMIT_WAIT] = _whole(steady.wait * seconds * 1e12 / XMIT_WAIT_TICK_PS, rng)
    came, bits = np.zeros_like(packets), np.zeros(len(packets))
    came[up], bits[up] = packets[peer], 32 * steady.words[peer] + 8 * VCRC_BYTES
    hit = -np.expm1(-steady.bit_error_rate * bits)
    spoilt = rng.binomial(came, hit)
    elsewhere = steady.line_gbit_s * 1e9 * seconds * steady.bit_error_rate - came * hit
    counters[:, Counter.SYMBOL_ERROR] = spoilt + rng.poisson(np.maximum(elsewhere, 0.0))
    counters[:, Counter.PORT_RCV_ERRORS] = spoilt
    _pass_on(steady, spoilt, counters[:, Counter.PORT_RCV_REMOTE_PHYSICAL_ERRORS], rng)
    fec = _correct(steady, counters[:, Counter.SYMBOL_ERROR], seconds, rng)
    dropped = tuple((slot, why, int(rng.poisson(flows * seconds / RETRY_S))) for slot, why, flows in steady.lost)
    return Counts(counters=counters, fec=fec, dropped=dropped)


def _whole(amount: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Round to whole numbers at random so that the mean is preserved."""
    return np.floor(amount + rng.random(len(amount))).astype(np.int64)


def _pass_on(steady: Steady, spoilt: NDArray[np.int64], remote: NDArray[np.int64], rng: np.random.Generator) -> None:
    """Forward corrupted packets along the paths of the flows at the port, in proportion to their rates."""
    peer, order = steady.fabric.ports.peer, np.argsort(steady.hop, kind="stable")
    leaves = steady.hop[order]
    flow = np.searchsorted(steady.hop_first, np.arange(len(steady.hop)), side="right") - 1
    for slot in np.flatnonzero(spoilt).tolist():
        begin, end = np.searchsorted(leaves, (peer[slot], peer[slot] + 1))
        hops = order[begin:end]
        weight = steady.flow_packets_s[flow[hops]]
        of_hop = rng.multinomial(spoilt[slot], weight / weight.sum())
        for hop, times in zip(hops[of_hop > 0].tolist(), of_hop[of_hop > 0].tolist(), strict=True):
            np.add.at(remote, peer[steady.hop[hop + 1 : steady.hop_first[flow[hop] + 1]]], times)


def _correct(steady: Steady, failed: NDArray[np.int64], seconds: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the counters of error correction; uncorrectable blocks are the errors that the link layer counted."""
    fabric, p = steady.fabric, steady.symbol_error_rate
    fec = new_fec_counters(len(p))
    blocks = steady.line_gbit_s * 1e9 * seconds / BLOCK_BITS
    hit = -np.expm1(SYMBOLS * np.log1p(-p))  # share of the blocks with at least one error
    corrected = np.maximum(rng.poisson(blocks * hit) - failed, 0)
    symbols = corrected + rng.poisson(np.maximum(blocks * (SYMBOLS * p - hit), 0.0))
    lanes = np.where(fabric.ports.link >= 0, fabric.links.width[fabric.ports.link], 0)
    for width in np.unique(lanes[p > 0]).tolist():
        some = np.flatnonzero((lanes == width) & (p > 0))
        fec[some, :width] = rng.multinomial(symbols[some], np.full(width, 1 / width))
        fec[some, FecCounter.CORRECTED_BLOCKS] = corrected[some]
        fec[some, FecCounter.UNCORRECTED_BLOCKS] = failed[some]
        fec[some, FecCounter.CORRECTED_SYMBOLS] = symbols[some]
    return fec


def past_counters(fabric: Fabric, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the counters of a fabric that has run for a while without a reset ([slot, Counter])."""
    counters, links = new_counters(len(fabric.ports)), fabric.links
    pulled = fabric.network_links & (rng.random(len(links)) < _ONCE_PULLED)
    times = rng.integers(1, 4, len(links))
    for ends in (links.a, links.b):
        counters[ends[pulled], Counter.LINK_DOWNED] = times[pulled]
        counters[ends[pulled], Counter.SYMBOL_ERROR] = rng.poisson(5 * times[pulled])
    return counters
