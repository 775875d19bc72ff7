"""Fine-tuning with LoRA: adapters alone are trained, all other weights are frozen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.collectives.nccl.cluster import from_server
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.memory import footprint
from weft.training.parallel import Layout
from weft.training.shares import shares
from weft.training.step import Step, run_step
from weft.training.storage import checkpoint_bytes
from weft.training.transformer import find

MODEL = find("llama3-8b")
WHOLE = Layout(gpus=8, global_batch=32, seq=4096)
LORA = replace(WHOLE, lora=16, lora_modules="linear_qkv")


def run(layout: Layout) -> Step:
    return run_step(MODEL, layout, Gpu.of("H100"), Ideal(from_server("dgx-h100", nodes=1), layout))


def test_adapters_have_two_thin_matrices_beside_each_that_has_one():
    qkv = 16 * (4096 + (32 + 2 * 8) * 128)
    assert shares(LORA, MODEL).trained.sum() == 32 * qkv
    every = replace(LORA, lora_modules="linear_qkv,linear_proj,linear_fc1,linear_fc2")
    rest = 16 * (2 * 4096 + (4096 + 2 * 14336) + (14336 + 4096))
    assert shares(every, MODEL).trained.sum() == 32 * (qkv + rest)


def test_frozen_weights_have_no_gradients_and_no_states():
    whole, lora = footprint(WHOLE, MODEL), footprint(LORA, MODEL)
    assert lora.weights_bytes == whole.weights_bytes
    assert lora.gradients_bytes < whole.gradients_bytes / 1000
    assert lora.optimizer_bytes < whole.optimizer_bytes / 1000
    assert lora.activations_bytes < whole.activations_bytes


def test_frozen_weights_save_a_third_of_the_products_and_the_sum_of_gradients():
    whole, lora = run(WHOLE), run(LORA)
    assert lora.parts["products"] == pytest.approx(2 / 3 * whole.parts["products"], rel=0.06)
    assert lora.parts["memory"] > whole.parts["memory"]
    assert lora.parts["optimizer"] < 0.01 * whole.parts["optimizer"]


def test_a_checkpoint_has_the_adapters_alone():
    assert checkpoint_bytes(LORA, MODEL).sum() == pytest.approx(14 * shares(LORA, MODEL).trained.sum(), rel=0.01)


def test_more_adapters_and_a_higher_rank_take_longer():
    every = replace(LORA, lora_modules="linear_qkv,linear_proj,linear_fc1,linear_fc2")
    times = [run(each).step_s for each in (LORA, every, replace(every, lora=512))]
    assert times == sorted(times)


def test_experts_of_a_rank_share_an_adapter_that_all_their_tokens_pass():
    model = find("mixtral-8x7b")
    attention = replace(WHOLE, ep=8, lora=16, lora_modules="linear_qkv")
    experts = replace(attention, lora_modules="linear_qkv,linear_fc1,linear_fc2")
    assert shares(attention, model).trained_experts.sum() == 0
    held = shares(experts, model)
    assert held.trained_experts.sum() == 32 * 16 * ((4096 + 2 * 14336) + (14336 + 4096))
    assert held.trained.sum() == shares(attention, model).trained.sum()
    steps = [
        run_step(model, each, Gpu.of("H100"), Ideal(from_server("dgx-h100", nodes=1), each))
        for each in (attention, experts)
    ]
    assert 1.02 < steps[1].parts["products"] / steps[0].parts["products"] < 1.3
    assert steps[1].parts["memory"] > steps[0].parts["memory"]


def test_shared_experts_have_adapters_of_their_own():
    model = find("deepseek-v3")
    layout = replace(WHOLE, ep=8, lora=16)
    bare = replace(model, shared_experts=0)
    assert shares(layout, model).trained.sum() > shares(layout, bare).trained.sum()
