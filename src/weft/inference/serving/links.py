"""The links of hand-offs, as classes with equal loads, and other traffic on them.

A hand-off of several GPUs is as many queue pairs. On one lane an adapter shares its port between queue pairs, and a
switch serves packets in the order of their arrival from buffers that senders keep full: the flows of another sender
count together as one queue pair of a hand-off, those of the same adapter as one each. None sends more than it does
without hand-offs, and flows with the same links are one row. With a lane of their own hand-offs have the share of each
link that VL arbitration guarantees, and all that other traffic leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.inference.serving.resharding import Part
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
    share: NDArray[np.float64]  # of its sender's port that each demands
    lane: float | None = None  # share of each link that a lane of their own guarantees hand-offs; None: one lane


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Links:
    """The link classes of hand-offs and of other traffic."""

    link: list[NDArray[np.int32]]  # [pair · ranks + rank, then other traffic]
    share: list[NDArray[np.float64]]
    alone_byte_s: NDArray[np.float64]  # [pair · ranks + rank]
    capacity_byte_s: NDArray[np.float64]
    others_byte_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # [other traffic]


def find_links(
    fabric: Fabric,
    pairs: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    parts: Sequence[Sequence[Part]],
    options: Options,
    others: Others | None = None,
) -> Links:
    """Return the link classes of each hand-off, whose parts leave and arrive by several ports.

    parts: for each pair of attention ranks that requests take in turn.
    """
    if not pairs:
        return Links(link=[], share=[], alone_byte_s=np.zeros(0), capacity_byte_s=np.ones(1))
    sent = [part for ranks in parts for part in ranks]
    flow_plan = plan(fabric, _traffic(pairs, sent, others), options)
    state, qp = flow_plan.state, np.asarray(flow_plan.posting.messages.qp)
    capacity = np.asarray(state.classes.capacity) * _BYTE_PS
    flows = qp[: len(pairs) * len(sent)]
    sizes = np.diff(state.node_first)[flows]
    nodes = np.repeat(state.node_first[flows] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    row_of = np.tile(np.repeat(np.arange(len(parts)), [len(ranks) for ranks in parts]), len(pairs))
    row_of += len(parts) * np.repeat(np.arange(len(pairs)), len(sent))
    share = np.tile([part.share for part in sent], len(pairs))
    loads = _Loads.of(
        np.repeat(row_of, sizes), state.node_class[nodes], np.repeat(share, sizes) * state.node_share[nodes]
    )
    alone_byte_s = 1 / np.maximum.reduceat(loads.share / capacity[loads.link], loads.first()[:-1])
    most_byte_s = np.zeros(0)
    if others is not None and len(others.src):
        rest = _rest(flow_plan, capacity, qp[len(flows) :], others)
        if others.lane is not None:
            capacity = np.maximum(others.lane * capacity, capacity - rest.used_byte_s)
        else:
            alike = np.isin(others.src, np.concatenate([slots for slots, _ in pairs]))
            sender = np.where(alike, -1 - np.arange(len(alike)), others.src)
            shared = np.isin(np.arange(len(capacity)), loads.link)
            more, most_byte_s = _rows(rest, shared, sender, len(parts[0]))
            loads = loads.followed_by(more, len(alone_byte_s))
    rows = len(alone_byte_s) + len(most_byte_s)
    salts = np.random.default_rng(0).random((2, rows))  # sums that are equal for links with equal loads, such as rails
    marks = [np.bincount(loads.link, salt[loads.row] * loads.share, len(capacity)).round(9) for salt in salts]
    _, one, of = np.unique(marks, axis=1, return_index=True, return_inverse=True)
    least = np.full(len(one), np.inf)
    np.minimum.at(least, of.ravel(), capacity)
    loads = loads.take(one[of.ravel()[loads.link]] == loads.link)
    first = loads.first(rows)
    link = of.ravel()[loads.link].astype(np.int32)
    return Links(
        link=np.split(link, first[1:-1]),
        share=np.split(loads.share, first[1:-1]),
        alone_byte_s=alone_byte_s,
        capacity_byte_s=least,
        others_byte_s=most_byte_s,
    )


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
) -> Traffic:
    """Return a message for each part of each pair, then one for each flow of other traffic."""
    source, target = (np.array([getattr(part, end) for part in sent]) for end in ("source", "target"))
    src = [slots[source] for slots, _ in pairs]
    dst = [slots[target] for _, slots in pairs]
    qp = [np.zeros(len(pairs) * len(sent), np.int32)]
    if others is not None:
        src, dst, qp = [*src, others.src], [*dst, others.dst], [*qp, others.qp]
    senders, receivers = (np.concatenate(column).astype(np.int32) for column in (src, dst))
    return Traffic.make(senders, receivers, 1 << 20, qp=np.concatenate(qp), description="hand-offs")


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
    sizes = np.diff(state.node_first)[flows]
    first = np.concatenate(([0], np.cumsum(sizes)))
    nodes = np.arange(first[-1]) + np.repeat(state.node_first[flows] - first[:-1], sizes)
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
