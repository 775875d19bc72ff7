"""One collective on one cluster with one row of NCCL's table: figures that all algorithms share.

NCCL's latencies hold for InfiniBand with one switch, Intel's processors and GPUs up to Hopper. A step over another
network has the difference of that network added, AMD's processors post to adapters more slowly, and on Blackwell a step
over NVLink is longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.cluster import Cluster, Processor
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.graphs import Graphs
from weft.collectives.nccl.ideal import TcpNetwork
from weft.collectives.nccl.network import Network, Networks, Pattern
from weft.collectives.nccl.times import Plugin, Times, times
from weft.collectives.nccl.tuning import Row, log2_down
from weft.errors import ConfigError

CHANNELS, NVLINK, PCIE, ADAPTERS, PROXIES = "channels", "NVLink", "PCIe", "adapters", "proxies"
PAYLOAD = {Protocol.LL: 0.5, Protocol.LL128: 120 / 128, Protocol.SIMPLE: 1.0}  # share of the bytes sent that is data
_PROTOCOLS = list(Protocol)
_BLACKWELL = 100
_HOPPER = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that add up to a time."""

    launch_us: float
    steps_us: float
    pipeline_us: float
    data_us: float
    bound: str  # the limit of the data part


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A collective on a cluster, with one row of NCCL's table."""

    cluster: Cluster
    graphs: Graphs
    collective: Collective
    size_bytes: int
    row: Row
    channels: int
    networks: Networks
    fitted: Times = field(default_factory=times)

    @property
    def levels(self) -> int:
        """Return the levels of a tree between nodes."""
        return log2_down(self.cluster.nodes)

    @property
    def base_us(self) -> float:
        """Return the time until the kernel runs; with LL that of rings and trees depends on GPU and thread blocks."""
        if self.row.protocol == Protocol.LL and self.row.algorithm in (Algorithm.RING, Algorithm.TREE):
            generation = self.fitted.of_sm(self.cluster.sm)
            own_us = generation.tree_ll_launch_us if self.row.algorithm == Algorithm.TREE else 0.0
            several = self.fitted.pipeline.ll_blocks if self.channels > 1 else 1.0
            return (own_us or generation.ll_launch_us) * several
        base_us = constants().latency_us.base[self.row.algorithm][_PROTOCOLS.index(self.row.protocol)]
        return base_us + (simple_start_us(self.cluster, self.row.protocol, self.fitted) if self.is_closed else 0.0)

    @property
    def is_closed(self) -> bool:
        """Return whether this is a ring around which all GPUs send; that of a broadcast or reduce is open."""
        is_open = self.collective in (Collective.BROADCAST, Collective.REDUCE)
        return self.row.algorithm == Algorithm.RING and not is_open

    @property
    def inside_us(self) -> float:
        """Return the latency of a step inside a node."""
        latency, alone = constants().latency_us, self.cluster.gpus == 1 or not self.cluster.nvlink
        us = (latency.pcie if alone else latency.nvlink)[self.row.algorithm][_PROTOCOLS.index(self.row.protocol)]
        multicast = self.row.algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE)
        tree = self.row.algorithm == Algorithm.TREE
        return us if multicast else us * hop_ratio(self.cluster, self.row.protocol, self.fitted, tree=tree)

    @property
    def network_us(self) -> float:
        """Return NCCL's latency of a step between nodes; for rings that of trees, which fits measurements better."""
        like = Algorithm.TREE if self.row.algorithm == Algorithm.RING else self.row.algorithm
        return constants().latency_us.network[like][_PROTOCOLS.index(self.row.protocol)]

    def crossing_us(self, pattern: Pattern, chunk_bytes: float = 0.0) -> float:
        """Return the latency of a step between nodes on this network, with a chunk of data in each channel."""
        network = find(self.networks, pattern)
        step_us = crossing_us(self.cluster, network, self.network_us, self.row.protocol, self.fitted)
        message_bytes = chunk_bytes / PAYLOAD[self.row.protocol]
        return step_us + rendezvous_us(self.cluster, network, self.fitted, self.row.protocol, message_bytes)

    def adapters_gbyte_s(self, pattern: Pattern) -> float:
        """Return the data rate of all adapters of a node."""
        return adapters_gbyte_s(self.cluster, find(self.networks, pattern), self.fitted) * PAYLOAD[self.row.protocol]

    @property
    def peer_us(self) -> float:
        """Return the wait of each chunk for a neighbour in another node."""
        pipeline = self.fitted.pipeline
        simple = pipeline.simple_peer if self.row.protocol == Protocol.SIMPLE else 1.0
        slower = post_us(self.cluster, find(self.networks, Pattern.TREE)) / constants().step.network_post_us
        return pipeline.peer_us * simple * slower

    @property
    def search_channels(self) -> float:
        """Return the channels of the search that the channels in use are copies of."""
        return self.channels * self.graphs.ring.channels / self.graphs.channels(self.cluster)

    def data(self, limits: dict[str, float]) -> tuple[str, float]:
        """Return the slowest limit, and the time of all bytes at its algorithm bandwidth."""
        bound = min(limits, key=lambda name: limits[name])
        return bound, self.size_bytes / limits[bound] / 1000

    def parts(self, data: tuple[str, float], steps_us: float, pipeline_us: float = 0.0) -> Parts:
        bound, data_us = data
        return Parts(launch_us=self.base_us, steps_us=steps_us, pipeline_us=pipeline_us, data_us=data_us, bound=bound)


def find(networks: Networks, pattern: Pattern) -> Network:
    if pattern not in networks:
        raise ConfigError(f"networks has {', '.join(networks) or 'nothing'}, and this algorithm needs {pattern}")
    return networks[pattern]


def plugin_of(network: Network, fitted: Times) -> Plugin | None:
    """Return the NCCL plugin of a network, if it has one."""
    return fitted.plugin.get(network.transport)


def post_us(cluster: Cluster, network: Network) -> float:
    """Return the time of this processor to post to an adapter; posts to the kernel take the same on all."""
    step = constants().step
    slow = cluster.processor == Processor.AMD and not isinstance(network, TcpNetwork)
    return step.network_post_amd_us if slow else step.network_post_us


def posts(protocol: Protocol) -> int:
    """Return the posts of a proxy thread for a chunk: with Simple also a flush."""
    return constants().step.simple_posts if protocol == Protocol.SIMPLE else 1


def simple_start_us(cluster: Cluster, protocol: Protocol, fitted: Times) -> float:
    """Return the time until Simple runs between the GPUs of one server, beyond that of NCCL's table."""
    alone = cluster.nodes == 1 and cluster.nvlink and protocol == Protocol.SIMPLE
    return fitted.of_sm(cluster.sm).simple_start_us if alone else 0.0


def hop_ratio(cluster: Cluster, protocol: Protocol, fitted: Times, *, tree: bool = False) -> float:
    """Return the latency of a step inside a node relative to NCCL's.

    It depends on the generation over NVLink, and is longer over PCIe for data with flags, which go through host memory.
    """
    if cluster.gpus == 1:
        return 1.0
    if not cluster.nvlink:
        return 1.0 if protocol == Protocol.SIMPLE else fitted.pipeline.pcie_hop
    generation = fitted.of_sm(cluster.sm)
    ll_hop = (generation.tree_ll_hop if tree else 0.0) or generation.ll_hop
    ratio = ll_hop if protocol == Protocol.LL else 1.0
    return ratio * blackwell_ratio(cluster, fitted)


def blackwell_ratio(cluster: Cluster, fitted: Times) -> float:
    """Return the time in which GPUs signal each other over NVLink relative to earlier generations."""
    return fitted.pipeline.blackwell_hop if cluster.sm >= _BLACKWELL else 1.0


def crossing_us(cluster: Cluster, network: Network, latency_us: float, protocol: Protocol, fitted: Times) -> float:
    """Return NCCL's latency of a step between nodes plus the difference of this network from the reference one.

    With AMD's processors the whole step is longer on Ampere, and only the posts on later GPUs: published clusters show
    it, and the reason is not known.
    """
    base_us, own_us = constants().step.network_post_us, post_us(cluster, network)
    longer_us = latency_us * (own_us / base_us - 1) if cluster.sm < _HOPPER else posts(protocol) * (own_us - base_us)
    return latency_us + longer_us + network.step_us - fitted.network.reference_step_us + plugin_step_us(network, fitted)


def plugin_step_us(network: Network, fitted: Times) -> float:
    """Return the time of a step that the plugin adds, for which the adapters need not wait."""
    plugin = plugin_of(network, fitted)
    return plugin.step_us if plugin else 0.0


def rendezvous_us(cluster: Cluster, network: Network, fitted: Times, protocol: Protocol, message_bytes: float) -> float:
    """Return the time in which the receiver fetches a message that is too long to be sent at once, and flushes it."""
    plugin = plugin_of(network, fitted)
    if plugin is None:
        return 0.0
    older = cluster.sm < plugin.ordered_sm
    eager_bytes = plugin.older_eager_bytes if older else plugin.eager_bytes
    eager_bytes = eager_bytes if network.eager_bytes is None else network.eager_bytes
    there_and_back = 2 if eager_bytes is not None and message_bytes > eager_bytes else 0
    flush = 1 if older and plugin.older_flush and protocol == Protocol.SIMPLE else 0
    return (there_and_back + flush) * network.step_us


def adapters_gbyte_s(cluster: Cluster, network: Network, fitted: Times) -> float:
    plugin = plugin_of(network, fitted)
    return cluster.nics * network.adapter_gbyte_s * fitted.bandwidth.adapter * (plugin.rate if plugin else 1.0)


def copies_gbyte_s(cluster: Cluster, fitted: Times) -> float:
    """Return the NVLink bandwidth of a GPU for copies."""
    return cluster.nvlink_gbyte_s * fitted.bandwidth.nvlink


def nvls_gbyte_s(cluster: Cluster, fitted: Times) -> float:
    """Return the algorithm bandwidth of an all_reduce in the switches.

    Each of g GPUs sends all bytes once to be reduced, and its part of the sum once: (g + 1)/g of the size. Bus
    bandwidth would rise with every GPU; in racks it stays at that of eight.
    """
    shared = min(cluster.gpus, fitted.bandwidth.nvls_gpus)
    bus_gbyte_s = adding_gbyte_s(cluster, fitted) * 2 * (shared - 1) / (shared + 1)
    return bus_gbyte_s * cluster.gpus / (2 * (cluster.gpus - 1))


def adding_gbyte_s(cluster: Cluster, fitted: Times) -> float:
    """Return the NVLink bandwidth of a GPU for reductions in switches."""
    return cluster.nvlink_gbyte_s * fitted.bandwidth.nvls


def inside_name(cluster: Cluster) -> str:
    return NVLINK if cluster.nvlink else PCIE


def block_gbyte_s(cluster: Cluster) -> float:
    """Return the throughput of a thread block with Simple: NCCL's figure for a channel of a tree."""
    return max(constants().of_sm(cluster.sm).tree_channel_gbyte_s)
