"""A scene as one interactive HTML page: pan, zoom, hover, click, search. It needs no network."""

from __future__ import annotations

from importlib.resources import files

from weft.draw.page import make_page
from weft.draw.scene import Scene
from weft.draw.svg import body, both_styles, view_box

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
