"""What a fabric costs: every switch, card and network cable once, and what has no price is said."""

from __future__ import annotations

import weft
from weft.fabric import catalog, faults
from weft.fabric.prices import read_prices
from weft.plan.bill import Bill, bill_of


def of(spec: str) -> Bill:
    return bill_of(weft.load(spec), read_prices())


def test_a_bill_counts_switches_cards_and_network_cables() -> None:
    """A SuperPOD of 32 DGX H100: NVIDIA's own table has 8 leaves, 4 spines and 512 cables."""
    bill = of("superpod:su=1")
    assert [(item.kind, item.name, item.count) for item in bill.items] == [
        ("switch", "QM9700", 12),
        ("adapter", "ConnectX-7", 256),
        ("cable", "NDR-DAC-split", 256),
        ("cable", "NDR-SR4", 256),
    ]
    assert bill.count("cable") == 512


def test_everything_is_in_the_sum() -> None:
    """By hand: ports at 500 to 1,000, cards at 3,000 to 5,000, copper at 50 to 100, optics at 586 to 781."""
    bill = of("superpod:su=1")
    assert bill.low_usd == 12 * 64 * 500 + 256 * (3_000 + 50 + 586)
    assert bill.high_usd == 12 * 64 * 1_000 + 256 * (5_000 + 100 + 781)
    assert not bill.missing
    assert bill.complete


def test_a_fabric_whose_switches_have_no_price_is_not_cheap() -> None:
    bill = of("star:hosts=2,server=host-opa100")
    assert not bill.complete
    assert [str(item) for item in bill.missing] == ["1 × 100SWE48", "2 × 100HFA016"]
    assert bill.report()["without_price"] == ["1 × 100SWE48", "2 × 100HFA016"]


def test_two_ports_of_a_dual_port_card_are_one_card() -> None:
    (adapters,) = [
        item for item in of("fat-tree:hosts=3,server=dgx-h100+ConnectX-7-2P").items if item.kind == "adapter"
    ]
    assert (adapters.name, adapters.count) == ("ConnectX-7-2P", 12)  # 24 ports
    assert adapters.price == read_prices().of(catalog.adapter("ConnectX-7-2P"))


def test_a_cable_that_was_pulled_is_not_paid_for() -> None:
    fabric = faults.remove_link(weft.load("superpod:su=1"), "leaf1/64")
    assert bill_of(fabric, read_prices()).count("cable") == 511
