"""Requests served by replicas: conservation, queueing theory, and equality of both forms of the kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from tests.inference.serving_cases import disaggregated, random_case, table

from weft.errors import ConfigError, SimulationBug
from weft.inference.serving import run as run_module
from weft.inference.serving.figures import Objective, breakdown, e2e_s, goodput, latencies, throughput, tpot_s, ttft_s
from weft.inference.serving.load import Lengths, Load, Prefix, closed_loop, offline, poisson
from weft.inference.serving.run import Served, serve
from weft.inference.serving.service import Limits, Phase, Pool, Service, adapters
from weft.inference.serving.state import Role

TIMES = ("scheduled_s", "prefilled_s", "first_s", "finished_s")


def single(limits: Limits | None = None, replicas: int = 1, **changes) -> Service:
    """Return a service of equal replicas for both phases."""
    return Service(pools=(Pool(table=table(**changes), replicas=replicas, limits=limits or Limits()),))


def digest(served: Served) -> str:
    return ",".join(f"{served.requests[name].sum():.12e}" for name in (*TIMES, "preemptions", "hit", "retries"))


@pytest.mark.parametrize("seed", [*range(80), 114])
def test_every_token_is_generated_once_and_kv_stays_within_its_room(seed):
    """`serve` counts tokens and KV itself; failures, preemptions and hand-offs of random services keep the counts."""
    service, load, phases = random_case(seed)
    served = serve(service, load, phases=phases)
    requests = served.requests
    assert (requests.made == load.output).all()
    assert (served.replicas.peak <= served.replicas.room).all()
    assert (served.replicas.evictable >= 0).all()
    for before, after in zip(("arrival_s", *TIMES), TIMES, strict=False):
        assert (requests[after] >= requests[before]).all()
    assert served.area_s == pytest.approx(e2e_s(served).sum())  # Little's law
    assert sum(breakdown(served).values()) == pytest.approx(e2e_s(served).mean())


@pytest.mark.parametrize(
    ("lost", "message"),
    [({"emitted": 599.0}, "tokens were generated for"), ({"area_s": 0.9}, "requests were inside for")],
)
def test_a_run_that_loses_a_token_or_time_is_an_error_of_the_simulation(lost, message):
    served = serve(single(), poisson(rate=5, seconds=4, prompt=Lengths(100), output=Lengths(30), seed=1))
    run_module._check_conservation(served)
    with pytest.raises(SimulationBug, match=message):
        run_module._check_conservation(replace(served, **lost))


def test_steps_at_twice_the_pace_make_a_lonely_request_twice_as_long():
    load = offline(requests=1, prompt=Lengths(500), output=Lengths(20), seed=1)
    one, two = (serve(single(), load, pace=pace) for pace in (1.0, 2.0))
    assert two.end_s == pytest.approx(2 * one.end_s)
    assert breakdown(two) == pytest.approx({name: 2 * seconds for name, seconds in breakdown(one).items()})


def test_random_services_reach_preemptions_retries_and_cached_prefixes():
    runs = [serve(service, load, phases=phases) for service, load, phases in map(random_case, range(30))]
    for name in ("preemptions", "retries", "hit"):
        assert sum(int(served.requests[name].sum()) for served in runs) > 100


def test_compiled_kernels_do_the_same_as_interpreted_ones():
    seeds = range(4, 16)
    code = (
        "from tests.inference.test_serving import digest, random_case, serve\n"
        f"for seed in range({seeds.start}, {seeds.stop}):\n"
        "    service, load, phases = random_case(seed)\n"
        "    print(digest(serve(service, load, phases=phases)))\n"
    )
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    here = []
    for service, load, phases in map(random_case, seeds):
        here.append(digest(serve(service, load, phases=phases)))
    assert result.stdout.split() == here


def test_mean_wait_at_one_request_per_batch_is_that_of_an_m_g_1_queue():
    """Pollaczek and Khinchine: the mean wait is rate · E[S²] / 2 (1 - utilisation)."""
    limits = Limits(max_num_seqs=1, max_num_batched_tokens=512)
    load = poisson(rate=1.2, seconds=100_000, prompt=Lengths(100), output=Lengths(1, 200), seed=3)
    served = serve(single(limits), load)
    requests = served.requests
    service_s = requests.finished_s - requests.scheduled_s
    rate = len(load) / load.arrival_s[-1]
    wait_s = requests.scheduled_s - requests.arrival_s
    expected_s = rate * (service_s**2).mean() / (2 * (1 - rate * service_s.mean()))
    groups = wait_s[: len(wait_s) // 100 * 100].reshape(100, -1).mean(axis=1)
    assert abs(wait_s.mean() - expected_s) < 4 * groups.std() / 10
    assert 0.5 < rate * service_s.mean() < 0.8


def test_latency_of_a_lonely_request_is_the_sum_of_its_steps():
    load = offline(requests=1, prompt=Lengths(500), output=Lengths(4), seed=1)
    served = serve(single(), load)
    steps = table()
    prefill_s = steps.step_s(500, pairs=500 * 501 / 2)
    decode_s = [steps.step_s(1, cached=500 + i) for i in range(3)]
    assert ttft_s(served)[0] == pytest.approx(prefill_s)
    assert e2e_s(served)[0] == pytest.approx(prefill_s + sum(decode_s))
    assert served.replicas.busy_s[0] == pytest.approx(e2e_s(served)[0])
    assert tpot_s(served)[0] == pytest.approx(sum(decode_s) / 3)


def test_a_long_prompt_is_prefilled_in_chunks_beside_decoding_requests():
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=100)
    load = Load(arrival_s=np.array([0.0, 0.02]), prompt=np.array([50, 250]), output=np.array([60, 2]))
    mixed = serve(single(limits), load)
    alone = serve(single(replace(limits, scheduler="sglang")), load)
    whole_s, steps = mixed.requests.prefilled_s[1] - mixed.requests.scheduled_s[1], table()
    chunks_s = [steps.step_s(1 + new, pairs=99 * new, cached=52) for new in (99, 99, 52)]  # beside one that decodes
    assert whole_s == pytest.approx(sum(chunks_s), rel=1e-3)
    assert tpot_s(alone)[0] > tpot_s(mixed)[0]  # decoding waits for prefills in steps of their own


def test_twice_the_replicas_with_twice_the_load_give_the_same_latencies():
    load = poisson(rate=12, seconds=60, prompt=Lengths(100, 400), output=Lengths(10, 100), seed=5)
    both = Load(
        arrival_s=np.repeat(load.arrival_s, 2), prompt=np.repeat(load.prompt, 2), output=np.repeat(load.output, 2)
    )
    first = serve(replace(single(room=4_000), router="round-robin"), load)
    second = serve(replace(single(room=4_000, replicas=2), router="round-robin"), both)
    assert np.array_equal(second.requests.finished_s[::2], first.requests.finished_s)
    assert np.array_equal(second.requests.finished_s[1::2], first.requests.finished_s)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    runs = [digest(serve(*random_case(seed)[:2])) for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


def test_a_closed_loop_never_has_more_requests_than_users():
    load = closed_loop(users=7, requests=200, prompt=Lengths(100, 300), output=Lengths(5, 50), seed=1)
    served = serve(single(), load)
    assert most_at_once(served.requests.arrival_s, served.requests.finished_s) == 7
    assert throughput(served).requests_per_s * latencies(served)["e2e"].mean_s == pytest.approx(7, rel=0.05)


def test_offline_requests_start_in_one_step():
    load = offline(requests=20, prompt=Lengths(100), output=Lengths(5), seed=1)
    served = serve(single(), load)
    assert len(np.unique(served.requests.scheduled_s)) == 1


def test_a_shared_prefix_is_computed_once():
    prefix = Prefix(tokens=400, count=1)
    load = poisson(rate=2, seconds=60, prompt=Lengths(500), output=Lengths(20), seed=1, prefix=prefix)
    cached = serve(single(), load)
    plain = serve(single(Limits(prefix_caching=False)), load)
    assert throughput(cached).prefix_hit_share == pytest.approx(0.8 * (1 - 1 / len(load)), abs=0.02)
    assert latencies(cached)["ttft"].mean_s < latencies(plain)["ttft"].mean_s


def test_requests_with_the_same_prefix_go_to_the_replica_that_has_it():
    prefix = Prefix(tokens=400, count=8)
    load = poisson(rate=4, seconds=100, prompt=Lengths(500), output=Lengths(20), seed=1, prefix=prefix)
    shares = [
        throughput(serve(replace(single(replicas=4, room=2_000), router=router), load)).prefix_hit_share
        for router in ("prefix", "round-robin")
    ]
    assert shares[0] > shares[1] + 0.1


def test_draft_tokens_that_are_always_accepted_halve_the_steps():
    load = offline(requests=1, prompt=Lengths(100), output=Lengths(101), seed=1)
    plain = serve(single(pair_s=0, token_s=0), load)
    drafted = serve(single(Limits(draft_tokens=1, acceptance=1.0), pair_s=0, token_s=0), load)
    assert tpot_s(drafted)[0] == pytest.approx(tpot_s(plain)[0] / 2, rel=0.01)


# -- hand-offs --------------------------------------------------------------------------------------------------------


def lonely_handoff(**more) -> Served:
    load = offline(requests=1, prompt=Lengths(1_000), output=Lengths(3), seed=1)
    return serve(disaggregated(1, 1, **more), load)


def test_a_handoff_takes_its_set_up_and_its_bytes_over_the_rate_of_the_adapters():
    request = lonely_handoff().requests[0]
    assert request.first_s - request.prefilled_s == pytest.approx(4e-4 + 1_000 * 160e3 / 400e9)


def test_pools_may_come_in_any_order():
    load, service = poisson(rate=5, seconds=5, prompt=Lengths(500), output=Lengths(20), seed=1), disaggregated(2, 2)
    assert digest(serve(replace(service, pools=service.pools[::-1]), load)) == digest(serve(service, load))


def test_layers_sent_with_the_prefill_leave_the_last_one_to_send():
    request = lonely_handoff(streams=True).requests[0]
    assert request.first_s - request.prefilled_s == pytest.approx(4e-4 + 1_000 * 160e3 / 32 / 400e9)


def test_handoffs_to_one_replica_share_its_adapters():
    """Two prefill replicas send at the same time to one decode replica: each gets half of what it receives."""
    load = offline(requests=2, prompt=Lengths(1_000), output=Lengths(3), seed=1)
    served = serve(disaggregated(2, 1), load)
    wire_s = served.requests.first_s - served.requests.prefilled_s
    assert wire_s == pytest.approx(4e-4 + 2 * 1_000 * 160e3 / 400e9)


def test_rates_are_max_min_fair_where_one_handoff_is_limited_elsewhere():
    """The receiver of 400 GB/s serves a sender of 100 GB/s and one of 400: the second gets the remaining 300."""
    load = offline(requests=2, prompt=Lengths(1_000), output=Lengths(3), seed=1)
    served = serve(disaggregated(2, 1, routes=adapters([100e9, 400e9, 400e9]), setup_s=0.0), load)
    wire_s = sorted(served.requests.first_s - served.requests.prefilled_s)
    assert wire_s == pytest.approx([1_000 * 160e3 / 300e9, 1_000 * 160e3 / 100e9])


def most_at_once(begin_s: np.ndarray, end_s: np.ndarray) -> int:
    change = np.repeat([1, -1], len(begin_s))
    order = np.lexsort((change, np.concatenate((begin_s, end_s))))
    return int(np.cumsum(change[order]).max())


def test_handoffs_under_way_occupy_kv_room_of_the_decode_replica():
    """As with vLLM's NixlConnector: room for 11 prompts holds 8 that decode and 3 under way; the others wait."""
    limits = Limits(max_num_seqs=8)
    load = offline(requests=40, prompt=Lengths(900), output=Lengths(100), seed=1)
    service = disaggregated(4, 1, limits=limits, room=10_000, routes=adapters([40e9] * 5))
    requests = (served := serve(service, load)).requests
    assert most_at_once(requests.handoff_s, requests.finished_s) == 11
    assert breakdown(served)["KV wait"] > breakdown(served)["wire"]
    staged = serve(replace(service, staging=2), load).requests
    assert most_at_once(staged.handoff_s, staged.joined_s) == 2


def test_set_ups_of_other_handoffs_go_on_when_a_sender_fails():
    load = offline(requests=4, prompt=Lengths(1_000), output=Lengths(3), seed=1)
    service = disaggregated(4, 1, setup_s=1.0)
    plain = serve(service, load).requests
    phases = (Phase(start_s=1.0, alive=np.array([False, True, True, True, True])),)
    served = serve(service, load, phases=phases).requests
    assert sorted(served.retries) == [0, 0, 0, 1]
    others = served.retries == 0
    assert served.first_s[others] == pytest.approx(plain.first_s[others])


def test_a_handoff_counts_in_the_time_to_the_first_token():
    load = poisson(rate=5, seconds=20, prompt=Lengths(1_000), output=Lengths(50), seed=1)
    fast, slow = (serve(disaggregated(1, 1, routes=adapters([rate] * 2)), load) for rate in (400e9, 4e9))
    assert latencies(slow)["ttft"].mean_s > latencies(fast)["ttft"].mean_s + 0.03
    assert breakdown(slow)["wire"] > 0.03


# -- failures ---------------------------------------------------------------------------------------------------------


def test_requests_of_a_failed_replica_are_computed_again_elsewhere():
    load = poisson(rate=10, seconds=30, prompt=Lengths(200), output=Lengths(100), seed=1)
    phases = (Phase(start_s=10.0, alive=np.array([True, False])), Phase(start_s=20.0))
    served = serve(single(replicas=2), load, phases=phases)
    moved = served.requests[served.requests.retries > 0]
    assert len(moved) > 0
    assert (moved.replica == 0).all()
    assert (moved.arrival_s < 10).all()
    assert (moved.finished_s > 10).all()
    meanwhile = (served.requests.arrival_s > 10) & (served.requests.arrival_s < 20)
    assert (served.requests.replica[meanwhile] == 0).all()


def test_a_slower_table_applies_from_its_phase_on():
    load = poisson(rate=2, seconds=40, prompt=Lengths(200), output=Lengths(50), seed=1)
    slow = table(base_s=10e-3)
    served = serve(single(), load, phases=(Phase(start_s=20.0, tables=(slow,)),))
    late = served.requests.arrival_s > 20
    assert tpot_s(served)[late].mean() > 1.8 * tpot_s(served)[served.requests.finished_s < 20].mean()


def test_requests_wait_while_all_replicas_have_failed():
    load = offline(requests=3, prompt=Lengths(200), output=Lengths(50), seed=1)
    dead = Phase(start_s=0.01, alive=np.array([False]))
    with pytest.raises(ConfigError, match="no replica that works"):
        serve(single(), load, phases=(dead,))
    served = serve(single(), load, phases=(dead, Phase(start_s=5.0)))
    assert (served.requests.finished_s > 5).all()


# -- figures and errors -----------------------------------------------------------------------------------------------


def test_goodput_counts_the_requests_within_the_objective():
    load = poisson(rate=20, seconds=30, prompt=Lengths(200, 800), output=Lengths(10, 100), seed=1)
    served = serve(single(), load)
    median_s = latencies(served)["ttft"].p50_s
    rate = throughput(served).requests_per_s
    assert goodput(served, Objective(ttft_s=median_s)) == pytest.approx(rate / 2, rel=0.02)
    assert goodput(served, Objective()) == pytest.approx(rate)


def test_times_between_tokens_agree_with_the_mean_of_requests():
    load = poisson(rate=20, seconds=30, prompt=Lengths(200, 800), output=Lengths(50), seed=1)
    found = latencies(serve(single(), load))
    assert found["itl"].mean_s == pytest.approx(found["tpot"].mean_s, rel=0.01)
    assert found["itl"].p99_s > found["itl"].p50_s


def test_the_bottleneck_is_named():
    from weft.inference.serving.figures import bottleneck

    queued = serve(single(), poisson(rate=60, seconds=30, prompt=Lengths(800), output=Lengths(20), seed=1))
    quiet = serve(single(), poisson(rate=1, seconds=30, prompt=Lengths(800), output=Lengths(200), seed=1))
    assert bottleneck(queued)[0] == "queue"
    assert bottleneck(quiet)[0] == "decode: weights"


def test_a_request_may_fill_the_kv_cache_but_for_a_block_and_a_prompt_without_chunks_a_step():
    limits = Limits(block_size=16, max_num_batched_tokens=600, chunked_prefill=False)
    for room, prompt, message in ((626, 601, "KV cache"), (626, 600, None), (9_000, 601, "without chunked prefill")):
        load = offline(requests=1, prompt=Lengths(prompt), output=Lengths(10), seed=1)
        service = replace(single(), pools=(Pool(table=table(room=room), limits=limits),))
        with nullcontext() if message is None else pytest.raises(ConfigError, match=message):
            serve(service, load)


def test_phases_may_have_different_limits_of_a_step():
    """The prompt of 3,000 tokens is prefilled in one step of the replica that takes so many."""
    few, many = Limits(max_num_batched_tokens=300), Limits(max_num_batched_tokens=3_000)
    load = offline(requests=1, prompt=Lengths(3_000), output=Lengths(2), seed=1)
    ttft = {}
    for name, limits in (("few", (few, many)), ("many", (many, few))):
        both = disaggregated(1, 1)
        pools = tuple(replace(pool, limits=own) for pool, own in zip(both.pools, limits, strict=True))
        request = serve(replace(both, pools=pools), load).requests[0]
        ttft[name] = float(request.prefilled_s - request.scheduled_s)
    pairs_s = 3_000**2 / 2 * 2e-10
    assert ttft["many"] == pytest.approx(5e-3 + 3_000 * 2e-5 + pairs_s, rel=0.01)
    assert ttft["few"] == pytest.approx(10 * 5e-3 + 3_000 * 2e-5 + pairs_s, rel=0.02)


def test_prompts_without_chunks_share_a_step_up_to_its_limit():
    load = offline(requests=2, prompt=Lengths(300), output=Lengths(2), seed=1)
    for budget, steps in ((600, 1), (599, 2)):
        limits = Limits(max_num_seqs=4, max_num_batched_tokens=budget, chunked_prefill=False)
        assert len(set(serve(single(limits), load).requests.prefilled_s)) == steps


def test_a_service_with_room_for_its_most_tokens_runs_as_with_more():
    """The second prompt is still prefilled in chunks when the first request ends, with the most tokens in the cache."""
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=20, block_size=1)
    load = Load(arrival_s=np.array([0.0, 0.02]), prompt=np.array([20, 250]), output=np.array([8, 2]))
    ample = serve(single(limits), load)
    peak = int(np.ceil(ample.replicas.peak[0]))
    assert digest(serve(single(limits, room=peak), load)) == digest(ample)
    assert digest(serve(single(limits, room=peak - 1), load)) != digest(ample)


def test_times_between_tokens_beyond_the_bins_count_in_the_last_one():
    load = offline(requests=1, prompt=Lengths(10), output=Lengths(4), seed=1)
    for base_s, at in ((1e4, -1), (1e-9, 0)):
        assert serve(single(base_s=base_s, token_s=0.0), load).gaps[at] == 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: serve(single(room=500), offline(requests=1, prompt=Lengths(600), output=Lengths(9), seed=1)),
            "KV cache",
        ),
        (lambda: Limits(max_num_seqs=256, max_num_batched_tokens=256), "max-num-batched-tokens"),
        (lambda: Limits(scheduler="orca"), "--scheduler"),
        (lambda: Limits(draft_tokens=2), "--acceptance"),
        (lambda: Lengths.parse("9..3"), "ascend"),
        (lambda: Service(pools=(Pool(table=table(), role=Role.DECODE),)), "prefill"),
        (lambda: replace(single(), router="random"), "--router"),
    ],
)
def test_a_service_that_cannot_work_is_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()
