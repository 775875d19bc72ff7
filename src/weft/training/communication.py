"""Times of a job's collectives: for every kind of group, with all groups of that kind at work at once.

    over = OverFabric(place(fabric), layout)                  a fabric with its routes and faults
    over = Ideal(from_server("dgx-h100", nodes=16), layout)   every adapter at its rate: for search
    over.time_s("dp-cp", Collective.REDUCE_SCATTER, 1 << 30)

Groups of one kind work in step, so what each of them gets is what it gets while all of them send: their rings, or
pairs, are run over the fabric together (`weft.collectives.nccl.measure`), and NCCL's closed form
(`weft.collectives.nccl.estimate`) makes times of it. A group's members in one server form a ring over NVLink; each
brings the adapter of its rail. NCCL has as many channels on every server of a group as the one with the fewest members
can have, so where a group lies unevenly, that server's adapters limit it; and all groups of a kind wait for the one on
the most servers. Collectives of different kinds that happen to overlap do not slow each other down here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.nccl.board import Board
from weft.collectives.nccl.cluster import Cluster, from_fabric
from weft.collectives.nccl.estimate import Estimate, estimate
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.measure import CONNECTIONS, edge_traffic, edges, measure_traffic
from weft.collectives.nccl.network import Network, Networks, Pattern
from weft.collectives.ranks import Ranks, channel_adapters
from weft.errors import ConfigError
from weft.sim.engine import Network as NetworkRules
from weft.sim.engine import Options, Paths
from weft.sim.flow.engine import FlowEngine
from weft.sim.result import Engine
from weft.training.parallel import Layout


class _Measured(Mapping[Pattern, Network]):
    """A mapping that measures the network of a pattern when it is first read."""

    def __init__(self, measure: Callable[[Pattern], Network]) -> None:
        self._measure, self._networks = measure, dict[Pattern, Network]()

    def __getitem__(self, pattern: Pattern) -> Network:
        if pattern not in self._networks:
            self._networks[pattern] = self._measure(pattern)
        return self._networks[pattern]

    def __iter__(self) -> Iterator[Pattern]:
        return iter(Pattern)

    def __len__(self) -> int:
        return len(Pattern)


class _Shape(NamedTuple):
    """The placement of the groups of one kind."""

    size: int  # members of a group
    nodes: int  # servers of the group that has the most
    fewest: int  # members of a group on one server, at least

    @property
    def per_server(self) -> int:
        """Return the members on a server, in the mean of a group's servers."""
        return -(-self.size // self.nodes)


class Communication(ABC):
    """A cache of the times of collectives in the groups of a layout."""

    def __init__(self, cluster: Cluster, layout: Layout) -> None:
        self.cluster, self.layout = cluster, layout  # the cluster has all servers of the job
        self._times_s: dict[tuple[str, Collective, int], float] = {}
        self._networks: dict[str, Networks] = {}
        self._shapes: dict[str, _Shape] = {}
        self._parts: dict[str, Cluster] = {}
        self._stretch: Callable[[Estimate], float] | None = None

    def stretched(self, stretch: Callable[[Estimate], float]) -> Self:
        """Return a copy in which each collective takes `stretch` times as long."""
        other = copy(self)
        other._times_s, other._stretch = {}, stretch
        return other

    @abstractmethod
    def _measure(self, kind: str, pattern: Pattern) -> Network:
        """Return the latency and bandwidth between the servers of each group of a kind."""

    def time_s(self, kind: str, collective: Collective, size_bytes: float) -> float:
        """Return the time of a collective in each group of a kind; the size is the larger of a rank's two buffers."""
        key = kind, collective, max(1, round(size_bytes))
        if key not in self._times_s:
            self._times_s[key] = self._time_s(*key)
        return self._times_s[key]

    def _time_s(self, kind: str, collective: Collective, size_bytes: int) -> float:
        if self._shape(kind).size == 1:
            return 0.0
        return self._seconds(self._estimate(kind, self._part(kind), collective, size_bytes))

    def places(self, kind: str) -> int:
        """Return the servers of a group of that kind; the GPUs if it lies in one server."""
        shape = self._shape(kind)
        return shape.nodes if shape.nodes > 1 else shape.size

    def _part(self, kind: str) -> Cluster:
        """Return the GPUs and adapters of the cluster that a group of that kind has."""
        if kind not in self._parts:
            shape = self._shape(kind)
            self._parts[kind] = replace(
                self.cluster,
                gpus=shape.per_server,
                nodes=shape.nodes,
                nics=max(1, shape.fewest * self.cluster.nics // self.cluster.gpus),
                board=self._board(kind, shape.per_server),
            )
        return self._parts[kind]

    def send_s(self, size_bytes: float) -> float:
        """Return the time of a send from each stage of the pipeline to the next, all at once."""
        shape = self._shape("pp")
        if shape.size == 1:
            return 0.0
        gpus, nodes = (2, 1) if shape.nodes == 1 else (1, 2)
        pair = replace(self.cluster, gpus=gpus, nodes=nodes, nics=1, board=self._board("pp", gpus))
        return self._seconds(self._estimate("pp", pair, Collective.SEND_RECV, max(1, round(size_bytes))))

    def _estimate(self, kind: str, part: Cluster, collective: Collective, size_bytes: int) -> Estimate:
        return estimate(part, collective, size_bytes, networks=self._networks_of(kind))

    def _seconds(self, time: Estimate) -> float:
        return time.time_us / 1e6 * (1.0 if self._stretch is None else self._stretch(time))

    def _board(self, kind: str, members: int) -> Board | None:
        """Return the board of a server without NVSwitches, shared by the groups with `members` on it."""
        if self.cluster.board is None or members == 1:
            return None
        groups = self.layout.ranks(kind)
        on_first_server = groups[groups[:, members - 1] < self.cluster.gpus, :members]
        return self.cluster.board.shared(on_first_server.tolist())

    def _networks_of(self, kind: str) -> Networks:
        return self._networks.setdefault(kind, _Measured(partial(self._measure, kind)))

    def _shape(self, kind: str) -> _Shape:
        if kind not in self._shapes:
            servers = self.layout.ranks(kind) // self.cluster.gpus  # [group, member], in order
            starts = np.ones((len(servers), servers.shape[1] + 1), dtype=bool)  # and one end
            starts[:, 1:-1] = servers[:, 1:] > servers[:, :-1]
            group, member = np.nonzero(starts)
            counts = np.diff(member)[np.diff(group) == 0]  # members on each server of each group
            self._shapes[kind] = _Shape(servers.shape[1], int(starts.sum(axis=1).max()) - 1, int(counts.min()))
        return self._shapes[kind]


class Ideal(Communication):
    """The communication of a job over an ideal network, or over `networks` as `ideal_networks` returns them."""

    def __init__(self, cluster: Cluster, layout: Layout, networks: Networks | None = None) -> None:
        super().__init__(cluster, layout)
        self._own_networks = networks

    @cached_property
    def _ideal(self) -> Networks:
        return self._own_networks or ideal_networks(self.cluster)

    def _measure(self, kind: str, pattern: Pattern) -> Network:
        """Return the network of a group; where servers have fewer adapters than groups, groups share them."""
        network = self._ideal[pattern]
        share = min(1.0, self._shape(kind).fewest * self.cluster.nics / self.cluster.gpus)
        return replace(network, adapter_gbyte_s=share * network.adapter_gbyte_s)

    def _estimate(self, kind: str, part: Cluster, collective: Collective, size_bytes: int) -> Estimate:
        networks = self._networks_of(kind)
        return _remembered(part, collective, size_bytes, tuple(networks.items()) if part.nodes > 1 else ())


@lru_cache(maxsize=1 << 14)  # a search asks for the same groups and sizes in many layouts
def _remembered(
    part: Cluster, collective: Collective, size_bytes: int, networks: tuple[tuple[Pattern, Network], ...]
) -> Estimate:
    return estimate(part, collective, size_bytes, networks=dict(networks))


class OverFabric(Communication):
    """The communication of a job over a routed fabric, by default with the flow engine.

    cluster: given if the caller built the fabric and nothing in it is broken.
    """

    def __init__(
        self,
        ranks: Ranks,
        layout: Layout,
        options: Options | None = None,
        engine: Engine | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        super().__init__(cluster or from_fabric(ranks.fabric, ranks.servers), layout)
        if len(ranks) != layout.gpus:
            raise ConfigError(
                f"a layout of {layout.gpus} GPUs on {len(ranks)} of {ranks.fabric.spec}: the numbers must match"
            )
        self._ranks, self._options, self._engine = ranks, options or Options(), engine or FlowEngine()

    def _measure(self, kind: str, pattern: Pattern) -> Network:
        groups = self.layout.ranks(kind)
        edge_ends = [self._edge_ends(kind, pattern, group) for group in groups]
        src, dst = (np.concatenate(ends) for ends in zip(*edge_ends, strict=True))
        description = f"{len(groups):,} {kind} groups of {groups.shape[1]}, {pattern}"
        traffic = edge_traffic(src, dst, description, self._connections)
        return measure_traffic(self._ranks.fabric, traffic, self._options, engine=self._engine)[0]

    def _edge_ends(
        self, kind: str, pattern: Pattern, group: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the ports that send and those that receive between the servers of a group.

        On every server they are those of the rails that the server with the fewest members has; other members reach
        them over NVLink. Rings and trees over whole servers have NCCL's channels.
        """
        ranks = self._ranks
        servers, first, counts = np.unique(group // ranks.per_server, return_index=True, return_counts=True)
        if len(servers) == 1:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        at = counts.argmin()
        rails = ranks.rail_of[group[first[at] : first[at] + counts[at]] % ranks.per_server]
        src, dst = _chain(len(servers)) if kind == "pp" else edges(pattern, len(servers))
        whole = kind != "pp" and pattern is not Pattern.PAIRS and counts[at] == ranks.per_server
        ports = self._channel_adapters[servers] if whole else ranks.adapters[servers][:, rails]  # [server, rail]
        return ports[src].ravel(), ports[dst].ravel()

    @cached_property
    def _channel_adapters(self) -> NDArray[np.int32]:
        return channel_adapters(self._ranks)

    @property
    def _connections(self) -> int:
        """Return the connections to simulate between two adapters: one if neither hashing nor copies depend on them."""
        identical = (
            self._options.paths in (Paths.ADAPTIVE, Paths.SPRAY) and self._options.network is not NetworkRules.TCP
        )
        return 1 if identical else CONNECTIONS


def _chain(stages: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return senders and receivers of a pipeline: activations go to the next stage, gradients to the previous one.

    With virtual stages the last stage sends to the first as well.
    """
    stage = np.arange(stages)
    following = np.roll(stage, -1)
    return np.concatenate((stage, following)), np.concatenate((following, stage))
