"""Options of a layout that change nothing in it, and why: `weft train` refuses them."""

from __future__ import annotations

from weft.training.parallel import Layout
from weft.training.transformer import Transformer

_EXPERT_MODULES = {"moe", "moe_act"}


def without_effect(layout: Layout, transformer: Transformer) -> dict[str, str]:
    """Return the reason by field, for fields that could have any other value and the step would be the same."""
    one_copy = layout.dp * layout.cp == 1 and (not transformer.experts or layout.edp == 1)
    copies = "there is one copy of the model, which exchanges nothing"
    whole = "tp = 1: each GPU has its matrices whole"
    idle = {
        "zero": (one_copy, copies),
        "sequence_parallel": (layout.tp == 1, whole),
        "tp_comm_overlap": (layout.tp == 1, whole),
        "overlap_grad_reduce": (one_copy, copies),
        "overlap_param_gather": (one_copy, copies),
        "overlap_p2p": (layout.vp == 1, "only stages that are interleaved, --vp 2 and more, send while they compute"),
        "overlap_moe": (layout.ep == 1 and layout.expert_tp == 1, "ep = 1: no token leaves its GPU"),
        "dispatcher": (layout.ep == 1, "ep = 1: no token leaves its GPU"),
        "fp8_dispatch": (layout.ep == 1, "ep = 1: no token leaves its GPU"),
        "recompute": (
            set(layout.recomputed) == {"mla_up_proj"} and not transformer.kv_lora,
            "its attention is not MLA",
        ),
        "attention": (not layout.fused_attention, "without fused_attention its scores are written to memory"),
        "lora_modules": (not layout.lora, "without lora all weights are trained"),
        "grad_reduce_in_fp32": (layout.precision == "fp16", "gradients of fp16 are summed in 16 bits"),
    }
    if layout.zero == 0:
        idle["overlap_param_gather"] = True, "zero = 0: every copy has all parameters, and gathers none"
    if layout.tp > 1 and not layout.sequence_parallel:
        idle["tp_comm_overlap"] = True, "without sequence_parallel nothing overlaps the all-reduce of a tensor group"
    if set(layout.recomputed) and set(layout.recomputed) <= _EXPERT_MODULES and not transformer.experts:
        idle["recompute"] = True, f"{transformer.name} has no experts"
    return {field: why for field, (holds, why) in idle.items() if holds} | without_effect_on(transformer)


def without_effect_on(transformer: Transformer) -> dict[str, str]:
    """Return the reason by field, for fields that change nothing in any layout of a transformer."""
    if transformer.experts:
        return {}
    dense = f"{transformer.name} has no experts"
    graphs = f"{dense}, and the GPU never waits for launches of other layers"
    fields = ("overlap_moe", "etp", "dispatcher", "fp8_dispatch", "imbalance")
    return {**dict.fromkeys(fields, dense), "cuda_graphs": graphs}
