"""`weft draw`: a picture of a fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def draw(spec: str, /, *, output: Annotated[Path, Parameter(name=["--output", "-o"])]) -> None:
    """Draw a fabric: tiers with spines on top and servers in racks, or groups in a ring, or a grid.

    Parameters
    ----------
    spec
        A topology, `superpod:su=1`, or the path of a file.
    output
        The picture: .svg, .png or .html (which zooms, searches and highlights).
    """
    from weft.fabric.draw import draw as draw_fabric
    from weft.fabric.spec import load

    draw_fabric(load(spec), output)
    print(f"{output}: {output.stat().st_size / 1024:,.0f} KiB")
