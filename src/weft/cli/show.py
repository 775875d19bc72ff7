"""`weft show`: summarise a fabric, or show a node, port or server."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from weft.cli.arguments import TABLES, Form, Spec
from weft.cli.output import console, print_data, progress_bar, table
from weft.fabric.kinds import NodeKind

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
    counts = [f"{count:,} {_plural(kind, count)}" for kind, count in summary.nodes.items()]
    servers = [f"{summary.servers:,} {_plural('server', summary.servers)}"] if summary.servers else []
    out.print(f"[bold]{summary.spec}[/bold]", ", ".join(servers + counts), *summary.changes, sep="\n", end="\n\n")
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


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + ("es" if word.endswith("witch") else "s")


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
