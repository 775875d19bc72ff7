"""The bandwidth and latency of a fabric for each pattern of a collective, over the fabric's routes.

Once a collective is under way, all edges of its ring or tree carry data at the same time and in step, so the busiest
link decides: that is what the analytic engine counts. All edges are run together, each with its share of the bytes:
oversubscribed uplinks, hashes that collide, cables that came up slow, processors that copy, all of it shows in the time
of the last one. With TCP a thread copies for each of an adapter's connections to one peer, however many peers there
are: NCCL's proxies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.collectives.nccl.ideal import FABRICS, TcpNetwork, tcp_gbyte_s, transport_of
from weft.collectives.nccl.network import Network, Networks, Pattern
from weft.collectives.ranks import Ranks, channel_adapters
from weft.collectives.schedules.tree import parents, twin_parents
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.model import Fabric
from weft.routing.rails import needs_subnets, rail_subnets
from weft.sim import engine as sim
from weft.sim.analytic import AnalyticEngine
from weft.sim.engine import Options
from weft.sim.result import Engine, Result
from weft.sim.traffic import Traffic

CONNECTIONS = 2  # between two adapters: NCCL's channels for each, the least that it takes between servers
_EDGE_BYTES = 256 << 20  # per edge; any large number gives the same rates
_SMALL_BYTES = 8
_MOST_SHIFTS = 32  # evenly spaced shifts that are run instead of all pairs of many servers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """The figures, and the runs that produced them."""

    networks: Networks
    results: dict[Pattern, Result]


def measure(
    ranks: Ranks,
    options: Options | None = None,
    *,
    patterns: Iterable[Pattern] = tuple(Pattern),
    connections: int = CONNECTIONS,
    engine: Engine | None = None,
) -> Measured:
    """Run the patterns between the servers of a job; the fabric must be routed."""
    if len(ranks.servers) < 2:
        raise ConfigError(f"{ranks.servers[0]} is alone: a network is measured between two servers or more")
    options = _with_own_paths(ranks, options or Options())
    results, networks = {}, {}
    for pattern in patterns:
        traffic = pattern_traffic(ranks, pattern, connections)
        networks[pattern], results[pattern] = measure_traffic(
            ranks.fabric, traffic, options, connections=connections, engine=engine
        )
    return Measured(networks=networks, results=results)


def _with_own_paths(ranks: Ranks, options: Options) -> Options:
    """Return the options with the paths of the adapters' own transport, unless paths are requested."""
    model = ranks.fabric.port(int(ranks.adapters.ravel()[0])).node.model
    own = next((each for each in catalog.interconnects() if each.transport and each.adapter == model), None)
    chooses = own is not None and options.network in (None, sim.Network(own.network))
    if not (own and chooses) or options.paths is not None or "ar_group" not in vars(ranks.fabric.tables):
        return options
    return replace(options, paths=sim.Paths(own.paths))


def measure_traffic(
    fabric: Fabric,
    traffic: Traffic,
    options: Options,
    *,
    connections: int = CONNECTIONS,
    engine: Engine | None = None,
) -> tuple[Network, Result]:
    """Return the rate of each adapter while all messages are active, and the latency of a small one.

    A fabric that is too large for a subnet is measured rail by rail, and the slowest counts.
    """
    if needs_subnets(fabric):
        by_rail = [
            measure_traffic(part, along, options, connections=connections, engine=engine)
            for part, along in _by_rails(fabric, traffic)
        ]
        return min(by_rail, key=lambda each: each[0].adapter_gbyte_s)
    clock = engine or AnalyticEngine()
    result = clock.run(fabric, traffic, options)
    small = clock.run(fabric, _one_each(traffic), options)
    step_ps = int(small.latency_ps.max())
    sent = np.bincount(traffic.src, traffic.size_bytes)
    adapter_gbyte_s = float(sent.max()) * 1000 / (result.last_arrival_ps - step_ps)
    rules, step_us = result.options.network, step_ps / 1e6
    assert rules is not None  # the engine knows by now which links it ran over
    if rules not in FABRICS:
        raise ConfigError(
            f"--network {rules}: no collective was measured on it. Use --network roce with --paths adaptive or spray, "
            f"as the fabrics spectrum-x-400 and uec-400 do"
        )
    if rules is sim.Network.TCP:
        return TcpNetwork(step_us=step_us, adapter_gbyte_s=min(adapter_gbyte_s, tcp_gbyte_s(connections))), result
    carried = transport_of(fabric.port(int(traffic.src[0])).node.model)
    measured = Network(step_us=step_us, adapter_gbyte_s=adapter_gbyte_s, fabric=FABRICS[rules], transport=carried)
    return measured, result


def _by_rails(fabric: Fabric, traffic: Traffic) -> Iterator[tuple[Fabric, Traffic]]:
    """Yield one rail of each kind with the messages on it; equal rails carry equal messages."""
    for part in rail_subnets(fabric):
        on_rail = part.keep[fabric.ports.node[traffic.src]]
        if not (part.keep[fabric.ports.node[traffic.dst]] == on_rail).all():
            raise ConfigError(f"{fabric.spec}: {traffic.description} crosses rails, and all do not fit into one subnet")
        if on_rail.any():
            along = traffic.take(on_rail)
            yield part.routed, replace(along, src=part.slots(along.src), dst=part.slots(along.dst))


def pattern_traffic(ranks: Ranks, pattern: Pattern, connections: int = CONNECTIONS) -> Traffic:
    """Return a message for each edge, rail and connection; its bytes are the edge's share."""
    src, dst = edges(pattern, len(ranks.servers))
    adapters = ranks.adapters if pattern is Pattern.PAIRS else channel_adapters(ranks)
    description = f"{pattern} over {len(ranks.servers)} servers and {ranks.rails} rails"
    return edge_traffic(adapters[src].ravel(), adapters[dst].ravel(), description, connections)


def edge_traffic(
    src: NDArray[np.int32], dst: NDArray[np.int32], description: str, connections: int = CONNECTIONS
) -> Traffic:
    """Return a message for each edge between ports and each connection; all edges have the same bytes."""
    return Traffic.make(
        np.repeat(src, connections),
        np.repeat(dst, connections),
        _EDGE_BYTES // connections,
        qp=np.tile(np.arange(connections), len(src)),
        description=description,
    )


def edges(pattern: Pattern, servers: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return senders and receivers of a pattern, whose edges all carry the same bytes."""
    every = np.arange(servers)
    if pattern is Pattern.RING:
        return every, np.roll(every, -1)
    if pattern is Pattern.TREE:
        up = np.concatenate((parents(servers), twin_parents(servers)))
        child, parent = np.tile(every, 2)[up >= 0], up[up >= 0]
        return np.concatenate((child, parent)), np.concatenate((parent, child))
    shifts = np.unique(np.linspace(1, servers - 1, min(servers - 1, _MOST_SHIFTS)).astype(np.int64))
    return np.tile(every, len(shifts)), np.concatenate([np.roll(every, -shift) for shift in shifts])


def _one_each(traffic: Traffic) -> Traffic:
    """Return a small message from every sender to its first and to its last receiver."""
    _, first = np.unique(traffic.src, return_index=True)
    _, last = np.unique(traffic.src[::-1], return_index=True)
    rows = np.unique(np.concatenate((first, len(traffic) - 1 - last)))
    return Traffic.make(
        traffic.src[rows], traffic.dst[rows], _SMALL_BYTES, description=f"small messages: {traffic.description}"
    )
