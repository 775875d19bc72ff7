"""What NCCL's search finds: how many channels, and how fast each of them is inside a node and between nodes.

NCCL tries speeds of a list from the highest on, and lays as many channels of that speed through GPUs, NVLink and
adapters as fit; the speed with the most bandwidth in all wins, the higher one if equal. For GPUs around NVSwitches
that is arithmetic, and no search is needed:

    a ring or a tree through g GPUs takes (g-1)/g of a channel's speed from the NVLink of each, for it begins and ends
    at adapters; a ring inside one node takes all of it
    each adapter carries as many channels as its rate and its slot have room for
    fast channels are cut in two, so that more thread blocks work (ncclTopoDupChannels)
    a tree may then be faster inside the nodes than between them, up to twice

Against NCCL's own search on 201 machines (1 to 8 GPUs of three generations, 1 to 16 adapters of 100 to 800 Gb/s, with
SHARP and without) it finds the same in 192; it differs where NCCL runs out of time or goes crosswise: adapters of
800 Gb/s on Hopper, two GPUs with two of 200 Gb/s, four Blackwells in one node.

For machines without NVSwitches the answer hangs on every PCIe bridge: take it from NCCL's log (`NCCL_DEBUG=INFO
NCCL_DEBUG_SUBSYS=GRAPH`, lines `Pattern 4, crossNic 0, nChannels 12, bw 30/30`) and give it as `Graphs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from weft.collectives.cluster import Cluster
from weft.collectives.constants import constants
from weft.errors import ConfigError

_BLACKWELL = 100
_HOPPER = 90
_AMPERE = 80
_NVLS_FEW_GPUS = 8


@dataclass(frozen=True, slots=True)
class Graph:
    """Channels of one pattern. `intra` and `inter` are the speed of one of them inside and between nodes."""

    channels: int
    intra_gbyte_s: float
    inter_gbyte_s: float

    @property
    def total_gbyte_s(self) -> float:
        """All channels, between nodes."""
        return self.channels * self.inter_gbyte_s

    def __str__(self) -> str:
        return f"{self.channels} × {self.intra_gbyte_s:g}/{self.inter_gbyte_s:g} GB/s"


NONE = Graph(channels=0, intra_gbyte_s=0.0, inter_gbyte_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """What the search found, pattern by pattern."""

    ring: Graph
    tree: Graph
    collnet_chain: Graph = NONE
    collnet_direct: Graph = NONE
    nvls: Graph = NONE
    same_channels: bool = False  # all rings go the same way
    simple_tree: bool = False  # all network traffic of a tree's channel through one GPU

    def channels(self, cluster: Cluster) -> int:
        """Of the communicator: NCCL's log says `16 coll channels`."""
        limit = constants(cluster.nccl).limits.channels
        count = min(limit, 2 * min(self.ring.channels, self.tree.channels))
        chain = self.collnet_chain
        if chain.channels and chain.intra_gbyte_s > chain.inter_gbyte_s and cluster.gpus > 1:
            count = min(limit, count + count // 2)
        many = constants(cluster.nccl).search
        fast = cluster.sm >= _HOPPER and cluster.nodes > 1 and self.ring.intra_gbyte_s > many.many_gbyte_s
        most, least = min(cluster.max_ctas, cluster.max_channels), max(cluster.min_ctas, cluster.min_channels)
        count = max(least, min(most, 2 * count if fast and count < many.many_channels else count))
        return max(count, self.nvls_channels(cluster)) if constants(cluster.nccl).rules.channels_with_nvls else count

    def nvls_channels(self, cluster: Cluster) -> int:
        """Of NVLS: NCCL's log says `16 nvls channels`."""
        if not self.nvls.channels:
            return 0
        return max(cluster.min_ctas, min(cluster.max_ctas, _nvls_channels(cluster)))


def _nvls_channels(cluster: Cluster) -> int:
    limits = constants(cluster.nccl).limits
    if cluster.sm < _BLACKWELL:
        return limits.nvls_channels
    fast = limits.nvls_fast_gbyte_s
    tuned = constants(cluster.nccl).rules.nvls_tree_tuned and cluster.nic_gbyte_s >= fast
    wide = cluster.nic_gbyte_s >= 2 * fast and cluster.gpus > _NVLS_FEW_GPUS
    few = cluster.nodes == 1 or (tuned and cluster.nodes > 2 and not wide)
    return limits.nvls_channels_blackwell if few else limits.nvls_channels_blackwell_network


@cache
def search(cluster: Cluster) -> Graphs:
    """What NCCL would find on nodes with NVSwitches, or with one GPU."""
    if cluster.gpus > 1 and not cluster.nvswitch:
        raise ConfigError(
            f"{cluster}: without NVSwitches NCCL's channels hang on every PCIe bridge. Take them from the log of "
            f"NCCL_DEBUG_SUBSYS=GRAPH, and give them as graphs=Graphs(ring=..., tree=...)"
        )
    return _one_node(cluster) if cluster.nodes == 1 else _network(cluster)


def _one_node(cluster: Cluster) -> Graphs:
    total, speeds = cluster.nvlink_gbyte_s, constants(cluster.nccl).of_sm(cluster.sm).one_node
    ring = _cut(cluster, _best(speeds, lambda speed: int(total / speed), total), _most())
    # Two GPUs are a tree of one edge, which takes only half of each one's NVLink.
    shared = 2 * total if cluster.gpus == 2 else total
    tree = next((speed for speed in speeds if ring.channels * speed <= shared), speeds[-1])
    nvls = NONE
    if _has_nvls(cluster):
        heads = min(cluster.gpus, constants().limits.nvls_gpus)
        speed = next((one for one in speeds if (heads + 1) * one <= total), speeds[-1])
        nvls = Graph(heads, speed, _raised(speeds, speed, speeds[0]))
    return Graphs(ring=ring, tree=Graph(ring.channels, tree, tree), nvls=nvls, same_channels=True)


def _network(cluster: Cluster) -> Graphs:
    speeds = constants(cluster.nccl).of_sm(cluster.sm).network
    gpus, nic = cluster.gpus, cluster.nic_gbyte_s
    inside = cluster.nvlink_gbyte_s * gpus / (gpus - 1) if gpus > 1 else float("inf")  # of all channels together
    outside = min(cluster.nics * nic, gpus * cluster.slot_gbyte_s)

    def fitting(speed: float) -> int:
        if speed > nic:
            return 0
        return int(min(cluster.nics * int(nic / speed), outside / speed, inside / speed))

    ring = _cut(cluster, _best(speeds, fitting, cluster.nvlink_gbyte_s), _most())
    between = ring.inter_gbyte_s
    tree = Graph(ring.channels, _raised(speeds, between, inside / ring.channels), between)
    return Graphs(
        ring=ring,
        tree=tree,
        collnet_chain=tree if cluster.sharp else NONE,
        collnet_direct=_collnet_direct(cluster, speeds) if cluster.sharp else NONE,
        nvls=_nvls(cluster, speeds) if _has_nvls(cluster) else NONE,
        same_channels=cluster.nics == 1,
        simple_tree=gpus == 1,
    )


def _collnet_direct(cluster: Cluster, speeds: Sequence[float]) -> Graph:
    """One channel for each head, the GPU of an adapter."""
    most = min(cluster.gpus, constants().limits.collnet_gpus)
    speed = next((one for one in speeds if one <= cluster.nic_gbyte_s), speeds[-1])
    heads = Graph(min(most, cluster.nics), speed, speed)
    whole = _cut(cluster, heads, most)
    return whole if whole != heads else Graph(heads.channels, _raised(speeds, speed, speeds[0]), speed)


def _nvls(cluster: Cluster, speeds: Sequence[float]) -> Graph:
    """One channel for each head; the head's own NVLink carries it twice."""
    heads = min(cluster.gpus, cluster.nics, constants().limits.nvls_gpus)
    total, nic = cluster.nvlink_gbyte_s, cluster.nic_gbyte_s
    found = _best(speeds, lambda speed: min(heads, int(total / speed) - 1) if speed <= nic else 0, total)
    return Graph(found.channels, found.intra_gbyte_s, _raised(speeds, found.inter_gbyte_s, nic))


def _has_nvls(cluster: Cluster) -> bool:
    return cluster.nvls and cluster.nvswitch and cluster.sm >= _HOPPER and cluster.gpus > 1


def _most() -> int:
    """Channels that the search may find: the communicator has two for each."""
    return constants().limits.channels // 2


def _best(speeds: Sequence[float], fitting: Callable[[float], int], enough_gbyte_s: float) -> Graph:
    """The speed at which the channels that fit are fastest in all, or the first that is fast enough."""
    best = NONE
    for speed in speeds:
        if best.channels and (
            speed < constants().search.again * best.inter_gbyte_s or best.total_gbyte_s >= enough_gbyte_s
        ):
            break
        channels = min(fitting(speed), _most())
        if channels * speed > best.total_gbyte_s:
            best = Graph(channels, speed, speed)
    if not best.channels:
        raise ConfigError(f"adapters slower than {speeds[-1]:g} GB/s are too slow for NCCL's search")
    return best


def _cut(cluster: Cluster, graph: Graph, most: int) -> Graph:
    """Fast channels in two."""
    cut, speed = constants().search, graph.intra_gbyte_s
    enough = cluster.sm > _AMPERE and speed < cut.cut_hopper_gbyte_s and graph.channels > cut.cut_hopper_channels
    channels = min(2 * graph.channels, most)
    if speed < cut.cut_gbyte_s or enough or channels == graph.channels:
        return graph
    return Graph(channels, speed / 2, graph.inter_gbyte_s / 2)


def _raised(speeds: Sequence[float], start: float, limit: float) -> float:
    """The next speeds of the list up to the limit, or to twice the start."""
    best = start
    for speed in reversed(speeds):
        if best >= 2 * start or speed > limit:
            break
        best = max(best, speed)
    return best
