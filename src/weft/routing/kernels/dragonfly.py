"""Groups that are all-to-all inside, and paths that go from group to group as told."""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel
from weft.routing.kernels.balance import NOT_KEPT, kept, settle
from weft.routing.kernels.paths import UNREACHED


@kernel
def find_cliques(first, far):
    """[switch] -> its group: disjoint sets of switches that are all joined to each other, as large as it finds them.

    Switches of one group share most of their neighbours, and those at the ends of a global link few or none. So a group
    grows by the switch that shares most with it, from where neighbours share most: what has lost a link comes last.
    Where switches have more local links than global ones, as dragonflies do, there is only one answer.
    """
    n = len(first) - 1
    group = np.full(n, -1, np.int32)
    beside = np.full(n, -1, np.int64)  # [switch] -> last switch that it was marked a neighbour of
    shared = np.zeros(n, np.int64)  # [switch] -> most neighbours that it shares with one of them
    for here in range(n):
        beside[far[first[here] : first[here + 1]]] = here
        for there in far[first[here] : first[here + 1]]:
            shared[here] = max(shared[here], (beside[far[first[there] : first[there + 1]]] == here).sum())
    candidate = np.zeros(n, np.bool_)
    found = 0
    for seed in np.argsort(-shared, kind="mergesort"):
        if group[seed] >= 0:
            continue
        group[seed] = found
        for there in far[first[seed] : first[seed + 1]]:
            candidate[there] = group[there] < 0
        while True:
            best, most = -1, -1
            for there in far[first[seed] : first[seed + 1]]:
                if candidate[there]:
                    shares = candidate[far[first[there] : first[there + 1]]].sum()
                    if shares > most:
                        best, most = there, shares
            if best < 0:
                break
            group[best], candidate[best] = found, False
            for there in far[first[seed] : first[seed + 1]]:
                candidate[there] &= (far[first[best] : first[best + 1]] == there).any()
        found += 1
    return group


@kernel
def route_by_groups(
    first, far, port, group, through, lid, at, out, is_host, hosts, previous, column, weight, load, per_switch
):  # fmt: skip
    """Fill `column`, uint8[lid, switch] -> port: from group to group as `may_go` says, by the shortest way, and among
    those by the one with the least sum of weights.

    through     [destination] -> intermediate group, its own for minimal paths; with one group, any shortest path
    weight      int64[edge]; the same array as `load` to take the links that carry least so far
    load        int64[edge] -> pairs of hosts that talk over it; added to
    per_switch  one tree for all LIDs of a switch that have the same `through`
    Returns the index of the first destination that not every switch reaches, or -1.
    """
    n = len(first) - 1
    distance, order = np.empty(n, np.int32), np.empty(n, np.int32)
    next_first, next_edge = np.empty(n + 1, np.int32), np.empty(len(far), np.int32)
    behind = np.zeros(n, np.int64)  # [switch] -> sum of the weights on the way from there to the destination
    via, passing = np.empty(n, np.int32), np.zeros(n, np.int64)
    reached = 0
    for index in range(len(lid)):
        target = at[index]
        is_new = index == 0 or at[index - 1] != target or through[index - 1] != through[index]
        if is_new:
            reached = next_hops_by_groups(
                first, far, group, target, through[index], distance, order, next_first, next_edge
            )
            if reached < n:
                return index
        to = lid[index]
        if is_new or not per_switch:
            grow_least_sum(
                order, reached, next_first, next_edge, far, port, weight, previous, to, behind, via, column[to]
            )
        else:
            column[to] = column[lid[index - 1]]
        column[to, target] = out[index]
        if is_host[index]:
            settle(column[to], order, reached, far, port, via, hosts, passing, load)
    return -1


@inlined
def grow_least_sum(order, reached, next_first, next_edge, far, port, weight, previous, to, behind, via, row):
    """From the destination outwards, give every switch the candidate with the least sum of weights from there on."""
    behind[order[0]] = 0
    for position in range(1, reached):
        here = order[position]
        begin, end = next_first[position], next_first[position + 1]
        edge = kept(next_edge, begin, end, port, previous[to, here]) if len(previous) else NOT_KEPT
        if edge == NOT_KEPT:
            edge = next_edge[begin]
            for candidate in next_edge[begin + 1 : end]:
                if behind[far[candidate]] + weight[candidate] < behind[far[edge]] + weight[edge]:
                    edge = candidate
        behind[here] = behind[far[edge]] + weight[edge]
        via[here] = edge
        row[here] = port[edge]


@inlined
def may_go(from_, to, home, through):
    """Inside a group always; out of it only towards `through`, and from there home. Minimal: `through` is home."""
    return from_ == to or (from_ != home and to == (home if from_ == through else through))


@inlined
def next_hops_by_groups(first, far, group, target, through, distance, order, next_first, next_edge):
    """As `paths.shortest_next_hops`, over the edges that `may_go` allows."""
    home = group[target]
    distance[:] = UNREACHED
    distance[target] = 0
    order[0] = target
    reached = 1
    taken = 0
    while taken < reached:
        here = order[taken]
        taken += 1
        for there in far[first[here] : first[here + 1]]:
            if distance[there] == UNREACHED and may_go(group[there], group[here], home, through):
                distance[there] = distance[here] + 1
                order[reached] = there
                reached += 1
    found = 0
    for index in range(reached):
        here = order[index]
        next_first[index] = found
        for edge in range(first[here], first[here + 1]):
            there = far[edge]
            if distance[there] == distance[here] - 1 and may_go(group[here], group[there], home, through):
                next_edge[found] = edge
                found += 1
    next_first[reached] = found
    return reached
