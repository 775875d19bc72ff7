"""Bands around times of dispatch and combine, by the errors of published ones with their hardware left out."""

from __future__ import annotations

from functools import cache

from weft.calibration.band import Band
from weft.calibration.conformal import Bands
from weft.collectives.experts.calibration import kind_of, left_out_figures, runs
from weft.collectives.experts.estimate import ExpertTimes
from weft.collectives.experts.kernels import PAIRS, find_kernel


@cache
def published_bands() -> Bands:
    return Bands.of(left_out_figures())


def band_of(times: ExpertTimes) -> Band | None:
    """Return the band around both times; a kernel without published times has that of an unseen class.

    None: NCCL's all_to_all, whose bands `weft nccl all_to_all --explain` has.
    """
    if times.kernel == PAIRS:
        return None
    kernel = find_kernel(times.kernel)
    unlike = () if any(run.kernel == kernel.name for run in runs()) else (f"no published time of {kernel.name}",)
    return published_bands().band_for(kind_of(kernel, times.links.servers), unlike=unlike)
