"""A step as a profiler would show it: spans of every stage, and their picture.

stage 0  compute         F1 F2 F3 F4 ... B1 B2 B3 B4   adam
         communication   gather                  sums
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.draw.chart import COLOURS, FAINT, INK, titled_chart
from weft.training.job import Run
from weft.training.step import Step
from weft.training.timeline import Span
from weft.training.words import show_layout
from weft.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, PURPLE, YELLOW = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[4]
KINDS = {"forward": BLUE, "backward": GREEN, "gather": YELLOW, "sum": ORANGE, "optimizer": PURPLE}
_LABELS = {
    "forward": "forward",
    "backward": "backward",
    "gather": "parameters gathered",
    "sum": "gradients summed",
    "optimizer": "optimizer",
}
_LEAST_ROWS = 4
_MOST_EDGES = 128  # passes in a row that are drawn with edges
_WAYS = ("forward", "backward")


def spans(step: Step) -> Iterator[Span]:
    """Yield the spans of every stage of one pipeline. Tensor, context and expert parallel are part of compute."""
    schedule, end_s = step.schedule, float(step.summed_s.max()) + step.optimizer_s
    stages, chunks, micro_batches, _ = schedule.begin_s.shape
    for stage in range(stages):
        track = f"stage {stage}"
        for way, kind in enumerate(_WAYS):
            for chunk in range(chunks):
                for micro in range(micro_batches):
                    at = stage, chunk, micro, way
                    name = f"{kind} {micro + 1}" + (f", chunk {chunk + 1}" if chunks > 1 else "")
                    yield _span(track, "compute", name, kind, schedule.begin_s[at], schedule.end_s[at])
        yield _span(track, "compute", "optimizer", "optimizer", end_s - step.optimizer_s, end_s)
        at_s = 0.0 if step.layout.overlap_param_gather else end_s
        for chunk in range(chunks):
            named = f" of chunk {chunk + 1}" if chunks > 1 else ""
            taken_s, (begin_s, done_s) = float(step.gathered_s[stage, chunk]), step.summed_s[stage, chunk]
            if taken_s > 0:
                yield _span(track, "communication", f"parameters{named}", "gather", at_s, at_s + taken_s)
            if done_s > begin_s:
                yield _span(track, "communication", f"gradients{named}", "sum", begin_s, done_s)
            at_s += taken_s


def _span(track: str, lane: str, name: str, kind: str, start_s: float, end_s: float) -> Span:
    return Span(track=track, lane=lane, name=name, kind=kind, start_s=float(start_s), end_s=float(end_s))


def draw_timeline(path: Path | str, run: Run) -> None:
    """Write the timeline as PNG, SVG or PDF: a row for each stage, compute above, communication below."""
    step = run.step
    title = f"{step.transformer.name} on {run.site.gpus:,} × {run.site.template.gpu}, {run.site.name}: one step"
    note = (
        f"{show_layout(run.layout)}; {step.step_s:.4g} s, MFU {100 * step.mfu:.1f} %; {run.engine} engine over "
        f"{run.site.spec}, seed {run.site.options.seed}; weft {__version__}"
    )
    with titled_chart(path, title, note) as (axes,):
        _draw_rows(axes, step)


def _draw_rows(axes: Axes, step: Step) -> None:
    from matplotlib.patches import Patch

    stages = step.layout.pp
    bars: dict[tuple[int, str, str], list[tuple[float, float]]] = {}
    for span in spans(step):
        key = int(span.track.split()[1]), span.lane, span.kind
        bars.setdefault(key, []).append((span.start_s, span.end_s - span.start_s))
    few = step.layout.micro_batches * step.layout.vp <= _MOST_EDGES
    for (stage, lane, kind), pieces in bars.items():
        low, high = (stage - 0.42, 0.6) if lane == "compute" else (stage + 0.2, 0.22)
        look: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4} if few else {}
        axes.broken_barh(pieces, (low, high), facecolor=KINDS[kind], **look)
    axes.set_xlim(0, step.step_s)
    axes.set_ylim(max(stages, _LEAST_ROWS) - 0.5, -0.5)
    every = max(1, stages // 16)
    axes.set_yticks(range(0, stages, every), [f"stage {stage}" for stage in range(0, stages, every)])
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("time (s)")
    kinds = {kind for _, _, kind in bars}
    keys = [Patch(color=colour, label=_LABELS[kind]) for kind, colour in KINDS.items() if kind in kinds]
    keys.append(Patch(facecolor="white", edgecolor=FAINT, label="waiting"))
    axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.0, 1.02), labelcolor=INK)
