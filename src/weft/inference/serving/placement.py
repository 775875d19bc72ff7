"""Replicas of a deployment on the servers of its site, and hand-offs over the fabric's routes.

Replica i has the GPUs from i · replica_gpus on, in the order of the servers. GPU k of a prefill replica sends its part
of a KV cache to GPU k of the decode replica, from its adapter to the other's; links between are shared by all hand-offs
under way. Inside a server NVLink carries them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.collectives.ranks import adapters_by_host, compute_servers
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.inference.communication import Exchange
from weft.inference.deployment import Deployment
from weft.inference.serving.service import Limits, Pool, Routes, Service
from weft.inference.serving.state import Role
from weft.inference.step import Step
from weft.inference.table import StepTable
from weft.inference.tabulate import tabulate
from weft.sim.flow.plan import plan
from weft.sim.perftest import prepare
from weft.sim.result import Engine as Clock
from weft.sim.traffic import Traffic

# vLLM with Mooncake's connector on 8 adapters of 200 Gbit/s: 0.54 ms for 19 MB to 31.7 ms for 4.8 GB; fit within 10 %
# (Mooncake documentation, PD disaggregation performance, 2025-11)
SETUP_S, ADAPTER_SHARE = 0.4e-3, 0.75
_BYTE_PS = 1e12  # bytes/ps to bytes/s


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """The replicas of a deployment: `prefill` for prompts and `decode` for answers, or `both` for both phases."""

    deployment: Deployment
    prefill: int = 0
    decode: int = 0
    both: int = 0

    def __post_init__(self) -> None:
        if bool(self.both) == bool(self.prefill or self.decode) or bool(self.prefill) != bool(self.decode):
            raise ConfigError("give --prefill and --decode, both 1 or more, or neither")
        gpus, needed = self.deployment.site.gpus, self.replicas * self.deployment.replica_gpus
        if needed > gpus:
            raise ConfigError(
                f"{self.replicas:,} replicas of {self.deployment.replica_gpus} GPUs need {needed:,}, and there are "
                f"{gpus:,}: give --gpus {needed}, or fewer replicas"
            )

    @property
    def replicas(self) -> int:
        return self.both or self.prefill + self.decode

    @property
    def names(self) -> list[str]:
        """Return the names of the replicas: replica1, or prefill1 and decode1."""
        if self.both:
            return [f"replica{i + 1}" for i in range(self.both)]
        return [f"prefill{i + 1}" for i in range(self.prefill)] + [f"decode{i + 1}" for i in range(self.decode)]

    def tables(self, mean_tokens: float, clock: Clock | None = None) -> StepTable:
        """Return the step times of a replica."""
        return tabulate(self.deployment, Step(self.deployment, Exchange(self.deployment, clock)), context=mean_tokens)

    def ports(self, fabric: Fabric) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the slot of the port of each GPU ([replica, GPU]), and the replicas whose GPUs all have one."""
        site = self.deployment.site
        each, count = site.template.gpus, self.deployment.replica_gpus
        servers = site.names or compute_servers(site.fabric)[: site.servers]
        adapters = adapters_by_host(fabric)
        slots = np.full((self.replicas, count), -1, np.int64)
        for i in range(self.replicas):
            for k in range(count):
                server, rank = divmod(i * count + k, each)
                nodes = adapters.get(servers[server], [])
                if len(nodes) == each:
                    slots[i, k] = fabric.first_port[nodes[rank]] + 1
        return slots, slots.min(axis=1) >= 0

    def servers(self) -> NDArray[np.int64]:
        """Return the server of each GPU ([replica, GPU])."""
        count = self.deployment.replica_gpus
        gpus = np.arange(self.replicas * count).reshape(self.replicas, count)
        servers: NDArray[np.int64] = gpus // self.deployment.site.template.gpus
        return servers

    def routes(self, fabric: Fabric, adapter_share: float = ADAPTER_SHARE) -> tuple[Routes, NDArray[np.bool_]]:
        """Return the routes of hand-offs, and the replicas that are connected."""
        slots, alive = self.ports(fabric)
        servers = self.servers()
        pairs = [(p, self.prefill + d) for p in range(self.prefill) for d in range(self.decode)]
        pairs = [(p, d) for p, d in pairs if alive[p] and alive[d]]
        outside = [(p, d) for p, d in pairs if (servers[p] != servers[d]).any()]
        links = _links(fabric, [(slots[p], slots[d]) for p, d in outside], self.deployment.site.options)
        caps = np.zeros((self.replicas, self.replicas))
        for p, d in pairs:
            caps[p, d] = self._inside_byte_s()
        for (p, d), alone_byte_s in zip(outside, links.alone_byte_s, strict=True):
            caps[p, d] = min(caps[p, d], adapter_share * alone_byte_s * self._holders())
        parts = {pair: (links.link[i], links.share[i]) for i, pair in enumerate(outside)}
        nothing = np.zeros(0, np.int32), np.zeros(0)
        rows = [parts.get((p, d), nothing) for p in range(self.replicas) for d in range(self.replicas)]
        return Routes(
            first=np.cumsum([0, *(len(row[0]) for row in rows)], dtype=np.int64),
            link=np.concatenate([row[0] for row in rows]).astype(np.int32),
            share=np.concatenate([row[1] for row in rows]),
            most_byte_s=caps.ravel(),
            capacity_byte_s=links.capacity_byte_s,
        ), alive

    def _inside_byte_s(self) -> float:
        """Return the rate between two replicas in one server: NVLink, or PCIe."""
        cluster = self.deployment.site.cluster
        return 1e9 * (cluster.nvlink_gbyte_s or cluster.slot_gbyte_s) * self.deployment.tp * self.deployment.pp

    def _holders(self) -> float:
        """Return the share of a replica's GPUs that hold the KV cache of one request."""
        return self.deployment.tp * self.deployment.pp / self.deployment.replica_gpus


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Links:
    link: list[NDArray[np.int32]]  # [pair]
    share: list[NDArray[np.float64]]
    alone_byte_s: list[float]
    capacity_byte_s: NDArray[np.float64]


def _links(fabric: Fabric, pairs: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], options: Any) -> _Links:
    """Return the link classes of each hand-off, whose bytes leave and arrive by several ports."""
    if not pairs:
        return _Links(link=[], share=[], alone_byte_s=[], capacity_byte_s=np.ones(1))
    src, dst = (np.concatenate([pair[end] for pair in pairs]).astype(np.int32) for end in (0, 1))
    flows_plan = plan(fabric, Traffic.make(src, dst, 1 << 20, description="hand-offs"), options)
    state, qp = flows_plan.state, np.asarray(flows_plan.posting.messages.qp)
    capacity = np.asarray(state.classes.capacity) * _BYTE_PS
    load = np.zeros((len(pairs), len(capacity)))  # share of a hand-off's bytes on a link of each class
    at = 0
    for pair, (sources, _) in enumerate(pairs):
        flows, at = qp[at : at + len(sources)], at + len(sources)
        for flow in flows.tolist():
            nodes = slice(state.node_first[flow], state.node_first[flow + 1])
            np.add.at(load[pair], state.node_class[nodes], state.node_share[nodes] / len(sources))
    load, of = np.unique(load.round(12), axis=1, return_inverse=True)  # the rails of two replicas carry the same bytes
    least = np.full(load.shape[1], np.inf)
    np.minimum.at(least, of.ravel(), capacity)
    used = [np.flatnonzero(row).astype(np.int32) for row in load]
    return _Links(
        link=used,
        share=[row[links] for row, links in zip(load, used, strict=True)],
        alone_byte_s=[float((least[links] / row[links]).min()) for row, links in zip(load, used, strict=True)],
        capacity_byte_s=least,
    )


def limits_of(deployment: Deployment, **changes: Any) -> Limits:
    """Return the limits of a deployment's engine."""
    drafts = {"draft_tokens": deployment.drafts, "acceptance": deployment.acceptance} if deployment.drafts else {}
    own = {
        "max_num_seqs": deployment.batch_limit,
        "max_num_batched_tokens": deployment.token_limit,
        "scheduler": "sglang" if deployment.engine.name.startswith("sglang") else "vllm",
    }
    return Limits(**own | drafts | changes)


def build_service(
    placement: Placement,
    table: StepTable,
    limits: Limits,
    *,
    fabric: Fabric | None = None,
    setup_s: float = SETUP_S,
    adapter_share: float = ADAPTER_SHARE,
    **options: Any,
) -> Service:
    """Return the replicas as a service, with hand-offs over the routes of the fabric."""
    deployment = placement.deployment
    if placement.both:
        return Service(pools=(Pool(table=table, replicas=placement.both, limits=limits),), **options)
    routes, _ = placement.routes(fabric or prepare(deployment.site.fabric), adapter_share)
    pools = ((Role.PREFILL, placement.prefill), (Role.DECODE, placement.decode))
    return Service(
        pools=tuple(Pool(table=table, replicas=count, role=role, limits=limits) for role, count in pools),
        routes=routes,
        setup_s=setup_s,
        layers=deployment.model.layers,
        **options,
    )


def break_site(placement: Placement, fabric: Fabric) -> Placement:
    """Return the same replicas on a fabric with faults."""
    site = replace(placement.deployment.site, fabric=fabric, interconnect=None)
    return replace(placement, deployment=replace(placement.deployment, site=site))
