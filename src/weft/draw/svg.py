"""A scene as SVG, with tooltips."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from html import escape
from itertools import groupby

from weft.draw.inks import BOX_STYLES, PAPER, TEXT_STYLES
from weft.draw.scene import Box, Ink, Line, Role, Scene, Text, printable

_MARKS, _BACKGROUND = frozenset((Role.MARK, Role.OUTLINE)), frozenset((Role.FRAME, Role.BLOCK))
_FONT = "Inter, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"


def to_svg(scene: Scene) -> str:
    """Return an SVG file on white paper."""
    size = f'width="{_n(scene.width)}" height="{_n(scene.height)}"'
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view_box(scene)}>\n'
        f"<style>{_style_sheet(scene, dark=False)}</style>\n{body(scene)}\n</svg>\n"
    )


def view_box(scene: Scene) -> str:
    return f'viewBox="{_n(scene.left)} {_n(scene.top)} {_n(scene.width)} {_n(scene.height)}"'


def both_styles(scene: Scene) -> str:
    """Return the style sheets for a page that follows the reader's colour scheme."""
    return (
        f"{_style_sheet(scene, dark=False)}\n@media (prefers-color-scheme: dark) {{{_style_sheet(scene, dark=True)}}}"
    )


def _style_sheet(scene: Scene, *, dark: bool) -> str:
    """Return colours by class: of inks, roles and text styles."""

    def shade(ink: Ink) -> str:
        return ink.dark if dark else ink.light

    rules = [f".paper{{fill:{shade(PAPER)}}}", f"text{{font-family:{_FONT}}}", "path{fill:none}"]
    for role, look in BOX_STYLES.items():
        thick = ";stroke-width:1.6" if role in _MARKS else ""
        rules.append(f".{role}{{fill:{shade(look.fill)};stroke:{shade(look.stroke)}{thick}}}")
    rules += [f".i{i}{{stroke:{shade(ink)}}}.f{i}{{fill:{shade(ink)}}}" for i, ink in enumerate(scene.inks)]
    rules += [f".{style}{{fill:{shade(ink)}}}" for style, ink in TEXT_STYLES.items()]
    rules.append(f".port{{stroke:{shade(PAPER)};stroke-width:3;stroke-linejoin:round;paint-order:stroke}}")
    return "".join([*rules, ".title{font-weight:600}", ".bad{stroke-dasharray:6 4}"])


def body(scene: Scene) -> str:
    """Return all elements in painting order; boxes have ids b0, b1, ... and lines name the two that they join."""
    behind: list[str] = []
    front: list[str] = []
    marks: list[str] = []
    for index, box in enumerate(scene.boxes):
        layer = marks if box.role in _MARKS else behind if box.role in _BACKGROUND else front
        layer.append(_box(box, index))
    paper = f'<rect class="paper" x="{_n(scene.left)}" y="{_n(scene.top)}" '
    paper += f'width="{_n(scene.width)}" height="{_n(scene.height)}"/>'
    return "\n".join([paper, *behind, *_lines(scene.lines), *front, *marks, *map(_text, scene.texts)])


def _lines(lines: tuple[Line, ...]) -> Iterator[str]:
    """Yield the lines; neighbours with the same stroke share a group, which keeps big files small."""

    def stroke(line: Line) -> str:
        kind = f"i{line.ink} bad" if line.bad else f"i{line.ink}"
        return f'class="{kind}" stroke-width="{line.width:.2f}" stroke-opacity="{line.opacity:.2f}"'

    for attributes, group in groupby(lines, key=stroke):
        yield f"<g {attributes}>"
        for line in group:
            (x, y), *rest = line.points
            path = f"M{_n(x)} {_n(y)}{'Q' if len(rest) == 2 else 'L'}{' '.join(f'{_n(p)} {_n(q)}' for p, q in rest)}"
            ends = f' data-e="{line.a} {line.b}"' if line.a >= 0 else ""
            yield f'<path d="{path}"{ends}>{_title(line.title)}</path>'
        yield "</g>"


def _box(box: Box, index: int) -> str:
    title = _title(box.title)
    kind = " ".join([box.role, *([f"f{box.ink}"] if box.ink >= 0 else []), *(["node"] if box.nodes else [])])
    attributes = f'id="b{index}" class="{kind}"'
    if box.hangs_on >= 0:
        attributes += f' data-on="{box.hangs_on}"'
    if box.names:
        attributes += f' data-names="{clean(" ".join(box.names))}"'
    if box.role is Role.MARK:
        return f'<circle {attributes} cx="{_n(box.x)}" cy="{_n(box.y)}" r="{_n(box.width / 2)}">{title}</circle>'
    corner = min(BOX_STYLES[box.role].corner, box.width / 4, box.height / 4)
    attributes += f' x="{_n(box.x - box.width / 2)}" y="{_n(box.y - box.height / 2)}"'
    attributes += f' width="{_n(box.width)}" height="{_n(box.height)}"'
    if corner >= 0.5:
        attributes += f' rx="{_n(corner)}"'
    if box.angle_deg:
        attributes += f' transform="rotate({_n(box.angle_deg)} {_n(box.x)} {_n(box.y)})"'
    return f"<rect {attributes}>{title}</rect>"


def _text(text: Text) -> str:
    turn = f' transform="rotate({_n(text.angle_deg)} {_n(text.x)} {_n(text.y)})"' if text.angle_deg else ""
    # Explicit baselines: not every viewer supports dominant-baseline. Letters are about 0.7 of their size high.
    return (
        f'<text class="{text.style}" x="{_n(text.x)}" y="{_n(text.y + 0.36 * text.size)}" '
        f'font-size="{_n(text.size)}" text-anchor="{text.anchor}"{turn}>{clean(text.text)}</text>'
    )


def _title(title: str) -> str:
    return f"<title>{clean(title)}</title>" if title else ""


@lru_cache(1024)  # labels repeat: units of a rack, models
def clean(text: str) -> str:
    return escape(printable(text), quote=True)


@lru_cache(4096)  # many elements share a row or a column
def _n(number: float) -> str:
    """Format a coordinate with at most one decimal."""
    return f"{number:.1f}".removesuffix(".0")
