"""A trace in closed form: every collective and message takes what it would take alone.

Of servers with GPUs a collective takes what NCCL's closed form says (`weft.collectives.nccl.estimate`), on a network
that is measured for all groups of its name at once; of others, what its program takes on the idle network. What runs at
the same time and is not of one name shares nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from weft.collectives.nccl.cluster import Cluster, from_fabric
from weft.collectives.nccl.estimate import PAIRWISE, estimate
from weft.collectives.nccl.measure import edge_traffic, edges, measure_traffic
from weft.collectives.nccl.network import Network, Networks, Pattern
from weft.collectives.ranks import Ranks, subset
from weft.collectives.run import run_program
from weft.sim.engine import Options
from weft.sim.result import Engine
from weft.sim.traffic import Traffic
from weft.training.traces.link import NONE, CollectiveMatch, Linked
from weft.training.traces.programs import write
from weft.training.traces.times import Times
from weft.training.traces.trace import Kind, Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clock:
    """A cache of the times of collectives and messages that run alone."""

    trace: Trace
    ranks: Ranks
    joined: Ranks  # the same, with NVLinks
    options: Options
    engine: Engine
    known: dict[object, int] = field(default_factory=dict)
    networks: dict[object, Networks] = field(default_factory=dict)

    def collective_ps(self, meeting: CollectiveMatch) -> int:
        key = (meeting.collective, meeting.size_bytes, meeting.members, meeting.root)
        if key not in self.known:
            self.known[key] = self._collective_ps(meeting) if len(meeting.members) > 1 else 0
        return self.known[key]

    def _collective_ps(self, meeting: CollectiveMatch) -> int:
        if (self.joined.nvlink < 0).any():
            some = subset(self.joined, meeting.members)
            program, size_bytes = write(meeting, some)
            return run_program(program, some, size_bytes, self.options, engine=self.engine).time_ps
        some = subset(self.ranks, meeting.members)
        found = estimate(
            _cluster(some),
            meeting.collective,
            max(meeting.size_bytes, 1),
            networks=self._networks(meeting) if len(some.servers) > 1 else None,
        )
        return round(found.time_us * 1e6)

    def _networks(self, meeting: CollectiveMatch) -> Networks:
        """Return the networks of the groups of this name while all of them work; the slowest counts."""
        patterns = (Pattern.PAIRS,) if meeting.collective in PAIRWISE else (Pattern.RING, Pattern.TREE)
        key = (meeting.group, patterns)
        if key not in self.networks:
            groups = [subset(self.ranks, members) for members in self.trace.groups[meeting.group]]
            self.networks[key] = {pattern: self._network(meeting.group, pattern, groups) for pattern in patterns}
        return self.networks[key]

    def _network(self, name: str, pattern: Pattern, groups: list[Ranks]) -> Network:
        ends: tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]] = ([], [])
        for group in groups:
            for side, servers in zip(ends, edges(pattern, len(group.servers)), strict=True):
                side.append(group.adapters[servers].ravel())
        src, dst = (np.concatenate(side) for side in ends)
        traffic = edge_traffic(src, dst, f"{len(groups):,} groups {name}, {pattern}")
        return measure_traffic(self.ranks.fabric, traffic, self.options, engine=self.engine)[0]

    def messages_ps(self, linked: Linked) -> dict[tuple[int, int, int], int]:
        """Return the time of each message by sender, receiver and size; they are run one after another."""
        rows = sorted(
            {
                (linked.rank[at], node.peer, node.size_bytes)
                for at, node in enumerate(linked.nodes)
                if node.kind is Kind.SEND
            }
        )
        if not rows:
            return {}
        ends = np.array([ports(self.joined, src, dst) for src, dst, _ in rows])
        traffic = Traffic.make(
            ends[:, 0],
            ends[:, 1],
            [size for _, _, size in rows],
            qp=np.arange(len(rows)),
            after=[[row - 1] if row else [] for row in range(len(rows))],
            description="messages, one after the other",
        )
        result = self.engine.run(self.joined.fabric, traffic, self.options)
        return dict(zip(rows, result.latency_ps.tolist(), strict=True))


def ports(ranks: Ranks, src: int, dst: int) -> tuple[int, int]:
    """Return the port slots of two ranks: NVLink inside a server, else their adapters."""
    inside = src // ranks.per_server == dst // ranks.per_server and ranks.nvlink[src] >= 0
    column = ranks.nvlink if inside else ranks.port
    return int(column[src]), int(column[dst])


def _cluster(ranks: Ranks) -> Cluster:
    whole = from_fabric(ranks.fabric, ranks.servers)
    return replace(whole, gpus=ranks.per_server, nics=min(whole.nics, ranks.rails))


def run_alone(linked: Linked, clock: Clock) -> Times:
    """Run each node as soon as its dependencies allow, and return the times."""
    n = len(linked.nodes)
    begin_ps, joined_ps, end_ps = [0] * n, [0] * n, [0] * n
    messages_ps = clock.messages_ps(linked)
    for turn in linked.order:
        for at in turn:
            waits = [end_ps[other] for other in linked.before[at]]
            begin_ps[at] = max(waits + [begin_ps[other] for other in linked.begun[at]], default=0)
        start_ps = max(begin_ps[at] for at in turn)
        for at in turn:
            node = linked.nodes[at]
            joined_ps[at] = start_ps
            if linked.meeting[at] != NONE:
                end_ps[at] = start_ps + clock.collective_ps(linked.meetings[linked.meeting[at]])
            elif node.kind is Kind.SEND:
                end_ps[at] = start_ps + messages_ps[linked.rank[at], node.peer, node.size_bytes]
            elif node.kind is Kind.RECV:
                end_ps[at] = max(start_ps, end_ps[linked.partner[at]])
                joined_ps[at] = min(max(start_ps, begin_ps[linked.partner[at]]), end_ps[at])
            else:
                end_ps[at] = start_ps + node.duration_ps
    return Times(begin_ps=begin_ps, joined_ps=joined_ps, end_ps=end_ps)
