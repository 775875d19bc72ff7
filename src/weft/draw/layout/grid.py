"""A grid: torus, mesh and HyperX, by the sizes in their spec.

    one or two dimensions          three: layers            more: a grid of grids
    o-o-o                            o---o
    | | |                           /|  /|                  o-o  o-o
    o-o-o                          o---o |                  o-o  o-o
    | | |                          | o-|-o
    o-o-o                          |/  |/                   o-o  o-o
                                   o---o                    o-o  o-o

Neighbours are joined by straight lines; longer links (the wrap-around of a torus, the long links of a HyperX) by arcs.
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from weft.draw.layout.painter import Painter
from weft.draw.layout.racks import Racks
from weft.draw.parts import Parts
from weft.draw.scene import Canvas, Points, Role, text_width
from weft.draw.wires import Bundle, Wires

_SPEC = re.compile(r"(?:torus|mesh|hyperx):(\d+(?:x\d+)*)(?:,|$)")
_WIDEST, _LEAST_PITCH, _MOST_PITCH = 1500.0, 22.0, 118.0


def shape_of(parts: Parts) -> tuple[int, ...] | None:
    """Return the sizes in the fabric's spec, if they number its switches and each link runs along one dimension."""
    match = _SPEC.match(parts.fabric.spec)
    if match is None:
        return None
    shape = tuple(map(int, match[1].split("x")))
    switches = np.flatnonzero(parts.is_switch)
    numbers = [re.fullmatch(r"sw(\d+)", parts.names[switch]) for switch in switches]
    if not all(number and 1 <= int(number[1]) <= math.prod(shape) for number in numbers):
        return None
    where = coordinates(parts, shape)
    a, b = (end[parts.switch_links] for end in parts.ends)
    steps = np.count_nonzero(where[a] != where[b], axis=1)
    return shape if (steps == 1).all() else None


def coordinates(parts: Parts, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the coordinates of each switch, [part, dimension]; the last dimension counts fastest."""
    result = np.zeros((len(parts), len(shape)), np.int64)
    switches = np.flatnonzero(parts.is_switch)
    numbers = np.array([int(parts.names[switch].removeprefix("sw")) - 1 for switch in switches], np.int64)
    result[switches] = np.stack(np.unravel_index(numbers, shape), axis=1)
    return result


class Grid:
    def __init__(self, canvas: Canvas, wires: Wires, shape: tuple[int, ...]) -> None:
        self.canvas, self.wires, self.parts, self.shape = canvas, wires, wires.parts, shape
        self.painter = Painter(canvas=canvas, wires=wires)
        self.where = coordinates(self.parts, shape)
        self.layers = shape[0] if len(shape) == 3 else 1
        widest = max(math.prod(shape[-1::-2]), math.prod(shape[-2::-2])) if self.layers == 1 else max(shape[1:])
        least = _LEAST_PITCH if self.layers == 1 else 0.4 * _LEAST_PITCH * self.layers
        self.pitch = min(max(_WIDEST / widest, least), _MOST_PITCH * min(self.layers, 3))
        self.cell_size = self.pitch / self.layers * (1.0 if self.layers == 1 else 1.4)  # for a switch and its hosts
        self.racks = Racks(self.painter, 0.42 * self.cell_size)
        longest = max((text_width(self.parts.names[s], 9) for s in np.flatnonzero(self.parts.is_switch)), default=0.0)
        self.switch_width = max(0.42 * self.cell_size, longest + 4 if longest + 4 <= 0.78 * self.cell_size else 0.0)
        self.x, self.y = (self.where @ self._steps()).T

    def _steps(self) -> NDArray[np.float64]:
        """Return the offset of a step along each dimension, in x and y."""
        pitch, shape = self.pitch, self.shape
        if self.layers > 1:  # each layer behind the previous one, to the upper right
            return np.array([[0.9 * pitch / self.layers, -0.8 * pitch / self.layers], [0.0, pitch], [pitch, 0.0]])
        steps = np.zeros((len(shape), 2))
        for first, axis in ((len(shape) - 1, 0), (len(shape) - 2, 1)):
            step = pitch
            for dimension in range(first, -1, -2):
                steps[dimension, axis] = step
                step = step * shape[dimension] + 0.5 * pitch
        return steps

    def draw(self) -> None:
        for switch in np.flatnonzero(self.parts.is_switch).tolist():
            self._draw_switch(switch, float(self.x[switch]), float(self.y[switch]))
        left, _, right, bottom = self.canvas.extent()
        self.painter.cut_off(self.racks.unattached, left, bottom + 50, right - left)
        self._draw_lines()

    def _draw_switch(self, switch: int, x: float, y: float) -> None:
        """Draw a switch at a grid point, with its hosts to the lower right, between the lines."""
        width, height = self.switch_width, min(max(0.24 * self.cell_size, 12.0), 22.0, 0.5 * self.cell_size)
        self.painter.switch(switch, x, y, width, height, role=Role.LEAF)
        beside = self.racks.used_width / 2 + 0.05 * self.cell_size
        self.racks.draw(switch, x + beside, y + height / 2, (x + min(beside, width / 2 - 3), y + height / 2))

    def _draw_lines(self) -> None:
        links = self.parts.switch_links
        bundles = self.wires.bundles(links, *(end[links] for end in self.parts.ends))
        crowd = len(bundles) // 8  # lines of a grid hardly cross
        self.painter.lines(bundles, self._points, crowd)
        self.racks.draw_lines(crowd)
        self.painter.remaining_lines()

    def _points(self, bundle: Bundle) -> Points:
        """Return a straight line to a neighbour, or an arc that rises with the distance."""
        a, b = (bundle.a, bundle.b) if bundle.a < bundle.b else (bundle.b, bundle.a)
        start, end = (float(self.x[a]), float(self.y[a])), (float(self.x[b]), float(self.y[b]))
        distance = int(np.abs(self.where[a] - self.where[b]).sum())
        if distance == 1:
            return start, end
        length = math.dist(start, end)
        longest = max(self.shape[int(np.argmax(self.where[a] != self.where[b]))] - 1, 1)
        rise = 2 * self.pitch * (0.1 + 0.31 * distance / longest)
        across, down = abs(end[0] - start[0]) / length, abs(end[1] - start[1]) / length
        return start, ((start[0] + end[0]) / 2 - rise * down, (start[1] + end[1]) / 2 - rise * across), end
