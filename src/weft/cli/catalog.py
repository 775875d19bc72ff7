"""`weft catalog`: what can be bought, with source and date."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import TABLES, Form
from weft.cli.output import console, print_data, table

if TYPE_CHECKING:
    from weft.fabric.catalog import Entry


def catalog(name: str | None = None, /, *, form: Form = TABLES) -> None:
    """List switches, adapters, GPUs, servers and cables, or show one with its sources.

    Parameters
    ----------
    name
        An entry: `QM9700`, `dgx-h100`.
    """
    from weft.fabric import catalog as entries

    if name is not None:
        facts = _facts(entries.find(name))
        if form.is_data:
            print_data(form, facts)
        else:
            told = [(key, _show(value)) for key, value in facts.items() if value not in ("", None, [], {})]
            console().print(table(facts["name"], ("field", "value"), told))
        return
    if form.is_data:
        print_data(form, [_facts(entry) for entry in entries.entries()])
        return
    rows = [(entry.kind, entry.name, entry.summary, _price(entry), str(entry.date)) for entry in entries.entries()]
    note = "Prices are bands from weak sources: put in your own quotes. Sources: weft catalog NAME"
    console().print(table("Catalog", ("kind", "name", "what it is", "USD", "read on"), rows, note))


def _facts(entry: Entry) -> dict[str, Any]:
    import msgspec

    facts = {"kind": entry.kind, **msgspec.to_builtins(entry)}
    return facts | {name: str(value.name) for name in facts if isinstance(value := getattr(entry, name), Enum)}


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_show(below)}" for key, below in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _price(entry: Entry) -> str:
    if entry.price_usd is None:
        return ""
    low, high = entry.price_usd
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
