"""How far off the times of a comparison may be: as published times of their kind were (`weft.collectives.spread`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weft.collectives.estimate import Estimate
from weft.collectives.spread import spread
from weft.compare.job import Call


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


def band_of(calls: Iterable[tuple[Call, Estimate]]) -> Band:
    """Around all calls of a job: what makes one of them too fast makes the others so."""
    low_us = high_us = 0.0
    kinds, far = dict[str, None](), dict[str, None]()
    for call, made in calls:
        found = spread(made)
        low_us += call.count * found.low_us
        high_us += call.count * found.high_us
        kinds[f"{found.clusters} clusters with {found.kind}"] = None
        far |= dict.fromkeys(found.far)
    return Band(low_us=low_us, high_us=high_us, kinds=tuple(kinds), far=tuple(far))
