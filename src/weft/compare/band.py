"""Bands around the times of a comparison, by the errors of similar published runs (`weft.collectives.nccl.band`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weft.collectives.nccl.band import band_of as band_of_time
from weft.collectives.nccl.estimate import Estimate
from weft.compare.job import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A 90 % interval around a time."""

    low_us: float
    high_us: float
    kinds: tuple[str, ...]  # the published runs that the interval is based on
    far: tuple[str, ...]  # properties unlike any published run

    def report(self) -> dict[str, Any]:
        """Return the band as printed by `--json`."""
        return {"band_us": [self.low_us, self.high_us], "band_kinds": list(self.kinds), "far": list(self.far)}


def band_of(calls: Iterable[tuple[Call, Estimate]]) -> Band:
    """Return the band around all calls of a job, whose errors are assumed to be correlated."""
    low_us = high_us = 0.0
    kinds, far = dict[str, None](), dict[str, None]()
    for call, estimate in calls:
        band = band_of_time(estimate)
        low_us += call.count * band.low * estimate.time_us
        high_us += call.count * band.high * estimate.time_us
        kinds[f"{band.clusters} clusters with {band.kind}"] = None
        far |= dict.fromkeys(band.far)
    return Band(low_us=low_us, high_us=high_us, kinds=tuple(kinds), far=tuple(far))
