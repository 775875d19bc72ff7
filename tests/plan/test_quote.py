"""A vendor's quote compared with the bill."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.prices import Price
from weft.plan.bill import Bill, Item
from weft.plan.quote import compare_quote, compare_quotes, read_quote, to_csv


@pytest.fixture(scope="module")
def bill() -> Bill:
    return weft.bill("superpod:su=1,servers=4")


def complete(bill: Bill) -> list[str]:
    prices = [(item.price.low_usd + item.price.high_usd) / 2 if item.price else "" for item in bill.items]
    return [f"{item.order or item.name},{item.count},{usd}" for item, usd in zip(bill.items, prices, strict=True)]


def differences(bill: Bill, lines: list[str], tmp_path: Path, head: str = "part,count,unit_usd") -> list[str]:
    path = tmp_path / "quote.csv"
    path.write_text("\n".join((head, *lines)), encoding="utf-8")
    return [f"{finding.kind}: {finding}" for finding in compare_quote(bill, read_quote(path))]


def test_a_quote_of_all_parts_has_no_differences(bill: Bill, tmp_path: Path) -> None:
    assert differences(bill, complete(bill), tmp_path) == []
    assert differences(bill, complete(bill), tmp_path, "SKU,Qty,Price") == []


def test_parts_that_are_missing_extra_or_of_another_number_are_named(bill: Bill, tmp_path: Path) -> None:
    first, *rest = complete(bill)
    part, count, usd = first.split(",")
    assert differences(bill, rest, tmp_path) == [f"missing: {count} × {part} are missing"]
    assert differences(bill, [*rest, f"{part},{int(count) + 1},{usd}"], tmp_path) == [
        f"count: {part}: {int(count) + 1} quoted, {count} needed"
    ]
    assert differences(bill, [first, *rest, "router,2,"], tmp_path) == ["extra: 2 × router are not in the bill"]


def test_a_price_outside_the_range_is_named(bill: Bill, tmp_path: Path) -> None:
    first, *rest = complete(bill)
    part, count, _ = first.split(",")
    (difference,) = differences(bill, [f"{part},{count},1", *rest], tmp_path)
    assert difference.startswith(f"price: {part}: 1 USD each, expected ")


def test_lines_of_a_part_are_added(bill: Bill, tmp_path: Path) -> None:
    first, *rest = complete(bill)
    part, count, usd = first.split(",")
    split = [f"{part},{int(count) - 1},{usd}", f"{part.lower()},1,{usd}"]
    assert differences(bill, [*split, *rest], tmp_path) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no lines"),
        ("color\nred", "columns part and count"),
        ("part,count\nQM9700,many", "a whole number and a price in USD"),
        ("part,count\nQM9700,-1", "a number of 0 or more"),
        ("part,count\n ,1", "a number of 0 or more"),
        ("part,count,price\nQM9700,1,-0.01", "a number of 0 or more"),
        ("part,count,price\nQM9700,1,inf", "a number of 0 or more"),
        ("part,count,price\nQM9700,1,cheap", r"quote.csv:2: .*a whole number and a price in USD"),
        ("part\nQM9700", "columns part and count"),
        ("count\n1", "columns part and count"),
    ],
)
def test_a_file_that_is_no_quote_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "quote.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=reason):
        read_quote(path)


PRICE = Price(low_usd=10.0, high_usd=1_200.0, source="an offer", date=datetime.date(2026, 11, 2))
SMALL = Bill(
    items=(
        Item(kind="switch", name="switch", count=2, price=PRICE),
        Item(kind="cable", name="copper", order="C-1", count=4, price=PRICE),
        Item(kind="cable", name="copper", order="C-2", count=5, price=PRICE),
        Item(kind="fibre", name="fibre", order="F-1", count=6),
    ),
    servers=(Item(kind="server", name="server", count=3, price=PRICE),),
)
ALL = ["switch,2,", "C-1,4,", "C-2,5,", "F-1,6,"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (ALL, []),  # without the servers
        ([" Switch ,2,", "c-1,4,", "C-2,5,", "FIBRE,6,"], []),  # a name is enough where one part has it
        (["switch,2,", "copper,9,", "F-1,6,"], ["missing: 4 × C-1 are missing", "missing: 5 × C-2 are missing"]),
        ([*ALL, "server,3,"], []),
        ([*ALL, "server,2,"], ["count: server: 2 quoted, 3 needed"]),
        (["switch,0,", *ALL[1:]], ["missing: 2 × switch are missing"]),
        (['switch,2,"$1,200"', *ALL[1:]], []),
        (["switch,2,1200.01", *ALL[1:]], ["price: switch: 1,200 USD each, expected 10 to 1,200"]),
        (["switch,2,10", *ALL[1:]], []),
        (["switch,2,0", *ALL[1:]], ["price: switch: 0 USD each, expected 10 to 1,200"]),
        ([*ALL[:3], "F-1,6,999999"], []),  # the bill has no price
        (['switch,"2,000",', *ALL[1:]], ["count: switch: 2,000 quoted, 2 needed"]),
    ],
)
def test_parts_are_matched_by_order_or_name_and_prices_by_their_range(
    lines: list[str], expected: list[str], tmp_path: Path
) -> None:
    assert [line for line in differences(SMALL, lines, tmp_path) if "copper are not in" not in line] == expected


def test_a_finding_has_the_numbers_and_prices_of_both(tmp_path: Path) -> None:
    path = tmp_path / "quote.csv"
    path.write_text("name,quantity,unit\nswitch,3,5\nrouter,1,7\nC-1,4,\nC-2,5,\n", encoding="utf-8")
    found = [
        (each.kind, each.part, each.billed, each.quoted, each.unit_usd, each.expected_usd)
        for each in compare_quote(SMALL, read_quote(path))
    ]
    assert found == [
        ("count", "switch", 2, 3, None, (10.0, 1200.0)),
        ("missing", "F-1", 6, 0, None, None),
        ("price", "switch", 2, 3, 5.0, (10.0, 1200.0)),
        ("extra", "router", 0, 1, 7.0, None),
    ]


def test_quotes_are_compared_with_the_bills_of_all_networks_together(tmp_path: Path) -> None:
    storage = Bill(items=(Item(kind="switch", name="switch", count=3, price=PRICE),))
    exact, short = tmp_path / "exact.csv", tmp_path / "short.csv"
    exact.write_text("part,count,unit_usd\nswitch,5,100\nC-1,4,20\nC-2,5,20\nF-1,6,\n", encoding="utf-8")
    short.write_text("part,count,unit_usd\nswitch,2,5000\nC-1,4,20\nC-2,5,20\n", encoding="utf-8")
    first, second = compare_quotes([exact, short], [SMALL, storage])
    assert (first.name, first.priced_usd, first.without_price, first.findings) == ("exact.csv", 680.0, 1, ())
    assert [str(each) for each in second.findings] == [
        "switch: 2 quoted, 5 needed",
        "6 × F-1 are missing",
        "switch: 5,000 USD each, expected 10 to 1,200",
    ]
    assert to_csv((first, second)).splitlines()[1:] == [
        "short.csv,count,switch,5,2,,10.0,1200.0",
        "short.csv,missing,F-1,6,0,,,",
        "short.csv,price,switch,5,2,5000.0,10.0,1200.0",
    ]
