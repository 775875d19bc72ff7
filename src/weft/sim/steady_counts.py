"""What ports count while a steady load goes on: `advance` draws it, the same from the same generator.

Bits err on the line whether it is idle or not; those of a packet spoil it. The port that receives it counts an error,
and cut-through switches, which have passed half of it on by then, mark its end as bad (EBP): every port further on
counts PortRcvRemotePhysicalErrors, the last one too. Who runs into a dead end tries again when its timeout is over.
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

MOST_S = 1e8  # three years; a counter of 64 bits holds twenty
_ONCE_PULLED = 0.02  # of the cables: somebody has moved them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """To be added to what was counted before."""

    counters: NDArray[np.int64]  # [slot, Counter]
    fec: NDArray[np.int64]  # [slot, FecCounter]
    dropped: tuple[tuple[int, Reason, int], ...]  # slot, why, packets: counters of these are not in `counters`


def advance(steady: Steady, seconds: float, rng: np.random.Generator) -> Counts:
    if not 0 < seconds <= MOST_S:
        raise ConfigError(f"{seconds:g} s is no time to advance by: give seconds above 0, at most {MOST_S:g}")
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
    """Rounded up as often as it takes for the mean to be right."""
    return np.floor(amount + rng.random(len(amount))).astype(np.int64)


def _pass_on(steady: Steady, spoilt: NDArray[np.int64], remote: NDArray[np.int64], rng: np.random.Generator) -> None:
    """Packets that came spoilt into a port go on along their paths: of the flows there, each its part."""
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
    """What error correction counts; blocks that it could not mend are the errors that the link layer saw."""
    fabric, p = steady.fabric, steady.symbol_error_rate
    found = new_fec_counters(len(p))
    blocks = steady.line_gbit_s * 1e9 * seconds / BLOCK_BITS
    hit = -np.expm1(SYMBOLS * np.log1p(-p))  # part of the blocks with an error or more
    corrected = np.maximum(rng.poisson(blocks * hit) - failed, 0)
    symbols = corrected + rng.poisson(np.maximum(blocks * (SYMBOLS * p - hit), 0.0))
    lanes = np.where(fabric.ports.link >= 0, fabric.links.width[fabric.ports.link], 0)
    for width in np.unique(lanes[p > 0]).tolist():
        some = np.flatnonzero((lanes == width) & (p > 0))
        found[some, :width] = rng.multinomial(symbols[some], np.full(width, 1 / width))
        found[some, FecCounter.CORRECTED_BLOCKS] = corrected[some]
        found[some, FecCounter.UNCORRECTED_BLOCKS] = failed[some]
        found[some, FecCounter.CORRECTED_SYMBOLS] = symbols[some]
    return found


def past(fabric: Fabric, rng: np.random.Generator) -> NDArray[np.int64]:
    """[slot, Counter]: what a fabric has counted that has run for a while, and nobody has set back."""
    counters, links = new_counters(len(fabric.ports)), fabric.links
    pulled = fabric.network_links & (rng.random(len(links)) < _ONCE_PULLED)
    times = rng.integers(1, 4, len(links))
    for ends in (links.a, links.b):
        counters[ends[pulled], Counter.LINK_DOWNED] = times[pulled]
        counters[ends[pulled], Counter.SYMBOL_ERROR] = rng.poisson(5 * times[pulled])
    return counters
