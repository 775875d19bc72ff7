"""Draw the floor from above, to scale: racks and their contents, aisles, power of each rack, load of the trays.

      hot aisle
    +----+----+----+
    |40.8|40.8|13.8|      power in kW, the tray above the racks, names at their fronts
    |====|====|====|
    |A01 |A02 |A03 |
    +----+----+----+
      cold aisle

A rack shows the colours of its boxes in proportion to their units. Rows face each other across cold aisles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from weft.draw import save
from weft.draw.inks import NEUTRAL, ColorScheme, ink_by_metric
from weft.draw.parts import count, members
from weft.draw.scene import Box, Canvas, Ink, Line, Points, Role, Scene, TextStyle, fit
from weft.draw.sheet import Legend, add_colour_bar, add_title, cut
from weft.plan.floor.cables import Cabling
from weft.plan.floor.racks import Racks, row_name
from weft.plan.floor.trays import Trays
from weft.plan.looks import TIER_INKS, Power, add_over_power, add_tiers, contents, looks_of, rack_powers

_AISLES = {
    "cold aisle": Ink(light="#eaf3fb", dark="#182430"),
    "hot aisle": Ink(light="#fdf0e6", dark="#2c211a"),
}
_FINE, _COARSE = 100.0, 50.0  # picture units per metre: for few racks, for hundreds
_LARGE = 1000.0  # picture units of a floor with few racks
_THIN, _THICK = 1.5, 9.0  # line widths of trays
_Stack = tuple[int, tuple[int, ...], tuple[int, ...]]  # boxes of a tier in a rack: ink, boxes, nodes
_RING_M = 0.4  # diameter: the space between a rack's name and its power


def draw_floor(cabling: Cabling, path: Path | str) -> None:
    """Write the floor plan, in the format of the file's suffix."""
    save(lay_out_floor(cabling), path)


def lay_out_floor(cabling: Cabling) -> Scene:
    """Lay out the picture of the floor."""
    racks, trays = cabling.racks, cabling.trays
    cables = np.concatenate((trays.row_cables.ravel(), trays.cross_cables.ravel())).astype(np.float64)
    colors = ink_by_metric(cables, "cables in a tray")
    floor = _Floor(canvas=Canvas(), racks=racks, first=len(colors.inks))
    floor.draw_aisles()
    floor.draw_racks()
    floor.draw_trays(trays, colors)
    title = f"Floor of {Path(racks.fabric.spec).name}"
    everywhere = np.ones(len(racks.names), bool)
    legend = add_title(floor.canvas, title, f"{contents(racks, everywhere)}, {count(len(cabling), 'cable')}")
    floor.add_scale(legend)
    add_tiers(legend, looks_of(racks), floor.first)
    legend.note(f"in each rack: its maximum power, of {Power(watts=racks.room.filled_w)}")
    add_over_power(legend, racks, everywhere)
    if colors.high:
        legend.new_row()
        add_colour_bar(legend, colors, cables)
        legend.swatch(f"the fullest: {trays.fullest[0]}", Role.MARK)
    return cut(floor.canvas, title, (*colors.inks, *TIER_INKS, *_AISLES.values()))


@dataclass(slots=True, kw_only=True)
class _Floor:
    """The canvas and its coordinates: the left of the first column and the back of row A are at 0."""

    canvas: Canvas
    racks: Racks
    first: int  # ink of the servers; those of the other tiers and of the aisles follow

    @property
    def rows(self) -> int:
        return int(self.racks.row.max()) + 1

    @property
    def width_m(self) -> float:
        return (int(self.racks.column.max()) + 1) * self.racks.room.rack_width_m

    @property
    def scale(self) -> float:
        """The picture units per metre."""
        deep_m = self.rows * self.racks.room.row_pitch_m
        return min(_FINE, max(_COARSE, _LARGE / max(self.width_m, deep_m)))

    def middle(self, row: int) -> float:
        """Return the middle of a row of racks, where its tray runs."""
        room = self.racks.room
        return (row * room.row_pitch_m + room.rack_depth_m / 2) * self.scale

    def draw_aisles(self) -> None:
        """Draw the aisles on both sides of every row; the back of row A is at the top."""
        room, scale = self.racks.room, self.scale
        width, height = self.width_m * scale, room.aisle_m * scale
        for aisle in range(self.rows + 1):
            hot = aisle % 2 == 0
            y = (aisle * room.row_pitch_m - room.aisle_m / 2) * scale
            ink = self.first + len(TIER_INKS) + hot
            self.canvas.box(Box(x=width / 2, y=y, width=width, height=height, role=Role.FRAME, ink=ink))
            self.canvas.text(-8, y, list(_AISLES)[hot], 10, style=TextStyle.FAINT, anchor="end")

    def draw_racks(self) -> None:
        racks, looks = self.racks, looks_of(self.racks)
        place = racks.rack * len(TIER_INKS) + looks  # [box] -> rack and tier in one
        nodes = np.flatnonzero(racks.box_of >= 0)
        boxes_of = members(place, np.arange(len(place)), len(racks.names) * len(TIER_INKS))
        nodes_here = members(place[racks.box_of[nodes]], nodes, len(boxes_of))
        for rack, power in enumerate(rack_powers(racks, list(range(len(racks.names))))):
            mine = range(rack * len(TIER_INKS), (rack + 1) * len(TIER_INKS))
            stacks = [(ink, boxes_of[i], nodes_here[i]) for ink, i in enumerate(mine, self.first) if boxes_of[i]]
            self._draw_rack(rack, stacks, power)

    def _draw_rack(self, rack: int, stacks: list[_Stack], power: Power) -> None:
        """Draw a rack with its name at the front and its power at the back; the tray is in between."""
        racks, room, name = self.racks, self.racks.room, self.racks.names[rack]
        width, depth = room.rack_width_m * self.scale, room.rack_depth_m * self.scale
        x, middle = (int(racks.column[rack]) + 0.5) * width, self.middle(int(racks.row[rack]))
        facing = -1 if racks.row[rack] % 2 else 1  # down
        units = [int(racks.height_u[list(boxes)].sum()) for _, boxes, _ in stacks]
        tooltip = f"{name}\n{power}, {sum(units)} of {room.rack_u} U"
        whole = Box(x=x, y=middle, width=width, height=depth, role=Role.BLOCK, title=tooltip)
        front = middle + facing * depth / 2
        for (ink, boxes, nodes), filled in zip(stacks, units, strict=True):
            part = filled / sum(units) * depth
            names = tuple(racks.boxes[box] for box in boxes)
            y = front - facing * part / 2
            self.canvas.box(replace(whole, y=y, height=part, ink=ink, names=names, nodes=nodes))
            front -= facing * part
        if not stacks:
            self.canvas.box(whole)
        size, over = 0.28 * width, power.watts > racks.limit_w[rack]
        style = TextStyle.ALARM if over else TextStyle.LABEL
        self.canvas.text(x, middle + facing * depth * 0.25, fit(name, size, width), size)
        self.canvas.text(x, middle - facing * depth * 0.25, power.figure, size, style=style)
        if over:
            self.canvas.box(replace(whole, width=width - 3, height=depth - 3, role=Role.OUTLINE))

    def draw_trays(self, trays: Trays, colors: ColorScheme) -> None:
        """Draw the trays, darker and thicker with more cables; mark the fullest with a ring."""
        ring = _RING_M * self.scale
        full = [segment for segment in self._segments(trays) if segment[0]]
        for cables, name, ends in full:
            (x, y), (_, end) = ends
            width = _THIN + (_THICK - _THIN) * colors.strength(cables)
            tooltip = f"{name}\n{count(cables, 'cable')}"
            self.canvas.lines.append(Line(points=ends, ink=colors.ramp_ink(cables), width=width, title=tooltip))
            if end > y:
                self.canvas.text(x + ring / 2 + 4, (y + end) / 2, f"{cables:,}", 10, anchor="start")
        if full:
            (x, y), (right, bottom) = max(full, key=lambda segment: segment[0])[2]
            self.canvas.box(Box(x=(x + right) / 2, y=(y + bottom) / 2, width=ring, height=ring, role=Role.MARK))

    def _segments(self, trays: Trays) -> Iterator[tuple[int, str, Points]]:
        """Yield the cables, name and ends of each tray segment: above every rack, and between rows."""
        across = self.racks.room.rack_width_m * self.scale
        for (row, column), cables in np.ndenumerate(trays.row_cables):
            y = self.middle(row)
            name = f"tray above {row_name(row)}{column + 1:02d}"
            yield int(cables), name, ((column * across, y), ((column + 1) * across, y))
        for (cross, row), cables in np.ndenumerate(trays.cross_cables):
            x = int(trays.cross_column[cross]) * across
            name = f"cross tray {cross + 1} between rows {row_name(row)} and {row_name(row + 1)}"
            yield int(cables), name, ((x, self.middle(row)), (x, self.middle(row + 1)))

    def add_scale(self, legend: Legend) -> None:
        """Add a scale bar of 1, 2 or 5 metres to the legend."""
        metres = max(m for m in (1, 2, 5) if m == 1 or m * self.scale <= 260)
        length, y = metres * self.scale, legend.y
        strokes = [((legend.x, y), (legend.x + length, y))]
        strokes += [((legend.x + m * self.scale, y - 4), (legend.x + m * self.scale, y + 4)) for m in range(metres + 1)]
        self.canvas.lines += [Line(points=points, ink=NEUTRAL, width=1.5) for points in strokes]
        legend.text(f"{metres} m", legend.x + length + 8)
        legend.x += length + 60
