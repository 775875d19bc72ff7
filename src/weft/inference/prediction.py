"""Predictions of a served model: on one fabric, on several side by side, or over layouts and numbers of users.

run = infer(find_deployment("llama3-70b", server="dgx-h100", tp=8), Load(input=1024, output=128, concurrency=64))
run.tokens_per_s_per_gpu, run.served.ttft_s, run.served.tpot_s, run.bottleneck
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.calibration.band import Band
from weft.draw.chart import COLOURS, titled_chart
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.inference.band import band_of
from weft.inference.communication import Exchange
from weft.inference.deployment import Deployment, find_deployment
from weft.inference.load import Load, Served, serve
from weft.inference.step import Step
from weft.inference.table import StepTable
from weft.inference.tabulate import tabulate
from weft.inference.validate import METRICS, kind_of, value_of
from weft.sim.flow.engine import FlowEngine
from weft.sim.result import Engine as Clock
from weft.training.transformer import Transformer
from weft.version import __version__

_LAYOUT = ("tp", "pp", "dp", "ep")


@dataclass(frozen=True, kw_only=True, eq=False)
class Inference:
    """A deployment under a load, with throughput and latency."""

    step: Step
    served: Served
    clock: str

    @property
    def deployment(self) -> Deployment:
        return self.step.deployment

    @property
    def load(self) -> Load:
        return self.served.load

    @property
    def tokens_per_s(self) -> float:
        """Return the output tokens per second; of prefill alone, those of the prompts."""
        return self.served.output_tokens_per_s or self.served.input_tokens_per_s

    @property
    def tokens_per_s_per_gpu(self) -> float:
        return self.tokens_per_s / self.deployment.site.gpus

    @property
    def tokens_per_s_per_user(self) -> float | None:
        return None if self.served.tpot_s is None else 1 / self.served.tpot_s

    @property
    def bottleneck(self) -> str:
        return self.served.bottleneck

    def band(self, metric: str) -> Band:
        """Return the band around `tokens_per_s`, `ttft_s` or `tpot_s`."""
        return band_of(kind_of(self.deployment, self.load, metric))

    @property
    def table(self) -> StepTable:
        """Return the step times by number of tokens."""
        return tabulate(self.deployment, self.step, context=self.load.input + self.load.output)

    def _ends(self, metric: str) -> list[float] | None:
        """Return the ends of a band, if the load has the metric."""
        value = value_of(self.served, metric)
        return None if value is None else list(self.band(metric).around(value))

    def report(self) -> dict[str, Any]:
        """Return the fields of `--json`."""
        deployment, served, site = self.deployment, self.served, self.deployment.site
        return {
            "model": deployment.model.name,
            "fabric": site.name,
            "gpus": site.gpus,
            "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.tokens_per_s_per_gpu,
            "tokens_per_s_per_user": self.tokens_per_s_per_user,
            "ttft_s": served.ttft_s,
            "tpot_s": served.tpot_s,
            "bands": {name: self._ends(name) for name in METRICS},
            "step_s": served.step_s,
            "parts_s": dict(served.parts),
            "bottleneck": self.bottleneck,
            "decoding": served.decoding,
            "waiting": served.waiting,
            "limit": served.limit,
            "memory": {
                "weights_bytes": deployment.weight_bytes,
                "activations_bytes": deployment.activation_bytes,
                "kv_bytes": deployment.kv_bytes_of_gpu,
                "kv_room_tokens": deployment.kv_room_tokens,
                "kv_bytes_per_token": deployment.kv_bytes_per_token,
            },
            "options": {
                "load": asdict(self.load),
                "layout": {name: getattr(deployment, name) for name in _LAYOUT} | {"replicas": deployment.replicas},
                "formats": {
                    "weights": deployment.weights,
                    "dense_weights": deployment.dense_format,
                    "kv": deployment.kv,
                    "products": deployment.precision,
                },
                "framework": deployment.engine.name,
                "graphs": deployment.graphs,
                "overlap": deployment.overlap,
                "imbalance": deployment.imbalance,
                "drafts": deployment.drafts,
                "acceptance": deployment.acceptance,
                "max_batch": deployment.batch_limit,
                "max_tokens": deployment.token_limit,
                "site": {
                    "spec": site.spec,
                    "server": site.template.name,
                    "servers": site.servers,
                    "gpu": site.template.gpu,
                    "network": site.options.network,
                    "paths": site.options.paths,
                },
                "engine": self.clock,
            },
            "seed": site.options.seed,
        }


def infer(deployment: Deployment, load: Load, clock: Clock | None = None) -> Inference:
    """Predict a deployment under a load, by default with the flow engine between servers."""
    chosen = clock or FlowEngine()
    step = Step(deployment, Exchange(deployment, chosen))
    return Inference(step=step, served=serve(step, load), clock=chosen.name)


def compare_fabrics(
    model: str | Transformer,
    fabrics: Sequence[str | Fabric],
    load: Load,
    clock: Clock | None = None,
    **fields: Any,
) -> list[Inference]:
    """Return the same deployment on each fabric, the fastest first."""
    check_fabrics(fabrics)
    runs = [infer(find_deployment(model, fabric, **fields), load, clock) for fabric in fabrics]
    return sorted(runs, key=lambda run: -run.tokens_per_s)


def check_fabrics(fabrics: Sequence[str | Fabric]) -> None:
    """Refuse an empty list of fabrics, and names that are in it twice."""
    if len(set(map(str, fabrics))) < len(fabrics) or not fabrics:
        raise ConfigError("name at least one fabric, and each once: ndr,roce-400,eth-100-tcp")


def find_pareto(
    find: Callable[[Mapping[str, int]], Deployment], gpus: int, load: Load, clock: Clock | None = None
) -> list[Inference]:
    """Return the runs that no other run beats in both tokens/s of a user and tokens/s of a GPU.

    Layouts are all powers of two up to `gpus` for each replica; users go from one for each replica up to the most that
    the KV cache holds. Sizes that do not divide or fit are left out.
    """
    runs: list[Inference] = []
    for layout in layouts(gpus):
        try:
            deployment = find(layout)
        except ConfigError:
            continue
        runs += sweep_users(deployment, load, clock)
    if not runs:
        raise ConfigError(f"no layout of up to {gpus} GPUs for each replica fits: give more --gpus")
    return pareto_front(runs)


def sweep_users(deployment: Deployment, load: Load, clock: Clock | None = None) -> Iterator[Inference]:
    """Yield the runs of a deployment with 1, 2, 4 ... users for each replica, until more are no faster."""
    clock = clock or FlowEngine()
    step = Step(deployment, Exchange(deployment, clock))
    users, best = deployment.replicas * deployment.dp, 0.0
    while True:
        chosen = Load(input=load.input, output=load.output, concurrency=users)
        run = Inference(step=step, served=serve(step, chosen), clock=clock.name)
        if run.tokens_per_s <= 1.01 * best:
            return
        yield run
        best, users = run.tokens_per_s, 2 * users


def pareto_front(runs: Sequence[Inference]) -> list[Inference]:
    """Return the runs that no other run beats in both rates, the fastest for one user first."""
    front: list[Inference] = []
    for run in sorted(runs, key=lambda run: (-(run.tokens_per_s_per_user or 0.0), -run.tokens_per_s_per_gpu)):
        if not front or run.tokens_per_s_per_gpu > front[-1].tokens_per_s_per_gpu:
            front.append(run)
    return front


def layouts(gpus: int) -> Iterator[dict[str, int]]:
    """Yield the sizes of all layouts of replicas of up to so many GPUs, in powers of two."""
    sizes = [2**power for power in range(gpus.bit_length())]
    for tp in sizes:
        yield {"tp": tp}
        if tp > 1:
            yield {"tp": tp, "ep": tp}
    for dp in sizes[1:]:
        yield {"dp": dp, "ep": dp}


def draw_pareto(path: Path | str, runs: Sequence[Inference]) -> None:
    """Draw tokens/s of a GPU over tokens/s of a user."""
    first = runs[0]
    deployment, load = first.deployment, first.load
    title = f"{deployment.model.name} on {deployment.site.gpus:,} × {deployment.site.template.gpu}"
    lengths = f"prompts of {load.input:,} and answers of {load.output:,} tokens"
    note = f"{lengths}; {deployment.engine.label}; weft {__version__}"
    with titled_chart(path, title, note) as (axes,):
        users = [run.tokens_per_s_per_user or 0.0 for run in runs]
        rates = [run.tokens_per_s_per_gpu for run in runs]
        axes.plot(users, rates, color=COLOURS[0], marker="o", markersize=4, linewidth=1.8)
        for run, user, rate in zip(runs, users, rates, strict=True):
            label = f" {show_layout(run.deployment)}, {run.load.concurrency:,}"
            axes.annotate(label, (user, rate), fontsize=7.5, va="bottom")
        axes.set_xlim(0, 1.15 * max(users))
        axes.set_ylim(0, 1.1 * max(rates))
        axes.set_xlabel("tokens/s of a user")
        axes.set_ylabel("tokens/s of a GPU")


def show_layout(deployment: Deployment, *, copies: bool = True) -> str:
    """Format a layout: `tp 8`, `2 × dp 32, ep 32` with two replicas, if their number is wanted."""
    sizes = [f"{name} {getattr(deployment, name)}" for name in _LAYOUT if getattr(deployment, name) > 1] or ["tp 1"]
    return (f"{deployment.replicas} × " if copies and deployment.replicas > 1 else "") + ", ".join(sizes)
