"""A job: a transformer, a layout and a site; its step time and memory.

run = run_job(find("llama3-70b"), layout, find_site("ndr", gpus=1024))
run.step.step_s, run.step.mfu, run.footprint.total_bytes
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from weft.calibration.band import Band
from weft.sim.flow.engine import FlowEngine
from weft.training.band import step_band
from weft.training.communication import Communication
from weft.training.memory import GB, Footprint, check_fits
from weft.training.parallel import Layout, check
from weft.training.site import Site
from weft.training.step import Step, run_step
from weft.training.transformer import Transformer

if TYPE_CHECKING:
    from weft.sim.result import Engine

SEQUENCES_PER_GPU = 2  # default global batch, as NVIDIA's DGX Cloud recipes scale it
DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """A simulated step of a job, with its memory and the communication that timed it."""

    site: Site
    step: Step
    over: Communication
    footprint: Footprint
    engine: str

    @property
    def layout(self) -> Layout:
        return self.step.layout

    @property
    def band(self) -> Band:
        """Return the band around the step time."""
        return step_band(self.step, self.over)

    @property
    def band_s(self) -> tuple[float, float]:
        """Return the ends of the band."""
        return self.band.around(self.step.step_s)

    @property
    def free_bytes(self) -> float:
        """Return the memory that is free on a GPU of the fullest stage."""
        return self.site.gpu.entry.memory_gbyte * GB - self.footprint.total_bytes

    def days(self, tokens: float) -> float:
        """Return the days to train on `tokens`, without failures."""
        return tokens / self.step.tokens_per_s / DAY_S

    def report(self, tokens: float | None = None) -> dict[str, Any]:
        """Return the fields of `--json`, with the days to train on `tokens`."""
        step, transformer, site, band = self.step, self.step.transformer, self.site, self.band
        shape = {key: value for key, value in asdict(transformer).items() if key != "source"}
        return {
            "model": transformer.name,
            "fabric": site.name,
            "gpus": site.gpus,
            "step_s": step.step_s,
            "band_s": list(self.band_s),
            "framework": step.layout.software.label,
            "band_kind": band.kind,
            "band_models": band.clusters,
            "far": list(band.far),
            "notes": list(site.notes),
            "tokens_per_s": step.tokens_per_s,
            "mfu": step.mfu,
            "parts": step.parts,
            "input": asdict(step.loading),
            "memory": {
                "parts_bytes": self.footprint.parts,
                "total_bytes": self.footprint.total_bytes,
                "free_bytes": self.free_bytes,
            },
            "options": {
                "layout": asdict(step.layout) | {"dp": step.layout.dp, "micro_batches": step.layout.micro_batches},
                "transformer": shape
                | {"parameters": transformer.parameters, "active_parameters": transformer.active_parameters},
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
            **({} if tokens is None else {"tokens": tokens, "days": self.days(tokens)}),
        }


def run_job(
    transformer: Transformer,
    layout: Layout,
    site: Site,
    engine: Engine | None = None,
    *,
    slowest: float | None = None,
) -> Run:
    """Run a step of a job, by default with the flow engine. Raise ConfigError if the layout does not divide or fit."""
    check(layout, transformer)
    held = check_fits(layout, transformer, site.gpu.entry.memory_gbyte)
    clock = engine or FlowEngine()
    over = site.over(layout, clock)
    step = run_step(transformer, layout, site.gpu, over, slowest=slowest)
    return Run(site=site, step=step, over=over, footprint=held, engine=clock.name)
