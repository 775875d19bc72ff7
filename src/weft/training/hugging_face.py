"""The shape of a transformer from the config.json that Hugging Face keeps beside its weights.

Most families call the same thing by the same key; GPT-2 and BLOOM have older ones. What a file does not say because
it is always so in its family (GPT-2's biases, Qwen 2's of queries and keys) is in `_FAMILIES`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weft.errors import FileError
from weft.fabric.files.text import read_text

_GPT = {"gated": False, "bias": True}
_FAMILIES: dict[str, dict[str, bool]] = {
    "gpt2": {**_GPT, "tied": True, "learned_positions": True},
    "gpt_neox": _GPT,
    "bloom": {**_GPT, "tied": True},
    "qwen2": {"qkv_bias": True},
    "qwen2_moe": {"qkv_bias": True},
    "nemotron_h": {"gated": False},
    "gpt_oss": {"expert_bias": True},
}
_GATES = ("silu", "swiglu", "gelu_pytorch_tanh")  # activations that come with a gate, outside those families
_QUANTIZED = ("fp8", "mxfp4", "nvfp4")  # formats of quantization_config
_FULL, _WINDOWED = "full_attention", ("sliding_attention", "chunked_attention")  # of layer_types
# Keys of models whose layers differ in other ways than `Transformer` knows, with the value for those that do not.
_MIXED = {"moe_layer_freq": 1, "mlp_only_layers": [], "is_encoder_decoder": False}
# Keys of models with layers of linear attention: Qwen3-Next and Qwen3.5, Kimi Linear.
_LINEAR = ("linear_num_value_heads", "linear_attn_config")


def read_config(path: Path) -> dict[str, Any]:
    """Read the fields of a Transformer from a config.json, or from the one in a folder."""
    file = path / "config.json" if path.is_dir() else path
    config = _Config(file)
    family = _FAMILIES.get(config.family, {})
    for key, plain in _MIXED.items():
        if config.table.get(key, plain) != plain:
            read = f'"{key}": {json.dumps(config.table[key])}'
            raise FileError(file, None, read, "a decoder with experts in every layer after the first, or in every n-th")
    _check_layers(config)
    biased = family.get("bias", False)
    return {
        "name": file.resolve().parent.name if file.name == "config.json" else file.stem,
        "source": str(file),
        **_sizes(config),
        **_experts(config),
        **_latent(config),
        **_window(config),
        **_hybrid(config),
        "gated": family.get(
            "gated", config.text("hidden_act", "hidden_activation", "mlp_hidden_act", usual="silu") in _GATES
        ),
        "tied": config.flag("tie_word_embeddings", usual=family.get("tied", False)),
        "learned_positions": family.get("learned_positions", False),
        "bias": biased,
        "expert_bias": family.get("expert_bias", False),
        "mtp": config.number("num_nextn_predict_layers", usual=0),
        "qkv_bias": config.flag("attention_bias", usual=family.get("qkv_bias", False)) and not biased,
    }


def read_weights(path: Path) -> str | None:
    """Return the format of the weights by `quantization_config`; None without one."""
    config = _Config(path / "config.json" if path.is_dir() else path)
    quantization = config.table.get("quantization_config")
    if quantization is None:
        return None
    found = _weights_of(quantization) if isinstance(quantization, dict) else None
    if found is None:
        read = f'"quantization_config": {json.dumps(quantization)[:80]}'
        raise FileError(config.file, None, read, f"one of {', '.join(_QUANTIZED)}; or give --weights")
    return found


def _weights_of(quantization: dict[str, Any]) -> str | None:
    """Return the format of a quantization_config; None if it is another one, such as whole numbers of 4 bits."""
    method = str(quantization.get("quant_method", "")).lower()
    if method == "modelopt":
        method = str(quantization.get("quant_algo", "")).lower()
    elif method == "compressed-tensors":
        groups = quantization.get("config_groups")
        kinds = [group.get("weights") for group in groups.values()] if isinstance(groups, dict) else []
        bits = {kind.get("num_bits") if isinstance(kind, dict) and kind.get("type") == "float" else 0 for kind in kinds}
        method = "fp8" if bits == {8} else "nvfp4" if bits == {4} else ""
    return method if method in _QUANTIZED else None


def _check_layers(config: _Config) -> None:
    """Refuse layers of other kinds than attention and Mamba-2 in a pattern, such as linear attention."""
    table = config.table
    keys = [key for key in _LINEAR if table.get(key)]
    keys += ["attn_type_list"] if 0 in (table.get("attn_type_list") or []) else []  # MiniMax-01
    kind = next((kind for kind in table.get("layer_types") or [] if kind not in (_FULL, *_WINDOWED)), None)
    if keys:
        read = f'layers of linear attention ("{keys[0]}")'
    elif kind is not None:
        read = f'"layer_types" with {json.dumps(kind)}'
    elif table.get("mamba_d_state") and not table.get("hybrid_override_pattern"):  # Jamba, Bamba, Falcon-H1
        read = 'layers of Mamba ("mamba_d_state") without a hybrid_override_pattern'
    else:
        return
    raise FileError(
        config.file, None, read, f"layers of {', '.join((_FULL, *_WINDOWED))}, or a hybrid_override_pattern"
    )


class _Config:
    """The table of a file. Values are looked up by all keys that model families use for them."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            table = json.loads(read_text(file))
        except json.JSONDecodeError as error:
            raise FileError(file, error.lineno, error.msg, "JSON") from None
        except RecursionError:
            raise FileError(file, None, "too deeply nested", "JSON") from None
        if not isinstance(table, dict):
            raise FileError(file, None, type(table).__name__, "a JSON object, as Hugging Face's config.json is")
        text = table.get("text_config")  # multimodal models
        self.table: dict[str, Any] = {**table, **text} if isinstance(text, dict) else table
        self.family = self.text("model_type", usual="")

    def number(self, *keys: str, usual: int | None = None) -> int:
        value = self._value(keys, usual)
        if isinstance(value, bool) or not isinstance(value, int):
            raise FileError(self.file, None, f'"{self._key(keys)}": {json.dumps(value)}', "a whole number")
        return value

    def flag(self, key: str, usual: bool) -> bool:
        value = self._value((key,), usual)
        if not isinstance(value, bool):
            raise FileError(self.file, None, f'"{key}": {json.dumps(value)}', "true or false")
        return value

    def text(self, *keys: str, usual: str) -> str:
        return str(self._value(keys, usual))

    def _key(self, keys: tuple[str, ...]) -> str | None:
        return next((key for key in keys if self.table.get(key) is not None), None)

    def _value(self, keys: tuple[str, ...], usual: Any) -> Any:
        key = self._key(keys)
        if key is None and usual is None:
            raise FileError(self.file, None, f"no {' or '.join(keys)}", "this key of the transformer's shape")
        return usual if key is None else self.table[key]


def _sizes(config: _Config) -> dict[str, int]:
    heads = config.number("num_attention_heads", "n_head")
    hidden = config.number("hidden_size", "n_embd", "n_embed")
    width = 4 * hidden if config.family in ("gpt2", "bloom") else None
    sizes = {
        "layers": config.number("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.number("num_key_value_heads", usual=heads),
        "ffn": config.number("intermediate_size_mlp", "intermediate_size", "n_inner", usual=width),
        "vocab": config.number("vocab_size"),
        "seq": config.number("max_position_embeddings", "n_positions", "seq_length"),
    }
    if config.table.get("head_dim") is not None and not config.table.get("kv_lora_rank"):
        sizes["head_dim"] = config.number("head_dim")
    return sizes


def _experts(config: _Config) -> dict[str, int]:
    experts = config.number("n_routed_experts", "num_local_experts", "num_experts", usual=0)
    if not experts:
        return {}
    width = config.number("moe_intermediate_size", "intermediate_size")
    shared = config.number("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", usual=0) // width
    shared = 1 if config.family.startswith("llama4") else shared
    return {
        "experts": experts,
        "topk": config.number("num_experts_per_tok"),
        "expert_ffn": width,
        "shared_experts": shared or config.number("n_shared_experts", usual=0),
        "dense_layers": config.number("first_k_dense_replace", usual=0),
        "moe_every": config.number("interleave_moe_layer_step", "decoder_sparse_step", usual=1),
    }


def _window(config: _Config) -> dict[str, Any]:
    """Return the window of attention, and how often a layer sees the whole sequence."""
    window = config.number("sliding_window", "attention_chunk_size", usual=0)
    if not window or config.table.get("use_sliding_window") is False:
        return {}
    layers = config.number("num_hidden_layers")
    kinds = config.table.get("layer_types") or []
    if config.table.get("no_rope_layers"):  # Llama 4: 1 for those with positions, which are chunked
        kinds = [_WINDOWED[1] if with_rope else _FULL for with_rope in config.table["no_rope_layers"]]
    whole = kinds.count(_FULL)
    every = round(layers / whole) if whole else 0
    every = every or config.number("sliding_window_pattern", usual=4 if config.family.startswith("llama4") else 0)
    return {"window": window, "full_every": every, "chunked": config.table.get("attention_chunk_size") is not None}


def _hybrid(config: _Config) -> dict[str, Any]:
    """Return the pattern of a hybrid with Mamba-2 layers, and the shape of those (Nemotron-H)."""
    pattern = config.text("hybrid_override_pattern", usual="")
    if not pattern:
        return {}
    return {
        "pattern": pattern,
        "ssm_heads": config.number("mamba_num_heads"),
        "ssm_head_dim": config.number("mamba_head_dim"),
        "ssm_groups": config.number("n_groups"),
        "ssm_state": config.number("ssm_state_size"),
        "ssm_conv": config.number("conv_kernel"),
    }


def _latent(config: _Config) -> dict[str, int]:
    if not config.number("kv_lora_rank", usual=0):
        return {}
    return {
        "q_lora": config.number("q_lora_rank", usual=0),
        "kv_lora": config.number("kv_lora_rank"),
        "head_dim": config.number("qk_nope_head_dim"),
        "rope_dim": config.number("qk_rope_head_dim"),
        "v_head_dim": config.number("v_head_dim"),
    }
