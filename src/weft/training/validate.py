"""Predictions beside published step times, to show their errors.

    for figure in validate():
        print(figure.run, figure.measured, figure.predicted, figure.error)

One set of constants for each type of GPU, and none for a row. The network is taken to be without flaws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec

from weft.calibration.figure import Figure as PublishedFigure
from weft.calibration.figure import mean_error
from weft.calibration.run import Run, read_runs
from weft.collectives.nccl.cluster import from_server
from weft.fabric import catalog
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.parallel import Layout
from weft.training.step import Step, run_step
from weft.training.transformer import find
from weft.version import __version__


class Published(Run, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A measured step."""

    model: str
    server: str
    step_s: float
    layout: dict[str, Any]
    overrides: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figure(PublishedFigure):
    """A published step time in seconds and its prediction."""

    published: Published
    step: Step

    def report(self) -> dict[str, Any]:
        """Return the fields of `--json`."""
        published, step = self.published, self.step
        return {
            "name": published.name,
            "model": published.model,
            "server": published.server,
            "layout": published.layout,
            "overrides": published.overrides,
            "measured_s": self.measured,
            "step_s": self.predicted,
            "error": self.error,
            "mfu": step.mfu,
            "parts": step.parts,
            "source": published.source,
            "date": published.date,
        }


@cache
def published() -> tuple[Published, ...]:
    return read_runs("weft.training", "published.toml", Published)


def predict(job: Published) -> Step:
    """Predict the step of a published job."""
    layout = Layout(**job.layout)
    server = catalog.server(job.server)
    over = Ideal(from_server(job.server, nodes=layout.gpus // server.gpus), layout)
    return run_step(replace(find(job.model), **job.overrides), layout, Gpu.of(server.gpu), over)


def kind_of(step: Step) -> tuple[str, ...]:
    """Return the properties by which published steps are compared with a step, the most important first."""
    return ("experts" if step.transformer.experts else "no experts", step.layout.precision, step.gpu.entry.name)


def validate() -> list[Figure]:
    """Predict all published jobs, in the order of the file."""
    return [_compare(job, predict(job)) for job in published()]


def _compare(job: Published, step: Step) -> Figure:
    return Figure(
        run=job.name,
        cluster=job.model,
        kind=kind_of(step),
        measured=job.step_s,
        predicted=step.step_s,
        published=job,
        step=step,
    )


def report(figures: Sequence[Figure]) -> dict[str, Any]:
    """Return the fields of `--json`."""
    return {"weft": __version__, "mean_error": mean_error(figures), "rows": [figure.report() for figure in figures]}
