"""Step tables and random services for the tests of serving."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.inference.serving.load import Lengths, Load, Prefix, bursts, closed_loop, offline, poisson
from weft.inference.serving.service import Exchanges, Limits, Phase, Pool, Service, adapters
from weft.inference.serving.state import Role
from weft.inference.table import LOADS, StepTable


def table(*, room: int = 100_000, base_s: float = 5e-3, token_s: float = 2e-5, pair_s: float = 2e-10) -> StepTable:
    """Return the table of a replica whose step takes `base_s` and `token_s` for each token."""
    tokens = np.array([1, 64, 512, 8192])
    return StepTable(
        tokens=tokens,
        parts=("weights", "products", "dispatch"),
        parts_s=np.array([[base_s] * 4, 0.75 * tokens * token_s, 0.25 * tokens * token_s]),
        attention_s_per_pair=pair_s,
        kv_s_per_token=3e-8,
        kv_room_tokens=room,
        kv_bytes_per_token=160e3,
        gpus=8,
    )


def disaggregated(prefill: int, decode: int, *, limits: Limits | None = None, room: int = 100_000, **more) -> Service:
    """Return a service with replicas for each phase, joined by adapters of 400 GB/s for a replica."""
    limits = limits or Limits()
    roles = ((Role.PREFILL, prefill), (Role.DECODE, decode))
    pools = tuple(Pool(table=table(room=room), replicas=n, role=role, limits=limits) for role, n in roles)
    options = {"routes": adapters([400e9] * (prefill + decode)), "setup_s": 4e-4, "layers": 32}
    return Service(pools=pools, **options | more)


def exchanging(
    service: Service, rate_byte_s: float = 400e9, *, weight: float = 1.0, slack: float = 1.0, least: float = 0.0
) -> Service:
    """Return a service with `adapters` whose steps are exchanges over them between the servers of each replica."""
    n = service.replicas
    exchanges = Exchanges(
        first=2 * np.arange(n + 1),
        link=np.column_stack((np.arange(n), n + np.arange(n))).ravel().astype(np.int32),
        byte_s=np.full(2 * n, rate_byte_s),
        weight=np.full(2 * n, weight),
        slack=np.full(2 * n, slack),
        least=least,
    )
    assert service.routes is not None
    pools = [
        replace(pool, table=replace(pool.table, slowed_s=np.outer(LOADS, pool.table.parts_s.sum(axis=0))))
        for pool in service.pools
    ]
    return replace(service, pools=tuple(pools), routes=replace(service.routes, exchanges=exchanges))


def random_case(seed: int) -> tuple[Service, Load, tuple[Phase, ...]]:
    """Return a service with little KV room, a load, and replicas that fail."""
    rng = np.random.default_rng(seed)
    seats = int(rng.choice([1, 4, 16]))
    limits = Limits(
        max_num_seqs=seats,
        max_num_batched_tokens=int(rng.choice([64, 300, 1000])),
        scheduler=str(rng.choice(["vllm", "sglang"])),
    )
    room, router = int(rng.integers(700, 3000)), str(rng.choice(["round-robin", "least-loaded", "prefix"]))
    lengths = {"prompt": Lengths(60, 300), "output": Lengths(1, 200), "seed": seed}
    prefix = Prefix(tokens=50, count=int(rng.integers(1, 9))) if rng.random() < 0.6 else None
    kind = rng.integers(4)
    if kind == 0:
        load = poisson(rate=40, seconds=3, prefix=prefix, **lengths)
    elif kind == 1:
        load = bursts(rate=40, seconds=3, prefix=prefix, **lengths)
    elif kind == 2:
        load = closed_loop(users=20, requests=80, think_s=float(rng.choice([0, 0.1])), prefix=prefix, **lengths)
    else:
        load = offline(requests=60, prefix=prefix, **lengths)
    if rng.random() < 0.4:
        pool = Pool(table=table(room=room), replicas=int(rng.integers(1, 4)), limits=limits)
        service = Service(pools=(pool,), router=router)
    else:
        service = disaggregated(
            int(rng.integers(1, 3)),
            int(rng.integers(1, 4)),
            limits=limits,
            room=room,
            router=router,
            streams=bool(rng.random() < 0.5),
        )
    phases = _failures(rng, service) if rng.random() < 0.5 else ()
    if service.disaggregated and rng.random() < 0.7:
        service = exchanging(service, weight=float(rng.choice([0.1, 1.0])), least=float(rng.choice([0.0, 0.5])))
    return service, load, phases


def _failures(rng: np.random.Generator, service: Service) -> tuple[Phase, ...]:
    alive = rng.random(service.replicas) < 0.5
    starts = sorted(rng.random(2) * 2)
    return (Phase(start_s=starts[0], alive=alive), Phase(start_s=starts[1]))
