"""The comparison: the same job on the same servers, over each fabric.

Each fabric's patterns are run once over its own routes (`weft.collectives.measure`); times, curves over sizes and over
servers are closed form from what those runs gave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from weft.collectives.cluster import Cluster, from_fabric
from weft.collectives.estimate import Estimate, estimate
from weft.collectives.interconnect import options_of, template_of
from weft.collectives.kinds import Collective
from weft.collectives.measure import measure
from weft.collectives.network import Networks, Pattern
from weft.collectives.ranks import compute_servers, pick_servers, place
from weft.compare.band import band_of
from weft.compare.job import Call, Job
from weft.compare.outcome import Comparison, Outcome, Point
from weft.compare.published import published
from weft.compare.recable import natural, recable
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.model import Fabric
from weft.fabric.prices import Prices, read_prices
from weft.fabric.spec import load
from weft.plan.bill import Bill, bill_of
from weft.routing.engine import Options as Routing
from weft.routing.route import route

USUAL = ("ndr", "roce-400", "eth-100-tcp", "hdr", "xdr", "opa-100")
SIZES_BYTES = tuple(1 << power for power in range(10, 35))  # of the curve, 1 KiB to 16 GiB
_MORE_SERVERS = 8  # the curve over servers ends at so many times those of the job

Progress = Callable[[str], None]  # the fabric that is run next


def compare(
    spec: str,
    job: Job,
    fabrics: Sequence[str] | None = None,
    *,
    servers: int | str = "",
    seed: int = 1,
    prices: Prices | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run the job over each of these fabrics of the catalog, on all servers, the first so many, or some by name."""
    own = load(spec)
    wires = natural(spec, USUAL, fabric=own) if fabrics is None else _named(fabrics)
    asked = str(servers)
    cabled, known = recable(spec, wires, asked, fabric=own), prices or read_prices()
    count = _count_servers(cabled[0], asked)
    outcomes = []
    for wire, fabric in zip(wires, cabled, strict=True):
        if progress is not None:
            progress(wire.label)
        outcomes.append(_run(wire, fabric, job, asked, seed, known))
    return Comparison(
        spec=spec,
        job=job,
        servers=count,
        gpus=outcomes[0].cluster.ranks,
        picked=asked,
        seed=seed,
        prices=known,
        outcomes=tuple(outcomes),
    )


def _named(fabrics: Sequence[str]) -> list[Interconnect]:
    if not fabrics:
        raise ConfigError(f"no fabric is named: give some of {', '.join(w.name for w in catalog.interconnects())}")
    wires = [catalog.interconnect(name) for name in fabrics]
    twice = next((wire.name for index, wire in enumerate(wires) if wire in wires[:index]), None)
    if twice is not None:
        raise ConfigError(f"fabric {twice} is named twice: name each once")
    return wires


def _count_servers(fabric: Fabric, servers: str) -> int:
    there = len(compute_servers(fabric))
    count = len(pick_servers(fabric, servers) or range(there))
    if count < 2:
        raise ConfigError(
            f"{count} server of {fabric.spec}, which has {there}: a job takes 2 at least; "
            "GPUs of one server need no fabric"
        )
    return count


def _run(wire: Interconnect, fabric: Fabric, job: Job, servers: str, seed: int, prices: Prices) -> Outcome:
    bill = _bill(wire, fabric, prices)
    routed = route(fabric, Routing(adaptive=True)).fabric
    names = pick_servers(routed, servers) or compute_servers(routed)
    measured = measure(place(routed, names), options_of(wire, seed), patterns=_patterns(job))
    cluster = from_fabric(routed, names)
    return Outcome(
        wire=wire,
        fabric=routed,
        template=template_of(fabric, names),
        cluster=cluster,
        networks=measured.networks,
        results=measured.results,
        bill=bill,
        job=job,
        estimates=_estimates(cluster, job, measured.networks),
        by_size=_by_size(cluster, job.leading.collective, measured.networks),
        by_servers=_by_servers(cluster, job, measured.networks),
        published=published(wire, cluster.nic_gbit_s, job.leading.size_bytes),
    )


def _bill(wire: Interconnect, fabric: Fabric, prices: Prices) -> Bill:
    """On the floor of a usual room; what runs has the lengths of its spec, which are off by less than a per cent of a
    collective's time."""
    try:
        return bill_of(fabric, prices)
    except ConfigError as error:
        raise ConfigError(
            f"{wire.name} cannot be cabled in a usual room: {error}\n  Or leave {wire.name} out."
        ) from error


def _patterns(job: Job) -> list[Pattern]:
    """Those that the job's collectives use."""
    exchanges = {call.collective is Collective.ALL_TO_ALL for call in job.calls}
    return ([Pattern.RING, Pattern.TREE] if False in exchanges else []) + ([Pattern.PAIRS] if True in exchanges else [])


def _estimates(cluster: Cluster, job: Job, networks: Networks) -> tuple[Estimate, ...]:
    return tuple(estimate(cluster, call.collective, call.size_bytes, networks=networks) for call in job.calls)


def _by_size(cluster: Cluster, collective: Collective, networks: Networks) -> tuple[Point, ...]:
    points = []
    for size in SIZES_BYTES:
        job = Job(name="", calls=(Call(collective=collective, size_bytes=size),))
        points.append(_point(size, cluster, job, networks))
    return tuple(points)


def _by_servers(cluster: Cluster, job: Job, networks: Networks) -> tuple[Point, ...]:
    """As if more servers, or fewer, got the same of the network."""
    most = cluster.nodes * _MORE_SERVERS
    counts = {1 << power for power in range(1, most.bit_length())} | {cluster.nodes}
    return tuple(_point(count, replace(cluster, nodes=count), job, networks) for count in sorted(counts))


def _point(at: int, cluster: Cluster, job: Job, networks: Networks) -> Point:
    calls = list(zip(job.calls, _estimates(cluster, job, networks), strict=True))
    time_us = sum(call.count * one.time_us for call, one in calls)
    bus_gbyte_s = job.bus_gbyte_s(cluster.ranks, time_us)
    return Point(at=at, time_us=time_us, band=band_of(calls), bus_gbyte_s=bus_gbyte_s)
