"""A hierarchical collective on very many GPUs: NVLink inside, one ring or tree per rail outside, rail by rail.

    timing = run_by_rails(weft.load("superpod:su=256"), Collective.ALL_REDUCE, 1 << 30)      65,536 GPUs

Rails of such a collective never meet: each has adapters, leaves and the way up of its own. So each is cut out, routed
and run alone, and the slowest counts. That is what joining them all would give, without the 49,151 LIDs that are all
that one subnet has. Cores that rails share are in each part: where rails would contend for one, run the whole program
(`weft.collectives.run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.ranks import Ranks, place
from weft.collectives.run import Timing, run_program
from weft.collectives.schedules.writers import program
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.nvlink import join_nvlinks
from weft.fabric.rates import Technology
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.result import Engine


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RailsTiming:
    """The times of each part; `inside` is the slowest kind of server, None if servers have one rank."""

    collective: Collective
    n_ranks: int
    size_bytes: int
    inside: Timing | None
    rails: tuple[Timing, ...]

    @property
    def time_ps(self) -> int:
        return max(rail.time_ps for rail in self.rails) + (self.inside.time_ps if self.inside else 0)

    @property
    def time_us(self) -> float:
        return self.time_ps / 1e6

    @property
    def bus_gbyte_s(self) -> float:
        return self.size_bytes * 1000 / self.time_ps * self.collective.bus_factor(self.n_ranks)


def run_by_rails(
    fabric: Fabric,
    collective: Collective,
    size_bytes: int,
    options: Options | None = None,
    *,
    servers: Sequence[str] | None = None,
    outside: str = "ring",
    engine: Engine | None = None,
) -> RailsTiming:
    """Time a collective of `size_bytes` at each GPU of a fabric without routes."""
    ranks = place(fabric, servers)
    n, per_server = len(ranks.servers), ranks.per_server
    if n < 2:
        raise ConfigError(f"{ranks.servers[0]} is alone: rails need two servers or more")
    if per_server != ranks.rails:
        raise ConfigError(
            f"{ranks.servers[0]} has {per_server} ranks and {ranks.rails} adapters: rails need an adapter for each rank"
        )
    inside = None
    if per_server > 1:
        whole = program(collective, "hierarchical", nodes=1, gpus=per_server)
        kinds = [
            run_program(whole, server_ranks, size_bytes, options, engine=engine)
            for server_ranks in _kinds_of_servers(ranks)
        ]
        inside = max(kinds, key=lambda timing: timing.time_ps)
    along = program(collective, outside, nodes=n, gpus=1)
    part_bytes = -(-size_bytes // per_server)
    rails = [run_program(along, rail, part_bytes, options, engine=engine) for rail in split(ranks)]
    return RailsTiming(
        collective=collective, n_ranks=len(ranks), size_bytes=size_bytes, inside=inside, rails=tuple(rails)
    )


def split(ranks: Ranks) -> Iterator[Ranks]:
    """Yield each rail as a job of its own, with one rank in each server, on a routed fabric of its own."""
    fabric = ranks.fabric
    level, (a, b) = levels(fabric), fabric.link_nodes
    links = fabric.network_links
    for rail in range(ranks.rails):
        keep = np.zeros(len(fabric.nodes), bool)
        keep[fabric.ports.node[ranks.adapters[:, rail]]] = True
        for height in range(int(level.max())):  # upwards only: down again are other rails
            for low, high in ((a, b), (b, a)):
                up = links & keep[low] & (level[low] == height) & (level[high] == height + 1)
                keep[high[up]] = True
        part = route(fabric.subset(keep), RoutingOptions(adaptive=True)).fabric
        yield _one_rail(ranks, part, np.cumsum(keep) - 1, rail)


def _one_rail(ranks: Ranks, part: Fabric, now: NDArray[np.int64], rail: int) -> Ranks:
    nodes = now[ranks.fabric.ports.node[ranks.adapters[:, rail]]]
    return replace(
        ranks,
        fabric=part,
        per_server=1,
        nvlink=np.full(len(ranks.servers), -1, np.int32),
        adapters=(part.first_port[nodes] + 1).astype(np.int32)[:, None],
        rail_of=np.zeros(1, np.int32),
    )


def _kinds_of_servers(ranks: Ranks) -> Iterator[Ranks]:
    """Yield a server of each kind, by the NVLinks of its GPUs, as a fabric of its own."""
    fabric = ranks.fabric
    links = fabric.links_of(Technology.NVLINK)
    ends = np.concatenate([end[links] for end in fabric.link_nodes])  # every link of a GPU counts
    rate_gbit_s = np.bincount(ends, np.tile(fabric.link_rate_gbit_s[links], 2), minlength=len(fabric.nodes))
    of = fabric.nodes.server
    kinds: set[tuple[float, ...]] = set()
    gpus = np.flatnonzero(fabric.nodes.kind == NodeKind.GPU)
    by_server = rate_gbit_s[gpus][np.argsort(of[gpus], kind="stable")].reshape(-1, ranks.per_server)
    for server, rates in zip(np.unique(of[gpus]).tolist(), by_server.tolist(), strict=True):
        name = fabric.servers[server]
        if tuple(rates) not in kinds and name in ranks.servers:
            kinds.add(tuple(rates))
            yield place(join_nvlinks(fabric.subset(of == server)))
