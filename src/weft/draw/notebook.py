"""A fabric in a notebook: a picture or, if it is too large for a cell, a summary.

A picture is an image inside HTML: inline SVG would share its style sheet with all others on the page.
"""

from __future__ import annotations

from base64 import b64encode

import numpy as np

from weft.draw import lay_out
from weft.draw.scene import Scene
from weft.draw.svg import clean, to_svg
from weft.fabric.model import Fabric
from weft.fabric.notebook import to_html
from weft.fabric.summary import summarise

_MOST_LINKS = 1024  # a tenth of a second, and 200 kB


def fits(fabric: Fabric) -> bool:
    return int(np.count_nonzero(fabric.network_links)) <= _MOST_LINKS


def show(scene: Scene) -> str:
    data = b64encode(to_svg(scene).encode()).decode()
    return f'<img alt="{clean(scene.title)}" style="max-width:100%" src="data:image/svg+xml;base64,{data}"/>'


def show_fabric(fabric: Fabric) -> str:
    if fits(fabric):
        return show(lay_out(fabric))
    summary = summarise(fabric)
    nodes = [(kind, f"{count:,}", "") for kind, count in summary.nodes.items()]
    links = [
        (group.between, f"{group.count:,}", f"{group.label}, {group.rate_gbit_s:g} Gbit/s") for group in summary.links
    ]
    note = f"{fabric.spec} is too large for a cell: from weft.draw import draw; draw(fabric, 'fabric.html')"
    return to_html(("", "number", "each"), [*nodes, *links], note)
