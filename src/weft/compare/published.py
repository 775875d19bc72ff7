"""How weft's times compare with published measurements of the same kind of network at about the same size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.collectives import calibration
from weft.fabric.catalog import Interconnect

_NEAR = 4  # times larger or smaller is about the same size


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Runs of nccl-tests between servers that weft is held to, and the worst error of its times."""

    runs: tuple[str, ...]  # names in calibration.toml
    times: int
    worst: float  # part of the measured time
    servers: int  # of the largest

    def __str__(self) -> str:
        if not self.runs:
            return "not checked"
        return f"{100 * self.worst:.0f} % off, {len(self.runs)} run{'s' if len(self.runs) > 1 else ''}"

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {"runs": list(self.runs), "times": self.times, "worst_error": self.worst, "servers": self.servers}


def published(wire: Interconnect, nic_gbit_s: float, size_bytes: int) -> Published:
    """Of this network and transport with adapters of this speed."""
    own = wire.network, wire.transport, nic_gbit_s
    near = [
        (run, abs(one.error))
        for run in calibration.runs()
        if run.cluster.nodes > 1 and (run.network, run.transport, run.cluster.nic_gbit_s) == own
        for one in calibration.compare(run)
        if size_bytes <= _NEAR * one.size_bytes <= _NEAR**2 * size_bytes
    ]
    return Published(
        runs=tuple(dict.fromkeys(run.name for run, _ in near)),
        times=len(near),
        worst=max((error for _, error in near), default=0.0),
        servers=max((run.cluster.nodes for run, _ in near), default=0),
    )
