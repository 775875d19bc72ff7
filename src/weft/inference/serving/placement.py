"""Replicas of a deployment on the servers of its site, and hand-offs over the fabric's routes.

Replicas have consecutive GPUs in the order of the servers; decode replicas follow the prefill replicas, from a multiple
of their own size on. GPUs of a prefill replica send their parts of a KV cache to those of the decode replica that need
them (`resharding`), from adapter to adapter; links between are shared by all hand-offs under way. Inside a server
NVLink carries them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.collectives.ranks import adapters_by_host, compute_servers
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.inference.deployment import Deployment
from weft.inference.serving.beside import Beside, exchange_ends
from weft.inference.serving.links import find_links
from weft.inference.serving.resharding import Part, find_parts
from weft.inference.serving.service import Limits, Pool, Routes, Service
from weft.inference.serving.state import Role
from weft.inference.table import StepTable
from weft.inference.tabulate import tabulate_shared
from weft.sim.perftest import prepare
from weft.sim.result import Engine as Clock

# vLLM with Mooncake's connector on 8 adapters of 200 Gbit/s: 0.54 ms for 19 MB to 31.7 ms for 4.8 GB; fit within 10 %
# (Mooncake documentation, PD disaggregation performance, 2025-11)
SETUP_S, ADAPTER_SHARE = 0.4e-3, 0.75


@dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """The replicas of a deployment: `prefill` for prompts and `decode` for answers, or `both` for both phases."""

    deployment: Deployment
    prefill: int = 0
    decode: int = 0
    both: int = 0
    decoding: Deployment | None = None  # of decode replicas with another layout; None: as `deployment`
    beside: Beside | None = None  # other traffic on the fabric

    def __post_init__(self) -> None:
        if bool(self.both) == bool(self.prefill or self.decode) or bool(self.prefill) != bool(self.decode):
            raise ConfigError("give --prefill and --decode, both 1 or more, or neither")
        gpus = self.deployment.site.gpus
        if self.gpus > gpus:
            sizes = dict.fromkeys(str(each.replica_gpus) for each in self.pools)
            raise ConfigError(
                f"{self.replicas:,} replicas of {' and '.join(sizes)} GPUs need {self.gpus:,}, and there are "
                f"{gpus:,}: give --gpus {self.gpus}, or fewer replicas"
            )

    @property
    def replicas(self) -> int:
        return self.both or self.prefill + self.decode

    @property
    def decoder(self) -> Deployment:
        """Return the deployment of decode replicas."""
        return self.decoding or self.deployment

    @property
    def pools(self) -> tuple[Deployment, ...]:
        """Return the deployment of each pool."""
        return (self.deployment,) if self.both else (self.deployment, self.decoder)

    @property
    def gpus(self) -> int:
        """Return the GPUs up to the last of a replica: before decode replicas a few may be free."""
        return self._decode_start + self.decode * self.decoder.replica_gpus

    @property
    def _decode_start(self) -> int:
        filled = (self.both or self.prefill) * self.deployment.replica_gpus
        return -(-filled // self.decoder.replica_gpus) * self.decoder.replica_gpus if self.decode else filled

    @property
    def names(self) -> list[str]:
        """Return the names of the replicas: replica1, or prefill1 and decode1."""
        if self.both:
            return [f"replica{i + 1}" for i in range(self.both)]
        return [f"prefill{i + 1}" for i in range(self.prefill)] + [f"decode{i + 1}" for i in range(self.decode)]

    def tables(self, mean_tokens: float, clock: Clock | None = None) -> tuple[StepTable, ...]:
        """Return the step times of a replica of each pool."""
        different = dict.fromkeys(self.pools)
        tables = {each: tabulate_shared(each, clock, context=mean_tokens) for each in different}
        return tuple(tables[each] for each in self.pools)

    @property
    def gpus_of(self) -> list[range]:
        """Return the GPUs of each replica."""
        one, other = self.deployment.replica_gpus, self.decoder.replica_gpus
        starts = [i * one for i in range(self.both or self.prefill)]
        later = [self._decode_start + i * other for i in range(self.decode)]
        return [range(at, at + one) for at in starts] + [range(at, at + other) for at in later]

    def ports(self, fabric: Fabric) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
        """Return the slot of the port of each GPU, by replica, and the replicas whose GPUs all have one."""
        site = self.deployment.site
        each = site.template.gpus
        servers = site.names or compute_servers(site.fabric)[: site.servers]
        adapters = adapters_by_host(fabric)
        slots = []
        for gpus in self.gpus_of:
            slots.append(np.full(len(gpus), -1, np.int64))
            for k, gpu in enumerate(gpus):
                server, rank = divmod(gpu, each)
                nodes = adapters.get(servers[server], [])
                if len(nodes) == each:
                    slots[-1][k] = fabric.first_port[nodes[rank]] + 1
        return slots, np.array([row.min() >= 0 for row in slots])

    @cached_property
    def parts(self) -> list[list[Part]]:
        """Return the parts of a hand-off, for each pair of attention ranks."""
        return find_parts(self.deployment, self.decoder)

    def routes(self, fabric: Fabric, adapter_share: float = ADAPTER_SHARE) -> tuple[Routes, NDArray[np.bool_]]:
        """Return the routes of hand-offs, and the replicas that are connected."""
        slots, alive = self.ports(fabric)
        each = self.deployment.site.template.gpus
        servers = [np.array(gpus) // each for gpus in self.gpus_of]
        pairs = [(p, self.prefill + d) for p in range(self.prefill) for d in range(self.decode)]
        pairs = [(p, d) for p, d in pairs if alive[p] and alive[d]]
        outside = [
            (p, d)
            for p, d in pairs
            if any(servers[p][part.source] != servers[d][part.target] for ranks in self.parts for part in ranks)
        ]
        pool_of = [0] * (self.both or self.prefill) + [1] * self.decode
        others = self.beside.on(fabric, slots, self.gpus_of, pool_of, each) if self.beside else None
        ends = [(slots[p], slots[d]) for p, d in outside]
        sharing = [(own, gpus if own.min() >= 0 else range(0)) for own, gpus in zip(slots, self.gpus_of, strict=True)]
        exchanges = [exchange_ends(own, gpus, each) for own, gpus in sharing]
        if not any(len(src) for src, _ in exchanges):
            exchanges = []
        links = find_links(fabric, ends, self.parts, self.deployment.site.options, others, exchanges)
        n, ranks = self.replicas, len(self.parts)
        caps = np.zeros((n, n, ranks))
        for p, d in pairs:
            caps[p, d] = self._inside_byte_s()
        for (p, d), alone_byte_s in zip(outside, links.alone_byte_s.reshape(-1, ranks), strict=True):
            caps[p, d] = np.minimum(caps[p, d], adapter_share * alone_byte_s)
        first_row = {pair: i * ranks for i, pair in enumerate(outside)}
        nothing = np.zeros(0, np.int32), np.zeros(0)
        rows = []
        for pair in ((p, d) for p in range(n) for d in range(n)):
            at = first_row.get(pair)
            rows += [nothing if at is None else (links.link[at + i], links.share[at + i]) for i in range(ranks)]
        others_at = len(outside) * ranks
        rows += zip(links.link[others_at:], links.share[others_at:], strict=True)
        return Routes(
            first=np.cumsum([0, *(len(row[0]) for row in rows)], dtype=np.int64),
            link=np.concatenate([row[0] for row in rows]).astype(np.int32),
            share=np.concatenate([row[1] for row in rows]),
            most_byte_s=np.concatenate((caps.ravel(), links.others_byte_s)),
            capacity_byte_s=links.capacity_byte_s,
            ranks=ranks,
            others=len(links.others_byte_s),
            exchanges=links.exchanges,
        ), alive

    def _inside_byte_s(self) -> float:
        """Return the rate between two replicas in one server, by NVLink or PCIe: that of the busiest GPU."""
        cluster = self.deployment.site.cluster
        load: dict[tuple[str, int], float] = {}
        for part in self.parts[0]:
            for end in (("source", part.source), ("target", part.target)):
                load[end] = load.get(end, 0.0) + part.share
        return 1e9 * (cluster.nvlink_gbyte_s or cluster.slot_gbyte_s) / max(load.values())


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
    tables: StepTable | Sequence[StepTable],
    limits: Limits,
    *,
    decode_limits: Limits | None = None,
    fabric: Fabric | None = None,
    setup_s: float = SETUP_S,
    adapter_share: float = ADAPTER_SHARE,
    **options: Any,
) -> Service:
    """Return the replicas as a service, with hand-offs over the routes of the fabric.

    tables: of each pool, or one for all. decode_limits: of decode replicas, if they are others than `limits`.
    """
    deployment = placement.deployment
    each = (tables,) * len(placement.pools) if isinstance(tables, StepTable) else tables
    if placement.both:
        return Service(pools=(Pool(table=each[0], replicas=placement.both, limits=limits),), **options)
    routes, _ = placement.routes(fabric or prepare(deployment.site.fabric), adapter_share)
    return Service(
        pools=(
            Pool(table=each[0], replicas=placement.prefill, role=Role.PREFILL, limits=limits),
            Pool(table=each[1], replicas=placement.decode, role=Role.DECODE, limits=decode_limits or limits),
        ),
        routes=routes,
        setup_s=setup_s,
        layers=deployment.model.layers,
        **options,
    )


def break_site(placement: Placement, fabric: Fabric) -> Placement:
    """Return the same replicas on a fabric with faults."""
    deployment = placement.deployment
    deployment = replace(deployment, site=replace(deployment.site, fabric=fabric, interconnect=None))
    placed = place_pools(
        deployment, placement.decoding, prefill=placement.prefill, decode=placement.decode, both=placement.both
    )
    return replace(placed, beside=placement.beside)


def place_pools(
    deployment: Deployment, decoding: Deployment | None, *, prefill: int = 0, decode: int = 0, both: int = 0
) -> Placement:
    """Return replicas on the site of a deployment; those of `decoding` have its layout there."""
    if decoding is not None and decode:
        try:
            decoding = replace(decoding, site=deployment.site)
        except ConfigError as error:
            raise ConfigError(f"decode replicas: {error}") from None
    return Placement(
        deployment=deployment, decoding=decoding if decode else None, prefill=prefill, decode=decode, both=both
    )
