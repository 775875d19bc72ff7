"""Charts: the common style, and writing to a file.

    with chart("load.png", width_in=9, height_in=5) as figure:
        axes = figure.subplots()
        ...

The file is written only if the block ends without an exception. Pictures of fabrics are in `draw`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.draw.figure import FONT, to_bytes
from weft.draw.scene import BOLD, fit
from weft.errors import ConfigError
from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.text import suffix_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#0b6fb8", "#d55e00", "#009e73", "#aa4499", "#e69f00", "#3ea2dc", "#6a51a3", "#7b8794")
INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
_STYLE: dict[Any, Any] = {
    "font.family": FONT,
    "svg.hashsalt": "weft",  # otherwise ids differ from run to run
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
    "legend.title_fontsize": 8.5,
    "legend.frameon": False,
}


def check_suffix(path: Path | str, formats: Collection[str] = FORMATS) -> str:
    """Return the suffix if it names one of these formats and the folder exists; a stream gets SVG."""
    suffix = suffix_of(path, ".svg")
    if suffix not in formats:
        raise ConfigError(f"cannot draw {path}: use a suffix of {', '.join(formats)}")
    if not Path(path).parent.is_dir():
        raise ConfigError(f"cannot write {path}: no folder {Path(path).parent}; create it first")
    return suffix


@contextmanager
def chart(path: Path | str, *, width_in: float, height_in: float) -> Iterator[Figure]:
    """Yield an empty figure to draw on, and write it to a file."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    suffix = check_suffix(path)
    with rc_context(_STYLE):
        figure = Figure(figsize=(width_in, height_in), dpi=160, facecolor="white")
        FigureCanvasAgg(figure)
        yield figure
        written = to_bytes(figure, suffix)
    write_atomically(path, written)


@contextmanager
def titled_chart(path: Path | str, title: str, note: str, *, panels: int = 1) -> Iterator[list[Axes]]:
    """Yield a row of diagrams under a title and a note on how to reproduce them."""
    with chart(path, width_in=10, height_in=5) as figure:
        yield list(figure.subplots(1, panels, squeeze=False)[0])
        lines = textwrap.wrap(note, 140, max_lines=3, placeholder=" …")
        figure.set_layout_engine("tight", rect=(0, 0, 1, 0.925 - 0.035 * len(lines)))
        look: dict[str, Any] = {"va": "top", "parse_math": False}  # a dollar sign is plain text
        figure.text(0.02, 0.975, fit(title, 13 * BOLD, 0.96 * 10 * 72), fontsize=13, fontweight="bold", **look)
        figure.text(0.02, 0.92, "\n".join(lines), fontsize=9, color=FAINT, **look)
