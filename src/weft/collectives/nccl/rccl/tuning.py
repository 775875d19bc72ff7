"""RCCL's tuning model: the time that RCCL expects of each algorithm and protocol, and its choice.

The time of n bytes is latency + n / bandwidth, as in NCCL's model (`weft.collectives.nccl.tuning`), with other
constants and a factor on the bandwidth for each power of two. RCCL then sets aside the protocol of the row: between
nodes it has ranges of sizes for each (rcclUpdateCollectiveProtocol); and in one node of eight MI300X, MSCCL's all-pairs
schedules replace small all-reduces. (ncclTopoTuneModel, ncclTopoGetAlgoTime in src/graph/tuning.cc; src/rccl_wrap.cc.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.rccl.constants import architecture, model, times
from weft.errors import ConfigError

_PROTOCOLS = (Protocol.LL, Protocol.LL128, Protocol.SIMPLE)
_NAMES = {Protocol.LL: "ll", Protocol.LL128: "ll128", Protocol.SIMPLE: "simple"}
_SCATTERED = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
_PER_RANK = (*_SCATTERED, Collective.BROADCAST)
_ROOTED = (Collective.BROADCAST, Collective.REDUCE)
_LEAST_BYTES = 64  # of the factors


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The estimate of RCCL for one algorithm and protocol."""

    algorithm: Algorithm
    protocol: Protocol
    latency_us: float
    algo_gbyte_s: float  # without the factor of a size


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The choice of RCCL; `algorithm` is None for MSCCL's all-pairs."""

    algorithm: Algorithm | None
    protocol: Protocol
    channels: int


def rows(cluster: Cluster, collective: Collective) -> tuple[Row, ...]:
    """Return the rows that are on, in the order in which RCCL compares them."""
    algorithms = (Algorithm.TREE, Algorithm.RING) if collective == Collective.ALL_REDUCE else (Algorithm.RING,)
    return tuple(
        _row(cluster, collective, algorithm, protocol)
        for algorithm in algorithms
        for protocol in _PROTOCOLS
        if _is_on(cluster, algorithm, protocol)
    )


def _is_on(cluster: Cluster, algorithm: Algorithm, protocol: Protocol) -> bool:
    own = architecture(cluster.gcn)
    if cluster.algorithms and algorithm not in cluster.algorithms:
        return False
    if cluster.protocols and protocol not in cluster.protocols:
        return False
    if protocol == Protocol.LL128 and not (own.ratio_two["ring"][1] and cluster.near):
        return False
    # RCCL leaves out trees with Simple in one node of gfx94.
    return not (
        algorithm == Algorithm.TREE and protocol == Protocol.SIMPLE and cluster.nodes == 1 and _is_gfx94(cluster)
    )


def _is_gfx94(cluster: Cluster) -> bool:
    return cluster.gcn.startswith("gfx94")


def _row(cluster: Cluster, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> Row:
    own, column = architecture(cluster.gcn), _PROTOCOLS.index(protocol)
    name = "tree" if algorithm == Algorithm.TREE else "ring"
    nodes, ranks = cluster.nodes, cluster.ranks
    inside_us, network_us = own.inside_us[name][column], own.network_us[name][column]
    ratio = (own.ratio_two if nodes <= 2 else own.ratio_more)[name][column]
    bus_gbyte_s = inside_gbyte_s(cluster) * ratio
    latency_us = model().base_us[column]
    if algorithm == Algorithm.TREE:
        latency_us += 2 * ((cluster.gpus - 1) * inside_us + int(log2(nodes)) * network_us)
        return Row(algorithm=algorithm, protocol=protocol, latency_us=latency_us, algo_gbyte_s=bus_gbyte_s / 2)
    steps = ring_steps(collective, ranks)
    crossings = 0 if nodes == 1 else nodes - 1 if collective != Collective.ALL_REDUCE else 2 * (nodes - 1)
    if collective in _ROOTED:  # channels go the same way: RCCL counts one step
        latency_us += inside_us if nodes == 1 else network_us
    else:
        overhead_us = 0.0 if nodes == 1 else model().overhead_us * (3 if protocol == Protocol.SIMPLE else 1)
        latency_us += (steps - crossings) * max(inside_us, overhead_us) + crossings * network_us
    return Row(algorithm=algorithm, protocol=protocol, latency_us=latency_us, algo_gbyte_s=bus_gbyte_s * ranks / steps)


def ring_steps(collective: Collective, ranks: int) -> int:
    """Return the steps of a ring by RCCL's count."""
    if collective in _ROOTED:
        return ranks
    return (ranks - 1) * (2 if collective == Collective.ALL_REDUCE else 1)


def expected_us(cluster: Cluster, row: Row, size_bytes: int) -> float:
    """Return RCCL's own estimate of a row for a size."""
    own = architecture(cluster.gcn)
    power = min(26, max(0, (max(size_bytes, 1) // _LEAST_BYTES).bit_length() - 1))
    factors: dict[str, tuple[float, ...]] = {}
    if row.algorithm == Algorithm.TREE:
        factors = own.tree
    elif cluster.nodes > 1:
        factors = own.ring
    factor = factors[_NAMES[row.protocol]][power] if factors else 1.0
    return row.latency_us + size_bytes / (1000 * row.algo_gbyte_s * factor)


@lru_cache(maxsize=4096)  # the same for every network
def choose(cluster: Cluster, collective: Collective, size_bytes: int) -> Choice:
    """Return RCCL's choice for a collective of this size; `size_bytes` is the larger of a rank's two buffers."""
    own = architecture(cluster.gcn)
    lanes = own.channels[0 if cluster.nodes == 1 else 1]
    if (
        collective == Collective.ALL_REDUCE
        and (cluster.nodes, cluster.gpus) == (1, model().msccl_gpus)
        and not (cluster.algorithms or cluster.protocols)
    ):
        for name, least, most, channels in own.all_pairs:
            if least <= size_bytes <= most:
                return Choice(algorithm=None, protocol=_protocol(name), channels=channels)
    every = rows(cluster, collective)
    if not every:
        raise ConfigError(
            f"NCCL_ALGO and NCCL_PROTO leave nothing for {collective} on {cluster}: RCCL has Ring and Tree for "
            f"all_reduce, Ring for others, with LL, LL128 or Simple"
        )
    best = min(every, key=lambda row: expected_us(cluster, row, size_bytes))
    protocol = best.protocol if cluster.protocols else _ranged(cluster, collective, size_bytes, best.protocol)
    return Choice(algorithm=best.algorithm, protocol=protocol, channels=lanes)


def _protocol(name: str) -> Protocol:
    return next(protocol for protocol, own in _NAMES.items() if own == name)


def _ranged(cluster: Cluster, collective: Collective, size_bytes: int, chosen: Protocol) -> Protocol:
    """Return the protocol by RCCL's ranges of sizes; without a range, the chosen one."""
    own, name = architecture(cluster.gcn), str(collective)
    part_bytes = size_bytes // cluster.ranks if collective in _PER_RANK else size_bytes
    if cluster.nodes == 1:
        return Protocol.LL if part_bytes <= own.ll_one_node.get(name, -1) else chosen
    if name not in own.ll:
        return chosen
    (least, most), (least128, most128) = own.ll[name], own.ll128[name]
    if collective == Collective.ALL_REDUCE and cluster.nodes > 2:
        most128 = int(most128 * model().ll128_factor_more)
    if cluster.near and least128 < part_bytes <= most128:
        return Protocol.LL128
    return Protocol.LL if least < part_bytes <= most else Protocol.SIMPLE


@lru_cache(maxsize=256)
def inside_gbyte_s(cluster: Cluster) -> float:
    """Return the bus bandwidth of rings over the xGMI links of a node.

    A ring enters and leaves each GPU once, and each module of two GPUs that are joined by more links than others: the
    fewest links out of one of these limit all rings together. Between nodes a ring has one hop less inside.
    """
    board = cluster.board
    link_gbyte_s = times().link_gbyte_s[cluster.gcn]
    around = cluster.gpus / (cluster.gpus - 1) if cluster.nodes > 1 and cluster.gpus > 1 else 1.0
    if board is None or cluster.gpus == 1:
        return cluster.nics * cluster.nic_gbyte_s
    links = [row[: cluster.gpus] for row in board.nvlinks[: cluster.gpus]]
    outs = [sum(row) for row in links]
    most = max(max(row) for row in links)
    if most > 1:
        pairs = [(a, b) for a in range(cluster.gpus) for b in range(a) if links[a][b] == most]
        outs += [outs[a] + outs[b] - 2 * most for a, b in pairs if outs[a] + outs[b] > 2 * most]
    return min(outs) * link_gbyte_s * around
