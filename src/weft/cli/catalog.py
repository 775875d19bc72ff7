"""`weft catalog`, `weft topologies` and `weft links`: list parts, topologies and link speeds."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import TABLES, File, Form
from weft.cli.output import console, print_data, table
from weft.errors import find_named
from weft.units import format_gbit_s, gbyte_s

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
            fields = [
                (key, _show(value))
                for key, value in facts.items()
                if key == "p2p" or value not in ("", None, False, [], {})
            ]
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
        note = "Parameters: weft topologies NAME. Several subnets, joined by routers: subnets:2,of=SPEC"
        console().print(table("Topologies", ("topology", "description", "example"), rows, note))
    else:
        rows = [
            (p.name, p.meaning, "required" if p.required else "" if p.default is None else str(p.default))
            for p in entry.parameters
        ]
        usage = entry.usage.replace("[", " [")  # so that it can wrap
        console().print(table(usage, ("parameter", "meaning", "default"), rows, entry.summary), markup=False)


def links(*, form: Form = TABLES) -> None:
    """List link speeds: encoding, data rate by width, year."""
    from weft.fabric.rates import speeds

    if form.is_data:
        print_data(
            form,
            [
                {field: getattr(speed, field) for field in speed.__struct_fields__ if field != "index"}
                | {"rate_gbit_s": {f"{width}x": speed.rate_gbit_s(width) for width in speed.widths}}
                for speed in speeds()
            ],
        )
        return
    rows = [
        (
            speed.name,
            speed.technology.value,
            format_gbit_s(speed.lane_signal_gbit_s),
            speed.encoding,
            "  ".join(f"{width}x {format_gbit_s(speed.rate_gbit_s(width))}" for width in speed.widths),
            format_gbit_s(speed.rate_gbit_s()),
            format_gbit_s(gbyte_s(speed.rate_gbit_s())),
            str(speed.year) if speed.year else "planned",
        )
        for speed in speeds()
    ]
    heads = ("speed", "technology", "lane Gbit/s", "encoding", "data Gbit/s by width", "usual", "Gbyte/s", "year")
    note = "Data rate of one direction = lanes × lane rate × encoding. Sources: weft links --json"
    console().print(table("Link speeds", heads, rows, note))
