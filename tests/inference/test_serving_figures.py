"""Figures of a run and rules of the search, on runs that are written out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from weft.inference.serving import search
from weft.inference.serving.figures import (
    Latency,
    Objective,
    between_tokens,
    bottleneck,
    breakdown,
    e2e_s,
    goodput,
    latencies,
    meets,
    report,
    throughput,
    tpot_s,
    ttft_s,
)
from weft.inference.serving.service import Limits
from weft.inference.serving.state import GAP_BINS, GAP_LOW_S, GAP_STEP

COLUMNS = {  # for a request that arrives at 10 s, is scheduled at 11 s and prefilled at 13 s, with 5 tokens until 21 s
    "arrival_s": 10.0,
    "scheduled_s": 11.0,
    "prefilled_s": 13.0,
    "handoff_s": -1.0,
    "joined_s": -1.0,
    "first_s": 13.0,
    "finished_s": 21.0,
    "preempted_s": 0.5,
    "prompt": 100,
    "output": 5,
    "hit": 20,
    "preemptions": 1,
    "retries": 0,
}


def requests(*changes: dict[str, float]) -> np.recarray:
    rows = [tuple((COLUMNS | change).values()) for change in changes]
    kinds = [(name, np.int64 if isinstance(value, int) else np.float64) for name, value in COLUMNS.items()]
    return np.array(rows, kinds).view(np.recarray)


def served(*changes: dict[str, float], disaggregated: bool = False, **more) -> SimpleNamespace:
    replicas = np.array([(8.0, 30, 100), (4.0, 90, 100)], [("busy_s", "f8"), ("peak", "i8"), ("room", "i8")])
    table = SimpleNamespace(
        parts=("weights", "dispatch", "combine"),
        parts_s=np.array([[0.0, 3.0], [0.0, 1.0], [0.0, 2.0]]),
        tokens=np.array([0, 2]),
    )
    weight = np.zeros((1, 3))
    weight[0, 2] = 1.0
    fields = {
        "requests": requests(*changes or ({},)),
        "service": SimpleNamespace(gpus=4, replicas=2, disaggregated=disaggregated),
        "replicas": replicas.view(np.recarray),
        "gaps": np.zeros(GAP_BINS),
        "end_s": 22.0,
        "tables": (table,),
        "attention_s": np.array([[2.0, 0.0]]),
        "late_s": np.zeros(2),
        "prefill_weight": weight,
        "decode_weight": np.zeros((1, 3)),
    }
    return SimpleNamespace(**(fields | more))


def test_latencies_of_a_request_start_at_its_arrival():
    run = served({}, {"output": 1, "finished_s": 13.0}, {"output": 2})
    assert ttft_s(run).tolist() == [3, 3, 3]
    assert tpot_s(run).tolist() == [2, 0, 8]
    assert e2e_s(run).tolist() == [11, 3, 11]
    assert latencies(run)["tpot"].mean_s == 5  # answers of one token have no time between tokens


def test_a_distribution_has_its_mean_and_percentiles_and_zeros_if_it_is_empty():
    assert Latency.of(np.arange(101.0)) == Latency(mean_s=50, p50_s=50, p90_s=90, p99_s=99)
    assert Latency.of(np.zeros(0)) == between_tokens(np.zeros(GAP_BINS)) == Latency(mean_s=0, p50_s=0, p90_s=0, p99_s=0)


def test_times_between_tokens_are_the_middles_of_their_bins():
    gaps = np.zeros(GAP_BINS)
    gaps[[0, 100, 500, 900]] = 50, 40, 9, 1
    middles = [GAP_LOW_S * GAP_STEP ** (place + 0.5) for place in (0, 100, 500, 900)]
    found = between_tokens(gaps)
    assert [found.p50_s, found.p90_s, found.p99_s] == pytest.approx(middles[:3])
    assert found.mean_s == pytest.approx(np.average(middles, weights=(50, 40, 9, 1)))


@pytest.mark.parametrize("limit", ["ttft_s", "tpot_s", "e2e_s"])
def test_a_request_keeps_an_objective_up_to_its_limit(limit):
    run = served({}, {"first_s": 14.0, "finished_s": 23.0})
    value = {"ttft_s": 3.0, "tpot_s": 2.0, "e2e_s": 11.0}[limit]
    assert meets(run, Objective(**{limit: value})).tolist() == [True, False]
    assert not meets(run, Objective(**{limit: value - 1e-9})).any()
    assert goodput(run, Objective(**{limit: value})) == pytest.approx(1 / 12)


def test_rates_are_of_the_time_from_the_first_arrival_to_the_last_token():
    rates = throughput(served({}, {"arrival_s": 12.0, "output": 1, "preemptions": 0, "retries": 2}))
    assert (rates.requests_per_s, rates.output_tokens_per_s, rates.input_tokens_per_s) == (2 / 12, 0.5, 200 / 12)
    assert (rates.output_tokens_per_s_per_gpu, rates.output_tokens_per_s_per_user) == (0.125, 0.5)
    assert (rates.utilisation, rates.prefix_hit_share, rates.preemptions, rates.retries) == (0.5, 0.2, 1, 2)
    assert throughput(served({"output": 1})).output_tokens_per_s_per_user == 0
    assert throughput(served({"output": 2})).output_tokens_per_s_per_user == 1 / 8


def test_causes_of_latency_add_up_and_phases_are_divided_by_the_parts_of_their_steps():
    causes = breakdown(served())
    assert causes == pytest.approx(
        {
            "queue": 1.0,
            "prefill: attention": 2 * 2 / 8,
            "prefill: weights": 2 * 3 / 8,
            "prefill: exposed EP": 2 * 3 / 8,
            "preemption": 0.5,
        }
    )
    whole = breakdown(served(decode_weight=served().prefill_weight))
    assert sum(whole.values()) == pytest.approx(11.0)
    assert whole["decode: weights"] == pytest.approx((11 - 1 - 2 - 0.5) * 3 / 6)


HANDED_OFF = {"handoff_s": 14.0, "first_s": 15.0, "joined_s": 17.0}


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ([HANDED_OFF], (1, 1, 2)),
        ([HANDED_OFF | {"handoff_s": 12.0}], (None, 2, 2)),  # it started with the prefill
        ([HANDED_OFF | {"joined_s": -1.0}], (1, 1, None)),
        ([HANDED_OFF | {"handoff_s": 0.0, "prefilled_s": 0.0}], (None, 15, 2)),
        ([HANDED_OFF, {}], (0.5, 0.5, 1)),  # the other one was decoded where it was prefilled
        ([HANDED_OFF, HANDED_OFF | {"retries": 1}], (0.5, 0.5, 1)),
        ([{}], (None, None, None)),
    ],
)
def test_hand_offs_wait_for_room_for_the_wire_and_for_a_slot(changes, waits):
    causes = breakdown(served(*changes, disaggregated=True))
    assert tuple(causes.get(name) for name in ("KV wait", "wire", "slot wait")) == waits
    assert not {"KV wait", "wire", "slot wait"} & breakdown(served(*changes)).keys()


@pytest.mark.parametrize(("queue_s", "cause"), [(0.6, "prefill: weights"), (0.75, "queue")])
def test_waits_of_a_fifth_of_the_time_are_the_bottleneck_else_the_longest_phase(queue_s, cause):
    prefilled_s = 10 + queue_s + 2.5
    run = served({"scheduled_s": 10 + queue_s, "prefilled_s": prefilled_s, "first_s": prefilled_s, "preempted_s": 0.0})
    run.attention_s[:] = 0
    run.tables[0].parts_s[0, 1] = 4.0
    name, advice = bottleneck(run)
    assert name == cause
    assert advice.startswith("requests wait" if cause == "queue" else "prompts are long")


def test_a_report_has_the_share_of_requests_within_the_objective_and_no_limit_for_infinity():
    run = served({}, {"first_s": 14.0}, load=Load("two requests"), wall_s=0.1)
    facts = report(run, Objective(ttft_s=3.0))
    assert (facts["objective_share"], facts["kv_peak_share"], facts["requests"]) == (0.5, 0.9, 2)
    assert facts["objective"] == {"ttft_s": 3.0, "tpot_s": None, "e2e_s": None, "share": 0.99}
    assert "objective" not in report(run)


class Load:
    """A load of two requests."""

    users = 0

    def __init__(self, description: str) -> None:
        self.description = description

    def __len__(self) -> int:
        return 2


# -- search -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wait_s", "keeps_up"), [(1.0, True), (1.01, False)])
def test_a_service_keeps_up_if_its_last_tenth_waits_for_less_than_a_tenth_of_the_run(wait_s, keeps_up):
    early = [{"arrival_s": float(number), "first_s": number + 100.0} for number in range(18)]
    late = [{"arrival_s": 10.0, "first_s": 10 + wait_s}] * 2
    assert search.keeps_up(served(*early, *late)) is keeps_up


@pytest.mark.parametrize(
    ("changes", "busy_s", "hopeless"),
    [
        ({"scheduled_s": 10.0, "preemptions": 0}, 0.4, True),
        ({"scheduled_s": 10.0, "preemptions": 0}, 0.5, False),  # 2 % of the replicas' time
        ({"scheduled_s": 10.0, "preemptions": 0, "first_s": 11.0}, 0.4, False),  # it keeps the objective
    ],
)
def test_an_objective_that_a_request_without_a_wait_breaks_is_hopeless(changes, busy_s, hopeless):
    run = served(changes, {"scheduled_s": 10.05, "preemptions": 0, "first_s": 11.0})  # another waited, and keeps it
    run.replicas.busy_s[:] = busy_s
    assert search._is_hopeless(run, Objective(ttft_s=2.0)) is hopeless


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({"prefilled_s": 13.0, "first_s": 14.0}, (True, False)),  # 3 s before the prefill, 1 s after it
        ({"prefilled_s": 12.0, "first_s": 14.0}, (True, False)),
        ({"prefilled_s": 11.0, "first_s": 14.0}, (False, True)),
        ({"prefilled_s": 13.0, "first_s": 14.0, "finished_s": 30.0}, (True, True)),
        ({"first_s": 11.0, "finished_s": 13.0}, (False, True)),  # neither: more decode replicas
    ],
)
def test_the_phase_that_breaks_the_objective_lacks_replicas(changes, lacks):
    assert search._lacks(served(changes), Objective(ttft_s=2.0, tpot_s=3.0)) == lacks


@pytest.mark.parametrize(("share", "lacks"), [(0.5, (False, True)), (0.51, (True, False))])
def test_prefill_replicas_are_enough_if_just_the_share_of_requests_is_in_time(share, lacks):
    run = served({"prefilled_s": 13.0, "first_s": 14.0}, {"first_s": 11.0})
    assert search._lacks(run, Objective(ttft_s=2.0, tpot_s=3.0, share=share)) == lacks


@pytest.mark.parametrize(("prefilled_s", "lacks"), [(11.8, (True, False)), (10.8, (False, True))])
def test_the_phase_whose_queue_grows_lacks_replicas_though_all_requests_are_in_time(prefilled_s, lacks):
    run = served(*[{"prefilled_s": prefilled_s, "first_s": 11.9}] * 20)
    assert search._lacks(run, Objective(ttft_s=2.0, tpot_s=3.0)) == lacks


@pytest.mark.parametrize("needed", [1, 2, 3, 5, 6, 31, 100, 128, 129])
def test_the_fewest_replicas_that_work_are_found(monkeypatch, needed):
    counts = []
    monkeypatch.setattr(search, "MOST_REPLICAS", 128)
    monkeypatch.setattr(search, "serve", lambda count, load: counts.append(count) or count)
    monkeypatch.setattr(search, "keeps", lambda count, objective: count >= needed)
    monkeypatch.setattr(search, "_is_hopeless", lambda count, objective: False)
    monkeypatch.setattr(search, "fewest", lambda table, limits, load: (3.0, 2.0))

    def build(prefill, count, limits):
        return SimpleNamespace(pools=[SimpleNamespace(table=None)]) if not counts and count == 1 else count

    found = search._find_replicas(build, None, Objective(), Limits(), lambda text: None)
    if needed > 128:
        assert found is None
        return
    assert found.replicas == max(2, needed)  # at least half of those that the mean load keeps busy
    assert len(counts) <= 2 * max(needed, 2).bit_length()
    assert found.served == found.replicas


@pytest.mark.parametrize(("highest", "start"), [(0.0, 1.0), (1.0, 1.0), (37.0, 1.0), (37.0, 100.0), (0.3, 1.0)])
def test_the_highest_rate_is_found_to_one_percent(monkeypatch, highest, start):
    monkeypatch.setattr(search, "serve", lambda service, rate: rate)
    monkeypatch.setattr(search, "keeps", lambda rate, objective: rate <= highest)
    found = search.find_rate(None, lambda rate: rate, Objective(), start)
    assert 0.98 * highest - 1e-9 <= found <= highest


@pytest.mark.parametrize(("batch", "sizes"), [(256, [256, 128, 64, 32]), (3, [3, 1]), (1, [1])])
def test_batches_are_halved_down_to_one(batch, sizes):
    assert [limits.max_num_seqs for limits in search.batch_sizes(Limits(max_num_seqs=batch))] == sizes


@pytest.mark.parametrize(("seats", "room", "batch"), [(4, 100_000, 4), (1000, 4_000, 8), (1000, 100, 1)])
def test_the_least_replicas_are_those_that_the_mean_load_keeps_busy(seats, room, batch):
    """A step takes 1 ms, 1 us for each token and 1 ns for each cached one; requests have 300 to 400 and 200 tokens."""
    table = SimpleNamespace(step_s=lambda tokens, cached=0.0: 1e-3 + tokens * 1e-6 + cached * 1e-9, kv_room_tokens=room)
    load = SimpleNamespace(
        arrival_s=np.array([0.0, 1.0, 2.0]),
        prompt=np.array([300, 400, 300]),
        output=np.array([200] * 3),
        mean_tokens=500,
    )
    for chunk, drafts in ((250, 0), (5_000, 1)):
        limits = SimpleNamespace(
            max_num_batched_tokens=chunk, max_num_seqs=seats, draft_tokens=drafts, accepted=1 + drafts / 2
        )
        steps = 1000 / min(chunk, 1000)
        prefill, decode = search.fewest(table, limits, load)
        assert prefill == pytest.approx(steps * (1e-3 + min(chunk, 1000) * 1e-6) / 2)
        step_s = 1e-3 + batch * (1 + drafts) * 1e-6 + batch * 500 * 1e-9
        assert decode == pytest.approx(600 / (batch * limits.accepted) * step_s / 2)
