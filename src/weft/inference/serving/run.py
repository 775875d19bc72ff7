"""Serve a load: build the state, run the event loop, check conservation, and collect the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SimulationBug
from weft.inference.serving.faults import change_phase
from weft.inference.serving.load import Load
from weft.inference.serving.loop import Stop, run_events
from weft.inference.serving.service import ROUTERS, Phase, Pool, Routes, Service
from weft.inference.serving.state import GAP_BINS, NEVER_S, NONE, REPLICA, REQUEST, RULES, RUN, Role, State, records
from weft.inference.table import LOADS, StepTable
from weft.sim.layout.records import Records

_SLICE = 1 << 20  # events between two calls of `progress`
_MOST_CACHE_ENTRIES = 1 << 28
_NO_ROUTES = Routes(
    first=np.zeros(1, np.int64),
    link=np.zeros(1, np.int32),
    share=np.zeros(1),
    most_byte_s=np.zeros(1),
    capacity_byte_s=np.zeros(1),
)

Progress = Callable[[int, int], None]  # requests finished, and all


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Served:
    """The requests of a run with their times, and counts of the replicas."""

    service: Service
    load: Load
    phases: tuple[Phase, ...]
    tables: tuple[StepTable, ...]  # those that replicas used, by their number in the counts
    requests: Records
    replicas: Records
    gaps: NDArray[np.float64]  # [bin] steps of requests by the time since their last token
    prefill_weight: NDArray[np.float64]  # [table, tokens] requests in steps of so many tokens
    decode_weight: NDArray[np.float64]
    attention_s: NDArray[np.float64]  # [table, prefill or decode] request-seconds
    late_s: NDArray[np.float64]  # [prefill or decode] request-seconds that hand-offs add to steps
    area_s: float  # integral of the number of requests over time
    emitted: float  # tokens
    wall_s: float

    @property
    def end_s(self) -> float:
        return float(self.requests.finished_s.max())

    @property
    def inside_s(self) -> float:
        """Return the sum of the times of all requests from arrival to last token."""
        return float((self.requests.finished_s - self.requests.arrival_s).sum())


def serve(
    service: Service,
    load: Load,
    *,
    phases: Sequence[Phase] = (),
    pace: float = 1.0,
    progress: Progress | None = None,
) -> Served:
    """Serve all requests of a load; phases with later start times change the service meanwhile.

    pace: steps take so many times as long as in the tables.
    """
    _check(service, load)
    whole = (Phase(), *phases)
    tables, table_of = _tables(service, whole)
    tables = tuple(table.stretched(pace) for table in tables)
    state = _state(service, load, whole, tables, table_of)
    start_s = time.perf_counter()
    while (stopped := run_events(state, _SLICE)) in (Stop.SLICE, Stop.PHASE):
        if stopped == Stop.PHASE:
            change_phase(state)
        if progress is not None:
            progress(int(state.run.finished[0]), len(load))
    if stopped == Stop.STUCK:
        left = len(load) - int(state.run.finished[0])
        raise ConfigError(f"{left:,} requests cannot be served: no replica that works is reachable for them")
    served = Served(
        service=service,
        load=load,
        phases=whole,
        tables=tables,
        requests=state.requests,
        replicas=state.replicas,
        gaps=state.gaps,
        prefill_weight=state.prefill_weight,
        decode_weight=state.decode_weight,
        attention_s=state.attention,
        late_s=state.late,
        area_s=float(state.run.area[0]),
        emitted=float(state.run.emitted[0]),
        wall_s=time.perf_counter() - start_s,
    )
    _check_conservation(served)
    return served


def _check(service: Service, load: Load) -> None:
    longest = int((load.prompt.astype(np.int64) + load.output).max())
    for pool in service.pools:
        room = pool.table.kv_room_tokens - pool.limits.block_size
        if longest > room:
            raise ConfigError(
                f"a request has {longest:,} tokens, and the KV cache of a replica holds {max(room, 0):,}: use more "
                "GPUs per replica, or leave out longer requests with --max-model-len"
            )
        if not pool.limits.chunked_prefill and load.prompt.max() > pool.limits.max_num_batched_tokens:
            raise ConfigError(
                f"a prompt has {load.prompt.max():,} tokens: without chunked prefill --max-num-batched-tokens must "
                "be at least as large"
            )


def _check_conservation(served: Served) -> None:
    """Raise if tokens, KV or time are lost or invented: an error of the simulation."""
    expected = float(served.load.output.sum(dtype=np.int64))
    exact = all(pool.limits.accepted == 1 for pool in served.service.pools)
    if exact and served.emitted != expected:
        raise SimulationBug(f"{served.emitted:.0f} tokens were generated for {expected:.0f}")
    if abs(served.area_s - served.inside_s) > 1e-6 * served.inside_s:  # Little's law
        raise SimulationBug(f"requests were inside for {served.area_s:g} s and waited for {served.inside_s:g} s")
    over = served.replicas.peak > served.replicas.room * (1 + 1e-9)
    if over.any():
        raise SimulationBug(f"the KV cache of replica {int(over.argmax())} held more than its room")
    kept = np.abs(served.replicas.used) > 1e-3
    if kept.any():
        raise SimulationBug(f"replica {int(kept.argmax())} kept {served.replicas.used[kept][0]:g} KV tokens")


def _tables(service: Service, phases: Sequence[Phase]) -> tuple[tuple[StepTable, ...], NDArray[np.int32]]:
    """Return the different tables of all phases, and the number of each replica's ([phase, replica])."""
    own = [pool.table for pool in service.pools]
    used = [phase.tables or own for phase in phases]
    different = {id(table): table for tables in used for table in tables}
    numbers = {key: number for number, key in enumerate(different)}
    of_pool = np.array([[numbers[id(table)] for table in tables] for tables in used], np.int32)
    return tuple(different.values()), of_pool[:, service.pool_of]


def _state(
    service: Service, load: Load, phases: Sequence[Phase], tables: tuple[StepTable, ...], table_of: NDArray[np.int32]
) -> State:
    n = service.replicas
    most = max(pool.limits.max_num_batched_tokens for pool in service.pools)
    seats = max(pool.limits.max_num_seqs for pool in service.pools) + 1
    requests, hashes = _requests(service, load)
    replicas = _replicas(service, load)
    entries = (n, max(1, int(hashes.max(initial=-1)) + 1))
    if entries[0] * entries[1] > _MOST_CACHE_ENTRIES:
        raise ConfigError(f"{entries[1]:,} prefix blocks on {n:,} replicas are too many: use --no-prefix-caching")
    flat_s = np.stack([np.interp(np.arange(most + 1), table.tokens, table.parts_s.sum(axis=0)) for table in tables])
    flows = int(replicas.staging[replicas.role == Role.DECODE].sum()) + 1
    routes = _routes(service, phases)
    alive = [np.ones(n, np.bool_) if phase.alive is None else phase.alive for phase in phases]
    return State(
        run=_run(load),
        rules=_rules(service, load),
        requests=requests,
        replicas=replicas,
        turn=np.zeros(2, np.int64),
        serves=np.array([replicas.role != Role.DECODE, replicas.role == Role.DECODE], np.int8),
        outstanding=np.zeros(n, np.int32),
        hashes=np.array(hashes if len(hashes) else [0], np.int32),
        phase_s=np.array([phase.start_s for phase in phases], np.float64),
        alive=np.array(alive, np.int8),
        table_of=np.ascontiguousarray(table_of),
        flat_s=flat_s,
        pair_s=np.array([table.attention_s_per_pair for table in tables], np.float64),
        kv_s=np.array([table.kv_s_per_token for table in tables], np.float64),
        batch=np.full((n, seats), NONE, np.int32),
        **_exchanges(service, phases, tables, flat_s.shape[1]),
        last_step=np.zeros((n, seats)),
        last_request=np.zeros((n, seats), np.int32),
        last_place=np.full(len(load), NONE, np.int32),
        clock_s=np.zeros((1, n)),
        clock_replica=np.zeros((1, n), np.int32),
        clock_place=np.full(n, NONE, np.int32),
        ref=np.full(entries, NONE, np.int32),
        lru_prev=np.full(entries, NONE, np.int32),
        lru_next=np.full(entries, NONE, np.int32),
        **_rows(service, phases),
        **_others(service, phases),
        route_first=np.array(routes.first, np.int64),
        route_class=np.array(routes.link, np.int32),
        route_share=np.array(routes.share, np.float64),
        route_cap=np.array(routes.most_byte_s, np.float64),
        capacity=np.array(routes.capacity_byte_s, np.float64),
        flow_request=np.zeros(flows, np.int32),
        flow_left=np.zeros(flows),
        flow_rate=np.zeros(flows),
        flow_fixed=np.zeros(flows, np.int8),
        other_fixed=np.zeros(max(part.others for part in _parts(service, phases)), np.int8),
        open_flows=np.zeros(len(routes.capacity_byte_s), np.int32),
        open_link=np.zeros(len(routes.capacity_byte_s), np.int32),
        level=np.zeros(len(routes.capacity_byte_s)),
        residual=np.zeros(len(routes.capacity_byte_s)),
        weight=np.zeros(len(routes.capacity_byte_s)),
        gaps=np.zeros(GAP_BINS),
        decode_weight=np.zeros_like(flat_s),
        prefill_weight=np.zeros_like(flat_s),
        attention=np.zeros((len(tables), 2)),
        late=np.zeros(2),
    )


def _requests(service: Service, load: Load) -> tuple[Records, NDArray[np.int32]]:
    requests = records(len(load), REQUEST)
    for name in ("scheduled", "prefilled", "handoff", "first", "joined", "finished", "last", "sent"):
        requests[f"{name}_s"] = -1.0
    for name in ("source", "replica", "next", "prev", "flow"):
        requests[name] = NONE
    requests.arrival_s, requests.prompt, requests.output = load.arrival_s, load.prompt, load.output
    if not len(load.blocks) or not service.pools[0].limits.prefix_caching:
        return requests, np.zeros(0, np.int32)
    requests.blocks = load.blocks
    requests.hash_first = np.cumsum(load.blocks, dtype=np.int64) - load.blocks
    return requests, load.hashes


def _replicas(service: Service, load: Load) -> Records:
    replicas = records(service.replicas, REPLICA)
    lists = ("run_head", "run_tail", "partial", "wait_head", "wait_tail", "arrived_head", "arrived_tail")
    for name in (*lists, "hand_head", "hand_tail", "lru_head", "lru_tail"):
        replicas[name] = NONE
    replicas.alive, replicas.ends_s = 1, NEVER_S

    def each(value: Callable[[Pool], float]) -> NDArray[np.float64]:
        return np.array([value(pool) for pool in service.pools])[service.pool_of]

    replicas.role = each(lambda pool: pool.role)
    replicas.room = each(lambda pool: pool.table.kv_room_tokens)
    replicas.seats = each(lambda pool: pool.limits.max_num_seqs)
    replicas.budget = each(lambda pool: pool.limits.max_num_batched_tokens)
    shortest = int(load.prompt.min())
    by_room = each(lambda pool: pool.table.kv_room_tokens // shortest + 1)
    replicas.staging = np.minimum(by_room, len(load) if service.staging is None else service.staging)
    return replicas


def _rules(service: Service, load: Load) -> Records:
    rules, limits = records(1, RULES), service.pools[0].limits
    rules.accepted, rules.tokens = limits.accepted, 1 + limits.draft_tokens
    rules.waste = limits.block_size // 2
    rules.kv_bytes, rules.setup_s = service.pools[-1].table.kv_bytes_per_token, service.setup_s  # as decode needs them
    rules.think_s, rules.layers, rules.block = load.think_s, service.layers, load.block_tokens
    rules.router, rules.streams = ROUTERS[service.router], service.streams
    rules.chunked, rules.mixed = limits.chunked_prefill, limits.scheduler == "vllm"
    return rules


def _run(load: Load) -> Records:
    run = records(1, RUN)
    run.wire_end_s = NEVER_S
    run.issued = load.users or len(load)
    run.lane_head = run.lane_tail = run.lost_head = run.lost_tail = NONE
    return run


def _parts(service: Service, phases: Sequence[Phase]) -> list[Routes]:
    """Return the routes of each phase."""
    return [phase.routes or service.routes or _NO_ROUTES for phase in phases]


def _rows(service: Service, phases: Sequence[Phase]) -> dict[str, NDArray[Any]]:
    """Return the first row of each phase in the table of routes, and its rows of a pair."""
    parts = _parts(service, phases)
    sizes = [len(part.first) - 1 for part in parts]
    return {
        "route_row": np.cumsum([0, *sizes[:-1]], dtype=np.int64),
        "ranks": np.array([part.ranks for part in parts], np.int64),
    }


def _others(service: Service, phases: Sequence[Phase]) -> dict[str, NDArray[Any]]:
    """Return the flows of other traffic by the most that they send, by phase, and by link."""
    by_limit, by_link, weight, counts = [], [], [], []
    for part in _parts(service, phases):
        at = len(part.first) - 1 - part.others
        by_limit.append(np.argsort(part.most_byte_s[at:], kind="stable"))
        nodes = slice(part.first[at], part.first[-1])
        link, share = part.link[nodes], part.share[nodes]
        flow = np.repeat(np.arange(part.others), np.diff(part.first[at:]))
        by_link.append(flow[np.argsort(link, kind="stable")])
        counts.append(np.bincount(link, minlength=len(part.capacity_byte_s)))
        weight.append(np.bincount(link, share, len(part.capacity_byte_s)))
    return {
        "other_first": np.cumsum([0, *map(len, by_limit)], dtype=np.int64),
        "by_limit": np.concatenate(by_limit).astype(np.int32),
        "link_first": np.append(0, np.cumsum(np.concatenate(counts), dtype=np.int64)),
        "link_other": np.concatenate(by_link).astype(np.int32),
        "other_weight": np.concatenate(weight).astype(np.float64),
    }


def _exchanges(
    service: Service, phases: Sequence[Phase], tables: Sequence[StepTable], most: int
) -> dict[str, NDArray[Any]]:
    """Return the link classes of exchanges by phase and replica, and the steps that hand-offs slow there."""
    parts = _parts(service, phases)
    links = np.cumsum([0, *(len(part.capacity_byte_s) for part in parts)])
    found = [(part.exchanges, at) for part, at in zip(parts, links[:-1], strict=True) if part.exchanges is not None]
    has = np.array([part.exchanges is not None for part in parts])
    slowed_s = np.zeros((len(tables) if found else 1, len(LOADS), most if found else 1))
    for number, table in enumerate(tables if found else ()):
        if table.slowed_s is not None:
            slowed_s[number] = [np.interp(np.arange(most), table.tokens, row) for row in table.slowed_s]

    def join(columns: Sequence[NDArray[Any]], kind: type = np.float64) -> NDArray[Any]:
        return np.concatenate([np.zeros(0), *columns]).astype(kind)

    sizes = join([np.diff(each.first) for each, _ in found], np.int64)
    return {
        "slowed_s": slowed_s,
        "exchange_row": np.where(has, service.replicas * (np.cumsum(has) - 1), NONE),
        "exchange_first": np.append(0, np.cumsum(sizes)),
        "exchange_class": join([each.link + at for each, at in found], np.int32),
        "exchange_byte_s": join([each.byte_s for each, _ in found]),
        "exchange_weight": join([each.weight for each, _ in found]),
        "exchange_slack": join([each.slack for each, _ in found]),
        "exchange_least": np.array([part.exchanges.least if part.exchanges else 0.0 for part in parts]),
    }


def _routes(service: Service, phases: Sequence[Phase]) -> Routes:
    """Return the routes of all phases in one table, each with link classes of its own."""
    parts = _parts(service, phases)
    entries = np.cumsum([0, *(len(part.link) for part in parts)])
    links = np.cumsum([0, *(len(part.capacity_byte_s) for part in parts)])
    first = [part.first[:-1] + entries[i] for i, part in enumerate(parts)]
    return Routes(
        first=np.concatenate((*first, entries[-1:])).astype(np.int64),
        link=np.concatenate([part.link + links[i] for i, part in enumerate(parts)]).astype(np.int32),
        share=np.concatenate([part.share for part in parts]),
        most_byte_s=np.concatenate([part.most_byte_s for part in parts]),
        capacity_byte_s=np.concatenate([part.capacity_byte_s for part in parts]),
    )
