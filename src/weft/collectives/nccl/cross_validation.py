"""Cross-validation: the error on clusters without calibration. Each cluster is left out in turn.

A constant that was fitted to runs of a cluster is fitted again to its other runs, one constant after the other; one
that has no other run becomes what was known without any (`[fit]` of nccl_times.toml). Then the cluster is predicted
with those, and each time is held to the band that the other clusters alone would have given it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log

import msgspec

from weft.collectives.nccl.calibration import Figure, compare, compare_all, find, mean_error, runs
from weft.collectives.nccl.spread import Spread, published, spread
from weft.collectives.nccl.times import Fit, Times, times

LARGE_BYTES = 256 << 20
_TRIED = tuple(2 ** (step / 8) for step in range(-8, 9))  # times the value as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A published time, predicted without its cluster."""

    figure: Figure
    band: Spread

    @property
    def held(self) -> bool:
        call_us = self.figure.simulated_us - self.figure.estimate.time_us  # of the host, in the times as published
        return self.band.low_us <= self.figure.measured_us - call_us <= self.band.high_us


@cache
def left_out() -> dict[str, tuple[LeftOut, ...]]:
    """Return the predictions by cluster."""
    clusters = dict.fromkeys(run.where for run in runs())
    return {where: _predicted(where) for where in clusters}


def _predicted(where: str) -> tuple[LeftOut, ...]:
    fitted = refitted(where)
    others = published(figure for figure in compare_all() if figure.where != where)
    figures = [figure for run in runs() if run.where == where for figure in compare(run, fitted)]
    return tuple(LeftOut(figure=figure, band=spread(figure.estimate, others)) for figure in figures)


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
        (now * factor for factor in _TRIED), key=lambda value: _loss(with_constant(times(), name, value), fit, names)
    )


def _loss(fitted: Times, fit: Fit, names: Sequence[str]) -> float:
    lowest, highest = fit.sizes
    losses = []
    for name in names:
        run = find(name)
        rows = tuple(row for row in run.rows if lowest <= row[0] <= highest)
        figures = compare(msgspec.structs.replace(run, rows=rows), fitted)
        losses.append(sum(abs(log(one.simulated_us / one.measured_us)) for one in figures) / len(figures))
    return sum(losses) / len(losses)


def with_constant(known: Times, name: str, value: float) -> Times:
    """Return constants with one of them changed, by its name: `pipeline.fill`."""
    table, _, field = name.partition(".")
    return msgspec.structs.replace(known, **{table: msgspec.structs.replace(getattr(known, table), **{field: value})})


def _value(known: Times, name: str) -> float:
    table, _, field = name.partition(".")
    return float(getattr(getattr(known, table), field))


COLUMNS = ("cluster", "times", "mean error", "left out", "from 256 MiB on", "bands that hold")


def left_out_table() -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each cluster, and a note."""
    rows: list[tuple[str, ...]] = []
    for where, found in left_out().items():
        fitted = [figure for figure in compare_all() if figure.where == where]
        figures = [one.figure for one in found]
        large = [figure for figure in figures if figure.size_bytes >= LARGE_BYTES]
        held = sum(one.held for one in found)
        rows.append(
            (
                where,
                str(len(found)),
                f"{mean_error(fitted):.1%}",
                f"{mean_error(figures):.1%}",
                f"{mean_error(large):.1%}" if large else "",
                f"{held} of {len(found)}",
            )
        )
    every_mean, large_mean = means()
    count, held = (sum(map(len, left_out().values())), sum(one.held for found in left_out().values() for one in found))
    note = (
        f"Each cluster predicted by constants fitted without it: mean absolute error {every_mean:.1%}, from 256 MiB on "
        f"{large_mean:.1%}; {held} of {count} bands hold, {held / count:.0%}"
    )
    return COLUMNS, rows, note


def means() -> tuple[float, float]:
    """Return the mean absolute errors of left-out clusters: for all sizes, and from 256 MiB on."""
    figures = [one.figure for found in left_out().values() for one in found]
    return mean_error(figures), mean_error(figure for figure in figures if figure.size_bytes >= LARGE_BYTES)
