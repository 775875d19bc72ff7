"""Predictions beside published throughput and latency of served models, to show their errors.

    for figure in validate():
        print(figure.run, figure.measured, figure.predicted, figure.error)

A file of `published/` is a source: one piece of software and its measurements. Constants belong to a GPU or to an
engine, none to a row. `leave_out` predicts each source with the constants that would be assumed if it were unknown
(`without` in engines.toml): errors of others' deployments are like these, and bands are made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import nan
from typing import Any

import msgspec

from weft.calibration.figure import Figure as PublishedFigure
from weft.calibration.run import Run
from weft.fabric.rates import read_data
from weft.inference.deployment import Deployment, find_deployment
from weft.inference.engine import WITHOUT
from weft.inference.load import Load, Served, serve
from weft.inference.replay import read_requests, replay, sustain
from weft.inference.step import Step

SOURCES = ("trtllm", "mlperf", "inferencex", "mooncake", "llmservingsim", "deepseek", "launch", "trtllm06", "xqa")
METRICS = {"tokens_per_s": "throughput", "ttft_s": "TTFT", "tpot_s": "TPOT"}


class Published(Run, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The measurements of one deployment: a row for each load."""

    file: str
    model: str
    server: str
    framework: str
    gpus: int | None = None  # those of one replica
    deployment: dict[str, Any]
    load: dict[str, Any] = msgspec.field(default_factory=dict)  # of all rows
    trace: str = ""  # requests in time, a file of `published/`
    trial: bool = False  # measured with software that its authors call unfinished: no band is made of it
    within: dict[str, float] = msgspec.field(default_factory=dict)  # limits of ttft_s and tpot_s; the highest rate
    columns: tuple[str, ...]  # fields of a load, then metrics
    rows: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figure(PublishedFigure):
    """A published rate or latency and its prediction."""

    source: str
    metric: str
    load: Load
    trial: bool

    def report(self) -> dict[str, Any]:
        """Return the fields of `--json`."""
        return {
            "name": self.run,
            "source": self.source,
            "metric": self.metric,
            "class": self.kind[0],
            "load": {name: getattr(self.load, name) for name in Load.__dataclass_fields__},
            "measured": self.measured,
            "predicted": self.predicted,
            "error": self.error,
        }


@cache
def published() -> tuple[Published, ...]:
    return tuple(run for source in SOURCES for run in _read(source))


def _read(file: str) -> list[Published]:
    """Read a file: its fields are defaults of its runs."""
    common = read_data("weft.inference", f"published/{file}.toml")
    runs = common.pop("runs")
    return [msgspec.convert({**common, **run, "file": file}, Published) for run in runs]


@cache
def validate() -> tuple[Figure, ...]:
    """Predict all published measurements, in the order of the files."""
    return tuple(figure for run in published() for figure in compare(run))


@cache
def leave_out(*, searched: bool = True) -> tuple[Figure, ...]:
    """Predict all published measurements, each without the constants that its source was used for.

    searched: with the highest rates within limits, each of which takes many runs.
    """
    runs = [run for run in published() if searched or not run.within]
    return tuple(figure for run in runs for figure in compare(run, left_out=True))


def compare(run: Published, *, left_out: bool = False) -> list[Figure]:
    """Return the figures of a run."""
    framework = f"{run.framework}{WITHOUT}{run.file}" if left_out else run.framework
    deployment = find_deployment(run.model, server=run.server, gpus=run.gpus, framework=framework, **run.deployment)
    step, figures = Step(deployment), []
    for row in run.rows:
        values = dict(zip(run.columns, row, strict=True))
        load = _load(run, {name: int(value) for name, value in values.items() if name not in METRICS})
        predicted = _predict(run, step, load)
        figures += [
            Figure(
                run=run.name,
                cluster=f"{run.file}: {run.model}",
                kind=kind_of(deployment, load, metric, _manner(run)),
                measured=values[metric],
                predicted=predicted[metric] or nan,
                source=run.file,
                metric=metric,
                load=load,
                trial=run.trial,
            )
            for metric in METRICS
            if metric in values
        ]
    return figures


def _load(run: Published, fields: dict[str, int]) -> Load:
    """Return the load of a row; that of a trace has its mean lengths."""
    if not run.trace:
        return Load(**run.load | fields)
    requests = read_requests(run.trace)
    return Load(input=round(float(requests.prompt.mean())), output=round(float(requests.output.mean())))


def _predict(run: Published, step: Step, load: Load) -> dict[str, float | None]:
    """Return the predicted metrics of a row."""
    if run.trace:
        return {**replay(step.deployment, run.trace)}
    if run.within:
        return {"tokens_per_s": sustain(step.deployment, load, run.within)}
    served = serve(step, load)
    return {metric: value_of(served, metric) for metric in METRICS}


def _manner(run: Published) -> str:
    """Return the name of a load in time, or of a trial; empty for other loads."""
    return "requests in time" if run.trace else "rate within limits" if run.within else "trial" if run.trial else ""


def value_of(served: Served, metric: str) -> float | None:
    """Return a metric of a result; None if the load has none."""
    if metric == "tokens_per_s":
        return served.output_tokens_per_s or served.input_tokens_per_s
    return served.ttft_s if metric == "ttft_s" else served.tpot_s


def kind_of(deployment: Deployment, load: Load, metric: str, manner: str = "") -> tuple[str, ...]:
    """Return the properties by which published figures are compared with a prediction, the most important first.

    manner: the name of the load, if not that of its kind.
    """
    experts = "experts" if deployment.model.experts else "no experts"
    phase = f"{load.kind} alone" if load.phase else {"closed": "closed loop", "static": "static batch"}.get(load.kind)
    name = f"{METRICS[metric]}, {manner or phase or 'offline'}"
    return name, deployment.gpu.generation, experts
