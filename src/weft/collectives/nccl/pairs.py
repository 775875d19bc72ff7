"""Collectives that NCCL does with sends and receives between pairs: all_to_all, gather, scatter, send_recv.

    GPU -- channels of the pair --> adapter of the peer's rail --> GPU        14 Gbyte/s for each channel
                 one proxy thread posts every chunk, in and out               3 posts for 128 KiB

A GPU's network traffic goes through the adapter of the peer's rail (PXN), so all adapters of a node share it. NCCL
gives a pair as many channels as its adapter needs at 14 Gbyte/s each, and fewer where there are so many peers that
channels run out. One proxy thread for each adapter sends, receives and flushes chunk by chunk, which is the limit of
fast adapters where posting is slow. For N nodes, the bus bandwidth of an all_to_all is N/(N-1) times what the network
gives to each GPU.
"""

from __future__ import annotations

from math import ceil

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.case import (
    ADAPTERS,
    CHANNELS,
    PROXIES,
    Parts,
    adapters_gbyte_s,
    block_gbyte_s,
    crossing_us,
    find,
    hop_ratio,
    inside_name,
    plugin_of,
    post_us,
    posts,
    rendezvous_us,
    simple_start_us,
)
from weft.collectives.nccl.cluster import Cluster, Processor
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.graphs import Graphs, search
from weft.collectives.nccl.network import Networks, Pattern
from weft.collectives.nccl.times import Times, times

_BLACKWELL = 100
_BY_BANDWIDTH = (2, 29)  # the first NCCL that counts a pair's channels by bandwidth
_BY_PEERS = (2, 20)  # and the first that takes fewer where peers are many
_INSIDE, _OUTSIDE = 0, 1


def pairs_protocol(cluster: Cluster, collective: Collective, size_bytes: int) -> Protocol:
    """Return the protocol of sends between pairs: LL for small messages."""
    peer_bytes = size_bytes if collective == Collective.SEND_RECV else size_bytes / cluster.ranks
    return Protocol.LL if peer_bytes <= times().pairs.ll_bytes else Protocol.SIMPLE


def pairs_channels(cluster: Cluster, graphs: Graphs | None = None, requested: int | None = None) -> int:
    """Return the channels of all sends between pairs, a power of two (`16 p2p channels` in NCCL's log); 0: unknown."""
    if requested is None and graphs is None and cluster.gpus > 1 and not cluster.nvlink and cluster.board is None:
        return 0
    channels = requested or (graphs or search(cluster)).channels(cluster)
    return min(_power_up(channels), constants(cluster.nccl).limits.channels)


def channels_per_peer(cluster: Cluster, channels: int) -> int:
    """Return the channels of a pair between nodes: enough to fill an adapter, fewer with many peers.

    See ncclTopoComputeP2pChannels.
    """
    pairs, ranks = times().pairs, cluster.ranks
    if _version(cluster) < _BY_BANDWIDTH:
        few = 2
        while _version(cluster) >= _BY_PEERS and few * ranks > 4 * channels and few > 1:
            few //= 2
        return min(few, channels)
    each = _power_up(max(1, ceil(int(cluster.nic_gbyte_s) / pairs.channel_gbyte_s)))
    while each > 1 and each * ceil(ranks / pairs.channel_peers) > channels:
        each //= 2
    return each


def _version(cluster: Cluster) -> tuple[int, ...]:
    return tuple(int(part) for part in constants(cluster.nccl).version.split(".")[:2])


def _power_up(value: int) -> int:
    return 1 << (value - 1).bit_length()


def pairs_parts(
    cluster: Cluster,
    collective: Collective,
    size_bytes: int,
    protocol: Protocol,
    networks: Networks,
    fitted: Times,
    channels: int = 0,
    chunk_bytes: int | None = None,
) -> Parts:
    """Return the parts of the time; `chunk_bytes` is NCCL_P2P_NET_CHUNKSIZE, by default NCCL's value."""
    latency, index = constants().latency_us, list(Protocol).index(protocol)
    inside = latency.nvlink if cluster.gpus > 1 and cluster.nvlink else latency.pcie
    steps_us = inside[Algorithm.RING][index] * hop_ratio(cluster, protocol, fitted)
    inside_bytes = _wire_bytes(cluster, collective, size_bytes, protocol, _INSIDE)
    times_us = {inside_name(cluster): inside_bytes / _inside_gbyte_s(cluster, collective, fitted)}
    if channels:
        times_us[CHANNELS] = inside_bytes / (channels * block_gbyte_s(cluster))
    if cluster.nodes > 1:
        network = find(networks, Pattern.PAIRS)
        one_pair = collective == Collective.SEND_RECV
        away = 1 if one_pair else cluster.ranks - cluster.gpus
        own_us = post_us(cluster, network)
        # A thread posts a send and a receive for each peer, of which the first is in the latency already.
        crossing = crossing_us(cluster, network, latency.network[Algorithm.TREE][index], protocol, fitted)
        out_bytes = _wire_bytes(cluster, collective, size_bytes, protocol, _OUTSIDE)
        crossing += rendezvous_us(cluster, network, fitted, protocol, out_bytes / away)
        steps_us = crossing + (2 * away - 1) * own_us
        # To one peer, or to and from the root: through the adapters of one rail, that of the GPU at the far end.
        rails = min(cluster.nics, cluster.gpus)
        sharing = cluster.gpus if collective == Collective.ALL_TO_ALL else rails
        times_us[ADAPTERS] = out_bytes * sharing / adapters_gbyte_s(cluster, network, fitted)
        plugin = plugin_of(network, fitted)
        most = chunk_bytes or (plugin.chunk_bytes if plugin else _chunk_bytes(cluster))
        times_us[PROXIES] = posts(protocol) * own_us * 1000 * out_bytes / most * sharing / rails
        if channels:
            carry = channels_per_peer(cluster, channels) if one_pair else channels
            outside_us = out_bytes / (carry * fitted.pairs.channel_gbyte_s)
            times_us[CHANNELS] = max(times_us[CHANNELS], outside_us)
        if collective == Collective.ALL_TO_ALL and cluster.gpus > 1 and not cluster.nvlink:
            # Both ways go through the PCIe slots of the GPUs.
            times_us[inside_name(cluster)] += max(times_us[ADAPTERS], times_us[PROXIES])
    bound = max(times_us, key=lambda name: times_us[name])
    ll_us = fitted.of_sm(cluster.sm).ll_launch_us + fitted.pairs.ll_start_us
    simple_us = latency.base[Algorithm.RING][index] + simple_start_us(cluster, protocol, fitted)
    return Parts(
        launch_us=ll_us if protocol == Protocol.LL else simple_us,
        steps_us=steps_us,
        pipeline_us=_local_us(cluster, collective, size_bytes, protocol, fitted, channels),
        data_us=times_us[bound] / 1000,
        bound=bound,
    )


def _local_us(
    cluster: Cluster, collective: Collective, size_bytes: int, protocol: Protocol, fitted: Times, channels: int
) -> float:
    """Return the time of copies inside a GPU: of the part that it sends to itself, and of the last chunk that arrives.

    Thread blocks of the Simple protocol make them; between nodes, adapters send other chunks meanwhile.
    """
    alone = cluster.nodes == 1 and cluster.nvlink and protocol == Protocol.SIMPLE
    if collective != Collective.ALL_TO_ALL or not (alone and channels):
        return 0.0
    own_bytes = size_bytes / cluster.ranks
    last_bytes = min(fitted.chunk["ring"].most, own_bytes / max(1, channels // cluster.ranks))
    return (own_bytes / channels + last_bytes) / block_gbyte_s(cluster) / 1000


def _inside_gbyte_s(cluster: Cluster, collective: Collective, fitted: Times) -> float:
    """Return the rate of the busiest GPU inside its node; with direct NVLinks one peer has those of a pair."""
    if cluster.nvlink:
        one_peer = collective == Collective.SEND_RECV and cluster.gpus > 1
        return (
            cluster.nvlink_gbyte_s
            * fitted.pairs.nvlink
            * (cluster.pair_gbyte_s / cluster.nvlink_gbyte_s if one_peer else 1.0)
        )
    if cluster.board is None or cluster.gpus == 1:
        return cluster.slot_gbyte_s
    board, link_gbyte_s = cluster.board, cluster.link_gbyte_s
    rate = {Collective.SEND_RECV: board.ring_gbyte_s, Collective.ALL_TO_ALL: board.all_to_all_gbyte_s}
    return rate.get(collective, board.gather_gbyte_s)(cluster.gpus, link_gbyte_s)


def _wire_bytes(cluster: Cluster, collective: Collective, size_bytes: int, protocol: Protocol, where: int) -> float:
    """Return the bytes of the busiest GPU, to all others or to other nodes; LL adds a flag to every word."""
    flags = 2 if protocol == Protocol.LL else 1
    if collective == Collective.SEND_RECV:
        return size_bytes * flags
    peers = cluster.ranks - (cluster.gpus if where == _OUTSIDE else 1)
    if where == _INSIDE and not cluster.nvlink:
        peers = cluster.gpus - 1  # over PCIe nothing goes to the adapter of another GPU
    return size_bytes * flags * peers / cluster.ranks


def _chunk_bytes(cluster: Cluster) -> int:
    pairs = times().pairs
    grace = cluster.sm >= _BLACKWELL and cluster.processor == Processor.ARM
    return pairs.chunk_bytes_grace if grace else pairs.chunk_bytes
