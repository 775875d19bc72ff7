"""Constants fitted without a cluster, and published times predicted with them.

A constant that was fitted to runs of a cluster is fitted again to its other runs, one constant after the other; one
that has no other run becomes what was known without any (`[fit]` of nccl_times.toml).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log
from typing import cast

import msgspec

from weft.collectives.nccl.calibration import Figure, compare, find, runs
from weft.collectives.nccl.times import Fit, Times, times

_FACTORS = tuple(2 ** (step / 8) for step in range(-8, 9))  # tried, times the present value


@cache
def left_out_figures() -> tuple[Figure, ...]:
    """Return every published time beside weft's by constants that were fitted without its cluster."""
    fitted = {where: refitted(where) for where in {run.where for run in runs()}}
    return tuple(figure for run in runs() for figure in compare(run, fitted[run.where]))


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
    table, _, field = name.rpartition(".")
    group, _, entry = table.partition(".")
    changed = msgspec.structs.replace(_table(constants, table), **{field: value})
    return msgspec.structs.replace(
        constants, **{group: {**getattr(constants, group), entry: changed} if entry else changed}
    )


def _value(constants: Times, name: str) -> float:
    table, _, field = name.rpartition(".")
    return float(getattr(_table(constants, table), field))


def _table(constants: Times, name: str) -> msgspec.Struct:
    """Return a table of constants by its name: `pipeline`, or `plugin.tcpx`."""
    group, _, entry = name.partition(".")
    table = getattr(constants, group)
    return cast(msgspec.Struct, table[entry] if entry else table)
