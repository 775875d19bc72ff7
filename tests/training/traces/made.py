"""Traces that tests make."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np

import weft
from weft.collectives.kinds import Collective
from weft.collectives.live.calls import choose
from weft.collectives.schedules.program import Program, schedule
from weft.fabric.model import Fabric
from weft.sim.perftest import prepare
from weft.training.traces.goal import read_goal
from weft.training.traces.link import link
from weft.training.traces.trace import Kind, Node, Trace

MS = 10**9  # picoseconds


def routed(spec: str) -> Fabric:
    return prepare(weft.load(spec))


def trace(*ranks: list[Node], groups: dict[str, tuple[tuple[int, ...], ...]] | None = None) -> Trace:
    world = len(ranks)
    return Trace(
        source="made",
        format="made",
        files=tuple(f"made.{rank}" for rank in range(world)),
        ranks=tuple(tuple(own) for own in ranks),
        groups={"world": (tuple(range(world)),)} if groups is None else groups,
    )


def compute(label: int, duration_ps: int, *after: int, lane: str = "compute") -> Node:
    return Node(id=label, name=f"kernel {label}", kind=Kind.COMPUTE, lane=lane, duration_ps=duration_ps, after=after)


def talk(
    label: int, size_bytes: int, *after: int, group: str = "world", what: Collective = Collective.ALL_REDUCE
) -> Node:
    return Node(
        id=label,
        name=f"{what} {label}",
        kind=Kind.COLLECTIVE,
        collective=what,
        size_bytes=size_bytes,
        group=group,
        lane=f"group {group}",
        after=after,
    )


def goal(world: int, ranks: dict[int, list[str]]) -> Trace:
    text = "".join(f"rank {rank} {{\n" + "\n".join(ranks[rank]) + "\n}\n" for rank in range(world))
    return read_goal(Path("made.goal"), f"num_ranks {world}\n{text}")


def as_goal(program: Program, size_bytes: int) -> Trace:
    """Return a trace with each send of a program as a send and a receive."""
    result, sends = schedule(program), schedule(program).sends
    lines: dict[int, list[str]] = {rank: [] for rank in range(program.n_ranks)}
    each = sends.n_chunks * program.chunk_bytes(size_bytes)
    for number, (src, dst, size) in enumerate(zip(sends.src.tolist(), sends.dst.tolist(), each.tolist(), strict=True)):
        lines[src].append(f"s{number}: send {size}b to {dst} tag {number}")
        lines[dst].append(f"r{number}: recv {size}b from {src} tag {number}")
        for other in result.after[result.after_first[number] : result.after_first[number + 1]].tolist():
            lines[src].append(f"s{number} requires r{other}")
    return goal(program.n_ranks, lines)


def sent_bytes(found: Trace, kind: Kind) -> Counter[tuple[int, int]]:
    """Return the bytes from rank to rank, by sends or by receives."""
    result = Counter[tuple[int, int]]()
    for rank, own in enumerate(found.ranks):
        for node in own:
            if node.kind is kind:
                result[(rank, node.peer) if kind is Kind.SEND else (node.peer, rank)] += node.size_bytes
    return result


def program_bytes(found: Trace) -> Counter[tuple[int, int]]:
    """Return the bytes that a trace with collectives sends, if each rank has its own server."""
    result = sent_bytes(found, Kind.SEND)
    for meeting in link(found).meetings:
        order = sorted(meeting.members)
        root, size_bytes = order.index(meeting.members[meeting.root]), meeting.size_bytes
        program = choose(meeting.collective, len(order), size_bytes, root, direct=False)
        each = 0 if meeting.collective is Collective.BARRIER else program.chunk_bytes(size_bytes)
        for sends in program.rounds():
            for src, dst, n in zip(sends.src.tolist(), sends.dst.tolist(), sends.n_chunks.tolist(), strict=True):
                result[order[src], order[dst]] += n * each
    return result


def random_goal(world: int, rounds: int, seed: int) -> Trace:
    """Return a random trace of ranks that compute, send to each other, and wait for any earlier operations."""
    rng = np.random.default_rng(seed)
    lines: dict[int, list[str]] = {rank: [] for rank in range(world)}
    had: dict[int, list[str]] = {rank: [] for rank in range(world)}

    def add(rank: int, label: str, what: str) -> None:
        lines[rank].append(f"{label}: {what}")
        for other in rng.choice(had[rank], min(len(had[rank]), 2), replace=False) if had[rank] else ():
            lines[rank].append(f"{label} {rng.choice(['requires', 'requires', 'irequires'])} {other}")
        had[rank].append(label)

    for number, rank in itertools.product(range(rounds), range(world)):
        add(rank, f"c{number}", f"calc {rng.integers(0, 60_000)}")
        peer = int((rank + rng.integers(1, world)) % world)
        size = int(rng.integers(1, 1 << 20))
        add(rank, f"s{number}", f"send {size}b to {peer} tag {number}")
        add(peer, f"r{number}x{rank}", f"recv {size}b from {rank} tag {number}")
    return goal(world, lines)
