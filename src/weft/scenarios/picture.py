"""How the pictures of scenarios look, and how they get into a file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import ConfigError
from weft.fabric.files.atomic import write_atomically
from weft.scenarios.finding import Finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLOURS = ("#7b8794", "#d55e00", "#0b6fb8", "#009e73", "#8e44ad")  # the first is for what others are compared with
_FORMATS = (".png", ".svg")
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "svg.hashsalt": "weft",  # else the ids in the file change from run to run
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
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


def check_suffix(path: Path | str) -> str:
    """The suffix, if it names a format that can be drawn."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ConfigError(f"cannot draw {path}: the suffix says what to write: {' or '.join(_FORMATS)}")
    return suffix


def save(path: Path | str, title: str, finding: Finding, panels: int, fill: Callable[[list[Axes]], None]) -> None:
    """A row of panels under a title; `fill` draws into them."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    suffix = check_suffix(path)
    output = io.BytesIO()
    with rc_context(_STYLE):
        figure = Figure(figsize=(10, 4.6), facecolor="white")
        FigureCanvasAgg(figure)
        axes = list(figure.subplots(1, panels, squeeze=False)[0])
        figure.subplots_adjust(left=0.075, right=0.975, top=0.8, bottom=0.13, wspace=0.24)
        _head(figure, title, finding)
        fill(axes)
        stamp = {"Date": None} if suffix == ".svg" else {"Software": None}
        figure.savefig(output, format=suffix[1:], dpi=160, metadata=stamp)
    write_atomically(path, output.getvalue())


def _head(figure: Figure, title: str, finding: Finding) -> None:
    figure.text(0.02, 0.945, title, fontsize=13, fontweight="bold", va="center")
    figure.text(0.02, 0.885, finding.ran, fontsize=9, color=FAINT, va="center")
