"""Hosts below their switch: names side by side, or cells."""

from __future__ import annotations

import math

import numpy as np

from weft.draw.layout.painter import Painter
from weft.draw.scene import text_width

_NAME_GAP, _NAME_HEIGHT = 24.0, 22.0
_CELL_GAP, _TALLEST = 9.0, 64.0
_CELLS = (11.0, 9.0, 7.0, 5.5, 4.0, 3.0)


class Racks:
    """The hosts of each switch, all drawn in the same way within `width`, in reading order or reversed."""

    def __init__(self, painter: Painter, width: float, *, backwards: bool = False) -> None:
        self.painter, self.width, self.backwards = painter, width, backwards
        self.hosts = _hosts(painter)
        self.most = max(map(len, self.hosts.values()), default=0)
        names = [painter.parts.names[host] for hosts in self.hosts.values() for host in hosts]
        self.name_width = max(text_width(max(names, key=len, default=""), 9) + 8, 5.0 * painter.rails + 4, 24.0)
        self.named = self.most * self.name_width <= width
        self.cell, self.columns, self.cell_height = self._grid()
        self._start: dict[int, tuple[float, float]] = {}  # [switch] -> the start of the lines to its hosts
        self._block: dict[int, int] = {}  # [switch] -> box of the block behind its hosts
        self._block_top: dict[int, tuple[float, float]] = {}

    def _grid(self) -> tuple[float, int, float]:
        """Return size of a cell, cells in a row and height of one: the largest that fit."""
        rails = self.painter.rails
        for cell in _CELLS:
            columns = min(max(int(self.width // cell), 1), max(self.most, 1))
            height = cell if rails == 1 else rails * max(cell * 0.5, 2.5) + 3
            if math.ceil(self.most / columns) * height <= _TALLEST:
                break
        return cell, columns, height

    @property
    def height(self) -> float:
        """The height of the hosts below their switch."""
        if not self.most:
            return 0.0
        if self.named:
            return _NAME_GAP + _NAME_HEIGHT
        return _CELL_GAP + math.ceil(self.most / self.columns) * self.cell_height + 4

    @property
    def used_width(self) -> float:
        """The width of the hosts of the fullest switch."""
        return self.most * self.name_width if self.named else self.columns * self.cell + 3

    def draw(self, switch: int, x: float, y: float, start: tuple[float, float]) -> None:
        """Draw the hosts of a switch, from y down; lines to them begin at `start`."""
        hosts = self.hosts.get(switch, ())
        if not hosts:
            return
        self._start[switch] = self.painter.canvas.place(*start)
        columns = len(hosts) if self.named else min(self.columns, len(hosts))
        pitch = self.name_width if self.named else self.cell
        step = -pitch if self.backwards else pitch
        first = x - (columns - 1) * step / 2
        if not self.named:
            height = math.ceil(len(hosts) / columns) * self.cell_height + 3
            block = self.painter.block(hosts, x, y + _CELL_GAP, columns * pitch + 3, height, whole=False)
            reach = columns * pitch / 2
            above = min(max(start[0], x - reach), x + reach)
            self._block[switch], self._block_top[switch] = block, self.painter.canvas.place(above, y + _CELL_GAP)
        for i, host in enumerate(hosts):
            row, column = divmod(i, columns)
            if self.named:
                self.painter.named(host, first + column * step, y + _NAME_GAP, pitch - 3, _NAME_HEIGHT)
            else:
                top = y + _CELL_GAP + 1.5 + row * self.cell_height
                self.painter.cells(host, first + column * step, top, pitch, self.cell_height)

    @property
    def unattached(self) -> tuple[int, ...]:
        """The hosts that are on no switch."""
        attached = {host for hosts in self.hosts.values() for host in hosts}
        return tuple(host for host in np.flatnonzero(~self.painter.parts.is_switch).tolist() if host not in attached)

    def draw_lines(self, crowd: int) -> None:
        """Draw the cables of the hosts: one by one, or one stem for all that are sound and go to the same switch."""
        painter, parts = self.painter, self.painter.parts
        cables = [
            (link, host if self.named or switch != home else len(parts), switch)
            for home, hosts in self.hosts.items()
            for host in hosts
            for link in painter.cables[host]
            for switch in (painter.other_end(host, link),)
        ]
        links, ends, switches = np.array(cables, np.int64).reshape(-1, 3).T
        for bundle in painter.wires.bundles(links, ends, switches, apart=self.named):
            foot, box, name = self._foot(bundle.a, bundle.b, bundle.links[0], bad=bundle.bad)
            start = self._start.get(bundle.b, painter.bottom.get(bundle.b, foot))
            names = (parts.names[bundle.b], name)
            painter.line(bundle, (start, foot), crowd, (painter.box[bundle.b], box), names)

    def _foot(self, end: int, switch: int, link: int, *, bad: bool) -> tuple[tuple[float, float], int, str]:
        """Return the end of a line, the box there, and its name."""
        painter, parts = self.painter, self.painter.parts
        if end < len(parts):
            return painter.feet[link], painter.box[end], parts.names[end]
        return (painter.feet[link] if bad else self._block_top[switch]), self._block[switch], "hosts"


def _hosts(painter: Painter) -> dict[int, tuple[int, ...]]:
    """Return the hosts whose first cable to a switch ends at each switch, without switches that lead to no host."""
    hosts_of: dict[int, list[int]] = {}
    for host, cables in painter.cables.items():
        ends = [painter.other_end(host, link) for link in cables]
        switches = [end for end in ends if painter.parts.is_switch[end] and painter.parts.level[end] >= 0]
        if switches:
            hosts_of.setdefault(switches[0], []).append(host)
    return {switch: tuple(sorted(hosts)) for switch, hosts in hosts_of.items()}
