"""Shapes from config.json files as the families write them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from weft.errors import ConfigError, FileError
from weft.training.hugging_face import read_weights
from weft.training.transformer import find

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "max_position_embeddings": 32768,
    "num_experts_per_tok": 2,
    "num_local_experts": 8,
    "vocab_size": 32000,
    "head_dim": None,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
NEMOTRON = LLAMA | {
    "model_type": "nemotron",
    "hidden_act": "relu2",
    "hidden_size": 18432,
    "intermediate_size": 73728,
    "max_position_embeddings": 4096,
    "num_attention_heads": 96,
    "num_hidden_layers": 96,
    "vocab_size": 256000,
}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}
NEOX = {
    "model_type": "gpt_neox",
    "hidden_act": "gelu_fast",
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "max_position_embeddings": 2048,
    "num_attention_heads": 64,
    "num_hidden_layers": 44,
    "tie_word_embeddings": False,
    "vocab_size": 50432,
}
QWEN2 = LLAMA | {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
}
BLOOM = {
    "model_type": "bloom",
    "n_embed": 14336,
    "n_head": 112,
    "n_layer": 70,
    "seq_length": 2048,
    "vocab_size": 250880,
}

GPT_OSS = LLAMA | {
    "model_type": "gpt_oss",
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 36,
    "num_local_experts": 128,
    "sliding_window": 128,
    "vocab_size": 201088,
}
LLAMA4 = {
    "model_type": "llama4",
    "text_config": LLAMA
    | {
        "model_type": "llama4_text",
        "attention_chunk_size": 8192,
        "head_dim": 128,
        "hidden_size": 5120,
        "interleave_moe_layer_step": 2,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "no_rope_layers": [1, 1, 1, 0] * 12,
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_local_experts": 128,
        "vocab_size": 202048,
    },
}
NEMOTRON_H = {
    "model_type": "nemotron_h",
    "conv_kernel": 4,
    "head_dim": 128,
    "hidden_size": 4096,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "intermediate_size": 21504,
    "mamba_head_dim": 64,
    "mamba_num_heads": 128,
    "max_position_embeddings": 8192,
    "mlp_hidden_act": "relu2",
    "n_groups": 8,
    "num_attention_heads": 32,
    "num_hidden_layers": 52,
    "num_key_value_heads": 8,
    "ssm_state_size": 128,
    "vocab_size": 131072,
}


@pytest.fixture
def written(tmp_path):
    def write(config: object) -> str:
        folder = tmp_path / "my-model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return str(folder / "config.json")

    return write


@pytest.mark.parametrize(
    ("config", "preset"),
    [
        (LLAMA, "llama3-8b"),
        (MIXTRAL, "mixtral-8x7b"),
        (DEEPSEEK, "deepseek-v3"),
        (NEMOTRON, "nemotron4-340b"),
        (BLOOM, "bloom-176b"),
        (GPT_OSS, "gpt-oss-120b"),
        (LLAMA4, "llama4-maverick"),
        (NEMOTRON_H, "nemotron-h-8b"),
    ],
)
def test_a_configuration_gives_the_shape_of_its_preset(written, config, preset):
    read, recorded = find(written(config)), find(preset)
    assert read.name == "my-model"
    assert read == replace(recorded, name="my-model", seq=read.seq, source=read.source)


@pytest.mark.parametrize(
    ("config", "parameters"), [(GPT2, 124_439_808), (NEOX, 20_554_567_680), (QWEN2, 7_615_616_512)]
)
def test_parameters_are_those_of_the_checkpoint(written, config, parameters):
    assert find(written(config)).parameters == parameters


def test_a_folder_and_the_text_of_a_model_that_sees_are_read(written, tmp_path):
    written({"model_type": "mllama", "text_config": LLAMA, "vision_config": {"hidden_size": 1280}})
    assert find(str(tmp_path / "my-model")).parameters == find("llama3-8b").parameters


def test_a_configuration_without_a_known_family_is_read_by_the_common_keys(written):
    assert find(written(LLAMA | {"model_type": "newest"})).parameters == find("llama3-8b").parameters


def test_windows_are_read_with_the_share_of_layers_that_see_all(written):
    """Mistral 7B has a window in all layers, Gemma 3 none in every sixth, and Qwen 2 may switch it off."""
    for changes, share in (
        ({"sliding_window": 4096}, 0),
        ({"sliding_window": 1024, "sliding_window_pattern": 6}, 1 / 6),
        ({"sliding_window": 4096, "use_sliding_window": False}, 1),
        ({"sliding_window": None}, 1),
    ):
        assert find(written(LLAMA | changes)).full_share == share


def test_shared_experts_are_counted_in_widths_of_one(written):
    """Qwen 1.5 MoE A2.7B: four times as wide."""
    qwen = MIXTRAL | {"model_type": "qwen2_moe", "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}
    assert find(written(qwen)).shared_experts == 4


@pytest.mark.parametrize(
    "key", [key for key in LLAMA if key.startswith(("num_h", "num_a", "hidden_s", "v", "i", "max"))]
)
def test_a_missing_key_is_named(written, key):
    with pytest.raises(FileError, match=rf"no {key}.*; expected this key of the transformer's shape"):
        find(written({name: value for name, value in LLAMA.items() if name != key}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hidden_size": "4096"}, '"hidden_size": "4096".*expected a whole number'),
        ({"num_hidden_layers": True}, '"num_hidden_layers": true.*expected a whole number'),
        ({"tie_word_embeddings": 1}, '"tie_word_embeddings": 1.*expected true or false'),
        ({"mlp_only_layers": [1]}, r'"mlp_only_layers": \[1\].*expected a decoder with experts in every layer'),
        ({"sliding_window": 8, "layer_types": ["linear_attention"]}, '"linear_attention".*expected layers of full'),
        ({"layer_types": ["linear_attention", "full_attention"]}, '"linear_attention".*expected layers of full'),
        ({"linear_num_value_heads": 32, "full_attention_interval": 4}, "layers of linear attention"),
        ({"linear_attn_config": {"kda_layers": [1, 2, 3], "head_dim": 128}}, "layers of linear attention"),
        ({"attn_type_list": [0, 0, 1]}, "layers of linear attention"),
        ({"mamba_d_state": 16, "attn_layer_period": 8}, "layers of Mamba .* without a hybrid_override_pattern"),
        ({"is_encoder_decoder": True}, '"is_encoder_decoder": true.*expected a decoder'),
        ({"num_key_value_heads": 5}, "my-model: heads = 32 is not a multiple of kv_heads = 5"),
    ],
)
def test_invalid_shape_is_refused(written, changed, message):
    with pytest.raises(ConfigError, match=message):
        find(written(LLAMA | changed))


def compressed(weights: object) -> dict[str, object]:
    """Return a quantization_config of compressed-tensors."""
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("quantization", "weights"),
    [
        (None, None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float"}}},
            },
            "nvfp4",
        ),
    ],
)
def test_the_format_of_weights_is_that_of_the_quantization(written, quantization, weights):
    assert read_weights(Path(written(LLAMA | {"quantization_config": quantization}))) == weights


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "awq", "bits": 4},
        {"quant_method": "modelopt"},
        {"quant_method": "compressed-tensors"},
        compressed({"num_bits": 4, "type": "int"}),
        compressed(None),
        "fp8",
    ],
)
def test_weights_of_other_formats_are_refused(written, quantization):
    with pytest.raises(FileError, match="expected one of fp8, mxfp4, nvfp4; or give --weights"):
        read_weights(Path(written(LLAMA | {"quantization_config": quantization})))


@pytest.mark.parametrize(("text", "message"), [("{,}", ":1: .*expected JSON"), ("[1]", "list; expected a JSON")])
def test_file_without_a_json_object_is_refused(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=message):
        find(str(tmp_path / "config.json"))


def test_a_path_without_a_file_is_named():
    with pytest.raises(FileError, match="no such file"):
        find("nowhere/config.json")
