"""The links of hand-offs, as classes with equal loads, and other traffic on them.

A hand-off of several GPUs is as many queue pairs. On one lane an adapter shares its port between queue pairs, and a
switch serves packets in the order of their arrival from buffers that senders keep full: the flows of another sender
count together as one queue pair of a hand-off, those of the same adapter as one each. None sends more than it does
without hand-offs, and flows with the same links are one row. With a lane of their own hand-offs have the share of each
link that VL arbitration guarantees, and all that other traffic leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.inference.serving.resharding import Part
from weft.inference.serving.service import Exchanges
from weft.sim.engine import Options
from weft.sim.flow.fair import fair_rates
from weft.sim.flow.plan import FlowPlan, plan
from weft.sim.traffic import Traffic

_BYTE_PS = 1e12  # bytes/ps to bytes/s
_DIGITS = 3  # rates of other traffic that agree in so many digits are equal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Others:
    """Flows of other traffic."""

    src: NDArray[np.int32]  # port slots
    dst: NDArray[np.int32]
    qp: NDArray[np.int32]  # distinguishes flows of one sender and receiver, from 1 on
    share: NDArray[np.float64]  # each demands this share of its sender's port
    jobs: int  # the first so many are flows of jobs
    lane: float | None = None  # share of each link that a lane of their own guarantees hand-offs; None: one lane


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Links:
    """The link classes of hand-offs and of other traffic."""

    link: list[NDArray[np.int32]]  # [pair · ranks + rank, then other traffic]
    share: list[NDArray[np.float64]]
    alone_byte_s: NDArray[np.float64]  # [pair · ranks + rank]
    capacity_byte_s: NDArray[np.float64]
    others_byte_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # [other traffic]
    exchanges: Exchanges | None = None


def find_links(
    fabric: Fabric,
    pairs: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    parts: Sequence[Sequence[Part]],
    options: Options,
    others: Others | None = None,
    exchanges: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]] = (),
) -> Links:
    """Return the link classes of each hand-off, whose parts leave and arrive by several ports.

    parts: for each pair of attention ranks that requests take in turn. exchanges: ports between which each replica
    exchanges in its steps, if any does.
    """
    if not pairs:
        return Links(link=[], share=[], alone_byte_s=np.zeros(0), capacity_byte_s=np.ones(1))
    sent = [part for ranks in parts for part in ranks]
    flow_plan = plan(fabric, _traffic(pairs, sent, others, exchanges), options)
    state, qp = flow_plan.state, np.asarray(flow_plan.posting.messages.qp)
    capacity = np.asarray(state.classes.capacity) * _BYTE_PS
    flows = qp[: len(pairs) * len(sent)]
    sizes, nodes = _nodes(flow_plan, flows)
    row_of = np.tile(np.repeat(np.arange(len(parts)), [len(ranks) for ranks in parts]), len(pairs))
    row_of += len(parts) * np.repeat(np.arange(len(pairs)), len(sent))
    share = np.tile([part.share for part in sent], len(pairs))
    loads = _Loads.of(
        np.repeat(row_of, sizes), state.node_class[nodes], np.repeat(share, sizes) * state.node_share[nodes]
    )
    alone_byte_s = 1 / np.maximum.reduceat(loads.share / capacity[loads.link], loads.first()[:-1])
    most_byte_s, room = np.zeros(0), _Room(capacity, *np.zeros((2, len(capacity))))
    shared = np.isin(np.arange(len(capacity)), loads.link)
    if others is not None and len(others.src):
        rest = _rest(flow_plan, capacity, qp[len(flows) :][: len(others.src)], others)
        room = _Room(capacity, *_jobs(rest, others, len(parts[0])))
        if others.lane is not None:
            capacity = np.maximum(others.lane * capacity, capacity - rest.used_byte_s)
        else:
            alike = np.isin(others.src, np.concatenate([slots for slots, _ in pairs]))
            sender = np.where(alike, -1 - np.arange(len(alike)), others.src)
            more, most_byte_s = _rows(rest, shared, sender, len(parts[0]))
            loads = loads.followed_by(more, len(alone_byte_s))
    rows = len(alone_byte_s) + len(most_byte_s)
    own = _exchange_loads(flow_plan, qp, exchanges, len(parts[0]))
    met = own.take(shared[own.link])
    every = loads.followed_by(met, rows)
    salts = np.random.default_rng(0).random((2, rows + len(exchanges)))
    # Sums that are equal for links with equal loads, such as rails.
    marks = [np.bincount(every.link, salt[every.row] * every.share, len(capacity)).round(9) for salt in salts]
    _, one, of = np.unique(marks, axis=1, return_index=True, return_inverse=True)
    least = np.full(len(one), np.inf)
    np.minimum.at(least, of.ravel(), capacity)
    loads, met = (each.take(one[of.ravel()[each.link]] == each.link) for each in (loads, met))
    first = loads.first(rows)
    link = of.ravel()[loads.link].astype(np.int32)
    found = Links(
        link=np.split(link, first[1:-1]),
        share=np.split(loads.share, first[1:-1]),
        alone_byte_s=alone_byte_s,
        capacity_byte_s=least,
        others_byte_s=most_byte_s,
    )
    if not exchanges:
        return found
    share_left = 0.0 if others is None or others.lane is None else 1 - others.lane
    return replace(found, exchanges=room.exchanges(own, met, of.ravel().astype(np.int32), len(exchanges), share_left))


class _Loads(NamedTuple):
    """The share of each row's bytes on the links that it uses, by row."""

    row: NDArray[np.int64]
    link: NDArray[np.int32]
    share: NDArray[np.float64]

    @classmethod
    def of(cls, row: NDArray[np.int64], link: NDArray[np.int32], share: NDArray[np.float64]) -> Self:
        """Return the sums over equal rows and links."""
        n = int(link.max(initial=0)) + 1
        keys, at = np.unique(row * n + link, return_inverse=True)
        total: NDArray[Any] = np.bincount(at, share)
        return cls(keys // n, (keys % n).astype(np.int32), total.round(12))

    def first(self, rows: int = 0) -> NDArray[np.int64]:
        """Return the index where each row begins, and the end."""
        counts = np.bincount(self.row, minlength=rows)
        return np.append(0, np.cumsum(counts))

    def take(self, kept: NDArray[np.bool_]) -> _Loads:
        return _Loads(self.row[kept], self.link[kept], self.share[kept])

    def followed_by(self, other: _Loads, rows: int) -> _Loads:
        return _Loads(
            np.append(self.row, other.row + rows), np.append(self.link, other.link), np.append(self.share, other.share)
        )


def _traffic(
    pairs: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    sent: Sequence[Part],
    others: Others | None,
    exchanges: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> Traffic:
    """Return a message for each part of each pair, then one for each flow of other traffic and of exchanges."""
    source, target = (np.array([getattr(part, end) for part in sent]) for end in ("source", "target"))
    src = [slots[source] for slots, _ in pairs]
    dst = [slots[target] for _, slots in pairs]
    qp = [np.zeros(len(pairs) * len(sent), np.int32)]
    if others is not None:
        src, dst, qp = [*src, others.src], [*dst, others.dst], [*qp, others.qp]
    last = int(qp[-1].max(initial=0))
    for number, (senders, receivers) in enumerate(exchanges, last + 1):
        src, dst, qp = [*src, senders], [*dst, receivers], [*qp, np.full(len(senders), number, np.int32)]
    all_src, all_dst = (np.concatenate(column).astype(np.int32) for column in (src, dst))
    return Traffic.make(all_src, all_dst, 1 << 20, qp=np.concatenate(qp), description="hand-offs")


def _nodes(flow_plan: FlowPlan, flows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of nodes of each flow, and all nodes one after the other."""
    first = flow_plan.state.node_first
    sizes = np.diff(first)[flows]
    return sizes, np.arange(sizes.sum()) + np.repeat(first[flows] - np.cumsum(sizes) + sizes, sizes)


def _exchange_loads(
    flow_plan: FlowPlan,
    qp: NDArray[np.int64],
    exchanges: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    queue_pairs: int,
) -> _Loads:
    """Return the flows of the exchanges of each replica on each link, as queue pairs of a hand-off."""
    counts = np.array([len(src) for src, _ in exchanges], np.int64)
    sizes, nodes = _nodes(flow_plan, qp[len(qp) - counts.sum() :])
    replica = np.repeat(np.repeat(np.arange(len(counts)), counts), sizes)
    return _Loads.of(replica, flow_plan.state.node_class[nodes], flow_plan.state.node_share[nodes] / queue_pairs)


class _Room(NamedTuple):
    """The capacity of links and the jobs on them."""

    capacity_byte_s: NDArray[np.float64]  # [class]
    jobs_byte_s: NDArray[np.float64]
    jobs_weight: NDArray[np.float64]

    def rates(self, loads: _Loads) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bytes per second that exchanges get on links without hand-offs, and the weight of all there."""
        at, weight = loads.link, loads.share + self.jobs_weight[loads.link]
        fair_byte_s = self.capacity_byte_s[at] * loads.share / weight
        left_byte_s = (self.capacity_byte_s - self.jobs_byte_s)[at]
        return np.maximum(left_byte_s, fair_byte_s), np.where(left_byte_s < fair_byte_s, weight, loads.share)

    def exchanges(self, own: _Loads, met: _Loads, number: NDArray[np.int32], replicas: int, least: float) -> Exchanges:
        """Return the exchanges of replicas, with their loads on all links and on those that they share with hand-offs.

        number: the class of each link in the result. least: share of their rate that hand-offs leave in any case.
        """
        slowest_byte_s = np.full(replicas, np.inf)
        np.minimum.at(slowest_byte_s, own.row, self.rates(own)[0] / own.share)
        byte_s, weight = self.rates(met)
        return Exchanges(
            first=met.first(replicas),
            link=number[met.link],
            byte_s=byte_s,
            weight=weight,
            slack=byte_s / (met.share * slowest_byte_s[met.row]),
            least=least,
        )


class _Rest(NamedTuple):
    """Flows of other traffic: their nodes one after the other, and their rates without hand-offs."""

    first: NDArray[np.int64]  # [flow + 1]
    link: NDArray[np.int32]
    share: NDArray[np.float64]
    rate_byte_s: NDArray[np.float64]
    used_byte_s: NDArray[np.float64]  # [class]


def _rest(flow_plan: FlowPlan, capacity: NDArray[np.float64], flows: NDArray[np.int64], others: Others) -> _Rest:
    state, wiring = flow_plan.state, flow_plan.wiring
    port_byte_s = np.zeros(len(wiring.fabric.ports))
    port_byte_s[wiring.slot] = wiring.port_rate_gbit_s * 1e9 / 8
    sizes, nodes = _nodes(flow_plan, flows)
    first = np.concatenate(([0], np.cumsum(sizes)))
    link, share = state.node_class[nodes], state.node_share[nodes]
    # The demand of each flow is one more link.
    end, n = first[1:], len(capacity)
    rate_byte_s, _ = fair_rates(
        first + np.arange(len(first)),
        np.insert(link, end, n + np.arange(len(flows))).astype(np.int32),
        np.concatenate((capacity, others.share * port_byte_s[others.src])),
        np.insert(share, end, 1.0),
    )
    used_byte_s: NDArray[Any] = np.bincount(link, share * np.repeat(rate_byte_s, sizes), n)
    return _Rest(first, link, share, rate_byte_s, used_byte_s)


def _jobs(rest: _Rest, others: Others, queue_pairs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bytes per second of jobs on each link, and their senders there, as queue pairs of a hand-off."""
    flow = np.repeat(np.arange(len(rest.rate_byte_s)), np.diff(rest.first))
    is_job = flow < others.jobs
    link, n_links = rest.link[is_job], len(rest.used_byte_s)
    byte_s: NDArray[Any] = np.bincount(link, (rest.share * rest.rate_byte_s[flow])[is_job], n_links)
    senders = np.unique(np.column_stack((link, others.src[flow[is_job]])), axis=0)[:, 0]
    return byte_s, np.bincount(senders, minlength=n_links) / queue_pairs


def _rows(
    rest: _Rest, shared: NDArray[np.bool_], sender: NDArray[np.int64], queue_pairs: int
) -> tuple[_Loads, NDArray[np.float64]]:
    """Return the loads of groups of flows on the links of hand-offs, and their limits.

    sender: flows of one sender together count as one queue pair of a hand-off. Rates are those of all its queue pairs.
    """
    n_flows, n_links = len(rest.rate_byte_s), len(shared)
    flow = np.repeat(np.arange(n_flows), np.diff(rest.first))
    kept = shared[rest.link]
    flow, link, share = flow[kept], rest.link[kept], rest.share[kept]
    signs = np.random.default_rng(0).random((2, n_links)) + 0.5
    marks = [np.bincount(flow, share * sign[link], n_flows).round(9) for sign in signs]
    digits = _DIGITS - 1 - np.floor(np.log10(np.maximum(rest.rate_byte_s, 1.0)))
    rates = np.round(rest.rate_byte_s * 10.0**digits) / 10.0**digits
    meets = np.flatnonzero(marks[0] > 0)
    _, of, together = np.unique(sender[meets], return_inverse=True, return_counts=True)
    keys = np.column_stack([*(column[meets] for column in (*marks, rates)), together[of]])
    groups, one, count = np.unique(keys, axis=0, return_index=True, return_counts=True)
    weight = count / groups[:, 3] / queue_pairs
    example = np.full(n_flows, -1)  # the group of which a flow is the example
    example[meets[one]] = np.arange(len(groups))
    kept = example[flow] >= 0
    group = example[flow[kept]]
    rows = _Loads.of(group, link[kept], weight[group] * share[kept])
    return rows, groups[:, 2] * groups[:, 3] * queue_pairs
