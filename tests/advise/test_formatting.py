"""The sentences of an advice, from rows with chosen times and prices; nothing runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from weft.advise import formatting
from weft.advise.advice import Advice, PublishedAdvice, _counted
from weft.advise.case import Case, find_workload
from weft.advise.rows import Row
from weft.advise.rule import decide
from weft.advise.workloads import Option, Timed, options, storage_servers
from weft.errors import ConfigError
from weft.fabric.prices import Band

CASE = Case(servers=16)
IB, ROCE, *_, ETHERNET = options(CASE)
FABRICS = ((1.0, 200.0), (1.2, 90.0), (5.0, 80.0))  # seconds and price of InfiniBand, RoCE and Ethernet


def row(option: Option, seconds: float, price_usd: float, free_s: float = 0.5) -> Row:
    price = Band(low_usd=0.9 * price_usd, high_usd=1.1 * price_usd)
    unit_usd = (1000 + price_usd) * seconds
    return Row(option=option, timed=Timed(seconds=seconds, free_s=free_s), price=price, power_w=0.0, unit_usd=unit_usd)


def advice(*fabrics: tuple[float, float], left_out: dict[str, str] | None = None, **case: Any) -> Advice:
    own = replace(CASE, **case)
    rows = tuple(map(row, (IB, ROCE, ETHERNET), *zip(*fabrics, strict=True)))
    return Advice(
        case=own,
        rows=rows,
        left_out=left_out or {},
        verdict=decide(rows, own),
        search_flips=tuple,
        published=(),
        counted=_counted(own),
    )


@pytest.mark.parametrize(
    ("case", "counted"),
    [({}, "10^9 tokens"), ({"workload": "storage"}, "TB read"), ({"workload": "mpi"}, "10^6 iterations")],
)
def test_work_is_counted_in_tokens_bytes_or_units(case, counted):
    assert _counted(replace(CASE, **case)) == counted


@pytest.mark.parametrize(
    ("case", "phrase"),
    [
        ({}, "128 GPUs (16 × dgx-h100), training of llama3-70b, 2 sequences a GPU"),
        ({"tokens": 2**20}, "128 GPUs (16 × dgx-h100), training of llama3-70b, 1.05 M tokens a step"),
        (
            {"workload": "web", "server": "host"},
            "16 servers, web: a call of another server and its answer, 4 KiB, 1,000",
        ),
        ({"workload": "batch"}, "128 GPUs (16 × dgx-h100), batch: a question and its answer, 4 KiB, 1 a second"),
        (
            {"workload": "mpi", "message_bytes": 64, "rate_per_s": 2.5},
            "128 GPUs (16 × dgx-h100), mpi: an all-reduce between all servers, 64 bytes, 2.5 a second",
        ),
    ],
)
def test_the_case_is_a_phrase(case, phrase):
    own = advice(*FABRICS)
    assert formatting.describe_case(replace(own, case=replace(CASE, **case))).startswith(phrase)


@pytest.mark.parametrize(
    ("fabrics", "case", "sentence"),
    [
        (FABRICS, {}, f"You need InfiniBand: take {IB.label}."),
        (((1.0, 200), (1.0, 90), (5.0, 80)), {}, f"You do not need InfiniBand: take {ROCE.label}."),
        (
            ((1.0, 200), (1.1, 90), (5.0, 80)),
            {},
            f"Either will do: {ROCE.label} (it is cheaper to buy), or {IB.label}.",
        ),
        (
            ((1.0, 200), (1.1, 90), (5.0, 80)),
            {"team": "infiniband"},
            f"Either will do: {IB.label} (your team knows it), or {ROCE.label}.",
        ),
        (
            ((1.0, 200), (1.1, 90), (5.0, 80)),
            {"team": "ethernet"},
            f"Either will do: {ROCE.label} (your team knows it), or {IB.label}.",
        ),
        (FABRICS, {"servers": 1}, "You need no fabric: there is only one server."),
        (FABRICS, {"budget_usd": 10.0}, f"No fabric fits the budget of 10 USD. The cheapest, {ETHERNET.label}, costs"),
    ],
)
def test_the_answer_is_one_sentence(fabrics, case, sentence):
    assert formatting.headline(advice(*fabrics, **case)).startswith(sentence)


def reasons(*fabrics: tuple[float, float], **case: Any) -> str:
    return "\n".join(formatting.reasons(advice(*fabrics, **case)))


def test_reasons_have_times_prices_and_costs_relative_to_the_best():
    time, money = reasons(*FABRICS).splitlines()
    lost = "50.0 % of it lost to the network"
    assert time == (f"One step takes 1.00 s, {lost}; {ROCE.label} 20 % longer, {ETHERNET.label} 5.0 times as long.")
    assert f"cards included; {ROCE.label} 0.45 times as much, {ETHERNET.label} 0.4 times as much." in money
    assert "10^9 tokens cost 1,200 USD" in money
    assert money.endswith(f"{ROCE.label} +9 %, {ETHERNET.label} +350 %.")


def test_reasons_without_a_fabric_to_buy_or_to_pay():
    assert reasons(*FABRICS, budget_usd=10.0) == ""
    assert "to buy" not in reasons(*FABRICS, cloud=True)
    assert "One server needs no fabric: nothing is bought." in reasons((1, 0), (1, 0), (1, 0), servers=1)
    assert "the GPUs of a server talk over NVLink." in reasons((1, 0), (1, 0), (1, 0), servers=1)
    assert "NVLink" not in reasons(*FABRICS)


def test_a_faster_fabric_is_named_only_if_it_is_not_among_the_answers_and_not_as_fast():
    assert f"If only time counts: {IB.label}, 4 % faster." in reasons((1.0, 900), (1.04, 90), (5.0, 80))
    assert "If only time counts" not in reasons((1.0, 900), (1.004, 90), (5.0, 80))
    assert "If only time counts" not in reasons((1.0, 200), (1.1, 90), (5.0, 80))


def test_fabrics_over_the_budget_and_those_left_out_are_named():
    assert f"{IB.label} is over the budget:" in reasons(*FABRICS, budget_usd=199)
    own = advice(*FABRICS, left_out={"XDR": "too small"})
    assert "XDR is left out: too small." in list(formatting.reasons(own))


def test_a_team_that_knows_the_other_fabric_is_told_to_plan_for_learning():
    assert "Your team knows ethernet" in reasons(*FABRICS, team="ethernet")
    assert "Your team knows" not in reasons(*FABRICS, team="infiniband")
    assert "Your team knows" not in reasons(*FABRICS)


def test_a_batch_of_more_than_twice_the_usual_tokens_is_noted():
    assert "--batch-tokens" in reasons(*FABRICS, tokens=64e6)
    assert "--batch-tokens" not in reasons(*FABRICS, tokens=4e6)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (1.0, "as long"),
        (0.996, "as long"),
        (0.9, "10 % less"),
        (1.02, "2 % longer"),
        (1.9951, "100 % longer"),
        (2.0, "2.0 times as long"),
    ],
)
def test_differences_of_times(times, words):
    assert formatting._difference(times) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0004, "the same"), (-0.0005, "-0.05 %"), (0.99, "+99 %"), (1.0, "+100 %"), (12.3, "+1,230 %")],
)
def test_differences_of_costs(share, words):
    assert formatting._sign(share) == words


def test_costs_and_losses_are_shown_short():
    assert [formatting._usd(usd) for usd in (0.12345, 99.94, 100, 1234.5)] == ["0.123", "99.9", "100", "1,234"]
    lost = [formatting._lost(row(IB, 1.0, 1.0, free_s=free_s)) for free_s in (0.9994, 0.99951, 2.0)]
    assert lost == ["0.1 % of it lost to the network", *["none of it lost to the network"] * 2]
    assert [formatting.price_usd(row(IB, 1.0, usd)) for usd in (0.0, 1e6)] == ["nothing", "0.9 to 1.1 million"]


def test_a_published_recommendation_is_compared_with_the_answer():
    own = advice(*FABRICS)
    quoted = PublishedAdvice(quote="Take it", source="a book", answers=("RoCE",), verdict="InfiniBand", agrees=False)
    compared = formatting.compare_with_published(own, quoted)
    assert compared == (
        f'"Take it" (a book). Not here: on {ROCE.label} one step takes 20 % longer, and 10^9 tokens cost +9 %.'
    )
    several = replace(quoted, answers=("Ethernet", "RoCE"))  # the one with the cheapest unit of work
    assert formatting.compare_with_published(own, several) == compared
    assert "cost" not in formatting.compare_with_published(advice(*FABRICS, cloud=True), quoted)
    same = replace(quoted, answers=("InfiniBand",), agrees=True)
    assert formatting.compare_with_published(own, same).endswith("The same here.")
    either = replace(same, verdict="either InfiniBand or RoCE")
    assert formatting.compare_with_published(own, either).endswith("Here either InfiniBand or RoCE.")
    unpaid = advice(*FABRICS, budget_usd=10.0)
    assert formatting.compare_with_published(unpaid, quoted).endswith("Here: InfiniBand.")


def test_vendor_risk_has_a_price_only_if_infiniband_is_bought():
    assert "replaced whole: another" in formatting.vendor_risk(advice(*FABRICS))
    for own in (advice(*FABRICS, cloud=True), advice((1, 0), (1, 0), (1, 0))):
        assert "replaced whole. It has" in formatting.vendor_risk(own)


def test_limits_of_a_case():
    assert Case(servers=2048).gpus == 16_384
    for servers, error in ((2049, "16,392 GPUs are too many"), (0, "--servers must be 1 or more")):
        with pytest.raises(ConfigError, match=error):
            Case(servers=servers)
    with pytest.raises(ConfigError, match="the storage workload needs a fabric"):
        Case(workload="storage", servers=1)
    assert Case(workload="storage", servers=2).bytes_sent == 128 << 20
    assert Case(servers=1).bytes_sent == 0
    assert Case(servers=1).chosen_model != Case(servers=2).chosen_model == "llama3-70b"
    assert Case(servers=3, server="host", workload="web").gpus == 3


def test_names_of_workloads_and_numbers_of_storage_servers():
    aliases = {name: find_workload(name).name for name in ("parallel-fs", "serving", "single", "mpi")}
    assert aliases == {"parallel-fs": "storage", "serving": "inference", "single": "single-node", "mpi": "mpi"}
    assert [storage_servers(n) for n in (1, 8, 9, 16)] == [1, 1, 2, 2]


def test_fabrics_at_the_budget_are_paid_and_ties_go_to_the_simpler_fabric():
    at_budget = advice(*FABRICS, budget_usd=200.0)
    assert at_budget.verdict.too_dear == ()
    assert advice((1.0, 100), (1.0, 100), (1.0, 100)).answer == "Ethernet"


def test_storage_on_the_other_fabric_is_discussed_only_if_such_fabrics_were_compared():
    assert len(reasons(*FABRICS, workload="storage").splitlines()) == 2
