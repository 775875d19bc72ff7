"""The times of dispatch and combine.

    copy for each server    GPU --RDMA--> GPU of the same rail --NVLink--> GPUs of its server       (deepep, mori)
    copy for each expert    GPU --RDMA--> any GPU of other servers; --NVLink--> GPUs of its server  (deepep-ll)

Both stages run at the same time, as far as the kernel overlaps them: the longer one counts, and of the shorter one the
part that is not hidden. A stage takes its bytes divided by the rate of the links; copies over NVLink are made by SMs,
each as fast as a thread block of NCCL's. The busiest GPU of a random router counts (`Layer.excess`). Launch and flags
come first, and one network latency. `pairs` is NCCL's all_to_all with a copy for each expert, as frameworks use it
without fused kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from weft.collectives.experts.kernels import PAIRS, Kernel, find_kernel
from weft.collectives.experts.routing import CopyPer, Layer
from weft.collectives.kinds import Collective
from weft.collectives.nccl.case import ADAPTERS, NVLINK, adapters_gbyte_s, block_gbyte_s, post_us
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.estimate import Estimate, estimate
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.network import Network, Networks, Pattern
from weft.collectives.nccl.rccl.tuning import inside_gbyte_s
from weft.collectives.nccl.times import times
from weft.errors import ConfigError

START, SMS = "start", "SMs"
_NOTIFY_STEPS = 3  # a barrier, the counts, a barrier


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links of equal servers, as a kernel sees them."""

    servers: int
    gpus: int  # of a server, or of an NVLink domain
    inside_gbyte_s: float  # line rate of a GPU's NVLinks, one way
    adapter_gbyte_s: float = 0.0  # payload of the adapters that a GPU has, one way
    step_us: float = 0.0  # a small message between servers
    post_us: float = 0.0
    sm_gbyte_s: float = 0.0  # copies of one SM; 0: no limit

    @property
    def ranks(self) -> int:
        return self.servers * self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, dispatch or combine."""

    time_us: float
    bound: str  # adapters, NVLink, SMs or start
    network_bytes: float  # that a GPU sends to other servers
    inside_bytes: float  # that a GPU sends over NVLink
    # Bandwidths as libraries print them: bytes of all copies, those to the own server and GPU included, over the time.
    network_gbyte_s: float  # copies to servers; to GPUs or experts if the kernel sends those; 0: one server
    inside_gbyte_s: float  # copies to GPUs of a kernel that forwards, and of every kernel on one server
    all_to_all: Estimate | None = None  # of NCCL's pairs


@dataclass(frozen=True, kw_only=True)
class ExpertTimes:
    """The times of a layer on a number of GPUs."""

    kernel: str
    layer: Layer
    links: Links
    dispatch: Call
    combine: Call
    notify_us: float  # before the dispatch of normal kernels: GPUs exchange counts; not in its time

    @cached_property
    def total_us(self) -> float:
        return self.notify_us + self.dispatch.time_us + self.combine.time_us


def estimate_experts(
    cluster: Cluster,
    layer: Layer,
    *,
    kernel: str = "deepep",
    networks: Networks | None = None,
    sms: int | None = None,
) -> ExpertTimes:
    """Predict dispatch and combine of a layer whose experts are spread over all GPUs of a cluster.

    :param kernel: `deepep`, `deepep-ll`, `mori`, `mori-ll`, `one-sided` or `pairs` (NCCL's all_to_all).
    :param networks: The measured network, for the pattern PAIRS; by default an ideal InfiniBand network.
    :param sms: SMs of the kernel; by default as many as the library takes.

    >>> from weft.collectives.nccl.cluster import from_server
    >>> times = estimate_experts(from_server("dgx-h100", nodes=4), Layer(tokens=4096))
    >>> times.dispatch.bound
    'adapters'
    """
    if cluster.nodes > 1 and networks is None:
        networks = ideal_networks(cluster)
    layer.check(cluster.nodes, cluster.gpus)
    links = links_of(cluster, networks[Pattern.PAIRS] if networks else None)
    if kernel == PAIRS:
        if sms is not None:
            raise ConfigError(f"--sms {sms} changes nothing with --kernel {PAIRS}: leave it out")
        dispatch, combine = (_pairs(cluster, layer, links, networks, size) for size in _element_bytes(layer))
        return ExpertTimes(kernel=kernel, layer=layer, links=links, dispatch=dispatch, combine=combine, notify_us=0.0)
    return fused_times(find_kernel(kernel), layer, links, sms)


def fused_times(kernel: Kernel, layer: Layer, links: Links, sms: int | None = None) -> ExpertTimes:
    """Predict both calls of a fused kernel on these links."""
    layer.check(links.servers, links.gpus)
    if not kernel.servers and links.servers > 1:
        raise ConfigError(f"--kernel {kernel.name} works inside one NVLink domain, and the job has {links.servers}")
    if not kernel.sms and sms is not None:
        raise ConfigError(f"--sms {sms} changes nothing with --kernel {kernel.name}: leave it out")
    if sms is not None and sms < 1:
        raise ConfigError(f"--sms must be at least 1, got {sms}")
    dispatch, combine = (
        _call(kernel, layer, links, index, size, kernel.sms if sms is None else sms)
        for index, size in enumerate(_element_bytes(layer))
    )
    notify_us = 0.0
    if kernel.copy_per is CopyPer.SERVER:
        notify_us = kernel.start_us + (_NOTIFY_STEPS * links.step_us + (links.servers - 1) * links.post_us)
    return ExpertTimes(
        kernel=kernel.name, layer=layer, links=links, dispatch=dispatch, combine=combine, notify_us=notify_us
    )


def links_of(cluster: Cluster, network: Network | None) -> Links:
    """Return the links of a cluster; GPUs share adapters if there are fewer."""
    if cluster.gpus > 1 and not cluster.nvlink:
        raise ConfigError(f"{cluster}: fused kernels need NVLink between the GPUs of a server")
    line_gbyte_s = cluster.nvlink_gbyte_s / cluster.link_gbyte_s * constants().of_sm(cluster.sm).nvlink_line_gbyte_s
    if cluster.gcn:
        line_gbyte_s = inside_gbyte_s(replace(cluster, nodes=1))
    if network is None:
        return Links(servers=1, gpus=cluster.gpus, inside_gbyte_s=line_gbyte_s, sm_gbyte_s=block_gbyte_s(cluster))
    return Links(
        servers=cluster.nodes,
        gpus=cluster.gpus,
        inside_gbyte_s=line_gbyte_s,
        adapter_gbyte_s=adapters_gbyte_s(cluster, network, times()) / cluster.gpus,
        step_us=network.step_us,
        post_us=post_us(cluster, network),
        sm_gbyte_s=block_gbyte_s(cluster),
    )


def _element_bytes(layer: Layer) -> tuple[int, int]:
    return layer.dispatch_bytes, layer.combine_bytes


def _call(kernel: Kernel, layer: Layer, links: Links, index: int, element_bytes: int, sms: int) -> Call:
    token_bytes = layer.token_bytes(element_bytes)
    network_bytes, inside_bytes = (
        layer.tokens * token_bytes * copies for copies in _copies_over_links(kernel.copy_per, layer, links)
    )
    limits_us = {
        NVLINK: inside_bytes / (kernel.inside * links.inside_gbyte_s) / 1000 if inside_bytes else 0.0,
        ADAPTERS: network_bytes / links.adapter_gbyte_s / 1000 if network_bytes else 0.0,
    }
    if sms and links.sm_gbyte_s:
        limits_us[SMS] = inside_bytes / (sms * kernel.sm_share * links.sm_gbyte_s) / 1000
    bound = max(limits_us, key=lambda name: limits_us[name])
    inside_us = max(limits_us[NVLINK], limits_us.get(SMS, 0.0))
    hidden_us = min(inside_us, limits_us[ADAPTERS])
    excess = layer.excess(layer.copies(CopyPer.GPU, links.servers, links.gpus), links.ranks)
    data_us = excess * (limits_us[bound] + kernel.serial[index] * hidden_us)
    start_us = kernel.start_us + links.step_us
    time_us = max(kernel.floor_us[index], start_us + data_us)
    network_gbyte_s, inside_gbyte_s = _bandwidths(kernel.copy_per, layer, links, token_bytes, time_us)
    return Call(
        time_us=time_us,
        bound=bound if data_us > time_us / 2 else START,
        network_bytes=network_bytes,
        inside_bytes=inside_bytes,
        network_gbyte_s=network_gbyte_s,
        inside_gbyte_s=inside_gbyte_s,
    )


def _copies_over_links(per: CopyPer, layer: Layer, links: Links) -> tuple[float, float]:
    """Return the copies of a token that a GPU sends over the network, and those over NVLink."""
    servers, gpus, ranks = links.servers, links.gpus, links.ranks
    if per is CopyPer.SERVER:
        to_servers = layer.copies(CopyPer.SERVER, servers, gpus) * (servers - 1) / servers
        return to_servers, layer.copies(CopyPer.GPU, servers, gpus) * (gpus - 1) / gpus
    copies = layer.copies(per, servers, gpus)
    return copies * (ranks - gpus) / ranks, copies * (gpus - 1) / ranks


def _bandwidths(per: CopyPer, layer: Layer, links: Links, token_bytes: int, time_us: float) -> tuple[float, float]:
    """Return the rates of copies over the network and over NVLink, as libraries print them."""
    gbyte_s = layer.tokens * token_bytes / time_us / 1000
    inside = CopyPer.GPU if per is CopyPer.SERVER else per
    forwards = per is CopyPer.SERVER or links.servers == 1
    return (
        gbyte_s * layer.copies(per, links.servers, links.gpus) if links.servers > 1 else 0.0,
        gbyte_s * layer.copies(inside, links.servers, links.gpus) if forwards else 0.0,
    )


def _pairs(cluster: Cluster, layer: Layer, links: Links, networks: Networks | None, element_bytes: int) -> Call:
    token_bytes = layer.token_bytes(element_bytes)
    size_bytes = layer.tokens * layer.topk * token_bytes
    done = estimate(cluster, Collective.ALL_TO_ALL, size_bytes, networks=networks)
    network_bytes, inside_bytes = (
        layer.tokens * token_bytes * copies for copies in _copies_over_links(CopyPer.EXPERT, layer, links)
    )
    network_gbyte_s, inside_gbyte_s = _bandwidths(CopyPer.EXPERT, layer, links, token_bytes, done.time_us)
    return Call(
        time_us=done.time_us,
        bound=done.bound,
        network_bytes=network_bytes,
        inside_bytes=inside_bytes,
        network_gbyte_s=network_gbyte_s,
        inside_gbyte_s=inside_gbyte_s,
        all_to_all=done,
    )
