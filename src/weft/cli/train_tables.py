"""The output of `weft train`: one run, runs side by side, layouts of a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from weft.cli.output import Cell, console, table

if TYPE_CHECKING:
    from weft.training.job import Run
    from weft.training.scaling import Curve, Prediction
    from weft.training.search import SearchResult
    from weft.training.site import Site

_BEST = 10  # layouts in the table


def print_run(run: Run, tokens: float | None, *, explain: bool, has_failures: bool) -> None:
    """Print the answer and the parts of the step; the parts are left out if tables on failures follow."""
    from weft.training.findings import describe_run
    from weft.training.words import show_layout

    out = console()
    out.print(describe_run(run, tokens), markup=False)
    if explain or not has_failures:
        out.print(
            table(f"Where the time goes: {show_layout(run.layout)}", ("part", "seconds", "%", "what"), _parts(run))
        )
    if explain:
        out.print(table("", ("property", "value"), [*_details(run)]))


def print_trust(runs: Sequence[Run], *, explain: bool, has_failures: bool = False) -> None:
    """Print the line on trust; with `--explain` all notes, the engine and the seed."""
    from weft.training.findings import describe_trust

    out = console()
    failures = "" if has_failures else ", failures (--fault, --goodput)"
    more = "" if explain else " More: --explain"
    out.print(f"How far to trust it: {describe_trust(runs)} Not included: evaluation{failures}.{more}", markup=False)
    if not explain:
        return
    for note in dict.fromkeys(note for run in runs for note in run.site.notes):
        out.print(f"Note: {note}.", markup=False)
    out.print("docs/training.md has published steps beside weft's.", markup=False)
    spec = f" over {runs[0].site.spec}" if len(runs) == 1 else ""
    out.print(f"{runs[0].engine} engine{spec}; seed {runs[0].site.options.seed}", markup=False)


def _details(run: Run) -> Iterator[tuple[str, str]]:
    from weft.training.words import show_loading, show_memory

    step, transformer = run.step, run.step.transformer
    tflop_s = step.mfu * run.site.gpu.peak_flop_s(run.layout.precision) / 1e12
    yield "parameters", f"{transformer.parameters / 1e9:,.1f} billion"
    yield "batch", f"{run.layout.global_batch:,} sequences of {run.layout.seq:,} tokens"
    yield "tokens/s per GPU", f"{step.tokens_per_s / run.site.gpus:,.0f}"
    yield "TFLOP/s per GPU", f"{tflop_s:,.0f}, {100 * step.mfu:.1f} % of the peak in {run.layout.precision}"
    yield "memory per GPU", show_memory(run)
    yield "input", show_loading(step)


def _parts(run: Run) -> list[tuple[Cell, ...]]:
    from weft.training.words import PARTS

    step = run.step
    return [
        (part, round(seconds, 4), round(100 * seconds / step.step_s, 1), PARTS[part])
        for part, seconds in step.parts.items()
        if seconds > 1e-6 * step.step_s
    ]


def print_runs(prediction: Prediction, tokens: float | None, *, explain: bool, strong: bool) -> None:
    """Print the answer and a table of fabrics, of numbers of GPUs, or of both."""
    from weft.training.findings import describe_prediction, describe_surprise
    from weft.training.words import show_layout

    out = console()
    out.print(describe_prediction(prediction, strong=strong), markup=False)
    layouts = {show_layout(run.layout, copies=False) for run in prediction.runs}
    title = layouts.pop() if len(layouts) == 1 else "Each with its fastest layout"
    records = [_record(prediction, curve, run, tokens) for curve, run in _sorted_runs(prediction)]
    out.print(table(title, [*records[0]], [[*record.values()] for record in records]))
    if explain:
        columns = ("fabric", "GPUs", "batch", "tokens/s", "layout")
        out.print(table("", columns, [_layout_row(curve, run) for curve, run in _sorted_runs(prediction)]))
    if not explain and (reason := describe_surprise(prediction.runs)):
        out.print(f"{reason}.", markup=False)
    print_trust(prediction.runs, explain=explain)


def _sorted_runs(prediction: Prediction) -> list[tuple[Curve, Run]]:
    """Return the runs with their curves, by number of GPUs and then by time."""
    runs = [(curve, run) for curve in prediction.curves for run in curve.runs]
    return sorted(runs, key=lambda pair: (pair[1].site.gpus, pair[1].step.step_s))


def _record(prediction: Prediction, curve: Curve, run: Run, tokens: float | None) -> dict[str, Cell]:
    step, (low_s, high_s) = run.step, run.band_s
    has_fabrics, has_sizes = len(prediction.curves) > 1, len(curve.runs) > 1
    record: dict[str, Cell] = {"fabric": curve.name} if has_fabrics or not has_sizes else {}
    record |= {"GPUs": run.site.gpus} if has_sizes else {}
    record |= {"step s": step.step_s, "90 % band": f"{low_s:.4g} to {high_s:.4g}"}
    record |= {"ratio": round(prediction.slowdown(run), 2)} if has_fabrics else {}
    record |= {"scaling %": round(100 * curve.efficiency(run), 1)} if has_sizes else {}
    record |= {} if has_fabrics and has_sizes else {"MFU %": round(100 * step.mfu, 1)}
    record |= {"days": round(run.days(tokens), 1)} if tokens is not None else {}
    return record | {"waits %": _waits(run)}


def _layout_row(curve: Curve, run: Run) -> tuple[Cell, ...]:
    from weft.training.words import show_layout

    return curve.name, run.site.gpus, run.layout.global_batch, run.step.tokens_per_s, show_layout(run.layout)


def _waits(run: Run) -> str:
    """Return the parts in which GPUs wait, `dp 12, bubble 3`: the largest first, from half a per cent on."""
    step = run.step
    parts = {part: 100 * step.parts[part] / step.step_s for part in ("tp", "cp", "ep", "bubble", "dp", "input")}
    largest_first = sorted(((share, part) for part, share in parts.items() if share >= 0.5), reverse=True)
    return ", ".join(f"{part} {share:.0f}" for share, part in largest_first)


def print_search(results: Sequence[SearchResult], site: Site, *, explain: bool) -> None:
    """Print the fastest layouts; sizes that are 1 in all of them are left out."""
    from weft.training.findings import describe_search
    from weft.training.memory import GB
    from weft.training.words import show_recompute

    best, out = results[:_BEST], console()
    names = {"tp": "tp", "pp": "pp", "vp": "vp", "cp": "cp", "ep": "ep", "micro_batch": "micro-batch"}
    sizes = {name: label for name, label in names.items() if any(getattr(each.layout, name) > 1 for each in best)}
    sizes |= {"dp": "dp", "zero": "ZeRO"}
    rows = [
        (
            *(getattr(result.layout, name) for name in sizes),
            show_recompute(result.layout),
            result.step.step_s,
            round(100 * result.step.mfu, 1),
            round(result.footprint.total_bytes / GB, 1),
        )
        for result in best
    ]
    out.print(describe_search(results, site), markup=False)
    out.print(table("", (*sizes.values(), "recompute", "step s", "MFU %", "GB"), rows))
    out.print("How far to trust it: closed forms without contention. Run a layout for its band.", markup=False)
    if explain:
        for note in site.notes:
            out.print(f"Note: {note}.", markup=False)
        out.print(f"{site.spec}; seed {site.options.seed}. --json has all {len(results):,} layouts.", markup=False)
