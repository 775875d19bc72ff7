"""Searches for the smallest service and the highest rate."""

from __future__ import annotations

import pytest
from tests.inference.serving_cases import disaggregated, table

from weft.errors import ConfigError
from weft.inference.serving.figures import Objective
from weft.inference.serving.load import Lengths, closed_loop, poisson
from weft.inference.serving.run import serve
from weft.inference.serving.search import batch_sizes, find_rate, find_smallest, keeps
from weft.inference.serving.service import Limits, Pool, Service

OBJECTIVE = Objective(ttft_s=1.0, tpot_s=0.03)


def load_at(rate: float):
    return poisson(rate=rate, seconds=20, prompt=Lengths(500, 1_500), output=Lengths(50), seed=1)


def build(prefill: int, others: int, limits: Limits) -> Service:
    if prefill:
        return disaggregated(prefill, others, limits=limits)
    return Service(pools=(Pool(table=table(), replicas=others, limits=limits),))


def test_one_replica_less_than_the_smallest_service_breaks_the_objective():
    load = load_at(150)
    (found, *_) = find_smallest(build, load, OBJECTIVE, [Limits()], disaggregated=False)
    assert found.replicas > 1
    assert keeps(serve(build(0, found.replicas, found.limits), load), OBJECTIVE)
    assert not keeps(serve(build(0, found.replicas - 1, found.limits), load), OBJECTIVE)


def test_prefill_and_decode_replicas_are_found_together():
    load = load_at(150)
    (found, *_) = find_smallest(build, load, OBJECTIVE, [Limits()], disaggregated=True)
    assert found.prefill >= 2
    assert keeps(found.served, OBJECTIVE)
    assert not keeps(serve(build(found.prefill - 1, found.replicas, found.limits), load), OBJECTIVE)


def test_an_objective_below_the_time_of_one_request_has_no_service():
    assert find_smallest(build, load_at(5), Objective(tpot_s=0.001), [Limits()], disaggregated=False) == []


def test_batch_limits_that_change_nothing_are_listed_once():
    limits = batch_sizes(Limits())
    assert [each.max_num_seqs for each in limits] == [256, 128, 64, 32]
    assert len(find_smallest(build, load_at(2), OBJECTIVE, limits, disaggregated=False)) == 1


def test_the_highest_rate_keeps_the_objective_and_a_tenth_more_does_not():
    service = build(0, 2, Limits())
    rate = find_rate(service, load_at, OBJECTIVE)
    assert keeps(serve(service, load_at(rate)), OBJECTIVE)
    assert not keeps(serve(service, load_at(1.1 * rate)), OBJECTIVE)


def test_a_rate_that_only_fills_the_queue_is_not_sustained():
    service = build(0, 1, Limits(max_num_seqs=4))
    objective = Objective(tpot_s=0.1)
    assert 0 < find_rate(service, load_at, objective) < 40


def test_a_closed_loop_cannot_be_searched():
    load = closed_loop(users=4, requests=20, prompt=Lengths(100), output=Lengths(10), seed=1)
    with pytest.raises(ConfigError, match="closed loop"):
        find_smallest(build, load, OBJECTIVE, [Limits()], disaggregated=False)
