"""`weft show`, `draw`, `export` and `path`: summarise, draw or convert a fabric, or show a part or a path of it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, RoutingEngine, Spec
from weft.cli.output import console, print_data, progress_bar, report_written, table
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.units import format_items

if TYPE_CHECKING:
    from rich.console import Console

    from weft.fabric.summary import Summary
    from weft.fabric.views import Port


def show(spec: Spec, name: str | None = None, /, *, form: Form = TABLES) -> None:
    """Summarise a fabric, or show a node, port or server.

    Parameters
    ----------
    name
        A node, a port or a server: `leaf3`, `leaf3/17`, `dgx1`.
    """
    from weft.fabric.spec import is_topology, load
    from weft.fabric.summary import summarise
    from weft.fabric.views import Port, Server

    with progress_bar(f"reading {spec}"):
        fabric = load(spec)
    if name is not None:
        selected = fabric[name]
        nodes = selected.nodes if isinstance(selected, Server) else [selected]
        ports = [port for node in nodes for port in ([node] if isinstance(node, Port) else node.ports)]
        rows = [_port_row(port) for port in ports]
        if form.is_data:
            print_data(form, rows)
        else:
            heads = ("port", "kind", "port GUID", "LID", "plugged into", "speed", "Gbit/s", "medium", "m", "BER")
            console().print(table(name, heads, [tuple(row.values()) for row in rows]))
            if is_topology(spec) and any(row["length_m"] for row in rows):
                print(f"Lengths and media are typical values. `weft plan {spec}` computes them from a floor plan.")
        return
    with progress_bar("counting"):
        summary = summarise(fabric)
    if form.is_data:
        print_data(form, asdict(summary), "tiers", "links")
    else:
        _print_summary(console(), summary)


def _print_summary(out: Console, summary: Summary) -> None:
    counts = [format_items(count, kind) for kind, count in summary.nodes.items()]
    servers = [format_items(summary.servers, "server")] if summary.servers else []
    planes = [f"{summary.planes} planes"] if summary.planes > 1 else []
    if summary.boxes < summary.nodes.get("switch", 0):
        planes[0] += f" ({summary.boxes:,} switch boxes with a chip in each plane)"
    heading = ", ".join(servers + counts + planes)
    out.print(f"[bold]{summary.spec}[/bold]", heading, *summary.changes, sep="\n", end="\n\n")
    tiers = [
        (
            tier.level if tier.level >= 0 else None,
            tier.name,
            tier.switches,
            ", ".join(f"{count:,} × {model}" for model, count in tier.models.items()),
            tier.hca_links,
            tier.down_gbit_s / 1000,
            tier.up_gbit_s / 1000,
            f"{tier.oversubscription:.3g} : 1" if tier.oversubscription is not None else "",
            tier.free_ports,
        )
        for tier in reversed(summary.tiers)
    ]
    heads = ("level", "tier", "switches", "models", "HCA links", "down Tbit/s", "up Tbit/s", "down : up", "free ports")
    out.print(table("Switches", heads, tiers))
    links = [(group.between, group.label, group.rate_gbit_s, group.count) for group in summary.links]
    out.print(table("Links", ("between", "speed", "Gbit/s each way", "links"), links))
    if not summary.cabling_warnings:
        out.print("No cabling warnings.")
        return
    out.print("[bold]Cabling warnings[/bold]")
    for warning in summary.cabling_warnings:
        out.print(f"  - {warning}", markup=False)


def _port_row(port: Port) -> dict[str, str | int | float | None]:
    link = port.link
    return {
        "port": port.name,
        "kind": port.node.kind.label,
        "guid": str(port.guid),
        "lid": int(port.node.lid if port.node.kind is NodeKind.SWITCH else port.lid) or None,
        "peer": str(port.peer) if port.peer else None,
        "speed": link.label if link else None,
        "rate_gbit_s": link.rate_gbit_s if link else None,
        "medium": link.medium.name.lower() if link else None,
        "length_m": link.length_m if link else None,
        "bit_error_rate": link.bit_error_rate if link else None,
    }


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


def export(
    spec: Annotated[str | None, NAMES_FILE] = None,
    /,
    *,
    output: Annotated[File, Parameter(name=["--output", "-o"])] = None,
    format: Annotated[str | None, Parameter(name=["--format", "-f"])] = None,  # noqa: A002
    form: Form = TABLES,
) -> None:
    """Convert a fabric to another tool's file format.

    Without SPEC, list the formats.

    Parameters
    ----------
    spec
        A topology, `superpod:su=1`, or the path of a file.
    output
        The file to write (for `opensm` a folder); - for standard output.
    format
        The format, if the suffix of the file does not determine it.
    """
    if spec is None:
        _list_formats(form)
        return
    if output is None:
        raise ConfigError("weft export needs -o FILE: where to write")
    from weft.api.fabrics import export as write

    with progress_bar(f"writing {output}"):
        write(spec, output, format)
    report_written(output)


def _list_formats(form: Form) -> None:
    from weft.fabric.files import FORMATS

    rows = [
        (entry.name, ", ".join(entry.suffixes), "yes" if entry.reads else "", "yes", entry.description)
        for entry in FORMATS.working().values()
    ]
    heads = ("format", "suffixes", "reads", "writes", "description")
    if form.is_data:
        print_data(form, [dict(zip(heads, row, strict=True)) for row in rows])
    else:
        console().print(table("Formats", heads, rows))


def path(
    spec: Spec,
    source: str,
    destination: str,
    /,
    *,
    tables: File = None,
    routing_engine: RoutingEngine | None = None,
    form: Form = TABLES,
) -> None:
    """Show the path between two hosts, hop by hop.

    Both directions are shown. The exit status is 1 if a path does not arrive.

    Parameters
    ----------
    source
        A server, an adapter or a port of one: h1, dgx1/mlx5_0, h1/1.
    destination
        The same; with LMC the path to each of its LIDs is shown.
    tables
        Forwarding tables dumped by OpenSM, or by `weft route --dump`: a folder, or one file of routes.
    """
    from weft.api.routes import path as follow

    with progress_bar(f"reading {spec}"):
        ways = follow(spec, source, destination, tables=tables, routing_engine=routing_engine)
    if form.is_data:
        print_data(form, [asdict(way) | {"hops": [asdict(hop) for hop in way.hops]} for way in ways], "hops")
    else:
        out = console()
        for way in ways:
            rows = [(number, hop.port, hop.peer, hop.vl, hop.rate) for number, hop in enumerate(way.hops, 1)]
            title = f"{way.source} to {way.destination}, LID {way.dlid}, SL {way.sl}"
            note = "" if way.arrived else f"It does not arrive. It ends at {way.end}."
            out.print(table(title, ("#", "leaves by", "comes to", "VL", "rate"), rows, note))
    if not all(way.arrived for way in ways):
        sys.exit(1)
