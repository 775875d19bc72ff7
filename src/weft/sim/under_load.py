"""Small messages to a port under bulk traffic: the effect of load on latency.

Bulk senders send stripes from the start. Once buffers are full, each rank sends messages at random times; stripes last
as long as the messages do. The messages are the first rows of the traffic.
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
FULL_PS = 20_000_000  # the buffers are full by then
GAP_PS = 5_000_000  # mean time between two messages of a rank


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderLoad:
    """The senders, receiver and sizes of the traffic; hosts or ports by name."""

    receiver: str
    ranks: Sequence[str]
    bulk: Sequence[str]  # empty: no load
    messages: int = 600  # in total
    size_bytes: int = 64
    sl: int = 0  # SL of the small messages
    bulk_sl: int = 0
    seed: int = 1

    def traffic(self, fabric: Fabric, description: str) -> Traffic:
        random, ranks = np.random.default_rng(self.seed), len(self.ranks)
        rank = np.arange(self.messages) % ranks
        start_ps = np.empty(self.messages, np.int64)
        for number in range(ranks):
            gaps_ps = random.exponential(GAP_PS, int((rank == number).sum()))
            start_ps[rank == number] = FULL_PS + np.cumsum(gaps_ps).astype(np.int64)
        rows = [(self.ranks[number], self.receiver, self.size_bytes) for number in rank.tolist()]
        if self.bulk:
            needed_bytes = line_gbit_s(fabric, self.receiver) * (int(start_ps.max()) + FULL_PS) / 8_000
            stripes = int(needed_bytes / len(self.bulk) / STRIPE_BYTES) + 1
            rows += [(sender, self.receiver, STRIPE_BYTES) for _ in range(stripes) for sender in self.bulk]
        starts_ps, level = np.zeros(len(rows), np.int64), np.full(len(rows), self.bulk_sl)
        starts_ps[: self.messages], level[: self.messages] = start_ps, self.sl
        return Traffic.of(fabric, rows, start_ps=starts_ps, sl=level, description=description)

    def latency_us(self, result: Result) -> NDArray[np.float64]:
        """Return the latency of each message."""
        latency: NDArray[np.float64] = result.latency_ps[: self.messages] / 1e6
        return latency

    def bulk_gbit_s(self, result: Result) -> float | None:
        """Return the rate at which the receiver got the stripes; None without bulk senders."""
        finish_ps = result.finish_ps[self.messages :]
        if not len(finish_ps):
            return None
        return float(result.traffic.size_bytes[self.messages :].sum() * 8_000 / finish_ps.max())


def line_gbit_s(fabric: Fabric, receiver: str) -> float:
    """Return the rate that packets can use on a port's cable."""
    link = fabric.port(find_host_port(fabric, receiver)).link
    assert link is not None
    return link.rate_gbit_s * (1 - timings().of_line(link.speed.name).overhead)
