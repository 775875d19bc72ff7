"""`weft draw`: a picture of a fabric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, Spec
from weft.cli.output import progress_bar, report_written

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.fabric.model import Fabric


def draw(
    spec: Spec,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"]), NAMES_FILE],
    colour_by: Literal["speed", "load", "length"] = "speed",
) -> None:
    """Draw a fabric as SVG, PNG, PDF or an HTML page.

    Spines are on top and servers in racks below; dragonflies become rings of groups, tori grids.

    Parameters
    ----------
    output
        The file to write: .svg, .png, .pdf or .html (interactive); - for SVG on standard output.
    colour_by
        Colour the links by their speed, their load when all hosts talk to all (routed by `auto`), or their length.
    """
    from weft.draw import draw as draw_fabric
    from weft.fabric.spec import load

    with progress_bar(f"reading {spec}") as change:
        fabric, metric, label = load(spec), None, ""
        if colour_by == "load":
            change(description="routing")
            metric, label = _load(fabric), "flows, all to all"
        elif colour_by == "length":
            metric, label = fabric.links.length_m.astype(float), "metres"
        change(description="drawing")
        draw_fabric(fabric, output, metric=metric, metric_label=label)
    report_written(output)


def _load(fabric: Fabric) -> NDArray[np.float64]:
    """[link] -> flows in the fuller direction; NaN off the network."""
    import numpy as np

    from weft.routing.quality import load_all_to_all
    from weft.routing.route import route

    load, links = load_all_to_all(route(fabric).fabric), fabric.links
    return np.where(fabric.network_links, np.maximum(load[links.a], load[links.b]), np.nan)
