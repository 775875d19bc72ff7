"""The band around a step, by the errors of published steps of its kind (`weft.calibration.band`).

A kind is with experts or without, a precision and a GPU. Where steps of fewer than two models were published of it, any
GPU counts, then any precision, then all steps. Published steps ran over InfiniBand without faults. For another network
the step runs again with every collective as long, and as short, as its own band allows (`weft.collectives.nccl.band`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache

from weft.calibration.band import BEYOND, Band, by_kind, count_clusters, draw, narrowest
from weft.collectives.nccl.band import band_of
from weft.collectives.nccl.estimate import Estimate
from weft.training.communication import Communication
from weft.training.step import Step, run_step
from weft.training.validate import Figure, kind_of, validate

_PUBLISHED = {"NVLink", "PCIe", "InfiniBand"}  # the networks of published steps, and links inside a server


@lru_cache(maxsize=64)
def step_band(step: Step, over: Communication) -> Band:
    """Return the band around a step whose collectives were timed by `over`."""
    compute = _compute_band(kind_of(step))
    width = compute.high
    networks: set[str] = set()  # without published steps
    inside: set[str] = set()  # links between the GPUs of a server

    def stretch(estimate: Estimate) -> float:
        networks.update({estimate.fabric} - _PUBLISHED)
        if estimate.cluster.gpus > 1:
            inside.add(estimate.cluster.joined_by)
        return band_of(estimate).high

    def again_s(*, slow: bool) -> float:
        """Run the step with all times at one end of their bands: collectives by their own, the rest by the step's."""
        other = over.stretched(lambda time: stretch(time) / width if slow else width / stretch(time))
        again = run_step(step.transformer, step.layout, step.gpu, other, slowest=step.slowest)
        return again.step_s * width if slow else again.step_s / width

    low_s, high_s = again_s(slow=False), again_s(slow=True)
    far = [*_far(step), *(f"no steps are published over {name}" for name in networks)]
    far += [f"no steps are published for GPUs joined by {name}" for name in inside - {"NVSwitches"}]
    return replace(compute, low=low_s / step.step_s, high=high_s / step.step_s, far=tuple(far))


@cache
def _published() -> tuple[Figure, ...]:
    return tuple(validate())


@lru_cache(maxsize=64)
def _compute_band(kind: tuple[str, ...]) -> Band:
    """Return the band of steps of a kind."""
    figures = by_kind(_published())
    alike = narrowest(kind, lambda wider: count_clusters(figures.get(wider, ())))
    return replace(draw(figures[alike]), kind=", ".join(alike) or "anything")


def _far(step: Step) -> list[str]:
    steps = [figure.step for figure in _published()]
    far = []
    if step.gpu.entry.name not in {published.gpu.entry.name for published in steps}:
        far.append(f"no steps are published for {step.gpu.entry.name}")
    most = max(published.layout.gpus for published in steps)
    if step.layout.gpus > BEYOND * most:
        far.append(f"{step.layout.gpus:,} GPUs, and the most that is published is {most:,}")
    return far
