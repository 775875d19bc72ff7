"""The band around a step: as wide as the errors of published steps of its kind, and for communication as those of
published collectives (`weft.collectives.nccl.band`).

A kind is a precision, with experts or without, on one GPU. Where steps of fewer than two models were published of it,
it is taken wider: any GPU, any precision, all. The band is as wide as the worst of them is off, to both sides, and a
k-th more where they are of k models. Published steps ran over InfiniBand in good order: what another network adds is
the step run once more with every collective as long, and as short, as its own band allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import exp, log

from weft.collectives.nccl.band import band_of
from weft.collectives.nccl.estimate import Estimate
from weft.training.communication import Communication
from weft.training.step import Step, run_step
from weft.training.validate import Row, validate

_MODELS = 2  # that make a kind
_PUBLISHED = {"NVLink", "PCIe", "InfiniBand"}  # the networks of published steps, and links inside a server
_BEYOND = 2  # times the most GPUs published: far


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A 90 % band around a step."""

    low_s: float
    high_s: float
    kind: str  # in words: the properties that the published steps share with this one
    models: int  # that they are of
    far: tuple[str, ...]  # properties that no published step has


@lru_cache(maxsize=64)
def step_spread(step: Step, over: Communication) -> Spread:
    """Return the band around a step whose collectives were timed by `over`."""
    kind, models, width = _width(_words(step))
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
    return Spread(low_s=low_s, high_s=high_s, kind=kind, models=models, far=tuple(far))


@cache
def _rows() -> tuple[Row, ...]:
    return tuple(validate())


def _words(step: Step) -> tuple[str, ...]:
    """Return the properties that define a kind, the most important first; the last ones may be dropped."""
    return ("experts" if step.transformer.experts else "no experts", step.layout.precision, step.gpu.entry.name)


@lru_cache(maxsize=64)
def _width(words: tuple[str, ...]) -> tuple[str, int, float]:
    """Return the kind, its number of models, and the factor by which a step may be off."""
    for length in range(len(words), -1, -1):
        alike = [row for row in _rows() if _words(row.step)[:length] == words[:length]]
        models = len({row.published.model for row in alike})
        if models >= _MODELS or not length:
            break
    worst = max(abs(log(row.step.step_s / row.published.step_s)) for row in alike)
    return ", ".join(words[:length]) or "anything", models, exp(worst * (1 + 1 / models))


def _far(step: Step) -> list[str]:
    every = [row.step for row in _rows()]
    far = []
    if step.gpu.entry.name not in {published.gpu.entry.name for published in every}:
        far.append(f"no steps are published for {step.gpu.entry.name}")
    most = max(published.layout.gpus for published in every)
    if step.layout.gpus > _BEYOND * most:
        far.append(f"{step.layout.gpus:,} GPUs, and the most that is published is {most:,}")
    return far
