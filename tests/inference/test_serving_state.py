"""Counts, queues and other traffic of a run: nothing is left behind, and failures disturb no other request."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.inference.serving_cases import disaggregated, exchanging, random_case, table

from weft.inference.serving import run
from weft.inference.serving.load import Lengths, Load, Prefix, offline
from weft.inference.serving.run import Served, serve
from weft.inference.serving.service import Limits, Phase, Pool, Routes, Service, adapters
from weft.inference.serving.state import GAP_BINS, GAP_LOW_S, GAP_STEP, State

STEP_S = 5e-3
EVEN = replace(table(base_s=STEP_S, token_s=0.0, pair_s=0.0, room=10**6), kv_s_per_token=0.0)  # equal steps


SMALL_STEPS = Limits(max_num_seqs=8, max_num_batched_tokens=64)


def single(replicas: int = 1, limits: Limits | None = None, **more) -> Service:
    pool = Pool(table=more.pop("table", EVEN), replicas=replicas, limits=limits or Limits())
    return Service(pools=(pool,), **more)


def requests(*rows: tuple[float, int, int]) -> Load:
    """Return requests by arrival, tokens of the prompt and of the answer."""
    arrival_s, prompt, output = zip(*rows, strict=True)
    return Load(arrival_s=np.array(arrival_s), prompt=np.array(prompt), output=np.array(output))


@pytest.fixture
def states(monkeypatch) -> list[State]:
    """Collect the states that `serve` runs."""
    found: list[State] = []
    run_events = run.run_events
    monkeypatch.setattr(run, "run_events", lambda state, budget: found.append(state) or run_events(state, budget))
    return found


# -- one request after another ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrival_s", [1.0013, 2.4992])
def test_a_prompt_waits_for_the_step_under_way_alone_and_not_for_the_answer_before_it(arrival_s):
    served = serve(single(limits=SMALL_STEPS), requests((0.0, 10, 1000), (arrival_s, 10, 10)))
    wait_s = served.requests.scheduled_s[1] - arrival_s
    assert wait_s == pytest.approx(STEP_S - arrival_s % STEP_S)


def test_times_between_tokens_of_steps_that_grow_are_counted_one_by_one():
    """Each step reads 20 us more than the one before, so a bin of 1 % has two or three of them."""
    grows = replace(EVEN, kv_s_per_token=2e-5)
    served = serve(single(table=grows), requests((0.0, 100, 400)))
    took_s = float(served.requests.finished_s[0] - served.requests.first_s[0])
    first = round((took_s / 399 - STEP_S) / 2e-5 - 199)
    steps_s = STEP_S + 2e-5 * (first + np.arange(399))
    assert steps_s.sum() == pytest.approx(took_s)
    assert first == pytest.approx(100, abs=2)
    expected = np.bincount((np.log(steps_s / GAP_LOW_S) / math.log(GAP_STEP)).astype(int), minlength=GAP_BINS)
    assert served.gaps.tolist() == pytest.approx(expected.tolist(), abs=1)
    assert np.count_nonzero(served.gaps != expected) < 5  # the edge of a bin


def test_a_request_is_computed_again_though_one_that_joined_before_it_has_ended():
    dead = Phase(start_s=0.5, alive=np.array([False, True]))
    served = serve(
        single(2, router="round-robin"), requests((0, 10, 20), (0, 10, 20), (0, 10, 200), (0, 10, 200)), phases=(dead,)
    )
    assert served.requests.finished_s[0] < 0.5
    assert served.requests.retries.tolist() == [0, 0, 1, 0]


def test_a_failed_replica_has_lost_its_cached_prefixes():
    load = offline(requests=3, prompt=Lengths(200), output=Lengths(2), prefix=Prefix(tokens=100, count=1), seed=1)
    load = replace(load, arrival_s=np.array([0.0, 1.0, 3.0]))
    phases = (Phase(start_s=2.0, alive=np.array([False])), Phase(start_s=2.5))
    assert serve(single(), load, phases=phases).requests.hit.tolist() == [0, 100, 0]
    assert serve(single(), load).requests.hit.tolist() == [0, 100, 100]


# -- the router -------------------------------------------------------------------------------------------------------


def test_requests_go_past_a_prefill_replica_with_a_long_prompt_one_after_the_other():
    long_s = 400
    service = disaggregated(2, 1, limits=SMALL_STEPS, room=10**6)
    service = replace(service, pools=tuple(replace(pool, table=EVEN) for pool in service.pools))
    later = [(0.1 * i, 60, 2) for i in range(1, 11)]
    served = serve(service, requests((0.0, 64 * long_s, 2), *later))
    assert served.requests.prefilled_s[0] > 1.9
    waits_s = served.requests.prefilled_s[1:] - served.requests.arrival_s[1:]
    assert waits_s.tolist() == pytest.approx([STEP_S] * 10)


def test_a_replica_that_works_again_gets_as_many_requests_as_the_others():
    phases = (Phase(start_s=1.0, alive=np.array([False, True])), Phase(start_s=1.1))
    early = [(0.9, 10, 100)] * 20
    late = [(5.0 + 0.1 * i, 10, 2) for i in range(20)]
    served = serve(single(2), requests(*early, *late), phases=phases)
    assert served.requests.retries[:20].sum() == 10
    assert np.bincount(served.requests.replica[20:]).tolist() == [10, 10]


# -- hand-offs --------------------------------------------------------------------------------------------------------


def slow_wire(prefill: int, byte_s: float, **more) -> Service:
    service = disaggregated(prefill, 1, setup_s=0.0, routes=adapters([byte_s] * (prefill + 1)), **more)
    return replace(service, pools=tuple(replace(pool, table=EVEN) for pool in service.pools))


def test_layers_under_way_at_the_end_of_the_prefill_are_followed_by_the_last():
    """1,000 tokens of 160 kB take 160 ms from the start of a prefill of 5 ms."""
    served = serve(slow_wire(1, 1e9, streams=True), requests((0.0, 1000, 3)))
    assert served.requests.first_s[0] - served.requests.handoff_s[0] == pytest.approx(0.16, rel=0.01)
    assert served.requests.handoff_s[0] < served.requests.prefilled_s[0]


def test_requests_that_wait_for_a_decode_replica_are_served_in_order_after_another_sender_fails():
    """The decode replica takes one hand-off at a time, and six requests wait when one of four senders fails."""
    service = slow_wire(4, 1e9, staging=1)
    load = requests(*[(0.001 * i, 1000, 3) for i in range(8)])
    dead = Phase(start_s=0.3, alive=np.array([False, True, True, True, True]))
    served = serve(service, load, phases=(dead,))
    kept = served.requests.retries == 0
    assert 4 <= np.count_nonzero(kept) < 8
    assert (np.diff(served.requests.first_s[kept]) > 0.1).all()
    assert served.requests.first_s[kept].max() < served.requests.first_s[~kept].min()


@pytest.mark.parametrize(
    ("failed", "at_s", "byte_s", "retries"),
    [
        (0, 0.02, 1e9, 1),  # while layers are sent that have been computed
        (2, 0.02, 1e9, 0),  # the prefill goes on, and its layers go to another replica
        (0, 0.06, 2e9, 1),  # while the last is sent
        (2, 0.06, 2e9, 1),
    ],
)
def test_layers_under_way_from_or_to_a_failed_replica_leave_no_place_behind(failed, at_s, byte_s, retries, states):
    """The prefill lasts 50 ms, and the first of two layers is sent meanwhile: at 2 GB/s in 26 ms."""
    service = disaggregated(
        2, 2, streams=True, setup_s=0.0, routes=adapters([byte_s] * 4), limits=SMALL_STEPS, layers=2
    )
    service = replace(service, pools=tuple(replace(pool, table=EVEN) for pool in service.pools))
    dead = Phase(start_s=at_s, alive=np.arange(4) != failed)
    served = serve(service, requests((0.0, 640, 3), (0.0, 640, 3)), phases=(dead, Phase(start_s=5.0)))
    assert served.requests.retries.sum() == retries
    assert states[-1].outstanding.tolist() == [0, 0, 0, 0]
    assert (states[-1].replicas.staged == 0).all()


def test_a_decode_replica_without_a_route_gets_no_request():
    routes = adapters([1e9] * 3)
    most_byte_s = routes.most_byte_s.copy()
    most_byte_s[0 * 3 + 1] = 0.0
    service = disaggregated(1, 2, routes=replace(routes, most_byte_s=most_byte_s))
    served = serve(service, requests(*[(0.1 * i, 10, 3) for i in range(6)]))
    assert served.requests.replica.tolist() == [2] * 6


def test_times_between_tokens_beside_hand_offs_add_up_to_those_of_the_requests():
    service = slow_wire(1, 8e9)
    late = exchanging(service, 8e9)
    load = requests((0.0, 10, 200), *[(0.1 * i, 1000, 2) for i in range(1, 8)])
    times_s = {}
    for name, each in (("alone", service), ("late", late)):
        served = serve(each, load)
        bins_s = GAP_LOW_S * GAP_STEP ** (np.arange(GAP_BINS) + 0.5)
        decoded_s = (served.requests.finished_s - served.requests.joined_s).sum()
        times_s[name] = float(served.gaps @ bins_s)
        assert times_s[name] == pytest.approx(float(decoded_s), rel=0.01)
    assert times_s["late"] > 1.05 * times_s["alone"]


def beside_others(pairs: Routes, others: list[tuple[list[int], float]]) -> Routes:
    """Return routes with other traffic: the links of each flow, and the most that it sends."""
    links = [link for flow, _ in others for link in flow]
    return replace(
        pairs,
        first=np.append(pairs.first, pairs.first[-1] + np.cumsum([len(flow) for flow, _ in others])),
        link=np.append(pairs.link, links).astype(np.int32),
        share=np.append(pairs.share, np.ones(len(links))),
        most_byte_s=np.append(pairs.most_byte_s, [most for _, most in others]),
        others=len(others),
    )


def wire_s(served: Served) -> list[float]:
    return (served.requests.first_s - served.requests.prefilled_s).tolist()


# links 0 to 2 send and 3 to 5 receive, 16 GB/s each; replicas 0 and 1 prefill, 2 decodes: 1,000 tokens are 160 MB
@pytest.mark.parametrize(
    ("others", "shares"),
    [
        ([], [1 / 2, 1 / 2]),  # both share link 5
        ([([5], 1e12)], [1 / 3, 1 / 3]),
        ([([5], 1.6e9)], [0.45, 0.45]),  # a tenth that others take
        ([([5], 1.6e9), ([5], 3.2e9)], [0.35, 0.35]),
        ([([5], 1e12), ([5], 1.6e9)], [0.3, 0.3]),
        ([([0], 1e12), ([0], 1e12), ([0], 1e12)], [1 / 4, 3 / 4]),  # the first sender is busy
        ([([0], 1e12), ([0], 1e12), ([0, 1], 1e12)], [1 / 4, 3 / 4]),  # and one of those uses the second, too
        ([([0, 1], 1.6e9), ([1], 1e12)], [0.45, 0.55]),  # half of the 90 % that the first leaves
        ([([3, 4], 1e12)], [1 / 2, 1 / 2]),  # other links
    ],
)
def test_hand_offs_have_a_max_min_fair_share_beside_flows_that_never_end(others, shares):
    """At full rate one takes 10 ms. Two pairs, one after the other: the second has the same rates."""
    service = slow_wire(2, 16e9)
    service = replace(service, routes=beside_others(service.routes, others) if others else service.routes)
    served = serve(service, requests((0.0, 1000, 2), (0.0, 1000, 2), (1.0, 1000, 2), (1.0, 1000, 2)))
    for at in (0, 2):
        assert sorted(wire_s(served)[at : at + 2]) == pytest.approx(sorted(0.01 / share for share in shares), rel=0.01)


# -- the end of a run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 9, 15, 27, 39, 48, 54, 57])
def test_a_run_leaves_no_request_at_a_replica_and_no_block_in_use(seed, states):
    """Else the router would avoid a replica for requests that it does not have."""
    service, load, phases = random_case(seed)
    serve(service, load, phases=phases)
    state = states[-1]
    assert state.outstanding.tolist() == [0] * service.replicas
    for queue in (
        "run_tail",
        "wait_head",
        "wait_tail",
        "arrived_head",
        "arrived_tail",
        "hand_head",
        "hand_tail",
        "partial",
    ):
        assert (state.replicas[queue] == -1).all(), queue
    assert (state.replicas.staged == 0).all()
    assert (state.replicas.running == 0).all()
    assert (state.run.flows[0], state.run.lane_head[0], state.run.lane_tail[0], state.run.inside[0]) == (0, -1, -1, 0)
    assert state.ref.max() <= 0
