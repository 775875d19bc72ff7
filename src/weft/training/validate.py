"""Predictions beside published step times, to show their errors.

    for row in validate():
        print(row.published.name, row.published.step_s, row.step.step_s, row.error)

One set of constants for each type of GPU, and none for a row. The network is taken to be without flaws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from statistics import mean
from typing import Any

import msgspec

from weft.collectives.nccl.cluster import from_server
from weft.fabric import catalog
from weft.fabric.rates import read_data
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.parallel import Layout
from weft.training.step import Step, run_step
from weft.training.transformer import find
from weft.version import __version__


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A measured step."""

    name: str
    model: str
    server: str
    step_s: float
    layout: dict[str, Any]
    source: str
    date: date
    overrides: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """A published step and its prediction."""

    published: Published
    step: Step

    @property
    def error(self) -> float:
        """Return the relative error of the prediction; below 0 it is too fast."""
        return self.step.step_s / self.published.step_s - 1

    def report(self) -> dict[str, Any]:
        """Return the fields of `--json`."""
        published, step = self.published, self.step
        return {
            "name": published.name,
            "model": published.model,
            "server": published.server,
            "layout": published.layout,
            "overrides": published.overrides,
            "measured_s": published.step_s,
            "step_s": step.step_s,
            "error": self.error,
            "mfu": step.mfu,
            "parts": step.parts,
            "source": published.source,
            "date": published.date,
        }


@cache
def published() -> tuple[Published, ...]:
    tables = read_data("weft.training", "published.toml")
    return msgspec.convert([{**table, "name": name} for name, table in tables.items()], tuple[Published, ...])


def predict(job: Published) -> Step:
    """Predict the step of a published job."""
    layout = Layout(**job.layout)
    server = catalog.server(job.server)
    over = Ideal(from_server(job.server, nodes=layout.gpus // server.gpus), layout)
    return run_step(replace(find(job.model), **job.overrides), layout, Gpu.of(server.gpu), over)


def validate() -> list[Row]:
    """Predict all published jobs, in the order of the file."""
    return [Row(published=job, step=predict(job)) for job in published()]


def report(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the fields of `--json`."""
    return {"weft": __version__, "mean_error": mean_error(rows), "rows": [row.report() for row in rows]}


def mean_error(rows: Sequence[Row]) -> float:
    return mean(abs(row.error) for row in rows)
