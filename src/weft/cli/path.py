"""`weft path`: trace the path of packets from one host to another."""

from __future__ import annotations

import sys
from dataclasses import asdict

from weft.cli.arguments import TABLES, File, Form, RoutingEngine, Spec
from weft.cli.output import console, print_data, progress_bar, table


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
