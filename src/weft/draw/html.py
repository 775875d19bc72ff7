"""A scene as one HTML page to walk around in: pan, zoom, hover, click, search. It needs no network."""

from __future__ import annotations

from importlib.resources import files

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
<svg {view_box}>
{body}
</svg>
<div id="bar">
<input id="search" type="search" placeholder="find a node   /" aria-label="find a node" autocomplete="off">
<span id="found"></span>
<button id="in" title="zoom in">+</button><button id="out" title="zoom out">−</button>
<button id="fit" title="show all">fit</button>
</div>
<div id="tip"></div>
<script>{script}</script>
</body>
</html>
"""


def to_html(scene: Scene) -> str:
    here = files("weft.draw")
    return _PAGE.format(
        title=clean(scene.title),
        style=f"{both_styles(scene)}\n{here.joinpath('viewer.css').read_text('utf-8')}",
        view_box=view_box(scene),
        body=body(scene),
        script=here.joinpath("viewer.js").read_text("utf-8"),
    )
