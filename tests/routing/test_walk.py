"""The kernels that find cycles, against networkx on random dependencies."""

from __future__ import annotations

import itertools

import networkx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from weft.routing.kernels.walk import find_cycle, shortest_cycle


class Dependencies:
    """The channels of a few switches and their dependencies, as the kernels take them and as a graph."""

    def __init__(self, edges: list[tuple[int, int]], lanes: int) -> None:
        self.lanes = lanes
        near = [a for a, _ in edges]
        self.far = np.array([b for _, b in edges], np.int32)
        self.edge_at = np.full((max(map(max, edges)) + 1, len(edges) + 1), -1, np.int32)
        for edge, switch in enumerate(near):
            self.edge_at[switch, edge + 1] = edge  # leaves by the port of its own number
        self.bits = np.zeros((len(edges) * lanes, (self.edge_at.shape[1] * lanes + 7) // 8), np.uint8)
        self.graph = networkx.DiGraph()
        self.possible = [
            (a * lanes + from_vl, b * lanes + to_vl)
            for a, b in itertools.product(range(len(edges)), repeat=2)
            if self.far[a] == near[b]
            for from_vl, to_vl in itertools.product(range(lanes), repeat=2)
        ]

    def add(self, channel: int, waits_for: int) -> None:
        bit = (waits_for // self.lanes + 1) * self.lanes + waits_for % self.lanes
        self.bits[channel, bit >> 3] |= 1 << (bit & 7)
        self.graph.add_edge(channel, waits_for)

    def circle(self) -> NDArray[np.int32]:
        return find_cycle(self.bits, self.edge_at, self.far, self.lanes)

    def shortest(self, circle: NDArray[np.int32]) -> NDArray[np.int32]:
        return shortest_cycle(self.bits, self.edge_at, self.far, self.lanes, circle)

    def is_circle(self, channels: NDArray[np.int32]) -> bool:
        result = channels.tolist()
        ends_meet = all(self.graph.has_edge(a, b) for a, b in zip(result, result[1:] + result[:1], strict=True))
        return ends_meet and len(set(result)) == len(result)


@st.composite
def dependencies(draw: st.DrawFn) -> Dependencies:
    switch = st.integers(0, 4)
    result = Dependencies(draw(st.lists(st.tuples(switch, switch), min_size=1, max_size=9)), draw(st.integers(1, 3)))
    if result.possible:
        for pair in draw(st.lists(st.sampled_from(result.possible), max_size=25)):
            result.add(*pair)
    return result


@settings(max_examples=300)
@given(made=dependencies())
def test_there_is_a_circle_where_networkx_finds_one(made):
    circle = made.circle()
    assert (len(circle) == 0) == networkx.is_directed_acyclic_graph(made.graph)
    assert made.is_circle(circle)


@settings(max_examples=300)
@given(made=dependencies())
def test_no_circle_through_the_same_channels_is_shorter(made):
    circle = made.circle()
    if len(circle):
        shortest = made.shortest(circle)
        assert made.is_circle(shortest)
        lengths = [
            networkx.shortest_path_length(made.graph, after, channel) + 1
            for channel in circle.tolist()
            for after in made.graph.successors(channel)
            if networkx.has_path(made.graph, after, channel)
        ]
        assert len(shortest) == min(lengths)


def test_a_short_cycle_is_reported_instead_of_the_long_one_around_it():
    """Depth first goes all the way round eight channels; two of them wait for each other."""
    ring = [(i, (i + 1) % 8) for i in range(8)]
    result = Dependencies([*ring, (4, 3)], lanes=1)
    for i in range(8):
        result.add(i, (i + 1) % 8)
    result.add(3, 8)
    result.add(8, 3)
    assert len(result.circle()) == 8
    assert sorted(result.shortest(result.circle()).tolist()) == [3, 8]
