"""How good forwarding tables are: what each link has to carry, and what is left for a pair of hosts.

The *load* of a link, in one direction, is the number of flows that cross it, times the rate of a host port, over the
link's own rate. Where all links are alike it is a number of flows; on a link of twice the rate, two flows are a load of
1. The rate of a host port is the commonest one. A flow to a host with several LIDs (LMC) spreads evenly over them, and
counts in fractions.

Maximum and mean are over links between switches, both directions, idle ones included: what routing can change. (In a
star, which has none, over the links of hosts.) *Slowdown* looks at all links: how much longer the pattern takes than if
one big crossbar joined the hosts; 1 means that the hosts' own ports are the limit.

Effective bisection bandwidth: Hoefler, Schneider, Lumsdaine, "Multistage switches are not crossbars: effects of static
routing in high-performance networks", 2008. Random halves, random partners, both ways at once; a flow gets 1 over the
largest load on its path; the mean of all flows is the bandwidth, as a share of what host ports can do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.routing.kernels.quality import count_all_to_all, count_flows, heaviest_on_paths
from weft.routing.patterns import Flows, bisection, host_ports, rails, ring, shift

SHIFT_FLOWS = 1 << 21  # all shifts up to 1,448 hosts; of more, a sample with about so many flows in all


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternLoad:
    """What one traffic pattern puts on the links."""

    pattern: str
    flows: int
    max_load: float
    mean_load: float
    worst_link: str  # the port that sends into it; empty if all are idle
    slowdown: float  # 1: as fast as a crossbar


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftLoad:
    """Every host sends to the one k places on. What the maximum load is, shift by shift."""

    shifts: int  # how many were looked at
    of: int  # how many there are
    mean: float
    worst: PatternLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectionBandwidth:
    """Effective bisection bandwidth, as a share of the hosts' rate."""

    mean: float
    minimum: float  # the worst of the bisections
    standard_error: float  # of the mean
    bisections: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quality:
    """What the tables of a fabric are worth."""

    hosts: int
    host_rate_gbit_s: float
    seed: int
    patterns: tuple[PatternLoad, ...]  # all-to-all, ring, and rails if there are any
    shifts: ShiftLoad
    bisection: BisectionBandwidth
    links: NDArray[np.int32]  # port slots that send into the links that loads are counted on
    load: NDArray[np.float64]  # [links]: load of each under all-to-all
    host_load: float  # of the busiest host port under all-to-all: what a crossbar would wait for

    @property
    def all_to_all(self) -> PatternLoad:
        return self.patterns[0]


def measure(fabric: Fabric, *, seed: int = 1, bisections: int = 100) -> Quality:
    """Load and bandwidth of the tables that the fabric carries; the same seed draws the same shifts and bisections."""
    if bisections < 2:
        raise ConfigError(f"{bisections} bisections are too few: an error bar takes at least 2")
    if seed < 0:
        raise ConfigError(f"seed {seed} cannot be used: write a whole number from 0 on")
    network = _Network(fabric)
    load = network.load_all_to_all()
    n = len(network.host)
    patterns = [network.judge("all-to-all", n * (n - 1), load), network.judge_flows("ring", ring(n))]
    if len(rail_flows := rails(fabric, network.host)):
        patterns.append(network.judge_flows("rails", rail_flows))
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


def _measure_shifts(network: _Network, rng: np.random.Generator) -> ShiftLoad:
    n = len(network.host)
    by = np.arange(1, n)
    if (most := max(1, SHIFT_FLOWS // n)) < len(by):
        by = np.sort(rng.choice(by, most, replace=False))
    judged = [network.judge_flows(f"shift by {k}", shift(n, k)) for k in by.tolist()]
    mean = float(np.mean([found.max_load for found in judged]))
    worst = max(judged, key=lambda found: found.max_load)
    return ShiftLoad(shifts=len(by), of=n - 1, mean=mean, worst=worst)


def _measure_bisections(network: _Network, rng: np.random.Generator, count: int) -> BisectionBandwidth:
    share = np.array([network.mean_rate(bisection(len(network.host), rng)) for _ in range(count)])
    return BisectionBandwidth(
        mean=float(share.mean()),
        minimum=float(share.min()),
        standard_error=float(share.std(ddof=1) / np.sqrt(count)),
        bisections=count,
    )


class _Network:
    """A fabric with its tables, laid out for the kernels."""

    def __init__(self, fabric: Fabric) -> None:
        ports, tables = fabric.ports, fabric.tables
        self.fabric = fabric
        self.host = host_ports(fabric)
        if len(self.host) < 2:
            raise ConfigError(
                f"there is no traffic to measure: it takes two host ports with a LID and a switch, "
                f"{fabric.spec} has {len(self.host)}\n  Ports get their LIDs when a fabric is routed."
            )
        switches = fabric.of_kind(NodeKind.SWITCH)
        plugged = ports.peer >= 0
        self.leads_to = np.full(len(ports), -1, np.int32)  # [slot] -> switch at the other end, -1 if it is none
        self.leads_to[plugged] = tables.switch_row[ports.node[ports.peer[plugged]]]
        self.at = self.leads_to[self.host]  # [host] -> switch
        self.hosts_at = np.bincount(self.at, minlength=len(switches))
        self.n_ports = fabric.nodes.n_ports[switches].astype(np.int64)
        self.way = (fabric.first_port[switches], self.n_ports, self.leads_to)  # what every kernel follows
        paths = 1 << tables.lmc[self.host].astype(np.int64)
        self.ends = (self.host, self.at, tables.lid[self.host], paths)
        self.lft = _widened(tables.lft, int((tables.lid[self.host] + paths).max()))
        between = plugged & (self.leads_to >= 0) & (tables.switch_row[ports.node] >= 0)
        from_hosts = np.concatenate((self.host, ports.peer[self.host]))
        self.host_links = np.sort(from_hosts)
        self.links = np.flatnonzero(between).astype(np.int32) if between.any() else self.host_links
        rate = fabric.link_rate_gbit_s[ports.link[self.host]]
        rates, counts = np.unique(rate, return_counts=True)
        self.host_rate_gbit_s = float(rates[np.argmax(counts)])
        self.cost = np.zeros(len(ports))  # [slot] -> load of one flow
        self.cost[plugged] = self.host_rate_gbit_s / fabric.link_rate_gbit_s[ports.link[plugged]]

    def load_all_to_all(self) -> NDArray[np.float64]:
        """[slot] -> load when every host sends to every other."""
        sources = np.flatnonzero(self.hosts_at)
        load = np.zeros(len(self.cost))
        source, receiver = count_all_to_all(
            *self.ends, sources, self.hosts_at[sources], *self.way, self.fabric.ports.peer, self.lft, load
        )
        if receiver >= 0:
            senders = np.flatnonzero(self.at == sources[source])
            self._refuse(int(senders[senders != receiver][0]), receiver)
        return load * self.cost

    def load(self, flows: Flows) -> NDArray[np.float64]:
        """[slot] -> load of these flows."""
        load = np.zeros(len(self.cost))
        failed = count_flows(flows, *self.ends, *self.way, self.fabric.ports.peer, self.lft, load)
        if failed >= 0:
            self._refuse(int(flows[failed, 0]), int(flows[failed, 1]))
        return load * self.cost

    def mean_rate(self, flows: Flows) -> float:
        """Mean over flows of 1 over the largest load on their path."""
        heaviest = np.empty(len(flows))
        heaviest_on_paths(flows, *self.ends, *self.way, self.lft, self.load(flows), heaviest)
        return float((1 / heaviest).mean())

    def judge_flows(self, pattern: str, flows: Flows) -> PatternLoad:
        return self.judge(pattern, len(flows), self.load(flows))

    def judge(self, pattern: str, flows: int, load: NDArray[np.float64]) -> PatternLoad:
        here = load[self.links]
        worst = int(self.links[np.argmax(here)])
        return PatternLoad(
            pattern=pattern,
            flows=flows,
            max_load=float(load[worst]),
            mean_load=float(here.mean()),
            worst_link=self.fabric.port(worst).name if load[worst] else "",
            slowdown=float(max(1.0, load[worst] / load[self.host_links].max())),
        )

    def _refuse(self, sender: int, receiver: int) -> None:
        a, b = (self.fabric.port(int(self.host[host])).name for host in (sender, receiver))
        raise SubnetError(
            f"the tables of {self.fabric.spec} do not lead from {a} to {b}: incomplete routes have no quality"
            "\n  `weft check` says what is missing."
        )


def _widened(lft: NDArray[np.uint8], n_lids: int) -> NDArray[np.uint8]:
    """The forwarding tables with a column for every LID: a dump may know fewer."""
    return np.pad(lft, ((0, 0), (0, max(0, n_lids - lft.shape[1]))), constant_values=NO_ROUTE)
