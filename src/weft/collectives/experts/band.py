"""Bands around times of dispatch and combine, by the errors of published ones with their hardware left out."""

from __future__ import annotations

from functools import cache

from weft.calibration.band import Band
from weft.calibration.conformal import Bands
from weft.collectives.experts.calibration import kind_of, left_out_figures, runs
from weft.collectives.experts.estimate import Call, ExpertTimes
from weft.collectives.experts.kernels import find_kernel
from weft.collectives.nccl import band


@cache
def published_bands() -> Bands:
    return Bands.of(left_out_figures())


def band_of(times: ExpertTimes, call: Call) -> Band:
    """Return the band around the time of a call; a kernel without published times has that of an unseen class.

    NCCL's pairs have the band of its all_to_all.
    """
    if call.all_to_all is not None:
        return band.band_of(call.all_to_all)
    kernel = find_kernel(times.kernel)
    unlike = () if any(run.kernel == kernel.name for run in runs()) else (f"no published time of {kernel.name}",)
    return published_bands().band_for(kind_of(kernel, times.links.servers), unlike=unlike)
