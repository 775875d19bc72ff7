"""Cross-validation: the error on clusters without calibration. Each cluster is left out in turn.

A constant that was fitted to runs of a cluster is fitted again to its other runs, one constant after the other; one
that has no other run becomes what was known without any (`[fit]` of nccl_times.toml). Then the cluster is predicted
with those, and each time is held to the band that the other clusters alone would have given it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import log

import msgspec

from weft.calibration.band import Band
from weft.calibration.cross_validation import Prediction, cluster_rows, count_in_bands, leave_one_out
from weft.calibration.figure import mean_error
from weft.collectives.nccl.band import Evidence, band_of
from weft.collectives.nccl.calibration import Figure, compare, compare_all, find, runs
from weft.collectives.nccl.times import Fit, Times, times

LARGE_BYTES = 256 << 20
_FACTORS = tuple(2 ** (step / 8) for step in range(-8, 9))  # tried, times the present value


@cache
def cross_validate() -> dict[str, tuple[Prediction[Figure], ...]]:
    """Return the predictions of each cluster without it."""
    return leave_one_out((run.where for run in runs()), _predict)


def _predict(where: str) -> Iterator[tuple[Figure, Band]]:
    fitted = refitted(where)
    evidence = Evidence(tuple(figure for figure in compare_all() if figure.cluster != where))
    for run in runs():
        if run.where == where:
            yield from ((figure, band_of(figure.estimate, evidence)) for figure in compare(run, fitted))


def refitted(where: str) -> Times:
    """Fit the constants without this cluster."""
    changed = times()
    for name, fit in times().fit.items():
        named = [find(run) for run in fit.runs]
        if any(run.where == where for run in named):
            rest = [run.name for run in named if run.where != where]
            changed = with_constant(changed, name, best(name, fit, rest) if rest else fit.without)
    return changed


def best(name: str, fit: Fit, names: Sequence[str]) -> float:
    """Return the value of a constant with the least error over these runs, which all have the same weight."""
    now = _value(times(), name)
    return min(
        (now * factor for factor in _FACTORS), key=lambda value: _loss(with_constant(times(), name, value), fit, names)
    )


def _loss(fitted: Times, fit: Fit, names: Sequence[str]) -> float:
    lowest, highest = fit.sizes
    losses = []
    for name in names:
        run = find(name)
        rows = tuple(row for row in run.rows if lowest <= row[0] <= highest)
        figures = compare(msgspec.structs.replace(run, rows=rows), fitted)
        losses.append(sum(abs(log(figure.slowdown)) for figure in figures) / len(figures))
    return sum(losses) / len(losses)


def with_constant(constants: Times, name: str, value: float) -> Times:
    """Return constants with one of them changed, by its name: `pipeline.fill`."""
    table, _, field = name.partition(".")
    return msgspec.structs.replace(
        constants, **{table: msgspec.structs.replace(getattr(constants, table), **{field: value})}
    )


def _value(constants: Times, name: str) -> float:
    table, _, field = name.partition(".")
    return float(getattr(getattr(constants, table), field))


COLUMNS = ("cluster", "times", "mean error", "left out", "from 256 MiB on", "bands that hold")


def cross_validation_table() -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each cluster, and a note."""
    all_mean, large_mean = means()
    inside, count = count_in_bands(cross_validate())
    note = (
        f"Each cluster predicted by constants fitted without it: mean absolute error {all_mean:.1%}, from 256 MiB on "
        f"{large_mean:.1%}; {inside} of {count} bands hold, {inside / count:.0%}"
    )
    return COLUMNS, cluster_rows(cross_validate(), _error_cells), note


def _error_cells(where: str, figures: list[Figure]) -> tuple[str, ...]:
    fitted = [figure for figure in compare_all() if figure.cluster == where]
    large = _large(figures)
    return f"{mean_error(fitted):.1%}", f"{mean_error(figures):.1%}", f"{mean_error(large):.1%}" if large else ""


def means() -> tuple[float, float]:
    """Return the mean absolute errors of left-out clusters: for all sizes, and from 256 MiB on."""
    figures = [prediction.figure for own in cross_validate().values() for prediction in own]
    return mean_error(figures), mean_error(_large(figures))


def _large(figures: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in figures if figure.size_bytes >= LARGE_BYTES]
