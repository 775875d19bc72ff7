"""Frameworks: the same model on the same GPUs with other kernels, launches and overlaps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.collectives.nccl.cluster import from_server
from weft.errors import ConfigError
from weft.training.communication import Ideal
from weft.training.framework import choose_framework, find_framework, find_kernel, frameworks, with_defaults
from weft.training.gpu import Gpu
from weft.training.parallel import Layout
from weft.training.step import Step, run_step
from weft.training.transformer import Transformer, find


def run(framework: str, model: Transformer, server: str = "dgx-h100", **sizes: object) -> Step:
    fields = {"gpus": 8, "global_batch": 16, "seq": 4096, "framework": framework, **sizes}
    layout = Layout(**with_defaults(fields))
    gpu = {"dgx-h100": "H100", "dgx-a100": "A100", "dgx-b200": "B200"}[server]
    return run_step(model, layout, Gpu.of(gpu), Ideal(from_server(server, nodes=layout.gpus // 8), layout))


def test_an_eager_framework_of_2023_is_slower_than_megatron_in_every_kernel():
    model = find("mpt-7b")
    model = replace(model, seq=4096)
    eager, fused = (run(name, model, "dgx-a100", zero=3, recompute="full") for name in ("fsdp-eager", "megatron"))
    for part in ("attention", "memory"):
        assert eager.parts[part] > 1.3 * fused.parts[part]
    assert eager.parts["dp"] > fused.parts["dp"]


def test_attention_of_an_older_kernel_costs_more_the_longer_the_sequence():
    model = replace(find("mpt-7b"), seq=32768)
    ratios = []
    for seq in (2048, 32768):
        times = [
            run(name, model, "dgx-a100", zero=3, seq=seq, global_batch=8).step_s for name in ("fsdp-eager", "megatron")
        ]
        ratios.append(times[0] / times[1])
    assert ratios[1] > 1.2 * ratios[0]


def test_a_framework_sets_options_of_the_layout_that_are_not_given():
    assert with_defaults({"framework": "deepspeed"})["fused_attention"] is False
    assert with_defaults({"framework": "deepspeed", "fused_attention": True})["fused_attention"] is True
    assert with_defaults({}) == {}


@pytest.mark.parametrize(
    ("fields", "sm", "name"),
    [
        ({}, 90, "megatron"),
        ({"zero": 3}, 90, "fsdp-eager"),
        ({"zero": 3}, 100, "megatron"),
        ({"zero": 3, "tp": 2}, 90, "megatron"),
        ({"precision": "fp16"}, 80, "deepspeed"),
        ({"precision": "fp16"}, 90, "megatron"),
        ({"precision": "fp16", "framework": "megatron-2021"}, 80, "megatron-2021"),
    ],
)
def test_a_framework_that_is_not_named_follows_from_the_layout(fields, sm, name):
    assert choose_framework(fields, sm) == name


def test_an_early_stack_on_blackwell_is_slower_than_a_mature_one_and_on_hopper_it_is_not():
    model = find("llama3-8b")
    early, mature = (run(name, model, "dgx-b200") for name in ("nemo-2025", "megatron"))
    assert early.step_s > 1.05 * mature.step_s
    assert run("nemo-2025", model).step_s == run("megatron", model).step_s


def test_sums_of_zero_1_with_an_all_reduce_take_longer_than_with_a_reduce_scatter():
    model = find("llama3-8b")
    slow, fast = (run(name, model, "dgx-a100", gpus=16, fused_attention=True) for name in ("deepspeed", "megatron"))
    assert slow.parts["dp"] > fast.parts["dp"]


def test_many_small_kernels_of_experts_wait_for_the_host():
    model = find("qwen3-30b-a3b")
    few, many = (run("megatron", model, "dgx-b200", ep=8, micro_batch=size, global_batch=64) for size in (1, 8))
    assert few.parts["host"] > 0.1 * few.step_s
    assert many.parts["host"] == 0


def test_eager_layers_with_a_gate_move_more_bytes_than_plain_ones():
    """Norms, rotary positions and the gate are separate kernels there; a compiler fuses them."""
    ratios = []
    for model in (find("llama3-8b"), replace(find("mpt-7b"), seq=4096)):
        eager, fused = (run(name, model, zero=3) for name in ("fsdp-2025", "torchtitan"))
        assert eager.parts["optimizer"] == pytest.approx(2.3 * fused.parts["optimizer"])
        ratios.append(eager.parts["memory"] / fused.parts["memory"])
    assert ratios[0] > 2 * ratios[1] > 2


def test_graphs_take_launches_from_the_host_and_overlap_adds_some():
    model = find("qwen3-30b-a3b")
    waits = {}
    for scopes in ("none", "moe_router,moe_preprocess", "attn,moe_router,moe_preprocess", "full_iteration"):
        waits[scopes] = run("megatron", model, "dgx-b200", ep=8, cuda_graphs=scopes).parts["host"]
    assert list(waits.values()) == sorted(waits.values(), reverse=True)
    assert waits["full_iteration"] == 0 < waits["attn,moe_router,moe_preprocess"]
    hidden = run("megatron", model, "dgx-b200", ep=8, overlap_moe=True)
    assert hidden.parts["ep"] == 0
    assert hidden.parts["host"] > waits["none"]


def test_the_host_launches_the_products_of_each_expert():
    model = find("qwen3-30b-a3b")
    few, many = (run("megatron", model, "dgx-b200", ep=ep) for ep in (8, 1))
    assert few.step_s < many.step_s


def test_experts_of_the_busiest_gpu_set_the_pace():
    model = find("mixtral-8x7b")
    even, uneven = (run("megatron", model, ep=8, imbalance=factor, micro_batch=2) for factor in (1.0, 1.5))
    for part in ("products", "ep"):
        assert 1.1 < uneven.parts[part] / even.parts[part] < 1.5


def test_an_all_gather_brings_tokens_also_to_gpus_without_experts_of_them():
    """Eight copies of each token, not two."""
    gathered, sent = (run("megatron", find("mixtral-8x7b"), ep=8, dispatcher=way) for way in ("allgather", "alltoall"))
    assert 2 < gathered.parts["ep"] / sent.parts["ep"] < 6


def test_tokens_go_once_to_each_server_with_deduplication():
    """With two servers and eight experts a token needs nearly two copies, not eight."""
    model = find("qwen3-30b-a3b")
    once, each = (run(name, model, gpus=16, ep=16) for name in ("megatron", "nemo-2025"))
    assert once.parts["ep"] < 0.5 * each.parts["ep"]


def test_an_unknown_framework_is_named_with_those_known():
    with pytest.raises(ConfigError, match=r"framework 'torch'.*torchtitan"):
        Layout(gpus=8, global_batch=8, seq=2048, framework="torch")


@pytest.mark.parametrize("name", frameworks())
def test_every_framework_has_a_kernel_for_attention_and_a_source(name):
    framework = find_framework(name)
    kernel = find_kernel(framework.attention)
    assert 0.1 < kernel.share(80, backward=True) <= kernel.share(80, backward=False) < 1
    assert framework.source
    assert framework.label


def test_waves_of_tiles_show_on_gpus_that_power_does_not_limit():
    a100, h100 = Gpu.of("A100"), Gpu.of("H100")
    for gpu, shows in ((a100, True), (h100, False)):
        whole = gpu.matmul_s(108 * 128, 256, 8192, "bf16")
        one_more = gpu.matmul_s(109 * 128, 256, 8192, "bf16")
        assert (one_more > 1.1 * whole) is shows
