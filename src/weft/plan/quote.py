"""Vendors' quotes compared with a bill: parts that are missing, extra, of another number or of another price.

    part,count,unit_usd
    QM9700,48,24000
    MCP4Y10-N001,86,310

A line names a part as the bill does: by the vendor's part number (`order`) or by its name. Lines of the same part are
added. `unit_usd` may be empty; a price is compared with the range of weft's, or with your own (`--prices`).
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from weft.errors import FileError
from weft.fabric.files.text import read_text
from weft.fabric.prices import Price
from weft.plan.bill import Bill

_PART, _COUNT, _PRICE = ("part", "order", "name", "sku"), ("count", "quantity", "qty"), ("unit_usd", "price", "unit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A part of a quote."""

    part: str
    count: int
    unit_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A difference between a quote and a bill."""

    kind: str  # missing, extra, count, price
    part: str
    billed: int
    quoted: int
    unit_usd: float | None  # quoted
    expected_usd: tuple[float, float] | None  # each, in the bill

    def __str__(self) -> str:
        match self.kind:
            case "missing":
                return f"{self.billed:,} × {self.part} are missing"
            case "extra":
                return f"{self.quoted:,} × {self.part} are not in the bill"
            case "count":
                return f"{self.part}: {self.quoted:,} quoted, {self.billed:,} needed"
        low, high = self.expected_usd or (0.0, 0.0)
        return f"{self.part}: {self.unit_usd:,.0f} USD each, expected {low:,.0f} to {high:,.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A quote with its total and its differences from the bills of a plan."""

    name: str  # the file
    priced_usd: float  # of the lines that have a price
    without_price: int  # parts of lines without
    findings: tuple[Finding, ...]

    def count(self, kind: str) -> int:
        """Return how many differences are of a kind."""
        return sum(finding.kind == kind for finding in self.findings)

    def report(self) -> dict[str, Any]:
        """Return the quote as `--json` prints it."""
        return {
            "name": self.name,
            "priced_usd": self.priced_usd,
            "without_price": self.without_price,
            "findings": [asdict(finding) for finding in self.findings],
        }


def compare_quotes(paths: Sequence[Path], bills: Sequence[Bill]) -> tuple[Quote, ...]:
    """Compare quotes, each a file, with all bills of a plan together: of the fabric and of the networks beside it."""
    first, *rest = bills
    all_bills = replace(first, items=(*first.items, *(item for bill in rest for item in bill.items)))
    quotes = []
    for path in paths:
        lines = read_quote(path)
        quotes.append(
            Quote(
                name=path.name,
                priced_usd=sum(line.count * line.unit_usd for line in lines if line.unit_usd is not None),
                without_price=sum(line.unit_usd is None for line in lines),
                findings=tuple(compare_quote(all_bills, lines)),
            )
        )
    return tuple(quotes)


def to_csv(quotes: Sequence[Quote]) -> str:
    """Return quotes.csv: a row for each difference."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(
        ("quote", "difference", "part", "billed", "quoted", "unit_usd", "expected_low_usd", "expected_high_usd")
    )
    for quote in quotes:
        for each in quote.findings:
            expected = each.expected_usd or ("", "")
            rows.writerow((quote.name, each.kind, each.part, each.billed, each.quoted, each.unit_usd, *expected))
    return out.getvalue()


def read_quote(path: Path) -> list[Line]:
    """Read a quote."""
    rows = list(csv.DictReader(read_text(path).splitlines()))
    if not rows:
        raise FileError(path, 1, "no lines", "a header such as part,count,unit_usd and a line for each part")
    columns = {(name or "").strip().lower(): name for name in rows[0] if name}
    part, count = (next((columns[name] for name in names if name in columns), None) for names in (_PART, _COUNT))
    price = next((columns[name] for name in _PRICE if name in columns), None)
    if part is None or count is None:
        raise FileError(path, 1, ",".join(columns), "columns part and count, and unit_usd where there are prices")
    return [
        _line(path, number, row[part], row[count], row[price] if price else "") for number, row in enumerate(rows, 2)
    ]


def _line(path: Path, number: int, part: str | None, count: str | None, price: str | None) -> Line:
    try:
        quantity = int((count or "").replace(",", ""))
        unit_usd = float(price.replace(",", "").lstrip("$")) if price and price.strip() else None
    except ValueError:
        raise FileError(path, number, f"{count}, {price}", "a whole number and a price in USD") from None
    if not part or not part.strip() or quantity < 0 or (unit_usd is not None and not 0 <= unit_usd < float("inf")):
        raise FileError(path, number, f"{part}, {count}, {price}", "a part, a number of 0 or more and a price")
    return Line(part=part.strip(), count=quantity, unit_usd=unit_usd)


def compare_quote(bill: Bill, quote: list[Line]) -> list[Finding]:
    """Return the differences: in the order of the bill, then extra parts in the order of the quote."""
    needed: Counter[str] = Counter()
    prices: dict[str, Price | None] = {}
    alias: dict[str, str] = {}
    for item in (*bill.items, *bill.servers):
        part = item.order or item.name
        needed[part] += item.count
        prices.setdefault(part, item.price)
        alias.setdefault(part.lower(), part)
    for item in bill.items:  # a name is enough where one part has it
        orders = {other.order or other.name for other in bill.items if other.name == item.name}
        if len(orders) == 1:
            alias.setdefault(item.name.lower(), orders.copy().pop())
    servers = {item.order or item.name for item in bill.servers}
    quoted: Counter[str] = Counter()
    for line in quote:
        quoted[alias.get(line.part.lower(), line.part)] += line.count
    findings = []
    for part, count in needed.items():
        if part not in quoted and part in servers:  # a network is often quoted alone
            continue
        if part not in quoted or quoted[part] != count:
            kind = "count" if quoted.get(part) else "missing"
            findings.append(_finding(kind, part, count, quoted.get(part, 0), None, prices[part]))
    for line in quote:
        part = alias.get(line.part.lower(), line.part)
        price = prices.get(part)
        if part not in needed:
            findings.append(_finding("extra", part, 0, line.count, line.unit_usd, None))
        elif price and line.unit_usd is not None and not price.low_usd <= line.unit_usd <= price.high_usd:
            findings.append(_finding("price", part, needed[part], quoted[part], line.unit_usd, price))
    return findings


def _finding(kind: str, part: str, billed: int, quoted: int, unit_usd: float | None, price: Price | None) -> Finding:
    expected = (price.low_usd, price.high_usd) if price else None
    return Finding(kind=kind, part=part, billed=billed, quoted=quoted, unit_usd=unit_usd, expected_usd=expected)
