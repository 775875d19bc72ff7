"""What a fabric costs while it stands, and for what it trains: by hand."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.collectives.interconnect import build, respec
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.prices import Price, Prices, read_prices
from weft.plan.bill import Bill, Item, bill_of
from weft.plan.upkeep import Upkeep, pays, train, upkeep

HOUR_YEARS = 8_766 * 5


def price(low: float, high: float) -> Price:
    return Price(low_usd=low, high_usd=high, source="an offer", date=datetime.date(2026, 11, 2))


def bill(usd: float, power_w: float = 1_000.0) -> Bill:
    servers = Item(kind="server", name="dgx-h100", count=10, power_w=100_000.0)
    return Bill(
        items=(Item(kind="switch", name="x", count=1, price=price(usd, usd), power_w=power_w),), servers=(servers,)
    )


def run(tokens_per_s: float, name: str = "ndr", model: str = "llama3-70b", gpus: int = 80) -> Any:
    step = SimpleNamespace(tokens_per_s=tokens_per_s, transformer=SimpleNamespace(name=model))
    return SimpleNamespace(step=step, site=SimpleNamespace(name=name, gpus=gpus))


def kept(usd: float, tokens_per_s: float, **options: Any) -> Upkeep:
    """A kilowatt for a dollar and no losses: its electricity costs as much as there are hours."""
    made = upkeep(bill(usd), read_prices(), run=run(tokens_per_s, **options))
    return replace(made, pue=1, electricity=price(1, 1))


def own(folder: Path, **figures: float) -> Prices:
    path = folder / "quotes.toml"
    path.write_text(
        "".join(f'"{name}" = {{ value = {v}, source = "us", date = 2026-11-02 }}\n' for name, v in figures.items())
    )
    return read_prices(path)


def test_electricity_is_power_times_losses_times_hours_times_price(tmp_path: Path) -> None:
    made = upkeep(bill(1e6, power_w=2_000), own(tmp_path, **{"years of use": 2, "pue": 1.25}))
    assert made.energy_kwh(2_000) == pytest.approx(2 * 1.25 * 8_766 * 2)
    assert made.fabric.low_usd == pytest.approx(1e6 + 2 * 1.25 * 8_766 * 2 * 0.08)
    assert made.fabric.high_usd == pytest.approx(1e6 + 2 * 1.25 * 8_766 * 2 * 0.13)
    assert made.cluster is None  # the servers have no price
    assert made.per_tokens(made.fabric) is None  # nothing is trained


def test_tokens_cost_what_the_fabric_costs_over_those_it_trains() -> None:
    made = kept(1e6, 1e6)
    trained = HOUR_YEARS * 3600 * 1e6 / 1e12
    assert made.trained == pytest.approx(trained)
    cost = made.per_tokens(made.fabric)
    assert cost is not None
    assert cost.low_usd == pytest.approx((1e6 + HOUR_YEARS) / trained)
    assert made.report()["fabric_usd_per_1e12_tokens"] == (cost.low_usd, cost.high_usd)


def test_the_cluster_has_its_servers_and_their_power() -> None:
    one = bill(1e6)
    priced = replace(one, servers=(replace(one.servers[0], price=price(3e5, 3e5)),))
    made = replace(kept(1e6, 1e6), bill=priced)
    assert made.cluster is not None
    assert made.cluster.low_usd == pytest.approx(1e6 + 10 * 3e5 + (1 + 100) * HOUR_YEARS)


def test_the_dearer_fabric_pays_from_that_price_of_a_server_on() -> None:
    """At that price tokens of both cost the same: (F1 + S) / t1 = (F2 + S) / t2."""
    dear, cheap = kept(3e6, 1.1e6), kept(1e6, 1e6, name="roce-400")
    verdict = pays(cheap, dear)
    assert (verdict.dear, verdict.cheap) == (dear, cheap)
    assert verdict.server is not None
    servers = 10 * verdict.server.low_usd
    assert (dear.fabric.low_usd + servers) / 1.1e6 == pytest.approx((cheap.fabric.low_usd + servers) / 1e6)
    assert "trains 10 % more: it pays where a server costs more than" in str(verdict)


def test_cards_that_servers_are_sold_with_are_no_reason_to_pay_more_for_them() -> None:
    cards = Item(kind="adapter", name="ConnectX-7", count=80, price=price(4_000, 4_000))
    dear, cheap = kept(3e6, 1.1e6), kept(1e6, 1e6, name="roce-400")
    sold = replace(dear, bill=replace(dear.bill, items=(*dear.bill.items, cards)))
    assert pays(sold, cheap).server == pays(dear, cheap).server
    other = replace(cards, name="ConnectX-5-EN")
    beside = replace(dear, bill=replace(dear.bill, items=(*dear.bill.items, other)))
    assert beside.beside.low_usd == pytest.approx(dear.beside.low_usd + 80 * 4_000)


def test_a_dearer_fabric_that_is_no_faster_does_not_pay_and_one_much_faster_always_does() -> None:
    verdict = pays(kept(3e6, 1.0009e6), kept(1e6, 1e6))
    assert verdict.server is None
    assert str(verdict).endswith("it does not pay.")
    assert str(pays(kept(1.1e6, 2e6), kept(1e6, 1e6))).endswith("it pays at any price of servers.")


def test_years_pue_and_jobs_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for wrong in ({"years of use": 0}, {"PUE": 0.9}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            upkeep(bill(1), own(tmp_path, **wrong))
    with pytest.raises(ConfigError, match="give both a run"):
        pays(kept(1, 1), upkeep(bill(1), read_prices()))
    with pytest.raises(ConfigError, match="compare one job"):
        pays(kept(1, 1), kept(1, 1, model="llama3-8b"))


def test_a_model_is_trained_on_all_gpus_of_the_fabric_by_its_rules() -> None:
    wire = catalog.interconnect("eth-100-tcp")
    fabric = build(respec("superpod:su=1", wire, catalog.server("dgx-h100"), 2), wire)
    found = train("gpt-39.1b", fabric, wire)
    assert (found.site.gpus, found.site.name, found.site.options.network) == (16, "eth-100-tcp", "tcp")
    made = upkeep(bill_of(fabric, read_prices()), read_prices(), run=found)
    assert made.report()["tokens_per_s"] == found.step.tokens_per_s > 0
