"""`weft bill`: list the parts of a fabric with their prices, or compare a vendor's quote with them."""

from __future__ import annotations

import sys
from dataclasses import asdict

from weft.cli.arguments import TABLES, File, Form, Spec
from weft.cli.output import console, print_data, progress_bar, table


def bill(spec: Spec, /, *, prices: File = None, quote: File = None, form: Form = TABLES) -> None:
    """List the parts of a fabric, or check a vendor's quote.

    With `--quote` the exit status is 1 if the quote differs from the bill.

    Parameters
    ----------
    prices
        A TOML file with your own prices, which replace weft's estimates. `weft catalog` has the names.
    quote
        A vendor's quote, CSV with the columns part, count and unit_usd: print what is missing, extra, or has another
        count or price.
    """
    from weft.api.purchases import bill as price
    from weft.plan.quote import compare_quote, read_quote

    lines = None if quote is None else read_quote(quote)
    with progress_bar(f"pricing {spec}"):
        result = price(spec, prices)
    if lines is not None:
        findings = compare_quote(result, lines)
        if form.is_data:
            print_data(form, [asdict(finding) for finding in findings])
        else:
            for finding in findings:
                print(f"{finding.kind}: {finding}")
            print(f"{len(findings)} differences" if findings else f"The quote has all parts of {spec}.")
        if findings:
            sys.exit(1)
        return
    if form.is_data:
        print_data(form, result.report(), "items")
        return
    rows = [
        (item.kind, item.order or item.name, item.length_m, item.count, str(item.price) if item.price else None)
        for item in result.items
    ]
    total = f"Total of priced items: {result.total} USD, {result.power_w:,.0f} W."
    console().print(table(spec, ("kind", "part", "m", "count", "USD each"), rows, total))
