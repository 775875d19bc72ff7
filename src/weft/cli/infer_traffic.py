"""Requests in time of `weft infer`: place replicas, serve the load, search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Any

from weft.cli import infer_latencies as tables
from weft.cli.arguments import Form
from weft.cli.infer_load import Serving, Traffic, objective_of
from weft.cli.output import print_data, report_written
from weft.errors import ConfigError
from weft.version import __version__

if TYPE_CHECKING:
    from weft.fabric.prices import Band
    from weft.inference.deployment import Deployment
    from weft.inference.serving.figures import Objective
    from weft.inference.serving.load import Load
    from weft.inference.serving.placement import Placement
    from weft.inference.serving.run import Served
    from weft.inference.serving.search import Found
    from weft.inference.serving.service import Limits, Service
    from weft.inference.table import StepTable
    from weft.sim.result import Engine as Clock


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A deployment to serve a load: how many replicas, and how services are built."""

    find: Callable[[int | None], Deployment]  # deployment with so many GPUs; None: those of the options
    traffic: Traffic
    serving: Serving
    load_of: Callable[[Traffic], Load]
    clock: Clock

    @cached_property
    def load(self) -> Load:
        return self.load_of(self.traffic)

    def place(self, prefill: int, others: int) -> Placement:
        """Place replicas on the given fabric, or on one of the catalog that is large enough."""
        from weft.inference.serving.placement import Placement

        one = self.deployment
        needed = (prefill + others) * one.replica_gpus
        deployment = one if needed <= one.site.gpus or one.site.interconnect is None else self.find(_whole(needed, one))
        counts = {"prefill": prefill, "decode": others} if prefill else {"both": others}
        return Placement(deployment=deployment, **counts)

    @cached_property
    def deployment(self) -> Deployment:
        import msgspec

        deployment = self.find(None)
        share = self.serving.gpu_memory_utilization
        if share is None:
            return deployment
        if not 0 < share <= 1:
            raise ConfigError(f"--gpu-memory-utilization must be in (0, 1], got {share:g}")
        return replace(deployment, engine=msgspec.structs.replace(deployment.engine, memory=share))

    @property
    def limits(self) -> Limits:
        from weft.inference.serving.placement import limits_of

        serving = self.serving
        return limits_of(
            self.deployment, chunked_prefill=serving.chunked_prefill, prefix_caching=serving.prefix_caching
        )

    def build(self, placement: Placement, step: StepTable, limits: Limits) -> Service:
        from weft.inference.serving.placement import build_service

        options: dict[str, Any] = {"router": self.serving.router}
        if placement.prefill:
            options |= {"streams": self.serving.handoff == "layers", "staging": self.serving.staging}
        return build_service(placement, step, limits, **options)


def _whole(gpus: int, deployment: Deployment) -> int:
    """Return a number of GPUs that servers have: part of one, or all of each."""
    each = deployment.site.template.gpus
    return gpus if gpus < each else -(-gpus // each) * each


def run_traffic(plan: Plan, form: Form, say: Callable[[str], None], *, explain: bool) -> Callable[[], None]:
    """Serve the load, or search; return the function that prints the result."""
    serving = plan.serving
    objective = objective_of(serving)
    if serving.find == "gpus":
        assert objective is not None
        return partial(
            tables.print_found, _search_gpus(plan, objective, say), plan.load, objective, plan.place(0, 1), form
        )
    placement = plan.place(serving.prefill or 0, serving.decode or 0) if serving.prefill or serving.decode else None
    placement = placement or plan.place(0, plan.deployment.replicas)
    step = placement.tables(plan.load.mean_tokens, plan.clock)
    service = plan.build(placement, step, plan.limits)
    if serving.find == "rate":
        assert objective is not None
        return partial(
            tables.print_rate, _search_rate(plan, service, objective, say), service, objective, placement, form
        )
    facts = _serve(plan, placement, service, objective)
    return partial(_print, facts, placement, serving, form, explain=explain)


def _print(facts: dict[str, Any], placement: Placement, serving: Serving, form: Form, *, explain: bool) -> None:
    if form.is_data:
        print_data(form, facts)
    else:
        tables.print_served(facts, placement, explain=explain)
        report_written(serving.write_requests, serving.picture_cdf)


def _serve(plan: Plan, placement: Placement, service: Service, objective: Objective | None) -> dict[str, Any]:
    """Serve the load, write files and return the figures."""
    from weft.inference.serving.disturbances import Disturbance, compare_phases, phases_of
    from weft.inference.serving.figures import report
    from weft.inference.serving.output import draw_latencies, write_requests
    from weft.inference.serving.run import serve

    serving, fault = plan.serving, None
    phases: tuple[Any, ...] = ()
    if serving.fault is not None:
        if not plan.load.arrival_s[-1] > 0:
            raise ConfigError("--fault needs requests over some time: use --rate or --request-trace")
        fault = Disturbance.parse(serving.fault, float(plan.load.arrival_s[-1]))
        phases = phases_of(fault, placement, plan.load.mean_tokens, clock=plan.clock)
    served = serve(service, plan.load, phases=phases)
    if serving.write_requests is not None:
        write_requests(serving.write_requests, served)
    if serving.picture_cdf is not None:
        draw_latencies(serving.picture_cdf, served, tables.title_of(placement))
    facts: dict[str, Any] = {
        "weft": __version__,
        "model": placement.deployment.model.name,
        "fabric": placement.deployment.site.name,
    }
    facts |= report(served, objective) | {
        "usd_per_1e6_output_tokens": None if (usd := _usd(placement, served)) is None else [usd.low_usd, usd.high_usd]
    }
    if fault is not None:
        facts["fault"] = {
            "fault": fault.text,
            "begin_s": fault.begin_s,
            "end_s": None if fault.end_s == inf else fault.end_s,
        }
        facts["phases"] = compare_phases(served, fault)
    return facts


def _search_gpus(plan: Plan, objective: Objective, say: Callable[[str], None]) -> list[Found]:
    from weft.inference.serving.search import batch_sizes, find_smallest

    step = plan.place(0, 1).tables(plan.load.mean_tokens, plan.clock)

    def build(prefill: int, others: int, limits: Limits) -> Service:
        return plan.build(plan.place(prefill, others), step, limits)

    batches = batch_sizes(plan.limits)
    results: list[Found] = []
    for disaggregated in (False, True):
        results += find_smallest(build, plan.load, objective, batches, disaggregated=disaggregated, say=say)
    if not results:
        raise ConfigError(
            "no number of replicas keeps the objective: a request alone may take longer. Allow more time, or use more "
            "GPUs for each replica (--tp)"
        )
    return sorted(results, key=lambda result: result.gpus)


def _search_rate(plan: Plan, service: Service, objective: Objective, say: Callable[[str], None]) -> float:
    from weft.inference.serving.search import find_rate

    def load_at(rate: float) -> Load:
        return plan.load_of(replace(plan.traffic, rate=rate))

    return find_rate(service, load_at, objective, plan.traffic.rate or 1.0, say)


def _usd(placement: Placement, served: Served) -> Band | None:
    """Return the cost of 10^6 output tokens: servers, fabric and power over their years of use, always at this load."""
    from weft.fabric.prices import read_prices
    from weft.inference.serving.figures import throughput
    from weft.plan.bill import bill_of
    from weft.plan.upkeep import upkeep

    site, prices = placement.deployment.site, read_prices()
    costs = upkeep(bill_of(site.fabric, prices), prices)
    whole = costs.cluster
    if whole is None:
        return None
    all_gpus = costs.bill.gpus or site.gpus
    seconds = costs.years * 365.25 * 86_400
    tokens = throughput(served).output_tokens_per_s * seconds / 1e6
    return whole * (served.service.gpus / all_gpus / tokens)
