"""Topologies side by side for one number of adapters, as papers compare them.

    for row in compare_topologies(Request(gpus=2048)):
        print(row.name, row.switches, row.links, row.usd_per_endpoint)

Every topology joins hosts of one adapter by the request's switches. Switches are boxes, links are those between
switches, in all planes; price and power are those of the network per endpoint, with cards and cables. Bandwidth is a
share of the hosts' rate: over the worst of random bisections' mean, of the worst shift and of an all-to-all, by the
routes that weft computes. Rail-only networks join equal GPUs of all servers, and nothing else: NVLink does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.prices import Band, Prices, read_prices
from weft.fabric.spec import load
from weft.fabric.summary import count_boxes
from weft.fabric.topologies.builder import ports_for
from weft.fabric.topologies.dragonfly import fit_dragonfly_plus
from weft.fabric.topologies.registry import write_spec
from weft.plan.bill import bill_of
from weft.plan.request import Request
from weft.plan.size import boxes_of
from weft.routing.engine import Options
from weft.routing.quality import Quality, measure, measure_bisection
from weft.routing.route import reroute, route

_MOST_MEASURED = 150_000  # hosts of a network up to which routes are computed and measured
_MOST_PROVED = 16_384  # the same for lanes and proofs, which change no path
_BISECTIONS, _FEWEST = 20, 4  # random bisections; of large networks fewer, with about so many flows in total
_BISECTION_FLOWS = 1 << 19
_PLANES = (1, 2, 4, 8)
_SEGMENT_SERVERS, _SEGMENT_GPUS, _SEGMENTS = 128, 1024, 15  # of HPN


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A topology with its counts, its cost and its bandwidth; None where it was not computed."""

    name: str
    spec: str
    networks: int  # independent ones of this spec: the rails of a rail-only network
    planes: int
    endpoints: int
    switches: int
    links: int
    usd_per_endpoint: tuple[float, float] | None
    power_w_per_endpoint: float
    bisection: float | None
    worst_shift: float | None
    all_to_all: float | None
    dead_leaf_hosts: int | None  # hosts on the leaf
    dead_leaf_loss: float | None  # share of the rate that these hosts lose
    dead_spine_loss: float | None  # share of the bisection bandwidth that all lose; None without spines
    dead_plane_loss: float  # 1: with one plane, everything


class _Bandwidth(NamedTuple):
    """The quality of one plane, the hosts of its first leaf, and the share of bisection bandwidth that a spine has."""

    quality: Quality
    leaf_hosts: int
    spine_loss: float | None


def compare_topologies(
    request: Request, prices: Prices | None = None, progress: Callable[[str], None] = lambda step: None
) -> list[Candidate]:
    """Return a row for each topology that can join so many adapters."""
    rows: list[Candidate] = []
    measured: dict[bytes, _Bandwidth] = {}
    for name, spec, networks in _specs(request):
        rows.append(_candidate(name, spec, networks, prices or read_prices(), measured, progress))
    return rows


def explain_gaps(rows: Sequence[Candidate]) -> str:
    """Return why topologies are absent or have no bandwidth; empty if none is."""
    unmeasured = [row.name for row in rows if row.bisection is None]
    unproved = [row.name for row in rows if row.bisection is not None and row.endpoints // row.networks > _MOST_PROVED]
    absent = sorted({"dragonfly+", "slim fly"} - {row.name for row in rows})
    notes = []
    if unmeasured:
        why = f"Not measured, since routing more than {_MOST_MEASURED:,} endpoints takes too long"
        notes.append(f"{why}: {', '.join(unmeasured)}.")
    if unproved:
        why = f"Measured by paths alone, since proofs for more than {_MOST_PROVED:,} endpoints take too long"
        notes.append(f"{why}: {', '.join(unproved)}.")
    if absent:
        notes.append(f"No {' or '.join(absent)} of these switches has so many endpoints.")
    return " ".join(notes)


def _specs(request: Request) -> Iterator[tuple[str, str, int]]:
    """Yield the name, the spec and the number of networks of each topology."""
    template, switch = request.template, request.switch_model
    n = request.servers_for(request.amount) * template.rails
    host = catalog.server("host").equipped(template.adapter)
    hardware = {"server": host.name, "switch": switch.name}
    for planes in _PLANES:
        try:
            ports_for(switch, template.adapter, planes)
            spec = write_spec("fat-tree", {"hosts": n, **hardware, **({"planes": planes} if planes > 1 else {})})
            load(spec)
        except ConfigError:  # the hardware has no such planes, or the tree does not hold so many
            continue
        yield f"fat tree{f', {planes} planes' if planes > 1 else ''}", spec, 1
    radix = ports_for(switch, template.adapter)
    try:
        fit = {key: value for key, value in fit_dragonfly_plus(n, rails=1, radix=radix).items() if value is not None}
        yield "dragonfly+", write_spec("dragonfly+", {**fit, **hardware}), 1
    except ConfigError:
        pass
    if (q := _slim_fly(n, radix)) is not None:
        yield "slim fly", write_spec("slim-fly", {"q": q, "hosts": -(-n // (2 * q * q)), **hardware}), 1
    if template.rails > 1:
        rail = write_spec("fat-tree", {"hosts": n // template.rails, **hardware})
        yield "rail-only", rail, template.rails
    if template.adapter.label == "400GbE" and n <= _SEGMENTS * _SEGMENT_GPUS and template.rails == 8:
        segments = -(-n // _SEGMENT_GPUS)
        servers = -(-n // (template.rails * segments))
        yield "HPN pod", write_spec("hpn", {"segments": segments, "servers": servers, "server": template.name}), 1


def _slim_fly(n: int, radix: int) -> int | None:
    """Return the smallest q whose switches hold so many hosts without oversubscription; None if ports are too few."""
    for q in range(3, radix):
        if any(q % divisor == 0 for divisor in range(2, int(q**0.5) + 1)):
            continue
        to_switches = (3 * q - (1 if q % 4 == 1 else -1)) // 2
        hosts = -(-n // (2 * q * q))
        if hosts <= -(-to_switches // 2) and hosts + to_switches <= radix:
            return q
    return None


def _candidate(
    name: str,
    spec: str,
    networks: int,
    prices: Prices,
    measured: dict[bytes, _Bandwidth],
    progress: Callable[[str], None],
) -> Candidate:
    progress(f"{name}: price")
    fabric = load(spec)
    bill = bill_of(boxes_of(fabric), prices)
    a, b = (fabric.nodes.kind[ends] == NodeKind.SWITCH for ends in fabric.link_nodes)
    endpoints, planes = networks * bill.count("adapter"), fabric.planes
    each: Band | None = bill.total * (networks / endpoints) if bill.complete else None
    bandwidth = None
    if endpoints // networks <= _MOST_MEASURED:
        cabling = fabric.links.a.tobytes() + fabric.links.b.tobytes()  # planes of one box are cabled like one network
        bandwidth = measured.get(cabling)
        if bandwidth is None:
            bandwidth = measured[cabling] = _measure(fabric, lambda step: progress(f"{name}: {step}"))
    quality, leaf, loss = bandwidth or (None, None, None)
    return Candidate(
        name=name,
        spec=spec,
        networks=networks,
        planes=planes,
        endpoints=endpoints,
        switches=networks * count_boxes(fabric),
        links=networks * fabric.multiplicity * int((a & b).sum()),
        usd_per_endpoint=(each.low_usd, each.high_usd) if each else None,
        power_w_per_endpoint=networks * bill.power_w / endpoints,
        bisection=quality.bisection.mean if quality else None,
        worst_shift=1 / quality.shifts.worst.slowdown if quality else None,
        all_to_all=1 / quality.all_to_all.slowdown if quality else None,
        dead_leaf_hosts=leaf,
        dead_leaf_loss=None if leaf is None else 1 / planes,
        dead_spine_loss=None if loss is None else loss / planes / networks,
        dead_plane_loss=1 / planes,
    )


def _measure(fabric: Fabric, progress: Callable[[str], None]) -> _Bandwidth:
    """Route one plane and measure it, whole and without its first spine.

    Ports have addresses instead of LIDs: the comparison is of topologies, and routers divide a network of InfiniBand
    with more ports than a subnet has LIDs.
    """
    tables = fabric.tables.like()
    tables.addresses = np.zeros(len(fabric.ports), np.int32)
    one = replace(fabric, planes=1, tables=tables)
    n = len(one.of_kind(NodeKind.HCA))
    progress("routes")
    routing = route(one, Options(paths_only=n > _MOST_PROVED))
    progress("loads")
    bisections = max(_FEWEST, min(_BISECTIONS, _BISECTION_FLOWS // n))
    whole = measure(routing.fabric, bisections=bisections)
    level, is_switch = levels(one), one.nodes.kind == NodeKind.SWITCH
    leaf = one.node(int(np.flatnonzero(is_switch & (level == 1))[0]))
    hosts = sum(peer.kind == NodeKind.HCA for peer in leaf.peers)
    if level.max() < 2:
        return _Bandwidth(whole, hosts, None)
    progress("dead spine")
    above = np.flatnonzero(is_switch & (level == level.max()))
    broken = reroute(routing.fabric.without(one.nodes.name[int(above[0])]), routing)
    left = measure_bisection(broken.fabric, bisections=bisections).mean
    return _Bandwidth(whole, hosts, max(0.0, 1 - left / whole.bisection.mean))
