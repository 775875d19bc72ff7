"""Limits of services and loads, both sides of each; and loads that follow from their seed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from tests.inference.serving_cases import table

from weft.errors import ConfigError
from weft.inference.serving.load import Lengths, Load, Prefix, bursts, closed_loop, offline, poisson
from weft.inference.serving.service import Limits, Pool, Service, adapters
from weft.inference.serving.state import Role

PAIR = tuple(Pool(table=table(), role=role) for role in (Role.PREFILL, Role.DECODE))
ROUTES = adapters([1.0, 1.0])
TOKENS: dict[str, Any] = {"prompt": Lengths(10), "output": Lengths(5), "seed": 1}


def service(*roles: Role, **more: Any) -> Service:
    return Service(pools=tuple(Pool(table=table(), role=role) for role in roles), **more)


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda: Limits(max_num_seqs=1, block_size=1, draft_tokens=0), None),
        (lambda: Limits(max_num_seqs=0), "--max-num-seqs and --block-size"),
        (lambda: Limits(block_size=0), "--max-num-seqs and --block-size"),
        (lambda: Limits(draft_tokens=-1, acceptance=0.5), "--draft-tokens 0 or more"),
        (lambda: Limits(draft_tokens=1, acceptance=1.0), None),
        (lambda: Limits(draft_tokens=1, acceptance=1.1), "--acceptance must be in"),
        (lambda: Limits(draft_tokens=1, acceptance=-0.1), "--acceptance must be in"),
        (lambda: Limits(draft_tokens=1), "give both or neither"),
        (lambda: Limits(acceptance=0.5), "give both or neither"),
        (lambda: Limits(max_num_seqs=4, max_num_batched_tokens=5), None),
        (lambda: Limits(max_num_seqs=4, max_num_batched_tokens=4), "--max-num-batched-tokens 4"),
        (lambda: Limits(max_num_seqs=4, max_num_batched_tokens=9, draft_tokens=1, acceptance=0.5), None),
        (lambda: Limits(max_num_seqs=4, max_num_batched_tokens=8, draft_tokens=1, acceptance=0.5), "-tokens 8"),
        (lambda: Limits(scheduler="sglang"), None),
        (lambda: Limits(scheduler="x"), "--scheduler must be vllm or sglang"),
        (lambda: Pool(table=table(), replicas=1), None),
        (lambda: Pool(table=table(), replicas=0), "replicas must be 1 or more"),
        (lambda: service(Role.BOTH), None),
        (lambda: service(Role.PREFILL, Role.DECODE, routes=ROUTES), None),
        (lambda: service(Role.PREFILL, Role.DECODE), "need routes"),
        (lambda: service(Role.PREFILL, routes=ROUTES), "some for prefill and others for decode"),
        (lambda: service(Role.BOTH, Role.DECODE, routes=ROUTES), "some for prefill and others for decode"),
        (lambda: service(Role.BOTH, staging=1), None),
        (lambda: service(Role.BOTH, staging=0), "--staging must be 1 or more"),
        (lambda: service(Role.BOTH, router="x"), "--router must be one of"),
        (lambda: Lengths(1), None),
        (lambda: Lengths(0), "must be 1 or more"),
        (lambda: Lengths(3, 3), None),
        (lambda: Lengths(3, 2), "must ascend"),
        (lambda: Lengths.parse("a"), "a number of tokens or a range"),
        (lambda: bursts(rate=9, seconds=9, burstiness=1e-3, **TOKENS), None),
        (lambda: bursts(rate=9, seconds=9, burstiness=0, **TOKENS), "--burstiness must be above 0"),
        (lambda: bursts(rate=9, seconds=9, burstiness=np.inf, **TOKENS), "--burstiness must be above 0"),
        (lambda: poisson(rate=0, seconds=9, **TOKENS), "--rate and --seconds must be above 0"),
        (lambda: poisson(rate=9, seconds=0, **TOKENS), "--rate and --seconds must be above 0"),
        (lambda: poisson(rate=np.inf, seconds=9, **TOKENS), "--rate and --seconds must be above 0"),
        (lambda: poisson(rate=9, seconds=np.inf, **TOKENS), "--rate and --seconds must be above 0"),
        (lambda: poisson(rate=1e-9, seconds=1, **TOKENS), "no request arrives within 1 s"),
        (lambda: closed_loop(users=3, requests=3, **TOKENS), None),
        (lambda: closed_loop(users=4, requests=3, **TOKENS), "4 users need a request each"),
        (lambda: closed_loop(users=0, requests=3, **TOKENS), "0 users need a request each"),
        (lambda: offline(requests=1, **TOKENS), None),
        (lambda: offline(requests=0, **TOKENS), "--requests must be 1 or more"),
        (lambda: offline(requests=1, prefix=Prefix(tokens=9), **TOKENS), None),
        (lambda: offline(requests=1, prefix=Prefix(tokens=10), **TOKENS), "below the shortest prompt"),
        (lambda: offline(requests=1, prefix=Prefix(tokens=0), **TOKENS), "below the shortest prompt"),
        (lambda: offline(requests=1, prefix=Prefix(tokens=1, count=0), **TOKENS), "--prefixes 0 1 or more"),
    ],
)  # fmt: skip
def test_values_are_accepted_up_to_their_limits(build: Callable[[], object], error: str | None):
    with nullcontext() if error is None else pytest.raises(ConfigError, match=error):
        build()


@pytest.mark.parametrize(("drafts", "acceptance", "accepted"), [(0, 0.0, 1.0), (1, 0.5, 1.5), (3, 0.5, 1.875)])
def test_a_step_adds_a_token_and_the_drafts_up_to_the_first_that_is_rejected(drafts, acceptance, accepted):
    assert Limits(draft_tokens=drafts, acceptance=acceptance).accepted == accepted


def test_a_service_has_the_replicas_and_gpus_of_its_pools():
    pools = (Pool(table=table(), replicas=2, role=Role.PREFILL), Pool(table=table(), replicas=3, role=Role.DECODE))
    whole = Service(pools=pools, routes=ROUTES)
    assert (whole.replicas, whole.gpus, whole.disaggregated, whole.pool_of.tolist()) == (5, 40, True, [0, 0, 1, 1, 1])
    assert not Service(pools=(Pool(table=table()),)).disaggregated
    defaults = Service(pools=(Pool(table=table()),))
    assert (defaults.router, defaults.setup_s, defaults.layers, defaults.streams) == ("least-loaded", 0.0, 1, False)


def test_routes_between_adapters_have_the_rate_of_the_slower_one():
    routes = adapters([3.0, 1.0, 2.0], 2.5)
    assert routes.most_byte_s.reshape(3, 3).tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    assert adapters([3.0, 3.0], 2.5).most_byte_s.tolist() == [0, 2.5, 2.5, 0]
    assert routes.capacity_byte_s.tolist() == [3, 1, 2, 3, 1, 2]
    assert routes.first.tolist() == list(range(0, 20, 2))
    assert routes.link.reshape(9, 2)[[1, 5, 6]].tolist() == [[0, 4], [1, 5], [2, 3]]  # sender, then receiver
    assert routes.share.tolist() == [1] * 18


def test_lengths_of_a_range_have_both_ends():
    drawn = Lengths.parse("3..5").draw(np.random.default_rng(1), 200)
    assert (set(drawn.tolist()), str(Lengths.parse("3..5")), str(Lengths.parse("7"))) == ({3, 4, 5}, "3..5", "7")
    assert Lengths.parse("7").draw(np.random.default_rng(1), 2).tolist() == [7, 7]


def test_requests_beyond_the_most_tokens_are_left_out_and_one_has_to_stay():
    load = Load(arrival_s=np.arange(3.0), prompt=np.array([10, 20, 30]), output=np.array([5, 5, 5]))
    assert load.without_longer(35) is load
    shorter = load.without_longer(25)
    assert (shorter.arrival_s.tolist(), shorter.prompt.tolist(), shorter.output.tolist()) == ([0, 1], [10, 20], [5, 5])
    with pytest.raises(ConfigError, match="all 3 requests are longer than --max-model-len 14"):
        load.without_longer(14)


def test_requests_of_a_closed_loop_arrive_with_their_users():
    load = closed_loop(users=2, requests=4, think_s=0.5, **TOKENS)
    assert (load.arrival_s.tolist(), load.users, load.think_s) == ([0, 0, np.inf, np.inf], 2, 0.5)
    assert closed_loop(users=2, requests=4, **TOKENS).think_s == 0
    assert load.mean_tokens == 15


def test_arrivals_have_their_rate_and_bursts_have_longer_gaps_between_them():
    even, uneven = poisson(rate=50, seconds=200, **TOKENS), bursts(rate=50, seconds=200, **TOKENS)
    spread = []
    for load in (even, uneven):
        gaps_s = np.diff(load.arrival_s)
        assert load.arrival_s[-1] <= 200
        assert len(load) / 200 == pytest.approx(50, rel=0.06)
        spread.append(gaps_s.std() / gaps_s.mean())
    assert spread == [pytest.approx(1, rel=0.05), pytest.approx(2, rel=0.05)]


def test_prefixes_are_drawn_from_their_number():
    load = offline(requests=200, prefix=Prefix(tokens=4, count=3), **TOKENS)
    assert (set(load.hashes.tolist()), load.block_tokens, set(load.blocks.tolist())) == ({0, 1, 2}, 4, {1})
    assert load.description.endswith("3 shared prefixes of 4 tokens")
