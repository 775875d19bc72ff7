"""Small messages to a port while others send it all that it takes: what bulk traffic does to latency.

Bulk senders send stripes from the beginning. When buffers are full, each rank sends messages at random moments, and
stripes last as long as there are messages. The messages come first in the traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.fabric.timing import timings
from weft.sim.result import Result
from weft.sim.traffic import Traffic, find_host_port

STRIPE_BYTES = 1 << 20
FULL_PS = 20_000_000  # by then the buffers are full
GAP_PS = 5_000_000  # mean, between two messages of a rank


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderLoad:
    """Who sends what to whom, by the names of hosts or ports."""

    receiver: str
    ranks: Sequence[str]
    bulk: Sequence[str]  # nobody: nothing is in the way
    messages: int = 600  # in all
    size_bytes: int = 64
    sl: int = 0  # of messages
    bulk_sl: int = 0
    seed: int = 1

    def traffic(self, fabric: Fabric, description: str) -> Traffic:
        random, ranks = np.random.default_rng(self.seed), len(self.ranks)
        rank = np.arange(self.messages) % ranks
        start_ps = np.empty(self.messages, np.int64)
        for one in range(ranks):
            gaps_ps = random.exponential(GAP_PS, int((rank == one).sum()))
            start_ps[rank == one] = FULL_PS + np.cumsum(gaps_ps).astype(np.int64)
        rows = [(self.ranks[one], self.receiver, self.size_bytes) for one in rank.tolist()]
        if self.bulk:
            needed_bytes = line_gbit_s(fabric, self.receiver) * (int(start_ps.max()) + FULL_PS) / 8_000
            stripes = int(needed_bytes / len(self.bulk) / STRIPE_BYTES) + 1
            rows += [(sender, self.receiver, STRIPE_BYTES) for _ in range(stripes) for sender in self.bulk]
        starts_ps, level = np.zeros(len(rows), np.int64), np.full(len(rows), self.bulk_sl)
        starts_ps[: self.messages], level[: self.messages] = start_ps, self.sl
        return Traffic.of(fabric, rows, start_ps=starts_ps, sl=level, description=description)

    def latency_us(self, result: Result) -> NDArray[np.float64]:
        """Of each message."""
        latency: NDArray[np.float64] = result.latency_ps[: self.messages] / 1e6
        return latency

    def bulk_gbit_s(self, result: Result) -> float | None:
        """What the receiver got of the stripes; None where there were none."""
        finish_ps = result.finish_ps[self.messages :]
        if not len(finish_ps):
            return None
        return float(result.traffic.size_bytes[self.messages :].sum() * 8_000 / finish_ps.max())


def line_gbit_s(fabric: Fabric, receiver: str) -> float:
    """What packets can use of a port's cable."""
    link = fabric.port(find_host_port(fabric, receiver)).link
    assert link is not None
    return link.rate_gbit_s * (1 - timings().of_line(link.speed.name).overhead)
