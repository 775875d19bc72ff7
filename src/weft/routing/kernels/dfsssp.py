"""Of all allowed paths to a destination the one whose links carry least so far, for every switch at once."""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel
from weft.routing.kernels.balance import NOT_KEPT, kept, settle
from weft.routing.kernels.paths import shortest_next_hops


@kernel
def route_least_sum(first, far, port, lid, at, out, is_host, hosts, previous, column):
    """Fill `column`, uint8[lid, switch] -> port, with shortest paths.

    Returns the index of the first destination that not every switch reaches, or -1.
    """
    n = len(first) - 1
    distance, order = np.empty(n, np.int32), np.empty(n, np.int32)
    next_first, next_edge = np.empty(n + 1, np.int32), np.empty(len(far), np.int32)
    load = np.zeros(len(far), np.int64)  # [edge] -> pairs of hosts that talk over it
    behind = np.zeros(n, np.int64)  # [switch] -> sum of the loads on the way from there to the destination
    via, passing = np.empty(n, np.int32), np.zeros(n, np.int64)
    reached = 0
    for index in range(len(lid)):
        target = at[index]
        if index == 0 or at[index - 1] != target:
            reached = shortest_next_hops(first, far, target, distance, order, next_first, next_edge)
            if reached < n:
                return index
        to = lid[index]
        column[to, target] = out[index]
        grow_least_sum(order, reached, next_first, next_edge, far, port, load, previous, to, behind, via, column[to])
        if is_host[index]:
            settle(column[to], order, reached, far, port, via, hosts, passing, load)
    return -1


@inlined
def grow_least_sum(order, reached, next_first, next_edge, far, port, load, previous, to, behind, via, row):
    """From the destination outwards, give every switch the candidate with the least sum of loads from there on."""
    behind[order[0]] = 0
    for position in range(1, reached):
        here = order[position]
        begin, end = next_first[position], next_first[position + 1]
        edge = kept(next_edge, begin, end, port, previous[to, here]) if len(previous) else NOT_KEPT
        if edge == NOT_KEPT:
            edge = next_edge[begin]
            for candidate in next_edge[begin + 1 : end]:
                if behind[far[candidate]] + load[candidate] < behind[far[edge]] + load[edge]:
                    edge = candidate
        behind[here] = behind[far[edge]] + load[edge]
        via[here] = edge
        row[here] = port[edge]
