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
from weft.fabric.counters import Counter, new_counters
from weft.fabric.forwarding import Reason
from weft.sim.engine import Options
from weft.sim.result import XMIT_WAIT_TICK_PS
from weft.sim.steady import Steady
from weft.wire.crc import VCRC_BYTES

_RETRY_S = 4.096e-6 * 2 ** Options().ack_timeout_exponent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """To be added to what was counted before."""

    counters: NDArray[np.int64]  # [slot, Counter]
    dropped: tuple[tuple[int, Reason, int], ...]  # slot, why, packets: counters of these are not in `counters`


def advance(steady: Steady, seconds: float, rng: np.random.Generator) -> Counts:
    if not 0 < seconds < 1e9:
        raise ConfigError(f"{seconds:g} s is no time to advance by: give seconds above 0, at most 30 years")
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
    dropped = tuple((slot, why, int(rng.poisson(flows * seconds / _RETRY_S))) for slot, why, flows in steady.lost)
    return Counts(counters=counters, dropped=dropped)


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
