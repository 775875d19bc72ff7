"""How the pictures of scenarios look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weft.draw.chart import FAINT, GRID, chart
from weft.scenarios.finding import Finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#7b8794", "#d55e00", "#0b6fb8", "#009e73", "#8e44ad")  # the first is for what others are compared with
_STYLE = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
}


def save(path: Path | str, title: str, finding: Finding, panels: int, fill: Callable[[list[Axes]], None]) -> None:
    """A row of panels under a title; `fill` draws into them."""
    with chart(path, width_in=10, height_in=4.6, style=_STYLE) as figure:
        axes = list(figure.subplots(1, panels, squeeze=False)[0])
        figure.subplots_adjust(left=0.075, right=0.975, top=0.8, bottom=0.13, wspace=0.24)
        _head(figure, title, finding)
        fill(axes)


def _head(figure: Figure, title: str, finding: Finding) -> None:
    figure.text(0.02, 0.945, title, fontsize=13, fontweight="bold", va="center")
    figure.text(0.02, 0.885, finding.ran, fontsize=9, color=FAINT, va="center")
