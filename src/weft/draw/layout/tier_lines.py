"""Lines between tiers: their ends, and their bundling when there are too many.

Lines leave a box spread over its edge, in the order of their far ends, so that those of one switch do not cross. A
small fabric has one line for each link, a larger one for each two boxes, and a huge one trunks between whole rows; bad
links always have separate lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.draw.layout.painter import Painter, middle_of
from weft.draw.parts import Parts, span
from weft.draw.scene import Canvas, Points, TextStyle
from weft.draw.wires import Bundle, Wires

_SINGLE, _PARALLEL = 600, 4  # up to so many links are drawn one by one, if up to so many run between two switches
_MOST_LINES = 6000  # between two levels; with more, trunks
_TRUNK_NAME = 26.0  # width of a trunk that fits the number of its links
_PORT_HOSTS, _PORT_LINES = 8, 40  # limits for showing port numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The end of lines: a box, the block of a rack, or a row of switches."""

    x: float
    y: float
    width: float
    height: float
    box: int
    name: str


class Anchors:
    """The anchors of each part and of its row."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.every: list[Anchor] = []
        self.of_part = np.full(len(parts), -1)
        self.of_row = np.full(len(parts), -1)

    def put(self, members: Sequence[int], x: float, y: float, width: float, height: float, box: int) -> None:
        """Add an anchor for a switch, a host, or all hosts of a rack."""
        self.of_part[list(members)] = self._add(members, x, y, 0.9 * width, height, box)

    def put_row(self, members: Sequence[int], x: float, y: float, width: float, height: float, box: int) -> None:
        self.of_row[list(members)] = self._add(members, x, y, width, height, box)

    def _add(self, members: Sequence[int], x: float, y: float, width: float, height: float, box: int) -> int:
        name = span([self.parts.names[part] for part in members])
        self.every.append(Anchor(x=x, y=y, width=width, height=height, box=box, name=name))
        return len(self.every) - 1


def draw_lines(painter: Painter, anchors: Anchors, *, single_lines: bool) -> None:
    """Draw all links between parts. `single_lines`: those of a host end at its adapters, not at a block."""
    canvas, parts = painter.canvas, painter.parts
    bundles = _bundles(painter.wires, anchors, single_lines=single_lines)
    low, high = _sides(anchors, bundles)
    starts, ends = _spread(anchors, low, high), _spread(anchors, high, low)
    is_trunk = np.isin(low, anchors.of_row) & np.isin(high, anchors.of_row)
    few = np.count_nonzero(parts.level == 0) <= _PORT_HOSTS and len(bundles) <= _PORT_LINES
    for i, bundle in enumerate(bundles):
        below, above = anchors.every[low[i]], anchors.every[high[i]]
        if abs(below.y - above.y) < 1:
            points = _arc(below, above)
        else:
            start = (float(starts[i]), below.y - below.height / 2)
            foot = painter.feet.get(bundle.links[0]) if single_lines or bundle.bad else None
            points = (foot or start, (float(ends[i]), above.y + above.height / 2))
        boxes = (painter.foot_box.get(bundle.links[0], below.box), above.box)
        line = painter.wires.line(bundle, points, len(bundles), boxes, (below.name, above.name))
        if is_trunk[i]:
            room = max(below.width, above.width) / np.count_nonzero(is_trunk & ((low == low[i]) | (high == high[i])))
            line = replace(line, width=max(0.6 * min(room, below.width, above.width), 1.0), opacity=0.35, band=True)
            if line.width > _TRUNK_NAME:
                canvas.text(*middle_of(points), f"{len(bundle.links):,}", 10)
        canvas.lines.append(line)
        if bundle.bad:
            painter.mark(bundle.links[0], *middle_of(points))
        if few:
            _port_numbers(canvas, parts, bundle.links[0], points, first=int(low[i]) == bundle.a)


def _bundles(wires: Wires, anchors: Anchors, *, single_lines: bool) -> list[Bundle]:
    """Return the bundles, the strong and the bad last, on top."""
    parts, links = wires.parts, wires.parts.between
    a, b = (parts.level[end[links]] for end in parts.ends)
    tier = np.minimum(a, b) * 1000 + np.maximum(a, b)
    bundles: list[Bundle] = []
    for number in np.unique(tier):
        bundles += _tier_bundles(wires, anchors, links[tier == number], single_lines=single_lines)
    return sorted(bundles, key=lambda bundle: (bundle.bad, wires.peak(bundle.links)))


def _tier_bundles(wires: Wires, anchors: Anchors, links: NDArray[np.int64], *, single_lines: bool) -> list[Bundle]:
    """Return the bundles between two levels: one link each if there is space, else joined."""
    a, b = (end[links] for end in wires.parts.ends)
    ends = anchors.of_part[a], anchors.of_part[b]
    sizes = wires.sizes(links, *ends)
    between_switches = wires.parts.is_switch[a].all() and wires.parts.is_switch[b].all()
    few = sizes.max() <= _PARALLEL if between_switches else single_lines
    if len(links) <= _SINGLE and few:
        return wires.bundles(links, *ends, apart=True)
    trunk = (anchors.of_row[a] >= 0) & (anchors.of_row[b] >= 0) & ~wires.parts.bad[links]
    if len(sizes) <= _MOST_LINES or not trunk.any():
        return wires.bundles(links, *ends)
    a, b = (np.where(trunk, anchors.of_row[end], anchors.of_part[end]) for end in (a, b))
    return wires.bundles(links, a, b)


def _sides(anchors: Anchors, bundles: list[Bundle]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the anchor at the lower and at the upper end of each bundle."""
    y = np.array([anchor.y for anchor in anchors.every])
    a = np.array([bundle.a for bundle in bundles], np.int64)
    b = np.array([bundle.b for bundle in bundles], np.int64)
    a_below = y[a] >= y[b]
    return np.where(a_below, a, b), np.where(a_below, b, a)


def _spread(anchors: Anchors, own: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return x of each line at its `own` end: spread evenly over that edge, in the order of x at the other end."""
    x = np.array([anchor.x for anchor in anchors.every])
    width = np.array([anchor.width for anchor in anchors.every])
    order = np.lexsort((np.arange(len(own)), x[other], own))
    sorted_own = own[order]
    first = np.searchsorted(sorted_own, sorted_own, side="left")
    number = np.searchsorted(sorted_own, sorted_own, side="right") - first
    place = (np.arange(len(own)) - first + 0.5) / np.maximum(number, 1) - 0.5
    spread = np.empty(len(own))
    spread[order] = x[sorted_own] + place * width[sorted_own]
    return spread


def _arc(a: Anchor, b: Anchor) -> Points:
    """Return an arc between two boxes of one row, over the boxes between them."""
    top = a.y - a.height / 2
    rise = min(0.35 * abs(b.x - a.x), 90.0) + 10
    return (a.x, top), ((a.x + b.x) / 2, top - rise), (b.x, top)


def _port_numbers(canvas: Canvas, parts: Parts, link: int, points: Points, *, first: bool) -> None:
    """Draw the number of each port on the line, close to its end; `first`: the line begins at the link's first end."""
    fabric = parts.fabric
    slots = [int(fabric.links.a[link]), int(fabric.links.b[link])]
    (x0, y0), (x1, y1) = points[0], points[-1]
    share = min(15 / max(math.dist(points[0], points[-1]), 1.0), 0.4)
    for slot, at in zip(slots, (share, 1 - share) if first else (1 - share, share), strict=True):
        number = str(int(fabric.ports.number[slot]))
        canvas.text(x0 + (x1 - x0) * at, y0 + (y1 - y0) * at, number, 8, style=TextStyle.PORT)
