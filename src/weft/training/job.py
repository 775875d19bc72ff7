"""A job: a transformer, cut by a layout, on a site; how long a step of it takes, and whether it fits.

run = run_job(find("llama3-70b"), layout, find_site("ndr", gpus=1024))
run.step.step_s, run.step.mfu, run.footprint.total_bytes
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from weft.sim.flow.engine import FlowEngine
from weft.training.communication import Communication
from weft.training.memory import GB, Footprint, check_fits
from weft.training.parallel import Layout, check
from weft.training.site import Site
from weft.training.spread import Spread, step_spread
from weft.training.step import Step, run_step
from weft.training.transformer import Transformer

if TYPE_CHECKING:
    from weft.sim.result import Engine

SEQUENCES_PER_GPU = 2  # of a global batch that nobody gave: what NVIDIA's DGX Cloud recipes scale with
DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One step, with what it took."""

    site: Site
    step: Step
    over: Communication  # by which its collectives were timed
    footprint: Footprint
    engine: str

    @property
    def layout(self) -> Layout:
        return self.step.layout

    @property
    def band(self) -> Spread:
        """Around the step."""
        return step_spread(self.step, self.over)

    @property
    def free_bytes(self) -> float:
        """Of a GPU, after all that the fullest stage holds."""
        return self.site.gpu.entry.memory_gbyte * GB - self.footprint.total_bytes

    def days(self, tokens: float) -> float:
        """Until so many tokens are seen, with nothing broken on the way."""
        return tokens / self.step.tokens_per_s / DAY_S

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
        step, one, site, band = self.step, self.step.transformer, self.site, self.band
        shape = {key: value for key, value in asdict(one).items() if key != "source"}
        return {
            "model": one.name,
            "fabric": site.name,
            "gpus": site.gpus,
            "step_s": step.step_s,
            "band_s": [band.low_s, band.high_s],
            "band_kind": band.kind,
            "band_models": band.models,
            "far": list(band.far),
            "notes": list(site.notes),
            "tokens_per_s": step.tokens_per_s,
            "mfu": step.mfu,
            "parts": step.parts,
            "memory": {
                "parts_bytes": self.footprint.parts,
                "total_bytes": self.footprint.total_bytes,
                "free_bytes": self.free_bytes,
            },
            "options": {
                "layout": asdict(step.layout) | {"dp": step.layout.dp, "micro_batches": step.layout.micro_batches},
                "transformer": shape | {"parameters": one.parameters, "active_parameters": one.active_parameters},
                "site": {
                    "spec": site.spec,
                    "server": site.template.name,
                    "servers": site.servers,
                    "names": list(site.names),
                    "gpu": site.template.gpu,
                    "network": site.options.network,
                    "paths": site.options.paths,
                },
                "engine": self.engine,
                "slowest": step.slowest,
            },
            "seed": site.options.seed,
        }


def run_job(
    transformer: Transformer,
    layout: Layout,
    site: Site,
    engine: Engine | None = None,
    *,
    slowest: float | None = None,
) -> Run:
    """By flows unless told. What does not divide or does not fit is named before anything runs."""
    check(layout, transformer)
    held = check_fits(layout, transformer, site.gpu.entry.memory_gbyte)
    clock = engine or FlowEngine()
    over = site.over(layout, clock)
    step = run_step(transformer, layout, site.gpu, over, slowest=slowest)
    return Run(site=site, step=step, over=over, footprint=held, engine=clock.name)
