"""`weft topologies`: list the topologies for SPEC."""

from __future__ import annotations

from dataclasses import asdict

from weft.cli.arguments import TABLES, Form
from weft.cli.output import console, print_data, table
from weft.errors import find_named


def topologies(name: str | None = None, /, *, form: Form = TABLES) -> None:
    """List the topologies and their parameters.

    Parameters
    ----------
    name
        A topology, to show its parameters: `fat-tree`.
    """
    from weft.fabric.spec import describe

    entries = {entry.name: entry for entry in describe()}
    entry = find_named("topology", name, entries) if name is not None else None
    if form.is_data:
        print_data(form, [asdict(topology) for topology in entries.values() if entry in (None, topology)], "parameters")
    elif entry is None:
        rows = [(topology.name, topology.summary, topology.example) for topology in entries.values()]
        note = "Parameters: weft topologies NAME"
        console().print(table("Topologies", ("topology", "description", "example"), rows, note))
    else:
        rows = [
            (p.name, p.meaning, "required" if p.required else "" if p.default is None else str(p.default))
            for p in entry.parameters
        ]
        usage = entry.usage.replace("[", " [")  # so that it can wrap
        console().print(table(usage, ("parameter", "meaning", "default"), rows, entry.summary), markup=False)
