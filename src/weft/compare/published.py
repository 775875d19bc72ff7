"""The error of weft's times against published measurements of the same kind of network and about the same size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.collectives.nccl import calibration
from weft.fabric.catalog import Interconnect

_NEAR = 4  # ratio of sizes that still counts as about the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published runs of nccl-tests between servers, and the largest error of weft's times."""

    runs: tuple[str, ...]  # names in calibration.toml
    times: int
    worst: float  # relative to the measured time
    servers: int  # in the largest run

    def __str__(self) -> str:
        if not self.runs:
            return "not checked"
        return f"{100 * self.worst:.0f} % off, {len(self.runs)} run{'s' if len(self.runs) > 1 else ''}"

    def report(self) -> dict[str, Any]:
        """Return the comparison as printed by `--json`."""
        return {"runs": list(self.runs), "times": self.times, "worst_error": self.worst, "servers": self.servers}


def published(interconnect: Interconnect, nic_gbit_s: float, size_bytes: int) -> Published:
    """Return the published runs of this network and transport with adapters of this speed."""
    own = interconnect.network, interconnect.transport, nic_gbit_s
    near = [
        (run, abs(figure.error))
        for run in calibration.runs()
        if run.cluster.nodes > 1 and (run.network, run.transport, run.cluster.nic_gbit_s) == own
        for figure in calibration.compare(run)
        if size_bytes <= _NEAR * figure.size_bytes <= _NEAR**2 * size_bytes
    ]
    return Published(
        runs=tuple(dict.fromkeys(run.name for run, _ in near)),
        times=len(near),
        worst=max((error for _, error in near), default=0.0),
        servers=max((run.cluster.nodes for run, _ in near), default=0),
    )
