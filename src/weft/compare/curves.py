"""Draw curves as SVG: both axes logarithmic, so that equal ratios are equal distances; labels at the ends.

Colours and fonts are those of the surrounding page (`report.css`, `draw/page.css`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from weft.draw.svg import clean

# The colours of the catalog's fabrics, in its order: those of their speeds in pictures (`weft.draw.inks`) if distinct
# enough. Nothing else in the report uses them.
COLOURS = (
    *("#0b6fb8", "#aa4499", "#3ea2dc", "#e69f00", "#009e73", "#74b566"),
    *("#999933", "#cc6677", "#d55e00", "#8c6bb1", "#8c5a2b"),
    *("#3b5b92", "#7f8c1f", "#b03a2e", "#117864", "#5d4e8c"),
    *("#e377c2", "#6b8e23", "#4682b4", "#c0a000"),
)
_WIDTH, _HEIGHT = 620.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 172.0, 16.0, 46.0
_LABEL_ROOM = 15.0  # vertical distance between two labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    name: str
    colour: str
    points: tuple[tuple[float, float], ...]
    band: tuple[tuple[float, float], ...]  # lower and upper limit of each point
    tips: tuple[str, ...]  # tooltip of each point


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    label: str
    ticks: tuple[float, ...]
    show: Callable[[float], str]


def powers(low: float, high: float, base: int) -> tuple[float, ...]:
    """Return the powers of the base from one at or below `low` to one at or above `high`."""
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    return tuple(float(base) ** power for power in range(first, max(last, first + 1) + 1))


def draw_curves(curves: Sequence[Curve], x: Axis, y: Axis, *, mark: float) -> str:
    """Return an SVG element; a dashed line marks x = mark, the values of the table."""
    plot = _Plot(x, y)
    parts = [plot.grid(), plot.rule(mark)]
    for curve, label_y in zip(curves, _spread([plot.y(curve.points[-1][1]) for curve in curves]), strict=True):
        path = "L".join(f"{plot.x(px):.1f} {plot.y(py):.1f}" for px, py in curve.points)
        edges = [[(px, pair[end]) for (px, _), pair in zip(curve.points, curve.band, strict=True)] for end in (0, 1)]
        area = "L".join(f"{plot.x(px):.1f} {plot.y(py):.1f}" for px, py in (*edges[0], *reversed(edges[1])))
        dots = "".join(
            f'<circle cx="{plot.x(px):.1f}" cy="{plot.y(py):.1f}" r="2.6"><title>{clean(tip)}</title></circle>'
            for (px, py), tip in zip(curve.points, curve.tips, strict=True)
        )
        end = f'x="{_WIDTH - _RIGHT + 10:.1f}" y="{label_y + 4:.1f}"'
        parts.append(
            f'<g style="color:{curve.colour}"><path class="band" d="M{area}Z"/><path class="curve" d="M{path}"/>{dots}'
            f'<text class="end" {end}>{clean(curve.name)}</text></g>'
        )
    return f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img">{"".join(parts)}</svg>'


class _Plot:
    """The two scales of a plot, each from its first tick to its last."""

    def __init__(self, x: Axis, y: Axis) -> None:
        self._x, self._y = x, y

    def x(self, value: float) -> float:
        return _LEFT + _place(value, self._x.ticks) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - _place(value, self._y.ticks) * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self) -> str:
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        lines = [f'<path class="grid" d="M{self.x(at):.1f} {_TOP}V{bottom}"/>' for at in self._x.ticks]
        lines += [f'<path class="grid" d="M{_LEFT} {self.y(at):.1f}H{right}"/>' for at in self._y.ticks]
        lines += [
            f'<text class="tick" text-anchor="middle" x="{self.x(at):.1f}" y="{bottom + 17}">{self._x.show(at)}</text>'
            for at in self._x.ticks
            if self._x.show(at)
        ]
        lines += [
            f'<text class="tick" text-anchor="end" x="{_LEFT - 7}" y="{self.y(at) + 4:.1f}">{self._y.show(at)}</text>'
            for at in self._y.ticks
            if self._y.show(at)
        ]
        centre, middle = (_LEFT + right) / 2, (_TOP + bottom) / 2
        turned = f'transform="rotate(-90 14 {middle})" x="14" y="{middle}"'
        lines.append(f'<text class="axis" text-anchor="middle" x="{centre}" y="{_HEIGHT - 8}">{self._x.label}</text>')
        lines.append(f'<text class="axis" text-anchor="middle" {turned}>{self._y.label}</text>')
        return "".join(lines)

    def rule(self, at: float) -> str:
        return f'<path class="mark" d="M{self.x(at):.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>'


def _place(value: float, ticks: Sequence[float]) -> float:
    """Return the position on the axis: 0 at the first tick, 1 at the last."""
    low, high = math.log(ticks[0]), math.log(ticks[-1])
    return (math.log(value) - low) / (high - low)


def _spread(heights: Sequence[float]) -> list[float]:
    """Return heights moved apart so that labels do not overlap: first down, then back up from the bottom."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = list(heights)
    for before, after in pairwise(order):
        placed[after] = max(placed[after], placed[before] + _LABEL_ROOM)
    limit = _HEIGHT - _BOTTOM
    for index in reversed(order):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - _LABEL_ROOM
    return placed
