"""Charts of runs: latency against load, its distribution, ports over time, and links coloured by utilisation.

    draw_latency("latency.png", [Curve.of("table", results), Curve.of("adaptive", others)], title, note)
    draw_cdf("cdf.png", result)
    draw_queues("queue.png", result)
    draw_watched("ports.png", result)
    draw_heat("heat.html", result)

The titles contain fabric, traffic and seed, so that the run can be repeated later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from weft.draw import draw, lay_out
from weft.draw.chart import COLOURS, titled_chart
from weft.draw.notebook import fits, show
from weft.errors import ConfigError
from weft.fabric.notebook import to_html
from weft.sim.figures import describe_run, describe_traffic, headline, name_fabric
from weft.sim.result import NEVER, Result
from weft.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = (0, (4, 2.5))
_MOST_IN_LEGEND = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """A curve of latency at several loads."""

    name: str
    load: NDArray[np.float64]  # offered, of a host's line rate
    p50_us: NDArray[np.float64]
    p99_us: NDArray[np.float64]

    @classmethod
    def of(cls, name: str, runs: Sequence[tuple[float, Result]]) -> Self:
        """Build a curve from (load, result); runs in which no message arrived are left out."""
        latencies = [(load, run.latency_ps[run.finish_ps != NEVER]) for load, run in runs]
        points = [(load, *np.percentile(ps, (50, 99)) / 1e6) for load, ps in latencies if len(ps)]
        load, p50_us, p99_us = np.array(points, np.float64).reshape(-1, 3).T
        return cls(name=name, load=load, p50_us=p50_us, p99_us=p99_us)


# -- latency against load ---------------------------------------------------------------------------------------------


def draw_latency(path: Path | str, curves: Sequence[Curve], title: str, note: str) -> None:
    """Write the curves, median solid and 99th percentile dashed, as PNG, SVG or PDF by the suffix."""
    with titled_chart(path, title, note) as (axes,):
        for curve, colour in zip(curves, cycle(COLOURS), strict=False):
            look: dict[str, Any] = {"color": colour, "linewidth": 1.8, "marker": "o", "markersize": 4}
            axes.plot(curve.load, curve.p50_us, label=f"{curve.name}, median", **look)
            look |= {"linestyle": _DASHES, "markerfacecolor": "white"}
            axes.plot(curve.load, curve.p99_us, label=f"{curve.name}, p99", **look)
        _scale_latency(axes, np.concatenate([us for curve in curves for us in (curve.p50_us, curve.p99_us)]))
        axes.set_xlim(0, 1)
        axes.set_xlabel("offered load (payload, share of a host's line rate)")
        axes.set_ylabel("message latency (µs, logarithmic)")
        axes.legend(frameon=True, framealpha=1, edgecolor="white", loc="upper left", ncols=min(len(curves), 4))


def _scale_latency(axes: Axes, shown_us: NDArray[np.float64]) -> None:
    """Set a logarithmic axis with space for the legend above and a suitable number of ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = float(shown_us.min(initial=np.inf)), float(shown_us.max(initial=0))
    if not len(shown_us):
        low = high = 1.0
    axes.set_yscale("log")
    axes.set_ylim(low / 1.2, high * max(1.3, (high / low) ** 0.2))
    marks = (1, 2, 5) if high > 30 * low else (1, 1.5, 2, 3, 4, 5, 7)
    axes.yaxis.set_major_locator(LogLocator(subs=marks, numticks=15))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda us, _: f"{us:,g}"))


# -- queues over time -------------------------------------------------------------------------------------------------


def draw_queues(path: Path | str, result: Result) -> None:
    """Plot the queue of each watched port until all messages had arrived."""
    from matplotlib.ticker import StrMethodFormatter

    samples = result.samples
    if not samples.port:
        raise ConfigError("no port was watched: name some in Options.watch, or with --watch leaf1/3")
    note = f"{describe_traffic(result.traffic)}; {describe_run(result.options)}; weft {__version__}"
    shown = samples.until(result.last_arrival_ps)
    time_us, queued_kib = shown.time_ps / 1e6, shown.queue_bytes / 1024
    with titled_chart(path, name_fabric(result.fabric), note) as (axes,):
        for column, (name, colour) in enumerate(zip(samples.port, cycle(COLOURS), strict=False)):
            queued = queued_kib[:, column]
            label = f"{name}, at most {queued.max(initial=0):,.0f} KiB" if column < _MOST_IN_LEGEND else None
            axes.plot(time_us, queued, color=colour, linewidth=1.3, label=label, clip_on=False)
        axes.set_xlim(0, max(result.last_arrival_ps, 1) / 1e6)
        axes.set_ylim(0, max(float(queued_kib.max(initial=0)) * 1.08, 1))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.set_xlabel("time (µs)")
        axes.set_ylabel("waiting to leave the port (KiB)")
        more = len(samples.port) - _MOST_IN_LEGEND
        heading = f"the first {_MOST_IN_LEGEND} of {len(samples.port)}" if more > 0 else None
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), title=heading)


def draw_watched(path: Path | str, result: Result) -> None:
    """Plot how much each watched port sent, and how long it was blocked or what its queue pairs were allowed."""
    if not result.samples.port:
        raise ConfigError("no port was watched: name some in Options.watch, or with --watch leaf1/3")
    note = f"{describe_traffic(result.traffic)}; {describe_run(result.options)}; weft {__version__}"
    shown = result.samples.until(result.last_arrival_ps)
    panels = {
        "sending (% of the time)": 100 * shown.utilisation,
        "no credit, or paused (% of the time)": 100 * shown.blocked,
        "pause frames sent": shown.pauses,
        "credits (KiB)": shown.credit_bytes / 1024,
        "rate allowed by congestion control (%)": 100 * shown.allowed_rate,
    }
    drawn = {label: values for label, values in panels.items() if np.nansum(np.abs(values)) > 0}
    with titled_chart(path, name_fabric(result.fabric), note, panels=max(len(drawn), 1)) as all_axes:
        for axes, (label, values) in zip(all_axes, drawn.items(), strict=False):
            for column, (name, colour) in enumerate(zip(shown.port, cycle(COLOURS), strict=False)):
                axes.plot(shown.time_ps / 1e6, values[:, column], color=colour, linewidth=1.2, label=name)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("time (µs)")
            axes.set_title(label, fontsize=9)
        if len(shown.port) <= _MOST_IN_LEGEND:
            all_axes[-1].legend(loc="best", fontsize=8)


# -- latency of messages ----------------------------------------------------------------------------------------------


def draw_cdf(path: Path | str, result: Result) -> None:
    """Plot the share of messages that arrived within each latency, with median and 99th percentile marked."""
    latency_us = np.sort(result.latency_ps[result.finish_ps != NEVER]) / 1e6
    if not len(latency_us):
        raise ConfigError("no message arrived, so there is no latency to draw: leave out --picture-cdf")
    note = f"{describe_traffic(result.traffic)}; {describe_run(result.options)}; weft {__version__}"
    share = np.arange(1, len(latency_us) + 1) / len(result.traffic)
    with titled_chart(path, name_fabric(result.fabric), note) as (axes,):
        axes.step(latency_us, share, where="post", color=COLOURS[0], linewidth=1.8)
        for percentile, colour in ((50, COLOURS[1]), (99, COLOURS[2])):
            us = float(np.percentile(latency_us, percentile))
            axes.axvline(us, color=colour, linestyle=_DASHES, linewidth=1.2, label=f"p{percentile} {us:,.3f} µs")
        axes.set_ylim(0, 1)
        axes.set_xlabel("message latency (µs)")
        axes.set_ylabel("share of messages")
        axes.legend(loc="lower right")


# -- the fabric -------------------------------------------------------------------------------------------------------


def draw_heat(path: Path | str, result: Result) -> None:
    """Draw the fabric with every cable coloured by its utilisation, as PNG, SVG, PDF or HTML."""
    draw(result.fabric, path, **_heat(result))


def show_result(result: Result) -> str:
    """Show the run in a notebook: its figures, and the coloured fabric if it fits a cell."""
    picture = show(lay_out(result.fabric, **_heat(result))) if fits(result.fabric) else ""
    note = f"{describe_run(result.options)}, {result.engine} engine, weft {__version__}"
    heads = (name_fabric(result.fabric), describe_traffic(result.traffic))
    return picture + to_html(heads, headline(result), note)


def _heat(result: Result) -> dict[str, Any]:
    options, description = result.options, result.traffic.description or "traffic"
    seed = "" if "seed" in description else f" (seed {options.seed})"
    return {
        "metric": 100 * result.link_metric(result.utilisation),
        "metric_label": f"utilisation in %, {options.network}, paths {options.paths}",
        "title": f"{name_fabric(result.fabric)}: {description}{seed}",
    }
