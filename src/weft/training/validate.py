"""Predictions beside published step times, to show their errors.

    for figure in validate():
        print(figure.run, figure.measured, figure.predicted, figure.error)

A file of `published/` is a source: one cluster and one framework, or the recipes of one vendor. Constants belong to a
type of GPU or to a framework, none to a row. `leave_out` predicts each source with the constants that would be assumed
if it were unknown (`without` in frameworks.toml): errors of others' jobs are like these, and bands are made of them.
The network is taken to be without flaws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec

from weft.calibration.figure import Figure as PublishedFigure
from weft.calibration.run import Run
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.network import Networks
from weft.fabric import catalog
from weft.fabric.rates import read_data
from weft.training.communication import Ideal
from weft.training.framework import WITHOUT, with_defaults
from weft.training.gpu import Gpu
from weft.training.memory import footprint
from weft.training.parallel import Layout
from weft.training.site import find_site
from weft.training.step import Step, run_step
from weft.training.transformer import find

SOURCES = ("dgxc", "sc21", "mosaic", "bloom", "bridge")


class Published(Run, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A measured step."""

    cluster: str  # its file
    model: str
    server: str
    fabric: str = ""  # that of the server's adapters
    step_s: float
    layout: dict[str, Any]
    overrides: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figure(PublishedFigure):
    """A published step time in seconds and its prediction."""

    published: Published
    step: Step

    @property
    def source(self) -> str:
        """Return the name of its file."""
        return self.published.cluster

    @property
    def fits(self) -> bool:
        """Return whether its recipe fits into the memory of its GPUs."""
        return footprint(self.step.layout, self.step.transformer).fits(self.step.gpu.entry.memory_gbyte)

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
            "fits": self.fits,
            "parts": step.parts,
            "source": published.source,
            "date": published.date,
        }


@cache
def published() -> tuple[Published, ...]:
    return tuple(step for source in SOURCES for step in _read(source))


def _read(source: str) -> list[Published]:
    """Read a file: its fields are defaults of its steps, and those of its layout of their layouts."""
    common = read_data("weft.training", f"published/{source}.toml")
    layout, steps = common.pop("layout"), common.pop("steps")
    return [
        msgspec.convert({**common, **step, "layout": {**layout, **step["layout"]}, "cluster": source}, Published)
        for step in steps
    ]


def predict(job: Published, *, left_out: bool = False) -> Step:
    """Predict the step of a published job, with all constants or without those that its source was used for."""
    layout = Layout(**with_defaults(job.layout))
    if left_out:
        layout = replace(layout, framework=f"{layout.framework}{WITHOUT}{job.cluster}")
    cluster, networks = _cluster(job.server, job.fabric, layout.gpus)
    transformer = replace(find(job.model), **job.overrides)
    return run_step(transformer, layout, Gpu.of(catalog.server(job.server).gpu), Ideal(cluster, layout, networks))


@cache
def _cluster(server: str, fabric: str, gpus: int) -> tuple[Cluster, Networks | None]:
    """Return the servers of a job and, if it is not that of their adapters, the network between them."""
    nodes = -(-gpus // catalog.server(server).gpus)
    if not fabric or nodes == 1:
        return from_server(server, nodes=nodes), None
    site = find_site(fabric, gpus=gpus, server=server)
    return site.cluster, site.networks


def kind_of(step: Step) -> tuple[str, ...]:
    """Return the properties by which published steps are compared with a step, the most important first."""
    name = step.layout.framework.partition(WITHOUT)[0]
    return ("experts" if step.transformer.experts else "no experts", step.gpu.generation, name)


@cache
def validate() -> tuple[Figure, ...]:
    """Predict all published jobs, in the order of the files."""
    return tuple(_compare(job, predict(job)) for job in published())


@cache
def leave_out() -> tuple[Figure, ...]:
    """Predict all published jobs, each without the constants that its source was used for."""
    return tuple(_compare(job, predict(job, left_out=True)) for job in published())


def _compare(job: Published, step: Step) -> Figure:
    return Figure(
        run=job.name,
        cluster=job.cluster,
        kind=kind_of(step),
        measured=job.step_s,
        predicted=step.step_s,
        published=job,
        step=step,
    )
