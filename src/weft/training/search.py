"""The best layout: every one that divides and fits, each by a step in closed form.

Sizes that nobody trains with are left out: a tensor group beyond a server, a piece of a sequence or an interleaved
chunk too small to compute on, ZeRO 2 and 3 with a pipeline (each micro-batch would scatter all gradients, or gather all
parameters, again), ZeRO 0. Of recomputing only the least that fits is tried: with all else the same, more takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from weft.errors import ConfigError, UnknownName
from weft.training.memory import GB, Footprint, footprint
from weft.training.parallel import RECOMPUTE, Layout, check, cuts
from weft.training.site import Site
from weft.training.step import Step, run_step
from weft.training.transformer import Transformer

SIZES = ("tp", "pp", "vp", "cp", "ep", "micro_batch", "zero", "recompute")  # what is searched
_MOST_STAGES, _MOST_CHUNKS, _MOST_MICRO_BATCH = 64, 12, 8
_PIECE_TOKENS = 2048  # of a sequence that context parallel cuts, at least

Progress = Callable[[int, int], None]  # layouts behind, layouts in all


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """A layout with its step in closed form."""

    step: Step
    footprint: Footprint

    @property
    def layout(self) -> Layout:
        return self.step.layout


def search(
    transformer: Transformer, site: Site, given: Mapping[str, Any], progress: Progress | None = None
) -> list[Found]:
    """All layouts that fit, the fastest first. `given` fields of a Layout are kept: `global_batch`, `seq`, more."""
    fitting = layouts(transformer, site, given)
    found = []
    for done, (layout, held) in enumerate(fitting):
        step = run_step(transformer, layout, site.gpu, site.over(layout))
        found.append(Found(step=step, footprint=held))
        if progress is not None:
            progress(done + 1, len(fitting))
    return sorted(found, key=lambda one: one.step.step_s)


def layouts(transformer: Transformer, site: Site, given: Mapping[str, Any]) -> list[tuple[Layout, Footprint]]:
    """Those that divide and fit; an error where there is none says how near the nearest is."""
    memory_gbyte = site.gpu.entry.memory_gbyte
    made, least = [], None
    for fields in _sizes(transformer, site, given):
        for recompute in [given["recompute"]] if "recompute" in given else RECOMPUTE:
            try:
                layout = Layout(gpus=site.gpus, **{**given, **fields, "recompute": recompute})
                check(layout, transformer)
            except UnknownName:
                raise
            except ConfigError:
                break
            held = footprint(layout, transformer)
            least = held if least is None or held.total_bytes < least.total_bytes else least
            if held.fits(memory_gbyte):
                made.append((layout, held))
                break
    if not made:
        raise ConfigError(_nothing(transformer, site, given, least))
    return made


def _sizes(one: Transformer, site: Site, given: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Every choice of sizes, but for recomputing; most of them divide."""
    tp = _powers(site.template.gpus)
    pp = [stages for stages in range(1, _MOST_STAGES + 1) if site.gpus % stages == 0]
    vp = range(1, _MOST_CHUNKS + 1)
    cp = _powers(max(1, given["seq"] // _PIECE_TOKENS))
    ep = [parts for parts in range(1, one.experts + 1) if one.experts % parts == 0] or [1]
    choices = {"tp": tp, "pp": pp, "vp": vp, "cp": cp, "ep": ep}
    choices |= {"micro_batch": _powers(_MOST_MICRO_BATCH), "zero": (1, 2, 3)}
    names = list(choices)
    for values in product(*([given[name]] if name in given else choices[name] for name in names)):
        fields = dict(zip(names, values, strict=True))
        stages, chunks = fields["pp"], fields["vp"]
        parts = stages * chunks
        if parts > one.layers or not cuts(one.layers, parts) or (chunks > 1 and stages == 1):
            continue
        if fields["zero"] > 1 and stages > 1 and "zero" not in given:
            continue
        yield fields


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length())]


def _nothing(one: Transformer, site: Site, given: Mapping[str, Any], least: Footprint | None) -> str:
    kept = ", ".join(f"{name} = {value}" for name, value in given.items() if name in (*SIZES, "global_batch", "seq"))
    on = f"{site.gpus:,} × {site.template.gpu}"
    if least is None:
        return f"no layout of {one.name} on {on} divides with {kept}: change one of these, or the number of GPUs"
    has = site.gpu.entry.memory_gbyte
    need = least.total_bytes / GB
    return (
        f"{one.name} fits on {on} in no layout with {kept}: the least of them needs {need:.1f} GB on each GPU, "
        f"{need - has:.1f} GB more than it has\n  Take more GPUs, or GPUs with more memory."
    )
