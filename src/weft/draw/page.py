"""A report or a drawing as one HTML page that opens without a network: light and dark, on narrow screens, on paper."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

from weft.draw.inks import PAPER
from weft.draw.scene import Scene
from weft.draw.svg import body, both_styles, clean, view_box

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{content}
</body>
</html>
"""


def make_page(title: str, content: str, *, style: str) -> str:
    """Return an HTML page with this content."""
    return _PAGE.format(title=clean(title), style=style, content=content)


def make_report(title: str, content: str, *, style: str) -> str:
    """Return a report page; `style` is added to the common style of reports."""
    shared = files("weft.draw").joinpath("page.css").read_text("utf-8")
    return make_page(title, content, style=shared + style)


def prose(text: str) -> str:
    """Escape a text and keep each number on one line with its unit."""
    return re.sub(r"(?<=\d) (?=%|µs|ms|s\b|k?W\b|MW\b|m\b|GB/s|million|thousand|GPUs)", "&nbsp;", clean(text))


def table(heads: Mapping[str, str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of columns, each with its class; cells name their column, for narrow screens."""
    head = "".join(f'<th class="{kind}">{name}</th>' for name, kind in heads.items())
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}" data-of="{name}">{cell}</td>'
            for (name, kind), cell in zip(heads.items(), row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead>{body}</table>"


def picture(scene: Scene, caption: str, note: str = "", *, natural: bool = False) -> str:
    """Return a scene under its caption, in an iframe, since the style sheets of two pictures would conflict.

    It is as wide as the page or, if `natural`, as it is drawn, with a scroll bar.
    """
    wide = f";width:{scene.width:.0f}px;min-width:0" if natural else ""
    frame = f'style="aspect-ratio:{scene.width:.0f}/{scene.height:.0f}{wide}"'
    fit = f"html{{overflow:hidden;background:{PAPER.light}}}body{{margin:0}}svg{{width:100%;height:auto;display:block}}"
    # A frame may be slightly too high.
    fit += f"@media (prefers-color-scheme: dark) {{html{{background:{PAPER.dark}}}}}"
    page = f"<style>{fit}{both_styles(scene)}</style><svg {view_box(scene)}>{body(scene)}</svg>"
    below = f'<p class="note">{clean(note)}</p>' if note else ""
    return (
        f"<figure><figcaption>{clean(caption)}</figcaption>"
        f'<iframe {frame} title="{clean(caption)}" srcdoc="{clean(page)}"></iframe>{below}</figure>'
    )


_WALK = """<svg {view_box}>
{body}
</svg>
<div id="bar">
<input id="search" type="search" placeholder="find a node   /" aria-label="find a node" autocomplete="off">
<span id="found"></span>
<button id="in" title="zoom in">+</button><button id="out" title="zoom out">−</button>
<button id="fit" title="show all">fit</button>
</div>
<div id="tip"></div>
<script>{script}</script>"""


def to_html(scene: Scene) -> str:
    package = files("weft.draw")
    content = _WALK.format(
        view_box=view_box(scene), body=body(scene), script=package.joinpath("viewer.js").read_text("utf-8")
    )
    style = f"{both_styles(scene)}\n{package.joinpath('viewer.css').read_text('utf-8')}"
    return make_page(scene.title, content, style=style)
