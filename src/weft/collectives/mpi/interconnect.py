"""Times of messages between servers: of one alone, and of all of a round together.

Over a fabric both are the analytic engine's, on its own routes: a lone message arrives when the packet engine says, and
of messages that share a link the busiest one decides. So a round costs two runs, whatever sizes it is asked for:

    time of a message = a lone one of its size + what its own way takes more + bytes x what sharing adds

For servers that no fabric is built for (`IdealInterconnect`) each message is a lone one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.collectives.mpi.times import times
from weft.collectives.ranks import Ranks
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.timing import timings
from weft.sim.analytic import AnalyticEngine
from weft.sim.engine import Network, Options, Paths
from weft.sim.layout.rules import fill_in
from weft.sim.traffic import Operation, Traffic
from weft.units import gbyte_s

LARGE_BYTES = 1 << 20
_SMALL = (1, 16, 32, 64, 128, 192, 220, 221, 256)
_GRID = np.array([*_SMALL, *(1 << power for power in range(9, 31))], np.int64)
_APART_PS = 10**13  # between messages that must not meet

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Together:
    """The messages of one round, a row for each."""

    more_us: Floats  # than the lone one, at any size: a longer way
    us_per_byte: Floats  # more than the lone one: others on the same links


@dataclass(eq=False)
class Interconnect(ABC):
    """The servers of a job and the network between them. Every process sends through one adapter, the one beside it."""

    ppn: int
    by_node: bool = False  # ranks are dealt out to the servers in turn; else server by server

    @property
    @abstractmethod
    def n_servers(self) -> int:
        """Return how many servers take part."""

    @property
    @abstractmethod
    def rails(self) -> int:
        """Return how many adapters of a server its processes share."""

    @property
    @abstractmethod
    def network(self) -> Network:
        """Return the network rules of messages."""

    @property
    @abstractmethod
    def adapter(self) -> str:
        """Return the model of the adapters."""

    @abstractmethod
    def lone_us(self, size_bytes: Floats | float) -> Floats:
        """Return the time of a message alone, between the first two servers."""

    @abstractmethod
    def together(self, src: Ints, dst: Ints) -> Together:
        """Return the extra time of messages of one size that are sent at once; ranks are on different servers."""

    @property
    def n_ranks(self) -> int:
        return self.n_servers * self.ppn

    @cached_property
    def crowd_us(self) -> float:
        """Return the time that each other message adds that leaves the same adapter at the same time."""
        if self.network is Network.TCP:
            return times().tcp.crowd_us
        if self.fabric_entry is not None and self.fabric_entry.virtual:
            return timings().adapter[self.adapter].gap_ns / 1e3
        return times().adapter.message_ns / 1e3

    @cached_property
    def fabric_entry(self) -> catalog.Interconnect | None:
        """Return the fabric of the catalog whose own transport the adapter has, if any: SRD, Spectrum-X."""
        return next(
            (entry for entry in catalog.interconnects() if entry.transport and entry.adapter == self.adapter), None
        )

    @property
    def carrier(self) -> str:
        """Return the carrier of messages: RDMA, TCP, or a transport of its own."""
        if self.network is Network.TCP:
            return "TCP"
        return self.fabric_entry.transport.upper() if self.fabric_entry is not None else "RDMA"

    def slot(self, rank: Ints) -> Ints:
        """Return the slot of a rank: server * ppn + process."""
        if not self.by_node:
            return rank
        process, server = np.divmod(rank, self.n_servers)
        return server * self.ppn + process

    @cached_property
    def us_per_byte(self) -> float:
        """Return the time for each byte of a single long message."""
        ends = self.lone_us(np.array([LARGE_BYTES, 2.0 * LARGE_BYTES]))
        return float(ends[1] - ends[0]) / LARGE_BYTES


@dataclass(eq=False, kw_only=True)
class FabricInterconnect(Interconnect):
    """A fabric with its routes. A transport of its own chooses its paths: SRD sprays packets over all of them."""

    ranks: Ranks
    options: Options
    more_us: float = 0.0  # added to each message by virtual machines
    rounds: dict[bytes, Together] = field(default_factory=dict)
    lone: Floats | None = None  # [size of the grid] -> microseconds

    def __post_init__(self) -> None:
        if self.options.paths is None and self.fabric_entry is not None and self.network is not Network.TCP:
            self.options = replace(self.options, paths=Paths(self.fabric_entry.paths))

    @property
    def n_servers(self) -> int:
        return len(self.ranks.servers)

    @property
    def rails(self) -> int:
        return self.ranks.rails

    @cached_property
    def network(self) -> Network:
        network = fill_in(self.ranks.fabric, self.options)[0].network
        assert network is not None
        return network

    @cached_property
    def adapter(self) -> str:
        fabric = self.ranks.fabric
        return fabric.node(int(fabric.ports.node[self.ranks.adapters[0, 0]])).model

    @cached_property
    def line_mbyte_s(self) -> float:
        """Return the rate of the first adapter's cable in one direction."""
        ports = self.ranks.fabric.ports
        rate_gbit_s = self.ranks.fabric.link_rate_gbit_s[ports.link[self.ranks.adapters[0, 0]]]
        return 1000 * gbyte_s(float(rate_gbit_s))

    def port(self, slot: Ints) -> NDArray[np.int32]:
        """Return the ports of processes; those of a server share its adapters evenly."""
        server, process = np.divmod(slot, self.ppn)
        ports: NDArray[np.int32] = self.ranks.adapters[server, process * self.ranks.rails // self.ppn]
        return ports

    def lone_us(self, size_bytes: Floats | float) -> Floats:
        if self.lone is None:
            if len(self.ranks.servers) < 2:
                raise ConfigError(f"{self.ranks.servers[0]} is alone: messages of a network need two servers")
            n = len(_GRID)
            ports = self.port(np.array([0, self.ppn]))
            self.lone = self._run(
                np.full(n, ports[0]), np.full(n, ports[1]), _GRID, start_ps=np.arange(n, dtype=np.int64) * _APART_PS
            )
        sizes = np.asarray(size_bytes, np.float64)
        pace = (self.lone[-1] - self.lone[-2]) / (_GRID[-1] - _GRID[-2])
        alone: Floats = np.interp(sizes, _GRID, self.lone) + np.maximum(sizes - _GRID[-1], 0.0) * pace
        return alone

    def together(self, src: Ints, dst: Ints) -> Together:
        ports = np.stack((self.port(src), self.port(dst)))
        key = ports.tobytes()
        if key not in self.rounds:
            pairs, index, count = np.unique(ports, axis=1, return_inverse=True, return_counts=True)
            small_us = self._run(pairs[0], pairs[1], np.ones(len(count), np.int64), alone=True)
            large_us = self._run(pairs[0], pairs[1], count * LARGE_BYTES)
            lone_us = self.lone_us(np.array([1.0, LARGE_BYTES]))
            shared = np.maximum(large_us - small_us - (lone_us[1] - lone_us[0]), 0.0) / LARGE_BYTES
            more_us = small_us - lone_us[0]
            row = index.ravel()
            self.rounds[key] = Together(more_us=more_us[row], us_per_byte=shared[row])
        return self.rounds[key]

    def levels(self) -> int:
        """Return the switch levels of the tree that connects all servers."""
        fabric = self.ranks.fabric
        links = np.flatnonzero(fabric.network_links)
        ends = np.stack(fabric.link_nodes)[:, links]
        near = np.concatenate((ends[0], ends[1]))
        far = np.concatenate((ends[1], ends[0]))
        hops = np.full(len(fabric.nodes.kind), -1)
        at = fabric.ports.node[self.ranks.adapters[:, 0]]
        hops[at[0]] = 0
        for step in range(1, len(hops)):
            reached = far[hops[near] == step - 1]
            reached = reached[hops[reached] < 0]
            if not len(reached):
                break
            hops[reached] = step
        return max(int(hops[at].max()) // 2, 1)

    def refuse_sharp(self) -> None:
        """Raise ConfigError unless InfiniBand switches connect the servers, which SHARP needs."""
        fabric = self.ranks.fabric
        if self.network is not Network.INFINIBAND or not len(fabric.of_kind(NodeKind.SWITCH)):
            raise ConfigError(f"--sharp: the switches of InfiniBand add, and {fabric.spec} has none: leave it out")
        if len(self.ranks.servers) < 2:
            raise ConfigError(f"--sharp: switches add between servers, and {self.ranks.servers[0]} is alone")

    def _run(
        self,
        src: NDArray[np.int32],
        dst: NDArray[np.int32],
        size_bytes: Ints,
        *,
        start_ps: Ints | int = 0,
        alone: bool = False,
    ) -> Floats:
        """Return the time of each message; alone: without contention."""
        start = np.arange(len(src), dtype=np.int64) * 10**9 if alone else start_ps
        traffic = Traffic.make(
            src, dst, size_bytes, operation=Operation.SEND, start_ps=start, description="messages of MPI"
        )
        result = AnalyticEngine().run(self.ranks.fabric, traffic, self.options)
        took: Floats = self.more_us + (result.finish_ps - np.asarray(start)) / 1e6
        return took


@dataclass(eq=False, kw_only=True)
class IdealInterconnect(Interconnect):
    """A network without contention: each message takes as long as between two servers."""

    ppn: int = 1
    pair: FabricInterconnect
    servers: int
    more_us: float = 0.0  # added to each message by more switches than between the pair

    @property
    def n_servers(self) -> int:
        return self.servers

    @property
    def rails(self) -> int:
        return self.pair.rails

    @property
    def network(self) -> Network:
        return self.pair.network

    @property
    def adapter(self) -> str:
        return self.pair.adapter

    def lone_us(self, size_bytes: Floats | float) -> Floats:
        alone: Floats = self.more_us + self.pair.lone_us(size_bytes)
        return alone

    def together(self, src: Ints, dst: Ints) -> Together:
        return Together(more_us=np.zeros(len(src)), us_per_byte=np.zeros(len(src)))
