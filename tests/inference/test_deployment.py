"""Layouts, formats and memory of a served model, counted by hand."""

from __future__ import annotations

import json
from math import nan

import pytest

from weft.errors import ConfigError
from weft.inference.deployment import KV_BYTES, WEIGHT_BYTES, Deployment, find_deployment
from weft.training.transformer import reshape, shape

GB = 1 << 30
SMALL = shape(name="small", layers=4, hidden=1024, heads=8, kv_heads=2, ffn=4096, gated=True, vocab=32_000, seq=2048)
EXPERTS = reshape(SMALL, name="mixture", experts=16, topk=2, expert_ffn=512)
ENDS = 2 * 1024 * 32_000 * 2  # bytes of the input and output embedding
ATTENTION, DENSE = 1024 * (8 + 2 * 2) * 128 + 1024 * 1024 + 1024, 3 * 1024 * 4096 + 1024
EXPERT = 3 * 1024 * 512


def deploy(model=SMALL, **fields: object) -> Deployment:
    return find_deployment(model, **{"server": "dgx-h100", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({"gpus": 1, name: 0}, f"--{name} must be at least 1, got 0") for name in ("tp", "pp", "dp", "ep")),
        ({"weights": "fp3"}, "--weights format"),
        ({"kv": "mxfp4"}, "--kv format"),
        ({"dense_weights": "bf16"}, "--dense-weights changes nothing: small has no experts. Use --weights"),
        ({"model": EXPERTS, "dense_weights": "fp3"}, "--dense-weights format"),
        ({"activations": "fp3"}, "fp3"),
        ({"imbalance": 0.9}, "--imbalance must be at least 1, got 0.9"),
        ({"imbalance": nan}, "--imbalance must be at least 1, got nan"),
        ({"drafts": -1}, "--drafts must be at least 0, got -1"),
        ({"max_batch": -1}, "--max-batch must be at least 0, got -1"),
        ({"max_tokens": -1}, "--max-tokens must be at least 0, got -1"),
        ({"acceptance": 1.01}, r"--acceptance must be in \[0, 1\], got 1.01"),
        ({"acceptance": -0.01}, r"--acceptance must be in \[0, 1\], got -0.01"),
        ({"tp": 2, "gpus": 3}, "2 .*3 GPUs"),
        ({"tp": 3}, "--tp 3 does not divide the 8 heads of small"),
        ({"pp": 5}, "--pp 5 is more than the 4 layers of small"),
        ({"dp": 2}, "--dp and --ep share experts, and small has none"),
        ({"ep": 2}, "--dp and --ep share experts, and small has none"),
        ({"model": EXPERTS, "tp": 2, "dp": 2, "ep": 3}, "--ep 3 .* 4"),
        ({"model": EXPERTS, "dp": 32, "ep": 32}, "--ep 32 is more than the 16 experts of mixture"),
        ({"model": EXPERTS, "tp": 2, "ep": 2, "overlap": True}, "--overlap hides dispatch and combine"),
        ({"network": "tcp"}, "--network changes nothing here: a replica of 1 GPUs sends nothing over the network"),
        ({"tp": 8, "paths": "spray"}, "--paths changes nothing here: a replica of 8 GPUs"),
        ({"max_tokens": 3_000_000}, r"small in bf16 does not fit: weights and activations take 9\d\.\d GB of 80 GB"),
    ],
)
def test_a_deployment_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        deploy(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"pp": 4},
        {"acceptance": 0.0},
        {"acceptance": 1.0},
        {"imbalance": 1.0},
        {"model": EXPERTS, "dp": 16, "ep": 16},
        {"model": EXPERTS, "dp": 2, "overlap": True},
        {"tp": 2, "pp": 4, "gpus": 16},
    ],
)
def test_limits_belong_to_what_is_allowed(fields):
    assert deploy(**fields).kv_room_tokens > 0


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({}, ENDS + 2 * 4 * (ATTENTION + DENSE)),
        ({"weights": "fp8"}, ENDS + 4 * (ATTENTION + DENSE)),
        ({"weights": "nvfp4"}, ENDS + 0.5625 * 4 * (ATTENTION + DENSE)),
        ({"tp": 2}, ENDS / 2 + 4 * (ATTENTION + DENSE + 2 * 1024)),  # norms are not cut
        ({"pp": 2}, ENDS / 2 + 4 * (ATTENTION + DENSE)),
        ({"pp": 4}, ENDS / 2 + 2 * (ATTENTION + DENSE)),
        ({"model": EXPERTS}, ENDS + 2 * 4 * (ATTENTION + 1024 + 16 * 1024 + 16 * EXPERT)),
        ({"model": EXPERTS, "dp": 4, "ep": 4}, ENDS + 2 * 4 * (ATTENTION + 1024 + 16 * 1024 + 4 * EXPERT)),
        ({"model": EXPERTS, "dp": 4, "ep": 2}, ENDS + 2 * 4 * (ATTENTION + 1024 + 16 * 1024 + 4 * EXPERT)),
        (
            {"model": EXPERTS, "weights": "mxfp4"},
            ENDS + 4 * (2 * (ATTENTION + 1024 + 16 * 1024) + 0.53125 * 16 * EXPERT),
        ),
        (
            {"model": EXPERTS, "weights": "fp8", "dense_weights": "bf16"},
            ENDS + 4 * (2 * (ATTENTION + 1024 + 16 * 1024) + 16 * EXPERT),
        ),
    ],
)
def test_weights_of_a_gpu_are_its_parts_of_the_layers_and_both_embeddings(fields, size):
    assert deploy(**fields).weight_bytes == pytest.approx(size, rel=1e-12)


def test_activations_are_those_of_the_largest_step_with_logits():
    step = 2 * 8192 * (4 * 1024 + 1.5 * 2 * 4096)
    assert deploy().activation_bytes == step + 4 * 1024 * 32_000
    assert deploy(max_tokens=100, max_batch=10).activation_bytes == step * 100 / 8192 + 4 * 10 * 32_000
    assert deploy(tp=2).activation_bytes == 2 * 8192 * (4 * 1024 + 1.5 * 4096) + 4 * 1024 * 16_000
    plain = reshape(SMALL, gated=False)
    assert deploy(plain).activation_bytes == 2 * 8192 * (4 * 1024 + 1.5 * 4096) + 4 * 1024 * 32_000
    wide = reshape(EXPERTS, topk=10, expert_ffn=1024)  # the experts of a token are wider than a dense layer
    assert deploy(wide, dp=2).activation_bytes == 2 * 8192 * (4 * 1024 + 1.5 * 2 * 10_240) + 4 * 1024 * 32_000


def test_the_cache_has_the_memory_that_is_left():
    one = deploy()
    used = one.weight_bytes + one.activation_bytes + 1.2 * GB
    assert one.kv_bytes_of_gpu == pytest.approx(0.9 * 80 * GB - used)
    assert one.kv_room_tokens == int(one.kv_bytes_of_gpu / 4096)
    free = deploy(framework="tensorrt-llm")
    engine = free.engine
    assert engine.free_only
    used = free.weight_bytes + free.activation_bytes + engine.reserve_gbyte * GB
    assert free.kv_bytes_of_gpu == pytest.approx(engine.memory * (80 * GB - used))
    both = deploy(EXPERTS, dp=2)
    assert both.kv_room_tokens == int(2 * both.kv_bytes_of_gpu / 4096)


@pytest.mark.parametrize(
    ("fields", "of_rank", "of_all"),
    [
        ({}, 4096, 4096),
        ({"kv": "fp8"}, 2048, 2048),
        ({"tp": 2}, 2048, 4096),
        ({"tp": 4}, 2048, 8192),  # two keys, of which each of four ranks has one
        ({"pp": 2}, 2048, 4096),
    ],
)
def test_a_cached_token_has_a_key_and_a_value_of_each_layer(fields, of_rank, of_all):
    deployment = deploy(**fields)
    assert (deployment.kv_bytes_per_rank_token, deployment.kv_bytes_per_token) == (of_rank, of_all)


def test_windows_keep_their_own_tokens_only():
    some, all_ = (deploy(reshape(SMALL, window=1000, full_every=every)) for every in (4, 0))
    assert [some.cached_share(context) for context in (999, 1000, 2000, 4000)] == [1, 1, 0.625, 0.4375]
    assert [all_.cached_share(context) for context in (1000, 2000)] == [1, 0.5]
    assert deploy().cached_share(1e9) == 1


def test_states_of_state_space_layers_have_four_bytes():
    model = reshape(SMALL, pattern="M*M-", ssm_heads=16, ssm_head_dim=64, ssm_groups=2, ssm_state=128)
    deployment = deploy(model)
    assert deployment.state_bytes_of_gpu == 4 * 2 * 16 * 64 * 128
    assert deployment.kv_bytes_per_rank_token == 1024  # bytes of one layer with attention
    assert deploy(model, tp=2, pp=2).state_bytes_of_gpu == 2 * 16 * 64 * 128
    assert deploy().state_bytes_of_gpu == 0


def test_limits_of_a_step_are_those_of_the_engine_for_each_rank_unless_given():
    ranks = deploy(EXPERTS, dp=2)
    assert (ranks.batch_limit, ranks.token_limit) == (2048, 16_384)
    given = deploy(EXPERTS, dp=2, max_batch=7, max_tokens=70)
    assert (given.batch_limit, given.token_limit) == (7, 70)


def test_drafts_count_up_to_the_first_that_is_rejected():
    assert [deploy(drafts=drafts, acceptance=0.5).tokens_per_decode for drafts in (0, 1, 2)] == [1, 1.5, 1.75]


@pytest.mark.parametrize(
    ("server", "weights", "precision"),
    [
        ("dgx-h100", "bf16", "bf16"),
        ("dgx-h100", "fp8", "fp8"),
        ("dgx-h100", "nvfp4", "bf16"),
        ("dgx-h100", "mxfp4", "bf16"),
        ("dgx-a100", "fp8", "bf16"),
        ("dgx-b200", "nvfp4", "nvfp4"),
        ("dgx-b200", "mxfp4", "mxfp8"),
    ],
)
def test_products_have_the_format_of_the_weights_where_tensor_cores_can(server, weights, precision):
    assert deploy(EXPERTS, server=server, weights=weights).precision == precision
    assert deploy(EXPERTS, server=server, weights=weights, activations="bf16").precision == "bf16"


def test_weights_of_a_config_json_have_the_format_of_its_quantization(tmp_path):
    sizes = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    sizes |= {"intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(sizes | {"quantization_config": {"quant_method": "fp8"}}))
    assert deploy(str(path)).weights == "fp8"
    assert deploy(str(path), weights="bf16").weights == "bf16"
    path.write_text(json.dumps(sizes | {"quantization_config": {"quant_method": "awq", "bits": 4}}))
    with pytest.raises(ConfigError, match="expected one of fp8, mxfp4, nvfp4; or give --weights"):
        deploy(str(path))
    assert deploy(str(path), weights="fp8").weights == "fp8"
    path.write_text(json.dumps(sizes))
    assert deploy(str(path)).weights == "bf16"


def test_the_cache_is_narrow_by_default_where_the_engine_does_so():
    names = {
        (engine, weights): deploy(framework=engine, weights=weights).kv
        for engine in ("vllm", "tensorrt-llm")
        for weights in ("bf16", "fp8", "nvfp4")
    }
    narrow = deploy(framework="tensorrt-llm").engine.narrow_kv
    assert names == {
        **{("vllm", weights): "bf16" for weights in ("bf16", "fp8", "nvfp4")},
        ("tensorrt-llm", "bf16"): "bf16",
        **{("tensorrt-llm", weights): "fp8" if narrow else "bf16" for weights in ("fp8", "nvfp4")},
    }
    assert deploy(framework="tensorrt-llm", weights="fp8", kv="bf16").kv == "bf16"


def test_a_layout_has_the_groups_of_all_replicas():
    deployment = deploy(EXPERTS, tp=2, dp=2, ep=2, gpus=8)
    layout = deployment.layout
    assert (deployment.replica_gpus, deployment.replicas, deployment.expert_tp) == (4, 2, 2)
    assert (layout.gpus, layout.tp, layout.pp, layout.ep, layout.etp, layout.global_batch) == (8, 2, 1, 2, 2, 4)
    assert deploy(tp=2, pp=2).site.gpus == 4
    assert find_deployment(SMALL, "star:hosts=2,server=dgx-h100").replicas == 16


def test_formats_have_their_bytes():
    assert KV_BYTES == {"bf16": 2, "fp16": 2, "fp8": 1, "nvfp4": 0.5 + 1 / 16}  # a scale of a byte for 16 elements
    assert WEIGHT_BYTES == KV_BYTES | {"mxfp4": 0.5 + 1 / 32}  # for 32 elements
