"""Layouts and memory as people read them."""

from __future__ import annotations

from weft.training.job import Run
from weft.training.memory import GB
from weft.training.parallel import Layout


def show_layout(layout: Layout) -> str:
    """`tp 8, pp 4, vp 12, dp 32; micro-batch 4 × 16; ZeRO 1`: sizes that are 1 are left out, but for dp."""
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "vp", "cp", "ep") if getattr(layout, name) > 1]
    experts = [f"etp {layout.etp}"] if layout.etp else []
    said = (
        f"{', '.join([*sizes, *experts, f'dp {layout.dp}'])}; micro-batch {layout.micro_batch} × {layout.micro_batches}"
    )
    again = "" if layout.recompute == "none" else f"; recompute {layout.recompute}"
    return f"{said}; ZeRO {layout.zero}{again}"


def show_memory(run: Run) -> str:
    """What the fullest stage holds, and what is left."""
    parts = ", ".join(f"{name} {size / GB:.1f}" for name, size in run.footprint.parts.items() if size > 0.05 * GB)
    held, has, free = run.footprint.total_bytes / GB, run.site.gpu.entry.memory_gbyte, run.free_bytes / GB
    return f"{held:.1f} of {has:g} GB on each GPU, fits with {free:.1f} GB to spare ({parts})"
