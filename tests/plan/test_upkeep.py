"""Running costs of a fabric, also per trained token: computed by hand."""

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
from weft.plan.upkeep import Upkeep, train, upkeep

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
    """Return an upkeep without losses, with a dollar per kWh: its electricity costs one dollar per kW and hour."""
    result = upkeep(bill(usd), read_prices(), run=run(tokens_per_s, **options))
    return replace(result, pue=1, electricity=price(1, 1))


def own(folder: Path, **figures: float) -> Prices:
    path = folder / "quotes.toml"
    path.write_text(
        "".join(f'"{name}" = {{ value = {v}, source = "us", date = 2026-11-02 }}\n' for name, v in figures.items())
    )
    return read_prices(path)


def test_electricity_is_power_times_losses_times_hours_times_price(tmp_path: Path) -> None:
    result = upkeep(bill(1e6, power_w=2_000), own(tmp_path, **{"years of use": 2, "pue": 1.25}))
    assert result.energy_kwh(2_000) == pytest.approx(2 * 1.25 * 8_766 * 2)
    assert result.fabric.low_usd == pytest.approx(1e6 + 2 * 1.25 * 8_766 * 2 * 0.08)
    assert result.fabric.high_usd == pytest.approx(1e6 + 2 * 1.25 * 8_766 * 2 * 0.13)
    assert result.cluster is None  # the servers have no price
    assert result.per_tokens(result.fabric) is None  # nothing is trained


def test_tokens_cost_what_the_fabric_costs_over_those_it_trains() -> None:
    result = kept(1e6, 1e6)
    trained = HOUR_YEARS * 3600 * 1e6 / 1e12
    assert result.trained == pytest.approx(trained)
    cost = result.per_tokens(result.fabric)
    assert cost is not None
    assert cost.low_usd == pytest.approx((1e6 + HOUR_YEARS) / trained)
    assert result.report()["fabric_usd_per_1e12_tokens"] == (cost.low_usd, cost.high_usd)


def test_the_cluster_has_its_servers_and_their_power() -> None:
    item = bill(1e6)
    priced = replace(item, servers=(replace(item.servers[0], price=price(3e5, 3e5)),))
    result = replace(kept(1e6, 1e6), bill=priced)
    assert result.cluster is not None
    assert result.cluster.low_usd == pytest.approx(1e6 + 10 * 3e5 + (1 + 100) * HOUR_YEARS)


def test_years_and_a_pue_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for wrong in ({"years of use": 0}, {"PUE": 0.9}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            upkeep(bill(1), own(tmp_path, **wrong))


def test_a_model_is_trained_on_all_gpus_of_the_fabric_by_its_rules() -> None:
    wire = catalog.interconnect("eth-100-tcp")
    fabric = build(respec("superpod:su=1", wire, catalog.server("dgx-h100"), 2), wire)
    result = train("gpt-39.1b", fabric, wire)
    assert (result.site.gpus, result.site.name, result.site.options.network) == (16, "eth-100-tcp", "tcp")
    created = upkeep(bill_of(fabric, read_prices()), read_prices(), run=result)
    assert created.report()["tokens_per_s"] == result.step.tokens_per_s > 0
