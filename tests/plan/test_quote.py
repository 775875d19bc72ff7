"""A vendor's quote compared with the bill."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft
from weft.errors import ConfigError
from weft.plan.bill import Bill
from weft.plan.quote import compare_quote, read_quote


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
    ],
)
def test_a_file_that_is_no_quote_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "quote.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=reason):
        read_quote(path)
