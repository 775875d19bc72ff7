"""Errors of a trace are named before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.training.traces.made import compute, goal, talk, trace

from weft.errors import ConfigError
from weft.training.traces.link import link
from weft.training.traces.trace import Kind, Node


def test_lanes_go_in_order_and_after_what_they_wait_for():
    """The file has them the other way round: 2 waits for 3."""
    linked = link(trace([compute(1, 5), compute(2, 5, 3), compute(3, 5)]))
    assert [linked.nodes[at].id for (at,) in linked.order] == [1, 3, 2]
    assert linked.before == [[], [2], [0]]


def test_a_circle_in_a_rank_is_named():
    nodes = [compute(1, 5, 3, lane=""), compute(2, 5, 1, lane=""), compute(3, 5, 2, lane=""), compute(4, 5, lane="")]
    with pytest.raises(ConfigError, match=r"made.0: nodes of rank 0 wait for each other in a circle: .*1 \(kernel 1\)"):
        link(trace(nodes))


def test_ranks_that_wait_for_each_other_are_named():
    """Two groups in the other order on the other rank, on one stream: the classic way to hang NCCL."""
    groups = {"a": ((0, 1),), "b": ((0, 1),)}
    item, other = [talk(1, 8, group="a"), talk(2, 8, 1, group="b")], [talk(1, 8, group="b"), talk(2, 8, 1, group="a")]
    with pytest.raises(ConfigError, match=r"ranks wait for each other in a circle, and would for ever: rank \d: "):
        link(trace(item, other, groups=groups))


def test_two_ranks_that_receive_before_they_send_are_named():
    lines = {
        rank: [f"r: recv 8b from {1 - rank} tag 0", f"s: send 8b to {1 - rank} tag 0", "s requires r"]
        for rank in (0, 1)
    }
    with pytest.raises(ConfigError, match="ranks wait for each other in a circle"):
        link(goal(2, lines))


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([talk(1, 8)], r"rank 0 calls 2 collectives \(made.0\), rank 1 calls 1 \(made.1\)"),
        ([talk(1, 8), talk(2, 16)], r"collective 1: rank 0 calls all_reduce of 8 bytes.*rank 1 calls all_reduce of 16"),
        ([talk(1, 8), compute(2, 1)], "rank 0 calls 2 collectives"),
    ],
)
def test_collectives_that_do_not_match_are_named(nodes, said):
    with pytest.raises(ConfigError, match=said):
        link(trace([talk(1, 8), talk(2, 8)], nodes))


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"world": ((0, 1, 2),)}, "group 'world' has rank 2, and the trace has ranks 0 to 1"),
        ({"world": ((0, 1, 0),)}, "names a rank twice"),
        ({"world": ((0,),)}, r"made.1: rank 1 is in no group 'world'; groups of the trace: world"),
    ],
)
def test_groups_that_cannot_be_are_named(groups, said):
    with pytest.raises(ConfigError, match=said):
        link(trace([talk(1, 8)], [talk(1, 8)], groups=groups))


def _message(kind: Kind, peer: int, **what: int) -> Node:
    return replace(Node(id=1, name="message", kind=kind, peer=peer, size_bytes=8), **what)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ([_message(Kind.SEND, 1)], [], r"made.0: node 1 \(message\) of rank 0 has no partner: rank 0 sends 1 message"),
        ([], [_message(Kind.RECV, 0)], "has no partner: rank 0 sends 0 messages of tag 0 to rank 1, which receives 1"),
        ([_message(Kind.SEND, 1, tag=4)], [_message(Kind.RECV, 0)], "has no partner"),
        ([_message(Kind.SEND, 2)], [], "needs another rank, of 0 to 1"),
        ([_message(Kind.SEND, 0)], [], "needs another rank"),
        ([_message(Kind.SEND, 1)], [_message(Kind.RECV, 0, size_bytes=4)], "receives 4 bytes, rank 0 sends 8"),
    ],
)
def test_messages_without_a_partner_are_named(one, other, said):
    with pytest.raises(ConfigError, match=said):
        link(trace(one, other))


def test_two_nodes_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two nodes of rank 0 are called 1: 'kernel 1' and 'kernel 1'"):
        link(trace([compute(1, 5), compute(1, 5)]))


@pytest.mark.parametrize("node", [compute(7, 10**16), compute(7, -1), talk(7, 1 << 50)])
def test_sizes_and_times_that_no_clock_holds_are_named(node):
    with pytest.raises(ConfigError, match=r"made.0: node 7 \(.* 7\) of rank 0 has .* up to 4 TiB and 1,000 s go"):
        link(trace([node]))
