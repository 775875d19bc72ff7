"""Link a trace: dependencies across ranks, the nodes of each collective, and an order in which all can run.

Errors of a trace are reported here, by file and node: dependencies on a missing node or on itself, collectives that a
rank of the group lacks, sends without a receive, and ranks that wait for each other.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.collectives.kinds import Collective
from weft.errors import ConfigError
from weft.training.traces.trace import Kind, Label, Node, Trace, refuse_bad_groups
from weft.units import format_items

NONE = -1
LONGEST_PS = 10**15  # engines count to 4 times as much
LARGEST_BYTES = 1 << 42
_SHOWN = 6  # nodes of a cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveMatch:
    """A collective call, matched over all of its ranks."""

    collective: Collective
    size_bytes: int
    group: str
    members: tuple[int, ...]
    root: int
    nodes: tuple[int, ...]  # one of each member


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linked:
    """The nodes of all ranks, by number, with their dependencies."""

    trace: Trace
    ranks: list[int]
    nodes: list[Node]
    rank: list[int]
    before: list[list[int]]  # [node] -> nodes that must have ended
    begun: list[list[int]]  # [node] -> nodes that must have begun
    partner: list[int]  # [send] -> its receive, [receive] -> its send
    meetings: list[CollectiveMatch]
    meeting: list[int]  # [node] -> its place in `meetings`
    order: list[tuple[int, ...]]  # nodes after their dependencies; those of a collective together


def link(trace: Trace, ranks: Iterable[int] | None = None) -> Linked:
    """Link all ranks, or only these, as if the other ranks of a collective never delayed it."""
    refuse_bad_groups(trace)
    chosen = list(range(len(trace.ranks)) if ranks is None else ranks)
    nodes: list[Node] = []
    rank: list[int] = []
    before: list[list[int]] = []
    begun: list[list[int]] = []
    in_turn: dict[int, list[int]] = {}
    for one in chosen:
        at = len(nodes)
        own = trace.ranks[one]
        ends, starts = _named(trace, one)
        nodes += own
        rank += [one] * len(own)
        in_turn[one] = [at + local for local in _sorted(trace, one, ends, starts)]
        before += [[at + local for local in those] for those in ends]
        begun += [[at + local for local in those] for those in starts]
    for turns in in_turn.values():
        _chain(nodes, before, turns)
    meetings = _meet(trace, nodes, in_turn)
    meeting = [NONE] * len(nodes)
    for number, found in enumerate(meetings):
        for node in found.nodes:
            meeting[node] = number
    made = Linked(
        trace=trace,
        ranks=chosen,
        nodes=nodes,
        rank=rank,
        before=before,
        begun=begun,
        partner=_pair(trace, nodes, rank, in_turn),
        meetings=meetings,
        meeting=meeting,
        order=[],
    )
    made.order.extend(_order(made))
    return made


# -- one rank ---------------------------------------------------------------------------------------------------------


def _named(trace: Trace, rank: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the nodes, by place, whose end and whose begin each node of a rank waits for."""
    own, file = trace.ranks[rank], trace.files[rank]
    place: dict[Label, int] = {}
    for at, node in enumerate(own):
        if node.id in place:
            raise ConfigError(
                f"{file}: two nodes of rank {rank} are called {node.id}: {own[place[node.id]].name!r} and {node.name!r}"
            )
        place[node.id] = at
        if not 0 <= node.duration_ps <= LONGEST_PS or not 0 <= node.size_bytes <= LARGEST_BYTES:
            raise ConfigError(
                f"{file}: node {node.id} ({node.name}) of rank {rank} has {node.size_bytes:,} bytes and takes "
                f"{node.duration_ps / 1e12:,.6g} s: up to {LARGEST_BYTES >> 40} TiB and {LONGEST_PS / 1e12:,.0f} s go"
            )

    def find(node: Node, label: Label) -> int:
        if label not in place:
            raise ConfigError(
                f"{file}: node {node.id} ({node.name}) of rank {rank} waits for node {label}, which is not there: "
                f"the file is cut short, or the dependency is wrong"
            )
        return place[label]

    ends = [[find(node, label) for label in node.after] for node in own]
    return ends, [[find(node, label) for label in node.after_start] for node in own]


def _sorted(trace: Trace, rank: int, ends: list[list[int]], starts: list[list[int]]) -> list[int]:
    """Return the places of a rank's nodes in the order of the file, but each after its dependencies."""
    following: list[list[int]] = [[] for _ in ends]
    waits = [0] * len(ends)
    for at, those in enumerate(ends):
        for other in (*those, *starts[at]):
            following[other].append(at)
            waits[at] += 1
    ready = [at for at, many in enumerate(waits) if not many]
    turns = []
    while ready:
        at = heapq.heappop(ready)
        turns.append(at)
        for later in following[at]:
            waits[later] -= 1
            if not waits[later]:
                heapq.heappush(ready, later)
    if len(turns) < len(ends):
        own = trace.ranks[rank]
        circle = _circle(
            {at: [o for o in (*ends[at], *starts[at]) if waits[o]] for at in range(len(ends)) if waits[at]}
        )
        raise ConfigError(
            f"{trace.files[rank]}: nodes of rank {rank} wait for each other in a circle: "
            f"{' -> '.join(f'{own[at].id} ({own[at].name})' for at in circle)}"
        )
    return turns


def _chain(nodes: list[Node], before: list[list[int]], turns: Sequence[int]) -> None:
    """Make each node of a lane wait for the previous one."""
    last: dict[str, int] = {}
    for at in turns:
        lane = nodes[at].lane
        if lane:
            if lane in last and last[lane] not in before[at]:
                before[at].append(last[lane])
            last[lane] = at


# -- between ranks ----------------------------------------------------------------------------------------------------


def _meet(trace: Trace, nodes: list[Node], in_turn: dict[int, list[int]]) -> list[CollectiveMatch]:
    calls: dict[tuple[str, tuple[int, ...]], dict[int, list[int]]] = {}
    for rank, turns in in_turn.items():
        of: dict[str, tuple[int, ...]] = {}
        for at in turns:
            node = nodes[at]
            if node.kind is Kind.COLLECTIVE:
                if node.group not in of:
                    of[node.group] = trace.group_of(rank, node.group)
                calls.setdefault((node.group, of[node.group]), defaultdict(list))[rank].append(at)
    meetings = []
    for (group, members), by_rank in calls.items():
        there = [rank for rank in members if rank in in_turn]
        first = by_rank[there[0]]
        for rank in there[1:]:
            _refuse_other_calls(trace, nodes, group, (there[0], first), (rank, by_rank[rank]))
        for turn, at in enumerate(first):
            node = nodes[at]
            if node.collective is None:
                raise ConfigError(f"{trace.files[there[0]]}: node {node.id} ({node.name}) is a collective of no kind")
            meetings.append(
                CollectiveMatch(
                    collective=node.collective,
                    size_bytes=node.size_bytes,
                    group=group,
                    members=members,
                    root=node.root,
                    nodes=tuple(by_rank[rank][turn] for rank in there),
                )
            )
    return meetings


def _refuse_other_calls(
    trace: Trace, nodes: list[Node], group: str, one: tuple[int, list[int]], other: tuple[int, list[int]]
) -> None:
    """Raise an error if the ranks of a group call different collectives."""
    (rank, calls), (far, far_calls) = one, other
    for turn, (at, far_at) in enumerate(zip(calls, far_calls, strict=False)):
        near, there = nodes[at], nodes[far_at]
        if (near.collective, near.size_bytes) != (there.collective, there.size_bytes):
            raise ConfigError(
                f"group {group!r}, collective {turn}: rank {rank} calls {near.collective} of {near.size_bytes:,} bytes "
                f"(node {near.id} of {trace.files[rank]}), rank {far} calls {there.collective} of "
                f"{there.size_bytes:,} bytes (node {there.id} of {trace.files[far]}): they would wait for ever"
            )
    if len(calls) != len(far_calls):
        raise ConfigError(
            f"group {group!r}: rank {rank} calls {len(calls)} collectives ({trace.files[rank]}), rank {far} calls "
            f"{len(far_calls)} ({trace.files[far]}): they would wait for ever. Are both of the same steps?"
        )


def _pair(trace: Trace, nodes: list[Node], rank: list[int], in_turn: dict[int, list[int]]) -> list[int]:
    """Match sends and receives by sender, receiver and tag, in their order."""
    sent: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    got: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for one, turns in in_turn.items():
        for at in turns:
            node = nodes[at]
            if node.kind in (Kind.SEND, Kind.RECV):
                if not 0 <= node.peer < len(trace.ranks) or node.peer == one:
                    raise ConfigError(
                        f"{trace.files[one]}: node {node.id} ({node.name}) of rank {one} is a {node.kind} with rank "
                        f"{node.peer}: it needs another rank, of 0 to {len(trace.ranks) - 1}"
                    )
                sends = node.kind is Kind.SEND
                (sent if sends else got)[(one, node.peer, node.tag) if sends else (node.peer, one, node.tag)].append(at)
    partner = [NONE] * len(nodes)
    for src, dst, tag in sent.keys() | got.keys():
        here, there = sent[src, dst, tag], got[src, dst, tag]
        if len(here) != len(there):
            at = (here if len(here) > len(there) else there)[min(len(here), len(there))]
            raise ConfigError(
                f"{trace.files[rank[at]]}: node {nodes[at].id} ({nodes[at].name}) of rank {rank[at]} has no partner: "
                f"rank {src} sends {format_items(len(here), 'message')} of tag {tag} to rank {dst}, which receives "
                f"{len(there)}"
            )
        for one, other in zip(here, there, strict=True):
            partner[one], partner[other] = other, one
            if nodes[one].size_bytes > nodes[other].size_bytes:
                raise ConfigError(
                    f"{trace.files[dst]}: node {nodes[other].id} of rank {dst} receives {nodes[other].size_bytes:,} "
                    f"bytes, rank {src} sends {nodes[one].size_bytes:,} (node {nodes[one].id})"
                )
    return partner


def _order(made: Linked) -> list[tuple[int, ...]]:
    """Return an order of all nodes in which those of a collective are one step."""
    alone: list[tuple[int, ...]] = [(at,) for at, number in enumerate(made.meeting) if number == NONE]
    turns = alone + [meeting.nodes for meeting in made.meetings]
    turn_of = [NONE] * len(made.nodes)
    for number, those in enumerate(turns):
        for at in those:
            turn_of[at] = number
    needs = [sorted({turn_of[other] for at in those for other in _needs(made, at)}) for those in turns]
    following: list[list[int]] = [[] for _ in turns]
    for number, needed in enumerate(needs):
        for other in needed:
            following[other].append(number)
    waits = [len(needed) for needed in needs]
    found = [number for number, many in enumerate(waits) if not many]
    for number in found:  # it grows as it is read
        for later in following[number]:
            waits[later] -= 1
            if not waits[later]:
                found.append(later)
    if len(found) < len(turns):
        circle = _circle({n: [o for o in needs[n] if waits[o]] for n in range(len(turns)) if waits[n]})
        steps = (turns[number][0] for number in circle)
        shown = " -> ".join(f"rank {made.rank[at]}: {made.nodes[at].id} ({made.nodes[at].name})" for at in steps)
        raise ConfigError(f"{made.trace.source}: ranks wait for each other in a circle, and would for ever: {shown}")
    return [turns[number] for number in found]


def _needs(made: Linked, at: int) -> Iterable[int]:
    yield from made.before[at]
    yield from made.begun[at]
    if made.nodes[at].kind is Kind.RECV:
        yield made.partner[at]


def _circle(waits_for: dict[int, list[int]]) -> list[int]:
    """Return a cycle among the remaining nodes, each of which waits for another one."""
    at = next(iter(waits_for))
    seen: dict[int, int] = {}
    while at not in seen:
        seen[at] = len(seen)
        at = waits_for[at][0]
    circle = list(seen)[seen[at] :]
    return [*circle[:_SHOWN], at]
