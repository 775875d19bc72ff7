"""A scene as PNG or PDF, by matplotlib."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.draw.figure import to_bytes
from weft.draw.inks import BOX_STYLES, PAPER, TEXT_STYLES
from weft.draw.scene import Box, Role, Scene, TextStyle, printable, rotate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

_PIXELS = 4e6  # at most, in all
_UNITS_PER_INCH = 100.0
_POINTS_PER_UNIT = 72.0 / _UNITS_PER_INCH
_BEHIND, _LINES, _FRONT, _MARKS, _TEXTS = range(5)
_LAYERS = {Role.FRAME: _BEHIND, Role.BLOCK: _BEHIND, Role.OUTLINE: _MARKS}


def to_png(scene: Scene) -> bytes:
    """Render two pixels per unit, fewer if the picture is wide."""
    return to_bytes(_figure(scene), ".png")


def to_pdf(scene: Scene) -> bytes:
    return to_bytes(_figure(scene), ".pdf")


def _figure(scene: Scene) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = scene.width / _UNITS_PER_INCH, scene.height / _UNITS_PER_INCH
    pixels_per_unit = min(2.0, math.sqrt(_PIXELS / (scene.width * scene.height)))
    figure = Figure(figsize=size, dpi=_UNITS_PER_INCH * pixels_per_unit, facecolor=PAPER.light)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(scene.left, scene.left + scene.width)
    axes.set_ylim(scene.top + scene.height, scene.top)
    _paint_boxes(axes, scene)
    _paint_lines(axes, scene)
    _paint_texts(axes, scene)
    return figure


def _paint_boxes(axes: Axes, scene: Scene) -> None:
    from matplotlib.collections import EllipseCollection, PathCollection

    by_role = {role: [box for box in scene.boxes if box.role is role] for role in Role}
    marks = by_role.pop(Role.MARK)
    for role, boxes in by_role.items():
        look, layer = BOX_STYLES[role], _LAYERS.get(role, _FRONT)
        thick = 1.6 if role is Role.OUTLINE else 1.0
        fills = [scene.inks[box.ink].light if box.ink >= 0 else look.fill.light for box in boxes]
        paths = [_outline(box, look.corner) for box in boxes]
        stroke = look.stroke.light
        axes.add_collection(
            PathCollection(
                paths, facecolors=fills, edgecolors=stroke, linewidths=thick * _POINTS_PER_UNIT, zorder=layer
            ),
            autolim=False,
        )
    if marks:
        sizes = [box.width for box in marks]
        rings = EllipseCollection(
            sizes,
            sizes,
            [0.0] * len(marks),
            units="xy",
            offsets=[(box.x, box.y) for box in marks],
            offset_transform=axes.transData,
            facecolors="none",
            edgecolors=BOX_STYLES[Role.MARK].stroke.light,
            linewidths=1.6 * _POINTS_PER_UNIT,
            zorder=_MARKS,
        )
        axes.add_collection(rings, autolim=False)


def _paint_lines(axes: Axes, scene: Scene) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    for bad in (False, True):
        lines = [line for line in scene.lines if line.bad is bad]
        if not lines:
            continue
        codes = {2: [Path.MOVETO, Path.LINETO], 3: [Path.MOVETO, Path.CURVE3, Path.CURVE3]}
        axes.add_collection(
            PathCollection(
                [Path(list(line.points), codes[len(line.points)]) for line in lines],
                facecolors="none",
                edgecolors=[(scene.inks[line.ink].light, line.opacity) for line in lines],
                linewidths=[line.width * _POINTS_PER_UNIT for line in lines],
                linestyles=[(0.0, (2.8, 1.8)) if bad else "solid"],
                zorder=_LINES,
            ),
            autolim=False,
        )


def _paint_texts(axes: Axes, scene: Scene) -> None:
    from matplotlib.patheffects import withStroke

    rim = [withStroke(linewidth=3 * _POINTS_PER_UNIT, foreground=PAPER.light)]
    for text in scene.texts:
        axes.text(
            text.x,
            text.y,
            printable(text.text),
            fontsize=text.size * _POINTS_PER_UNIT,
            color=TEXT_STYLES[text.style].light,
            fontweight="bold" if text.style is TextStyle.TITLE else "normal",
            ha={"start": "left", "middle": "center", "end": "right"}[text.anchor],
            va="center_baseline",
            rotation=-text.angle_deg,
            rotation_mode="anchor",
            parse_math=False,
            path_effects=rim if text.style is TextStyle.PORT else None,
            zorder=_TEXTS,
        )


def _outline(box: Box, corner: float) -> Path:
    """Return a rotated rectangle, with round corners if it is large enough."""
    from matplotlib.path import Path

    w, h = box.width / 2, box.height / 2
    r = min(corner, w / 2, h / 2)
    if r < 0.5:
        points = [(-w, -h), (w, -h), (w, h), (-w, h), (-w, -h)]
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    else:
        points = [(-w + r, -h), (w - r, -h), (w, -h), (w, -h + r), (w, h - r), (w, h), (w - r, h), (-w + r, h)]
        points += [(-w, h), (-w, h - r), (-w, -h + r), (-w, -h), (-w + r, -h)]
        codes = [Path.MOVETO, *([Path.LINETO, Path.CURVE3, Path.CURVE3] * 4)]
    turned = [rotate(x, y, box.angle_deg) for x, y in points] if box.angle_deg else points
    return Path([(box.x + x, box.y + y) for x, y in turned], codes)
