"""Spare parts by failure rates."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from weft.errors import ConfigError
from weft.plan.floor.parts import list_parts
from weft.plan.plan import Plan, make_plan
from weft.plan.request import Request
from weft.plan.size import size
from weft.plan.spares import fewest, find_spares, read_rates, to_csv


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(size(Request(gpus=512)))


@pytest.mark.parametrize("mean", [0.0, 0.02, 0.7, 5.0, 400.0, 3000.0])
@pytest.mark.parametrize("probability", [0.5, 0.9, 0.999])
def test_fewest_is_the_quantile_of_poisson(mean: float, probability: float) -> None:
    number = fewest(mean, probability)

    def at_most(n: int) -> float:
        terms = (k * math.log(mean or 1) - mean - math.lgamma(k + 1) for k in range(n + 1 if mean else min(n + 1, 1)))
        return math.fsum(map(math.exp, terms))

    assert at_most(number) >= probability
    assert number == 0 or at_most(number - 1) < probability


def test_no_part_runs_out_with_the_probability(plan: Plan) -> None:
    """Failures drawn at random for all parts, 4,000 times: in 0.9 or more of them the spares are enough."""
    spares = find_spares([(plan.cabling, plan.bill)], read_rates(), probability=0.9, lead_weeks=52.18)
    rng = random.Random(1)

    def failures(mean: float) -> int:
        count, product = 0, rng.random()
        while product > math.exp(-mean):
            count, product = count + 1, product * rng.random()
        return count

    enough = sum(all(failures(s.failures_per_year) <= s.spares for s in spares) for _ in range(4_000))
    assert enough / 4_000 >= 0.9


def test_every_link_fails_once_whatever_it_is_made_of(plan: Plan) -> None:
    rates = read_rates()
    spares = find_spares([(plan.cabling, plan.bill)], rates, probability=0.99, lead_weeks=12)
    links = sum(spare.failures_per_year for spare in spares if spare.kind in ("cable", "transceiver"))
    assert links == pytest.approx(len(plan.cabling) * rates["link"].per_year)
    switches = next(spare for spare in spares if spare.kind == "switch")
    assert switches.installed == 24
    assert switches.failures_per_year == pytest.approx(24 * rates["switch"].per_year)
    ordered = {part.name for part in list_parts(plan.cabling) if part.kind != "fibre"}
    assert {spare.part for spare in spares} == ordered | {"QM9700", "ConnectX-7"}
    assert len(to_csv(spares).splitlines()) == len(spares) + 1


def test_own_rates_replace_those_of_weft(tmp_path: Path) -> None:
    file = tmp_path / "rates.toml"
    file.write_text('[switch]\nper_year = 0.5\nsource = "our tickets"\ndate = 2027-01-01\n')
    rates = read_rates(file)
    assert rates["switch"].per_year == 0.5
    assert rates["link"] == read_rates()["link"]
    file.write_text('[switch]\nper_year = -1\nsource = "wrong"\ndate = 2027-01-01\n')
    with pytest.raises(ConfigError, match="per_year"):
        read_rates(file)


@pytest.mark.parametrize(("probability", "weeks", "message"), [(1.0, 12, "up to 0.9999"), (0.9, 0, "--lead-weeks")])
def test_wrong_options_are_refused(plan: Plan, probability: float, weeks: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_spares([(plan.cabling, plan.bill)], read_rates(), probability=probability, lead_weeks=weeks)
