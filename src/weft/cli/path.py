"""`weft path`: which way packets take from one host to another."""

from __future__ import annotations

import sys

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
        The same; with LMC the way to each of its LIDs is shown.
    tables
        Forwarding tables dumped by OpenSM, or by `weft route --dump`: a folder, or one file of routes.
    """
    from dataclasses import asdict

    from weft.errors import ConfigError
    from weft.fabric.files.opensm_tables import read_tables
    from weft.fabric.spec import load
    from weft.routing.engine import Options
    from weft.routing.route import route
    from weft.routing.trace import trace
    from weft.sim.traffic import find_host_port

    if tables is not None and routing_engine is not None:
        raise ConfigError("--tables brings its own routes: leave out --routing-engine, or --tables")
    with progress_bar(f"reading {spec}"):
        fabric = load(spec)
        if tables is not None:
            read_tables(tables, fabric)
        elif routing_engine is not None or "lft" not in vars(fabric.tables):
            fabric = route(fabric, Options(engine=routing_engine or "auto")).fabric
    ends = find_host_port(fabric, source), find_host_port(fabric, destination)
    ways = [*trace(fabric, *ends), *trace(fabric, *ends[::-1])]
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
