"""The agreement of the flow and analytic engines with the packet engine, as measured over random workloads.

`python benchmarks/engines.py` measures it again: 500 workloads by seed, of 8 to 72 hosts, over five topologies. Most of
the difference is queueing. Packets that wait for credits hold up others behind them, and DCQCN slows senders for longer
than the congestion lasts, so flows are early; a queue serves messages one after the other and flows all at once, so
small messages are late.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from weft.sim.engine import Network

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The range that holds 90 % of the ratios to the packet engine."""

    last_arrival: Range
    mean_latency: Range
    workloads: int

    def __str__(self) -> str:
        last, mean = (f"×{low:.2f} to ×{high:.2f}" for low, high in (self.last_arrival, self.mean_latency))
        return f"last arrival {last}, mean latency {mean} of packets (90 % of {self.workloads} random workloads)"

    def report(self) -> dict[str, Any]:
        """Return the fields of `--json`."""
        return asdict(self)


_LIKE = {Network.OMNI_PATH: Network.INFINIBAND, Network.ROCE_V1: Network.ROCE}  # not measured: the most similar network
_MEASURED = {
    ("flow", Network.INFINIBAND): Trust(last_arrival=(0.99, 1.05), mean_latency=(0.92, 1.12), workloads=299),
    ("flow", Network.ROCE): Trust(last_arrival=(0.46, 1.07), mean_latency=(0.65, 1.09), workloads=108),
    ("flow", Network.TCP): Trust(last_arrival=(1.00, 1.02), mean_latency=(1.00, 1.01), workloads=93),
    ("analytic", Network.INFINIBAND): Trust(last_arrival=(0.98, 1.06), mean_latency=(0.99, 1.19), workloads=299),
    ("analytic", Network.ROCE): Trust(last_arrival=(0.46, 1.07), mean_latency=(0.77, 1.18), workloads=108),
    ("analytic", Network.TCP): Trust(last_arrival=(1.00, 1.00), mean_latency=(1.00, 1.00), workloads=93),
}


def find_trust(engine: str, network: Network | None) -> Trust | None:
    """Return the agreement of an engine with the packet engine; None for the packet engine itself."""
    return _MEASURED.get((engine, _LIKE.get(network, network))) if network is not None else None
