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

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ConfigError
from weft.training.parallel import NARROW, Layout, check
from weft.training.shares import has_adapter, shares
from weft.training.transformer import Kind, Transformer

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
        return {name.removesuffix("_bytes"): getattr(self, name) for name in _USES}

    @property
    def total_bytes(self) -> int:
        return sum(_bytes_by_use(self))

    def fits(self, memory_gbyte: float) -> bool:
        """Return whether it fits into a GPU of so many GB, which vendors count in GiB (80 GB: 81,920 MiB)."""
        return self.total_bytes <= memory_gbyte * GB


_USES = tuple(field.name for field in fields(Footprint) if field.name.endswith("_bytes"))
_bytes_by_use = attrgetter(*_USES)  # a search asks for the total of each stage of thousands of layouts


def footprint(layout: Layout, transformer: Transformer) -> Footprint:
    """Return the memory of the fullest stage."""
    held = shares(layout, transformer)
    columns = (held.parameters, held.expert_parameters, held.trained, held.trained_experts)
    by_stage = np.stack([column.sum(axis=1) for column in columns], axis=1).tolist()
    layers = [{kind: int(count[stage].sum()) for kind, count in held.layers.items()} for stage in range(layout.pp)]
    stages = (
        _stage(layout, transformer, stage, _Held(*columns), layers[stage]) for stage, columns in enumerate(by_stage)
    )
    return max(stages, key=lambda need: need.total_bytes)


class _Held(NamedTuple):
    """The parameters that a rank of one stage holds, and those that it trains."""

    parameters: int
    expert_parameters: int
    trained: int
    trained_experts: int


def _stage(layout: Layout, transformer: Transformer, stage: int, held: _Held, layers: Mapping[Kind, int]) -> Footprint:
    weights, gradients, optimizer, copied = _states(layout, held, max(1, sum(layers.values())))
    activations = _activations(layout, transformer, stage, layers)
    outputs = 1 + transformer.mtp if stage == layout.pp - 1 else 0
    logits = 4 * layout.tokens * transformer.vocab // layout.tp * outputs
    return Footprint(
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer + max(0, copied - activations - logits),
        activations_bytes=activations,
        logits_bytes=logits,
        reserve_bytes=round(layout.software.reserve_gbyte * GB),
        stage=stage,
    )


def _states(layout: Layout, held: _Held, layers: int) -> tuple[int, int, int, int]:
    """Return the bytes of weights, of gradients, of the optimizer, and of its 32-bit copy of 16-bit gradients.

    The copy exists only during the optimizer's step, after the activations are freed. ZeRO gathers one layer at a
    time, with overlap also the next one.
    """
    weight_bytes = 2  # in FP8 one for the weight and one for its transpose, as Hopper multiplies
    weights = gradients = optimizer = copied = 0
    for parameters, trained, copies in (
        (held.parameters, held.trained, layout.dp * layout.cp),
        (held.expert_parameters, held.trained_experts, layout.edp),
    ):
        sharded, layer = -(-parameters // copies), parameters // layers
        gathered = layer * (2 if layout.overlap_param_gather else 1)
        weights += weight_bytes * (min(sharded + gathered, parameters) if layout.zero >= 3 else parameters)
        stepped = -(-trained // copies) if layout.zero >= 1 else trained
        gradients += layout.gradient_bytes * (
            min(-(-trained // copies) + trained // layers, trained) if layout.zero >= 2 else trained
        )
        if layout.offload_optimizer:
            continue
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


def _activations(layout: Layout, transformer: Transformer, stage: int, layers: Mapping[Kind, int]) -> int:
    """Return the bytes of all micro-batches in flight; recomputed and offloaded layers come first in each chunk."""
    chunk = sum(layers.values()) / layout.vp
    if layout.recompute == "full":
        again = min(1.0, layout.recompute_layers / chunk) if layout.recompute_layers and chunk else 1.0
    else:
        again = 0.0
    away = min(1 - again, layout.offload_layers / chunk) if chunk else 0.0
    each = {kind: layer_activations(layout, transformer, kind) for kind, count in layers.items() if count}
    whole = sum(layers[kind] * size for kind, size in each.items())
    kept = 2 * layout.residual_tokens * transformer.hidden  # the input of a layer that is recomputed
    stored = round(again * sum(layers.values()) * kept + (1 - again - away) * whole)
    working = max(each.values(), default=0)  # a layer whole, while it is recomputed or comes back, and the next one
    in_work = working * (again > 0) + 2 * working * (away > 0)
    return chunks_in_flight(layout, stage) * stored // layout.vp + in_work


def layer_activations(layout: Layout, transformer: Transformer, kind: Kind) -> int:
    """Return the bytes of one layer and micro-batch on one rank, without full recomputation."""
    return sum(_block(layout, transformer, block) for block in kind)


def _block(layout: Layout, model: Transformer, block: str) -> int:
    cut, again = layout.residual_tokens, layout.recomputed
    of_matrix = 1 if layout.precision in NARROW else 2  # bytes of a stored input of a matrix product
    norm = 2 * cut * model.hidden  # its input
    entry = 0 if "layernorm" in again else of_matrix * cut * model.hidden  # input of the first matrix
    mask = cut * model.hidden if model.bias else 0  # of dropout: models with biases are trained with it
    total = norm + entry * _keeps(layout, "up" if block == "mlp" else "qkv") + mask
    inner = 2 * (2 if model.gated else 1)  # bytes around the activation function, for each of its width
    if block == "attention":
        return total + _attention(layout, model)
    if block == "mamba":
        return total + _mamba(layout, model)
    if block == "mlp":
        inner += of_matrix * _keeps(layout, "down")
        return total + inner * layout.tokens * (model.ffn // layout.tp) * ("mlp" not in again)
    if "moe" in again:
        return total
    inner += of_matrix
    routed = round(cut * model.topk * layout.imbalance)  # balanced experts receive as many tokens as a rank sends
    total += inner * layout.tokens * (model.shared_experts * model.expert_ffn // layout.tp)
    inner -= of_matrix * ("moe_act" in again)
    total += routed * (inner * model.expert_ffn + (of_matrix * layout.expert_tp + 2) * model.hidden)
    return total + 4 * cut * model.experts  # the router's probabilities


def _keeps(layout: Layout, matrix: str) -> bool:
    """Return whether the input of a matrix is kept for a gradient: of its weight, or of its adapter."""
    return not layout.lora or has_adapter(layout, matrix)


def _mamba(layout: Layout, model: Transformer) -> int:
    """Return the bytes around the scan: the result of the first matrix, of the convolution, and of the scan."""
    matrices = model.mamba_matrices(layout.tp)
    inner, outputs = matrices["out"][0], matrices["in"][1]
    return 2 * layout.tokens * (outputs + (outputs - inner) + 2 * inner)


def _attention(layout: Layout, model: Transformer) -> int:
    """Return the bytes of queries, keys, values and result; of scores if they are written; and of latents."""
    tokens, heads = layout.tokens, model.heads // layout.tp
    keys = max(model.kv_heads // layout.tp, 1)
    of_matrix = 1 if layout.precision in NARROW else 2
    width = 2 * (heads * model.qk_dim + keys * (model.qk_dim + model.v_dim)) * ("mla_up_proj" not in layout.recomputed)
    width += of_matrix * heads * model.v_dim
    latents = 2 * 2 * (model.q_lora + model.kv_lora) + 2 * model.rope_dim if model.kv_lora else 0
    if layout.fused_attention:
        scores = 4 * heads * tokens  # the sum of each row, to recompute the scores
    elif "core_attn" in layout.recomputed:
        scores = 0
    else:
        scores = 5 * heads * tokens * layout.seq  # softmax, its dropout's mask and result
    return tokens * width + layout.residual_tokens * latents + scores


def least_recomputed(layout: Layout, transformer: Transformer) -> list[str]:
    """Return modules to recompute, by their cost: those whose time is nearly nothing."""
    modules = ["core_attn"] if not layout.fused_attention else []
    modules += ["moe_act"] if transformer.experts else []
    modules += ["mla_up_proj"] if transformer.kv_lora else []
    return [",".join(["layernorm", *modules[:count]]) for count in range(len(modules) + 1)]


def recompute_to_fit(layout: Layout, transformer: Transformer, memory_gbyte: float) -> Layout:
    """Return the layout with the least recomputation that fits: none, cheap modules, or as many layers as needed.

    The layout itself if it fits with none, or not at all.
    """

    def fits(changed: Layout) -> bool:
        return footprint(changed, transformer).fits(memory_gbyte)

    full = replace(layout, recompute="full", offload_layers=0)
    if fits(layout) or not fits(full):
        return layout
    for modules in least_recomputed(layout, transformer):
        if fits(changed := replace(layout, recompute=modules)):
            return changed
    counts = range(1, max(map(max, layout.chunks(transformer.layers, transformer.mtp))))
    enough = bisect_left(counts, True, key=lambda count: fits(replace(full, recompute_layers=count)))
    return replace(full, recompute_layers=counts[enough]) if enough < len(counts) else full


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
        *({"recompute": modules} for modules in least_recomputed(layout, transformer)),
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
