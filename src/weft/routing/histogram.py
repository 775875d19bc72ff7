"""Draw a histogram of link loads: the number of links by load under all-to-all, one row for each engine.

    fat-tree                  max 630 on leaf1/19 · mean 630 · effective bisection bandwidth 0.660 ± 0.001
    links |           █                  ¦  <- the busiest host port: links right of it slow down all-to-all
          |     ▁▂▅███████▂▁        ▁    ¦ ▁
          +-----------------------------------  pairs of hosts that communicate over the link

Counts are on a logarithmic scale: one busy link in 17,000 determines the time of an all-to-all, and must be visible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.draw.chart import FAINT, chart
from weft.draw.scene import fit, text_width
from weft.routing.quality import Quality

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS = 80
_IDLE, _WITHIN, _BEYOND = "#b8c0c8", "#0b6fb8", "#d55e00"
_DASHES = (0, (4, 3))
_ROW_WIDTH = 0.9 * 10 * 72  # points
_NAME_SIZE, _FIGURES_SIZE = 10.5, 9.0
_BOLD = 1.15  # relative width of bold letters


def draw_loads(path: Path | str, title: str, qualities: Mapping[str, Quality]) -> None:
    """Write the histograms of these engines, on common axes, as PNG, SVG or PDF by the suffix."""
    with chart(path, width_in=10, height_in=1.75 + 1.3 * len(qualities)) as figure:
        _draw(figure, title, qualities)


def _draw(figure: Figure, title: str, qualities: Mapping[str, Quality]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    height_in = figure.get_figheight()
    rows = figure.subplots(len(qualities), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    figure.subplots_adjust(left=0.075, right=0.975, top=1 - 1.2 / height_in, bottom=0.58 / height_in, hspace=0.5)
    own_port = next(iter(qualities.values())).host_load  # routes do not change it
    edges = bar_edges([quality.load for quality in qualities.values()], own_port)
    for axes, (engine, quality) in zip(rows, qualities.items(), strict=True):
        _draw_row(axes, engine, quality, edges)
    last = rows[-1]
    last.set_yscale("log")
    last.set_ylim(bottom=0.7)
    last.set_xlim(edges[-1] * -2.5 / _BARS, edges[-1] * (1 + 2.5 / _BARS))
    last.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    last.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    last.yaxis.set_major_locator(LogLocator(numticks=9))
    last.yaxis.set_minor_locator(NullLocator())
    last.set_xlabel("load of a link, one direction (pairs of hosts that talk over it)")
    _draw_head(figure, title, next(iter(qualities.values())), own_port)


def _draw_head(figure: Figure, title: str, quality: Quality, own_port: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    inch = 1 / figure.get_figheight()
    subtitle = f"Link load under all-to-all: {quality.hosts:,} host ports, {len(quality.load):,} directed links"
    figure.text(0.02, 1 - 0.26 * inch, title, fontsize=13, fontweight="bold", va="center", parse_math=False)
    figure.text(0.02, 1 - 0.52 * inch, subtitle, fontsize=9, color=FAINT, va="center")
    figure.legend(
        handles=[
            Patch(color=_IDLE, label="idle"),
            Patch(color=_WITHIN, label="keeps up with the hosts"),
            Patch(color=_BEYOND, label="slows all-to-all down"),
            Line2D(
                [], [], color=FAINT, linewidth=0.9, linestyle=_DASHES, label=f"busiest host port: {_number(own_port)}"
            ),
        ],
        ncols=4,
        loc="center left",
        bbox_to_anchor=(0.01, 1 - 0.77 * inch),
        handlelength=1.4,
        columnspacing=1.6,
    )


def bar_edges(loads: Sequence[NDArray[np.float64]], own_port: float) -> NDArray[np.float64]:
    """Return edges of bars for all rows, from 0 to the largest load, with one at the load of the busiest host port."""
    top = max(own_port, *(float(load.max()) for load in loads))
    within = np.linspace(0, own_port, math.ceil(own_port / top * _BARS) + 1)
    beyond = np.linspace(own_port, top, math.ceil((top - own_port) / top * _BARS) + 1)
    return np.concatenate((within, beyond[1:]))


def count_bars(load: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of links in each bar: above its left edge, up to its right one; idle links excluded."""
    return np.bincount(np.searchsorted(edges, load[load > 0], side="left") - 1, minlength=len(edges) - 1)


def _draw_row(axes: Axes, engine: str, quality: Quality, edges: NDArray[np.float64]) -> None:
    step = edges[-1] / _BARS
    idle = int((quality.load == 0).sum())
    colours = np.where(edges[1:] > quality.host_load, _BEYOND, _WITHIN)
    axes.bar(
        edges[:-1],
        count_bars(quality.load, edges),
        width=np.diff(edges),
        align="edge",
        color=colours,
        edgecolor="white",
        linewidth=0.3,
    )
    if idle:
        axes.bar(-step, idle, width=step, color=_IDLE, linewidth=0)
    axes.axvline(quality.host_load, color=FAINT, linewidth=0.9, linestyle=_DASHES, zorder=0)
    axes.set_ylabel("links")
    axes.grid(axis="x", visible=False)
    axes.set_title(engine, loc="left", fontsize=_NAME_SIZE, fontweight="bold")
    room = _ROW_WIDTH - text_width(engine, _NAME_SIZE * _BOLD)
    # a $ in a name is no formula
    axes.set_title(_figures(quality, room), loc="right", fontsize=_FIGURES_SIZE, parse_math=False)


def _figures(quality: Quality, room: float) -> str:
    """Return the figures of a row; the link's name is left out if it does not fit."""
    pattern, bisection = quality.all_to_all, quality.bisection
    rest = (
        f" · mean {_number(pattern.mean_load)} · "
        f"effective bisection bandwidth {bisection.mean:.4f} ± {bisection.standard_error:.4f}"
    )
    most = f"max {_number(pattern.max_load)}"
    link = fit(pattern.worst_link, _FIGURES_SIZE, room - text_width(f"{most} on {rest}  ", _FIGURES_SIZE))
    return f"{most} on {link}{rest}" if link else f"{most}{rest}"


def _number(load: float) -> str:
    return f"{load:,.0f}" if load >= 1000 else f"{load:.4g}"
