"""Results of NCCL's topology search: the number of channels, and their speeds inside a node and between nodes.

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

Without NVSwitches the board decides (`weft.collectives.nccl.board`). Over PCIe a ring inside a node passes each lane of
the tree once, and the slowest is shared by all channels. Between nodes every other channel enters at one processor's
adapter and leaves at the other's, so that the link between these carries half of them each way; not through AMD's,
where NCCL wants all channels equal. Where NVLinks join each GPU with each other one, rings are laid so that each pair's
links are filled: of n GPUs, n-1 rings for each channel that fits between two of them; of four, of which rings in one
direction do not fill all pairs (Tillson, 1980), one less where that number is odd.

For machines without a description, `Cluster(gpus=8, nvlinks=0)`, take it from NCCL's log (`NCCL_DEBUG=INFO
NCCL_DEBUG_SUBSYS=GRAPH`, lines `Pattern 4, crossNic 0, nChannels 12, bw 30/30`) and give it as `Graphs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from weft.collectives.nccl.cluster import Cluster, Processor
from weft.collectives.nccl.constants import constants
from weft.errors import ConfigError

_NO_DIRECTED_RINGS = 4  # GPUs, each joined with each, whose links are not the sum of rings in one direction
_BLACKWELL = 100
_HOPPER = 90
_AMPERE = 80
_NVLS_FEW_GPUS = 8


@dataclass(frozen=True, slots=True)
class Graph:
    """The channels of one pattern. `intra` and `inter` are the speeds of a channel inside and between nodes."""

    channels: int
    intra_gbyte_s: float
    inter_gbyte_s: float

    @property
    def total_gbyte_s(self) -> float:
        """Return the bandwidth of all channels between nodes."""
        return self.channels * self.inter_gbyte_s

    def __str__(self) -> str:
        return f"{self.channels} × {self.intra_gbyte_s:g}/{self.inter_gbyte_s:g} GB/s"


NONE = Graph(channels=0, intra_gbyte_s=0.0, inter_gbyte_s=0.0)
_SIMPLE_ORDER = Graph(channels=1, intra_gbyte_s=0.1, inter_gbyte_s=0.1)  # NCCL's default if its search fails


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """The results of the search for each pattern."""

    ring: Graph
    tree: Graph
    collnet_chain: Graph = NONE
    collnet_direct: Graph = NONE
    nvls: Graph = NONE
    same_channels: bool = False  # all rings go the same way
    simple_tree: bool = False  # all network traffic of a tree's channel through one GPU

    def channels(self, cluster: Cluster) -> int:
        """Return the channels of the communicator (`16 coll channels` in NCCL's log)."""
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
        """Return the channels of NVLS (`16 nvls channels` in NCCL's log)."""
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
    """Return the results of NCCL's search on these nodes."""
    if cluster.gpus > 1 and not cluster.nvlink and cluster.board is None:
        raise ConfigError(
            f"{cluster}: without NVSwitches NCCL's channels hang on every PCIe bridge. Name the server, "
            f"from_server('ovx-l40s', nodes=1), or take them from the log of NCCL_DEBUG_SUBSYS=GRAPH, and give them as "
            f"graphs=Graphs(ring=..., tree=...)"
        )
    return _one_node(cluster) if cluster.nodes == 1 else _network(cluster)


def _one_node(cluster: Cluster) -> Graphs:
    total, speeds = inside_gbyte_s(cluster), constants(cluster.nccl).of_sm(cluster.sm).one_node
    best = _best(speeds, lambda speed: _ring_channels(cluster, total, speed), _enough_gbyte_s(cluster), _most(cluster))
    if not best.channels:
        return Graphs(ring=_SIMPLE_ORDER, tree=_SIMPLE_ORDER, same_channels=True)
    ring = _cut(cluster, best, _most(cluster))
    # Two GPUs are a tree of one edge, which takes only half of each one's NVLink.
    shared = 2 * total if cluster.gpus == 2 and cluster.nvlink else total
    if cluster.board is not None and not cluster.nvlink:
        tree = next((each for each in speeds if _path_channels(cluster, each) >= ring.channels), speeds[-1])
    else:
        tree = next((speed for speed in speeds if ring.channels * speed <= shared), speeds[-1])
    nvls = NONE
    if _has_nvls(cluster):
        heads = min(cluster.gpus, constants().limits.nvls_gpus)
        speed = next((each for each in speeds if (heads + 1) * each <= total), speeds[-1])
        nvls = Graph(heads, speed, _raised(speeds, speed, speeds[0]))
    return Graphs(ring=ring, tree=Graph(ring.channels, tree, tree), nvls=nvls, same_channels=True)


def _network(cluster: Cluster) -> Graphs:
    speeds = constants(cluster.nccl).of_sm(cluster.sm).network
    gpus, nic = cluster.gpus, cluster.nic_gbyte_s
    inside = inside_gbyte_s(cluster) if gpus > 1 else float("inf")  # all channels together
    outside = min(cluster.nics * nic, gpus * cluster.slot_gbyte_s)

    def fitting(speed: float) -> int:
        if speed > nic:
            return 0
        rings = _path_channels(cluster, speed) if _alternates(cluster) else inside / speed
        return int(min(cluster.nics * int(nic / speed), outside / speed, rings))

    best = _best(speeds, fitting, _enough_gbyte_s(cluster), _most(cluster))
    if not best.channels:
        raise ConfigError(f"adapters slower than {speeds[-1]:g} GB/s are too slow for NCCL's search")
    ring = _cut(cluster, best, _most(cluster))
    between = ring.inter_gbyte_s
    tree = Graph(ring.channels, _raised(speeds, between, inside / ring.channels), between)
    if cluster.board is not None and cluster.sm < _HOPPER and gpus > 1:
        tree = _balanced(cluster, speeds, tree)
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
    """Return one channel for each head, the GPU of an adapter."""
    most = min(cluster.gpus, constants().limits.collnet_gpus)
    speed = next((each for each in speeds if each <= cluster.nic_gbyte_s), speeds[-1])
    heads = Graph(min(most, cluster.nics), speed, speed)
    whole = _cut(cluster, heads, most)
    return whole if whole != heads else Graph(heads.channels, _raised(speeds, speed, speeds[0]), speed)


def _nvls(cluster: Cluster, speeds: Sequence[float]) -> Graph:
    """Return one channel for each head, whose NVLink carries it twice."""
    heads = min(cluster.gpus, cluster.nics, constants().limits.nvls_gpus)
    total, nic = cluster.nvlink_gbyte_s, cluster.nic_gbyte_s
    best = _best(speeds, lambda speed: min(heads, int(total / speed) - 1) if speed <= nic else 0, total, _most(cluster))
    return Graph(best.channels, best.intra_gbyte_s, _raised(speeds, best.inter_gbyte_s, nic))


def _has_nvls(cluster: Cluster) -> bool:
    return cluster.nvls and cluster.nvswitch and cluster.sm >= _HOPPER and cluster.gpus > 1


def _most(cluster: Cluster) -> int:
    """Return the most channels of the search; the communicator has two for each."""
    return constants(cluster.nccl).limits.channels // 2


def _best(speeds: Sequence[float], fitting: Callable[[float], int], enough_gbyte_s: float, most: int) -> Graph:
    """Return the channels with the highest total bandwidth, or the first with enough."""
    best = NONE
    for speed in speeds:
        if best.channels and (
            speed < constants().search.again * best.inter_gbyte_s or best.total_gbyte_s >= enough_gbyte_s
        ):
            break
        channels = min(fitting(speed), most)
        if channels * speed > best.total_gbyte_s:
            best = Graph(channels, speed, speed)
    return best


def inside_gbyte_s(cluster: Cluster) -> float:
    """Return the bandwidth of a ring inside a node by NCCL's count; between nodes one hop is not on NVLink."""
    if cluster.board is None or cluster.nvlink or cluster.gpus == 1:
        around = cluster.gpus / (cluster.gpus - 1) if cluster.nodes > 1 and cluster.gpus > 1 else 1.0
        return cluster.nvlink_gbyte_s * around
    ring = cluster.board.path_gbyte_s if _alternates(cluster) else cluster.board.ring_gbyte_s
    return ring(cluster.gpus, cluster.link_gbyte_s)


def _alternates(cluster: Cluster) -> bool:
    """Return whether channels over PCIe pass a node in alternating directions."""
    board = cluster.board
    over_pcie = cluster.nodes > 1 and cluster.gpus > 1 and not cluster.nvlink
    return over_pcie and board is not None and board.open and cluster.processor != Processor.AMD


def _path_channels(cluster: Cluster, speed: float) -> int:
    """Return the number of paths of that speed through the GPUs of a node over PCIe, in alternating directions."""
    assert cluster.board is not None
    gpus_and_rate = cluster.gpus, cluster.link_gbyte_s
    both, one_way = cluster.board.path_gbyte_s(*gpus_and_rate), cluster.board.one_way_gbyte_s(*gpus_and_rate)
    return min(int(both / speed), 2 * int(one_way / speed))


def _balanced(cluster: Cluster, speeds: Sequence[float], tree: Graph) -> Graph:
    """Return a tree's channels before Hopper, where two GPUs share an adapter and half of the data goes between them.

    On a board of four these two are below one processor, so their links carry two channels.
    """
    if not cluster.nvlink:
        most = cluster.slot_gbyte_s / (tree.channels + 0.5)
        speed = next(candidate for candidate in speeds if candidate <= min(most, tree.inter_gbyte_s))
        return Graph(tree.channels, speed, speed)
    each = tree.channels // cluster.gpus
    if not each:
        return tree
    most = (cluster.pair_gbyte_s - each * tree.inter_gbyte_s / 2) / (2 * each)
    return Graph(tree.channels, _raised(speeds, tree.inter_gbyte_s, min(most, tree.intra_gbyte_s)), tree.inter_gbyte_s)


def _ring_channels(cluster: Cluster, total_gbyte_s: float, speed: float) -> int:
    """Return the number of rings of that speed in one node."""
    if cluster.board is None or not cluster.nvlink:
        return int(total_gbyte_s / speed)
    each = int(cluster.pair_gbyte_s / speed)
    rings = each * round(cluster.nvlink_gbyte_s / cluster.pair_gbyte_s)
    return rings - (each % 2 if cluster.gpus == _NO_DIRECTED_RINGS else 0)


def _enough_gbyte_s(cluster: Cluster) -> float:
    """Return the total bandwidth at which NCCL stops searching: a GPU's NVLink, or its slot."""
    return max(cluster.nvlink_gbyte_s, cluster.slot_gbyte_s)


def _cut(cluster: Cluster, graph: Graph, most: int) -> Graph:
    """Split fast channels in two."""
    cut, speed = constants().search, graph.intra_gbyte_s
    enough = cluster.sm > _AMPERE and speed < cut.cut_hopper_gbyte_s and graph.channels > cut.cut_hopper_channels
    channels = min(2 * graph.channels, most)
    if speed < cut.cut_gbyte_s or enough or channels == graph.channels:
        return graph
    return Graph(channels, speed / 2, graph.inter_gbyte_s / 2)


def _raised(speeds: Sequence[float], start: float, limit: float) -> float:
    """Return the highest speed of the list up to the limit and up to twice the start."""
    best = start
    for speed in reversed(speeds):
        if best >= 2 * start or speed > limit:
            break
        best = max(best, speed)
    return best
