"""Requests in time on the command line."""

from __future__ import annotations

import csv
import json

import pytest

from weft.cli import app
from weft.errors import ConfigError
from weft.fabric.prices import read_prices
from weft.fabric.spec import load
from weft.plan.bill import bill_of
from weft.plan.upkeep import upkeep

SMALL = "llama3-8b --tp 1 --gpus 2 --rate 40 --seconds 10 --input-len 500 --output-len 30"


def run(words: str, capsys) -> dict:
    app(f"infer {words} --json".split())
    return json.loads(capsys.readouterr().out)


def test_a_rate_serves_requests_one_by_one(capsys, tmp_path):
    path, picture = tmp_path / "requests.csv", tmp_path / "latency.svg"
    facts = run(f"{SMALL} --write-requests {path} --picture-cdf {picture} --slo-ttft 2s", capsys)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert facts["requests"] == len(rows) > 20
    assert facts["latency"]["ttft"]["p50_s"] <= facts["latency"]["ttft"]["p99_s"]
    assert facts["objective_share"] == 1
    assert facts["usd_per_1e6_output_tokens"][0] > 0
    assert sum(facts["breakdown_s"].values()) == pytest.approx(facts["latency"]["e2e"]["mean_s"])
    assert picture.stat().st_size > 0


def test_tokens_at_their_price_pay_for_the_cluster_in_its_years_of_use(capsys):
    cluster = "star:hosts=2,server=dgx-h100"
    facts = run(f"{SMALL} --fabric {cluster}", capsys)
    bill = bill_of(load(cluster), read_prices())
    costs = upkeep(bill, read_prices())
    tokens = facts["throughput"]["output_tokens_per_s"] * costs.years * 365.25 * 86_400
    price = costs.cluster * (facts["gpus"] / bill.gpus)
    assert [usd / 1e6 * tokens for usd in facts["usd_per_1e6_output_tokens"]] == pytest.approx(
        [price.low_usd, price.high_usd]
    )


@pytest.mark.parametrize(
    "change",
    [
        "--burstiness 0.2",
        "--max-input-len 900",
        "--max-output-len 60",
        "--shared-prefix 400",
        "--router round-robin",
        "--seed 2",
        "--max-num-seqs 2",
        "--max-num-batched-tokens 1100",
        "--framework sglang",
        "--gpu-memory-utilization 0.5",
    ],
)
def test_an_option_changes_the_result(change, capsys):
    plain, changed = (run(words, capsys) for words in (SMALL, f"{SMALL} {change}"))
    for facts in (plain, changed):
        facts.pop("wall_s")
    assert plain != changed


def test_gpus_are_found_on_a_fabric_of_the_catalog(capsys):
    base = "llama3-8b --tp 1 --rate 5 --seconds 3 --input-len 500 --output-len 20 --slo-tpot 30ms --find gpus"
    own, named = (run(f"{base}{more}", capsys) for more in ("", " --fabric roce-400"))
    assert [row["gpus"] for row in named["services"]] == [row["gpus"] for row in own["services"]]


def test_disaggregated_replicas_and_a_fault(capsys):
    base = "llama3-8b --tp 1 --prefill 1 --decode 2 --rate 4 --seconds 12 --input-len 2000 --output-len 100"
    after, layers = (run(words, capsys) for words in (base, f"{base} --handoff layers"))
    assert layers["breakdown_s"]["wire"] < after["breakdown_s"]["wire"]
    fault = run(f"{base} --fault dead:decode1@4s-8s", capsys)
    assert set(fault["phases"]) == {"before", "under way", "during", "after"}
    assert fault["throughput"]["retries"] > 0


def test_jobs_of_another_tenant_slow_handoffs_and_a_lane_protects_them(capsys):
    place = "--fabric superpod:su=2,servers=64,oversubscription=4 --servers dgx1,dgx33"
    load = "--rate 2 --seconds 20 --input-len 4000 --output-len 20"
    base = f"llama3-8b --tp 8 {place} --prefill 1 --decode 1 {load}"
    jobs = "--jobs train=permutation:dgx[2-32],dgx[34-64]@90%"
    alone, shared = (run(words, capsys) for words in (base, f"{base} {jobs}"))
    lane = run(f"{base} {jobs} --handoff-lane 75%", capsys)
    p99_s = [facts["latency"]["handoff"]["p99_s"] for facts in (alone, lane, shared)]
    assert p99_s == sorted(p99_s)
    assert p99_s[2] > 2 * p99_s[0]
    rows = lane["beside"]["rows"]
    assert [row["handoff"]["p99_s"] for row in rows.values()] == [p99_s[0], p99_s[2], p99_s[1]]
    app(f"infer {base} {jobs}".split())
    assert "Beside train=permutation:dgx[2-32],dgx[34-64]@90%" in capsys.readouterr().out


def test_jobs_of_another_tenant_slow_the_steps_of_a_replica_on_two_leaves(capsys):
    place = "--fabric superpod:su=2,servers=64,oversubscription=4 --servers dgx1,dgx33"
    base = f"llama3-8b --tp 16 {place} --rate 2 --seconds 20 --input-len 1000 --output-len 20"
    facts = run(f"{base} --jobs train=permutation:dgx[2-32],dgx[34-64]", capsys)
    alone, shared = facts["beside"]["rows"].values()
    assert "handoff" not in alone
    assert alone["tpot"] == run(base, capsys)["latency"]["tpot"]
    assert shared["tpot"]["p50_s"] > alone["tpot"]["p50_s"]
    assert shared["ttft"]["p50_s"] > 1.5 * alone["ttft"]["p50_s"]


def test_a_trace_and_a_closed_loop(capsys, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt,output\n" + "".join(f"{i / 10},{100 + i},20\n" for i in range(50)))
    facts = run(f"llama3-8b --tp 1 --request-trace {path} --requests 20", capsys)
    assert facts["requests"] == 20
    loop = run("llama3-8b --tp 1 --simulate --concurrency 8 --requests 60 --input-len 200 --output-len 20", capsys)
    assert loop["requests"] == 60
    assert loop["load"].startswith("8 users")


def test_the_fewest_gpus_are_found(capsys):
    load = "--rate 5 --seconds 10 --input-len 500 --output-len 30"
    words = f"llama3-8b --tp 1 {load} --slo-ttft 2s --slo-tpot 30ms"
    services = run(f"{words} --find gpus", capsys)["services"]
    assert services[0]["gpus"] == 1
    assert any(row["prefill"] for row in services)
    assert run(f"{words} --find rate", capsys)["requests_per_s"] > 5


def test_decode_replicas_of_another_layout_survive_the_loss_of_one(capsys):
    words = "--tp 2 --prefill 1 --decode 2 --decode-tp 1 --rate 10 --seconds 6 --fault dead:decode1@2s-4s"
    facts = run(f"llama3-8b {words} --input-len 500 --output-len 60", capsys)
    assert facts["gpus"] == 4
    assert facts["throughput"]["retries"] > 0
    app(f"infer llama3-8b {words} --input-len 500".split())
    assert "1 prefill and 2 decode replicas of 2 and 1 × H100" in capsys.readouterr().out


def test_answer_latencies_and_trust_come_first_and_explain_has_the_rest(capsys):
    app(f"infer {SMALL} --slo-ttft 2s".split())
    short = capsys.readouterr().out
    assert short.startswith("llama3-8b: 2 replicas of 1 × H100 serve ")
    assert "100 % of requests keep the objective." in short
    order = [short.index(text) for text in ("Bottleneck: ", "\nLatency", "\nHow far to trust it: assumes vLLM")]
    assert order == sorted(order)
    assert "KV cache full" not in short
    app(f"infer {SMALL} --slo-ttft 2s --explain".split())
    whole = capsys.readouterr().out
    assert all(text in whole for text in ("KV cache full", "goodput", "Where the time of a request goes"))
    assert "More: --explain" in short
    assert "More: --explain" not in whole


def test_fabrics_are_compared_by_the_latencies_of_the_same_requests(capsys):
    base = "llama3-8b --tp 1 --server dgx-h100 --prefill 8 --decode 8 --rate 8 --seconds 10 --input-len 8000 "
    base += "--output-len 20"
    runs = run(f"{base} --fabrics eth-100-tcp,ndr", capsys)["runs"]
    assert [each["fabric"] for each in runs] == ["ndr", "eth-100-tcp"]
    assert [each["latency"] for each in runs] == [
        run(f"{base} --fabric {each['fabric']}", capsys)["latency"] for each in runs
    ]
    fast, slow = (each["latency"]["handoff"]["p50_s"] for each in runs)
    assert slow > 5 * fast
    app(f"infer {base} --fabrics eth-100-tcp,ndr".split())
    printed = capsys.readouterr().out
    assert "fastest on ndr. On eth-100-tcp, the slowest, the p99 of hand-offs is " in printed


def test_fabrics_do_not_matter_to_replicas_inside_servers(capsys):
    runs = run(f"{SMALL} --fabrics eth-100-tcp,ndr", capsys)["runs"]
    assert runs[0]["latency"] == runs[1]["latency"]
    app(f"infer {SMALL} --output-len 1 --fabrics eth-100-tcp,ndr --slo-ttft 1s".replace("--output-len 30 ", "").split())
    printed = capsys.readouterr().out
    assert "all fabrics give the same." in printed
    assert "kept %" in printed


def test_bands_contain_the_prediction_and_are_those_of_longer_and_shorter_steps(capsys):
    facts = run(f"{SMALL} --bands", capsys)
    low, high = facts["bands"]["steps"]
    assert low < 1 < high
    for name, ends in facts["bands"]["latency"].items():
        for key, (least, most) in ends.items():
            assert least <= facts["latency"][name][key] <= most
    assert facts["bands"]["latency"]["tpot"]["p50_s"][1] > high * facts["latency"]["tpot"]["p50_s"]  # and fuller steps
    app(f"infer {SMALL} --bands".split())
    assert f"Steps take {low:.2f} to {high:.2f} times as long" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seconds 5", "add --rate"),
        ("--prefill 1 --decode 1", "add --rate"),
        ("--rate 5 --batch-size 4", "--batch-size and --phase"),
        ("--rate 5 --concurrency 4", "closed loop"),
        ("--rate 5 --simulate", "--simulate"),
        ("--rate 5 --trace-speed 2", "--trace-speed"),
        ("--rate 5 --prefill 1", "--prefill and --decode"),
        ("--rate 5 --handoff layers", "--handoff"),
        ("--rate 5 --jobs ring:dgx[1-2]", "replicas lie inside servers"),
        ("--rate 5 --prefill 1 --decode 1 --handoff-lane 75%", "add --jobs"),
        ("--rate 5 --jobs ring:dgx[1-2] --handoff-lane 75%", "add --jobs, --prefill and --decode"),
        ("--rate 5 --prefill 1 --decode 1 --jobs ring --find rate --slo-ttft 1s", "leave out --find"),
        ("--rate 5 --find gpus", "objective"),
        ("--rate 5 --decode-tp 2", "add --prefill and --decode"),
        ("--rate 5 --prefill 1 --decode 1 --decode-tp 1", "changes nothing"),
        ("--rate 5 --prefill 1 --decode 1 --decode-tp 5", "decode replicas: --tp 5 does not divide"),
        ("--rate 5 --prefill 1 --decode 1 --decode-dp 2", "decode replicas: --dp and --ep share experts"),
        ("--rate 5 --find layout --slo-tpot 30ms --decode-tp 2", "--find layout finds layouts"),
        ("--rate 5 --slo-ttft soon", "2s or 30ms"),
        ("--rate 5 --pareto", "means"),
        ("--rate 5 --find gpus --slo-ttft 1s --gpus 8", "leave out --gpus"),
        ("--rate 5 --write-requests x.txt", ".csv or .parquet"),
        ("--rate 5 --seconds 0", "--rate and --seconds must be above 0"),
        ("--simulate --seconds 0", "--seconds and --burstiness go with --rate"),
        ("--rate 5 --find gpus --slo-ttft 1s --explain", "leave out --find"),
        ("--rate 5 --find speed --slo-ttft 1s", "got 'speed'"),
        ("--dp 0", "--dp must be at least 1, got 0"),
        ("--framework none", "no framework 'none'"),
        ("--phase both --batch-size 2", "did you mean prefill or decode"),
        ("--simulate --fault dead:replica1", "--rate or --request-trace"),
        ("--rate 5 --max-num-seqs 0", "--max-num-seqs must be 1 or more, got 0"),
        ("--rate 5 --max-num-batched-tokens 0", "--max-num-batched-tokens must be 1 or more, got 0"),
        ("--rate 5 --shared-prefix 0", "--shared-prefix must be 1 or more, got 0"),
        ("--rate 5 --shared-prefix 10 --prefixes 0", "--prefixes must be 1 or more, got 0"),
        ("--rate 5 --max-model-len 0", "--max-model-len must be 1 or more, got 0"),
        ("--rate 5 --max-input-len 0", "--max-input-len must be 1 or more, got 0"),
        ("--rate 5 --prefill 0 --decode 1", "--prefill must be 1 or more, got 0"),
        ("--rate 5 --prefill -1 --decode 1", "--prefill must be 1 or more, got -1"),
        ("--rate 5 --prefill 1 --decode 1 --staging 0", "--staging must be 1 or more, got 0"),
        ("--rate 5 --prefill 1 --decode 1 --decode-tp 0", "--decode-tp must be 1 or more, got 0"),
        ("--rate 5 --prefill 2 --decode 1 --gpus 2", "need 3 GPUs: give --gpus 3"),
        ("--rate 5 --trace-speed 0", "--trace-speed goes with"),
        ("--request-trace x.csv --trace-speed 0", "--trace-speed must be above 0, got 0"),
        ("--request-trace x.csv --requests 0", "--requests must be 1 or more, got 0"),
        ("--request-trace x.csv --input-len 500", "a trace has its own lengths"),
        ("--request-trace x.csv --output-len 5", "a trace has its own lengths"),
        ("--simulate --requests 0", "--requests must be 1 or more, got 0"),
        ("--simulate --concurrency 8 --requests 4", "--requests must be at least --concurrency"),
        ("--rate 1e9 --seconds 1e9", "more than 50,000,000 requests"),
        ("--rate 5 --router prefix", "no prompts share a prefix"),
        ("--rate 5 --no-prefix-caching", "no prompts share a prefix"),
        ("--rate 5 --fault dead:decode1", "the replicas are replica1"),
        (
            "--rate 5 --prefill 4 --decode 4 --fault dead:leaf1",
            "cuts off all replicas.* give a fabric with other paths",
        ),
        ("--rate 5 --seconds 10 --fault dead:replica1@2000s", "begins after the last request"),
        ("--rate 5 --find gpus --slo-ttft 1s --picture-cdf x.svg", "leave out --find"),
        ("--rate 5 --find gpus --slo-ttft 1s --bands", "leave out --find"),
        ("--rate 5 --fabrics ndr,roce-400 --bands", "--fabrics serves one load"),
        ("--rate 5 --fabrics ndr,ndr", "each once"),
        ("--rate 5 --fabrics ndr --fabric ndr", "leave out one of them"),
        ("--bands", "add --rate"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        app(f"infer llama3-8b --tp 1 {words}".split())
