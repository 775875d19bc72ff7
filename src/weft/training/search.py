"""Search for the best layout: try each that divides and fits, with a step in closed form.

Unusual sizes are left out: a tensor group beyond a server, a piece of a sequence or an interleaved
chunk too small to compute on, ZeRO 2 and 3 with a pipeline (each micro-batch would scatter all gradients, or gather all
parameters, again), ZeRO 0. Only the least recomputation that fits is tried: more takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from weft.errors import ConfigError, UnknownName
from weft.training.memory import GB, Footprint, footprint, recompute_to_fit
from weft.training.parallel import Layout, check, cuts
from weft.training.pipeline_layout import count_stages
from weft.training.site import Site
from weft.training.step import Step, run_step
from weft.training.transformer import Transformer
from weft.version import __version__

SIZES = ("tp", "pp", "vp", "cp", "ep", "micro_batch", "zero", "recompute")  # the fields that a search varies
_MOST_STAGES, _MOST_CHUNKS, _MOST_MICRO_BATCH = 64, 12, 8
_PIECE_TOKENS = 2048  # the shortest piece of a sequence with context parallel

Progress = Callable[[int, int], None]  # layouts done, layouts in all


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchResult:
    """A layout with its step in closed form."""

    step: Step
    footprint: Footprint

    @property
    def layout(self) -> Layout:
        return self.step.layout


def report(results: Sequence[SearchResult], site: Site) -> dict[str, Any]:
    """Return the fields of `--json`: the layouts, the fastest first."""
    return {
        "weft": __version__,
        "model": results[0].step.transformer.name,
        "fabric": site.name,
        "gpus": site.gpus,
        "spec": site.spec,
        "server": site.template.name,
        "seed": site.options.seed,
        "layouts": [
            {
                "step_s": result.step.step_s,
                "tokens_per_s": result.step.tokens_per_s,
                "mfu": result.step.mfu,
                "memory_bytes": result.footprint.total_bytes,
                **asdict(result.layout),
                "dp": result.layout.dp,
            }
            for result in results
        ],
    }


def search(
    transformer: Transformer, site: Site, fixed: Mapping[str, Any], progress: Progress | None = None
) -> list[SearchResult]:
    """Return all layouts that fit, the fastest first. `fixed` are fields of a Layout to keep."""
    fitting = layouts(transformer, site, fixed)
    results = []
    for done, (layout, held) in enumerate(fitting):
        step = run_step(transformer, layout, site.gpu, site.over(layout))
        results.append(SearchResult(step=step, footprint=held))
        if progress is not None:
            progress(done + 1, len(fitting))
    return sorted(results, key=lambda result: result.step.step_s)


def layouts(transformer: Transformer, site: Site, fixed: Mapping[str, Any]) -> list[tuple[Layout, Footprint]]:
    """Return the layouts that divide and fit. Raise ConfigError with the smallest excess if there are none."""
    memory_gbyte = site.gpu.entry.memory_gbyte
    fitting, least = [], None
    for fields in _sizes(transformer, site, fixed):
        try:
            layout = Layout(gpus=site.gpus, **{**fixed, **fields})
            check(layout, transformer)
        except UnknownName:
            raise
        except ConfigError:
            continue
        if "recompute" not in fixed:
            layout = recompute_to_fit(layout, transformer, memory_gbyte)
        held = footprint(layout, transformer)
        least = held if least is None or held.total_bytes < least.total_bytes else least
        if held.fits(memory_gbyte):
            fitting.append((layout, held))
    if not fitting:
        raise ConfigError(_nothing(transformer, site, fixed, least))
    return fitting


def _sizes(transformer: Transformer, site: Site, fixed: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Yield all choices of sizes, without recomputation; most of them divide."""
    tp = _powers(site.template.gpus)
    pp = [stages for stages in range(1, _MOST_STAGES + 1) if site.gpus % stages == 0]
    vp = range(1, _MOST_CHUNKS + 1)
    cp = _powers(max(1, fixed["seq"] // _PIECE_TOKENS))
    ep = [parts for parts in range(1, transformer.experts + 1) if transformer.experts % parts == 0] or [1]
    choices = {"tp": tp, "pp": pp, "vp": vp, "cp": cp, "ep": ep}
    choices |= {"micro_batch": _powers(_MOST_MICRO_BATCH), "zero": (1, 2, 3)}
    names = list(choices)
    given = count_stages(fixed["pipeline_layout"]) if "pipeline_layout" in fixed else 0
    for values in product(*([fixed[name]] if name in fixed else choices[name] for name in names)):
        fields = dict(zip(names, values, strict=True))
        stages, chunks = fields["pp"], fields["vp"]
        parts = stages * chunks
        even = parts <= transformer.layers and cuts(transformer.layers, parts)
        if not (parts == given if given else even) or (chunks > 1 and stages == 1):
            continue
        if fields["zero"] > 1 and stages > 1 and "zero" not in fixed:
            continue
        yield fields


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length())]


def _nothing(transformer: Transformer, site: Site, fixed: Mapping[str, Any], least: Footprint | None) -> str:
    sizes = ", ".join(
        f"{name} = {value}"
        for name, value in fixed.items()
        if name in (*SIZES, "pipeline_layout", "global_batch", "seq")
    )
    on = f"{site.gpus:,} × {site.template.gpu}"
    if least is None:
        return f"no layout of {transformer.name} on {on} divides with {sizes}: change one or the number of GPUs"
    has = site.gpu.entry.memory_gbyte
    need = least.total_bytes / GB
    return (
        f"{transformer.name} fits on {on} in no layout with {sizes}: the least of them needs "
        f"{need:.1f} GB on each GPU, {need - has:.1f} GB more than it has\n  Take more GPUs, or GPUs with more memory."
    )
