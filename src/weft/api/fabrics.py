"""Read fabrics, look at them, and write them as pictures and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from weft.api.arguments import FabricLike, PathLike, read_fabric, read_path, read_spec
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.spec import load as load_spec

Progress = Callable[[str], None]  # the present step
COLOURS = ("speed", "load", "length")


def load(spec: PathLike) -> Fabric:
    """Return the fabric of a topology or a file.

    Parameters
    ----------
    spec
        A topology with its parameters, `superpod:su=1` or `fat-tree:hosts=1024,switch=QM9700` (`weft topologies`
        lists them); or the path of a file: a lab file, output of ibnetdiscover, a dump of OpenSM, a cable plan.

    Returns
    -------
    Fabric
        Nodes, ports and cables by name, `fabric["leaf3/17"].peer`, and as arrays.

    Examples
    --------
    >>> fabric = weft.load("superpod:su=1")
    >>> fabric
    <Fabric superpod:su=1: switches 12, HCAs 384, links 5,888>
    >>> fabric["leaf3/17"].peer
    <port dgx17/mlx5_4/1 -> leaf3/17>
    """
    return load_spec(read_spec(spec))


def draw(
    fabric: FabricLike,
    output: PathLike,
    *,
    colour_by: Literal["speed", "load", "length"] = "speed",
    progress: Progress = lambda step: None,
) -> Path:
    """Write a picture of a fabric, as `weft draw` does.

    Parameters
    ----------
    fabric
        A fabric, its spec, or the path of a file.
    output
        The file to write: .svg, .png, .pdf or .html.
    colour_by
        The colours of the links: by `speed`, by `load` if all hosts send to all, or by `length`.
    progress
        Called with the name of each step.

    Returns
    -------
    Path
        The path of the picture.

    Examples
    --------
    >>> weft.draw("star:hosts=4", "star.svg").stat().st_size > 1000
    True
    """
    import numpy as np

    from weft.draw import draw as draw_fabric
    from weft.routing.quality import load_all_to_all
    from weft.routing.route import route

    if colour_by not in COLOURS:
        raise ConfigError(f"--colour-by must be {', '.join(COLOURS[:-1])} or {COLOURS[-1]}, got {colour_by!r}")
    drawn, metric, label = read_fabric(fabric), None, ""
    if colour_by == "load":
        progress("routing")
        load, links = load_all_to_all(route(drawn).fabric), drawn.links
        metric = np.where(drawn.network_links, np.maximum(load[links.a], load[links.b]), np.nan)
        label = "flows, all to all"
    elif colour_by == "length":
        metric, label = drawn.links.length_m.astype(float), "metres"
    path = read_path("--output", output)
    progress("drawing")
    draw_fabric(drawn, path, metric=metric, metric_label=label)
    return path


def export(fabric: FabricLike, output: PathLike, format: str | None = None) -> Path:  # noqa: A002
    """Write a fabric as a file for another tool, as `weft export` does.

    Parameters
    ----------
    fabric
        A fabric, its spec, or the path of a file.
    output
        The file to write; for the format `opensm` a folder.
    format
        The name of the format, where the suffix of the file does not determine it: `ibnetdiscover`, `graphml`, ...
        `weft export` lists them.

    Returns
    -------
    Path
        The path of the file.

    Examples
    --------
    >>> weft.export("star:hosts=4", "star.ibnetdiscover")
    PosixPath('star.ibnetdiscover')
    >>> weft.load("star.ibnetdiscover")
    <Fabric star.ibnetdiscover: switches 1, HCAs 4, links 4>
    """
    from weft.fabric.files import write
    from weft.fabric.planes import expand

    path = read_path("--output", output)
    write(expand(read_fabric(fabric)), path, format)
    return path
