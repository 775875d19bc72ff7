"""The quality of forwarding tables: the load of each link, and the bandwidth left for a pair of hosts.

The *load* of a link, in one direction, is the number of flows over it, times the rate of a host port, divided by the
link's rate. With equal links it is a number of flows; on a link of twice the rate, two flows are a load of 1. The rate
of a host port is the most common one. A flow to a host with several LIDs (LMC) is spread evenly over them, and counts
in fractions.

Maximum and mean are over links between switches, in both directions, including idle ones: the part that routing can
change. (In a star, which has none, over the links of hosts.) *Slowdown* covers all links: the time of the pattern
relative to one crossbar that joins the hosts; 1 means that the hosts' own ports are the limit.

Effective bisection bandwidth: Hoefler, Schneider, Lumsdaine, "Multistage switches are not crossbars: effects of static
routing in high-performance networks", 2008. Random halves, random partners, both directions at once; a flow gets 1 over
the largest load on its path; the mean of all flows is the bandwidth, as a share of the rate of host ports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError
from weft.fabric.joined_subnets import join_subnets
from weft.fabric.kernels.forwarding import arrays
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.planes import split_planes
from weft.routing.kernels.quality import NO_CABLE, add_trees, follow
from weft.routing.patterns import Flows, bisection, host_ports, rails, shift

_AT_ONCE = 1 << 18  # flows followed per call
SHIFT_FLOWS = 1 << 21  # all shifts up to 1,448 hosts; for more hosts, a sample with about this many flows in total
BISECTION_FLOWS = 1 << 21  # 100 bisections up to 20,971 hosts; for more hosts, fewer with about so many flows in total
_FEWEST_BISECTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternLoad:
    """The load of one traffic pattern on the links."""

    pattern: str
    flows: int
    max_load: float
    mean_load: float
    worst_link: str  # the port that sends into it; empty if all are idle
    slowdown: float  # 1: as fast as a crossbar


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftLoad:
    """The maximum load of each shift, in which every host sends to the one k places further."""

    shifts: int  # number examined
    total: int  # number that exist
    mean: float
    worst: PatternLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectionBandwidth:
    """The effective bisection bandwidth, as a share of the hosts' rate."""

    mean: float
    minimum: float  # the worst bisection
    standard_error: float  # standard error of the mean
    bisections: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quality:
    """The quality of the tables of a fabric."""

    hosts: int
    host_rate_gbit_s: float
    seed: int
    patterns: tuple[PatternLoad, ...]  # all-to-all, ring, and rails if there are any
    shifts: ShiftLoad
    bisection: BisectionBandwidth
    links: NDArray[np.int32]  # port slots that send into the links for which loads are counted
    load: NDArray[np.float64]  # [links]: load of each under all-to-all
    host_load: float  # load of the busiest host port under all-to-all: the limit of a crossbar

    @property
    def all_to_all(self) -> PatternLoad:
        return self.patterns[0]


def measure(fabric: Fabric, *, seed: int = 1, bisections: int = 100) -> Quality:
    """Measure load and bandwidth of the fabric's tables; the same seed draws the same shifts and bisections.

    Of planes that differ, the worst is measured. Large fabrics get fewer `bisections`: `BISECTION_FLOWS`.
    """
    if bisections < 2:
        raise ConfigError(f"--bisections must be at least 2 for an error bar, got {bisections}")
    if seed < 0:
        raise ConfigError(f"--seed must be 0 or more, got {seed}")
    if fabric.expanded:
        planes = [measure(part, seed=seed, bisections=bisections) for _, part in split_planes(fabric)]
        return min(planes, key=lambda plane: (plane.hosts, plane.bisection.mean))
    network = _Network(join_subnets(fabric))
    load = network.load_all_to_all()
    n = len(network.host)
    patterns = [network.summarize("all-to-all", n * (n - 1), load), network.measure_flows("ring", shift(n, 1))]
    if len(rail_flows := rails(fabric, network.host)):
        patterns.append(network.measure_flows("rails", rail_flows))
    return Quality(
        hosts=n,
        host_rate_gbit_s=network.host_rate_gbit_s,
        seed=seed,
        patterns=tuple(patterns),
        shifts=_measure_shifts(network, np.random.default_rng(seed)),
        bisection=_measure_bisections(network, np.random.default_rng(seed), bisections),
        links=network.links,
        load=load[network.links],
        host_load=float(load[network.host_links].max()),
    )


def measure_bisection(fabric: Fabric, *, seed: int = 1, bisections: int = 100) -> BisectionBandwidth:
    """Measure the bisection bandwidth alone, of one plane in one subnet."""
    return _measure_bisections(_Network(fabric), np.random.default_rng(seed), bisections)


def load_all_to_all(fabric: Fabric, among: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
    """Return the load of the link of each port slot under all-to-all, including host links.

    `among`: nodes that take part.
    """
    return _Network(fabric, among).load_all_to_all()


def _measure_shifts(network: _Network, rng: np.random.Generator) -> ShiftLoad:
    n = len(network.host)
    by = np.arange(1, n)
    if (most := max(1, SHIFT_FLOWS // n)) < len(by):
        by = np.sort(rng.choice(by, most, replace=False))
    loads = [network.measure_flows(f"shift by {k}", shift(n, k)) for k in by.tolist()]
    mean = float(np.mean([load.max_load for load in loads]))
    worst = max(loads, key=lambda load: load.max_load)
    return ShiftLoad(shifts=len(by), total=n - 1, mean=mean, worst=worst)


def _measure_bisections(network: _Network, rng: np.random.Generator, most: int) -> BisectionBandwidth:
    count = min(most, max(_FEWEST_BISECTIONS, BISECTION_FLOWS // len(network.host)))
    share = np.array([network.mean_rate(bisection(len(network.host), rng)) for _ in range(count)])
    return BisectionBandwidth(
        mean=float(share.mean()),
        minimum=float(share.min()),
        standard_error=float(share.std(ddof=1) / np.sqrt(count)),
        bisections=count,
    )


class _Network:
    """A fabric with its tables, laid out for the kernels."""

    def __init__(self, fabric: Fabric, among: NDArray[np.bool_] | None = None) -> None:
        ports, tables = fabric.ports, fabric.tables
        self.fabric = fabric
        self.host = host_ports(fabric)
        if among is not None:
            self.host = self.host[among[ports.node[self.host]]]
        if len(self.host) < 2:
            raise ConfigError(
                f"traffic needs two host ports with a LID on a switch, {fabric.spec} has {len(self.host)}"
                "\n  Ports get their LIDs when a fabric is routed."
            )
        every = arrays(fabric)
        self.plane = every._replace(sl2vl=every.sl2vl[:0])  # links are counted regardless of the SL
        self.paths = 1 << tables.lmc[self.host].astype(np.int64)
        plugged = ports.peer >= 0
        is_switch = fabric.nodes.kind[ports.node] == NodeKind.SWITCH
        between = plugged & is_switch & is_switch[ports.peer]
        from_hosts = np.concatenate((self.host, ports.peer[self.host]))
        self.host_links = np.sort(from_hosts)
        self.links = np.flatnonzero(between).astype(np.int32) if between.any() else self.host_links
        rate = fabric.link_rate_gbit_s[ports.link[self.host]]
        rates, counts = np.unique(rate, return_counts=True)
        self.host_rate_gbit_s = float(rates[np.argmax(counts)])
        self.cost = np.zeros(len(ports))  # [slot] -> load of one flow
        self.cost[plugged] = self.host_rate_gbit_s / fabric.link_rate_gbit_s[ports.link[plugged]]

    def load_all_to_all(self) -> NDArray[np.float64]:
        """Return the load of each link when every host sends to every other; hosts of a switch are counted together."""
        ports = self.fabric.ports
        leaf = ports.node[ports.peer[self.host]]
        sources, hosts = np.unique(leaf, return_counts=True)
        load = np.zeros(len(self.cost))
        if not self._add_all_to_all(load):
            load[:] = 0
            self._follow_all_to_all(load, leaf, sources, hosts)
        load[self.host] += len(self.host) - 1
        return load * self.cost

    def _add_all_to_all(self, load: NDArray[np.float64]) -> bool:
        """Add the load of an all-to-all by trees; return False if that does not do for these tables."""
        tables, ports, nodes = self.fabric.tables, self.fabric.ports, self.fabric.nodes
        if tables.runs:  # ports may be down
            return False
        switches = np.flatnonzero(nodes.kind == NodeKind.SWITCH)
        place = np.full(len(nodes), NO_CABLE)
        place[switches] = np.arange(len(switches))
        width = int(nodes.n_ports[switches].max()) + 2  # the last for entries that are no port
        number = np.arange(width)
        first, last = self.fabric.first_port[switches][:, None], nodes.n_ports[switches][:, None]
        slot = np.where(number <= last, first + number, 0)
        peer = np.where((slot > 0) & (number > 0), ports.peer[slot], NO_CABLE)
        beyond = place[ports.node[peer]]
        far = np.where(peer < 0, NO_CABLE, np.where(beyond >= 0, beyond, NO_CABLE - 1 - peer)).astype(np.int32)
        leaf = place[ports.node[ports.peer[self.host]]]
        senders = np.bincount(leaf, minlength=len(switches)).astype(np.float64)
        lid, flows = tables.lid[self.host].astype(np.int64), np.zeros(far.shape)
        lft = np.ascontiguousarray(tables.lft[tables.switch_row[switches]])
        arrive = add_trees(lft, far, senders, self.host, leaf, lid, self.paths, flows)
        load[slot[peer >= 0]] = flows[peer >= 0]
        return bool(arrive)

    def _follow_all_to_all(
        self, load: NDArray[np.float64], leaf: NDArray[Any], sources: NDArray[Any], hosts: NDArray[Any]
    ) -> None:
        """Add the load of an all-to-all, path by path; refuse tables that do not lead to all hosts."""
        for receivers in np.array_split(np.arange(len(leaf)), 1 + len(leaf) * len(sources) // _AT_ONCE):
            to, source = np.repeat(receivers, len(sources)), np.tile(np.arange(len(sources)), len(receivers))
            senders = hosts[source] - (sources[source] == leaf[to])
            to, source, senders = (column[senders > 0] for column in (to, source, senders))
            failed = self._count(self.fabric.first_port[sources[source]], to, senders, load)
            if failed >= 0:
                beside = np.flatnonzero(leaf == sources[source[failed]])
                self._refuse(int(beside[beside != to[failed]][0]), int(to[failed]))

    def load(self, flows: Flows) -> NDArray[np.float64]:
        """Return the load of each link for these flows."""
        load = np.zeros(len(self.cost))
        failed = self._count(self.host[flows[:, 0]], flows[:, 1], np.ones(len(flows)), load)
        if failed >= 0:
            self._refuse(int(flows[failed, 0]), int(flows[failed, 1]))
        return load * self.cost

    def mean_rate(self, flows: Flows) -> float:
        """Return the mean over flows of 1 over the largest load on their path."""
        flow, packets = self._packets(self.host[flows[:, 0]], flows[:, 1])
        on_path, heaviest = np.zeros(len(packets)), np.zeros(len(flows))
        follow(self.plane, packets, on_path, self.load(flows), on_path)
        np.maximum.at(heaviest, flow, on_path)
        return float((1 / heaviest).mean())

    def _count(self, slots: NDArray[Any], receivers: NDArray[Any], amount: NDArray[Any], load: NDArray[Any]) -> int:
        """Add the load of flows from these ports, spread over the LIDs of each receiver.

        Return the first that fails, or -1.
        """
        flow, packets = self._packets(slots, receivers)
        failed = follow(self.plane, packets, (amount / self.paths[receivers])[flow], load, np.empty(0))
        return int(flow[failed]) if failed >= 0 else -1

    def _packets(self, slots: NDArray[Any], receivers: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return a packet for every LID of each receiver, and the flow of each packet."""
        paths = self.paths[receivers]
        flow = np.repeat(np.arange(len(slots)), paths)
        packets = np.empty((len(flow), 2), np.int64)
        packets[:, 0] = slots[flow]
        packets[:, 1] = self.fabric.tables.lid[self.host[receivers]][flow]
        packets[:, 1] += np.arange(len(flow)) - np.repeat(np.cumsum(paths) - paths, paths)
        return flow, packets

    def measure_flows(self, pattern: str, flows: Flows) -> PatternLoad:
        return self.summarize(pattern, len(flows), self.load(flows))

    def summarize(self, pattern: str, flows: int, load: NDArray[np.float64]) -> PatternLoad:
        on_links = load[self.links]
        worst = int(self.links[np.argmax(on_links)])
        return PatternLoad(
            pattern=pattern,
            flows=flows,
            max_load=float(load[worst]),
            mean_load=float(on_links.mean()),
            worst_link=self.fabric.port(worst).name if load[worst] else "",
            slowdown=float(max(1.0, load[worst] / load[self.host_links].max())),
        )

    def _refuse(self, sender: int, receiver: int) -> None:
        a, b = (self.fabric.port(int(self.host[host])).name for host in (sender, receiver))
        raise SubnetError(
            f"the tables of {self.fabric.spec} do not lead from {a} to {b}: routes must be complete to be measured"
            "\n  `weft check` lists what is missing."
        )
