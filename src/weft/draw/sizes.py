"""A chart of a benchmark: a figure over sizes with its band, each point in the colour of its choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from weft.draw.chart import COLOURS, FAINT, titled_chart
from weft.units import format_size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    size_bytes: int
    value: float
    low: float
    high: float
    choice: str


def draw_sizes(
    path: Path | str,
    points: Sequence[Point],
    *,
    title: str,
    note: str,
    y_label: str,
    choices: str,
    logarithmic: bool = False,
) -> None:
    """Write the chart as PNG, SVG or PDF by the suffix."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, StrMethodFormatter

    with titled_chart(path, title, note) as (axes,):
        sizes = [point.size_bytes for point in points]
        axes.plot(sizes, [point.value for point in points], color=FAINT, linewidth=1.2, zorder=1)
        low, high = [point.low for point in points], [point.high for point in points]
        pale: dict[str, Any] = {"color": FAINT, "alpha": 0.25, "zorder": 0, "label": "band"}
        if len(points) > 1:
            axes.fill_between(sizes, low, high, linewidth=0, **pale)
        else:  # a single point has no area
            axes.vlines(sizes, low, high, linewidth=12, **pale)
        for choice, colour in zip(dict.fromkeys(point.choice for point in points), cycle(COLOURS), strict=False):
            chosen = [point for point in points if point.choice == choice]
            x, y = [point.size_bytes for point in chosen], [point.value for point in chosen]
            axes.scatter(x, y, s=26, color=colour, label=choice, zorder=2)
        axes.set_xscale("log", base=2)
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(LogLocator(base=4, numticks=20))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size_bytes(round(size))))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.set_xlabel("size (bytes, logarithmic)")
        axes.set_ylabel(y_label)
        axes.legend(title=choices, loc="upper left")
