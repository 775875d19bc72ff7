"""The parts of a collective's time, algorithm by algorithm.

launch      until the kernel runs
steps       of the longest path through GPUs and nodes, by NCCL's latencies (nccl.toml) and those of the network
pipeline    until the first chunk arrives, and waits of chunks for each other
data        all bytes at the rate of the slowest part: channels, NVLink or adapters
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import msgspec

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.case import (
    ADAPTERS,
    CHANNELS,
    NVLINK,
    PAYLOAD,
    Case,
    Parts,
    blackwell_ratio,
    block_gbyte_s,
    copies_gbyte_s,
    find,
    inside_name,
    nvls_gbyte_s,
    plugin_of,
    plugin_step_us,
)
from weft.collectives.nccl.cluster import Cluster, Processor
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.graphs import inside_gbyte_s
from weft.collectives.nccl.network import Pattern
from weft.collectives.nccl.times import Chunk

_BLACKWELL = 100
_TWO_NODES = 1  # the column of lists
_PROXIES, _PROXY_CHANNELS = 8, 2  # threads of a node, and channels of each, for which NCCL's figures of LL hold
_HEADS = 8  # GPUs of a node, for which the time of a meeting holds
_MANY_NODES = 4  # from which NVLS trees have small chunks


def parts(case: Case) -> Parts:
    return _OF[case.row.algorithm](case)


def _ring(case: Case) -> Parts:
    if case.collective in (Collective.BROADCAST, Collective.REDUCE):
        return _line(case)
    cluster = case.cluster
    steps = (cluster.ranks - 1) * (2 if case.collective == Collective.ALL_REDUCE else 1)
    crossings = ceil(steps / cluster.gpus) if cluster.nodes > 1 else 0
    step_bytes = case.size_bytes / cluster.ranks
    crossing_us = case.crossing_us(Pattern.RING, step_bytes / case.channels) if crossings else 0.0
    data = case.data(_ring_limits(case))
    # The processor that relays is also what limits the data of LL: the longer of the two counts.
    relay_us = crossings * _relay_us(case, step_bytes)
    pipeline_us = max(0.0, relay_us - data[1]) if data[0] == CHANNELS else relay_us
    # A step waits for a whole slice, unlike one of a line or a tree; adapters have other chunks to send meanwhile.
    alone = cluster.nodes == 1 and cluster.nvlink and case.row.protocol != Protocol.LL
    waits = case.fitted.of_sm(cluster.sm).ring_hop if alone else 1.0
    steps_us = (steps - crossings) * case.inside_us * waits + crossings * crossing_us
    pipeline_us += _local_us(case) + _drain_us(case)
    return case.parts(data, steps_us - _hidden_us(case, steps, crossings, data[1]), pipeline_us)


def _local_us(case: Case) -> float:
    """Return the time of the step that a GPU does alone: it copies its own part while its NVLinks are idle.

    Of n parts, an all_gather sends n - 1 and copies one, a reduce_scatter or all_reduce adds the last one into the
    result. With two GPUs that is a step for every one over NVLink. Thread blocks of the Simple protocol do it. Between
    nodes, adapters send other chunks meanwhile.
    """
    if case.row.protocol != Protocol.SIMPLE or case.cluster.nodes > 1:
        return 0.0
    return case.size_bytes / case.cluster.ranks / (case.channels * block_gbyte_s(case.cluster)) / 1000


def _drain_us(case: Case) -> float:
    """Return the time in which the last GPU copies the last slice, half a chunk, out of its buffer."""
    cluster = case.cluster
    if case.row.protocol != Protocol.SIMPLE or cluster.nodes > 1 or not cluster.nvlink:
        return 0.0
    most_bytes, chunk_bytes = 4 * case.fitted.chunk["ring"].most, case.size_bytes / cluster.ranks / case.channels
    slice_bytes = min(most_bytes, chunk_bytes) / 2
    return slice_bytes / block_gbyte_s(cluster) / 1000


def _hidden_us(case: Case, steps: int, crossings: int, data_us: float) -> float:
    """Return the part of a plugin's steps during which the adapters send other chunks.

    A node sends the chunks of its GPUs back to back, and each crosses again when it has come back to it. So either the
    adapters are busy from the first chunk to the last, and one step is left, or all steps and the chunks of one group.
    """
    if not crossings:
        return 0.0
    step_us = plugin_step_us(find(case.networks, Pattern.RING), case.fitted)
    return min((crossings - 1) * step_us, data_us * (1 - min(case.cluster.gpus / steps, 1.0)))


def _ring_limits(case: Case) -> dict[str, float]:
    """Return the limits of a ring as algorithm bandwidths."""
    cluster, protocol, limits = case.cluster, case.row.protocol, {}
    if protocol == Protocol.LL:
        limits[CHANNELS] = _ll_gbyte_s(case)
    elif protocol == Protocol.LL128:
        channel_gbyte_s = constants().of_sm(cluster.sm).ring_ll128_channel_gbyte_s[_scale(cluster)]
        limits[CHANNELS] = case.search_channels * channel_gbyte_s
    elif cluster.nodes > 1:
        limits[CHANNELS] = case.channels * _relaying_gbyte_s(case)
    if cluster.gpus > 1:
        # Between nodes a ring begins and ends at adapters: one hop of the GPUs' is not on NVLink.
        around = 1.0 if cluster.nodes == 1 or not cluster.nvlink else cluster.gpus / (cluster.gpus - 1)
        limits[inside_name(cluster)] = _inside_gbyte_s(case) * around * PAYLOAD[protocol]
    if cluster.nodes > 1:
        limits[ADAPTERS] = case.adapters_gbyte_s(Pattern.RING)
    factor = case.collective.bus_factor(cluster.ranks)
    return {name: bus_gbyte_s / factor for name, bus_gbyte_s in limits.items()}


def _relaying_gbyte_s(case: Case) -> float:
    """Return the throughput of a thread block that passes data on with Simple: half of what it takes and gives."""
    return block_gbyte_s(case.cluster) * case.fitted.bandwidth.relay


def _inside_gbyte_s(case: Case) -> float:
    """Return the bandwidth of a ring inside a node: NVLink, PCIe, or that of NCCL's log if there is no description."""
    cluster, ring = case.cluster, case.graphs.ring
    if cluster.nvlink:
        return copies_gbyte_s(cluster, case.fitted)
    return inside_gbyte_s(cluster) if cluster.board is not None else ring.channels * ring.intra_gbyte_s


def _scale(cluster: Cluster) -> int:
    """Return the index in lists for one node, two, more."""
    return min(cluster.nodes, 3) - 1


def _ll_gbyte_s(case: Case) -> float:
    """Return the bandwidth of LL: inside a node the GPU limits it, between nodes the processor that forwards it.

    A thread block does no more than its share of the channels of the search.
    """
    cluster = case.cluster
    if cluster.nodes == 1:
        every_gbyte_s = constants().of_sm(cluster.sm).ll_gbyte_s[0]
        return every_gbyte_s * min(1.0, case.channels / case.graphs.ring.channels)
    return _relayed_gbyte_s(cluster)[_scale(cluster)]


def _relay_us(case: Case, step_bytes: float) -> float:
    """Return the time of a processor to check every flag of LL in a step before it forwards it, channel by channel."""
    if case.row.protocol != Protocol.LL:
        return 0.0
    chunk_bytes = min(step_bytes / case.channels, case.fitted.chunk["ll"].most)
    own_channels = max(_PROXY_CHANNELS, case.channels / case.cluster.gpus)
    return chunk_bytes * own_channels * case.cluster.gpus / _relayed_gbyte_s(case.cluster)[_TWO_NODES] / 1000


def _relayed_gbyte_s(cluster: Cluster) -> tuple[float, float, float]:
    """Return the bandwidth of LL through this processor, for one node, two, more.

    NCCL's figures are those of nodes with eight GPUs, each of which has a thread that relays.
    """
    figures = constants().generation["ampere" if cluster.processor == Processor.AMD else "volta"].ll_gbyte_s
    one, two, more = (figure * cluster.gpus / _PROXIES for figure in figures)
    return one, two, more


def _line(case: Case) -> Parts:
    """Return the parts of a broadcast or reduce: a ring cut open, through which chunks follow each other.

    A GPU forwards a chunk of the Simple protocol when it has all of it, so the first chunk needs the time of one chunk
    for each hop. This does not count: a GPU starts the next call as soon as it has sent its last chunk, and so the
    pipeline stays full from one call to the next, as nccl-tests measures it.
    """
    cluster, crossings = case.cluster, case.cluster.nodes - 1
    crossing_us = case.crossing_us(Pattern.RING) if crossings else 0.0
    inside_us = (cluster.ranks - 1 - crossings) * case.inside_us
    return case.parts(case.data(_ring_limits(case)), inside_us + crossings * crossing_us)


def _chunk_of(case: Case) -> Chunk:
    protocol = case.row.protocol
    return case.fitted.chunk["ring" if protocol == Protocol.SIMPLE else protocol]


def _rounds(case: Case, chunk: Chunk, lanes: int, scale: float = 1.0) -> float:
    """Return the number of chunks that every lane carries."""
    return max(1.0, case.size_bytes / (lanes * chunk.of(case.size_bytes, lanes, scale)))


def _tree(case: Case) -> Parts:
    cluster, levels = case.cluster, case.levels
    n_peers, protocol = cluster.gpus - 1, case.row.protocol
    limits = {CHANNELS: _tree_gbyte_s(case)}
    crossing_us = peers_us = 0.0
    if n_peers:
        # Along the GPUs of a node each byte comes up and goes down again.
        limits[inside_name(cluster)] = _inside_gbyte_s(case) * PAYLOAD[protocol] * cluster.gpus / (2 * n_peers)
    if cluster.nodes > 1:
        limits[ADAPTERS] = case.adapters_gbyte_s(Pattern.TREE) / _tree_loads(cluster)
        peers_us = case.peer_us * min(2, cluster.nodes - 1)
    data = case.data(limits)
    chunk, scale = _chunk_of(case), 1.0
    if protocol == Protocol.LL128:
        chunk, scale = case.fitted.chunk["tree-ll128"], (1 + levels + 0.1 * cluster.gpus) / cluster.gpus
    rounds = _rounds(case, chunk, case.channels, scale)
    if levels:
        crossing_us = case.crossing_us(Pattern.TREE, case.size_bytes / rounds / case.channels)
    pipeline_us = (rounds - 1) * _waiting_us(case, limits, rounds, peers_us)
    if protocol == Protocol.SIMPLE:
        copy_us = case.size_bytes / rounds / case.channels / _relaying_gbyte_s(case) / 1000
        pipeline_us += 2 * n_peers * copy_us
    if levels:
        pipeline_us += (2 * levels - 1) * case.size_bytes / rounds / limits[ADAPTERS] / 1000
        pipeline_us += 2 * levels * _relay_us(case, case.size_bytes)
    return case.parts(data, 2 * (n_peers * case.inside_us + levels * crossing_us), pipeline_us)


def _waiting_us(case: Case, limits: dict[str, float], rounds: float, wait_us: float) -> float:
    """Return the time of a round beyond its data. GPUs wait; adapters have other chunks to send meanwhile.

    So a wait is hidden if the adapters are slower than the GPUs with it.
    """
    stages_us = {name: case.size_bytes / rounds / limit / 1000 for name, limit in limits.items()}
    return max(us + (0.0 if name == ADAPTERS else wait_us) for name, us in stages_us.items()) - max(stages_us.values())


def _tree_gbyte_s(case: Case) -> float:
    """Return the bandwidth of a tree's channels; each byte goes up and down."""
    cluster, generation = case.cluster, constants().of_sm(case.cluster.sm)
    simple = case.search_channels * generation.tree_channel_gbyte_s[_scale(cluster)]
    ll128 = case.search_channels * generation.tree_ll128_channel_gbyte_s[_scale(cluster)]
    return {
        Protocol.LL: min(simple * constants().factor.tree_ll, _ll_gbyte_s(case)),
        Protocol.LL128: min(simple * constants().factor.tree_ll128, ll128),
        Protocol.SIMPLE: simple,
    }[case.row.protocol] / 2


def _tree_loads(cluster: Cluster) -> int:
    """Return how often all bytes leave a node, up and down: once with two nodes, which have one neighbour."""
    return 1 if cluster.nodes == 2 else 2


def _nvls(case: Case) -> Parts:
    """Return the parts of NVLink multicast, with SHARP between nodes."""
    limits, steps_us = {NVLINK: _nvls_gbyte_s(case)}, case.inside_us
    if case.cluster.nodes > 1:
        limits |= _sharp_limit(case)
        steps_us += case.crossing_us(Pattern.TREE)
    return _heads(case, case.fitted.chunk["nvls"], steps_us, limits, levels=min(1, case.cluster.nodes - 1))


def _nvls_gbyte_s(case: Case) -> float:
    all_reduce = case.collective == Collective.ALL_REDUCE
    return nvls_gbyte_s(case.cluster, case.fitted) if all_reduce else case.row.algo_gbyte_s


def _sharp_limit(case: Case) -> dict[str, float]:
    """Return the limit of SHARP: all bytes go to the switches and back; an all-gather receives from other nodes."""
    nodes = case.cluster.nodes
    share = (nodes - 1) / nodes if case.collective == Collective.ALL_GATHER else 1.0
    return {ADAPTERS: case.adapters_gbyte_s(Pattern.TREE) / share}


def _nvls_tree(case: Case) -> Parts:
    cluster = case.cluster
    limits = {
        NVLINK: _nvls_gbyte_s(case),
        ADAPTERS: case.adapters_gbyte_s(Pattern.TREE) / _tree_loads(cluster),
    }
    steps_us = case.inside_us + 2 * case.levels * case.crossing_us(Pattern.TREE)
    plugin = plugin_of(find(case.networks, Pattern.TREE), case.fitted)
    most = plugin.chunk_bytes if plugin else _nvls_tree_bytes(cluster)
    chunk = msgspec.structs.replace(case.fitted.chunk["nvls-tree"], most=most)
    return _heads(case, chunk, steps_us, limits, levels=case.levels)


def _nvls_tree_bytes(cluster: Cluster) -> int:
    """Return the largest chunk of an NVLS tree: ncclNvlsTreeSm100Tuning since 2.30, else by nodes."""
    fast = constants().limits.nvls_fast_gbyte_s
    nic, gpus = cluster.nic_gbyte_s, cluster.gpus
    if cluster.sm < _BLACKWELL or not constants(cluster.nccl).rules.nvls_tree_tuned or nic < fast:
        return (64 if cluster.nodes >= _MANY_NODES else 128) << 10
    if cluster.nodes == 2:
        small = gpus >= 16 or (gpus <= 8 and cluster.near and nic < 2 * fast)
        return (256 if gpus <= 4 else 64 if small else 128) << 10
    if nic >= 2 * fast:
        return (256 if gpus <= 8 else 128 if gpus < 32 else 64) << 10
    return (64 if cluster.near else 128) << 10


def _collnet_direct(case: Case) -> Parts:
    arity_us = (case.cluster.gpus - 1) * constants().step.collnet_arity_us
    steps_us = 2 * (case.inside_us + arity_us) + case.crossing_us(Pattern.TREE)
    return _heads(case, case.fitted.chunk["collnet-direct"], steps_us, _collnet_limits(case), levels=0)


def _heads(case: Case, chunk: Chunk, steps_us: float, limits: dict[str, float], *, levels: int) -> Parts:
    """Return the parts if the GPUs of a node share every chunk: each is the head of some, and they synchronise.

    The network does not wait: if it is slower than the GPUs with their synchronisation, that is hidden.
    """
    pipeline, cluster = case.fitted.pipeline, case.cluster
    heads = min(cluster.gpus, cluster.nics) if cluster.nodes > 1 else cluster.gpus
    data = bound, _ = case.data(limits)
    rounds = _rounds(case, chunk, case.channels * heads)
    # A GPU copies its part for each head, and signals it, one head after the other.
    wait_us = pipeline.meeting_us * heads / _HEADS * blackwell_ratio(cluster, case.fitted)
    wait_us += case.peer_us if cluster.nodes > 1 else 0.0
    filling_us = (pipeline.fill + levels * pipeline.fill_level) * case.size_bytes / rounds / limits[bound] / 1000
    return case.parts(data, steps_us, filling_us + (ceil(rounds) - 1) * _waiting_us(case, limits, rounds, wait_us))


def _collnet_chain(case: Case) -> Parts:
    """Return the parts of a chain along the GPUs of a node to the head and back, one neighbour at a time."""
    cluster = case.cluster
    hops = 2 * (cluster.gpus - 1)
    data = case.data(_collnet_limits(case))
    rounds = _rounds(case, case.fitted.chunk["collnet-chain"], case.channels, cluster.gpus)
    copy_us = case.size_bytes / rounds / case.channels / _relaying_gbyte_s(case) / 1000
    return case.parts(data, hops * case.inside_us + case.crossing_us(Pattern.TREE), hops * copy_us + data[1] / rounds)


def _collnet_limits(case: Case) -> dict[str, float]:
    """Return the limits of CollNet; that of the GPUs is NCCL's figure, which includes how many share a head."""
    return {CHANNELS: case.row.algo_gbyte_s, **_sharp_limit(case)}


def _pat(case: Case) -> Parts:
    """Return the parts of PAT, with one GPU in each node. Steps overlap, but not the extra latency of a network."""
    step, ranks = constants().step, case.cluster.ranks
    factor = case.collective.bus_factor(ranks)
    data = case.data({CHANNELS: case.row.algo_gbyte_s, ADAPTERS: case.adapters_gbyte_s(Pattern.RING) / factor})
    level_us = case.crossing_us(Pattern.RING) - case.network_us * (1 - 1 / step.pat_overlap)
    return case.parts(data, case.levels * level_us + ranks * step.pat_us)


_OF: dict[Algorithm, Callable[[Case], Parts]] = {
    Algorithm.TREE: _tree,
    Algorithm.RING: _ring,
    Algorithm.COLLNET_DIRECT: _collnet_direct,
    Algorithm.COLLNET_CHAIN: _collnet_chain,
    Algorithm.NVLS: _nvls,
    Algorithm.NVLS_TREE: _nvls_tree,
    Algorithm.PAT: _pat,
}
