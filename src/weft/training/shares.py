"""The layers and parameters that one rank of a layout holds, and those that it trains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from weft.training.parallel import Layout
from weft.training.pipeline_layout import Division
from weft.training.transformer import Kind, Shapes, Transformer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    """The layers and parameters of one rank, by [stage, chunk]. Copies of experts form groups of their own (edp)."""

    layers: dict[Kind, NDArray[np.int64]]
    parameters: NDArray[np.int64]
    expert_parameters: NDArray[np.int64]
    trained: NDArray[np.int64]  # of `parameters`, or of adapters
    trained_experts: NDArray[np.int64]


def shares(layout: Layout, transformer: Transformer) -> Shares:
    """Return the shares of a rank. The first chunk has the input embedding, the last the output (if tied, a copy)."""
    division = layout.division(transformer.layers, transformer.mtp)
    every = _shares(transformer, division, layout.tp, layout.ep, layout.expert_tp)
    if not layout.lora:
        return every
    trained = sum(count * adapter_parameters(layout, transformer, kind) for kind, count in every.layers.items())
    mixtures = sum(count for kind, count in every.layers.items() if "experts" in kind)
    of_experts = _adapters(layout, transformer.expert_matrices(layout.expert_tp)) if transformer.experts else 0
    trained_experts = np.zeros_like(every.expert_parameters) + mixtures * of_experts
    return replace(every, trained=np.asarray(trained), trained_experts=trained_experts)


def adapter_parameters(layout: Layout, transformer: Transformer, kind: Kind) -> int:
    """Return the parameters of the LoRA adapters of a layer on one rank, but for those of routed experts."""
    shapes: Shapes = {}
    if "attention" in kind:
        shapes |= transformer.attention_matrices(layout.tp)
    if "mlp" in kind:
        shapes |= transformer.dense_matrices(layout.tp)
    if "experts" in kind and transformer.shared_experts:
        shapes |= transformer.shared_matrices(layout.tp)
    return _adapters(layout, shapes)


def _adapters(layout: Layout, shapes: Shapes) -> int:
    """Return the parameters of two thin matrices beside each that has an adapter.

    The experts of a rank share one, as in Megatron-Bridge, where a grouped product has one adapter.
    """
    return layout.lora * sum(
        inputs + outputs for name, (inputs, outputs) in shapes.items() if has_adapter(layout, name)
    )


def has_adapter(layout: Layout, matrix: str) -> bool:
    """Return whether a matrix of attention or feed-forward has a LoRA adapter."""
    known = {"proj": "linear_proj", "up": "linear_fc1", "down": "linear_fc2"}
    return known.get(matrix, "linear_qkv") in layout.adapted


@lru_cache(maxsize=1024)  # a search asks for the same in many layouts
def _shares(model: Transformer, division: Division, tp: int, ep: int, expert_tp: int) -> Shares:
    sizes = np.array(division.layers)
    ends = np.cumsum(sizes.T.ravel())  # in the order in which tokens pass the chunks
    kinds = model.kinds
    layers = {}
    for kind in dict.fromkeys(kinds):
        passed = np.concatenate(([0], np.cumsum([each == kind for each in kinds])))[np.concatenate(([0], ends))]
        layers[kind] = np.diff(passed).reshape(sizes.T.shape).T
    layers[kinds[-1]][division.mtp] += model.mtp
    parameters = np.sum([count * model.kind_parameters(kind, tp=tp) for kind, count in layers.items()], axis=0)
    rows = -(-model.vocab // tp) * model.hidden
    parameters[0, 0] += rows + model.embedding_parameters - model.vocab * model.hidden
    parameters[-1, -1] += model.final_norm_parameters + (0 if model.tied and len(sizes) == 1 else rows)
    parameters[division.mtp] += model.mtp * 2 * model.hidden**2 // tp
    experts = (model.experts // ep) * model.count(model.expert_matrices(expert_tp))
    mixtures = np.sum([count * ("experts" in kind) for kind, count in layers.items()], axis=0)
    return Shares(
        layers=layers,
        parameters=parameters,
        expert_parameters=mixtures * experts,
        trained=parameters,
        trained_experts=mixtures * experts,
    )
