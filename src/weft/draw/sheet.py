"""The sheet of paper: a title above the picture, the legend below it, margins around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.draw.inks import BAD, NEUTRAL, RAMP_STEPS, ColorScheme
from weft.draw.parts import count, host_noun
from weft.draw.scene import BOLD, Box, Canvas, Ink, Line, Role, Scene, TextStyle, fit, text_width
from weft.draw.wires import THICKEST, Wires
from weft.fabric.kinds import NodeKind

_MARGIN = 28.0
_SIZE = 11.0
_TITLE = 18.0
_NAMED_BAD = 6  # bad links that the legend names


def lay_out_sheet(canvas: Canvas, wires: Wires, title: str) -> Scene:
    """Add title and legend to a layout's canvas, and cut the paper to fit."""
    legend = add_title(canvas, title, _contents(wires))
    drawn = np.zeros(len(wires.parts.fabric.links), bool)  # links inside closed servers are not
    for line in canvas.lines:
        drawn[list(line.links)] = True
    strokes = [line for line in canvas.lines if not line.bad]
    if wires.colors.metric is None:
        _speeds(legend, wires.colors, drawn)
        _thickness(legend, [line for line in strokes if not line.band])
    else:
        add_colour_bar(legend, wires.colors, wires.colors.metric[drawn])
    _bands(legend, [line for line in strokes if line.band])
    _bad_links(legend, wires)
    return cut(canvas, title, wires.colors.inks)


@dataclass(slots=True, kw_only=True)
class Legend:
    """A legend: entries from left to right, in as many rows as needed."""

    canvas: Canvas
    left: float
    right: float
    x: float
    y: float

    def entry(
        self, text: str, ink: int, *, width: float = 4.0, bad: bool = False, style: TextStyle = TextStyle.LABEL
    ) -> None:
        """Add a stroke and its text."""
        width_of_entry = self._reserve(text)
        stroke = ((self.x, self.y), (self.x + 26, self.y))
        self.canvas.lines.append(Line(points=stroke, ink=ink, width=width, bad=bad))
        self.text(text, self.x + 34, style)
        self.x += width_of_entry

    def swatch(self, text: str, role: Role, ink: int = -1, *, style: TextStyle = TextStyle.LABEL) -> None:
        """Add a box and its text."""
        width_of_entry = self._reserve(text)
        width = 12 if role is Role.MARK else 26
        self.canvas.box(Box(x=self.x + 13, y=self.y, width=width, height=12, role=role, ink=ink))
        self.text(text, self.x + 34, style)
        self.x += width_of_entry

    def note(self, text: str) -> None:
        """Add a text alone."""
        width_of_entry = self._reserve(text) - 34
        self.text(text, self.x, TextStyle.FAINT)
        self.x += width_of_entry

    def text(self, text: str, x: float, style: TextStyle = TextStyle.LABEL) -> None:
        self.canvas.text(x, self.y, text, _SIZE, anchor="start", style=style)

    def new_row(self) -> None:
        self.x, self.y = self.left, self.y + 20

    def _reserve(self, text: str) -> float:
        """Return the width of an entry; begin a new row if this one is full."""
        width = 34 + text_width(text, _SIZE) + 24
        if self.x > self.left and self.x + width > self.right:
            self.new_row()
        return width


def add_title(canvas: Canvas, title: str, contents: str) -> Legend:
    """Write title and contents above the picture, and return the legend below it."""
    left, top, right, bottom = canvas.extent()
    right = max(right, left + 420, left + min(text_width(title, BOLD * _TITLE), 800))
    canvas.text(left, top - 50, fit(title, BOLD * _TITLE, right - left), _TITLE, style=TextStyle.TITLE, anchor="start")
    canvas.text(left, top - 28, contents, 12, style=TextStyle.FAINT, anchor="start")
    return Legend(canvas=canvas, left=left, right=right, x=left, y=bottom + 40)


def cut(canvas: Canvas, title: str, inks: tuple[Ink, ...]) -> Scene:
    """Return the scene with margins around all elements."""
    left, top, right, bottom = canvas.extent()
    return Scene(
        left=left - _MARGIN,
        top=top - _MARGIN,
        width=right - left + 2 * _MARGIN,
        height=bottom - top + 2 * _MARGIN,
        title=title,
        inks=inks,
        boxes=tuple(canvas.boxes),
        lines=tuple(canvas.lines),
        texts=tuple(canvas.texts),
    )


def _contents(wires: Wires) -> str:
    """Return a summary: `1,024 hosts, 48 switches, 2,048 links`."""
    parts, fabric = wires.parts, wires.parts.fabric
    hosts = int(np.count_nonzero(~parts.is_switch))
    counts = [
        (hosts, host_noun(parts)),
        (len(fabric.of_kind(NodeKind.GPU)), "GPU"),
        (int(np.count_nonzero(parts.is_switch)), "switch"),
        (int(np.count_nonzero(fabric.network_links[parts.between])), "link"),
    ]
    return ", ".join(count(number, noun) for number, noun in counts if number) or "empty"


def _speeds(legend: Legend, colors: ColorScheme, drawn: NDArray[np.bool_]) -> None:
    """Add an entry for each speed of the drawn lines."""
    counts = np.bincount(colors.of_link[drawn], minlength=len(colors.inks))
    for ink, label in colors.speeds.items():
        if counts[ink]:
            legend.entry(f"{label}  {count(int(counts[ink]), 'link')}", ink)


def _thickness(legend: Legend, lines: Sequence[Line]) -> None:
    """Add the thinnest and the thickest stroke, if some represent several links."""
    widths = {min(len(line.links), THICKEST): line.width for line in lines}
    for links in sorted({min(widths), max(widths)}) if widths.keys() - {1} else ():
        more = " or more" if links == THICKEST else ""
        legend.entry(count(links, "link") + more, NEUTRAL, width=widths[links], style=TextStyle.FAINT)


def _bands(legend: Legend, bands: Sequence[Line]) -> None:
    if bands:
        fewest, most = (f(len(band.links) for band in bands) for f in (min, max))
        number = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        legend.entry(f"all {number} links between two rows", NEUTRAL, width=10.0, style=TextStyle.FAINT)


def add_colour_bar(legend: Legend, colors: ColorScheme, values: NDArray[np.float64]) -> None:
    """Add a wedge: larger values are darker and thicker."""
    step = 9.0
    low, high = (f"{end:,.0f}" if abs(end) >= 1000 else f"{end:.4g}" for end in (colors.low, colors.high))
    x = legend.x
    if colors.metric_label:
        legend.text(colors.metric_label, x)
        x += text_width(colors.metric_label, _SIZE) + 14
    legend.text(low, x, TextStyle.FAINT)
    x += text_width(low, _SIZE) + 8
    for i in range(RAMP_STEPS):
        height = 3 + 10 * i / RAMP_STEPS
        place = x + (i + 0.5) * step
        legend.canvas.box(
            Box(x=place, y=legend.y, width=step + 0.4, height=height, role=Role.CELL, ink=NEUTRAL + 1 + i)
        )
    legend.x = x + RAMP_STEPS * step + 8
    legend.text(high, legend.x, TextStyle.FAINT)
    legend.x += text_width(high, _SIZE) + 30
    if np.isnan(values).any():
        legend.entry("unknown", NEUTRAL, style=TextStyle.FAINT)


def _bad_links(legend: Legend, wires: Wires) -> None:
    bad = np.flatnonzero(wires.parts.bad).tolist()
    if not bad:
        return
    legend.entry(f"{count(len(bad), 'bad link')}", BAD, width=2.2, bad=True, style=TextStyle.ALARM)
    for link in bad[:_NAMED_BAD]:
        legend.new_row()
        legend.text(f"{wires.name(link)}  {', '.join(wires.facts(link))}", legend.x + 34, TextStyle.ALARM)
    if len(bad) > _NAMED_BAD:
        legend.new_row()
        legend.text(f"and {len(bad) - _NAMED_BAD:,} more", legend.x + 34, TextStyle.ALARM)
