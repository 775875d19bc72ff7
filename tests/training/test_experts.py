"""The parts of a layer with experts that only some models and dispatchers have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.collectives.nccl.cluster import from_server
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.parallel import Layout
from weft.training.step import Step, run_step
from weft.training.transformer import Transformer, find

GPT_OSS, DEEPSEEK = replace(find("gpt-oss-20b"), layers=8), replace(find("deepseek-v3"), layers=5)


def run(model: Transformer, **options: object) -> Step:
    layout = Layout(**{"gpus": 8, "ep": 8, "global_batch": 32, "seq": 4096, **options})
    return run_step(model, layout, Gpu.of("H200"), Ideal(from_server("dgx-h200", nodes=1), layout))


def test_biases_and_clamps_of_experts_take_what_they_took_on_an_h200() -> None:
    """2.08 and 2.66 ms (biases), 1.41 and 2.87 ms (clamps) for 65,536 rows of 2,880 and 5,760 elements."""
    model = GPT_OSS
    with_biases, without = (run(replace(model, expert_bias=flag), micro_batch=4) for flag in (True, False))
    added_s = with_biases.parts["memory"] - without.parts["memory"]
    assert added_s == pytest.approx(model.layers * (2.08 + 2.66 + 1.41 + 2.87) / 1e3, rel=0.02)
    again = run(model, micro_batch=4, recompute="moe_act").parts["memory"]
    assert again - with_biases.parts["memory"] > model.layers * 1.41e-3


def test_multi_token_prediction_adds_a_layer_and_an_output() -> None:
    step, without = run(DEEPSEEK), run(replace(DEEPSEEK, mtp=0))
    longer = run(replace(DEEPSEEK, mtp=0, layers=6))
    added_s, layer_s = step.step_s - without.step_s, longer.step_s - without.step_s
    assert layer_s < added_s < 3 * layer_s


def test_the_last_chunk_gives_up_layers_for_multi_token_prediction() -> None:
    """As the recipes of DeepSeek-V3 have it for 4, 16 and 32 chunks."""
    layout = Layout(gpus=16, pp=4, global_batch=16, seq=4096)
    assert layout.chunks(61, mtp=1) == ((16,), (16,), (16,), (13,))
    sixteen = replace(layout, pp=16).chunks(61, mtp=1)
    assert [stage[0] for stage in sixteen] == [4] * 15 + [1]
    many = Layout(gpus=8, pp=8, vp=4, global_batch=8, seq=4096).chunks(61, mtp=1)
    assert (many[0][0], many[-1][-1], sum(map(sum, many))) == (1, 0, 61)


def test_fp8_and_all_to_all_copy_tokens_once_more() -> None:
    """FP8 multiplies whole groups of rows, and an all-to-all sorts by GPU before it sorts by expert."""
    memory = {
        (precision, dispatcher): run(GPT_OSS, precision=precision, dispatcher=dispatcher).parts["memory"]
        for precision in ("bf16", "fp8")
        for dispatcher in ("deepep", "alltoall")
    }
    once = memory["bf16", "alltoall"] - memory["bf16", "deepep"]
    assert once > 0
    assert memory["fp8", "deepep"] - memory["bf16", "deepep"] == pytest.approx(once, rel=1e-6)


def test_small_kernels_take_the_gpu_an_eighth_of_their_launches() -> None:
    """Layers of 4 experts are launched in 7.5 + 4 * 0.15 ms; CUDA graphs take the small kernels away too."""
    step, graphs = run(GPT_OSS), run(GPT_OSS, cuda_graphs="full_iteration")
    assert step.parts["memory"] - graphs.parts["memory"] == pytest.approx(8 * 4 * 0.125 * 8.1e-3, rel=1e-6)
