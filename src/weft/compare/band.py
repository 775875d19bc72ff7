"""How far off the times of a comparison may be: as published times of their kind were (`weft.collectives.spread`).

A transport that is neither the card's own RDMA nor the kernel's sockets is its own kind: where published times over it
were further off than the others of its network, the band is as wide as those, and as much wider as they are few.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log
from typing import Any

from weft.collectives import calibration
from weft.collectives.estimate import Estimate
from weft.collectives.spread import spread
from weft.compare.job import Call

_NEAR = 4  # times larger or smaller is about the same size


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Nine of ten times are in between."""

    low_us: float
    high_us: float
    kinds: tuple[str, ...]  # what the published times have in common with these
    far: tuple[str, ...]  # what is unlike anything published

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {"band_us": [self.low_us, self.high_us], "band_kinds": list(self.kinds), "far": list(self.far)}


def band_of(calls: Iterable[tuple[Call, Estimate]], transport: str = "") -> Band:
    """Around all calls of a job: what makes one of them too fast makes the others so."""
    low_us = high_us = 0.0
    kinds, far = dict[str, None](), dict[str, None]()
    for call, made in calls:
        found = spread(made)
        width = found.high_us / made.time_us
        kind = f"{found.clusters} clusters with {found.kind}"
        wider = _width_over(transport, call.size_bytes) if transport else 1.0
        if wider > width:
            width, kind = wider, f"runs over {transport}"
        low_us += call.count * made.time_us / width
        high_us += call.count * made.time_us * width
        kinds[kind] = None
        far |= dict.fromkeys(found.far)
    return Band(low_us=low_us, high_us=high_us, kinds=tuple(kinds), far=tuple(far))


@lru_cache(maxsize=256)
def _width_over(transport: str, size_bytes: int) -> float:
    """How many times as much or as little: of those of about this size, or of the nearest that is published."""
    figures = [one for run in calibration.runs() if run.transport == transport for one in calibration.compare(run)]
    if not figures:
        return 1.0
    nearest = min((one.size_bytes for one in figures), key=lambda size: abs(log(size / size_bytes)))
    near = [one for one in figures if nearest <= _NEAR * one.size_bytes <= _NEAR**2 * nearest]
    worst = max(abs(log(one.measured_us / one.simulated_us)) for one in near)
    return exp(worst * (1 + 1 / len({one.where for one in near})))
