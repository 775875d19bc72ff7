"""An optimizer step: properties that hold for all constants."""

import math
from dataclasses import replace

import pytest

from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import from_server
from weft.errors import ConfigError
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.parallel import Layout
from weft.training.shares import shares
from weft.training.step import BUCKET_PARAMETERS, Step, run_step
from weft.training.transformer import find

H100 = Gpu.of("H100")


def step(model: str = "llama3-8b", slowest: float = 1.0, **given) -> Step:
    layout = Layout(**{"gpus": 64, "tp": 2, "global_batch": 128, "seq": 4096, **given})
    over = Ideal(from_server("dgx-h100", nodes=layout.gpus // 8), layout)
    return run_step(find(model), layout, H100, over, slowest=slowest)


LAYOUTS = [
    {},
    {"tp": 8},
    {"tp": 4, "pp": 4},
    {"tp": 4, "pp": 4, "vp": 2},
    {"cp": 4},
    {"tp": 1, "zero": 3},
    {"zero": 0, "overlap_grad_reduce": False},
    {"sequence_parallel": False, "recompute": "full"},
    {"precision": "fp8"},
    {"model": "mixtral-8x7b", "ep": 8},
    {"model": "mixtral-8x7b", "tp": 4, "ep": 2, "pp": 2},
]


@pytest.mark.parametrize("given", LAYOUTS, ids=str)
def test_parts_add_up_to_the_step(given):
    result = step(**given)
    assert sum(result.parts.values()) == pytest.approx(result.step_s)
    assert all(seconds >= -1e-9 for seconds in result.parts.values())
    assert 0.05 < result.mfu < 0.75
    assert result.tokens_per_s == pytest.approx(128 * 4096 / result.step_s)


def test_twice_the_batch_takes_twice_as_long_but_for_the_ends():
    once, twice = step(), step(global_batch=256)
    inside = sum(once.parts[part] for part in ("products", "attention", "memory", "tp"))
    assert twice.step_s - once.step_s == pytest.approx(inside, rel=0.01)


def test_computing_forward_again_costs_a_forward():
    """A third more products, but for the output embedding: one for every two of backward and one of forward."""
    none, full = step(global_batch=1024), step(global_batch=1024, recompute="full")
    assert full.parts["products"] / none.parts["products"] == pytest.approx(4 / 3, abs=0.05)


def test_exposed_communication_is_reported():
    hidden = step(zero=1, global_batch=64)
    output = step(zero=1, global_batch=64, overlap_grad_reduce=False, overlap_param_gather=False)
    assert output.parts["dp"] > 2 * hidden.parts["dp"]
    assert step(tp=8, tp_comm_overlap=False).parts["tp"] > 2 * step(tp=8).parts["tp"]


def test_gradients_that_are_sharded_are_summed_for_every_micro_batch():
    """ZeRO 2: on a slow network each of the micro-batches pays what ZeRO 1 pays once."""
    layouts = [Layout(gpus=16, zero=zero, global_batch=128, seq=2048) for zero in (1, 2)]
    slow = replace(from_server("dgx-h100", nodes=2), nic_gbit_s=10)
    item, two = (run_step(find("llama3-8b"), layout, H100, Ideal(slow, layout)) for layout in layouts)
    assert two.parts["dp"] > 3 * item.parts["dp"]
    assert step(zero=2).step_s == pytest.approx(step(zero=1).step_s, rel=0.05)  # on a fast one it is hidden


def test_expert_exchange_overlaps_with_another_micro_batch():
    arguments = {"model": "mixtral-8x7b", "tp": 2, "ep": 8}
    output, hidden = step(**arguments), step(**arguments, overlap_moe=True)
    assert output.parts["ep"] > 0.15 * output.step_s
    assert hidden.parts["ep"] < 0.1 * output.parts["ep"]
    assert hidden.parts["products"] == output.parts["products"]


def test_tokens_in_fp8_halve_the_way_to_experts_alone():
    """A byte for each element and 4 for 128 of them, not two bytes each; the way back and starts stay as they are."""
    arguments = {"model": "mixtral-8x7b", "ep": 8, "etp": 1, "seq": 8192}
    usual, short = step(**arguments), step(**arguments, fp8_dispatch=True)
    assert (1 + (1 + 4 / 128) / 2) / 2 < short.parts["ep"] / usual.parts["ep"] < 0.8
    assert short.parts["products"] == usual.parts["products"]


def test_a_pipeline_has_its_bubble_and_virtual_stages_cut_it():
    plain, cut = (step("gpt3-175b", gpus=128, tp=4, pp=8, vp=vp, seq=2048, global_batch=64) for vp in (1, 4))
    assert plain.parts["bubble"] / plain.step_s > 0.2
    assert cut.parts["bubble"] < plain.parts["bubble"] / 2


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("option", ["overlap_grad_reduce", "overlap_param_gather"])
def test_each_overlap_hides_its_own_collective_at_every_stage_of_zero(zero, option):
    """The step is longer without it, and the whole difference is exposed communication."""
    hidden, output = step(zero=zero), step(zero=zero, **{option: False})
    assert output.step_s > 1.01 * hidden.step_s
    assert output.step_s - hidden.step_s == pytest.approx(output.parts["dp"] - hidden.parts["dp"])


def test_zero_3_without_overlap_adds_its_collectives_to_each_pass():
    """Two gathers and one scatter of every layer, in each micro-batch."""
    arguments = {"tp": 1, "zero": 3, "global_batch": 128, "overlap_grad_reduce": False, "overlap_param_gather": False}
    layout = Layout(gpus=64, seq=4096, **arguments)
    over = Ideal(from_server("dgx-h100", nodes=8), layout)
    result = run_step(find("llama3-8b"), layout, H100, over, slowest=1.0)
    layer = float(shares(layout, find("llama3-8b")).parameters.sum()) / 32
    gather_s = over.time_s("dp-cp", Collective.ALL_GATHER, 2 * layer)
    scatter_s = over.time_s("dp-cp", Collective.REDUCE_SCATTER, 4 * layer)
    assert result.parts["dp"] == pytest.approx(layout.micro_batches * 32 * (2 * gather_s + scatter_s))


@pytest.mark.parametrize("overlap", [True, False])
def test_gradients_are_cut_into_buckets_only_to_overlap_them(overlap):
    """Megatron does the same: without overlap one collective has all of them."""
    layout = Layout(gpus=64, tp=2, global_batch=128, seq=4096, overlap_grad_reduce=overlap)
    over = Ideal(from_server("dgx-h100", nodes=8), layout)
    result = run_step(find("llama3-8b"), layout, H100, over)
    parameters = float(shares(layout, find("llama3-8b")).parameters.sum())
    buckets = math.ceil(parameters / BUCKET_PARAMETERS) if overlap else 1
    bucket_s = over.time_s("dp-cp", Collective.REDUCE_SCATTER, 4 * parameters / buckets)
    begin_s, end_s = result.summed_s[0, 0]
    assert end_s - max(begin_s, result.schedule.end_s.max()) == pytest.approx(bucket_s)


def test_the_bubble_is_never_below_zero():
    """The sum of the other parts is larger than the step by its last digit in these cases."""
    for zero, batch in ((0, 128), (1, 64), (2, 64), (2, 128), (3, 256)):
        assert step(tp=4, zero=zero, global_batch=batch).parts["bubble"] >= 0.0


def test_without_a_pipeline_there_is_no_bubble():
    """The gathers of ZeRO 3 that nothing hides belong to data parallelism."""
    result = step(tp=1, zero=3, global_batch=64)
    assert result.parts["bubble"] == pytest.approx(0.0, abs=1e-9)
    assert result.parts["dp"] > 0.0


def test_all_wait_for_the_slowest_gpu():
    assert step(slowest=1.1).step_s / step().step_s == pytest.approx(1.1, abs=0.02)
    piped = [step(tp=4, pp=4, global_batch=256, slowest=slowest).step_s for slowest in (1.0, 1.1)]
    assert 1.05 < piped[1] / piped[0] < 1.1


def test_one_stage_has_the_slowest_gpu_and_the_others_compute_as_before():
    plain, held_up = (step(tp=4, pp=4, slowest=slowest).schedule.busy_s for slowest in (1.0, 1.1))
    assert sorted(held_up / plain) == pytest.approx([1.0, 1.0, 1.0, 1.1])


def test_the_slowest_of_more_gpus_is_slower():
    assert H100.slowest_of(1) == 1.0
    few, many = H100.slowest_of(128), H100.slowest_of(2048)
    assert few == pytest.approx(1 + 0.015 * 2.6, abs=0.002)  # expected maxima of normal samples: 2.6, 3.5
    assert many == pytest.approx(1 + 0.015 * 3.5, abs=0.002)


def test_the_same_model_on_a_slower_network_takes_longer_only_where_it_waits_for_it():
    layout = Layout(gpus=64, tp=8, global_batch=64, seq=4096)
    fast = from_server("dgx-h100", nodes=8)
    slow = replace(fast, nic_gbit_s=25)
    steps = [run_step(find("llama3-70b"), layout, H100, Ideal(cluster, layout)) for cluster in (fast, slow)]
    assert steps[1].parts["dp"] > 3 * steps[0].parts["dp"]
    for part in ("products", "attention", "memory", "tp"):
        assert steps[1].parts[part] == steps[0].parts[part]


def test_a_layout_that_does_not_fit_the_model_is_refused_before_it_runs():
    with pytest.raises(ConfigError, match="does not divide by tp"):
        step("gpt3-175b", tp=64, seq=2048, global_batch=64)
