"""A service: replicas of a model, the limits of their engine, and the routes between them.

service = Service(pools=(Pool(table=table, replicas=4),))                      aggregated
service = Service(pools=(Pool(table=table, replicas=2, role=Role.PREFILL),
                         Pool(table=table, replicas=2, role=Role.DECODE)),
                  routes=adapters([400e9] * 4))                                disaggregated
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.inference.serving.state import Role, Router
from weft.inference.table import StepTable

ROUTERS = {"round-robin": Router.ROUND_ROBIN, "least-loaded": Router.LEAST_LOADED, "prefix": Router.PREFIX}
SCHEDULERS = ("vllm", "sglang")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of an engine, by the names of vLLM."""

    max_num_seqs: int = 256  # SGLang: max-running-requests
    max_num_batched_tokens: int = 8192  # SGLang: chunked-prefill-size
    chunked_prefill: bool = True
    scheduler: str = "vllm"  # sglang: prefills run in steps of their own, before decode steps
    block_size: int = 16  # tokens; half a block per request stays empty
    prefix_caching: bool = True
    draft_tokens: int = 0  # speculative decoding
    acceptance: float = 0.0  # probability of a draft token, given that those before were accepted

    def __post_init__(self) -> None:
        if self.scheduler not in SCHEDULERS:
            raise ConfigError(f"--scheduler must be {' or '.join(SCHEDULERS)}, got {self.scheduler!r}")
        if self.max_num_seqs < 1 or self.block_size < 1 or self.draft_tokens < 0:
            raise ConfigError("--max-num-seqs and --block-size must be 1 or more, --draft-tokens 0 or more")
        if not 0 <= self.acceptance <= 1 or bool(self.acceptance) != bool(self.draft_tokens):
            raise ConfigError("--acceptance must be in (0, 1], and goes with --draft-tokens: give both or neither")
        if self.max_num_batched_tokens <= self.max_num_seqs * (1 + self.draft_tokens):
            raise ConfigError(
                f"--max-num-batched-tokens {self.max_num_batched_tokens:,} must be above the tokens of "
                f"--max-num-seqs {self.max_num_seqs:,} decoding requests, so that prefills get a part of each step"
            )

    @property
    def accepted(self) -> float:
        """Return the mean tokens that a decode step adds to a request."""
        return 1 + sum(self.acceptance**i for i in range(1, self.draft_tokens + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A number of equal replicas."""

    table: StepTable
    replicas: int = 1
    role: Role = Role.BOTH
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ConfigError(f"replicas must be 1 or more, got {self.replicas}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Routes:
    """The link classes that a hand-off between two replicas uses, and its share of bytes on each.

    A pair has a row for each pair of attention ranks, which requests take in turn. After the pairs come rows of other
    traffic, which never ends.
    """

    first: NDArray[np.int64]  # [row + 1]; (replica · replicas + replica) · ranks + rank, then other traffic
    link: NDArray[np.int32]
    share: NDArray[np.float64]
    most_byte_s: NDArray[np.float64]  # [row] of one hand-off; 0: no route
    capacity_byte_s: NDArray[np.float64]  # [link]
    ranks: int = 1
    others: int = 0  # rows of other traffic
    exchanges: Exchanges | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchanges:
    """The link classes that exchanges of steps between the servers of a replica share with hand-offs."""

    first: NDArray[np.int64]  # [replica + 1]
    link: NDArray[np.int32]
    byte_s: NDArray[np.float64]  # that they get on the link without hand-offs
    weight: NDArray[np.float64]  # number of their flows, as hand-offs have `share`
    slack: NDArray[np.float64]  # `byte_s`, relative to the bytes that they send there at their rate without hand-offs
    least: float = 0.0  # share of `byte_s` that the lane of hand-offs leaves them; on one lane they have a fair share


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Phase:
    """A part of the time: replicas that work, tables of their steps, and routes."""

    start_s: float = 0.0
    alive: NDArray[np.bool_] | None = None  # [replica]; None: all
    tables: Sequence[StepTable] | None = None  # [pool]; None: those of the pools
    routes: Routes | None = None  # None: those of the service


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A set of replicas behind a router."""

    pools: tuple[Pool, ...]
    router: str = "least-loaded"
    routes: Routes | None = None
    setup_s: float = 0.0  # added to each hand-off
    layers: int = 1  # in the model
    streams: bool = False  # hand-offs start with the prefill, layer by layer
    staging: int | None = None  # most hand-offs under way to a decode replica; None: as its KV room allows

    def __post_init__(self) -> None:
        if self.router not in ROUTERS:
            raise ConfigError(f"--router must be one of {', '.join(ROUTERS)}, got {self.router!r}")
        roles = {pool.role for pool in self.pools}
        if roles not in ({Role.BOTH}, {Role.PREFILL, Role.DECODE}):
            raise ConfigError("a service has replicas for both phases, or some for prefill and others for decode")
        if self.staging is not None and self.staging < 1:
            raise ConfigError(f"--staging must be 1 or more, got {self.staging}")
        if Role.DECODE in roles and self.routes is None:
            raise ConfigError("prefill and decode replicas need routes between them")

    @property
    def replicas(self) -> int:
        return sum(pool.replicas for pool in self.pools)

    @property
    def gpus(self) -> int:
        return sum(pool.replicas * pool.table.gpus for pool in self.pools)

    @property
    def disaggregated(self) -> bool:
        return self.pools[0].role != Role.BOTH

    @property
    def pool_of(self) -> NDArray[np.int32]:
        """Return the pool of each replica."""
        return np.repeat(np.arange(len(self.pools), dtype=np.int32), [pool.replicas for pool in self.pools])


def adapters(replica_byte_s: Sequence[float], most_byte_s: float = inf) -> Routes:
    """Return routes that only the adapters of the two replicas limit: each sends and receives at a rate."""
    n = len(replica_byte_s)
    source, target = (index.ravel() for index in np.indices((n, n), np.int32))
    alone = np.minimum(np.asarray(replica_byte_s)[source], np.asarray(replica_byte_s)[target])
    return Routes(
        first=np.arange(n * n + 1, dtype=np.int64) * 2,
        link=np.column_stack((source, n + target)).ravel().astype(np.int32),
        share=np.ones(2 * n * n),
        most_byte_s=np.where(source == target, 0.0, np.minimum(alone, most_byte_s)),
        capacity_byte_s=np.concatenate((replica_byte_s, replica_byte_s)).astype(np.float64),
    )
