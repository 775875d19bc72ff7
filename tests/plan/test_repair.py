"""Chains and circles of cables, against a general matching."""

from __future__ import annotations

import random

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.plan.audit.repair import repairs


def test_a_circle_goes_the_shorter_way_round():
    """1-2, 3-4 found and 1-4, 3-2 planned: exchange 2 and 4, or 1 and 3."""
    for near in ({2, 4}, {1, 3}):
        (item,) = repairs([(1, 2), (3, 4)], [(1, 4), (2, 3)], lambda a, b, near=near: 0 if {a, b} == near else 5)
        assert item.swap
        assert {move.leaves for move in item.moves} == near


def test_a_plug_that_fits_nowhere_is_pulled():
    (item,) = repairs([(1, 2)], [(1, 3)], lambda a, b: None)
    assert (item.moves, item.new, item.pulled) == ((), ((1, 3),), ((1, 2),))
    assert not item.swap


@st.composite
def cablings(draw):
    """Draw found and planned cables of up to 10 ports, and the distances between ports."""
    sides = []
    for _ in range(2):
        ports = draw(st.permutations(range(10)))[: 2 * draw(st.integers(1, 5))]
        sides.append({tuple(sorted(pair)) for pair in zip(ports[::2], ports[1::2], strict=True)})
    seed = draw(st.integers(0, 1000))
    result, plan = sides[0] - sides[1], sides[1] - sides[0]
    return result, plan, lambda a, b: random.Random(f"{seed} {min(a, b)} {max(a, b)}").choice([None, *range(10)])


@given(cablings())
def test_as_many_pairs_as_can_be_and_of_those_the_nearest(case):
    results, plan, distance = case
    result = list(repairs(results, plan, distance))
    moves = [move for item in result for move in item.moves]
    graph = networkx.Graph()
    for item in results:
        for other in plan:
            plugs = set(item) ^ set(other)
            if len(plugs) == 2 and (cost := distance(*plugs)) is not None:
                graph.add_edge(("found", item), ("plan", other), weight=100 - cost)
    best = networkx.max_weight_matching(graph, maxcardinality=True)
    assert len(moves) == len(best)
    assert sum(100 - distance(move.leaves, move.enters) for move in moves) == sum(
        graph.edges[e]["weight"] for e in best
    )
    assert {move.found for move in moves} | {cable for item in result for cable in item.pulled} == results
    assert {move.planned for move in moves} | {cable for item in result for cable in item.new} == plan


@pytest.mark.parametrize("length", [2, 3, 7])
def test_a_circle_of_any_length_is_one_swap(length):
    result = [(2 * i, 2 * i + 1) for i in range(length)]
    plan = [tuple(sorted((2 * i, (2 * i + 3) % (2 * length)))) for i in range(length)]
    (item,) = repairs(result, plan, lambda a, b: 1)
    assert item.swap
    assert len(item.moves) == length
