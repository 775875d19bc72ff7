"""The time of a symmetric kernel.

Latencies and blocks are NCCL's own figures, since no others are published; but its rates are made to compare kernels,
and some are higher than NVLink is (480 Gibyte/s where switches add). So the data is no faster than NVLink was measured
to carry it: copies where GPUs store and load, NVLS where switches add; and no faster than adapters.
"""

from __future__ import annotations

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.case import (
    ADAPTERS,
    CHANNELS,
    NVLINK,
    Parts,
    adapters_gbyte_s,
    adding_gbyte_s,
    copies_gbyte_s,
    crossing_us,
    find,
    nvls_gbyte_s,
)
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.network import Networks, Pattern
from weft.collectives.nccl.symmetric import Kernel, Model
from weft.collectives.nccl.times import Times

_SIMPLE = list(Protocol).index(Protocol.SIMPLE)


def symmetric_parts(cluster: Cluster, kernel: Kernel, size_bytes: int, networks: Networks, fitted: Times) -> Parts:
    model = Model(cluster, kernel.collective, size_bytes)
    nvlink = adding_gbyte_s(cluster, fitted) if kernel.adds else copies_gbyte_s(cluster, fitted)
    if not kernel.rail:
        latency_us, believed_us = model.believed_us(kernel, kernel.blocks)
        carried_us = model.carried_bytes(kernel) / nvlink / 1000
        if kernel.adds and kernel.collective == Collective.ALL_REDUCE:
            carried_us = size_bytes / nvls_gbyte_s(cluster, fitted) / 1000
        return _parts(latency_us, {CHANNELS: believed_us, NVLINK: carried_us})
    network = find(networks, Pattern.RING)
    adapter = adapters_gbyte_s(cluster, network, fitted) / cluster.gpus
    latency_us = constants(cluster.nccl).latency_us.network[Algorithm.RING][_SIMPLE]
    step_us = crossing_us(cluster, network, latency_us, Protocol.SIMPLE, fitted)
    n_peers, rail = cluster.nodes - 1, model.figures.rail
    if kernel.collective == Collective.ALL_GATHER:
        on_nvlink, on_adapters, blocks_us = nvlink / cluster.ranks, adapter / n_peers, 0.0
        first_bytes, steps_us = min(model.bytes, rail.gather_chunk_bytes), n_peers * step_us
    else:
        block, by_nccl, _ = model.scatter_gbyte_s(kernel.multicast)
        alone = cluster.gpus == 1  # nothing goes over NVLink, which there may not be
        on_nvlink = by_nccl if alone else by_nccl * nvlink / model.rail_nvlink_gbyte_s
        on_adapters = adapter / n_peers
        blocks_us = model.bytes / (kernel.blocks * block) / 1000
        first_bytes, steps_us = min(model.bytes, rail.scatter_chunk_bytes * kernel.blocks), step_us
    data_us = {NVLINK: model.bytes / on_nvlink / 1000, ADAPTERS: model.bytes / on_adapters / 1000, CHANNELS: blocks_us}
    first_us = first_bytes * (1 / on_nvlink + 1 / on_adapters) / 1000
    return _parts(model.speeds.us, data_us, steps_us=steps_us, pipeline_us=first_us)


def _parts(launch_us: float, data_us: dict[str, float], *, steps_us: float = 0.0, pipeline_us: float = 0.0) -> Parts:
    bound = max(data_us, key=lambda name: data_us[name])
    return Parts(launch_us=launch_us, steps_us=steps_us, pipeline_us=pipeline_us, data_us=data_us[bound], bound=bound)
