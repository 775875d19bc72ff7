"""The rule: the cheapest unit of work within the budget; differences below the model's accuracy are ties."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from weft.advise import rule
from weft.advise.case import Case
from weft.advise.rows import Point, Row
from weft.advise.rule import NOTHING, decide
from weft.advise.sensitivity import find_flips
from weft.advise.workloads import Option, Timed, options
from weft.collectives.nccl import calibration
from weft.fabric.prices import Band
from weft.training.validate import validate

CASE = Case(servers=16)
INFINIBAND, ROCE, *_, ETHERNET = options(CASE)
SERVERS_USD = 1000.0


def row(option: Option, seconds: float, price_usd: float) -> Row:
    return Row(
        option=option,
        timed=Timed(seconds=seconds, free_s=0.5),
        price=Band(low_usd=0.9 * price_usd, high_usd=1.1 * price_usd),
        power_w=0.0,
        unit_usd=(SERVERS_USD + price_usd) * seconds,
    )


def rows(infiniband: tuple[float, float], roce: tuple[float, float], ethernet: tuple[float, float]) -> list[Row]:
    return [row(INFINIBAND, *infiniband), row(ROCE, *roce), row(ETHERNET, *ethernet)]


@pytest.mark.parametrize(
    ("fabric_rows", "answer"),
    [
        (rows((1.0, 200), (1.2, 90), (5.0, 80)), "InfiniBand"),  # 1200, 1308, 5400
        (rows((1.0, 200), (1.0, 90), (5.0, 80)), "RoCE"),  # as fast, and cheaper
        (rows((1.0, 200), (1.1, 90), (5.0, 80)), "either InfiniBand or RoCE"),  # 1200 and 1199: one faster, one cheaper
        (rows((1.0, 130), (1.02, 90), (1.04, 80)), "Ethernet"),  # all cost the same, none is slower by more than 5 %
    ],
)
def test_fabric_with_the_cheapest_unit_of_work_wins(fabric_rows, answer):
    assert decide(fabric_rows, CASE).answer == answer


def test_fabrics_over_the_budget_are_left_out():
    arguments = rows((1.0, 200), (1.2, 90), (5.0, 80))
    result = decide(arguments, replace(CASE, budget_usd=199))
    assert result.answer == "RoCE"
    assert [item.option.answer for item in result.too_dear] == ["InfiniBand"]
    assert decide(arguments, replace(CASE, budget_usd=79)).answer == NOTHING
    assert result.fastest.option is INFINIBAND


def test_team_decides_between_equal_fabrics():
    arguments = rows((1.0, 200), (1.1, 90), (5.0, 80))
    assert [decide(arguments, replace(CASE, team=team)).chosen[0].option.answer for team in ("", "infiniband")] == [
        "RoCE",
        "InfiniBand",
    ]


class Bench:
    """A bench with fixed times and a variable price of InfiniBand."""

    def __init__(self, case: Case, infiniband: tuple[float, float]) -> None:
        self.case, self._infiniband = case, infiniband

    def rows(self, point: Point | None = None) -> list[Row]:
        at = point or Point(case=self.case)
        seconds, price_usd = self._infiniband
        return rows((seconds, price_usd * at.infiniband * (1 + at.risk)), (1.2, 90), (5.0, 80))


def test_flips_are_at_the_prices_where_the_rule_changes_its_answer():
    """RoCE's unit costs 1.2 x 1090 = 1308. InfiniBand's is alone below 1308 / 1.05, so up to a price of 245.7; and no
    answer any more from 1.05 x 1308 on, 373.4: prices are times 200."""
    bench = Bench(CASE, (1.0, 200))
    result = {flip.by: flip for flip in find_flips(bench, decide(bench.rows(), CASE))}
    assert result["dearer InfiniBand"].at == pytest.approx(245.7 / 200, rel=0.02)
    assert result["dearer InfiniBand"].answer == "either InfiniBand or RoCE"
    assert result["vendor risk"].at == pytest.approx(245.7 / 200, rel=0.02)
    assert "23 %" in result["vendor risk"].where or "24 %" in result["vendor risk"].where
    assert result["cheaper InfiniBand"].at is None
    assert result["smaller budget"].at == pytest.approx(200)
    assert result["smaller budget"].answer == "RoCE"
    assert result["more GPUs"].at is None
    assert result["more GPUs"].where == "up to 16,384 GPUs"


def test_messages_beyond_the_largest_size_and_rate_are_not_made_larger_or_more_frequent():
    case = Case(workload="mpi", servers=16, message_bytes=2 << 30, rate_per_s=2e6)
    bench = Bench(case, (1.0, 200))
    searched = {flip.by for flip in find_flips(bench, decide(bench.rows(), case))}
    assert {"smaller messages", "less often"} < searched
    assert searched.isdisjoint({"larger messages", "more often"})


def test_a_smaller_budget_changes_an_answer_of_two_fabrics_below_the_price_of_the_dearer():
    bench = Bench(CASE, (1.0, 300))
    verdict = decide(bench.rows(), CASE)
    assert verdict.answer == "either InfiniBand or RoCE"
    result = {flip.by: flip for flip in find_flips(bench, verdict)}
    assert (result["smaller budget"].at, result["smaller budget"].answer) == (pytest.approx(300), "RoCE")


def test_errors_quoted_in_docs_are_those_of_the_calibration():
    collectives = [figure for run in calibration.runs() for figure in calibration.compare(run)]
    means = [sum(abs(item.error) for item in rows) / len(rows) for rows in (validate(), collectives)]
    document = (Path(__file__).parents[2] / "docs" / "advise.md").read_text()
    named = r"training steps are (\d+) % off published ones in the mean, (?:its )?collectives (\d+) %"
    for text in (rule.__doc__ or "", document):
        output = re.search(named, text)
        assert output is not None
        assert [int(figure) for figure in output.groups()] == [round(100 * mean) for mean in means]
