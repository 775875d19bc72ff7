"""A ring of groups: a dragonfly, whose global links cross the middle; or, without groups, a ring of switches.

         group1                 every group is a small picture by tiers, turned about the centre:
      .-'  |   '-.              switches with global links on the inside, hosts on the outside
group4 ----+---- group2         local links between switches of one row bow outwards
      '-.  |   .-'
         group3
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from weft.draw.layout.painter import Painter
from weft.draw.layout.racks import Racks
from weft.draw.parts import Parts, count
from weft.draw.scene import Box, Canvas, Points, Role, TextStyle, text_width
from weft.draw.wires import Bundle, Wires
from weft.fabric.levels import NO_LEVEL

_LEAST_RADIUS = 130.0
_ROOM = 10.0  # between a frame and its contents
_ROW_GAP = 44.0
_BOW_GAP = 26.0
_MOST_LOCAL = 6000  # links inside groups; with more, the frame of a group represents them


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    name: str
    rows: tuple[tuple[int, ...], ...]  # switches, from the centre outwards


class Ring:
    def __init__(self, canvas: Canvas, wires: Wires) -> None:
        self.canvas, self.wires, self.parts = canvas, wires, wires.parts
        self.painter = Painter(canvas=canvas, wires=wires)
        self.groups = _groups(self.parts)
        names = [self.parts.names[switch] for group in self.groups for row in group.rows for switch in row]
        longest = max((text_width(name, 9) for name in names), default=0.0)
        self.pitch = 54.0 if len(names) <= 40 else 26.0 if len(names) <= 120 else 14.0 if len(names) <= 600 else 8.0
        self.height = 20.0 if longest <= self.pitch * 0.84 else longest + 10 if self.pitch >= 26 else 11.0
        self.racks = Racks(self.painter, self.pitch - 2, backwards=True)
        self.links = self.parts.switch_links
        a, b = (end[self.links] for end in self.parts.ends)
        local = (self.parts.group[a] == self.parts.group[b]) & (self.parts.group[a] >= 0)
        self.hide_local = bool(np.count_nonzero(local) > _MOST_LOCAL)
        has_bows = bool((local & (self.parts.level[a] == self.parts.level[b])).any())
        self.bow_gap = _BOW_GAP if has_bows and not self.hide_local else 0.0
        most_rows = max((len(group.rows) for group in self.groups), default=1)
        self.depth = 2 * _ROOM + most_rows * self.height + (most_rows - 1) * _ROW_GAP + self.bow_gap + self.racks.height
        widest = max((len(row) for group in self.groups for row in group.rows), default=1)
        self.width = widest * self.pitch + 2 * _ROOM
        n = len(self.groups)
        needed = (self.width + 6) / (2 * math.tan(math.pi / n)) if n > 2 else 0.0
        self.radius = max(needed, _LEAST_RADIUS)  # inner edge of the frames, which must not overlap

    # -- groups ----------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        for i, group in enumerate(self.groups):
            with self.canvas.turned(180 + 360 * i / len(self.groups)):
                self._draw_group(group)
        edge = self.radius + self.depth + 30
        alone = np.flatnonzero(self.parts.is_switch & (self.parts.level == NO_LEVEL)).tolist()
        self.painter.cut_off((*alone, *self.racks.unattached), -edge, edge + 40, 2 * edge)
        self._draw_lines()

    def _draw_group(self, group: _Group) -> None:
        middle = self.radius + self.depth / 2
        if len(group.rows[0]) > 1 or len(group.rows) > 1:
            links = self._local_links(group) if self.hide_local else ()
            title = f"{group.name}\n{count(len(links), 'link')} inside" if links else group.name
            self.canvas.box(
                Box(x=0, y=middle, width=self.width, height=self.depth, role=Role.FRAME, title=title, links=links)
            )
        if group.name:
            self.canvas.text(0, self.radius + self.depth + 12, group.name, 10, style=TextStyle.FAINT)
        y = self.radius + _ROOM + self.height / 2
        for row in group.rows:
            for i, switch in enumerate(row):
                x = ((len(row) - 1) / 2 - i) * self.pitch  # clockwise, as the groups
                self.painter.switch(switch, x, y, self.pitch * 0.84, self.height)
                edge = y + self.height / 2
                self.racks.draw(switch, x, edge + self.bow_gap, (x, edge))
            y += self.height + _ROW_GAP

    def _local_links(self, group: _Group) -> tuple[int, ...]:
        members = [switch for row in group.rows for switch in row]
        a, b = (end[self.links] for end in self.parts.ends)
        return tuple(self.links[np.isin(a, members) & np.isin(b, members)].tolist())

    # -- lines -----------------------------------------------------------------------------------------------------

    def _draw_lines(self) -> None:
        links = self.links
        if self.hide_local:
            a, b = (self.parts.group[end[links]] for end in self.parts.ends)
            links = links[(a != b) | (a < 0) | self.parts.bad[links]]
        bundles = self.wires.bundles(links, *(end[links] for end in self.parts.ends))
        crowd = len(bundles) // 3  # a ring has more space than tiers
        self.painter.lines(bundles, self._points, crowd)
        self.racks.draw_lines(crowd)
        self.painter.remaining_lines()

    def _points(self, bundle: Bundle) -> Points:
        a, b, painter, group, level = bundle.a, bundle.b, self.painter, self.parts.group, self.parts.level
        if group[a] != group[b]:
            return _chord(painter.top[a], painter.top[b])
        if group[a] < 0:
            return painter.top[a], painter.top[b]
        if level[a] != level[b]:
            inner, outer = sorted((a, b), key=lambda switch: math.hypot(*painter.top[switch]))
            return painter.bottom[inner], painter.top[outer]
        (x0, y0), (x1, y1) = painter.bottom[a], painter.bottom[b]
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        out = min(0.5 * math.dist((x0, y0), (x1, y1)), 2 * self.bow_gap) / max(math.hypot(x, y), 1.0)
        return (x0, y0), (x * (1 + out), y * (1 + out)), (x1, y1)


def _groups(parts: Parts) -> list[_Group]:
    """Return the groups of the fabric; a switch in none is a separate group."""
    switches = np.flatnonzero(parts.is_switch & (parts.level >= 0))
    key = np.where(parts.group[switches] >= 0, parts.group[switches], len(parts.fabric.groups) + switches)
    groups = []
    for group in np.unique(key).tolist():
        members = switches[key == group]
        levels = np.unique(parts.level[members])[::-1]
        rows = tuple(tuple(members[parts.level[members] == level].tolist()) for level in levels)
        name = parts.fabric.groups[group] if group < len(parts.fabric.groups) else ""
        groups.append(_Group(name=name, rows=rows))
    return groups


def _chord(a: tuple[float, float], b: tuple[float, float]) -> Points:
    """Return a curve through the inside of the ring: the closer its ends, the flatter."""
    x, y = (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
    pull = 0.8 - 0.5 * math.dist(a, b) / max(math.hypot(*a) + math.hypot(*b), 1.0)
    return a, (pull * x, pull * y), b
