"""The inference workload: 10^6 tokens of answers of a served model, by the best layout on each fabric.

Layouts are one replica on a part of a server, on a server, or on several; replicas fill the cluster. Of each layout the
number of users grows until more tokens are not faster or the time per output token misses the objective. Neighbouring
servers share the leaves of their rails, so that replicas on several servers are timed on a fabric of their own size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.advise.case import Case
from weft.advise.workloads import Option, Progress, Timed, Work, fabric_of
from weft.collectives.interconnect import options_of, template_of
from weft.errors import ConfigError, find_named
from weft.inference.deployment import WEIGHT_BYTES, Deployment
from weft.inference.engine import find_engine
from weft.inference.load import Load
from weft.inference.prediction import Inference, layouts, show_layout, sweep_users
from weft.training.site import Site
from weft.training.transformer import find

TOKENS = 1e6  # tokens in a unit of work
MOST_SERVERS = 8  # servers of the largest replica
_EXCHANGES = ("all_reduce", "dispatch", "combine", "send")


class Unserved(ConfigError):
    """A fabric on which no layout keeps the objective."""


class Serving(Work):
    """The inference workload."""

    def __init__(self, case: Case, progress: Progress | None = None) -> None:
        super().__init__(case)
        self._progress = progress
        self._model = find(case.chosen_model)
        self._runs: dict[Option, list[Inference]] = {}

    def run(self, option: Option) -> Timed:
        return self.guess(option, self.case)

    def guess(self, option: Option, case: Case) -> Timed:
        fitting = [run for run in self._runs_on(option) if _servers(run) <= case.servers]
        if not fitting:
            raise Unserved(
                f"no replica of {self._model.name} on up to {min(case.servers, MOST_SERVERS)} servers fits and keeps "
                f"{1000 * case.tpot_s:g} ms per output token: give a smaller --model, or a longer --slo-tpot"
            )
        best = max(fitting, key=lambda run: _tokens_per_s(run, case))
        rate = _tokens_per_s(best, case)
        low, high = best.band("tokens_per_s").around(rate)
        parts, is_alone = best.served.parts, _servers(best) == 1
        waiting_s = 0.0 if is_alone else sum(parts.get(part, 0.0) for part in _EXCHANGES)
        return Timed(
            seconds=TOKENS / rate,
            free_s=TOKENS / rate * (1 - waiting_s / parts.total_s),
            band_s=(TOKENS / high, TOKENS / low),
            layout=f"{show_layout(best.deployment)}, {best.load.concurrency:,} users",
            inside_servers=is_alone,
        )

    def units_of_work(self, case: Case) -> float:
        return 1.0

    def _runs_on(self, option: Option) -> list[Inference]:
        """Return the best run of each layout that keeps the objective."""
        if option not in self._runs:
            self._runs[option] = [run for each in self._deployments(option) if (run := self._best(each)) is not None]
        return self._runs[option]

    def _best(self, deployment: Deployment) -> Inference | None:
        case = self.case
        load = Load(input=case.prompt_tokens, output=case.answer_tokens)
        runs = [run for run in sweep_users(deployment, load) if (run.served.tpot_s or 0.0) <= case.tpot_s]
        return max(runs, key=lambda run: run.tokens_per_s, default=None)

    def _deployments(self, option: Option) -> Iterator[Deployment]:
        """Yield a replica of each layout that divides and fits, on up to as many servers as it may span."""
        gpus, engine = self.case.per_server, find_engine("vllm")
        weights = find_named("--weights format", self.case.weights, dict(zip(WEIGHT_BYTES, WEIGHT_BYTES, strict=True)))
        for sizes in layouts(gpus * MOST_SERVERS):
            used = sizes.get("tp", 1) * sizes.get("dp", 1)
            if self._progress is not None:
                self._progress(f"{self._model.name} on {option.name}, {used} GPUs for a replica")
            if used > gpus and used % gpus:
                continue
            fields: dict[str, Any] = {"weights": weights, **sizes}
            try:
                yield Deployment(model=self._model, site=self._site(option, used), engine=engine, **fields)
            except ConfigError:
                continue

    def _site(self, option: Option, gpus: int) -> Site:
        """Return the servers of one replica, on a fabric of the same kind as the one that is billed."""
        servers = max(1, gpus // self.case.per_server)
        fabric = fabric_of(option.interconnect, self.case.server, max(servers, 2))
        return Site(
            name=option.interconnect.name,
            fabric=fabric,
            template=template_of(fabric),
            servers=servers,
            part=gpus if gpus < self.case.per_server else None,
            options=options_of(option.interconnect, self.case.seed),
            interconnect=option.interconnect,
        )


def _servers(run: Inference) -> int:
    return run.deployment.site.servers


def _tokens_per_s(run: Inference, case: Case) -> float:
    """Return the output tokens per second of as many replicas as the cluster holds."""
    return run.tokens_per_s * (case.gpus // run.deployment.site.gpus)
