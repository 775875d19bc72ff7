"""What a fabric costs: every switch, card and network cable once, and what has no price is said."""

from __future__ import annotations

import weft
from weft.fabric import catalog, faults
from weft.fabric.prices import make_bill


def test_a_bill_counts_switches_cards_and_network_cables() -> None:
    """A SuperPOD of 32 DGX H100: NVIDIA's own table has 8 leaves, 4 spines and 512 cables."""
    bill = make_bill(weft.load("superpod:su=1"))
    assert [(item.kind, item.name, item.count) for item in bill.items] == [
        ("switch", "QM9700", 12),
        ("adapter", "ConnectX-7", 256),
        ("cable", "NDR-DAC", 256),
        ("cable", "NDR-SR4", 256),
    ]
    assert bill.count("cable") == 512


def test_the_sum_is_of_what_has_a_price_and_the_rest_is_said() -> None:
    bill = make_bill(weft.load("superpod:su=1"))
    prices = [catalog.find(name).price_usd for name in ("QM9700", "ConnectX-7", "NDR-SR4")]
    assert all(prices)
    for end, told in ((0, bill.low_usd), (1, bill.high_usd)):
        assert told == sum(n * price[end] for n, price in zip((12, 256, 256), prices, strict=True) if price)
    assert [str(item) for item in bill.missing] == ["256 × NDR-DAC"]
    assert bill.complete  # switches and adapters have prices
    assert bill.report()["without_price"] == ["256 × NDR-DAC"]


def test_a_fabric_whose_switches_have_no_price_is_not_cheap() -> None:
    assert not make_bill(weft.load("star:hosts=2,server=host-xdr")).complete


def test_two_ports_of_a_dual_port_card_are_one_card() -> None:
    fabric = weft.load("fat-tree:hosts=3,server=dgx-h100+ConnectX-7-2P")
    (adapters,) = [item for item in make_bill(fabric).items if item.kind == "adapter"]
    assert (adapters.name, adapters.count) == ("ConnectX-7-2P", 12)  # 24 ports


def test_a_cable_that_was_pulled_is_not_paid_for() -> None:
    fabric = faults.remove_link(weft.load("superpod:su=1"), "leaf1/64")
    assert make_bill(fabric).count("cable") == 511
