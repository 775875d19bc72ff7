"""A trace that is written as GOAL is read back as it was; its collectives are the messages of their programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.traces.made import MS, compute, program_bytes, routed, sent_bytes, talk, trace

from weft.collectives.kinds import Collective
from weft.training.traces.goal import read_goal
from weft.training.traces.goal_file import count_sends_of, write_goal
from weft.training.traces.link import link
from weft.training.traces.replay import replay
from weft.training.traces.trace import Kind, Node, Trace


def written(made: Trace, folder: Path) -> Trace:
    path = folder / "made.goal"
    write_goal(link(made), path)
    return read_goal(path, path.read_text())


@pytest.mark.parametrize("what", Collective)
@pytest.mark.parametrize(("members", "size_bytes"), [((0, 1, 2, 3), 4096), ((3, 0, 2), 100_000)])
def test_a_collective_is_its_program(what, members, size_bytes, tmp_path):
    """The bytes between any two ranks, each sent and received; and its time, where all ranks come at once.

    But slices, which a rank sends to another one after the other, go at once in GOAL: it has no connections.
    """
    call = replace(talk(1, size_bytes, 0, group="some", what=what), root=1)
    ranks = [[compute(0, MS), call] if rank in members else [compute(0, MS)] for rank in range(4)]
    result = trace(*ranks, groups={"some": (members,)})
    back = written(result, tmp_path)
    assert sent_bytes(back, Kind.SEND) == sent_bytes(back, Kind.RECV) == program_bytes(result)
    assert count_sends_of(link(result)) == count_sends_of(link(back))
    fabric = routed("star:hosts=4")
    time_s, wanted_s = (replay(item, fabric).total_s - 1e-3 for item in (back, result))
    is_sliced = what in (Collective.BROADCAST, Collective.REDUCE)
    assert time_s == pytest.approx(wanted_s, rel=0.25 if is_sliced else 1e-9)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draw ranks that compute, send to each other, take part in collectives, and wait for any earlier operations."""
    world = draw(st.integers(1, 4))
    ranks: list[list[Node]] = [[] for _ in range(world)]

    def add(rank: int, kind: Kind, **facts: object) -> None:
        own = ranks[rank]
        before = st.sets(st.sampled_from([node.id for node in own]), max_size=2) if own else st.just(set())
        after, begun = (tuple(draw(before)) for _ in range(2))
        own.append(Node(id=len(own) * 7, name="", kind=kind, after=after, after_start=begun, **facts))

    for label in draw(st.lists(st.sampled_from(list(Kind)), max_size=12)):
        rank = draw(st.integers(0, world - 1))
        size_bytes = draw(st.integers(0, 1 << 40))
        if label is Kind.COMPUTE:
            add(rank, label, duration_ps=draw(st.integers(0, 10**13)))
        elif label is Kind.COLLECTIVE:
            kind = draw(st.sampled_from(list(Collective)))
            for each in range(world):
                add(each, label, collective=kind, size_bytes=size_bytes, group="world", lane="world")
        elif world > 1:
            peer, tag = (rank + draw(st.integers(1, world - 1))) % world, draw(st.integers(0, 2))
            add(rank, Kind.SEND, size_bytes=size_bytes, peer=peer, tag=tag)
            add(peer, Kind.RECV, size_bytes=size_bytes, peer=rank, tag=tag)
    return trace(*ranks)


@given(made=traces())
def test_written_file_is_read_back(made, tmp_path_factory):
    back = written(made, tmp_path_factory.getbasetemp())
    linked, again = link(made), link(back)
    first = 0
    for rank, own in enumerate(made.ranks):
        nodes = {node.id: node for node in back.ranks[rank]}
        for place, node in enumerate(own):
            before, begun = (
                sorted(other - first for other in of[first + place]) for of in (linked.before, linked.begun)
            )
            is_met = node.kind is Kind.COLLECTIVE
            present, opened = nodes[f"l{place}"], nodes[f"l{place}b" if is_met else f"l{place}"]
            if not is_met:
                assert (present.kind, present.size_bytes, present.peer) == (node.kind, node.size_bytes, node.peer)
                assert present.tag == node.tag
            met = {other for other in begun if own[other].kind is Kind.COLLECTIVE}
            assert set(opened.after) == {f"l{other}" for other in before} | {f"l{other}b" for other in met}
            assert set(opened.after_start) == {f"l{other}" for other in begun if other not in met}
            if is_met:  # all of it lies between its begin and its end
                parts = {label for label in nodes if str(label).startswith((f"l{place}m", f"l{place}b"))}
                assert parts == _reached(nodes, f"l{place}", f"l{place}b")
        assert abs(sum(item.duration_ps for item in nodes.values()) - sum(item.duration_ps for item in own)) <= 500
        first += len(own)
    assert all(again.partner[at] >= 0 for at, node in enumerate(again.nodes) if node.kind in (Kind.SEND, Kind.RECV))
    assert sent_bytes(back, Kind.SEND) == sent_bytes(back, Kind.RECV)
    own_tags = {node.tag for node in linked.nodes if node.kind is Kind.SEND}
    tags = [node.tag for node in again.nodes if node.kind is Kind.SEND and "m" in str(node.id)]
    assert len({*tags, *own_tags}) == len(tags) + len(own_tags)  # nothing else can be taken for it


def _reached(nodes: dict[int | str, Node], end: str, begin: str) -> set[int | str]:
    """Return whether the begin is reached from the end."""
    result: set[int | str] = set()
    left: list[int | str] = [end]
    while left:
        label = left.pop()
        if label != begin:
            new = set(nodes[label].after) - result
            assert new or label != end
            result |= new
            left += new
    return result
