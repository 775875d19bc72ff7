"""Collectives that NCCL does with sends and receives between pairs: all_to_all, gather, scatter, send_recv.

A GPU's network traffic goes through the adapter of the peer's rail (PXN), so all adapters of a node share it. One
proxy thread for each adapter moves it chunk by chunk, which is the limit of fast adapters. For N nodes, the bus
bandwidth of an all_to_all is N/(N-1) times what the network gives to each GPU.
"""

from __future__ import annotations

from weft.collectives.cluster import Cluster, Processor
from weft.collectives.constants import constants
from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.network import Networks, Pattern
from weft.collectives.parts import (
    ADAPTERS,
    CHANNELS,
    Parts,
    adapters_gbyte_s,
    copies_gbyte_s,
    crossing_us,
    find,
    inside_name,
    post_ratio,
)
from weft.collectives.times import Times, times

_BLACKWELL = 100
_INSIDE, _OUTSIDE = 0, 1


def pairs_protocol(cluster: Cluster, collective: Collective, size_bytes: int) -> Protocol:
    """LL for little messages."""
    peer_bytes = size_bytes if collective == Collective.SEND_RECV else size_bytes / cluster.ranks
    return Protocol.LL if peer_bytes <= times().pairs.ll_bytes else Protocol.SIMPLE


def pairs_parts(
    cluster: Cluster,
    collective: Collective,
    size_bytes: int,
    protocol: Protocol,
    networks: Networks,
    fitted: Times,
    chunk_bytes: int | None = None,
) -> Parts:
    """`chunk_bytes` of the network's, as NCCL_P2P_NET_CHUNKSIZE has it; None: as NCCL takes it."""
    latency, index = constants().latency_us, list(Protocol).index(protocol)
    inside = latency.nvlink if cluster.gpus > 1 and cluster.nvlink else latency.pcie
    steps_us = inside[Algorithm.RING][index]
    inside_bytes = _wire_bytes(cluster, collective, size_bytes, protocol, _INSIDE)
    times_us = {inside_name(cluster): inside_bytes / _inside_gbyte_s(cluster, collective, fitted)}
    if cluster.nodes > 1:
        network = find(networks, Pattern.PAIRS)
        away = 1 if collective == Collective.SEND_RECV else cluster.ranks - cluster.gpus
        post_us = constants().step.network_post_us * post_ratio(cluster, network)
        steps_us = crossing_us(cluster, network, latency.network[Algorithm.TREE][index], fitted) + away * post_us
        out_bytes = _wire_bytes(cluster, collective, size_bytes, protocol, _OUTSIDE)
        # To one peer, or to and from the root: through the adapters of one rail, that of the GPU at the far end.
        rails = min(cluster.nics, cluster.gpus)
        sharing = cluster.gpus if collective == Collective.ALL_TO_ALL else rails
        chunk_us = fitted.pairs.chunk_us * out_bytes / (chunk_bytes or _chunk_bytes(cluster))
        times_us[ADAPTERS] = out_bytes * sharing / adapters_gbyte_s(cluster, network, fitted)
        times_us[CHANNELS] = chunk_us * 1000 * sharing / rails
    bound = max(times_us, key=lambda name: times_us[name])
    return Parts(
        launch_us=latency.base[Algorithm.RING][index],
        steps_us=steps_us,
        pipeline_us=0.0,
        data_us=times_us[bound] / 1000,
        bound=bound,
    )


def _inside_gbyte_s(cluster: Cluster, collective: Collective, fitted: Times) -> float:
    """What the busiest GPU sends or receives inside its node. On NVLinks between GPUs, one peer has those of a pair."""
    if cluster.nvlink:
        one_peer = collective == Collective.SEND_RECV and cluster.gpus > 1
        return copies_gbyte_s(cluster, fitted) * (cluster.pair_gbyte_s / cluster.nvlink_gbyte_s if one_peer else 1.0)
    if cluster.board is None or cluster.gpus == 1:
        return cluster.slot_gbyte_s
    board, link_gbyte_s = cluster.board, cluster.link_gbyte_s
    rate = {Collective.SEND_RECV: board.ring_gbyte_s, Collective.ALL_TO_ALL: board.all_to_all_gbyte_s}
    return rate.get(collective, board.gather_gbyte_s)(cluster.gpus, link_gbyte_s)


def _wire_bytes(cluster: Cluster, collective: Collective, size_bytes: int, protocol: Protocol, where: int) -> float:
    """That the busiest GPU sends or receives, to all others or to other nodes; LL sends a flag with every word."""
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
