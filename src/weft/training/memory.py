"""Memory of one GPU by use: weights, gradients, optimizer states, activations.

States, for each parameter (Rajbhandari et al., ZeRO; the bytes are those of Megatron Core's manual): the weight, its
gradient, and Adam's two moments with the weight in single precision, each sharded or not by the stage of ZeRO. An
optimizer in bf16 has two moments of 2 bytes and changes the weight itself.

Activations, for each layer and micro-batch in flight (Korthikanti et al., Reducing Activation Recomputation in Large
Transformer Models): the inputs that the backward pass needs. For GPT with sequence length s, micro-batch b, width h and
a heads that is s b h (34 + 5 a s / h) bytes over all tensor ranks; fused attention writes no scores and has no second
term. The first stage of a pipeline holds the most micro-batches, the last one the logits: the fullest counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ConfigError
from weft.training.parallel import NARROW, Layout, check, shares
from weft.training.transformer import Transformer

GB = 1 << 30  # as makers of GPUs count


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The memory of each GPU of one pipeline stage."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    logits_bytes: int
    reserve_bytes: int  # of the framework
    stage: int

    @property
    def parts(self) -> dict[str, int]:
        """Return the bytes of each use."""
        return {
            field.name.removesuffix("_bytes"): getattr(self, field.name)
            for field in fields(self)
            if field.name.endswith("_bytes")
        }

    @property
    def total_bytes(self) -> int:
        return sum(self.parts.values())

    def fits(self, memory_gbyte: float) -> bool:
        """Return whether it fits into a GPU of so many GB, which vendors count in GiB (80 GB: 81,920 MiB)."""
        return self.total_bytes <= memory_gbyte * GB


def footprint(layout: Layout, transformer: Transformer) -> Footprint:
    """Return the memory of the fullest stage."""
    held = shares(layout, transformer)
    columns = (held.dense_layers, held.moe_layers, held.parameters, held.expert_parameters)
    by_stage = np.stack([column.sum(axis=1) for column in columns], axis=1)
    stages = (_stage(layout, transformer, stage, _Held(*held)) for stage, held in enumerate(by_stage.tolist()))
    return max(stages, key=lambda need: need.total_bytes)


class _Held(NamedTuple):
    """The layers and parameters that a rank of one stage holds."""

    dense_layers: int
    moe_layers: int
    parameters: int
    expert_parameters: int


def _stage(layout: Layout, transformer: Transformer, stage: int, held: _Held) -> Footprint:
    weights, gradients, optimizer, copied = _states(layout, held)
    activations = _activations(layout, transformer, stage, held)
    logits = 4 * layout.tokens * transformer.vocab // layout.tp if stage == layout.pp - 1 else 0
    return Footprint(
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer + max(0, copied - activations - logits),
        activations_bytes=activations,
        logits_bytes=logits,
        reserve_bytes=round(layout.software.reserve_gbyte * GB),
        stage=stage,
    )


def _states(layout: Layout, held: _Held) -> tuple[int, int, int, int]:
    """Return the bytes of weights, of gradients, of the optimizer, and of its 32-bit copy of 16-bit gradients.

    The copy exists only during the optimizer's step, after the activations are freed. ZeRO gathers one layer at a
    time, with overlap also the next one.
    """
    weight_bytes = 2  # in FP8 one for the weight and one for its transpose, as Hopper multiplies
    layers = max(1, held.dense_layers + held.moe_layers)  # an end of the model may stand alone
    weights = gradients = optimizer = copied = 0
    for parameters, copies in (
        (held.parameters, layout.dp * layout.cp),
        (held.expert_parameters, layout.edp),
    ):
        sharded, layer = -(-parameters // copies), parameters // layers
        gathered = layer * (2 if layout.overlap_param_gather else 1)
        weights += weight_bytes * (min(sharded + gathered, parameters) if layout.zero >= 3 else parameters)
        gradients += layout.gradient_bytes * (min(sharded + layer, parameters) if layout.zero >= 2 else parameters)
        stepped = sharded if layout.zero >= 1 else parameters
        optimizer += layout.optimizer_bytes * stepped
        copied += 4 * stepped if layout.gradient_bytes == 2 and layout.optimizer_precision == "fp32" else 0
    return weights, gradients, optimizer, copied


def chunks_in_flight(layout: Layout, stage: int) -> int:
    """Return the most forward passes of a chunk that wait for their backward pass on a stage.

    1F1B: one micro-batch for each stage from here to the last. Interleaved: all chunks of the warm-up and one more.
    """
    behind = layout.pp - stage - 1
    warm_up = behind if layout.vp == 1 else 2 * behind + (layout.vp - 1) * layout.pp
    return min(warm_up + 1, layout.micro_batches * layout.vp)


def _activations(layout: Layout, transformer: Transformer, stage: int, held: _Held) -> int:
    dense = layer_activations(layout, transformer, experts=False)
    mixture = layer_activations(layout, transformer, experts=True) if held.moe_layers else 0
    if layout.recompute == "full":  # the input of each layer, and one layer at a time whole
        stored = (held.dense_layers + held.moe_layers) * 2 * layout.residual_tokens * transformer.hidden
        working = max(dense if held.dense_layers else 0, mixture)
    else:
        stored, working = held.dense_layers * dense + held.moe_layers * mixture, 0
    return chunks_in_flight(layout, stage) * stored // layout.vp + working


def layer_activations(layout: Layout, transformer: Transformer, *, experts: bool) -> int:
    """Return the bytes of one layer and micro-batch on one rank, without full recomputation."""
    model, tokens, cut = transformer, layout.tokens, layout.residual_tokens
    of_matrix = 1 if layout.precision in NARROW else 2  # bytes of a stored input of a matrix product
    norms = 2 * 2 * cut * model.hidden  # their inputs
    again = layout.recomputed
    inputs = 2 * of_matrix * cut * model.hidden  # inputs of the first matrices of attention and feed-forward
    inputs *= "layernorm" not in again
    masks = 2 * cut * model.hidden if model.bias else 0  # dropout masks: models with biases are trained with dropout
    total = norms + inputs + masks + _attention(layout, model)
    inner = 2 * (2 if model.gated else 1) + of_matrix  # bytes around the activation function, for each of its width
    if not experts:
        return total + inner * tokens * (model.ffn // layout.tp) * ("mlp" not in again)
    if "moe" in again:
        return total
    routed = cut * model.topk  # with balanced experts each rank receives as many tokens as it sends
    total += inner * tokens * (model.shared_experts * model.expert_ffn // layout.tp)
    inner -= of_matrix * ("moe_act" in again)
    total += routed * (inner * model.expert_ffn + (of_matrix * layout.expert_tp + 2) * model.hidden)
    return total + 4 * cut * model.experts  # the router's probabilities


def _attention(layout: Layout, model: Transformer) -> int:
    """Return the bytes of queries, keys, values and result; of scores if they are written; and of latents."""
    tokens, heads = layout.tokens, model.heads // layout.tp
    keys = max(model.kv_heads // layout.tp, 1)
    of_matrix = 1 if layout.precision in NARROW else 2
    width = 2 * (heads * model.qk_dim + keys * (model.qk_dim + model.v_dim)) + of_matrix * heads * model.v_dim
    latents = 2 * 2 * (model.q_lora + model.kv_lora) + 2 * model.rope_dim if model.kv_lora else 0
    if layout.fused_attention:
        scores = 4 * heads * tokens  # the sum of each row, to recompute the scores
    elif "core_attn" in layout.recomputed:
        scores = 0
    else:
        scores = 5 * heads * tokens * layout.seq  # softmax, its dropout's mask and result
    return tokens * width + layout.residual_tokens * latents + scores


def check_fits(layout: Layout, transformer: Transformer, memory_gbyte: float) -> Footprint:
    """Return the footprint. Raise ConfigError if it is too large, with the excess and the changes that help."""
    need = footprint(layout, transformer)
    if need.fits(memory_gbyte):
        return need
    parts = ", ".join(f"{name} {size / GB:.1f}" for name, size in need.parts.items())
    over = need.total_bytes / GB - memory_gbyte
    smaller = dict(_smaller(layout, transformer))
    helping = [change for change, after in smaller.items() if after.fits(memory_gbyte)]
    best = min(smaller, key=lambda change: smaller[change].total_bytes, default="")
    if helping:
        advice = f"It fits with {', or '.join(helping[:3])}."
    elif best and smaller[best].total_bytes < need.total_bytes:
        advice = f"Most helps {best}: {smaller[best].total_bytes / GB:.1f} GB. Then cut it over more GPUs."
    else:
        advice = "Cut it over more GPUs."
    raise ConfigError(
        f"{transformer.name} does not fit into {memory_gbyte:g} GB: stage {need.stage} needs "
        f"{need.total_bytes / GB:.1f} GB on each GPU, {over:.1f} GB too many ({parts})\n  {advice}"
    )


def _smaller(layout: Layout, transformer: Transformer) -> Iterator[tuple[str, Footprint]]:
    """Yield single changes on the same GPUs with their footprints, in the order of their cost."""
    changes: list[dict[str, Any]] = [
        {"fused_attention": True},
        {"grad_reduce_in_fp32": False},
        *({"zero": stage} for stage in range(layout.zero + 1, 4)),
        {"micro_batch": layout.micro_batch // 2},
        {"recompute": "selective"},
        *({size: 2 * getattr(layout, size)} for size in ("ep", "pp", "tp", "cp")),
        {"recompute": "full"},
    ]
    for change in changes:
        try:
            changed = replace(layout, **change)
            check(changed, transformer)
        except ConfigError:
            continue
        yield ", ".join(f"{name} = {value}" for name, value in change.items()), footprint(changed, transformer)
