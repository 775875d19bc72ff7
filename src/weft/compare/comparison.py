"""Compare the same job on the same servers over each fabric.

The patterns of each fabric are run once over its own routes (`weft.collectives.nccl.measure`); times, curves over sizes
and over servers are closed form from those runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from weft.collectives.interconnect import build, options_of, respec, template_of
from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import Cluster, from_fabric
from weft.collectives.nccl.estimate import Estimate, estimate
from weft.collectives.nccl.measure import measure
from weft.collectives.nccl.network import Networks, Pattern
from weft.collectives.ranks import compute_servers, pick_servers, place
from weft.compare.band import band_of
from weft.compare.job import Call, CollectiveJob
from weft.compare.outcome import Comparison, Outcome, Point
from weft.compare.published import published
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.model import Fabric
from weft.fabric.prices import Prices, read_prices
from weft.fabric.rates import speeds
from weft.fabric.spec import is_topology, load
from weft.plan.bill import Bill, bill_of
from weft.routing.engine import Options as Routing
from weft.routing.route import route

DEFAULT_FABRICS = ("ndr", "roce-400", "eth-100-tcp", "hdr", "xdr", "opa-100")
SIZES_BYTES = tuple(1 << power for power in range(10, 35))  # sizes of the curve, 1 KiB to 16 GiB
_MORE_SERVERS = 8  # the curve over servers ends at this multiple of the job's servers

Progress = Callable[[str], None]  # the fabric that is run next


def compare(
    spec: str,
    job: CollectiveJob,
    fabrics: Sequence[str] | None = None,
    *,
    servers: int | str = "",
    seed: int = 1,
    prices: Prices | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run the job over each of these fabrics of the catalog, on all servers, the first so many, or some by name."""
    own = load(spec)
    interconnects = default_interconnects(spec, DEFAULT_FABRICS, fabric=own) if fabrics is None else _named(fabrics)
    selected = str(servers)
    cabled, price_list = recable(spec, interconnects, selected, fabric=own), prices or read_prices()
    count = _count_servers(cabled[0], selected)
    outcomes = []
    for interconnect, fabric in zip(interconnects, cabled, strict=True):
        if progress is not None:
            progress(interconnect.label)
        outcomes.append(_run(interconnect, fabric, job, selected, seed, price_list))
    return Comparison(
        spec=spec,
        job=job,
        servers=count,
        gpus=outcomes[0].cluster.ranks,
        picked=selected,
        seed=seed,
        prices=price_list,
        outcomes=tuple(outcomes),
    )


def _named(fabrics: Sequence[str]) -> list[Interconnect]:
    if not fabrics:
        raise ConfigError(
            f"no fabric is named: give --fabrics with some of {', '.join(w.name for w in catalog.interconnects())}"
        )
    interconnects = [catalog.interconnect(name) for name in fabrics]
    twice = next((each.name for index, each in enumerate(interconnects) if each in interconnects[:index]), None)
    if twice is not None:
        raise ConfigError(f"fabric {twice} is named twice in --fabrics")
    return interconnects


def _count_servers(fabric: Fabric, servers: str) -> int:
    total = len(compute_servers(fabric))
    count = len(pick_servers(fabric, servers) or range(total))
    if count < 2:
        raise ConfigError(
            f"{count} of {total} servers of {fabric.spec}: a comparison needs 2 or more, "
            "since GPUs of one server need no fabric"
        )
    return count


def _run(
    interconnect: Interconnect, fabric: Fabric, job: CollectiveJob, servers: str, seed: int, prices: Prices
) -> Outcome:
    bill = _bill(interconnect, fabric, prices)
    routed = route(fabric, Routing(adaptive=True)).fabric
    names = pick_servers(routed, servers) or compute_servers(routed)
    measured = measure(place(routed, names), options_of(interconnect, seed), patterns=_patterns(job))
    cluster = from_fabric(routed, names)
    return Outcome(
        interconnect=interconnect,
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
        published=published(interconnect, cluster.nic_gbit_s, job.leading.size_bytes),
    )


def _bill(interconnect: Interconnect, fabric: Fabric, prices: Prices) -> Bill:
    """Return the bill for a default machine room.

    The simulated fabric has the cable lengths of its spec, which changes the time of a collective by less than a per
    cent.
    """
    try:
        return bill_of(fabric, prices)
    except ConfigError as error:
        raise ConfigError(
            f"{interconnect.name} cannot be cabled in the default room: {error}\n  Or leave {interconnect.name} out."
        ) from error


def _patterns(job: CollectiveJob) -> list[Pattern]:
    """Return the patterns that the job's collectives use."""
    exchanges = {call.collective is Collective.ALL_TO_ALL for call in job.calls}
    return ([Pattern.RING, Pattern.TREE] if False in exchanges else []) + ([Pattern.PAIRS] if True in exchanges else [])


def _estimates(cluster: Cluster, job: CollectiveJob, networks: Networks) -> tuple[Estimate, ...]:
    return tuple(estimate(cluster, call.collective, call.size_bytes, networks=networks) for call in job.calls)


def _by_size(cluster: Cluster, collective: Collective, networks: Networks) -> tuple[Point, ...]:
    points = []
    for size in SIZES_BYTES:
        job = CollectiveJob(name="", calls=(Call(collective=collective, size_bytes=size),))
        points.append(_point(size, cluster, job, networks))
    return tuple(points)


def _by_servers(cluster: Cluster, job: CollectiveJob, networks: Networks) -> tuple[Point, ...]:
    """Return the curve over servers, assuming that each server gets the same rate of the network."""
    most = cluster.nodes * _MORE_SERVERS
    counts = {1 << power for power in range(1, most.bit_length())} | {cluster.nodes}
    return tuple(_point(count, replace(cluster, nodes=count), job, networks) for count in sorted(counts))


def _point(at: int, cluster: Cluster, job: CollectiveJob, networks: Networks) -> Point:
    calls = list(zip(job.calls, _estimates(cluster, job, networks), strict=True))
    time_us = sum(call.count * estimate.time_us for call, estimate in calls)
    bus_gbyte_s = job.bus_gbyte_s(cluster.ranks, time_us)
    return Point(at=at, time_us=time_us, band=band_of(calls), bus_gbyte_s=bus_gbyte_s)


# Cable the same servers in the same topology with other links, switches, adapters and rules.
#
# superpod:su=1 + hdr  ->  superpod:su=2,server=dgx-h100+ConnectX-6,servers=32,switch=QM8700
#
# A switch with a different number of ports changes the number of switches and cables: that is part of the comparison. A
# server's slots stay the same, so a card that is faster than its slot gets the rate of the slot.


def recable(
    spec: str, interconnects: Sequence[Interconnect], servers: str = "", *, fabric: Fabric | None = None
) -> list[Fabric]:
    """Return a fabric for each interconnect: a topology is built again, a file stays as it is.

    servers  those of the job
    fabric   the fabric of the spec, if it is loaded already
    """
    fabric = fabric or load(spec)
    template = template_of(fabric, pick_servers(fabric, servers))
    if not is_topology(spec):
        for interconnect in interconnects:
            _refuse_other(fabric, interconnect)
        return [fabric for _ in interconnects]
    return [
        build(respec(spec, interconnect, template, len(compute_servers(fabric))), interconnect)
        for interconnect in interconnects
    ]


def default_interconnects(spec: str, defaults: Sequence[str], *, fabric: Fabric | None = None) -> list[Interconnect]:
    """Return the interconnects to compare if none are named: the defaults, or for a file those that its links allow."""
    if is_topology(spec):
        return [catalog.interconnect(name) for name in defaults]
    fabric = fabric or load(spec)
    own = _speeds(fabric)
    matching = [each for each in catalog.interconnects() if each.speed in own and not each.transport]
    if not matching:
        raise ConfigError(
            f"{fabric.spec} has links of {', '.join(sorted(own)) or 'no network'}, and no fabric of the catalog has "
            f"those. {_WAY_OUT}"
        )
    return matching


_WAY_OUT = "Give a topology spec, superpod:su=1 or fat-tree:hosts=16,server=dgx-h100, whose cables can be changed"


def _refuse_other(fabric: Fabric, interconnect: Interconnect) -> None:
    own = _speeds(fabric)
    if interconnect.speed not in own:
        raise ConfigError(
            f"{fabric.spec} is a file with links of {', '.join(sorted(own))}, and {interconnect.name} has "
            f"{interconnect.speed}: the cables of a file cannot be changed. {_WAY_OUT}"
        )


def _speeds(fabric: Fabric) -> set[str]:
    return {speeds()[index].name for index in set(fabric.links.speed[fabric.network_links].tolist())}
