"""Published runs of rccl-tests beside the model, constants fitted without a machine, and errors there.

The runs are data, `calibration.toml`, each with its source. A constant that a machine's runs show is fitted again to
the runs of the others, one constant after the other; one that no other run shows becomes what was known without any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log

import msgspec

from weft.calibration.band import Band
from weft.calibration.conformal import Bands
from weft.calibration.cross_validation import (
    CLASS_COLUMNS,
    Prediction,
    class_rows,
    cluster_rows,
    count_in_bands,
    leave_one_out,
)
from weft.calibration.figure import Figure as PublishedFigure
from weft.calibration.figure import mean_error, summary_cells
from weft.calibration.run import Run as PublishedRun
from weft.calibration.run import read_runs
from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.network import Networks
from weft.collectives.nccl.rccl.constants import Times, times
from weft.collectives.nccl.rccl.estimate import Timing, estimate

_LATENCY_BYTES, _LARGE_BYTES = 64 << 10, 256 << 20
_SHOWS = 0.01
_FACTORS = tuple(2 ** (step / 8) for step in range(-8, 9))  # tried, times the present value
COLUMNS = ("cluster", "times", "mean error", "left out", "bands that hold")


class Run(PublishedRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published run of rccl-tests."""

    collective: Collective
    server: str
    nodes: int
    gpus: int = 0  # of a node; 0: all
    where: str
    network: str = "infiniband"
    rows: tuple[tuple[int, float], ...]  # bytes, microseconds

    @property
    def cluster(self) -> Cluster:
        whole = from_server(self.server, nodes=self.nodes)
        return replace(whole, gpus=self.gpus) if self.gpus else whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(PublishedFigure):
    """A published time in microseconds and weft's."""

    timing: Timing


@cache
def runs() -> tuple[Run, ...]:
    return read_runs("weft.collectives.nccl.rccl", "calibration.toml", Run)


def compare(run: Run, fitted: Times | None = None) -> tuple[Figure, ...]:
    """Compare every size of a run; `fitted` replaces the constants of rccl_times.toml."""
    own = times() if fitted is None else fitted
    cluster, networks = _networks(run)
    figures = []
    for size_bytes, measured_us in run.rows:
        made = estimate(cluster, run.collective, size_bytes, networks=networks, fitted=own)
        figures.append(
            Figure(
                run=run.name,
                cluster=run.where,
                kind=kind_of(cluster, size_bytes),
                size_bytes=size_bytes,
                measured=measured_us,
                predicted=made.time_us,
                timing=made,
            )
        )
    return tuple(figures)


@cache
def _networks(run: Run) -> tuple[Cluster, Networks]:
    cluster = run.cluster
    return cluster, ideal_networks(cluster, network=run.network) if run.nodes > 1 else {}


def kind_of(cluster: Cluster, size_bytes: int) -> tuple[str, ...]:
    """Return the properties that define a kind: class, size."""
    size = "small" if size_bytes <= _LATENCY_BYTES else "large" if size_bytes >= _LARGE_BYTES else "middle"
    place = "one server with xGMI" if cluster.nodes == 1 else "servers with xGMI"
    return place, f"{size} messages"


# -- each machine left out --------------------------------------------------------------------------------------------


@cache
def left_out_figures() -> tuple[Figure, ...]:
    """Return every published time beside weft's by constants that were fitted without its machine."""
    fitted = {where: refitted(where) for where in {run.where for run in runs()}}
    return tuple(figure for run in runs() for figure in compare(run, fitted[run.where]))


@cache
def refitted(where: str) -> Times:
    """Fit the constants that a machine's runs show to the runs of the others."""
    fitted = times()
    own = [run for run in runs() if run.where == where]
    for name, known in times().without.items():
        if not any(name in _shown_by(run) for run in own):
            continue
        rest = [run for run in runs() if run.where != where and name in _shown_by(run)]
        value = _best(fitted, name, rest) if rest else known
        fitted = with_constant(fitted, name, value)
    return fitted


@cache
def _shown_by(run: Run) -> frozenset[str]:
    """Return the constants that change a predicted time of a run by more than a hundredth."""
    before = [figure.predicted for figure in compare(run)]

    def changes(name: str) -> bool:
        after = compare(run, with_constant(times(), name, 2 * _value(times(), name)))
        return any(abs(figure.predicted / us - 1) > _SHOWS for figure, us in zip(after, before, strict=True))

    return frozenset(filter(changes, times().without))


def _best(fitted: Times, name: str, of: Sequence[Run]) -> float:
    """Return the value of a constant with the least mean absolute error in logarithms; runs have the same weight."""

    def loss(value: float) -> float:
        own = with_constant(fitted, name, value)
        errors = [[abs(log(figure.slowdown)) for figure in compare(run, own)] for run in of]
        return sum(sum(each) / len(each) for each in errors)

    return min((_value(times(), name) * factor for factor in _FACTORS), key=loss)


def _value(own: Times, name: str) -> float:
    field, _, key = name.partition(".")
    value = getattr(own, field)
    return float(value[key] if key else value)


def with_constant(own: Times, name: str, value: float) -> Times:
    """Return constants with one of them changed, by its name: `link_gbyte_s.gfx942`."""
    field, _, key = name.partition(".")
    return msgspec.structs.replace(own, **{field: {**getattr(own, field), key: value} if key else value})


@cache
def published_bands() -> Bands:
    """Return the bands by all published times."""
    return Bands.of(left_out_figures())


@cache
def cross_validate() -> dict[str, tuple[Prediction[Figure], ...]]:
    """Return the predictions of each machine without it."""

    def predict(where: str) -> Iterator[tuple[Figure, Band]]:
        bands = published_bands().without(where)
        for figure in left_out_figures():
            if figure.cluster == where:
                yield figure, bands.band_for(figure.kind)

    return leave_one_out((run.where for run in runs()), predict)


def calibration_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and a row for each run."""
    return ("run", "sizes", "mean error", "worst error"), [summary_cells(run.name, compare(run)) for run in runs()]


def cross_validation_table() -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each machine, and a note."""

    def cells(where: str, figures: list[Figure]) -> tuple[str, ...]:
        fitted = [figure for run in runs() if run.where == where for figure in compare(run)]
        return f"{mean_error(fitted):.1%}", f"{mean_error(figures):.1%}"

    figures = [prediction.figure for own in cross_validate().values() for prediction in own]
    inside, count = count_in_bands(cross_validate())
    bias = sum(figure.error for figure in figures) / len(figures)
    note = (
        f"Each machine predicted by constants fitted without it: mean absolute error {mean_error(figures):.1%}, bias "
        f"{bias:+.1%}; {inside} of {count} bands hold, {inside / count:.0%}"
    )
    return COLUMNS, cluster_rows(cross_validate(), cells), note


def class_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and a row for each class, the largest error first."""
    return CLASS_COLUMNS, class_rows(cross_validate())
