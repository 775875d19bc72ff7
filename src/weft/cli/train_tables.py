"""The tables of `weft train`: one run, several runs, and the layouts of --search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.cli.output import Cell, console, table

if TYPE_CHECKING:
    from weft.training.job import Run
    from weft.training.scaling import Prediction
    from weft.training.search import SearchResult
    from weft.training.site import Site

_TRUST = (
    "How far to trust it: docs/training.md has published steps beside weft's. Left out: input, evaluation, and "
    "failures (--fault, --goodput)."
)
_BEST = 10  # layouts in the table


# -- one run ----------------------------------------------------------------------------------------------------------


def print_run(run: Run, tokens: float | None) -> None:
    out = console()
    for name, value in _headline(run, tokens).items():
        out.print(f"{name:<13} {value}", markup=False)
    out.print()
    out.print(table("Where the time goes", ("part", "seconds", "%", "what"), _where(run)))
    _print_trust([run.site])
    out.print(f"{run.engine} engine over {run.site.spec}; seed {run.site.options.seed}", markup=False)


def _print_trust(sites: Sequence[Site]) -> None:
    out = console()
    out.print(_TRUST, markup=False)
    for note in dict.fromkeys(note for site in sites for note in site.notes):
        out.print(f"Note: {note}.", markup=False)


def _headline(run: Run, tokens: float | None) -> dict[str, str]:
    from weft.training.words import show_layout, show_memory
    from weft.units import format_count

    step, transformer, band = run.step, run.step.transformer, run.band
    per_gpu = step.tokens_per_s / run.site.gpus
    flop = step.mfu * run.site.gpu.peak_flop_s(run.layout.precision) / 1e12
    lines = {
        "model": f"{transformer.name}, {transformer.parameters / 1e9:,.1f} B parameters",
        "on": f"{run.site.gpus:,} × {run.site.template.gpu} in {run.site.servers:,} × {run.site.template.name}",
        "layout": show_layout(run.layout),
        "step": f"{step.step_s:.4g} s for {run.layout.global_batch:,} sequences of {run.layout.seq:,} tokens",
        "band": str(band),
        "tokens/s": f"{step.tokens_per_s:,.0f}, {per_gpu:,.0f} on each GPU",
        "MFU": f"{100 * step.mfu:.1f} % of the peak in {run.layout.precision}, {flop:,.0f} TFLOP/s on each GPU",
        "memory": show_memory(run),
    }
    if tokens is not None:
        days = run.days(tokens)
        low, high = (days * limit_s / step.step_s for limit_s in (band.low_s, band.high_s))
        lines["time to train"] = (
            f"{days:,.1f} days ({low:,.1f} to {high:,.1f}) for {format_count(tokens)} tokens, nothing broken"
        )
    return lines


def _where(run: Run) -> list[tuple[Cell, ...]]:
    from weft.training.words import PARTS

    step = run.step
    return [
        (part, round(seconds, 4), round(100 * seconds / step.step_s, 1), PARTS[part])
        for part, seconds in step.parts.items()
        if seconds > 1e-6 * step.step_s
    ]


# -- several runs -----------------------------------------------------------------------------------------------------


def print_runs(prediction: Prediction, tokens: float | None) -> None:
    from weft.training.words import show_layout

    curves = prediction.curves
    first = curves[0].runs[0]
    columns = ["fabric", "GPUs", "batch", "step, s", "band, s", "tokens/s", "MFU, %"]
    columns += ["times as long"] if len(curves) > 1 else []
    columns += ["scaling, %"] if len(curves[0].runs) > 1 else []
    columns += ["days"] if tokens is not None else []
    columns += ["waits, %"]
    cuts = {show_layout(run.layout, copies=False) for curve in curves for run in curve.runs}
    columns += ["layout"] if len(cuts) > 1 else []
    rows: list[list[Cell]] = []
    for curve in curves:
        for run in curve.runs:
            step, band = run.step, run.band
            row: list[Cell] = [curve.name, run.site.gpus, run.layout.global_batch, step.step_s]
            row += [f"{band.low_s:.4g} to {band.high_s:.4g}", step.tokens_per_s, round(100 * step.mfu, 1)]
            row += [round(prediction.slowdown(run), 3)] if len(curves) > 1 else []
            row += [round(100 * curve.efficiency(run), 1)] if len(curve.runs) > 1 else []
            row += [round(run.days(tokens), 1)] if tokens is not None else []
            row.append(_waits(run))
            rows.append([*row, show_layout(run.layout)] if len(cuts) > 1 else row)
    out = console()
    same = f": {cuts.pop()}" if len(cuts) == 1 else ", on each the fastest layout"
    out.print(f"{first.step.transformer.name} on {first.site.template.name.partition('+')[0]}{same}", markup=False)
    out.print(table("", columns, rows))
    _print_trust([run.site for curve in curves for run in curve.runs])
    out.print(f"{first.engine} engine; seed {first.site.options.seed}", markup=False)


def _waits(run: Run) -> str:
    """Return the percentages of the step spent waiting, largest first, without those below 0.5: `dp 12, bubble 3`."""
    step = run.step
    parts = {part: 100 * step.parts[part] / step.step_s for part in ("tp", "cp", "ep", "bubble", "dp")}
    largest_first = sorted(((share, part) for part, share in parts.items() if share >= 0.5), reverse=True)
    return ", ".join(f"{part} {share:.0f}" for share, part in largest_first)


# -- layouts ----------------------------------------------------------------------------------------------------------


def print_search(results: Sequence[SearchResult], site: Site) -> None:
    from weft.training.memory import GB

    columns = ("tp", "pp", "vp", "cp", "ep", "dp", "micro-batch", "ZeRO", "recompute", "step, s", "MFU, %", "GB")
    rows = [
        (
            *(getattr(result.layout, size) for size in ("tp", "pp", "vp", "cp", "ep", "dp", "micro_batch", "zero")),
            result.layout.recompute,
            result.step.step_s,
            round(100 * result.step.mfu, 1),
            round(result.footprint.total_bytes / GB, 1),
        )
        for result in results[:_BEST]
    ]
    best, out = results[0], console()
    out.print(f"{best.step.transformer.name} on {site.gpus:,} × {site.template.gpu}, {site.name}", markup=False)
    out.print(table("", columns, rows))
    out.print(f"The best of {len(results):,} layouts that divide and fit, in closed form.", markup=False)
    flags = {name: getattr(best.layout, name) for name in ("tp", "pp", "vp", "cp", "ep", "micro_batch", "zero")}
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in flags.items() if value > 1)
    again = "" if best.layout.recompute == "none" else f" --recompute {best.layout.recompute}"
    out.print(f"Run it: {options or '--tp 1'}{again}", markup=False)
