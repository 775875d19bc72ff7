"""Boxes of switches and hosts, for all layouts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from weft.draw.inks import BAD
from weft.draw.parts import Parts, count, host_noun, span
from weft.draw.scene import Box, Canvas, Points, Role, TextStyle, fit, text_width
from weft.draw.wires import Bundle, Wires
from weft.fabric.kinds import NodeKind

_TICK = 4.0
_MARK = 14.0
_NAMED_CUT_OFF = 60
_LEVEL_SIZE, _UPRIGHT_SIZE = 10.0, 9.0  # font sizes of names on switches
_LEAST_UPRIGHT = 10.0  # width of a box that an upright name fits into


@dataclass(frozen=True, kw_only=True, eq=False)
class Painter:
    """A painter that records the position of each part, for its lines."""

    canvas: Canvas
    wires: Wires
    box: dict[int, int] = field(default_factory=dict)  # part -> its box
    top: dict[int, tuple[float, float]] = field(default_factory=dict)  # switch -> middle of its upper edge
    bottom: dict[int, tuple[float, float]] = field(default_factory=dict)
    feet: dict[int, tuple[float, float]] = field(default_factory=dict)  # link -> its end at the host
    foot_box: dict[int, int] = field(default_factory=dict)  # link -> box of its adapter, if that has one
    _marked: set[int] = field(default_factory=set)  # links

    @property
    def parts(self) -> Parts:
        return self.wires.parts

    @cached_property
    def cables(self) -> dict[int, list[int]]:
        """The network links of each host, in the order of its adapters and their ports."""
        parts, fabric = self.parts, self.parts.fabric
        cables: dict[int, list[tuple[int, int]]] = {}
        between = parts.between[fabric.network_links[parts.between]]
        for end, slot in zip(parts.ends, (fabric.links.a, fabric.links.b), strict=True):
            links = between[~parts.is_switch[end[between]]]
            for host, port, link in zip(end[links].tolist(), slot[links].tolist(), links.tolist(), strict=True):
                cables.setdefault(host, []).append((port, link))
        return {host: [link for _, link in sorted(ports)] for host, ports in cables.items()}

    @cached_property
    def rails(self) -> int:
        """The largest number of cables of a host."""
        return max((len(links) for links in self.cables.values()), default=1)

    def other_end(self, part: int, link: int) -> int:
        a, b = self.parts.ends
        return int(b[link]) if a[link] == part else int(a[link])

    # -- switches --------------------------------------------------------------------------------------------------

    def switch(self, switch: int, x: float, y: float, width: float, height: float, *, role: Role | None = None) -> None:
        """Draw a box around (x, y), with its name if it fits, level or upright; its role follows from its level."""
        level = int(self.parts.level[switch])
        role = role or (Role.LEAF if level <= 1 else Role.SPINE if level == 2 else Role.CORE)
        self._part(switch, Box(x=x, y=y, width=width, height=height, role=role))
        self.top[switch], self.bottom[switch] = (self.canvas.place(x, y + end * height / 2) for end in (-1, 1))
        name = self.parts.names[switch]
        if text_width(name, _LEVEL_SIZE) <= width - 4 and height >= 12:
            self.canvas.text(x, y, name, _LEVEL_SIZE, style=TextStyle.INVERSE)
        elif text_width(name, _UPRIGHT_SIZE) <= width - 2 and height >= 12:
            self.canvas.text(x, y, name, _UPRIGHT_SIZE, style=TextStyle.INVERSE)
        elif width >= _LEAST_UPRIGHT and height > 30:
            short = self._short_name(switch, height - 6)
            self.canvas.text(x, y, short, _UPRIGHT_SIZE, style=TextStyle.INVERSE, angle_deg=-90)

    def _short_name(self, switch: int, width: float) -> str:
        """Return the name or, if it does not fit, the name without the words that all names of its level begin with.

        Names of chips of two directors differ in the middle, which an ellipsis would hide.
        """
        name = self.parts.names[switch]
        if fit(name, _UPRIGHT_SIZE, width) != name:
            name = name[self._common_words[int(self.parts.level[switch])] :]
        return fit(name, _UPRIGHT_SIZE, width)

    @cached_property
    def _common_words(self) -> dict[int, int]:
        """The length of the words that the names of all switches of a level begin with."""
        names: dict[int, list[str]] = {}
        for switch in np.flatnonzero(self.parts.is_switch).tolist():
            names.setdefault(int(self.parts.level[switch]), []).append(self.parts.names[switch])
        return {level: _common_words(min(some), max(some)) for level, some in names.items()}

    # -- hosts -----------------------------------------------------------------------------------------------------

    def named(self, host: int, x: float, y: float, width: float, height: float, *, upright: bool = False) -> None:
        """Draw a box with its top at y and a tick for each cable on its upper edge."""
        self._part(host, Box(x=x, y=y + height / 2, width=width, height=height, role=Role.HOST))
        name = self.parts.names[host]
        if upright:
            self.canvas.text(x, y + height / 2 + 2, fit(name, 8.5, height - 8), 8.5, angle_deg=-90)
        else:
            self.canvas.text(x, y + height / 2 + 2, fit(name, 9, width), 9)
        cables = self.cables.get(host, [])
        pitch = min((width - 2) / max(len(cables), 1), 9.0)
        for i, link in enumerate(cables):
            at = x + (i - (len(cables) - 1) / 2) * pitch
            self._cell(host, link, at, y + _TICK / 2, min(pitch * 0.7, 6.0), _TICK)
            self.feet[link] = self.canvas.place(at, y)

    def cells(self, host: int, x: float, y: float, width: float, height: float) -> None:
        """Draw a cell, or a column of one for each rail, with its top at y."""
        cables = self.cables.get(host, [])
        if self.rails == 1 and len(cables) == 1:
            self._cell(host, cables[0], x, y + height / 2, width * 0.84, height * 0.84, whole=True)
            self.feet[cables[0]] = self.canvas.place(x, y + height / 2)
        else:
            self._part(host, Box(x=x, y=y + (height - 1) / 2, width=width * 0.86, height=height - 1, role=Role.HOST))
        pitch = (height - 1) / max(self.rails, 1)
        for i, link in enumerate(cables):
            at = y + (i + 0.5) * pitch
            if self.rails > 1:
                self._cell(host, link, x, at, width * 0.6, pitch * 0.72)
                self.feet[link] = self.canvas.place(x, y)
            if self.parts.bad[link]:
                self.mark(link, *self.canvas.place(x, at))

    def block(self, hosts: tuple[int, ...], x: float, y: float, width: float, height: float, *, whole: bool) -> int:
        """Draw a block with its top at y: behind the cells of hosts or, `whole`, instead of them with their number."""
        parts = self.parts
        number = count(len(hosts), host_noun(parts))
        block = Box(
            x=x,
            y=y + height / 2,
            width=width,
            height=height,
            role=Role.BLOCK,
            title=f"{span([parts.names[host] for host in hosts])}\n{number}",
            names=tuple(parts.names[host] for host in hosts) if whole else (),
            nodes=tuple(itertools.chain.from_iterable(map(parts.nodes.__getitem__, hosts))) if whole else (),
            links=tuple(itertools.chain.from_iterable(map(parts.inner_links.__getitem__, hosts))) if whole else (),
        )
        index = self.canvas.box(block)
        self._mark_inside(block.links, block.x, block.y)
        if whole:
            self.box.update(dict.fromkeys(hosts, index))
            cables = itertools.chain.from_iterable(self.cables.get(host, ()) for host in hosts)
            self.feet.update(dict.fromkeys(cables, self.canvas.place(x, y)))
            if width >= 9:
                text = f"{len(hosts):,}"
                self.canvas.text(x, y + height / 2, text, 9, angle_deg=0.0 if text_width(text, 9) < width else -90.0)
        return index

    def cut_off(self, parts: tuple[int, ...], left: float, top: float, width: float) -> None:
        """Draw parts without a path to a host: boxes with names, or cells if there are many."""
        if not parts:
            return
        self.canvas.text(left, top - 16, f"cut off: {len(parts):,}", 11, style=TextStyle.ALARM, anchor="start")
        named = len(parts) <= _NAMED_CUT_OFF
        pitch, height = (74.0, 30.0) if named else (9.0, 9.0)
        columns = max(int(width // pitch), 1)
        for i, part in enumerate(parts):
            row, column = divmod(i, columns)
            x, y = left + (column + 0.5) * pitch, top + row * (height + 4 if named else height)
            if self.parts.is_switch[part]:
                self.switch(part, x, y + height / 2, pitch * 0.92, height * 0.9)
            elif named:
                self.named(part, x, y, pitch - 4, height)
            else:
                self.cells(part, x, y, pitch, height)

    def mark(self, link: int, x: float, y: float) -> None:
        """Draw a circle around a bad link, once, at canvas coordinates."""
        if link not in self._marked:
            self._marked.add(link)
            self.canvas.boxes.append(Box(x=x, y=y, width=_MARK, height=_MARK, role=Role.MARK))

    def lines(self, bundles: list[Bundle], route: Callable[[Bundle], Points], crowd: int) -> None:
        """Draw lines between parts along a route, the strong and the bad last, on top."""
        names = self.parts.names
        for bundle in sorted(bundles, key=lambda bundle: (bundle.bad, self.wires.peak(bundle.links))):
            ends = (self.box[bundle.a], self.box[bundle.b])
            self.line(bundle, route(bundle), crowd, ends, (names[bundle.a], names[bundle.b]))

    def line(self, bundle: Bundle, points: Points, crowd: int, boxes: tuple[int, int], names: tuple[str, str]) -> None:
        """Draw a bundle between two boxes as a line among `crowd` others, with a circle around a bad one."""
        self.canvas.lines.append(self.wires.line(bundle, points, crowd, boxes, names))
        if bundle.bad:
            self.mark(bundle.links[0], *middle_of(points))

    def remaining_lines(self) -> None:
        """Draw straight lines for links that the layout did not draw, such as those between hosts."""
        drawn = np.zeros(len(self.parts.fabric.links), bool)
        for links in itertools.chain((x.links for x in self.canvas.lines), (x.links for x in self.canvas.boxes)):
            drawn[list(links)] = True
        left = self.parts.between[~drawn[self.parts.between]]
        bundles = self.wires.bundles(left, *(end[left] for end in self.parts.ends))
        self.lines(bundles, lambda bundle: (self._middle(bundle.a), self._middle(bundle.b)), len(bundles))

    def _middle(self, part: int) -> tuple[float, float]:
        box = self.canvas.boxes[self.box[part]]
        return box.x, box.y

    def _part(self, part: int, box: Box) -> None:
        """Draw a box that represents all of a part."""
        parts = self.parts
        self.box[part] = self.canvas.box(
            replace(box, title=describe(parts, part), nodes=parts.nodes[part], links=parts.inner_links[part])
        )
        self._mark_inside(parts.inner_links[part], box.x, box.y)

    def _mark_inside(self, links: tuple[int, ...], x: float, y: float) -> None:
        """Draw a circle around a closed box with a bad link inside."""
        for link in np.array(links, np.int64)[self.parts.bad[list(links)]].tolist() if links else []:
            self.mark(link, *self.canvas.place(x, y))

    def _cell(
        self, host: int, link: int, x: float, y: float, width: float, height: float, *, whole: bool = False
    ) -> None:
        """Draw a cell in the ink of a link; `whole` if it represents its host."""
        title = self.wires.title([link])
        box = Box(
            x=x,
            y=y,
            width=width,
            height=height,
            role=Role.CELL,
            ink=BAD if self.parts.bad[link] else self.wires.ink([link]),
            title=f"{describe(self.parts, host)}\n{title}" if whole else title,
            nodes=self.parts.nodes[host] if whole else (),
            links=(link, *self.parts.inner_links[host]) if whole else (link,),
            hangs_on=self.box.get(self.other_end(host, link), -1),
        )
        index = self.canvas.box(box)
        if whole:
            self.box[host] = index
            self._mark_inside(self.parts.inner_links[host], x, y)


def middle_of(points: Points) -> tuple[float, float]:
    """Return the middle of a straight line or a curve."""
    if len(points) == 2:
        return (points[0][0] + points[1][0]) / 2, (points[0][1] + points[1][1]) / 2
    (x0, y0), (x1, y1), (x2, y2) = points
    return (x0 + 2 * x1 + x2) / 4, (y0 + 2 * y1 + y2) / 4


def describe(parts: Parts, part: int) -> str:
    """Return the name, then a description."""
    nodes = parts.nodes[part]
    if parts.is_switch[part]:
        return _describe_switch(parts, parts.fabric.node_index[parts.names[part]])
    if len(nodes) == 1:
        return parts.names[part]
    columns, at, devices = parts.fabric.nodes, list(nodes), Counter[str]()
    kinds = list(zip(columns.kind[at].tolist(), columns.model[at].tolist(), strict=True))
    one_of = dict(zip(kinds, nodes, strict=True))
    for kind, number in Counter(kinds).items():
        devices[_product(parts, one_of[kind])] += number
    return f"{parts.names[part]}\n{', '.join(f'{number} × {product}' for product, number in devices.items())}"


def _describe_switch(parts: Parts, switch: int) -> str:
    fabric = parts.fabric
    first, n_ports = int(fabric.first_port[switch]), int(fabric.nodes.n_ports[switch])
    used = int(np.count_nonzero(fabric.ports.peer[first + 1 : first + 1 + n_ports] >= 0))
    lines = [fabric.nodes.name[switch], f"{_product(parts, switch)}, {used} of {n_ports} ports in use"]
    if fabric.nodes.description[switch] != fabric.nodes.name[switch]:
        lines.append(fabric.nodes.description[switch])
    return "\n".join(lines)


def _product(parts: Parts, node: int) -> str:
    """Return the model of a product, or the kind of a part of a board."""
    view = parts.fabric.node(node)
    bought = view.kind in (NodeKind.SWITCH, NodeKind.HCA, NodeKind.GPU)
    return view.model if bought and view.model else view.kind.name.lower().replace("_", " ")


def _common_words(first: str, last: str) -> int:
    """Return the length of the words that both names, and so all between them, begin with; 0 for equal names."""
    same = list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return first.rfind("-", 0, len(same)) + 1 if first != last else 0
