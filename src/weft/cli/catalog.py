"""`weft catalog`: list parts with their source and date."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import TABLES, File, Form
from weft.cli.output import console, print_data, table

if TYPE_CHECKING:
    from weft.fabric.catalog import Entry
    from weft.fabric.prices import Prices


def catalog(name: str | None = None, /, *, prices: File = None, form: Form = TABLES) -> None:
    """List switches, adapters, GPUs, servers and cables.

    With NAME, show one entry and its sources.

    Parameters
    ----------
    name
        An entry: `QM9700`, `dgx-h100`.
    prices
        A TOML file with your own prices, which replace weft's estimates.
    """
    from weft.fabric import catalog as entries
    from weft.fabric.prices import read_prices

    price_list = read_prices(prices)

    if name is not None:
        facts = _facts(entries.find(name), price_list)
        if form.is_data:
            print_data(form, facts)
        else:
            fields = [(key, _show(value)) for key, value in facts.items() if value not in ("", None, [], {})]
            console().print(table(facts["name"], ("field", "value"), fields))
        return
    if form.is_data:
        print_data(form, [_facts(entry, price_list) for entry in entries.entries()])
        return
    rows = [
        (entry.kind, entry.name, entry.summary, _price(entry, price_list), str(entry.date))
        for entry in entries.entries()
    ]
    note = "Prices are rough estimates: give your own with --prices FILE. Sources: weft catalog NAME"
    console().print(table("Catalog", ("kind", "name", "description", "USD", "date"), rows, note))


def _facts(entry: Entry, prices: Prices) -> dict[str, Any]:
    import msgspec

    from weft.fabric.catalog import Cable

    facts = {"kind": entry.kind, **msgspec.to_builtins(entry)}
    facts |= {name: str(value.name) for name in facts if isinstance(value := getattr(entry, name), Enum)}
    price, link = prices.of(entry), prices.link(entry) if isinstance(entry, Cable) else None
    price_facts = {f"price_{name}": value for name, value in price.report().items()} if price else {}
    return facts | price_facts | ({"price_of_a_link_usd": (link.low_usd, link.high_usd)} if link else {})


def _price(entry: Entry, prices: Prices) -> str:
    """Return the price; for optics that of a whole link, since its transceivers and fibres are ordered separately."""
    from weft.fabric.catalog import Cable

    link = prices.link(entry) if isinstance(entry, Cable) and entry.transceivers else None
    return f"{link} a link" if link else str(prices.of(entry) or "")


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_show(below)}" for key, below in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
