"""A job on different numbers of GPUs and on different fabrics.

grow(128, 64, 4096)                   the batch of 64 GPUs on 4,096: each GPU has the same work (weak scaling)
grow(128, 64, 4096, strong=True)      the same batch, cut over more copies
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

from weft.draw.chart import COLOURS, FAINT, INK, titled_chart
from weft.errors import ConfigError
from weft.training.job import Run
from weft.training.words import PARTS, show_layout
from weft.version import __version__


def parse_sizes(text: str) -> list[int]:
    """Parse numbers of GPUs: `8..1024` doubles from the first to the last; `8,64,96` is a list."""
    first, dots, last = text.partition("..")
    try:
        sizes = [int(size) for size in ((first, last) if dots else text.split(","))]
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1 or any(after <= before for before, after in pairwise(sizes)):
        raise ConfigError(f"--scale {text} is not a growing list of numbers of GPUs: write 8..16384, or 8,64,512")
    if not dots:
        return sizes
    return [sizes[0] << power for power in range((sizes[1] // sizes[0]).bit_length())]


def grow(batch: int, before: int, gpus: int, *, strong: bool = False) -> int:
    """Return the global batch on `gpus`, given the batch on `before` GPUs."""
    return batch if strong else batch * gpus // before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """The runs on one fabric, by number of GPUs."""

    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        return self.runs[0].site.name

    def efficiency(self, run: Run) -> float:
        """Return the tokens/s of each GPU relative to the first run."""
        first = self.runs[0]
        return run.step.tokens_per_s / run.site.gpus / (first.step.tokens_per_s / first.site.gpus)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """The runs of a job: a curve for each fabric, each with the same numbers of GPUs."""

    curves: tuple[Curve, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(run for curve in self.curves for run in curve.runs)

    def slowdown(self, run: Run) -> float:
        """Return the step time relative to the fastest fabric at the same number of GPUs."""
        return run.step.step_s / min(other.step.step_s for other in self.runs if other.site.gpus == run.site.gpus)

    def report(self, tokens: float | None = None) -> dict[str, Any]:
        """Return the runs as `--json` prints them."""
        runs = [
            run.report(tokens) | {"efficiency": curve.efficiency(run), "slower": self.slowdown(run)}
            for curve in self.curves
            for run in curve.runs
        ]
        return {"weft": __version__, "runs": runs}


# -- pictures ---------------------------------------------------------------------------------------------------------


def draw_scaling(path: Path | str, curves: Sequence[Curve], *, strong: bool) -> None:
    """Draw tokens/s over GPUs, with linear scaling as reference, and MFU."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    title = f"{curves[0].runs[0].step.transformer.name}, {'strong' if strong else 'weak'} scaling"
    with titled_chart(path, title, _note(curves[0].runs[-1]), panels=2) as (rates, shares):
        for curve, colour in zip(curves, cycle(COLOURS), strict=False):
            gpus = [run.site.gpus for run in curve.runs]
            look: dict[str, Any] = {"color": colour, "marker": "o", "markersize": 4, "linewidth": 1.8}
            for axes, values in (
                (rates, [run.step.tokens_per_s for run in curve.runs]),
                (shares, [100 * run.step.mfu for run in curve.runs]),
            ):
                axes.plot(gpus, values, label=curve.name, **look)
                low, high = zip(*map(_limits, curve.runs, values), strict=True)
                axes.fill_between(gpus, low, high, color=colour, alpha=0.12, linewidth=0)
        best = max(curves, key=lambda curve: curve.runs[0].step.tokens_per_s).runs
        each = best[0].step.tokens_per_s / best[0].site.gpus
        ends = [best[0].site.gpus, best[-1].site.gpus]
        rates.plot(ends, [each * gpus for gpus in ends], color=FAINT, linestyle="--", linewidth=1.2, label="linear")
        rates.set_yscale("log")
        rates.set_ylabel("tokens/s (logarithmic)")
        shares.set_ylabel("MFU (%)")
        shares.set_ylim(0, 1.05 * max(_limits(run, 100 * run.step.mfu)[1] for curve in curves for run in curve.runs))
        for axes in (rates, shares):
            axes.set_xscale("log", base=2)
            axes.set_xticks(gpus)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
            axes.tick_params(axis="x", rotation=45)
            axes.set_xlabel("GPUs (logarithmic)")
        rates.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:,.0f}"))
        rates.legend(loc="upper left")


def draw_parts(path: Path | str, runs: Sequence[Run]) -> None:
    """Draw the parts of a step's time on each fabric, as bars."""
    first = runs[0]
    title = f"{first.step.transformer.name} on {first.site.gpus:,} × {first.site.template.gpu}: one step"
    with titled_chart(path, title, _note(first)) as (axes,):
        left = [0.0] * len(runs)
        for part, colour in zip(PARTS, cycle((*COLOURS, "#c3a35c", "#34495e")), strict=False):
            seconds = [run.step.parts[part] for run in runs]
            if max(seconds) > 0.002 * max(run.step.step_s for run in runs):
                axes.barh([run.site.name for run in runs], seconds, left=left, color=colour, label=part, height=0.6)
            left = [before + more for before, more in zip(left, seconds, strict=True)]
        for row, run in enumerate(runs):
            low_s, high_s = run.band_s
            axes.plot([low_s, high_s], [row, row], color=INK, linewidth=1.2, marker="|", markersize=7)
            label = f" {run.step.step_s:.3g} s ({low_s:.3g} to {high_s:.3g}), MFU {100 * run.step.mfu:.0f} %"
            axes.text(high_s, row, label, va="center", fontsize=8.5)
        axes.set_xlim(0, 1.4 * max(run.band_s[1] for run in runs))
        axes.set_ylim(len(runs) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("time of a step (s)")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02))


def _limits(run: Run, rate: float) -> tuple[float, float]:
    """Return the band of a rate: that of the longest and that of the shortest step in the band."""
    return rate / run.band.high, rate / run.band.low


def _note(run: Run) -> str:
    return (
        f"{run.site.gpus:,} GPUs: {show_layout(run.layout)}, {run.layout.global_batch:,} sequences of "
        f"{run.layout.seq:,} tokens; {run.engine} engine, seed {run.site.options.seed}; weft {__version__}"
    )
