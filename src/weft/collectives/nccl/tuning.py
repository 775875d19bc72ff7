"""NCCL's tuning model: a latency and a bandwidth for each algorithm and protocol, as NCCL's own table has them.

NCCL estimates the time of n bytes as latency + n / bandwidth. Latency is a start, plus steps inside nodes (over NVLink
or PCIe) and between them; bandwidth is that of the channels of the search, less the share of flags, up to the limit of
the protocol or of one channel. `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING` prints the same table.

The formulas are those of ncclTopoTuneModel (src/graph/tuning.cc), for one rank on each GPU, equal nodes, sums of
float32, no environment variables, and adapters that report no latency of their own, as InfiniBand's. The constants
are in `catalog/nccl.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.cluster import Cluster, Processor
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.graphs import Graph, Graphs
from weft.errors import ConfigError

_BLACKWELL = 100
_PROTOCOLS = list(Protocol)
_NVLS_ONCE = 5 / 6  # share of its channels that NCCL expected before 2.28
_NVLS_TREE_ONCE = 0.7  # and of NVLS trees in 2.18
VARIABLES = ("NCCL_ALGO", "NCCL_PROTO")  # that allow rows
_SCATTERED = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
_ROOTED = (Collective.BROADCAST, Collective.REDUCE)
_ADDING = (Collective.ALL_REDUCE, Collective.REDUCE)  # by NCCL's count before 2.21, which forgot reduce_scatter
_COLLNET = (Algorithm.COLLNET_DIRECT, Algorithm.COLLNET_CHAIN)
_NVLS = (Algorithm.NVLS, Algorithm.NVLS_TREE)
TUNED = (Collective.ALL_REDUCE, *_SCATTERED, *_ROOTED)  # for which NCCL chooses among algorithms


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The estimate of NCCL for one algorithm and protocol; `off` is the reason if it is disabled."""

    algorithm: Algorithm
    protocol: Protocol
    latency_us: float
    algo_gbyte_s: float  # size over time
    bus_gbyte_s: float  # rate of each rank's link, as nccl-tests counts
    off: str = ""

    @property
    def name(self) -> str:
        """Return the name, as in `Ring/Simple`."""
        return f"{self.algorithm.label}/{self.protocol.label}"


@lru_cache(maxsize=1024)  # the same for every size, and a search asks for thousands
def table(cluster: Cluster, graphs: Graphs, collective: Collective) -> tuple[Row, ...]:
    """Return all rows, in the order in which NCCL compares them: the first of equal ones wins."""
    if collective not in TUNED:
        raise ConfigError(
            f"NCCL has no choice of algorithms for {collective}: its model is for {', '.join(TUNED)}. "
            f"Everything else is sends and receives between pairs"
        )
    model = _Model(cluster, graphs, collective)
    return tuple(model.row(algorithm, protocol) for algorithm in Algorithm for protocol in Protocol)


def log2_down(value: int) -> int:
    """Return the logarithm to base 2, rounded down; -1 for 0, as NCCL."""
    return value.bit_length() - 1


class _Model:
    """The tuning model of a collective on a cluster."""

    def __init__(self, cluster: Cluster, graphs: Graphs, collective: Collective) -> None:
        self.cluster, self.graphs, self.collective = cluster, graphs, collective
        self.constants = constants(cluster.nccl)
        self.generation = self.constants.of_sm(cluster.sm)
        self.scale = min(cluster.nodes, 3) - 1  # the column of lists for 1 node, 2 nodes, more
        self.ranks, self.nodes, self.per_node = cluster.ranks, cluster.nodes, cluster.gpus
        steps = self.ranks if collective in _ROOTED else self.ranks - 1
        self.steps = 2 * steps if collective == Collective.ALL_REDUCE else steps  # in a ring

    def row(self, algorithm: Algorithm, protocol: Protocol) -> Row:
        off = self._off(algorithm, protocol)
        algo_gbyte_s = 0.0 if off else self._algo_gbyte_s(algorithm, protocol)
        return Row(
            algorithm=algorithm,
            protocol=protocol,
            latency_us=0.0 if off else self._latency_us(algorithm, _PROTOCOLS.index(protocol)),
            algo_gbyte_s=algo_gbyte_s,
            bus_gbyte_s=algo_gbyte_s * self.collective.bus_factor(self.ranks),
            off=off,
        )

    # Which there are.

    @property
    def _algorithms(self) -> tuple[Algorithm, ...]:
        if self.collective == Collective.ALL_REDUCE:
            return tuple(algorithm for algorithm in Algorithm if algorithm != Algorithm.PAT)
        return self.constants.rules.scattered if self.collective in _SCATTERED else (Algorithm.RING,)

    def _off(self, algorithm: Algorithm, protocol: Protocol) -> str:
        """Return the reason why a row is disabled, or an empty string."""
        for variable, option, allowed in (
            (VARIABLES[0], algorithm.label, [each.label for each in self.cluster.algorithms]),
            (VARIABLES[1], protocol.label, [each.label for each in self.cluster.protocols]),
        ):
            if allowed and option not in allowed:
                return f"{variable} is {','.join(allowed)}"
        if algorithm not in self._algorithms:
            return f"not for {self.collective}"
        if protocol != Protocol.SIMPLE and algorithm not in (Algorithm.RING, Algorithm.TREE):
            return "with Simple only"
        if algorithm in _COLLNET:
            return self._collnet_off(algorithm)
        if algorithm in _NVLS:
            return self._nvls_off(algorithm)
        if algorithm == Algorithm.PAT and not self.cluster.pat:
            return "switched off"
        if algorithm == Algorithm.PAT and self.per_node > 1:
            return "more than one GPU in a node"
        if protocol == Protocol.LL128 and not self.cluster.protocols:  # else NCCL takes it wherever it is
            return self._ll128_off()
        return ""

    def _collnet_off(self, algorithm: Algorithm) -> str:
        limits = self.constants.limits
        if self.nodes < limits.collnet_nodes:
            return "one node"
        if not self.cluster.sharp:
            return "no SHARP"
        if self.per_node > limits.collnet_gpus:
            return f"more than {limits.collnet_gpus} GPUs in a node"
        if algorithm == Algorithm.COLLNET_DIRECT and not self.cluster.nvswitch:
            return "no NVSwitch"
        return self._heads_off(always=self.constants.rules.rewritten)

    def _nvls_off(self, algorithm: Algorithm) -> str:
        if self.cluster.sm < 90:
            return "GPUs before Hopper"
        if self.per_node == 1:
            return "one GPU in a node"
        if not self.cluster.nvswitch:
            return "no NVSwitch"
        if not self.cluster.nvls:
            return "switched off"
        if algorithm == Algorithm.NVLS_TREE and self.nodes == 1:
            return "one node"
        if algorithm == Algorithm.NVLS and self.nodes > 1 and not self.cluster.sharp:
            return "more than one node without SHARP"
        if self.graphs.nvls.channels < 2:
            return "fewer than two channels"
        if self.collective in _SCATTERED and self.per_node > self.constants.limits.nvls_gpus:
            return f"more than {self.constants.limits.nvls_gpus} GPUs in a node"
        return self._heads_off()

    def _heads_off(self, *, always: bool = False) -> str:
        """Return the reason if GPUs lack adapters of their own, which gathers in the network need."""
        needed = always or self.collective in _SCATTERED
        short = needed and self.nodes > 1 and self.cluster.nics < self.per_node
        return "fewer adapters than GPUs" if short else ""

    def _ll128_off(self) -> str:
        """Return the reason if LL128 is disabled: paths through a processor may split 128 bytes."""
        if self.cluster.sm < 70:
            return "GPUs before Volta"
        if self.nodes > 1 and not self.cluster.near:
            return "adapters behind the processor"
        if self.per_node > 1 and not self.cluster.nvlink:
            return "GPUs joined by PCIe"
        return ""

    # How fast.

    def _graph(self, algorithm: Algorithm) -> Graph:
        graph = {
            Algorithm.RING: self.graphs.ring,
            Algorithm.COLLNET_DIRECT: self.graphs.collnet_direct,
            Algorithm.COLLNET_CHAIN: self.graphs.collnet_chain,
            Algorithm.NVLS: self.graphs.nvls,
            Algorithm.NVLS_TREE: self.graphs.nvls,
        }
        return graph.get(algorithm, self.graphs.tree)

    def _algo_gbyte_s(self, algorithm: Algorithm, protocol: Protocol) -> float:
        """Return size over time. NCCL uses the bus bandwidth for all_gather and reduce_scatter, except on rings."""
        bus, rules = self._bus_gbyte_s(algorithm, protocol), self.constants.rules
        if algorithm in rules.scattered_bus and self.collective in _SCATTERED:
            return bus
        if algorithm == Algorithm.NVLS_TREE and not rules.nvls_tree_log:
            return bus * _NVLS_TREE_ONCE * self.nodes / (2 * (self.nodes - 1))
        if algorithm in _NVLS and not rules.nvls_bus:
            return bus * _NVLS_ONCE
        return bus * (self.ranks / self.steps if algorithm in (Algorithm.RING, *_NVLS) else 0.5)

    def _bus_gbyte_s(self, algorithm: Algorithm, protocol: Protocol) -> float:
        graph = self._graph(algorithm)
        if algorithm in _NVLS:
            return graph.channels * self._nvls_channel_gbyte_s(algorithm)
        total = graph.channels * self._channel_gbyte_s(algorithm, graph)
        if algorithm == Algorithm.RING:
            return self._ring_gbyte_s(total, protocol)
        if algorithm == Algorithm.TREE:
            return self._tree_gbyte_s(total, protocol)
        if algorithm == Algorithm.PAT:
            return total * self.constants.factor.pat
        return self._collnet_direct_gbyte_s(total) if algorithm == Algorithm.COLLNET_DIRECT else total

    def _channel_gbyte_s(self, algorithm: Algorithm, graph: Graph) -> float:
        """Return the speed of a channel: with two nodes that inside them; since 2.31 not for PAT or Blackwell trees."""
        slower = algorithm == Algorithm.PAT or (algorithm == Algorithm.TREE and self.cluster.sm >= _BLACKWELL)
        if slower and self.constants.rules.rewritten:
            return min(graph.intra_gbyte_s, graph.inter_gbyte_s)
        return graph.intra_gbyte_s if self.nodes <= 2 or algorithm in _COLLNET else graph.inter_gbyte_s

    def _ring_gbyte_s(self, total: float, protocol: Protocol) -> float:
        factor, channels = self.constants.factor, self.graphs.ring.channels
        if protocol == Protocol.LL:
            copied = self.nodes == 1 and self.collective not in _ADDING
            return min(self._ll_gbyte_s(), total * (factor.ring_ll_copied if copied else factor.ring_ll))
        if protocol == Protocol.LL128:
            limit = self.generation.ring_ll128_channel_gbyte_s[self.scale]
            part = factor.ring_ll128_alone if self.per_node == 1 else factor.ring_ll128
            return min(total * part, channels * limit)
        return total

    def _tree_gbyte_s(self, total: float, protocol: Protocol) -> float:
        factor, channels = self.constants.factor, self.graphs.tree.channels
        bus = min(total * factor.tree, channels * self.generation.tree_channel_gbyte_s[self.scale])
        if protocol == Protocol.LL:
            bus = min(bus * factor.tree_ll, self._ll_gbyte_s())
        if protocol == Protocol.LL128:
            part = factor.tree_ll128_one_node if self.nodes == 1 else factor.tree_ll128
            bus = min(bus * part, channels * self.generation.tree_ll128_channel_gbyte_s[self.scale])
        return bus * (factor.simple_tree if self.graphs.simple_tree else 1.0)

    def _ll_gbyte_s(self) -> float:
        """Return the limit of LL: the GPU inside a node, the forwarding processor between nodes."""
        generation = self.generation
        if self.nodes > 1:
            row = "ampere" if self.cluster.processor == Processor.AMD else "volta"
            generation = self.constants.generation[row]
        return generation.ll_gbyte_s[self.scale]

    def _nvls_channel_gbyte_s(self, algorithm: Algorithm) -> float:
        graph = self.graphs.nvls
        if not self.constants.rules.nvls_bus:
            return self._nvls_channel_once_gbyte_s(algorithm)
        inside = graph.intra_gbyte_s * self.generation.nvls * (graph.channels - 1) / graph.channels
        # all_reduce has two operations in the pipe; the others leave out the rank itself.
        inside *= 2 if self.collective == Collective.ALL_REDUCE else (self.per_node - 1) / self.per_node
        if algorithm == Algorithm.NVLS:
            return min(inside, graph.inter_gbyte_s)
        # With two nodes, each has one neighbour only.
        between = graph.inter_gbyte_s * (2 if self.nodes == 2 else 1)
        return min(inside, between, self.generation.nvls_tree_channel_gbyte_s[self.scale])

    def _nvls_channel_once_gbyte_s(self, algorithm: Algorithm) -> float:
        """Return the speed of an NVLS channel before 2.28, as the search found it."""
        graph = self.graphs.nvls
        if not self.constants.rules.nvls_tree_log:
            return graph.intra_gbyte_s if self.nodes <= 2 else graph.inter_gbyte_s
        if algorithm == Algorithm.NVLS_TREE:
            return min(graph.intra_gbyte_s, graph.inter_gbyte_s / (1 if self.nodes <= 2 else 2))
        if self.collective == Collective.ALL_REDUCE or not self.constants.rules.nvls_gather:
            return min(graph.intra_gbyte_s, graph.inter_gbyte_s)
        inside = graph.intra_gbyte_s * (self.per_node - 1) / self.per_node
        return min(inside, graph.inter_gbyte_s * self.constants.factor.collnet_gather)

    def _collnet_direct_gbyte_s(self, total: float) -> float:
        graph, factor = self.graphs.collnet_direct, self.constants.factor
        if self.collective in _SCATTERED and not self.constants.rules.nvls_gather:
            many = (self.per_node - 1) / 7  # measured with one GPU in a node and with eight
            return self.per_node * graph.intra_gbyte_s * (0.85 * many + 0.95 * (1 - many))
        if self.collective in _SCATTERED:
            return self.per_node * min(graph.intra_gbyte_s, graph.inter_gbyte_s * factor.collnet_gather)
        share = self.per_node / graph.channels  # GPUs of an adapter; what is above one counts half
        return total / (share - (share - 1) / 2) * (factor.collnet_direct_hopper if self.cluster.sm >= 90 else 1.0)

    # How soon.

    @property
    def _inside(self) -> dict[Algorithm, tuple[float, float, float]]:
        """Return the latencies of steps inside a node. NCCL treats a single GPU as one on PCIe."""
        nvlink = self.per_node > 1 and self.cluster.nvlink
        return self.constants.latency_us.nvlink if nvlink else self.constants.latency_us.pcie

    def _latency_us(self, algorithm: Algorithm, protocol: int) -> float:
        latency, step = self.constants.latency_us, self.constants.step
        # One GPU in a node has no NVLink to hide behind: all latency of the network shows, as in a tree.
        rules = self.constants.rules
        exposed = rules.exposed and self.per_node == 1 and not (algorithm in _COLLNET and rules.rewritten)
        between = latency.network[Algorithm.TREE if exposed else algorithm][protocol]
        inside = self._inside[algorithm][protocol]
        base, n_peers, depth = latency.base[algorithm][protocol], self.per_node - 1, log2_down(self.nodes)
        if algorithm == Algorithm.RING:
            return base + self._ring_steps_us(protocol, inside, between)
        if algorithm == Algorithm.TREE:
            return base + 2 * (n_peers * inside + depth * between)
        if algorithm == Algorithm.COLLNET_DIRECT:
            return base + 2 * (min(1, n_peers) * inside + n_peers * step.collnet_arity_us) + between
        if algorithm == Algorithm.COLLNET_CHAIN:
            return base + 2 * n_peers * inside + between
        if algorithm == Algorithm.NVLS:
            return base + inside + (between if self.nodes > 1 else 0.0)
        if algorithm == Algorithm.NVLS_TREE:
            return base + inside + 2 * (depth if rules.nvls_tree_log else self.nodes - 1) * between
        return base + depth * between / step.pat_overlap + self.ranks * step.pat_us

    def _ring_steps_us(self, protocol: int, inside: float, between: float) -> float:
        latency, step = self.constants.latency_us, self.constants.step
        simple = _PROTOCOLS[protocol] == Protocol.SIMPLE
        if self.collective in _ROOTED:
            # A pipe: its latency is one step where all channels go the same way, else a step for each rank.
            like = Algorithm.TREE if simple and not self.graphs.same_channels else Algorithm.RING
            step_us = (latency.network if self.nodes > 1 else self._inside)[like][protocol]
            return step_us if self.graphs.same_channels else self.steps * step_us
        crossings = self.nodes - 1
        if self.collective == Collective.ALL_REDUCE and self.nodes > 1:
            crossings = 2 * self.nodes - self.constants.rules.ring_crossings_less
        if self.nodes > 1:
            amd = self.cluster.processor == Processor.AMD
            post = step.network_post_amd_us if amd else step.network_post_us
            inside = max(inside, post * (step.simple_posts if simple else 1))
        return (self.steps - crossings) * inside + crossings * between
