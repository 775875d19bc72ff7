"""Steps beside jobs of other tenants: exchanges between servers of a replica get what the jobs leave them.

Jobs send all the time, so each replica has one table of step times beside them. Its exchanges are measured as without
jobs, by an engine that adds to each message the time that jobs cost it:

    bytes · (1/rate beside jobs - 1/rate alone) + wait

Rates are max-min fair. A switch serves packets in the order of their arrival from buffers that senders keep full: flows
of one sender over a link count together, and no job sends more than without the service. Where jobs fill a link on
their own, a message of any size waits for the bytes in the buffers before that link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.inference.serving.beside import Beside
from weft.inference.serving.links import Others
from weft.inference.serving.placement import Placement
from weft.inference.serving.service import Service
from weft.inference.table import StepTable
from weft.inference.tabulate import tabulate_shared
from weft.sim.engine import Options, Progress
from weft.sim.flow.fair import fair_rates
from weft.sim.flow.plan import FlowPlan, plan
from weft.sim.layout.records import NONE, FlowControl
from weft.sim.layout.rules import RULES
from weft.sim.packet.ports import credit_room
from weft.sim.result import Engine, Result
from weft.sim.traffic import Traffic

_NO_LIMIT, _TURNS = 1e18, 4
_TOGETHER = 1.1  # flows whose ends are within this factor are dropped at once

_Cache = dict[tuple[bytes, ...], tuple[Result, NDArray[np.float64]]]


class EngineBeside:
    """An engine of `sim` that adds to messages from some ports the time that jobs cost them."""

    def __init__(self, engine: Engine, jobs: Beside, ports: Sequence[str], cache: _Cache) -> None:
        self.name = engine.name
        self._engine, self._jobs, self._ports, self._cache = engine, jobs, ports, cache

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        key = self.name.encode(), traffic.src.tobytes(), traffic.dst.tobytes(), traffic.size_bytes.tobytes()
        if key not in self._cache:
            result = self._engine.run(fabric, traffic, options, progress=progress)
            others = self._jobs.on(fabric, (), (), (), 0)
            self._cache[key] = result, added_s(fabric, traffic, result.options, others)
        result, all_s = self._cache[key]
        own = [fabric.find_port(name).slot for name in self._ports if name in fabric]
        added_ps = np.rint(1e12 * np.where(np.isin(traffic.src, own), all_s, 0.0)).astype(np.int64)
        return replace(result, finish_ps=result.finish_ps + added_ps)


def slow_steps(service: Service, tables: Sequence[StepTable]) -> Service:
    """Return the service with the table of each replica."""
    pools = [service.pools[index] for index in service.pool_of.tolist()]
    slowed = zip(pools, tables, strict=True)
    return replace(service, pools=tuple(replace(pool, table=table, replicas=1) for pool, table in slowed))


def tables_beside(placement: Placement, mean_tokens: float, clock: Engine | None = None) -> tuple[StepTable, ...]:
    """Return the step times of each replica beside the jobs of a placement."""
    assert placement.beside is not None
    fabric = placement.deployment.site.ranks.fabric
    jobs = replace(placement.beside, exchanged_byte_s=())
    cache: _Cache = {}
    different: dict[bytes, StepTable] = {}
    tables = []
    pools = [placement.deployment] * (placement.both or placement.prefill) + [placement.decoder] * placement.decode
    for deployment, gpus, slots in zip(pools, placement.gpus_of, placement.ports(fabric)[0], strict=True):
        names = [fabric.port(slot).name for slot in slots.tolist() if slot >= 0]
        slow = partial(EngineBeside, jobs=jobs, ports=names, cache=cache)
        table = tabulate_shared(deployment, clock, context=mean_tokens, first_gpu=gpus.start, slow=slow)
        tables.append(different.setdefault(table.parts_s.tobytes(), table))
    return tuple(tables)


def added_s(fabric: Fabric, traffic: Traffic, options: Options, others: Others) -> NDArray[np.float64]:
    """Return the time that other traffic adds to each message of an exchange, all of whose messages are under way."""
    n = len(traffic)
    if not len(others.src):
        return np.zeros(n)
    together = Traffic.make(
        np.concatenate((traffic.src, others.src)),
        np.concatenate((traffic.dst, others.dst)),
        1 << 20,
        qp=np.concatenate((traffic.qp, others.qp + traffic.qp.max() + 1)),
        description="an exchange beside jobs",
    )
    flow_plan = plan(fabric, together, options)
    flow_of = np.asarray(flow_plan.posting.messages.qp)
    most_byte_s = np.full(len(flow_plan.posting.qps), _NO_LIMIT)
    most_byte_s[flow_of[n:]] = others.share * _port_byte_s(flow_plan)[others.src]
    flows = _Flows(flow_plan, most_byte_s)
    is_own = np.zeros(len(most_byte_s), np.bool_)
    is_own[flow_of[:n]] = True
    jobs_alone = flows.solve(~is_own)
    flows.most_byte_s[~is_own] = jobs_alone.rate_byte_s[~is_own]
    size_bytes: NDArray[Any] = np.bincount(flow_of[:n], traffic.size_bytes, len(is_own))
    alone_s, beside_s = (flows.times_s(size_bytes, jobs) for jobs in (np.zeros_like(is_own), flows.meeting(is_own)))
    added: NDArray[np.float64] = (beside_s - alone_s + flows.waits_s(jobs_alone))[flow_of[:n]]
    return added


def _port_byte_s(flow_plan: FlowPlan) -> NDArray[np.float64]:
    """Return the rate of each port ([slot])."""
    wiring = flow_plan.wiring
    rate_byte_s = np.zeros(len(wiring.fabric.ports))
    rate_byte_s[wiring.slot] = wiring.port_rate_gbit_s * 1e9 / 8
    return rate_byte_s


class _Solution(NamedTuple):
    """The rates of some flows that share links."""

    rate_byte_s: NDArray[np.float64]  # [flow]; 0: left out
    held_at: NDArray[np.int64]  # [flow] node of the link that limits it; NONE: it sends all that it wants


class _Flows:
    """The flows of a plan over the classes of its links; a node is one flow on one class, in the order of its path."""

    def __init__(self, flow_plan: FlowPlan, most_byte_s: NDArray[np.float64]) -> None:
        state, self._plan, self.most_byte_s = flow_plan.state, flow_plan, most_byte_s
        self._first, self._link, self._share = state.node_first, state.node_class, state.node_share
        self._flow = np.repeat(np.arange(len(most_byte_s)), np.diff(self._first))
        self._capacity = np.asarray(state.classes.capacity) * 1e12

    def meeting(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the flows that use a link of the chosen ones."""
        used = np.zeros(len(self._capacity), np.bool_)
        used[self._link[chosen[self._flow]]] = True
        meets: NDArray[np.bool_] = np.bincount(self._flow, used[self._link]) > 0
        return meets

    def times_s(self, size_bytes: NDArray[np.float64], jobs: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the time in which each flow sends its bytes beside jobs, whose flows have none and never end."""
        left_bytes, times_s, now_s = size_bytes.copy(), np.zeros(len(size_bytes)), 0.0
        while (active := left_bytes > 0).any():
            rate_byte_s = self.solve(active | jobs & (size_bytes == 0)).rate_byte_s[active]
            needed_s = left_bytes[active] / rate_byte_s
            step_s = needed_s[needed_s <= _TOGETHER * needed_s.min()].max()
            times_s[active] = now_s + np.minimum(needed_s, step_s)
            left_bytes[active] = np.where(needed_s <= step_s, 0.0, left_bytes[active] - step_s * rate_byte_s)
            now_s += step_s
        return times_s

    def solve(self, chosen: NDArray[np.bool_]) -> _Solution:
        """Return max-min fair rates: a flow has the weight of its bytes in the buffers before the link that limits it.

        That link depends on the weights, so that both are computed in turn.
        """
        kept = np.flatnonzero(chosen[self._flow])
        number = np.cumsum(chosen) - 1
        flow, link = number[self._flow[kept]], self._link[kept]
        n_flows, n_links = int(chosen.sum()), len(self._capacity)
        first = np.searchsorted(flow, np.arange(n_flows + 1))
        parts = self._parts(flow, link, first)
        most, held = self.most_byte_s[chosen], first[1:] - 1
        for _ in range(_TURNS):
            weight = parts[held]
            # The most that a flow sends is one more link.
            rates, limit = fair_rates(
                first + np.arange(n_flows + 1),
                np.insert(link, first[1:], n_links + np.arange(n_flows)).astype(np.int32),
                np.append(self._capacity, most),
                np.insert(self._share[kept] * weight[flow], first[1:], weight),
            )
            rates *= weight
            at = np.flatnonzero(link == limit[flow])
            held[flow[at]] = at
        rate_byte_s, held_at = np.zeros(len(chosen)), np.full(len(chosen), NONE)
        rate_byte_s[chosen] = rates
        held_at[chosen] = np.where(rates < most * (1 - 1e-6), kept[held], NONE)
        return _Solution(rate_byte_s, held_at)

    def _parts(self, flow: NDArray[np.int64], link: NDArray[np.int32], first: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the part that a flow has of the buffer before each of its links ([node]): of that of the link before.

        An adapter takes turns between its flows.
        """
        parts: NDArray[np.float64] = np.ones(len(flow))
        later = np.ones(len(flow), np.bool_)
        later[first[:-1]] = False
        before = np.flatnonzero(later) - 1
        for _ in range(int(np.diff(first).max())):  # a part depends on those of all links before
            of_link = np.bincount(link, parts)
            parts[later] = parts[before] / of_link[link[before]]
        return parts

    def waits_s(self, jobs: _Solution) -> NDArray[np.float64]:
        """Return the time that a packet of each flow waits in buffers that jobs keep full without it.

        A flow that a link limits fills the buffers before it, back to its sender; each has room for two round trips.
        Queues of networks without credits depend on congestion control, and are left out.
        """
        options, wiring = self._plan.options, self._plan.wiring
        assert options.network is not None
        rules = RULES[options.network]
        if rules.flow is not FlowControl.CREDITS:
            return np.zeros(len(self.most_byte_s))
        room_bytes = credit_room(wiring, options.mtu_bytes + rules.header_bytes)[wiring.ports.peer >= 0].min()
        node = np.arange(len(self._flow))
        full = np.flatnonzero((node > self._first[self._flow]) & (node <= jobs.held_at[self._flow]))
        inputs: NDArray[np.int32] = np.unique(np.column_stack((self._link[full], self._link[full - 1])), axis=0)[:, 0]
        used_byte_s = np.bincount(self._link, self._share * jobs.rate_byte_s[self._flow])
        buffers = np.bincount(inputs, minlength=len(used_byte_s))
        wait_s = buffers * room_bytes / np.maximum(used_byte_s, 1.0)
        waits_s: NDArray[Any] = np.bincount(self._flow, wait_s[self._link])
        return waits_s
