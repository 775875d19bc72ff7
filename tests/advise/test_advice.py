"""The cases of the documents, each by the rule; what weft's runs contradict is said with figures."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import pytest

from weft.advise import advice, words
from weft.advise.advice import Advice, advise
from weft.advise.case import Case
from weft.advise.facts import facts
from weft.advise.flips import find_flips
from weft.advise.option import options
from weft.advise.questions import ask
from weft.advise.report import report
from weft.advise.rows import Bench, Point, middle
from weft.advise.rule import decide
from weft.errors import ConfigError
from weft.fabric.prices import read_prices
from weft.plan.bill import bill_of
from weft.plan.request import Request
from weft.plan.size import size
from weft.plan.upkeep import train, upkeep

THREE_LAYERS = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 3,
    "vocab_size": 128_256,
    "max_position_embeddings": 16_384,
}


@pytest.fixture(scope="module")
def trained() -> tuple[Advice, Bench]:
    """1,024 GPUs: no flips, which take longer than the runs."""
    benches = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advice, "find_flips", lambda bench, *_: benches.append(bench) or ())
        return advise(Case(servers=128, model="gpt-7.5b")), benches[0]


@pytest.fixture(scope="module")
def large(trained) -> Advice:
    return trained[0]


def test_a_server_of_ones_own_and_one_faster_than_any_roce(tmp_path):
    """Each with the price that its line has; the fastest RoCE stands beside XDR, on the same ConnectX-8."""
    own, quotes = tmp_path / "my-server.yaml", tmp_path / "mine.toml"
    own.write_text("like: dgx-b300\n")
    case = {"workload": "mpi", "servers": 4, "server": str(own)}
    with pytest.raises(ConfigError, match=r"my-server.yaml has no price.*\"my-server.yaml\" = { usd = "):
        Bench(Case(**case))
    quotes.write_text('"my-server.yaml" = { usd = 450_000, source = "offer", date = 2026-11-02 }')
    found = Bench(Case(**case, prices=read_prices(quotes))).rows()
    assert [row.option.wire.name for row in found] == ["xdr", "roce-400", "eth-100-tcp"]
    assert all(row.power_w for row in found)
    assert all(row.unit_usd > 0 for row in found)


def test_a_batch_far_larger_than_usual_is_named(large):
    assert not any("M tokens" in reason for reason in words.reasons(large))
    huge = replace(large, case=replace(large.case, sequences=64))  # of 2,048 tokens on 1,024 GPUs
    assert any("134 M tokens, and large models are trained with about 16 M" in reason for reason in words.reasons(huge))
    assert words.asked(replace(large, case=replace(large.case, tokens=1e6))).endswith("1.05 M tokens a step")


def test_training_on_a_thousand_gpus(large):
    """The overview says InfiniBand. It is the fastest; RoCE is so near that its price decides, and that is said."""
    assert large.verdict.fastest.option.answer == "InfiniBand"
    assert large.answer == "RoCE"
    assert large.row("InfiniBand").seconds > 0.95 * large.row("RoCE").seconds
    assert large.row("InfiniBand").price_usd > 1.8 * large.row("RoCE").price_usd
    for row in large.rows:
        low_s, high_s = row.report()["band_s"]
        assert low_s < row.seconds < high_s
    assert large.row("Ethernet").seconds > 1.2 * large.row("RoCE").seconds
    said = {one.quote: one for one in large.said}
    assert not said["AI training (1000+ GPU): InfiniBand NDR"].agrees
    assert said["Maximum performance: InfiniBand"].agrees
    told = words.elsewhere(large, said["AI training (1000+ GPU): InfiniBand NDR"])
    assert "Not here: on NDR InfiniBand one step takes" in told
    assert "10^9 tokens cost +" in told


def test_vendor_risk_is_stated_with_its_bill_and_not_in_the_answer(large):
    told = words.vendor_risk(large)
    assert "InfiniBand comes from NVIDIA alone" in told
    assert f"another {large.row('InfiniBand').price.short} USD" in told
    assert "Cornelis" in told


def test_a_small_cluster_that_trains_needs_no_infiniband(trained):
    """Under 64 GPUs, and under 16 nodes: by closed forms, each GPU with as much to do."""
    bench = trained[1]
    small = bench.rows(Point(case=replace(bench.case, servers=4)))
    infiniband, roce, _ = small
    assert "InfiniBand" not in decide(small, bench.case).answer
    assert infiniband.seconds == pytest.approx(bench.rows()[0].seconds, rel=0.1)
    assert roce.seconds == pytest.approx(infiniband.seconds, rel=0.01)
    assert infiniband.price_usd < bench.rows()[0].price_usd / 20


def test_tokens_cost_what_a_plan_says_they_do(tmp_path):
    """`weft plan --train` and advice: one job, one layout, one bill. Few layers, sequences worth cutting."""
    model, prices = tmp_path / "config.json", read_prices()
    model.write_text(json.dumps(THREE_LAYERS))
    for row in Bench(Case(servers=2, model=str(model))).rows():
        fabric = size(Request(servers=2, fabric=row.option.wire.name)).fabric
        kept = upkeep(bill_of(fabric, prices), prices, run=train(str(model), fabric, row.option.wire))
        assert row.unit_usd == pytest.approx(middle(kept.per_tokens(kept.cluster)) / 1_000)


def test_infiniband_that_costs_more_or_is_bought_twice(trained):
    """Cards in a server's price cost the same there; who replaces a fabric buys cards too."""
    bench = trained[1]
    case, kept = bench.case, 5 * 8_766 * 3_600
    (bill,) = bench._bills_of(options(case)[0], case.servers)
    plain, dearer, twice = (
        bench.rows(Point(case=case, **changed))[0] for changed in ({}, {"infiniband": 2.0}, {"risk": 1.0})
    )
    each_usd = plain.seconds / bench.work.made(case) / kept
    cards = sum(middle(item.total) for item in bill.of_kind("adapter"))
    assert plain.price == bill.total
    assert dearer.price_usd == twice.price_usd == pytest.approx(2 * plain.price_usd)
    assert twice.unit_usd - plain.unit_usd == pytest.approx(plain.price_usd * each_usd)
    assert dearer.unit_usd - plain.unit_usd == pytest.approx((plain.price_usd - cards) * each_usd)


def test_a_size_that_no_fabric_joins_ends_the_search_and_is_said():
    case = Case(workload="mpi", servers=4, server="dgx-a100", rate_per_s=100)
    bench = Bench(case)
    more = next(flip for flip in find_flips(bench, decide(bench.rows(), case)) if flip.by == "more GPUs")
    assert more.at is None
    assert more.shown == "up to 8,192 GPUs; beyond, 2,048 servers are more than any of the fabrics joins"


def test_checkpoints_to_ethernet_make_steps_longer(trained):
    work, case = trained[1].work, replace(trained[1].case, servers=8)
    roce = options(case)[1]
    written, none = (work.guess(replace(roce, storage=storage), case).seconds for storage in ("ethernet", "none"))
    written_s = 14 * work.transformer.parameters / 25e9  # one storage server, two adapters of 100G
    assert written / none == pytest.approx(1 + written_s / 1800, rel=1e-3)


@pytest.fixture(scope="module")
def busy() -> Advice:
    """Dozens of nodes, many thousands of all-reduces in a second."""
    return advise(Case(workload="mpi", servers=32, rate_per_s=50_000))


def test_mpi_at_scale(busy):
    """Against TCP InfiniBand is the only option, as the article says; RoCE is 6 % behind, and cheaper."""
    assert busy.answer == "either InfiniBand or RoCE"
    assert busy.row("Ethernet").seconds > 5 * busy.row("InfiniBand").seconds
    assert 1.05 < busy.row("RoCE").seconds / busy.row("InfiniBand").seconds < 1.1


def test_flips_are_where_the_rule_says_another_thing(busy):
    """Run beyond its flip, the answer is the other one."""
    flips = {flip.by: flip for flip in busy.flips}
    assert flips["fewer GPUs"].answer == "RoCE"
    assert flips["more GPUs"].answer == flips["more often"].answer == "InfiniBand"
    assert flips["less often"].answer == flips["dearer InfiniBand"].answer == flips["vendor risk"].answer == "RoCE"
    there = replace(busy.case, rate_per_s=0.95 * flips["less often"].at)
    assert decide(Bench(there).rows(), there).answer == "RoCE"


def test_a_cloud_sells_no_switches_and_its_ethernet_is_slower():
    case = Case(workload="mpi", servers=4, cloud=True)
    rows = Bench(case).rows()
    assert {row.price_usd for row in rows} == {0.0}
    assert decide(rows, case).answer == "InfiniBand"  # 14.5 µs more for each message between virtual machines
    assert rows[1].seconds - rows[0].seconds > 2 * 14e-6


def test_advice_as_data_has_all_that_the_screen_has(busy):
    told = report(busy)
    assert told["answer"] == busy.answer
    assert [one["fabric"] for one in told["fabrics"]] == ["ndr", "roce-400", "eth-100-tcp"]
    assert {"by", "at", "answer", "shown"} == set(told["flips"][0])
    assert told["options"]["rate_per_s"] == 50_000
    assert len(told["reasons"]) >= 2
    assert all(one["unit_usd"] > 0 and one["power_w"] > 0 for one in told["fabrics"])


def test_facts_have_sources_and_dates():
    stated = [*facts()["vendors"].values(), facts()["clouds"]]
    assert all(one["source"] and isinstance(one["date"], datetime.date) for one in stated)
    assert all(one["source"] and one["quote"] for one in facts()["said"])


def asking(*answers: str) -> tuple[dict[str, object], list[str]]:
    left, said = list(answers), list[str]()

    def read(question: str) -> str:
        said.append(question)
        if not left:
            raise EOFError
        return left.pop(0)

    return ask(read, said.append), said


def test_questions_have_defaults_and_are_few():
    told, said = asking(*[""] * 20)
    assert told["workload"] == "training"
    assert told["gpus"] == 1024
    assert len([one for one in said if one.endswith("]: ")]) <= 7


def test_an_answer_that_cannot_be_is_asked_again():
    told, said = asking("mpy", "mpi", "many", "64", "8", "9000", "no", "3M", "ethernet")
    assert told == {
        "workload": "mpi",
        "gpus": 64,
        "message_bytes": "8",
        "rate_per_s": 9000.0,
        "cloud": False,
        "budget_usd": "3M",
        "team": "ethernet",
    }
    assert any("did you mean mpi" in one for one in said)


def test_the_end_of_input_ends_the_questions():
    told, _ = asking("web")
    assert told == {"workload": "web"}
