"""Shapes, parameters and operations, against published figures."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from weft.errors import ConfigError, UnknownName
from weft.training.transformer import Transformer, find, presets, reshape

EXACT = {  # as the published checkpoints have them
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "deepseek-v3": 671_026_419_200 - 58 * 256,  # its routers have a bias that no gradient trains
    "bloom-176b": 176_247_271_424 - 2 * 14_336,  # BLOOM has one norm more, after its input embedding
}
PRINTED = {  # in billions, as the papers round them
    "gpt3-175b": 174.6,
    "gpt-1.7b": 1.7,
    "gpt-3.6b": 3.6,
    "gpt-7.5b": 7.5,
    "gpt-18.4b": 18.4,
    "gpt-39.1b": 39.1,
    "gpt-76.1b": 76.1,
    "gpt-145.6b": 145.6,
    "gpt-310.1b": 310.1,
    "gpt-529.6b": 529.6,
    "gpt-1008b": 1008.0,
    "nemotron4-15b": 15.6,
    "nemotron4-340b": 341.0,
}


@pytest.mark.parametrize(("name", "parameters"), EXACT.items())
def test_parameters_are_those_of_the_checkpoint(name, parameters):
    assert find(name).parameters == parameters


@pytest.mark.parametrize(("name", "billions"), PRINTED.items())
def test_parameters_round_to_those_printed(name, billions):
    assert round(find(name).parameters / 1e9, 1) == billions


@pytest.mark.parametrize(
    ("name", "total", "active", "digits"),
    [("mixtral-8x7b", 46.7, 12.9, 1), ("mixtral-8x22b", 141, 39, 0), ("deepseek-v3", 671, 37, 0)],
)
def test_a_token_meets_as_many_parameters_as_published(name, total, active, digits):
    """DeepSeek prints 37B without the input embedding, which a token looks up and does not multiply."""
    model = find(name)
    met = model.active_parameters - (model.embedding_parameters if name == "deepseek-v3" else 0)
    assert (round(model.parameters / 1e9, digits), round(met / 1e9, digits)) == (total, active)


@pytest.mark.parametrize(("name", "billions"), [("grok1-314b", 314), ("gpt-5b", 5)])
def test_parameters_are_about_those_of_the_name(name, billions):
    """Which is all that was published: xAI's 314B are 315.7B by the shapes that it published too."""
    assert find(name).parameters / 1e9 == pytest.approx(billions, rel=0.011)


def test_embeddings_of_nemotron_are_as_many_as_printed():
    """Nemotron-4 340B: 9.4 billion of embeddings and 331.6 billion others."""
    model = find("nemotron4-340b")
    ends = model.embedding_parameters + model.head_parameters
    assert round(ends / 1e9, 1) == 9.4
    assert round((model.parameters - ends) / 1e9, 1) == 331.6


@pytest.mark.parametrize("name", presets())
def test_parameters_are_the_sum_of_the_layers_and_the_ends(name):
    model = find(name)
    layers = sum(model.layer_parameters(number) for number in range(model.layers))
    ends = model.embedding_parameters + model.head_parameters + model.final_norm_parameters
    assert model.parameters == layers + ends


@pytest.mark.parametrize("name", [name for name, model in presets().items() if model.bias])
def test_operations_of_a_gpt_are_those_of_the_closed_form(name):
    """Narayanan et al.: 72 l h² (1 + s/6h + V/12lh) for each token, without their recomputation."""
    model = find(name)
    layers, h, s = model.layers, model.hidden, model.seq
    printed = 72 * layers * h**2 * (1 + s / (6 * h) + model.vocab / (12 * layers * h))
    assert model.flop_per_token(s) == pytest.approx(printed, rel=1e-12)


@pytest.mark.parametrize("name", ["llama3-70b", "nemotron4-340b", "mixtral-8x7b", "grok1-314b"])
def test_operations_are_those_that_megatron_counts(name):
    """Its num_floating_point_operations knows no router; weft counts that matrix like any other."""
    model = find(name)
    h, s, heads = model.hidden, 4096, model.heads
    ratio = heads * model.head_dim / h
    attention = (1 + model.kv_heads / heads + s / h) * ratio
    feed_forward = model.ffn / h * (model.topk or 1) * (1.5 if model.gated else 1)
    logits = model.vocab / (2 * model.layers * h)
    megatron = 12 * model.layers * h**2 * (attention + feed_forward + logits)
    routers = 6 * model.layers * model.router_parameters
    assert model.flop_per_token(s) == pytest.approx(megatron + routers, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "seq", "flop"),
    [
        ("llama3-8b", 8192, 20_937_965_568 + 33_822_867_456 + 3_152_019_456),
        ("llama3-70b", 8192, 136_902_082_560 + 338_228_674_560 + 6_304_038_912),
        ("nemotron4-15b", 4096, 93_994_352_640),
        ("nemotron4-340b", 4096, 510_966_890_496 + 1_565_515_579_392 + 28_311_552_000),
        ("gpt3-175b", 2048, 376_883_380_224 + 695_784_701_952 + 3_774_873_600),
        ("gpt-5b", 2048, 12_079_595_520 + 19_327_352_832 + 1_258_291_200),
    ],
)
def test_operations_are_those_that_nvidia_prints(name, seq, flop):
    """DGX Cloud Benchmarking: attention, feed-forward and output embedding of one token (Nemotron: from 25.05 on)."""
    assert find(name).flop_per_token(seq) == flop


@pytest.mark.parametrize(
    ("name", "gpus", "batch", "step_s", "mfu_percent"),
    [("gpt3-175b", 128, 256, 8.91, 49.93), ("gpt3-175b", 2048, 4096, 9.02, 49.32), ("gpt-5b", 128, 512, 0.651, 41.56)],
)
def test_utilization_is_as_printed(name, gpus, batch, step_s, mfu_percent):
    """DGX Cloud Benchmarking 24.11.1, H100 in BF16; of GPT-3 it takes 2.20E+15 a sequence, rounded from 2.2046."""
    model = find(name)
    flop_s = batch * model.seq * model.flop_per_token(model.seq) / step_s
    assert 100 * flop_s / (gpus * 989e12) == pytest.approx(mfu_percent, rel=0.0025)


def test_latent_attention_counts_queries_with_and_values_without_position():
    """DeepSeek-V3: 6 for each parameter met, and 6 s heads (192 + 128) for the scores of each layer."""
    model = find("deepseek-v3")
    norms = model.layers * (2 * model.hidden + model.q_lora + model.kv_lora) + model.hidden
    multiplied = model.active_parameters - model.embedding_parameters - norms
    scores = model.layers * 128 * (192 + 128) * 4096
    assert replace(model, mtp=0).flop_per_token(4096) == pytest.approx(6 * (multiplied + scores), rel=1e-12)


def test_multi_token_prediction_counts_as_in_published_tflops():
    """DeepSeek-V3 in Megatron-Bridge: 1,046 TFLOP/s for 4,021 tokens/s, with the causal half of attention."""
    model = find("deepseek-v3")
    half = 6 * (model.layers + 1) * 128 * (192 + 128) * 4096 / 2
    assert model.flop_per_token(4096) - half == pytest.approx(1046e12 / 4021, rel=0.003)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-70b"])
@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_ranks_share_every_matrix(name, tp):
    model = find(name)
    for whole, part in (
        (model.attention_matrices(), model.attention_matrices(tp)),
        (model.dense_matrices(), model.dense_matrices(tp)),
    ):
        assert {key: a * b for key, (a, b) in whole.items()} == {key: a * b * tp for key, (a, b) in part.items()}


def test_more_ranks_than_keys_have_a_copy_of_one_each():
    assert find("llama3-70b").attention_matrices(16)["qkv"] == (8192, (4 + 2) * 128)


def test_every_preset_says_where_it_is_from():
    assert all(re.search(r"\(2026-11-\d\d\)$", model.source) for model in presets().values())


def test_a_preset_is_found_in_any_case_and_near_ones_are_suggested():
    assert find("Llama3-70B") is presets()["llama3-70b"]
    with pytest.raises(UnknownName, match="did you mean llama3-70b"):
        find("llama3-71b")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"layers": 0}, "layers = 0; it is a number from 1 up"),
        ({"topk": -1}, "topk = -1; it is a number from 0 up"),
        ({"kv_heads": 5}, "heads = 64 is not a multiple of kv_heads = 5"),
        ({"topk": 2}, "need experts > 0"),
        ({"experts": 8, "topk": 9, "expert_ffn": 64}, "topk = 9 of experts = 8; it is 1 to 8"),
        ({"experts": 8, "topk": 2}, "need expert_ffn"),
        ({"experts": 8, "topk": 2, "expert_ffn": 64, "dense_layers": 80}, "leave none with experts"),
        ({"kv_lora": 512}, "needs rope_dim and v_head_dim"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(changed: dict[str, int], message: str):
    model: Transformer = find("llama3-70b")
    with pytest.raises(ConfigError, match=message):
        replace(model, **changed)


def test_another_shape_keeps_what_follows_from_it():
    gpt = reshape(find("gpt3-175b"), hidden=2048, heads=16, ffn=8192)
    assert (gpt.kv_heads, gpt.head_dim, gpt.layers) == (16, 128, 96)
    llama = reshape(find("llama3-70b"), heads=32)
    assert (llama.kv_heads, llama.head_dim) == (8, 256)
    assert reshape(find("deepseek-v3"), layers=4).head_dim == 128
    with pytest.raises(ConfigError, match="hidden = 8192 does not divide by heads = 24; set head_dim"):
        reshape(find("llama3-70b"), heads=24)
    with pytest.raises(ConfigError, match="heads = 0; it is a number from 1 up"):
        reshape(find("llama3-70b"), heads=0)
