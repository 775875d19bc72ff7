"""Constants fitted without a cluster, and published times predicted with them.

A constant that was fitted to runs of a cluster is fitted again to its other runs; one that has no other run becomes
what was known without any (`[fit]` of nccl_times.toml). The constants are fitted one after the other, each with those
before it, so that two of them do not both make up for one error.
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
    others: dict[str, list[str]] = {}  # runs of other clusters, by constant
    for name, fit in times().fit.items():
        named = [find(run) for run in fit.runs]
        if any(run.where == where for run in named):
            others[name] = [run.name for run in named if run.where != where]
    changed = times()
    for name in sorted(others, key=lambda name: bool(others[name])):  # those without a run first
        fit = times().fit[name]
        value = best(changed, name, fit, others[name]) if others[name] else fit.without
        changed = with_constant(changed, name, value)
    return changed


def best(constants: Times, name: str, fit: Fit, names: Sequence[str]) -> float:
    """Return the value of one of these constants with the least error over runs, which all have the same weight."""
    now = _value(constants, name)
    return min(
        (now * factor for factor in _FACTORS),
        key=lambda value: _loss(with_constant(constants, name, value), fit, names),
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
