"""A picture before rendering: boxes, lines and texts in abstract units, y downwards.

Painted in this order: frames, lines, boxes, marks, texts. A box lists its nodes and a line its links, so that tests can
check that no node and no link is missing from the picture.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unicodedata import east_asian_width

Points = tuple[tuple[float, float], ...]  # two: a straight line; three: a quadratic Bezier curve


class Role(enum.StrEnum):
    """The role of a box; a renderer gives each a style."""

    FRAME = "frame"  # a pod, a rack, a group of a dragonfly: behind all others
    BLOCK = "block"  # the hosts of a leaf, behind their cells
    CORE = "core"
    SPINE = "spine"
    LEAF = "leaf"
    HOST = "host"
    CELL = "cell"  # a host, or one of its rails, in the ink of its link
    HCA = "hca"
    GPU = "gpu"
    NVSWITCH = "nvswitch"
    PCIE = "pcie"
    CPU = "cpu"
    MARK = "mark"  # a circle around a bad link
    OUTLINE = "outline"  # the same, square: around a rack


class TextStyle(enum.StrEnum):
    """The style of a text."""

    TITLE = "title"
    LABEL = "label"
    FAINT = "faint"
    INVERSE = "inverse"  # on the dark box of a switch
    ALARM = "alarm"
    PORT = "port"  # on a line, with a border in the colour of the paper


@dataclass(frozen=True, slots=True, kw_only=True)
class Ink:
    """A colour, on white and on black paper."""

    light: str
    dark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    x: float  # centre
    y: float
    width: float
    height: float
    role: Role
    angle_deg: float = 0.0  # clockwise
    ink: int = -1  # index into Scene.inks; -1: the colour of its role
    title: str = ""  # the tooltip; its first line is a name
    names: tuple[str, ...] = ()  # further names that a search finds here
    nodes: tuple[int, ...] = ()  # indices into the fabric
    links: tuple[int, ...] = ()
    hangs_on: int = -1  # index of the box at the other end of its link, if no line shows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    points: Points
    ink: int
    width: float
    opacity: float = 1.0
    bad: bool = False
    band: bool = False  # between whole rows: as wide as possible, whatever it carries
    title: str = ""
    links: tuple[int, ...] = ()
    a: int = -1  # index of the box at each end
    b: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    x: float
    y: float  # middle of its height
    text: str
    size: float
    style: TextStyle = TextStyle.LABEL
    anchor: str = "middle"  # or start, end
    angle_deg: float = 0.0

    @property
    def width(self) -> float:
        return text_width(self.text, BOLD * self.size if self.style is TextStyle.TITLE else self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    left: float
    top: float
    width: float
    height: float
    title: str
    inks: tuple[Ink, ...]
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    texts: tuple[Text, ...]


@dataclass(slots=True, kw_only=True)
class Canvas:
    """The elements of a layout, in any coordinates; `sheet` makes a scene of them."""

    boxes: list[Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    turn_deg: float = 0.0
    _within: tuple[float, float, float, float] | None = None  # the extent of the first `_counted` elements of each kind
    _counted: tuple[int, int, int] = (0, 0, 0)

    @contextmanager
    def turned(self, angle_deg: float) -> Iterator[None]:
        """Rotate the elements added within the block about the origin, clockwise."""
        before, self.turn_deg = self.turn_deg, angle_deg
        try:
            yield
        finally:
            self.turn_deg = before

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point after rotation."""
        return rotate(x, y, self.turn_deg) if self.turn_deg else (x, y)

    def box(self, box: Box) -> int:
        """Add a box and return its index, for lines to end at."""
        if self.turn_deg:
            x, y = self.place(box.x, box.y)
            box = replace(box, x=x, y=y, angle_deg=box.angle_deg + self.turn_deg)
        self.boxes.append(box)
        return len(self.boxes) - 1

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        *,
        style: TextStyle = TextStyle.LABEL,
        anchor: str = "middle",
        angle_deg: float = 0.0,
    ) -> None:
        """Add a text, upright however it is rotated (which needs an anchor in the middle)."""
        x, y = self.place(x, y)
        angle = (angle_deg + self.turn_deg + 90) % 360 - 90 if self.turn_deg else angle_deg
        angle = angle - 180 if angle >= 90 else angle
        self.texts.append(Text(x=x, y=y, text=text, size=size, style=style, anchor=anchor, angle_deg=angle))

    def extent(self) -> tuple[float, float, float, float]:
        """Return left, top, right, bottom of all elements; elements are never removed, so each is measured once."""
        boxes, lines, texts = self._counted
        corners = [] if self._within is None else [self._within]
        corners += [box_extent(box) for box in self.boxes[boxes:]]
        for line in self.lines[lines:]:
            xs, ys = [p[0] for p in line.points], [p[1] for p in line.points]
            if len(xs) == 3:  # the curve stays within its ends and the middle of its control polygon
                xs[1], ys[1] = (xs[0] + 2 * xs[1] + xs[2]) / 4, (ys[0] + 2 * ys[1] + ys[2]) / 4
            corners.append((min(xs), min(ys), max(xs), max(ys)))
        corners += map(text_extent, self.texts[texts:])
        if not corners:
            return 0.0, 0.0, 0.0, 0.0
        lefts, tops, rights, bottoms = zip(*corners, strict=True)
        self._within = min(lefts), min(tops), max(rights), max(bottoms)
        self._counted = len(self.boxes), len(self.lines), len(self.texts)
        return self._within


BOLD = 1.17  # relative width of bold letters
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """Replace characters that no file can hold: control characters and unpaired surrogates."""
    return _NOT_PRINTABLE.sub("\ufffd", text)


def text_width(text: str, size: float) -> float:
    """Estimate the width in a plain sans serif; Chinese, Japanese and Korean characters are square."""
    square = 0 if text.isascii() else sum(east_asian_width(letter) in "WF" for letter in text)
    return 0.6 * size * (len(text) + 0.7 * square)


def fit(text: str, size: float, width: float) -> str:
    """Return the text if it fits, else its beginning and end around an ellipsis, else an empty text."""
    if text_width(text, size) <= width:
        return text
    n_letters = int(width / text_width(text, size) * len(text))
    if n_letters < 5:
        return ""
    return f"{text[: (n_letters - 1) // 2]}…{text[len(text) - (n_letters - 1 - (n_letters - 1) // 2) :]}"


def rotate(x: float, y: float, angle_deg: float) -> tuple[float, float]:
    """Rotate a point clockwise about the origin (y goes down)."""
    sine, cosine = math.sin(math.radians(angle_deg)), math.cos(math.radians(angle_deg))
    return x * cosine - y * sine, x * sine + y * cosine


def box_extent(box: Box) -> tuple[float, float, float, float]:
    return _turned(box.x, box.y, (-box.width / 2, box.width / 2), (-box.height / 2, box.height / 2), box.angle_deg)


_ANCHORS = {"start": 0.0, "middle": -0.5, "end": -1.0}  # start of a text, in units of its width


def text_extent(text: Text) -> tuple[float, float, float, float]:
    width, half = text.width, text.size / 2
    left = _ANCHORS[text.anchor] * width
    if text.angle_deg:
        return _turned(text.x, text.y, (left, left + width), (-half, half), text.angle_deg)
    return text.x + left, text.y - half, text.x + (left + width), text.y + half


def _turned(
    x: float, y: float, sides: Sequence[float], ends: Sequence[float], angle_deg: float
) -> tuple[float, float, float, float]:
    if not angle_deg:  # nearly all elements
        return x + sides[0], y + ends[0], x + sides[1], y + ends[1]
    corners = [rotate(side, end, angle_deg) for side in sides for end in ends]
    xs, ys = [x + c[0] for c in corners], [y + c[1] for c in corners]
    return min(xs), min(ys), max(xs), max(ys)
