"""KV caches between prefill and decode replicas of different layouts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.inference.deployment import Deployment, find_deployment
from weft.inference.serving.figures import Objective
from weft.inference.serving.fleet import Fleet, over_layouts
from weft.inference.serving.load import Lengths, offline, poisson
from weft.inference.serving.placement import build_service, limits_of, place_pools
from weft.inference.serving.resharding import find_parts
from weft.inference.serving.run import serve
from weft.sim.perftest import prepare

DENSE = find_deployment("llama3-70b", tp=8, gpus=16)  # 8 KV heads, 80 layers
LATENT = find_deployment("deepseek-v3", dp=16, ep=16, weights="fp8")
SIZES = st.sampled_from([1, 2, 4, 8, 16])


def cut(model: Deployment, **sizes: int) -> Deployment:
    """Return a deployment with another layout, on a site that may be too small for its weights."""
    other = object.__new__(Deployment)
    for name in Deployment.__dataclass_fields__:
        object.__setattr__(other, name, sizes.get(name, getattr(model, name)))
    return other


def held(deployment: Deployment, rank: int) -> set[tuple[int, int]]:
    """Return the (layer, head) pairs of the cache on a GPU, written out one by one."""
    tensor, stage = rank % deployment.tp, rank // (deployment.tp * deployment.dp)
    heads = 1 if deployment.model.kv_lora else deployment.model.kv_heads
    layers = 80
    mine = {h for h in range(heads) if h * deployment.tp // heads <= tensor < max((h + 1) * deployment.tp / heads, 1)}
    if deployment.tp < heads:
        mine = {h for h in range(heads) if h * deployment.tp // heads == tensor}
    return {(layer, h) for layer in range(layers) if layer * deployment.pp // layers == stage for h in mine}


@given(tp=SIZES, pp=st.sampled_from([1, 2, 4]), dp=st.sampled_from([1, 2, 3]), to=st.tuples(SIZES, SIZES, SIZES))
def test_each_decode_gpu_receives_its_part_from_gpus_that_hold_it(tp, pp, dp, to):
    prefill = cut(DENSE, tp=tp, pp=pp, dp=dp)
    decode = cut(DENSE, tp=to[0], pp=min(to[1], 8), dp=to[2])
    for ranks in find_parts(prefill, decode):
        received: Counter[int] = Counter()
        for part in ranks:
            both = held(prefill, part.source) & held(decode, part.target)
            assert part.share == pytest.approx(len(both) / len(held(decode, part.target)) / (decode.tp * decode.pp))
            received[part.target] += part.share
        assert len(received) == decode.tp * decode.pp  # the GPUs of one attention rank
        assert list(received.values()) == pytest.approx([1 / len(received)] * len(received))


def test_equal_layouts_send_from_each_gpu_to_its_counterpart():
    for model, sizes in ((DENSE, {"tp": 16}), (DENSE, {"tp": 4, "pp": 2}), (LATENT, {"tp": 4, "dp": 4})):
        deployment = cut(model, **sizes)
        assert all(part.source == part.target for ranks in find_parts(deployment, deployment) for part in ranks)


def test_a_latent_cache_leaves_from_one_gpu_for_each_that_receives_it():
    (parts,) = find_parts(cut(LATENT, tp=8, dp=1), cut(LATENT, tp=1, dp=1))
    assert [(part.source, part.share) for part in parts] == [(0, 1.0)]


@pytest.mark.parametrize("sizes", [{"tp": 6}, {"pp": 3}])
def test_slices_that_overlap_are_refused(sizes):
    with pytest.raises(ConfigError, match="multiple of the other"):
        find_parts(cut(DENSE, tp=4, pp=2), cut(DENSE, **({"tp": 4, "pp": 2} | sizes)))


# -- over a fabric ----------------------------------------------------------------------------------------------------


def wire_s(tp: int, decode_tp: int) -> float:
    """Return the time of a hand-off between servers beyond its set-up."""
    small = find_deployment("llama3-8b", gpus=16, tp=8)
    placement = place_pools(replace(small, tp=tp), replace(small, tp=decode_tp), prefill=8 // tp, decode=1)
    tables = placement.tables(8_001.0)
    service = build_service(placement, tables, limits_of(small), setup_s=0.0)
    request = serve(service, offline(requests=1, prompt=Lengths(8_000), output=Lengths(2), seed=1)).requests[0]
    return float(request.first_s - request.prefilled_s)


def test_the_side_with_fewer_gpus_sets_the_rate_of_a_handoff():
    by_eight = wire_s(8, 8)
    assert wire_s(8, 4) == pytest.approx(2 * by_eight, rel=0.05)
    assert wire_s(4, 8) == pytest.approx(2 * by_eight, rel=0.05)
    assert wire_s(2, 8) == pytest.approx(4 * by_eight, rel=0.05)


def test_decode_replicas_start_at_a_multiple_of_their_size():
    small = find_deployment("llama3-8b", gpus=16, tp=2)
    placement = place_pools(small, replace(small, tp=8), prefill=1, decode=1)
    assert placement.gpus_of == [range(2), range(8, 16)]
    assert placement.gpus == 16
    with pytest.raises(ConfigError, match="of 2 and 8 GPUs need 24"):
        replace(placement, decode=2)


def test_a_handoff_inside_a_server_takes_nvlink():
    small = find_deployment("llama3-8b", gpus=8, tp=4)
    placement = place_pools(small, replace(small, tp=2), prefill=1, decode=1)
    routes, _ = placement.routes(prepare(small.site.fabric))
    assert routes.first[-1] == 0
    both_of_four = place_pools(small, None, prefill=1, decode=1).routes(prepare(small.site.fabric))[0]
    assert routes.most_byte_s[1] == pytest.approx(both_of_four.most_byte_s[1] / 2)


def test_the_search_over_layouts_needs_no_more_gpus_than_one_layout():
    load = poisson(rate=20, seconds=5, prompt=Lengths(1_000), output=Lengths(50), seed=1)
    objective = Objective(ttft_s=1.0, tpot_s=0.03)

    def find(gpus, sizes):
        return find_deployment("llama3-8b", gpus=gpus, **sizes)

    choices = over_layouts(Fleet(find=find), 4, load, objective)
    assert {choice.fleet.deployment.tp for choice in choices} > {1}
    for tp in (1, 4):
        alone = Fleet(find=find, sizes={"tp": tp})
        for apart in (False, True):
            assert choices[0].found.gpus <= alone.choices(load, objective, disaggregated=apart)[0].found.gpus


def test_limits_that_a_search_tries_are_those_of_the_decode_replicas():
    def find(gpus, sizes):
        return find_deployment("llama3-8b", gpus=gpus or 4, **sizes)

    fleet = Fleet(find=find, sizes={"tp": 1}, decode_sizes={"tp": 2})
    tables = fleet.tables(poisson(rate=20, seconds=5, prompt=Lengths(1_000), output=Lengths(50), seed=1))[True]
    own, other = fleet.limits_of(fleet.deployment), fleet.limits_of(fleet.decoding)
    tried = replace(own, max_num_seqs=7)
    for limits, expected in ((None, (own, other)), (tried, (own, tried))):
        service = fleet.build(fleet.place(1, 1), tables, limits)
        assert tuple(pool.limits for pool in service.pools) == expected


def test_a_search_over_layouts_without_room_for_the_model_is_refused():
    def find(gpus, sizes):
        raise ConfigError("no room")

    with pytest.raises(ConfigError, match="no layout of up to 4 GPUs for a replica has room for the model"):
        over_layouts(Fleet(find=find), 4, None, None)
