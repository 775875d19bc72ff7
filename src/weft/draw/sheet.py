"""The sheet of paper: a title above the picture, the legend below it, margins around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.draw.inks import BAD, NEUTRAL, RAMP_STEPS, Inking
from weft.draw.parts import count, host_noun
from weft.draw.scene import BOLD, Box, Canvas, Ink, Line, Role, Scene, Voice, fit, text_width
from weft.draw.wires import THICKEST, Wires
from weft.fabric.kinds import NodeKind

_MARGIN = 28.0
_SIZE = 11.0
_TITLE = 18.0
_NAMED_BAD = 6  # bad links that the legend names


def lay_out_sheet(canvas: Canvas, wires: Wires, title: str) -> Scene:
    """Add title and legend to what a layout drew, and cut the paper to fit."""
    legend = add_title(canvas, title, _contents(wires))
    shown = np.zeros(len(wires.parts.fabric.links), bool)  # what is inside a closed server is not
    for line in canvas.lines:
        shown[list(line.links)] = True
    strokes = [line for line in canvas.lines if not line.bad]
    if wires.inking.metric is None:
        _speeds(legend, wires.inking, shown)
        _thickness(legend, [line for line in strokes if not line.band])
    else:
        add_colour_bar(legend, wires.inking, wires.inking.metric[shown])
    _bands(legend, [line for line in strokes if line.band])
    _bad_links(legend, wires)
    return cut(canvas, title, wires.inking.inks)


@dataclass(slots=True, kw_only=True)
class Legend:
    """Entries from left to right, in as many rows as it takes."""

    canvas: Canvas
    left: float
    right: float
    x: float
    y: float

    def entry(self, text: str, ink: int, *, width: float = 4.0, bad: bool = False, voice: Voice = Voice.LABEL) -> None:
        """A stroke and what it says."""
        room = self._room(text)
        stroke = ((self.x, self.y), (self.x + 26, self.y))
        self.canvas.lines.append(Line(points=stroke, ink=ink, width=width, bad=bad))
        self.text(text, self.x + 34, voice)
        self.x += room

    def swatch(self, text: str, role: Role, ink: int = -1, *, voice: Voice = Voice.LABEL) -> None:
        """A box and what it stands for."""
        room = self._room(text)
        width = 12 if role is Role.MARK else 26
        self.canvas.box(Box(x=self.x + 13, y=self.y, width=width, height=12, role=role, ink=ink))
        self.text(text, self.x + 34, voice)
        self.x += room

    def note(self, text: str) -> None:
        """Words alone."""
        room = self._room(text) - 34
        self.text(text, self.x, Voice.FAINT)
        self.x += room

    def text(self, text: str, x: float, voice: Voice = Voice.LABEL) -> None:
        self.canvas.text(x, self.y, text, _SIZE, anchor="start", voice=voice)

    def new_row(self) -> None:
        self.x, self.y = self.left, self.y + 20

    def _room(self, text: str) -> float:
        """What an entry takes, on the next row where this one is full."""
        room = 34 + text_width(text, _SIZE) + 24
        if self.x > self.left and self.x + room > self.right:
            self.new_row()
        return room


def add_title(canvas: Canvas, title: str, contents: str) -> Legend:
    """Write above the picture what it is and what is in it; the legend goes below."""
    left, top, right, bottom = canvas.extent()
    right = max(right, left + 420, left + min(text_width(title, BOLD * _TITLE), 800))
    canvas.text(left, top - 50, fit(title, BOLD * _TITLE, right - left), _TITLE, voice=Voice.TITLE, anchor="start")
    canvas.text(left, top - 28, contents, 12, voice=Voice.FAINT, anchor="start")
    return Legend(canvas=canvas, left=left, right=right, x=left, y=bottom + 40)


def cut(canvas: Canvas, title: str, inks: tuple[Ink, ...]) -> Scene:
    """The paper, with margins around all that is on it."""
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
    """`1,024 hosts, 48 switches, 2,048 links`"""
    parts, fabric = wires.parts, wires.parts.fabric
    hosts = int(np.count_nonzero(~parts.is_switch))
    counts = [
        (hosts, host_noun(parts)),
        (len(fabric.of_kind(NodeKind.GPU)), "GPU"),
        (int(np.count_nonzero(parts.is_switch)), "switch"),
        (int(np.count_nonzero(fabric.network_links[parts.between])), "link"),
    ]
    return ", ".join(count(number, noun) for number, noun in counts if number) or "nothing"


def _speeds(legend: Legend, inking: Inking, shown: NDArray[np.bool_]) -> None:
    """One entry for each speed that lines show."""
    counts = np.bincount(inking.of_link[shown], minlength=len(inking.inks))
    for ink, label in inking.speeds.items():
        if counts[ink]:
            legend.entry(f"{label}  {count(int(counts[ink]), 'link')}", ink)


def _thickness(legend: Legend, lines: Sequence[Line]) -> None:
    """The thinnest stroke and the thickest, where some stand for several links."""
    widths = {min(len(line.links), THICKEST): line.width for line in lines}
    for links in sorted({min(widths), max(widths)}) if widths.keys() - {1} else ():
        more = " or more" if links == THICKEST else ""
        legend.entry(count(links, "link") + more, NEUTRAL, width=widths[links], voice=Voice.FAINT)


def _bands(legend: Legend, bands: Sequence[Line]) -> None:
    if bands:
        fewest, most = (f(len(band.links) for band in bands) for f in (min, max))
        number = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        legend.entry(f"all {number} links between two rows", NEUTRAL, width=10.0, voice=Voice.FAINT)


def add_colour_bar(legend: Legend, inking: Inking, shown: NDArray[np.float64]) -> None:
    """A wedge: what is more is darker and thicker."""
    step = 9.0
    low, high = (f"{end:,.0f}" if abs(end) >= 1000 else f"{end:.4g}" for end in (inking.low, inking.high))
    x = legend.x
    if inking.metric_label:
        legend.text(inking.metric_label, x)
        x += text_width(inking.metric_label, _SIZE) + 14
    legend.text(low, x, Voice.FAINT)
    x += text_width(low, _SIZE) + 8
    for i in range(RAMP_STEPS):
        height = 3 + 10 * i / RAMP_STEPS
        place = x + (i + 0.5) * step
        legend.canvas.box(
            Box(x=place, y=legend.y, width=step + 0.4, height=height, role=Role.CELL, ink=NEUTRAL + 1 + i)
        )
    legend.x = x + RAMP_STEPS * step + 8
    legend.text(high, legend.x, Voice.FAINT)
    legend.x += text_width(high, _SIZE) + 30
    if np.isnan(shown).any():
        legend.entry("unknown", NEUTRAL, voice=Voice.FAINT)


def _bad_links(legend: Legend, wires: Wires) -> None:
    bad = np.flatnonzero(wires.parts.bad).tolist()
    if not bad:
        return
    legend.entry(f"{count(len(bad), 'bad link')}", BAD, width=2.2, bad=True, voice=Voice.ALARM)
    for link in bad[:_NAMED_BAD]:
        legend.new_row()
        legend.text(f"{wires.name(link)}  {', '.join(wires.facts(link))}", legend.x + 34, Voice.ALARM)
    if len(bad) > _NAMED_BAD:
        legend.new_row()
        legend.text(f"and {len(bad) - _NAMED_BAD:,} more", legend.x + 34, Voice.ALARM)
