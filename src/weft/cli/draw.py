"""`weft draw`: a picture of a fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, Spec
from weft.cli.output import progress_bar, report_written


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
        Colour links by speed, by load in an all-to-all (routed by `auto`), or by length.
    """
    from weft.api.fabrics import draw as draw_fabric

    with progress_bar(f"reading {spec}") as change:
        draw_fabric(spec, output, colour_by=colour_by, progress=lambda step: change(description=step))
    report_written(output)
