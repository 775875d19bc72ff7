"""Published times of dispatch and combine beside the model, with each kind of hardware left out in turn.

The runs are data, `calibration.toml`. Constants that were fitted to them (`fitted` of kernels.toml) are fitted again
without the hardware of a run, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import log
from typing import Any

import msgspec

from weft.calibration.chance import shortfalls_of
from weft.calibration.cross_validation import (
    CLASS_COLUMNS,
    Prediction,
    bias_and_p90,
    class_rows,
    count_in_bands,
    errors_in_words,
    leave_sources_out,
)
from weft.calibration.figure import Figure, mean_error, summary_cells
from weft.calibration.run import Run as PublishedRun
from weft.calibration.run import find_run, read_runs
from weft.collectives.experts.estimate import Links, fused_times
from weft.collectives.experts.kernels import Kernel, find_kernel, kernels
from weft.collectives.experts.routing import CopyPer, Layer

COLUMNS = ("run", "times", "mean error", "worst error", "left out", "bias", "p90", "bands that hold")
FIGURE_COLUMNS = ("GPUs", "tokens", "call", "measured us", "weft us", "error")
_FACTORS = tuple(2 ** (step / 16) for step in range(-16, 17))  # tried, times the present value
_ROUNDS = 3

Row = tuple[int, int, int, float, float]


class Run(PublishedRun, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published run of a kernel; calibration.toml explains the fields."""

    kernel: str
    where: str
    inside_gbyte_s: float
    rows: tuple[Row, ...]
    adapter_gbyte_s: float = 0.0
    dispatch_bytes: int = 1
    balanced: bool = False


@cache
def runs() -> tuple[Run, ...]:
    return read_runs("weft.collectives.experts", "calibration.toml", Run)


def find(name: str) -> Run:
    return find_run(name, runs(), "weft ep calibration")


def compare(run: Run, kernel: Kernel | None = None) -> tuple[Figure, ...]:
    """Return two figures for each row, dispatch and combine, predicted with these constants."""
    chosen = kernel or find_kernel(run.kernel)
    figures = []
    for servers, gpus, tokens, *measured in run.rows:
        links = Links(
            servers=servers, gpus=gpus, inside_gbyte_s=run.inside_gbyte_s, adapter_gbyte_s=run.adapter_gbyte_s
        )
        layer = Layer(tokens=tokens, dispatch_bytes=run.dispatch_bytes, balanced=run.balanced)
        done = fused_times(chosen, layer, links)
        figures += [
            Figure(
                run=run.name,
                cluster=run.where,
                kind=kind_of(chosen, servers),
                size_bytes=tokens * layer.token_bytes(element_bytes),
                measured=time_us,
                predicted=call.time_us,
            )
            for call, element_bytes, time_us in zip(
                (done.dispatch, done.combine), (layer.dispatch_bytes, layer.combine_bytes), measured, strict=True
            )
        ]
    return tuple(figures)


def kind_of(kernel: Kernel, servers: int) -> tuple[str, ...]:
    """Return the class of a time, by which bands are made."""
    if servers == 1:
        return ("inside an NVLink domain",)
    return ("a copy for each server" if kernel.copy_per is CopyPer.SERVER else "a copy for each GPU or expert",)


@cache
def left_out_figures() -> tuple[Figure, ...]:
    """Return every published time beside weft's by constants that were fitted without its hardware."""
    return tuple(figure for run in runs() for figure in compare(run, refitted(run.kernel, run.where)))


@cache
def cross_validate() -> dict[str, tuple[Prediction[Figure], ...]]:
    """Return the left-out figures with the bands that other hardware gives."""
    return leave_sources_out(left_out_figures())


@cache
def refitted(name: str, without: str = "") -> Kernel:
    """Fit the constants of a kernel to its published times, without those of one kind of hardware."""
    kernel = kernels()[name]
    chosen = [run for run in runs() if run.kernel == name and run.where != without]
    for _ in range(_ROUNDS):
        for field in kernel.fitted:
            kernel = min(_variants(kernel, field), key=lambda variant: _loss(variant, chosen))
    return kernel


def _variants(kernel: Kernel, field: str) -> list[Kernel]:
    """Return the kernel with a constant multiplied by each factor; of a pair, either value."""
    value: Any = getattr(kernel, field)
    if isinstance(value, float):
        return [msgspec.structs.replace(kernel, **{field: value * factor}) for factor in _FACTORS]
    dispatch, combine = value
    pairs = [[(dispatch * factor, combine), (dispatch, combine * factor)] for factor in _FACTORS]
    return [msgspec.structs.replace(kernel, **{field: pair}) for both in pairs for pair in both]


def _loss(kernel: Kernel, chosen: Sequence[Run]) -> float:
    figures = [figure for run in chosen for figure in compare(run, kernel)]
    return sum(abs(log(figure.slowdown)) for figure in figures) / len(figures)


def calibration_table() -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each run, and a note."""
    rows = []
    for run in runs():
        own = [prediction for prediction in cross_validate()[run.where] if prediction.figure.run == run.name]
        left_out = [prediction.figure for prediction in own]
        in_bands = f"{sum(prediction.is_in_band for prediction in own)} of {len(own)}"
        errors = f"{mean_error(left_out):.1%}", *bias_and_p90(left_out)
        rows.append((*summary_cells(run.name, compare(run)), *errors, in_bands))
    inside, count = count_in_bands(cross_validate())
    note = (
        f"{count} times; with their hardware left out of the fit, {errors_in_words(left_out_figures())}, "
        f"and {inside} lie in the bands of the others, {inside / count:.0%}. Every time: weft ep calibration NAME\n"
        f"{shortfalls_of(cross_validate())}"
    )
    return COLUMNS, rows, note


def class_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and a row for each class, the largest error first."""
    return CLASS_COLUMNS, class_rows(cross_validate())


def figure_table(run: Run) -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """Return columns, a row for each published time, and the source."""
    calls: Iterable[tuple[Row, str]] = ((row, call) for row in run.rows for call in ("dispatch", "combine"))
    rows: list[tuple[str, ...]] = [
        (
            str(row[0] * row[1]),
            f"{row[2]:,}",
            call,
            f"{figure.measured:,.1f}",
            f"{figure.predicted:,.1f}",
            f"{figure.error:+.1%}",
        )
        for (row, call), figure in zip(calls, compare(run), strict=True)
    ]
    return FIGURE_COLUMNS, rows, f"Source: {run.source}" + (f"\nNote: {run.note}" if run.note else "")
