"""Begin and end of every node of a trace, and the sums for each rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.training.timeline import Span
from weft.training.traces.link import Linked
from weft.training.traces.trace import Kind

S = 1e-12  # seconds of a picosecond


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Times:
    """The times of the nodes of a linked trace."""

    begin_ps: list[int]  # its dependencies have ended
    joined_ps: list[int]  # for communication: all participants have begun
    end_ps: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """The time of a rank in three parts that add up to the total."""

    rank: int
    compute_s: float  # at least one of its lanes computes
    exposed_s: float  # none does, and data moves for it
    waiting_s: float  # neither: for other ranks, or at its end


def rank_times(linked: Linked, times: Times) -> list[RankTime]:
    """Return the times of each rank."""
    total_ps = max(times.end_ps, default=0)
    made = []
    by_rank: dict[int, list[int]] = {rank: [] for rank in linked.ranks}
    for at, rank in enumerate(linked.rank):
        by_rank[rank].append(at)
    for rank, nodes in by_rank.items():
        compute = [at for at in nodes if linked.nodes[at].kind is Kind.COMPUTE]
        other = [at for at in nodes if linked.nodes[at].kind is not Kind.COMPUTE]
        busy = [(times.begin_ps[at], times.end_ps[at]) for at in compute]
        moving = [(times.joined_ps[at], times.end_ps[at]) for at in other]
        compute_ps, either_ps = _covered_ps(busy), _covered_ps(busy + moving)
        made.append(
            RankTime(
                rank=rank,
                compute_s=compute_ps * S,
                exposed_s=(either_ps - compute_ps) * S,
                waiting_s=(total_ps - either_ps) * S,
            )
        )
    return made


def _covered_ps(spans: list[tuple[int, int]]) -> int:
    """Return the length of the union of intervals."""
    if not spans:
        return 0
    ends: NDArray[np.int64] = np.array(sorted(spans), np.int64)
    begin, end = ends[:, 0], np.maximum.accumulate(ends[:, 1])
    before = np.concatenate((begin[:1], end[:-1]))
    return int(np.maximum(end - np.maximum(begin, before), 0).sum())


def spans_of(linked: Linked, times: Times) -> Iterator[Span]:
    """Yield the spans of a timeline, without those of no length."""
    for at, node in enumerate(linked.nodes):
        track, lane = f"rank {linked.rank[at]}", node.lane or str(node.kind)
        begin_ps, joined_ps, end_ps = times.begin_ps[at], times.joined_ps[at], times.end_ps[at]
        if begin_ps < joined_ps:
            waits = {"name": f"wait: {node.name}", "kind": "wait", "start_s": begin_ps * S, "end_s": joined_ps * S}
            yield Span(track=track, lane=lane, **waits)  # type: ignore[arg-type]
        if joined_ps < end_ps:
            yield Span(track=track, lane=lane, name=node.name, kind=node.kind, start_s=joined_ps * S, end_s=end_ps * S)
