"""Draw a row of racks from the front, to scale: numbered units, boxes at their positions, power of each rack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.draw import save
from weft.draw.inks import ALWAYS, NEUTRAL
from weft.draw.parts import count, members
from weft.draw.scene import Box, Canvas, Line, Role, Scene, TextStyle, fit, text_width
from weft.draw.sheet import add_title, cut
from weft.errors import ConfigError
from weft.plan.floor.racks import Racks, row_name
from weft.plan.floor.room import UNIT_M
from weft.plan.looks import TIER_INKS, Power, add_over_power, add_tiers, contents, looks_of, power_of, rack_powers

_UNIT = 13.0  # height of a rack unit in the picture
_GAP = 28.0  # between two racks, for the numbers of the units
_PAGE = 1_200.0  # widest picture that a page shows without scrolling
_NUMBERED = 5  # one rack of so many has unit numbers: they would be half of a large plan's texts
_SIZE, _SMALL, _NUMBER = 9.5, 8.5, 7.0  # font sizes
_FIRST = len(ALWAYS)  # ink of the servers


def draw_row(racks: Racks, row: int, path: Path | str) -> None:
    """Write the elevations of all racks of a row, in the format of the file's suffix."""
    save(lay_out_row(racks, row), path)


def row_file(row: int) -> str:
    """Return the path of a row's picture in the folder of a plan."""
    return f"racks/row-{row_name(row)}.svg"


def split_row(racks: Racks, row: int) -> list[Scene]:
    """Return the pictures of a row, each at most as wide as a page."""
    in_row = np.flatnonzero(racks.row == row)
    most = int(_PAGE / (_width(racks) + _GAP)) or 1
    pieces = np.array_split(in_row, -(-len(in_row) // most))
    return [lay_out_row(racks, row, np.isin(np.arange(len(racks.names)), piece)) for piece in pieces]


def lay_out_row(racks: Racks, row: int, among: NDArray[np.bool_] | None = None) -> Scene:
    """Lay out the picture of a row, or of those of its racks that are `among` the given ones."""
    canvas = Canvas()
    selected = (racks.row == row) & (True if among is None else among)
    if not selected.any():
        rows = ", ".join(f"{number} ({row_name(number)})" for number in np.unique(racks.row).tolist())
        raise ConfigError(f"row {row} has no racks; rows are {rows}")
    _draw_racks(canvas, racks, np.flatnonzero(selected).tolist())
    boxes = np.flatnonzero(selected[racks.rack])
    inside = np.flatnonzero((racks.box_of >= 0) & selected[racks.rack][racks.box_of])
    nodes_of = members(np.searchsorted(boxes, racks.box_of[inside]), inside, len(boxes))
    looks = looks_of(racks)
    for box, nodes in zip(boxes.tolist(), nodes_of, strict=True):
        _draw_box(canvas, racks, box, _FIRST + int(looks[box]), nodes)
    title = f"Row {row_name(row)} of {Path(racks.fabric.spec).name}"
    legend = add_title(canvas, title, contents(racks, selected))
    add_tiers(legend, looks[boxes], _FIRST)
    add_over_power(legend, racks, selected)
    return cut(canvas, title, (*ALWAYS, *TIER_INKS))


def _draw_racks(canvas: Canvas, racks: Racks, rack_indices: list[int]) -> None:
    """Draw empty racks: a frame, the name above, power below; unit numbers at the side of every fifth."""
    width, height = _width(racks), racks.room.rack_u * _UNIT
    limit, powers = Power(watts=racks.room.filled_w), rack_powers(racks, rack_indices)
    edges, faint = [_left(racks, rack) for rack in rack_indices], TextStyle.FAINT
    for unit in range(1, racks.room.rack_u):  # lines across all racks, to find the number of a unit
        points = ((min(edges), -_UNIT * unit), (max(edges) + width, -_UNIT * unit))
        canvas.lines.append(Line(points=points, ink=NEUTRAL, width=0.5, opacity=0.4))
    for place, (rack, left, power) in enumerate(zip(rack_indices, edges, powers, strict=True)):
        middle = left + width / 2
        canvas.box(Box(x=middle, y=-height / 2, width=width, height=height, role=Role.FRAME))
        canvas.text(middle, -height - 12, racks.names[rack], 12, style=TextStyle.TITLE)
        over = power.watts > racks.limit_w[rack]
        own = np.isinf(racks.limit_w[rack])
        label = f"{power.figure} kW, its own" if own else f"{power.figure} kW of {limit}"
        canvas.text(middle, 14, label, _SIZE, style=TextStyle.ALARM if over else TextStyle.LABEL)
        if power.unknown:
            canvas.text(middle, 28, f"{count(power.unknown, 'box')} of unknown power", _SIZE, style=TextStyle.FAINT)
        if over:
            canvas.box(Box(x=middle, y=-height / 2, width=width + 6, height=height + 6, role=Role.OUTLINE))
        for unit in range(1, racks.room.rack_u + 1) if place % _NUMBERED == 0 else ():
            canvas.text(left - 4, _UNIT * (0.5 - unit), f"{unit}", _NUMBER, style=faint, anchor="end")


def _draw_box(canvas: Canvas, racks: Racks, box: int, ink: int, nodes: tuple[int, ...]) -> None:
    """Draw a box with its name and, if there is space, its model: beside the name if flat, below it if high."""
    units, width, left = int(racks.height_u[box]), _width(racks), _left(racks, int(racks.rack[box]))
    middle, y = left + width / 2, -_UNIT * (int(racks.u[box]) - 1 + units / 2)
    name, model = racks.boxes[box], racks.models[box]
    power = power_of(racks, slice(box, box + 1))
    tooltip = f"{name}\n{model or 'model unknown'}, {racks.position(box)}, {units} U, {power}"
    area = Box(
        x=middle, y=y, width=width - 8, height=units * _UNIT - 1.2, role=Role.HOST, ink=ink, title=tooltip, nodes=nodes
    )
    canvas.box(area)
    if units > 1:
        canvas.text(middle, y - 7 if model else y, fit(name, 11, width - 14), 11)
        canvas.text(middle, y + 7, fit(model, _SMALL, width - 14), _SMALL)
        return
    canvas.text(left + 8, y, fit(name, _SIZE, width - 16), _SIZE, anchor="start")
    if text_width(name, _SIZE) + text_width(model, _SMALL) <= width - 24:
        canvas.text(left + width - 8, y, model, _SMALL, anchor="end")


def _width(racks: Racks) -> float:
    return racks.room.rack_width_m / UNIT_M * _UNIT


def _left(racks: Racks, rack: int) -> float:
    return int(racks.column[rack]) * (_width(racks) + _GAP)
