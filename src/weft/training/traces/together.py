"""Run a trace as one traffic, so that all messages of its ranks share the network.

Every collective becomes the messages of its program, every send a message. A message starts when both of its ranks have
come to it and its program lets it go. Engines know one delay for all that a message waits for, and here computing of
different length may lie between. So a message is given what it waits for longest, by the times of the run before, and
the run is made again until every message starts exactly when all that it waits for lets it. What is found then is what
an engine with a clock for computing would find: up to the first message that started too early everything was right,
so every run makes more of it right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.collectives.ranks import Ranks, subset
from weft.collectives.run import count_sends
from weft.collectives.traffic import program_traffic, whole_schedule
from weft.errors import ConfigError
from weft.sim.engine import Options, Progress
from weft.sim.result import Engine
from weft.sim.traffic import Traffic
from weft.training.traces.alone import ports
from weft.training.traces.link import LONGEST_PS, NONE, CollectiveMatch, Linked
from weft.training.traces.programs import write
from weft.training.traces.times import Times
from weft.training.traces.trace import Kind

_MOST_RUNS = 200

Ints = NDArray[np.int64]


class Wait(NamedTuple):
    """A dependency: not before `floor_ps`, and `delay_ps` after the last of some messages."""

    floor_ps: int
    last_ps: int  # end of the delay; NONE without messages
    delay_ps: int
    messages: tuple[int, ...]

    @property
    def over_ps(self) -> int:
        return max(self.floor_ps, self.last_ps)


_NOTHING = Wait(0, NONE, 0, ())


def _latest(waits: list[Wait]) -> Wait:
    """Return one dependency for several: the latest, with the messages that have its delay."""
    if len(waits) == 1:
        return waits[0]
    floor_ps = max((wait.floor_ps for wait in waits), default=0)
    last = max(waits, key=lambda wait: wait.last_ps, default=_NOTHING)
    if last.last_ps == NONE:
        return Wait(floor_ps, NONE, 0, ())
    same = dict.fromkeys(number for wait in waits if wait.delay_ps == last.delay_ps for number in wait.messages)
    return Wait(floor_ps, last.last_ps, last.delay_ps, tuple(same))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Template:
    """The messages of a collective, by themselves."""

    traffic: Traffic
    src: Ints  # [message] -> member, in the order of ranks
    dst: Ints
    last: list[Ints]  # [member] -> its messages that none of its others waits for


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Messages:
    """The messages of a trace."""

    src: Ints  # port slots
    dst: Ints
    size_bytes: Ints
    qp: Ints
    after_first: Ints
    after: Ints
    gates: Ints  # [message, 2] -> nodes that must have begun
    last: dict[int, tuple[int, ...]]  # [node of communication] -> messages whose arrival ends it


def count_messages(linked: Linked, ranks: Ranks) -> int:
    """Return the approximate number of messages of a run, without hops over NVLink."""
    known: dict[object, int] = {}
    total = sum(node.kind is Kind.SEND for node in linked.nodes)
    for meeting in linked.meetings:
        if len(meeting.members) > 1:
            key = (meeting.collective, meeting.members)
            if key not in known:
                known[key] = count_sends(write(meeting, subset(ranks, meeting.members))[0])
            total += known[key]
    return total


# -- messages ---------------------------------------------------------------------------------------------------------


def _template(meeting: CollectiveMatch, ranks: Ranks) -> _Template:
    some = subset(ranks, meeting.members)
    program, size_bytes = write(meeting, some)
    made = whole_schedule(program)
    traffic = program_traffic(program, some, size_bytes, made)
    n = len(made.sends)
    of = np.arange(len(traffic))  # [message] -> its send; a hop over NVLink is of the one that waits for it
    waiting = np.repeat(np.arange(len(traffic)), np.diff(traffic.after_first))
    hops = (traffic.after >= n) & (waiting < n)
    of[traffic.after[hops]] = waiting[hops]
    src, dst = (np.asarray(end, np.int64)[of] for end in (made.sends.src, made.sends.dst))
    last = []
    for member in range(program.n_ranks):
        own = (src == member) | (dst == member)
        waited = np.zeros(len(traffic), np.bool_)
        waited[traffic.after[own[waiting]]] = True
        last.append(np.flatnonzero(own & ~waited))
    return _Template(traffic=traffic, src=src, dst=dst, last=last)


def lay_out(linked: Linked, ranks: Ranks) -> Messages:
    """Return the messages of a trace: collectives first, then sends."""
    templates: dict[object, _Template] = {}
    parts: list[tuple[Traffic, Ints]] = []
    last: dict[int, tuple[int, ...]] = {}
    at = 0
    for meeting in linked.meetings:
        if len(meeting.members) < 2:
            continue
        key = (meeting.collective, meeting.size_bytes, meeting.members, meeting.root)
        if key not in templates:
            templates[key] = _template(meeting, ranks)
        template = templates[key]
        nodes = np.array([node for _, node in sorted(zip(meeting.members, meeting.nodes, strict=True))])
        gates = np.column_stack((nodes[template.src], nodes[template.dst]))
        parts.append((template.traffic, gates))
        last |= {int(node): tuple((at + template.last[place]).tolist()) for place, node in enumerate(nodes)}
        at += len(template.traffic)
    sends = [number for number, node in enumerate(linked.nodes) if node.kind is Kind.SEND]
    if sends:
        ends = np.array([ports(ranks, linked.rank[send], linked.nodes[send].peer) for send in sends])
        sizes = [linked.nodes[send].size_bytes for send in sends]
        traffic = Traffic.make(ends[:, 0], ends[:, 1], sizes, qp=np.arange(len(sends)))
        gate = np.array(sends)
        parts.append((traffic, np.column_stack((gate, gate))))
        last |= {send: (at + place,) for place, send in enumerate(sends)}
    return _joined(parts, last)


def _joined(parts: list[tuple[Traffic, Ints]], last: dict[int, tuple[int, ...]]) -> Messages:
    """Merge the messages; each collective and send has connections of its own.

    Engines keep the order of messages on a connection, but the one released first may have the longer computation
    before it.
    """
    none = np.zeros(0, np.int64)
    begins = np.cumsum([0, *(len(traffic) for traffic, _ in parts)])
    many = np.cumsum([0, *(int(traffic.qp.max()) + 1 for traffic, _ in parts)])

    def column(name: str) -> Ints:
        return np.concatenate([none, *(getattr(traffic, name) for traffic, _ in parts)])

    counts = np.concatenate([none, *(np.diff(traffic.after_first) for traffic, _ in parts)])
    after = (traffic.after + begin for (traffic, _), begin in zip(parts, begins, strict=False))
    qps = (traffic.qp + before for (traffic, _), before in zip(parts, many, strict=False))
    return Messages(
        src=column("src"),
        dst=column("dst"),
        size_bytes=column("size_bytes"),
        qp=np.concatenate([none, *qps]),
        after_first=np.concatenate(([0], np.cumsum(counts))),
        after=np.concatenate([none, *after]),
        gates=np.concatenate([np.zeros((0, 2), np.int64), *(gates for _, gates in parts)]),
        last=last,
    )


# -- runs -------------------------------------------------------------------------------------------------------------


def run_together(
    linked: Linked, ranks: Ranks, engine: Engine, options: Options, progress: Progress | None = None
) -> tuple[Times, int]:
    """Return the times, and the number of runs until they agreed."""
    messages = lay_out(linked, ranks)
    start_ps = finish_ps = np.zeros(len(messages.src), np.int64)
    for runs in range(_MOST_RUNS):
        begun, ended = _walk(linked, messages, finish_ps.tolist())
        waits = _waits(messages, begun, finish_ps)
        wanted_ps = np.array([wait.over_ps for wait in waits], np.int64)
        if not len(waits) or (runs and (wanted_ps == start_ps).all()):
            return _times(linked, begun, ended), runs
        if wanted_ps.max() > LONGEST_PS:
            raise ConfigError(
                f"{linked.trace.source} takes over {LONGEST_PS / 1e12:,.0f} s: run less of it, "
                f"or use the analytic engine"
            )
        result = engine.run(ranks.fabric, _traffic(linked, messages, waits), options, progress=progress)
        start_ps, finish_ps = result.start_ps, result.finish_ps
    raise ConfigError(
        f"{linked.trace.source}: the times of {len(messages.src):,} messages do not settle in {_MOST_RUNS} runs of the "
        f"{engine.name} engine: use the analytic one"
    )


def _walk(linked: Linked, messages: Messages, finish_ps: list[int]) -> tuple[list[Wait], list[Wait]]:
    """Return begin and end of every node if messages arrive at these times."""
    begun, ended = [_NOTHING] * len(linked.nodes), [_NOTHING] * len(linked.nodes)
    for turn in linked.order:
        for at in turn:
            node = linked.nodes[at]
            waits = [ended[other] for other in linked.before[at]] + [begun[other] for other in linked.begun[at]]
            begun[at] = _latest(waits)
            if node.kind is Kind.COMPUTE:
                ended[at] = _later(begun[at], node.duration_ps)
            elif node.kind is Kind.RECV:
                ended[at] = _latest([begun[at], ended[linked.partner[at]]])
            elif numbers := messages.last.get(at):
                ended[at] = Wait(0, max(finish_ps[number] for number in numbers), 0, numbers)
            else:  # a group of one
                ended[at] = begun[at]
    return begun, ended


def _later(wait: Wait, ps: int) -> Wait:
    last_ps = NONE if wait.last_ps == NONE else wait.last_ps + ps
    return Wait(wait.floor_ps + ps, last_ps, wait.delay_ps + ps, wait.messages)


def _waits(messages: Messages, begun: list[Wait], finish_ps: Ints) -> list[Wait]:
    """Return the dependencies of each message: its two ranks, or messages of its program."""
    first, after, finish = messages.after_first.tolist(), messages.after.tolist(), finish_ps.tolist()
    pairs: dict[tuple[int, int], Wait] = {}
    waits = []
    for number, (src, dst) in enumerate(messages.gates.tolist()):
        if (src, dst) not in pairs:
            pairs[src, dst] = begun[src] if src == dst else _latest([begun[src], begun[dst]])
        ranks, needed = pairs[src, dst], after[first[number] : first[number + 1]]
        last_ps = max((finish[other] for other in needed), default=NONE)
        by_program = Wait(ranks.floor_ps, last_ps, 0, tuple(needed))
        waits.append(by_program if last_ps > ranks.last_ps else ranks)
    return waits


def _traffic(linked: Linked, messages: Messages, waits: list[Wait]) -> Traffic:
    return Traffic.make(
        messages.src,
        messages.dst,
        messages.size_bytes,
        start_ps=[wait.floor_ps for wait in waits],
        delay_ps=[wait.delay_ps if wait.messages else 0 for wait in waits],
        qp=messages.qp,
        after=[wait.messages for wait in waits],
        description=linked.trace.source,
    )


def _times(linked: Linked, begun: list[Wait], ended: list[Wait]) -> Times:
    begin_ps, end_ps = [wait.over_ps for wait in begun], [wait.over_ps for wait in ended]
    joined_ps = list(begin_ps)
    for meeting in linked.meetings:
        there_ps = max(begin_ps[at] for at in meeting.nodes)
        for at in meeting.nodes:
            joined_ps[at] = min(there_ps, end_ps[at])
    for at, node in enumerate(linked.nodes):
        if node.kind is Kind.RECV:
            joined_ps[at] = min(max(begin_ps[at], begin_ps[linked.partner[at]]), end_ps[at])
    return Times(begin_ps=begin_ps, joined_ps=joined_ps, end_ps=end_ps)
