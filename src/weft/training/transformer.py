"""A decoder-only transformer, by the shapes of its matrices.

    find("llama3-70b")                     a preset of models.toml, each with its source
    find("my-model/config.json")           or a Hugging Face configuration
    reshape(find("gpt3-175b"), layers=48)  any other shape

Everything else follows from the shapes: parameters, floating-point operations, and (weft.training.memory) bytes.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, find_named
from weft.fabric.rates import read_data

Shapes = dict[str, tuple[int, int]]  # name of a matrix -> inputs, outputs
Kind = tuple[str, ...]  # the blocks of a layer: attention, mlp, experts, mamba
DENSE: Kind = ("attention", "mlp")
MIXTURE: Kind = ("attention", "experts")
_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "experts"}  # letters of hybrid_override_pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A stack of attention and feed-forward layers between an input and an output embedding.

    With `experts`, the feed-forward of a layer is a mixture of them after the first `dense_layers`, in every
    `moe_every`-th layer. With `kv_lora`, attention is multi-head latent: `head_dim` is then the part of a key without
    position, `rope_dim` that with it. With `window`, attention sees so many tokens but in every `full_every`-th layer.
    Parameters are counted without modules of multi-token prediction (`mtp`), which only training has.
    With `pattern`, a layer is one block: M (Mamba-2), * (attention), - (feed-forward) or E (experts).
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  # inner width of a dense feed-forward layer
    gated: bool  # SwiGLU, GeGLU: three matrices, not two
    vocab: int
    seq: int  # tokens of a sequence as it is usually trained
    tied: bool = False  # input and output embedding are one matrix
    learned_positions: bool = False
    experts: int = 0
    topk: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    expert_bias: bool = False  # experts have biases, and their activation function is clamped (gpt-oss)
    dense_layers: int = 0
    moe_every: int = 1
    mtp: int = 0  # modules of multi-token prediction: a layer behind the last one, with the output once more
    q_lora: int = 0
    kv_lora: int = 0
    rope_dim: int = 0
    v_head_dim: int = 0
    bias: bool = False  # every matrix and norm but the embeddings and the router has biases
    qkv_bias: bool = False  # only the QKV matrix has biases (Qwen 2)
    window: int = 0  # tokens that a query sees; 0: all before it
    chunked: bool = False  # the window is a chunk of the sequence (Llama 4), it does not slide
    full_every: int = 1  # 0: no layer sees all
    pattern: str = ""
    ssm_heads: int = 0
    ssm_head_dim: int = 0
    ssm_groups: int = 0
    ssm_state: int = 0
    ssm_conv: int = 0  # width of the convolution
    source: str = ""

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq"):
            if getattr(self, field) < 1:
                raise ConfigError(f"{self.name}: {field} = {getattr(self, field)}; it is a number from 1 up")
        counts = ("experts", "topk", "expert_ffn", "shared_experts", "dense_layers", "mtp", "window", "full_every")
        for field in (*counts, *_LATENT):
            if getattr(self, field) < 0:
                raise ConfigError(f"{self.name}: {field} = {getattr(self, field)}; it is a number from 0 up")
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"{self.name}: heads = {self.heads} is not a multiple of kv_heads = {self.kv_heads}; "
                f"every key is shared by as many queries (set kv_heads = {self.heads} where none is shared)"
            )
        self._check_experts()
        self._check_pattern()
        if self.kv_lora and not (self.rope_dim and self.v_head_dim):
            raise ConfigError(f"{self.name}: kv_lora = {self.kv_lora} (latent attention) needs rope_dim and v_head_dim")

    def _check_pattern(self) -> None:
        if self.moe_every < 1:
            raise ConfigError(f"{self.name}: moe_every = {self.moe_every}; it is a number from 1 up")
        if not self.pattern:
            return
        if len(self.pattern) != self.layers or set(self.pattern) - _BLOCKS.keys():
            raise ConfigError(
                f"{self.name}: pattern = {self.pattern} needs one letter for each of layers = {self.layers}, "
                "of M (Mamba-2), * (attention), - (feed-forward) and E (experts)"
            )
        if "M" in self.pattern and not (self.ssm_heads and self.ssm_head_dim and self.ssm_groups and self.ssm_state):
            raise ConfigError(f"{self.name}: M in pattern needs ssm_heads, ssm_head_dim, ssm_groups and ssm_state")

    def _check_experts(self) -> None:
        if not self.experts:
            if self.topk or self.expert_ffn or self.shared_experts or self.dense_layers:
                raise ConfigError(f"{self.name}: topk, expert_ffn, shared_experts and dense_layers need experts > 0")
            return
        if not 1 <= self.topk <= self.experts:
            raise ConfigError(f"{self.name}: topk = {self.topk} of experts = {self.experts}; it is 1 to {self.experts}")
        if not self.expert_ffn:
            raise ConfigError(f"{self.name}: experts = {self.experts} need expert_ffn, the inner width of one")
        if self.dense_layers >= self.layers:
            raise ConfigError(
                f"{self.name}: dense_layers = {self.dense_layers} of layers = {self.layers} leave none with experts; "
                "set experts = 0 for a dense model"
            )

    # Shapes: what one of `tp` ranks multiplies, as Megatron cuts them (Shoeybi et al.): first by columns, then by rows.

    @property
    def qk_dim(self) -> int:
        """Return the width of a head's query and key."""
        return self.head_dim + self.rope_dim if self.kv_lora else self.head_dim

    @property
    def v_dim(self) -> int:
        """Return the width of a head's value."""
        return self.v_head_dim if self.kv_lora else self.head_dim

    @property
    def full_share(self) -> float:
        """Return the share of attention layers that see the whole sequence."""
        return 1.0 if not self.window else 1 / self.full_every if self.full_every else 0.0

    def attention_matrices(self, tp: int = 1) -> Shapes:
        """Return the attention matrices of one tensor rank.

        With more ranks than keys, each rank has a copy of one key. Down-projections of latent attention are not cut.
        """
        heads = self.heads // tp
        out = {"proj": (heads * self.v_dim, self.hidden)}
        if not self.kv_lora:
            return {"qkv": (self.hidden, (heads + 2 * max(self.kv_heads // tp, 1)) * self.head_dim), **out}
        if self.q_lora:
            queries = {"q_down": (self.hidden, self.q_lora), "q_up": (self.q_lora, heads * self.qk_dim)}
        else:
            queries = {"q": (self.hidden, heads * self.qk_dim)}
        keys = {
            "kv_down": (self.hidden, self.kv_lora + self.rope_dim),
            "kv_up": (self.kv_lora, heads * (self.head_dim + self.v_head_dim)),
        }
        return {**queries, **keys, **out}

    def dense_matrices(self, tp: int = 1) -> Shapes:
        """Return the feed-forward matrices of a dense layer; gate and up are one product, as frameworks fuse them."""
        return self._feed_forward(self.ffn // tp)

    def expert_matrices(self, tp: int = 1) -> Shapes:
        """Return the matrices of one routed expert."""
        return self._feed_forward(self.expert_ffn // tp)

    def shared_matrices(self, tp: int = 1) -> Shapes:
        """Return the matrices of all shared experts of a layer as one, since every token passes them."""
        return self._feed_forward(self.shared_experts * self.expert_ffn // tp)

    def mamba_matrices(self, tp: int = 1) -> Shapes:
        """Return the matrices of a Mamba-2 block: to gate, input, B, C and steps, and back."""
        inner = self.ssm_heads * self.ssm_head_dim // tp
        states = 2 * max(self.ssm_groups // tp, 1) * self.ssm_state
        return {"in": (self.hidden, 2 * inner + states + self.ssm_heads // tp), "out": (inner, self.hidden)}

    def _feed_forward(self, width: int) -> Shapes:
        return {"up": (self.hidden, (2 if self.gated else 1) * width), "down": (width, self.hidden)}

    def count(self, shapes: Shapes) -> int:
        """Return the parameters of these matrices, with their biases."""
        biased = shapes if self.bias else {"qkv"} & shapes.keys() if self.qkv_bias else ()
        return sum(inputs * outputs for inputs, outputs in shapes.values()) + sum(shapes[name][1] for name in biased)

    # Parameters.

    @property
    def expert_parameters(self) -> int:
        """Return the parameters of one routed expert."""
        return self.count(self.expert_matrices()) if self.experts else 0

    @property
    def router_parameters(self) -> int:
        """Return the router parameters of one layer with experts."""
        return self.hidden * self.experts

    @property
    def final_norm_parameters(self) -> int:
        return self.hidden * (2 if self.bias else 1)

    @property
    def embedding_parameters(self) -> int:
        """Return the parameters of the input: a row for each token of the vocabulary, and for each learned position."""
        return self.hidden * (self.vocab + (self.seq if self.learned_positions else 0))

    @property
    def head_parameters(self) -> int:
        """Return the parameters of the output embedding; 0 if it is tied to the input."""
        return 0 if self.tied else self.hidden * self.vocab

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the blocks of each layer."""
        if self.pattern:
            return tuple((_BLOCKS[letter],) for letter in self.pattern)
        return tuple(MIXTURE if self._is_mixture(layer) else DENSE for layer in range(self.layers))

    def _is_mixture(self, layer: int) -> bool:
        return bool(self.experts) and layer >= self.dense_layers and (layer + 1) % self.moe_every == 0

    def layer_parameters(self, layer: int) -> int:
        """Return the parameters of the layer with that number, from 0."""
        return self.kind_parameters(self.kinds[layer], self.experts)

    def kind_parameters(self, kind: Kind, experts: int = 0, tp: int = 1) -> int:
        """Return the parameters of a layer of a kind on one tensor rank, with so many whole routed experts."""
        return sum(self._block_parameters(block, tp) for block in kind) + (
            experts * self.expert_parameters if "experts" in kind else 0
        )

    def _block_parameters(self, block: str, tp: int) -> int:
        norm = self.final_norm_parameters
        if block == "attention":
            return norm + self.count(self.attention_matrices(tp)) + (self.q_lora + self.kv_lora if self.kv_lora else 0)
        if block == "mlp":
            return norm + self.count(self.dense_matrices(tp))
        if block == "experts":
            shared = self.count(self.shared_matrices(tp)) if self.shared_experts else 0
            return norm + self.router_parameters + shared
        inner = self.ssm_heads * self.ssm_head_dim // tp  # with a norm, and a convolution over it and over B and C
        convolved = inner + 2 * max(self.ssm_groups // tp, 1) * self.ssm_state
        vectors = 3 * self.ssm_heads // tp + inner + (self.ssm_conv + 1) * convolved
        return norm + self.count(self.mamba_matrices(tp)) + vectors

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return self._parameters(self.experts)

    @property
    def active_parameters(self) -> int:
        """Return the parameters that one token uses: `topk` of the routed experts."""
        return self._parameters(self.topk)

    def _parameters(self, experts: int) -> int:
        ends = self.embedding_parameters + self.head_parameters + self.final_norm_parameters
        return ends + sum(count * self.kind_parameters(kind, experts) for kind, count in Counter(self.kinds).items())

    # Operations.

    def flop_per_token(self, seq: int) -> float:
        """Return the model FLOPs of forward and backward, without recomputation.

        6 for each parameter of a matrix that a token meets (the input embedding is a look-up, norms and biases are no
        matrices), and attention in full, not only its causal half, as Megatron and NVIDIA's published MFU count: for
        GPT, 72 l h² (1 + s/6h + V/12lh) (Narayanan et al., SC'21). Multi-token prediction counts, as in Megatron.
        """
        expert = self.topk * _products(self.expert_matrices()) + _products(self.shared_matrices())
        blocks = {
            "attention": _products(self.attention_matrices()) + self.heads * (self.qk_dim + self.v_dim) * seq,
            "mlp": _products(self.dense_matrices()),
            "experts": self.router_parameters + expert,
            # The scan as Megatron counts it: 7 operations forward for each element of the state.
            "mamba": _products(self.mamba_matrices()) + 3.5 * self.ssm_heads * self.ssm_head_dim * self.ssm_state,
        }
        layers = sum(blocks[block] for kind in self.kinds for block in kind)
        module = 2 * self.hidden**2 + sum(blocks[block] for block in self.kinds[-1])
        return 6.0 * (layers + self.mtp * module + (1 + self.mtp) * self.hidden * self.vocab)


_LATENT = ("q_lora", "kv_lora", "rope_dim", "v_head_dim")


def _products(shapes: Shapes) -> int:
    return sum(inputs * outputs for inputs, outputs in shapes.values())


@cache
def presets() -> Mapping[str, Transformer]:
    """Return the published models of models.toml by name."""
    tables = read_data("weft.training", "models.toml")
    return {name: _preset(name, table) for name, table in tables.items()}


def _preset(name: str, table: dict[str, Any]) -> Transformer:
    source = f"{table.pop('source')} ({table.pop('date')})"
    return shape(name=name, source=source, **table)


def shape(*, name: str, heads: int, hidden: int, **fields: Any) -> Transformer:
    """Return a transformer; by default each query has a key, and heads fill the hidden width."""
    if "head_dim" not in fields and heads > 0:
        if hidden % heads:
            raise ConfigError(
                f"{name}: hidden = {hidden} does not divide by heads = {heads}; set head_dim, their width"
            )
        fields["head_dim"] = hidden // heads
    return Transformer(name=name, heads=heads, hidden=hidden, **{"kv_heads": heads, "head_dim": 0, **fields})


def reshape(model: Transformer, **changes: Any) -> Transformer:
    """Return a changed transformer. The width of heads and the number of keys follow as in `shape`, unless given."""
    fields = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    if model.head_dim * model.heads == model.hidden and not model.kv_lora:
        del fields["head_dim"]
    if model.kv_heads == model.heads:
        del fields["kv_heads"]
    return shape(**fields | changes)


def is_path(name: str) -> bool:
    """Return whether a model is the path of a Hugging Face configuration."""
    return os.sep in name or name.endswith(".json")


def find(name: str) -> Transformer:
    """Find a preset by its name, or read the Hugging Face configuration at a path."""
    if is_path(name):
        from weft.training.hugging_face import read_config

        return shape(**read_config(Path(name)))
    return find_named("model", name, presets(), "The path of a Hugging Face config.json is a model too.")
