"""Pictures of a fabric, as an engineer would draw it: SVG, PNG, PDF, or an interactive HTML page.

    fabric -> parts, inks -> layout -> Scene -> svg, png, pdf or html

Layouts are independent of file formats, and renderers of fabrics.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.draw.chart import check_suffix
from weft.draw.inks import check_metric, ink_by_metric, ink_by_speed
from weft.draw.layout import draw_layout
from weft.draw.page import to_html
from weft.draw.parts import find_parts
from weft.draw.png import to_pdf, to_png
from weft.draw.scene import Canvas, Scene
from weft.draw.sheet import lay_out_sheet
from weft.draw.svg import to_svg
from weft.draw.wires import Wires
from weft.fabric.files.atomic import write_atomically
from weft.fabric.model import Fabric

__all__ = ["RENDERERS", "chart", "draw", "lay_out", "save"]

RENDERERS: dict[str, Callable[[Scene], str | bytes]] = {
    ".svg": to_svg,
    ".png": to_png,
    ".pdf": to_pdf,
    ".html": to_html,
}


def draw(
    fabric: Fabric,
    path: Path | str,
    *,
    metric: NDArray[np.float64] | None = None,
    metric_label: str = "",
    title: str | None = None,
) -> None:
    """Write a picture of the fabric, in the format of the file's suffix; a stream gets SVG.

    Links are coloured by their speed or by a given metric: one number for each link, NaN if unknown.
    """
    check_suffix(path, RENDERERS)
    save(lay_out(fabric, metric=metric, metric_label=metric_label, title=title), path)


def save(scene: Scene, path: Path | str) -> None:
    """Write a scene, in the format of the file's suffix; a stream gets SVG."""
    write_atomically(path, RENDERERS[check_suffix(path, RENDERERS)](scene))


def lay_out(
    fabric: Fabric,
    *,
    metric: NDArray[np.float64] | None = None,
    metric_label: str = "",
    title: str | None = None,
) -> Scene:
    """Return the scene of a fabric, before it is written to a file."""
    parts = find_parts(fabric)
    colors = ink_by_speed(parts) if metric is None else ink_by_metric(check_metric(parts, metric), metric_label)
    wires = Wires(parts=parts, colors=colors)
    canvas = Canvas()
    draw_layout(canvas, wires)
    return lay_out_sheet(canvas, wires, _title(fabric) if title is None else title)


def _title(fabric: Fabric) -> str:
    """Return the name of the fabric, and the number of planes that the picture of one stands for."""
    planes = f", one of {fabric.multiplicity} equal planes" if fabric.multiplicity > 1 else ""
    return f"{Path(fabric.spec).name}{planes}"
