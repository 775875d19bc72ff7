"""Charts: the look that all of weft's have in common, and the way into a file.

    with chart("load.png", width_in=9, height_in=5) as figure:
        axes = figure.subplots()
        ...

The file is written when the block ends well, and not at all otherwise. A picture of a fabric is `draw`, not a chart.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import ConfigError
from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.streams import suffix_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
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
}


def check_suffix(path: Path | str) -> str:
    """The suffix, if it names a format that a chart can have."""
    suffix = suffix_of(path, ".svg")
    if suffix not in FORMATS:
        raise ConfigError(f"cannot draw {path}: the suffix says what to write: {' or '.join(FORMATS)}")
    return suffix


@contextmanager
def chart(
    path: Path | str, *, width_in: float, height_in: float, style: dict[Any, Any] | None = None
) -> Iterator[Figure]:
    """An empty figure to draw on; `style` is matplotlib's, on top of the house's."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    suffix, output = check_suffix(path), io.BytesIO()
    with rc_context(_STYLE | (style or {})), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # a name in a script the font lacks
        figure = Figure(figsize=(width_in, height_in), facecolor="white")
        FigureCanvasAgg(figure)
        yield figure
        stamp = {"Date": None} if suffix == ".svg" else {"Software": None}
        figure.savefig(output, format=suffix[1:], dpi=160, metadata=stamp)
    write_atomically(path, output.getvalue())
