"""The band around a step: a conformal interval (`weft.calibration.conformal`) by the errors of published steps.

A kind is with experts or without, a generation of GPUs and a framework; a source of published steps counts by its
models. Errors are those with the constants that a source was used for left out (`weft.training.validate.leave_out`). A
generation or framework without published steps has the wider band of an unseen class. Published steps ran without
faults: for other networks the step runs again with every collective as long, and as short, as its own band allows
(`weft.collectives.nccl.band`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache

from weft.calibration.band import BEYOND, Band
from weft.calibration.conformal import Bands
from weft.calibration.cross_validation import Prediction, leave_one_out
from weft.collectives.nccl.band import band_of
from weft.collectives.nccl.estimate import Estimate
from weft.fabric import catalog
from weft.fabric.catalog.power import rate_band
from weft.training.communication import Communication
from weft.training.step import Step, run_step
from weft.training.validate import Figure, kind_of, leave_out

_PUBLISHED = {"NVLink", "PCIe", "InfiniBand"}  # the networks of published steps, and links inside a server


@lru_cache(maxsize=64)
def step_band(step: Step, over: Communication) -> Band:
    """Return the band around a step whose collectives were timed by `over`."""
    compute, entry = compute_band(kind_of(step), leave_out()), step.gpu.entry
    networks: set[str] = set()  # without published steps
    inside: set[str] = set()  # links between the GPUs of a server

    def stretch(estimate: Estimate) -> float:
        networks.update({estimate.fabric} - _PUBLISHED)
        if estimate.cluster.gpus > 1:
            inside.add(estimate.cluster.joined_by)
        return band_of(estimate).high

    def again_s(end: float, *, slow: bool) -> float:
        """Run the step with all times at one end of their bands: collectives by their own, the rest by the step's."""
        other = over.stretched(lambda time: (stretch(time) if slow else 1 / stretch(time)) / end)
        return run_step(step.transformer, step.layout, step.gpu, other, slowest=step.slowest).step_s * end

    low_s, high_s = again_s(compute.low, slow=False), again_s(compute.high, slow=True)
    far = [*compute.far, *_far(step), *(f"no steps are published over {name}" for name in networks)]
    far += [f"no steps are published for GPUs joined by {name}" for name in inside - {"NVSwitches"}]
    slowest, fastest = rate_band(entry.power_w, catalog.gpu(entry.name).power_w)  # 1 and 1 without a power limit
    return replace(compute, low=low_s / step.step_s / fastest, high=high_s / step.step_s / slowest, far=tuple(far))


@lru_cache(maxsize=256)
def compute_band(kind: tuple[str, ...], figures: tuple[Figure, ...]) -> Band:
    """Return the band of steps of a kind by published figures."""
    seen = {prop for figure in figures for prop in figure.kind}
    unlike = tuple(f"no steps are published for {prop}" for prop in kind[1:] if prop not in seen)
    return _bands(figures).band_for(kind, unlike=unlike)


@cache
def _bands(figures: tuple[Figure, ...]) -> Bands:
    return Bands.of(figures)


def leave_sources_out() -> dict[str, tuple[Prediction[Figure], ...]]:
    """Return the figures of each source, with the constants and bands that the other sources give."""
    every = leave_out()

    def predict(source: str) -> Iterable[tuple[Figure, Band]]:
        others = tuple(figure for figure in every if figure.source != source)
        return ((each, compute_band(each.kind, others)) for each in every if each.source == source)

    return leave_one_out((figure.source for figure in every), predict)


def _far(step: Step) -> list[str]:
    most = max(figure.step.layout.gpus for figure in leave_out())
    many = f"{step.layout.gpus:,} GPUs, and the most that is published is {most:,}"
    entry = step.gpu.entry
    power_w = catalog.gpu(entry.name).power_w
    limit = f"a limit of {entry.power_w:g} W instead of {power_w:g}, with which no steps are published"
    waits = "the step waits for its input, as no published one does"
    beyond, limited = step.layout.gpus > BEYOND * most, entry.power_w < power_w
    kernel = step.layout.attention
    other = f"no steps are published for {step.layout.software.label} with attention by {kernel}"
    differs = kernel not in ("", step.layout.software.attention)
    reasons = ((many, beyond), (limit, limited), (waits, step.parts["input"] > 0), (other, differs))
    return [why for why, holds in reasons if holds]
