"""Text for layouts, memory and parts of a step."""

from __future__ import annotations

from weft.training.job import Run
from weft.training.memory import GB
from weft.training.parallel import Layout
from weft.training.step import Step

PARTS = {
    "products": "matrix products",
    "attention": "attention",
    "memory": "norms, activations, residuals: passes over memory",
    "host": "waiting for the host to launch kernels",
    "tp": "tensor parallel, not hidden",
    "cp": "context parallel, not hidden",
    "ep": "expert parallel: tokens to their experts and back",
    "offload": "waiting for activations that go to the host and back",
    "slowest": "waiting for the slowest GPU",
    "bubble": "pipeline bubble, with sends that nothing hides",
    "dp": "gradients and parameters, not hidden",
    "optimizer": "Adam",
    "input": "waiting for sequences from storage and loaders",
}


def show_layout(layout: Layout, *, copies: bool = True) -> str:
    """Format a layout: `tp 8, pp 4, vp 12, dp 32; micro-batch 4 × 16; ZeRO 1`. Sizes of 1 are left out, except dp.

    copies: include the sizes that depend on the number of copies.
    """
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "vp", "cp", "ep") if getattr(layout, name) > 1]
    sizes += [f"etp {layout.etp}"] if layout.etp else []
    sizes += [f"dp {layout.dp}"] if copies else []
    batch = f"micro-batch {layout.micro_batch}" + (f" × {layout.micro_batches}" if copies else "")
    others = [] if layout.recompute == "none" else [f"recompute {show_recompute(layout)}"]
    others += [f"LoRA {layout.lora}"] if layout.lora else []
    others += [f"attention {layout.attention}"] if layout.attention else []
    others += [f"stages {layout.pipeline_layout}"] if layout.pipeline_layout else []
    return "; ".join([*([", ".join(sizes)] if sizes else []), batch, f"ZeRO {layout.zero}", *others])


def show_recompute(layout: Layout) -> str:
    """Format the recomputation: `none`, modules, `full`, or `full in 2 layers of each chunk`."""
    count = layout.recompute_layers
    return layout.recompute + (f" in {count} layer{'s' * (count > 1)} of each chunk" if count else "")


def show_memory(run: Run) -> str:
    """Format the memory of the fullest stage, and the free memory."""
    parts = ", ".join(f"{name} {size / GB:.1f}" for name, size in run.footprint.parts.items() if size > 0.05 * GB)
    held, has, free = run.footprint.total_bytes / GB, run.site.gpu.entry.memory_gbyte, run.free_bytes / GB
    return f"{held:.1f} of {has:g} GB on each GPU, fits with {free:.1f} GB to spare ({parts})"


def show_loading(step: Step) -> str:
    """Format the input of a step: its bytes, the times to read and prepare it, and what the step hides."""
    loading, workers = step.loading, step.loading.workers
    by = f"{workers} process{'es' * (workers > 1)} for each copy" if workers else "each copy itself"
    exposed_s = step.parts["input"]
    return (
        f"{loading.total_bytes / 1e9:,.3g} GB read in {loading.read_s:.3g} s, prepared in {loading.prepare_s:.3g} s by "
        f"{by}; {f'{exposed_s:.3g} s not hidden' if exposed_s else 'hidden by the step'}"
    )
