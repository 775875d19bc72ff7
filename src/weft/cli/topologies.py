"""`weft topologies`: what SPEC can be."""

from __future__ import annotations

from dataclasses import asdict

from weft.cli.arguments import TABLES, Form
from weft.cli.output import console, print_data, table


def topologies(name: str | None = None, /, *, form: Form = TABLES) -> None:
    """List the topologies and their parameters.

    Parameters
    ----------
    name
        A topology, to show its parameters: `fat-tree`.
    """
    from weft.errors import find_named
    from weft.fabric.spec import describe

    known = {entry.name: entry for entry in describe()}
    entry = find_named("topology", name, known) if name is not None else None
    if form.is_data:
        print_data(form, [asdict(one) for one in known.values() if entry in (None, one)], "parameters")
    elif entry is None:
        rows = [(one.name, one.summary, one.example) for one in known.values()]
        note = "Parameters: weft topologies NAME"
        console().print(table("Topologies", ("topology", "what it is", "example"), rows, note))
    else:
        rows = [
            (p.name, p.meaning, "required" if p.required else "" if p.default is None else str(p.default))
            for p in entry.parameters
        ]
        usage = entry.usage.replace("[", " [")  # else it is one word, longer than a screen is wide
        console().print(table(usage, ("parameter", "meaning", "default"), rows, entry.summary), markup=False)
