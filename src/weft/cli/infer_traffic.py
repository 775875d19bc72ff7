"""Requests in time of `weft infer`: place replicas, serve the load, search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
    from weft.inference.serving.disturbances import Disturbance
    from weft.inference.serving.figures import Objective
    from weft.inference.serving.fleet import Choice, Find, Fleet
    from weft.inference.serving.load import Load
    from weft.inference.serving.placement import Placement
    from weft.inference.serving.run import Served
    from weft.inference.serving.service import Service
    from weft.sim.result import Engine as Clock


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A load to serve, and the fleet that serves it."""

    fleet: Fleet
    traffic: Traffic
    serving: Serving
    load_of: Callable[[Traffic], Load]
    most_gpus: int  # of a replica, in a search over layouts
    seed: int

    @cached_property
    def load(self) -> Load:
        return self.load_of(self.traffic)


def fleet_of(find: Find, serving: Serving, clock: Clock) -> Fleet:
    """Return the fleet of the options of a service; `find` returns its deployments."""
    import msgspec

    from weft.inference.serving.fleet import Fleet

    share = serving.gpu_memory_utilization
    if share is not None and not 0 < share <= 1:
        raise ConfigError(f"--gpu-memory-utilization must be in (0, 1], got {share:g}")

    def find_with_memory(gpus: int | None, sizes: Mapping[str, int]) -> Deployment:
        deployment = find(gpus, sizes)
        if share is None:
            return deployment
        return replace(deployment, engine=msgspec.structs.replace(deployment.engine, memory=share))

    sizes = {name: getattr(serving, f"decode_{name}") for name in ("tp", "pp", "dp", "ep")}
    return Fleet(
        find=find_with_memory,
        decode_sizes={name: size for name, size in sizes.items() if size is not None},
        limits={"chunked_prefill": serving.chunked_prefill, "prefix_caching": serving.prefix_caching},
        options={"router": serving.router},
        handoff={"streams": serving.handoff == "layers", "staging": serving.staging},
        clock=clock,
    )


def run_traffic(run: Run, form: Form, say: Callable[[str], None], *, explain: bool) -> Callable[[], None]:
    """Serve the load, or search; return the function that prints the result."""
    serving = run.serving
    objective = objective_of(serving)
    _check_prefixes(run)
    if serving.find in ("gpus", "layout"):
        assert objective is not None
        return partial(tables.print_found, _search(run, objective, say), run.load, objective, form)
    placement, service = _build(run)
    if serving.find == "rate":
        assert objective is not None
        return partial(
            tables.print_rate, _search_rate(run, service, objective, say), service, objective, placement, form
        )
    facts = _serve(run, placement, service, objective)
    return partial(_print, facts, placement, serving, form, explain=explain)


def compare_traffic(runs: Sequence[Run], form: Form) -> Callable[[], None]:
    """Serve the load on each fabric; return the function that prints the results, the fastest fabric first."""
    objective = objective_of(runs[0].serving)
    _check_prefixes(runs[0])
    built = [_build(run) for run in runs]
    served = [_serve(run, *each, objective) for run, each in zip(runs, built, strict=True)]
    order = sorted(range(len(runs)), key=lambda i: served[i]["latency"]["e2e"]["mean_s"])
    return partial(tables.print_compared, [served[i] for i in order], built[order[0]][0], form)


def _check_prefixes(run: Run) -> None:
    """Refuse options of the prefix cache if no prompts share a prefix."""
    serving = run.serving
    flag = "--router prefix" if serving.router == "prefix" else "" if serving.prefix_caching else "--no-prefix-caching"
    if flag and not len(run.load.blocks):
        raise ConfigError(
            f"{flag} changes nothing: no prompts share a prefix. Leave it out, or add --shared-prefix or a trace with "
            "hash_ids"
        )


def _build(run: Run) -> tuple[Placement, Service]:
    """Place the replicas of the options, and build their service."""
    serving, fleet = run.serving, run.fleet
    if serving.prefill or serving.decode:
        placement = fleet.place(serving.prefill or 0, serving.decode or 0)
    else:
        placement = fleet.place(0, fleet.deployment.replicas)
    return placement, fleet.build(placement, placement.tables(run.load.mean_tokens, fleet.clock))


def _search(run: Run, objective: Objective, say: Callable[[str], None]) -> list[Choice]:
    from weft.inference.serving.fleet import find_services, over_layouts

    if run.serving.find == "gpus":
        return find_services(run.fleet, run.load, objective, say)
    return over_layouts(run.fleet, run.most_gpus, run.load, objective, say)


def _print(facts: dict[str, Any], placement: Placement, serving: Serving, form: Form, *, explain: bool) -> None:
    if form.is_data:
        print_data(form, facts)
    else:
        tables.print_served(facts, placement, explain=explain)
        report_written(serving.write_requests, serving.picture_cdf)


def _serve(run: Run, placement: Placement, service: Service, objective: Objective | None) -> dict[str, Any]:
    """Serve the load, write files and return the figures."""
    from weft.inference.serving.disturbances import Disturbance, compare_phases, phases_of
    from weft.inference.serving.figures import latencies, report
    from weft.inference.serving.output import draw_latencies, write_requests
    from weft.inference.serving.run import serve

    serving, fault = run.serving, None
    phases: tuple[Any, ...] = ()
    if serving.fault is not None:
        if not run.load.arrival_s[-1] > 0:
            raise ConfigError("--fault needs requests over some time: use --rate or --request-trace")
        fault = Disturbance.parse(serving.fault, float(run.load.arrival_s[-1]))
        phases = phases_of(fault, placement, run.load.mean_tokens, clock=run.fleet.clock)

    def serve_at(pace: float) -> tuple[Served, dict[str, Served]]:
        alone = serve(service, run.load, phases=phases, pace=pace)
        shared = _share_links(run, placement, service, alone, fault, pace)
        return [alone, *shared.values()][-1], shared

    served, shared = serve_at(1.0)
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
    if serving.bands:
        facts["bands"] = _bands(placement, served, lambda pace: serve_at(pace)[0])
    if serving.jobs:
        facts["beside"] = {
            "jobs": serving.jobs,
            "rows": {
                name: {kind: asdict(found[kind]) for kind in ("handoff", "ttft", "tpot") if kind in found}
                for name, found in ((name, latencies(each)) for name, each in shared.items())
            },
        }
    if fault is not None:
        facts["fault"] = {
            "fault": fault.text,
            "begin_s": fault.begin_s,
            "end_s": None if fault.end_s == inf else fault.end_s,
        }
        facts["phases"] = compare_phases(served, fault)
    return facts


def _bands(placement: Placement, served: Served, serve_at: Callable[[float], Served]) -> dict[str, Any]:
    """Return the range of each latency over the published band of the time of steps."""
    from weft.inference.band import pace_band
    from weft.inference.serving.figures import latencies

    band = pace_band(placement.deployment)
    runs = [latencies(each) for each in (served, serve_at(band.low), serve_at(band.high))]
    ranges: dict[str, dict[str, list[float]]] = {}
    for name in runs[0]:
        rows = [asdict(each[name]) for each in runs]
        ranges[name] = {key: [min(row[key] for row in rows), max(row[key] for row in rows)] for key in rows[0]}
    return {"steps": [band.low, band.high], "kind": band.kind, "far": list(band.far), "latency": ranges}


def _share_links(
    run: Run, placement: Placement, service: Service, alone: Served, fault: Disturbance | None, pace: float
) -> dict[str, Served]:
    """Serve the load beside exchanges of steps, then beside the jobs of the options; the last has all of them.

    The result is empty if there are no jobs and nothing shares links with hand-offs.
    """
    from weft.inference.serving.beside import Beside, bytes_of_token, exchanges_of
    from weft.inference.serving.disturbances import phases_of
    from weft.inference.serving.run import serve
    from weft.inference.serving.slowed import slow_steps, tables_beside
    from weft.lab.load import read_job
    from weft.sim.perftest import prepare
    from weft.units import parse_share

    serving = run.serving
    exchanges = any(bytes_of_token(each) for each in placement.pools)
    if not (serving.jobs or (exchanges and placement.prefill)):
        return {}
    if not (exchanges or placement.prefill):
        raise ConfigError(
            "--jobs change nothing: replicas lie inside servers and hand nothing over. Leave it out, or add --prefill "
            "and --decode"
        )
    fabric = prepare(placement.deployment.site.fabric)
    jobs = tuple(read_job(fabric, spec, number, run.seed) for number, spec in enumerate(serving.jobs, 1))
    sent = exchanges_of(alone, placement.pools) if exchanges and placement.prefill else ()
    slowed = service
    if jobs and exchanges:
        placed = replace(placement, beside=Beside(fabric=fabric, jobs=jobs))
        slowed = slow_steps(service, tables_beside(placed, run.load.mean_tokens, run.fleet.clock))
    cases: dict[str, dict[str, Any]] = {"without jobs": {}}
    if jobs:
        cases["on one lane with jobs"] = {"jobs": jobs}
    if serving.handoff_lane is not None:
        share = parse_share(serving.handoff_lane)
        cases[f"on a lane with {100 * share:g} %"] = {"jobs": jobs, "lane": share}
    runs = {}
    for name, traffic in cases.items():
        beside = Beside(fabric=fabric, exchanged_byte_s=sent, **traffic)
        placed = replace(placement, beside=beside)
        phases: tuple[Any, ...] = ()
        if fault is not None:
            phases = phases_of(fault, placed, run.load.mean_tokens, clock=run.fleet.clock)
        routed = slowed if beside.jobs else service
        if placement.prefill:
            routed = replace(routed, routes=placed.routes(fabric)[0])
        runs[name] = serve(routed, run.load, phases=phases, pace=pace)
    return runs


def _search_rate(run: Run, service: Service, objective: Objective, say: Callable[[str], None]) -> float:
    from weft.inference.serving.search import find_rate

    def load_at(rate: float) -> Load:
        return run.load_of(replace(run.traffic, rate=rate))

    return find_rate(service, load_at, objective, run.traffic.rate or 1.0, say)


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
