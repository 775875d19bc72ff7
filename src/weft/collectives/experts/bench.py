"""A layer on the GPUs of a job, for several numbers of tokens.

    ranks = place_ranks(weft.load("superpod:su=1"), "4")
    table = run(ranks, [Layer(tokens=128), Layer(tokens=4096)], kernel="deepep")
    table.rows[0].dispatch.time_us

The network is measured once over the fabric's routes: between adapters of the same rail for kernels that forward inside
a server, and between all rails for kernels that send to each GPU or expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.collectives.experts.estimate import ExpertTimes, estimate_experts
from weft.collectives.experts.kernels import PAIRS, find_kernel
from weft.collectives.experts.routing import CopyPer, Layer
from weft.collectives.nccl.cluster import Cluster, from_fabric
from weft.collectives.nccl.measure import edge_traffic, measure, measure_traffic
from weft.collectives.nccl.network import Networks, Pattern
from weft.collectives.ranks import Ranks
from weft.errors import ConfigError
from weft.sim.engine import Memory, Network, Options
from weft.sim.result import Engine
from weft.sim.traffic import Traffic

_MOST_SHIFTS = 32  # shifts of servers and rails that are run together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The times of a job's layers."""

    ranks: Ranks
    cluster: Cluster
    rows: tuple[ExpertTimes, ...]


def run(
    ranks: Ranks,
    layers: Sequence[Layer],
    *,
    kernel: str = "deepep",
    gpus: int | None = None,
    sms: int | None = None,
    options: Options | None = None,
    engine: Engine | None = None,
) -> Table:
    """Measure the network between the servers of these ranks, then estimate every layer.

    :param gpus: GPUs that take part, if not all: a part of one server.
    :param engine: By default the analytic one.
    """
    cluster = from_fabric(ranks.fabric, ranks.servers)
    if gpus is not None:
        if len(ranks.servers) > 1 or not 1 < gpus <= ranks.per_server:
            raise ConfigError(f"{gpus} GPUs of {len(ranks.servers)} servers: a part of a server is 2 to all its GPUs")
        cluster = replace(cluster, gpus=gpus)
    networks = None
    if cluster.nodes > 1:
        chosen = options or Options(memory=Memory.GPUDIRECT)
        if kernel != PAIRS and chosen.network is Network.TCP:
            raise ConfigError(f"--kernel {kernel} writes by RDMA, which TCP lacks: give --kernel {PAIRS}")
        networks = _networks(ranks, kernel, chosen, engine)
    rows = tuple(estimate_experts(cluster, layer, kernel=kernel, networks=networks, sms=sms) for layer in layers)
    return Table(ranks=ranks, cluster=cluster, rows=rows)


def _networks(ranks: Ranks, kernel: str, options: Options, engine: Engine | None) -> Networks:
    if kernel == PAIRS or find_kernel(kernel).copy_per is CopyPer.SERVER:
        return measure(ranks, options, patterns=(Pattern.PAIRS,), engine=engine).networks
    network, _ = measure_traffic(ranks.fabric, _all_rails(ranks), options, engine=engine)
    return {Pattern.PAIRS: network}


def _all_rails(ranks: Ranks) -> Traffic:
    """Return messages from every adapter to those of all rails of other servers; of many, evenly spaced shifts."""
    servers, rails = ranks.adapters.shape
    every = np.arange((servers - 1) * rails)
    chosen = np.unique(np.linspace(0, len(every) - 1, min(len(every), _MOST_SHIFTS)).astype(np.int64))
    receivers = [
        np.roll(ranks.adapters, (-(1 + shift // rails), -(shift % rails)), axis=(0, 1)).ravel() for shift in chosen
    ]
    senders = np.tile(ranks.adapters.ravel(), len(chosen))
    return edge_traffic(senders, np.concatenate(receivers), f"all rails of {servers} servers")
