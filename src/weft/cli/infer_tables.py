"""The output of `weft infer`: one run, fabrics side by side, a Pareto curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from weft.cli.accuracy import group_columns, group_rows
from weft.cli.output import Cell, console, print_data, table

if TYPE_CHECKING:
    from weft.cli.arguments import Form
    from weft.inference.prediction import Inference

_EQUAL = 1.005  # closer rates count as equal


def print_run(run: Inference, *, explain: bool) -> None:
    """Print the answer, the parts of the mean step and a line on trust."""
    from weft.inference.prediction import show_layout

    out = console()
    out.print(describe_run(run), markup=False)
    columns = ("part", "ms", "%", "what")
    out.print(table(f"Where the time goes: {show_layout(run.deployment)}", columns, [*_parts(run)]))
    if explain:
        out.print(table("", ("property", "value"), [*_details(run)]))
    print_trust([run], explain=explain)


def describe_run(run: Inference) -> str:
    served, load, deployment = run.served, run.load, run.deployment
    place = _place(run)
    low, high = run.band("tokens_per_s").around(run.tokens_per_s)
    band = f"(90 % band {low:,.0f} to {high:,.0f})"
    per_gpu = f"{run.tokens_per_s_per_gpu:,.0f} tokens/s per GPU"
    ttft = "" if served.ttft_s is None else f", TTFT {_show_s(served.ttft_s)}"
    tpot = "" if served.tpot_s is None else f", TPOT {_show_s(served.tpot_s)}"
    what = {
        "offline": f"with prompts of {load.input:,} and answers of {load.output:,} tokens, always full",
        "closed": f"with {load.concurrency:,} user{'s' * (load.concurrency > 1)}, prompts of {load.input:,} and "
        f"answers of {load.output:,} tokens",
        "static": f"with a batch of {load.batch:,}, prompts of {load.input:,} and answers of {load.output:,} tokens",
        "prefill": f"in prefill alone of prompts of {load.input:,} tokens",
        "decode": f"in decode alone of {load.batch:,} requests with {load.input:,} cached tokens",
    }[load.kind]
    return (
        f"{deployment.model.name} on {place} gives {run.tokens_per_s:,.0f} tokens/s {band}, {per_gpu}{ttft}{tpot}, "
        f"{what}. Most of the time: {run.bottleneck}."
    )


def _place(run: Inference) -> str:
    site = run.deployment.site
    servers = f"{site.servers:,} × {site.template.name.partition('+')[0]}"
    return f"{site.gpus:,} × {site.template.gpu} ({servers}{f', {site.name}' if site.servers > 1 else ''})"


def _show_s(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _parts(run: Inference) -> Iterator[tuple[Cell, ...]]:
    from weft.inference.step import PARTS

    total_s = run.served.parts.total_s
    for part, what in PARTS.items():
        seconds = run.served.parts.get(part, 0.0)
        if seconds > 1e-3 * total_s:
            yield part, round(1000 * seconds, 3), round(100 * seconds / total_s, 1), what


def _details(run: Inference) -> Iterator[tuple[str, str]]:
    from weft.training.memory import GB

    deployment, served = run.deployment, run.served
    yield "decoding requests", f"{served.decoding:,.1f} of a replica, limited by {served.limit}"
    yield "formats", f"weights {deployment.weights}, KV cache {deployment.kv}, products {deployment.precision}"
    yield "weights per GPU", f"{deployment.weight_bytes / GB:,.1f} of {deployment.gpu.entry.memory_gbyte:g} GB"
    room = f"{deployment.kv_bytes_of_gpu / GB:,.1f} GB per GPU, {deployment.kv_room_tokens:,} tokens of a replica"
    yield "KV cache", room
    yield "largest step", f"{deployment.batch_limit:,} requests, {deployment.token_limit:,} tokens"


def print_trust(runs: Sequence[Inference], *, explain: bool) -> None:
    out, first = console(), runs[0]
    more = "" if explain else " More: --explain"
    bands = [run.band("tokens_per_s") for run in runs]
    kinds = dict.fromkeys(f"{band.kind} ({band.clusters} model{'s' * (band.clusters > 1)})" for band in bands)
    far = dict.fromkeys(reason for band in bands for reason in band.far)
    warning = f" Beware: {'; '.join(far)}." if far else ""
    out.print(
        f"How far to trust it: assumes {first.deployment.engine.label}; see --framework. Bands are from published "
        f"figures of {' and of '.join(kinds)}.{warning} Means of equal requests, no prefix cache.{more}",
        markup=False,
    )
    if explain:
        for note in dict.fromkeys(note for run in runs for note in run.deployment.site.notes):
            out.print(f"Note: {note}.", markup=False)
        out.print(f"{first.clock} engine over {first.deployment.site.spec}; seed {first.deployment.site.options.seed}")


def print_fabrics(runs: Sequence[Inference], *, explain: bool) -> None:
    """Print the same deployment on several fabrics."""
    best, worst = runs[0], runs[-1]
    ratio = best.tokens_per_s / worst.tokens_per_s
    slower = (
        "All other fabrics give as many."
        if ratio < _EQUAL
        else f"{worst.deployment.site.name}, the slowest, gives {1 / ratio:.0%} of that."
    )
    out = console()
    out.print(f"{describe_run(best)} {slower}", markup=False)
    columns = ("fabric", "tokens/s", "tokens/s per GPU", "TTFT s", "TPOT ms", "ratio", "bottleneck")
    rows: list[tuple[Cell, ...]] = [
        (run.deployment.site.name, *_figures(run), round(best.tokens_per_s / run.tokens_per_s, 2), run.bottleneck)
        for run in runs
    ]
    out.print(table("", columns, rows))
    print_trust(runs, explain=explain)


def _figures(run: Inference) -> tuple[Cell, ...]:
    served = run.served
    ttft_s = None if served.ttft_s is None else round(served.ttft_s, 3)
    tpot_ms = None if served.tpot_s is None else round(1000 * served.tpot_s, 2)
    return round(run.tokens_per_s), round(run.tokens_per_s_per_gpu, 1), ttft_s, tpot_ms


def print_pareto(runs: Sequence[Inference], *, explain: bool) -> None:
    from weft.inference.prediction import show_layout

    fast, full = runs[0], runs[-1]
    out = console()
    out.print(
        f"{fast.deployment.model.name} on {_place(fast)}: from {fast.tokens_per_s_per_user:,.0f} tokens/s for a user "
        f"({show_layout(fast.deployment)}) to {full.tokens_per_s_per_gpu:,.0f} tokens/s per GPU "
        f"({show_layout(full.deployment)}).",
        markup=False,
    )
    columns = ("layout", "users", "tokens/s per user", "tokens/s per GPU", "TTFT s", "TPOT ms", "bottleneck")
    rows: list[tuple[Cell, ...]] = [
        (
            show_layout(run.deployment),
            run.load.concurrency,
            round(run.tokens_per_s_per_user or 0.0, 1),
            *_figures(run)[1:],
            run.bottleneck,
        )
        for run in runs
    ]
    out.print(table("", columns, rows))
    print_trust(runs, explain=explain)


def print_validation(form: Form) -> None:
    """Print errors against published figures by class and by source, the largest first."""
    from weft.calibration.chance import shortfalls_of
    from weft.inference.accuracy import class_errors, reliable_predictions, report, source_errors
    from weft.inference.handoff_accuracy import handoff_errors

    if form.is_data:
        print_data(form, report(), "rows")
        return
    note = (
        "Left out: predicted without the constants and bands that the source was used for. Bands are to hold nine of "
        "ten figures. Constants belong to a GPU or an engine, none to a figure. Each figure and its source: --json."
    )
    out = console()
    out.print(table("Errors by class", group_columns("class", "figures"), group_rows(class_errors())))
    out.print(table("Errors by source", group_columns("source", "figures"), group_rows(source_errors()), note))
    out.print(shortfalls_of(reliable_predictions()), markup=False)
    handoffs = handoff_errors()
    out.print(
        f"KV hand-offs: {handoffs.figures} figures of one source, each left out of the two constants in turn: mean "
        f"error {handoffs.mean_error:.1%}, bias {handoffs.bias:+.1%}, p90 {handoffs.p90:.1%}, at most "
        f"{handoffs.most:.1%}.",
        markup=False,
    )
