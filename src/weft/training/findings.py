"""The answer of a prediction in one or two sentences, and a line on how far to trust it."""

from __future__ import annotations

from collections.abc import Sequence

from weft.collectives.nccl.estimate import TCP_DOUBT
from weft.sim.engine import Network
from weft.training.job import Run
from weft.training.scaling import Curve, Prediction
from weft.training.search import SearchResult
from weft.training.site import Site
from weft.units import format_count

_EQUAL = 1.005  # narrower than any band: closer times count as equal


def describe_run(run: Run, tokens: float | None = None) -> str:
    step, (low_s, high_s) = run.step, run.band_s
    sentence = (
        f"A step of {step.transformer.name} takes {step.step_s:.4g} s (90 % band {low_s:.4g} to "
        f"{high_s:.4g}) on {_place(run.site)}: {step.tokens_per_s:,.0f} tokens/s, MFU {100 * step.mfu:.1f} %."
    )
    if tokens is None:
        return sentence
    days = run.days(tokens)
    low, high = run.band.around(days)
    return (
        f"{sentence} {format_count(tokens)} tokens take {days:,.1f} days ({low:,.1f} to {high:,.1f}), without failures."
    )


def describe_prediction(prediction: Prediction, *, strong: bool = False) -> str:
    """Return the fastest and the slowest fabric, or how far the tokens/s follow the GPUs."""
    by_time = sorted(prediction.curves, key=lambda curve: curve.runs[-1].step.step_s)
    fastest, slowest = by_time[0], by_time[-1]
    if len(fastest.runs) > 1:
        other = f" Over {slowest.name} it keeps {_efficiency(slowest)}." if slowest is not fastest else ""
        return f"{_describe_scaling(fastest, strong)}{other}"
    run, ratio = fastest.runs[0], prediction.slowdown(slowest.runs[0])
    if slowest is fastest:
        return describe_run(run)
    slower = (
        "All other fabrics take as long."
        if ratio < _EQUAL
        else f"Over {slowest.name}, the slowest, it takes {ratio:.3g} times as long."
    )
    return (
        f"A step of {run.step.transformer.name} on {run.site.gpus:,} × {run.site.template.gpu} takes "
        f"{run.step.step_s:.4g} s over {fastest.name}, the fastest (MFU {100 * run.step.mfu:.1f} %). {slower}"
    )


def describe_search(results: Sequence[SearchResult], site: Site) -> str:
    best = results[0]
    return (
        f"The fastest of {len(results):,} layouts of {best.step.transformer.name} that divide and fit on "
        f"{_place(site)} takes {best.step.step_s:.4g} s, MFU {100 * best.step.mfu:.1f} %: {flags_of(best)}"
    )


def flags_of(result: SearchResult) -> str:
    """Return the flags of `weft train` that choose a layout: `--tp 2 --zero 2`."""
    layout = result.layout
    sizes = {name: getattr(layout, name) for name in ("tp", "pp", "vp", "cp", "ep", "micro_batch", "zero")}
    flags = [f"--{name.replace('_', '-')} {value}" for name, value in sizes.items() if value > 1] or ["--tp 1"]
    flags += [] if layout.recompute == "none" else [f"--recompute {layout.recompute}"]
    return " ".join([*flags, *([f"--recompute-layers {layout.recompute_layers}"] if layout.recompute_layers else [])])


def describe_surprise(runs: Sequence[Run]) -> str:
    """Return the reason why TCP over a faster line is not faster, if several lines are compared; else nothing."""
    lines = {run.site.name for run in runs if run.site.servers > 1 and run.site.options.network is Network.TCP}
    return TCP_DOUBT if len(lines) > 1 else ""


def describe_trust(runs: Sequence[Run]) -> str:
    """Return the software that was assumed, the source of the bands, and the properties that no published step has."""
    bands = [run.band for run in runs]
    kinds = dict.fromkeys(f"{band.clusters} source{'s' * (band.clusters > 1)} with {band.kind}" for band in bands)
    far = dict.fromkeys(reason for band in bands for reason in band.far)
    warning = f" Beware: {'; '.join(far)}." if far else ""
    software = f"Assumes {_describe_software(runs)}; see --framework."
    return f"{software} Bands are from published steps of {' and of '.join(kinds)}.{warning}"


def _describe_software(runs: Sequence[Run]) -> str:
    """Return the frameworks whose kernels and overlaps were assumed."""
    return " and ".join(dict.fromkeys(run.layout.software.label for run in runs))


def _describe_scaling(curve: Curve, strong: bool) -> str:
    first, last = curve.runs[0], curve.runs[-1]
    return (
        f"From {first.site.gpus:,} to {last.site.gpus:,} GPUs over {curve.name}, {first.step.transformer.name} keeps "
        f"{_efficiency(curve)} of its tokens/s per GPU ({'strong' if strong else 'weak'} scaling): "
        f"{last.step.tokens_per_s:,.0f} tokens/s at the end."
    )


def _efficiency(curve: Curve) -> str:
    return f"{100 * curve.efficiency(curve.runs[-1]):.1f} %"


def _place(site: Site) -> str:
    servers = f"{site.servers:,} × {site.template.name.partition('+')[0]}"
    return f"{site.gpus:,} × {site.template.gpu} ({servers}{f', {site.name}' if site.servers > 1 else ''})"
