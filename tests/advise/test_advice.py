"""The documented cases, and published advice that weft's runs contradict."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace

import pytest

from weft.advise import advice, formatting
from weft.advise.advice import Advice, advise
from weft.advise.case import Case
from weft.advise.formatting import report
from weft.advise.questions import ask
from weft.advise.rows import Bench, Point, middle
from weft.advise.rule import decide, facts
from weft.advise.sensitivity import find_flips
from weft.advise.workloads import options
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
    """Return the advice for 1,024 GPUs, and the bench of its runs."""
    benches = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advice, "Bench", lambda *arguments: benches.append(Bench(*arguments)) or benches[-1])
        return advise(Case(servers=128, model="gpt-7.5b")), benches[0]


@pytest.fixture(scope="module")
def large(trained) -> Advice:
    return trained[0]


def test_own_server_template_needs_a_price_and_gets_the_fastest_roce_below_its_rate(tmp_path):
    own, quotes = tmp_path / "my-server.yaml", tmp_path / "mine.toml"
    own.write_text("like: dgx-b300\n")
    case = {"workload": "mpi", "servers": 4, "server": str(own)}
    with pytest.raises(ConfigError, match=r"my-server.yaml has no price.*\"my-server.yaml\" = { usd = "):
        Bench(Case(**case))
    quotes.write_text('"my-server.yaml" = { usd = 450_000, source = "offer", date = 2026-11-02 }')
    result = Bench(Case(**case, prices=read_prices(quotes))).rows()
    assert [row.option.interconnect.name for row in result] == [
        *("xdr", "roce-400", "spectrum-x-800", "uec-800", "eth-100-tcp")
    ]
    assert all(row.power_w for row in result)
    assert all(row.unit_usd > 0 for row in result)


def test_unusually_large_batch_is_noted(large):
    assert not any("M tokens" in reason for reason in formatting.reasons(large))
    huge = replace(large, case=replace(large.case, sequences=64))  # sequences of 2,048 tokens on 1,024 GPUs
    assert any(
        "134 M tokens, and large models are trained with about 16 M" in reason for reason in formatting.reasons(huge)
    )
    assert formatting.describe_case(replace(large, case=replace(large.case, tokens=1e6))).endswith(
        "1.05 M tokens a step"
    )


def test_roce_wins_training_on_a_thousand_gpus_by_price(large):
    """Published advice is InfiniBand. It is the fastest, but RoCE is so close that its price decides."""
    assert large.verdict.fastest.option.answer == "InfiniBand"
    assert large.answer == "RoCE"
    assert large.row("InfiniBand").seconds > 0.95 * large.row("RoCE").seconds
    assert large.row("InfiniBand").price_usd > 1.8 * large.row("RoCE").price_usd
    for row in large.rows:
        low_s, high_s = row.report()["band_s"]
        assert low_s < row.seconds < high_s
    assert large.row("Ethernet").seconds > 1.2 * large.row("RoCE").seconds
    output = {item.quote: item for item in large.published}
    assert not output["AI training (1000+ GPU): InfiniBand NDR"].agrees
    assert output["Maximum performance: InfiniBand"].agrees
    messages = formatting.compare_with_published(large, output["AI training (1000+ GPU): InfiniBand NDR"])
    assert "Not here: on NDR InfiniBand one step takes" in messages
    assert "10^9 tokens cost +" in messages


def test_vendor_risk_is_reported_with_its_cost_and_does_not_change_the_answer(large):
    messages = formatting.vendor_risk(large)
    assert "InfiniBand comes from NVIDIA alone" in messages
    assert f"another {large.row('InfiniBand').price.short} USD" in messages
    assert "Cornelis" in messages


def test_small_training_cluster_needs_no_infiniband(trained):
    bench = trained[1]
    small = bench.rows(Point(case=replace(bench.case, servers=4)))
    infiniband, roce, *_ = small
    assert "InfiniBand" not in decide(small, bench.case).answer
    assert infiniband.seconds == pytest.approx(bench.rows()[0].seconds, rel=0.1)
    assert roce.seconds == pytest.approx(infiniband.seconds, rel=0.01)
    assert infiniband.price_usd < bench.rows()[0].price_usd / 20


def test_cost_of_tokens_agrees_with_weft_plan(tmp_path):
    """`weft plan --train` and `weft advise` use the same job, layout and bill."""
    model, prices = tmp_path / "config.json", read_prices()
    model.write_text(json.dumps(THREE_LAYERS))
    for row in Bench(Case(servers=2, model=str(model))).rows():
        fabric = size(Request(servers=2, fabric=row.option.interconnect.name)).fabric
        remaining = upkeep(bill_of(fabric, prices), prices, run=train(str(model), fabric, row.option.interconnect))
        assert row.unit_usd == pytest.approx(middle(remaining.per_tokens(remaining.cluster)) / 1_000)


def test_price_factor_and_vendor_risk_raise_the_cost_of_infiniband(trained):
    """Cards included in a server's price do not change with the factor; a second fabric includes cards."""
    bench = trained[1]
    case, remaining = bench.case, 5 * 8_766 * 3_600
    (bill,) = bench._bills_of(options(case)[0], case.servers)
    plain, dearer, twice = (
        bench.rows(Point(case=case, **changed))[0] for changed in ({}, {"infiniband": 2.0}, {"risk": 1.0})
    )
    each_usd = plain.seconds / bench.work.units_of_work(case) / remaining
    cards = sum(middle(item.total) for item in bill.of_kind("adapter"))
    assert plain.price == bill.total
    assert dearer.price_usd == twice.price_usd == pytest.approx(2 * plain.price_usd)
    assert twice.unit_usd - plain.unit_usd == pytest.approx(plain.price_usd * each_usd)
    assert dearer.unit_usd - plain.unit_usd == pytest.approx((plain.price_usd - cards) * each_usd)


def test_size_too_large_for_every_fabric_ends_the_search_and_is_reported():
    case = Case(workload="mpi", servers=4, server="dgx-a100", rate_per_s=100)
    bench = Bench(case)
    more = next(flip for flip in find_flips(bench, decide(bench.rows(), case)) if flip.by == "more GPUs")
    assert more.at is None
    assert more.where == "up to 8,192 GPUs; beyond, 2,048 servers are too many for every fabric"


def test_checkpoints_to_ethernet_make_steps_longer(trained):
    work, case = trained[1].work, replace(trained[1].case, servers=8)
    roce = options(case)[1]
    written, none = (work.guess(replace(roce, storage=storage), case).seconds for storage in ("ethernet", "none"))
    written_s = 14 * work.transformer.parameters / 25e9  # one storage server, two adapters of 100G
    assert written / none == pytest.approx(1 + written_s / 1800, rel=1e-3)


@pytest.fixture(scope="module")
def busy() -> Advice:
    """Return the advice for 32 servers with 50,000 all-reduces per second."""
    return advise(Case(workload="mpi", servers=32, rate_per_s=50_000))


def test_mpi_with_many_all_reduces_needs_infiniband_or_roce(busy):
    """TCP is far behind; RoCE is 6 % slower than InfiniBand, and cheaper."""
    assert busy.answer == "either InfiniBand or RoCE"
    assert busy.row("Ethernet").seconds > 5 * busy.row("InfiniBand").seconds
    assert 1.05 < busy.row("RoCE").seconds / busy.row("InfiniBand").seconds < 1.1


def test_answer_beyond_a_flip_is_the_predicted_one(busy):
    flips = {flip.by: flip for flip in busy.flips}
    assert flips["fewer GPUs"].answer == "either InfiniBand or Ultra Ethernet"  # one switch of 128 ports does there
    assert flips["more GPUs"].answer == flips["more often"].answer == "InfiniBand"
    assert flips["less often"].answer == flips["dearer InfiniBand"].answer == flips["vendor risk"].answer == "RoCE"
    present = replace(busy.case, rate_per_s=0.95 * flips["less often"].at)
    assert decide(Bench(present).rows(), present).answer == "RoCE"


def test_cloud_has_no_fabric_price_and_slower_ethernet():
    case = Case(workload="mpi", servers=4, cloud=True)
    rows = Bench(case).rows()
    assert {row.price_usd for row in rows} == {0.0}
    assert decide(rows, case).answer == "InfiniBand"  # 14.5 µs more for each message between virtual machines
    assert rows[1].seconds - rows[0].seconds > 2 * 14e-6


def test_json_has_everything_that_is_printed(busy):
    messages = report(busy)
    assert messages["answer"] == busy.answer
    assert [item["fabric"] for item in messages["fabrics"]] == [
        *("ndr", "roce-400", "spectrum-x-400", "uec-400", "eth-100-tcp")
    ]
    assert {"by", "at", "answer", "where"} == set(messages["flips"][0])
    assert messages["options"]["rate_per_s"] == 50_000
    assert len(messages["reasons"]) >= 2
    assert all(item["unit_usd"] > 0 and item["power_w"] > 0 for item in messages["fabrics"])


def test_facts_have_sources_and_dates():
    stated = [*facts()["vendors"].values(), facts()["clouds"]]
    assert all(item["source"] and isinstance(item["date"], datetime.date) for item in stated)
    assert all(item["source"] and item["quote"] for item in facts()["published"])


def asking(*answers: str) -> tuple[dict[str, object], list[str]]:
    left, output = list(answers), list[str]()

    def read(question: str) -> str:
        output.append(question)
        if not left:
            raise EOFError
        return left.pop(0)

    return ask(read, output.append), output


def test_questions_are_few_and_have_defaults():
    messages, output = asking(*[""] * 20)
    defaults = {"workload": "training", "gpus": 1024, "model": "llama3-70b", "storage": "none", "cloud": False}
    assert messages == defaults
    assert len([item for item in output if item.endswith("]: ")]) <= 7


def test_question_is_repeated_after_an_invalid_answer():
    messages, output = asking("mpy", "mpi", "many", "64", "8", "9000", "no", "3M", "ethernet")
    assert messages == {
        "workload": "mpi",
        "gpus": 64,
        "message_bytes": "8",
        "rate_per_s": 9000.0,
        "cloud": False,
        "budget_usd": "3M",
        "team": "ethernet",
    }
    assert any("did you mean mpi" in item for item in output)


def test_end_of_input_ends_the_questions():
    messages, _ = asking("web")
    assert messages == {"workload": "web"}
