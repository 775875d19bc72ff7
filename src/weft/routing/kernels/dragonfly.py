"""Groups that are all-to-all inside, and paths from group to group."""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel
from weft.routing.kernels.balance import NO_EDGE, previous_edge, store_and_count
from weft.routing.kernels.paths import UNREACHED

NO_LIST = -1
_FEW = 8  # candidates that are compared one by one
_PORT_BITS = 11
_MOST_PORTS = 1 << _PORT_BITS
_LARGEST = np.iinfo(np.int64).max


@kernel
def find_cliques(first, far):
    """Return the group of each switch: disjoint sets of switches that are all connected, as large as possible.

    Switches of one group share most of their neighbours, and those at the ends of a global link few or none. So a group
    grows by the switch that shares most with it, starting where neighbours share most: switches that lost a link come
    last. If switches have more local links than global ones, as in dragonflies, the result is unique.
    """
    n = len(first) - 1
    group = np.full(n, -1, np.int32)
    beside = np.full(n, -1, np.int64)  # [switch] -> last switch that it was marked a neighbour of
    shared = np.zeros(n, np.int64)  # [switch] -> most neighbours shared with one of its neighbours
    for switch in range(n):
        beside[far[first[switch] : first[switch + 1]]] = switch
        for neighbour in far[first[switch] : first[switch + 1]]:
            shared[switch] = max(shared[switch], (beside[far[first[neighbour] : first[neighbour + 1]]] == switch).sum())
    candidate = np.zeros(n, np.bool_)
    n_groups = 0
    for seed in np.argsort(-shared, kind="mergesort"):
        if group[seed] >= 0:
            continue
        group[seed] = n_groups
        for neighbour in far[first[seed] : first[seed + 1]]:
            candidate[neighbour] = group[neighbour] < 0
        while True:
            best, most = -1, -1
            for neighbour in far[first[seed] : first[seed + 1]]:
                if candidate[neighbour]:
                    shares = candidate[far[first[neighbour] : first[neighbour + 1]]].sum()
                    if shares > most:
                        best, most = neighbour, shares
            if best < 0:
                break
            group[best], candidate[best] = n_groups, False
            for neighbour in far[first[seed] : first[seed + 1]]:
                candidate[neighbour] &= (far[first[best] : first[best + 1]] == neighbour).any()
        n_groups += 1
    return group


@kernel
def route_by_groups(
    first, far, port, group, through, lid, at, out, is_host, hosts, previous, column, weight, load, per_switch
):  # fmt: skip
    """Fill `column`, uint8[lid, switch] -> port: by the shortest path that `may_go` allows, with the least sum of
    weights.

    through     [destination] -> intermediate group, its own for minimal paths; with one group, any shortest path
    weight      int64[edge]; pass `load` to use the least loaded links
    load        int64[edge] -> pairs of hosts that use it; added to
    per_switch  one tree for all LIDs of a switch with the same `through`
    Return the index of the first destination that not every switch reaches, or -1.
    """
    n = len(first) - 1
    distance, order = np.empty(n, np.int32), np.empty(n, np.int32)
    next_first, next_edge = np.empty(n + 1, np.int32), np.empty(len(far), np.int32)
    next_far = np.empty(len(far), np.int32)
    behind = np.zeros(n, np.int64)  # [switch] -> sum of the weights on its path to the destination
    via, passing = np.empty(n, np.int32), np.zeros(n, np.int64)
    ends, sums = np.empty(n, np.int32), np.empty(_MOST_PORTS, np.int64)
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
            find_equal_ends(reached, next_first, next_edge, far, next_far, ends)
        to = lid[index]
        if is_new or not per_switch:
            grow_least_sum(
                order, reached, next_first, next_edge, next_far, far, port, weight, previous, to,
                ends, sums, behind, via, column[to],
            )  # fmt: skip
        else:
            column[to] = column[lid[index - 1]]
        column[to, target] = out[index]
        if is_host[index]:
            store_and_count(column[to], order, reached, far, port, via, hosts, passing, load)
    return -1


@inlined
def find_equal_ends(reached, next_first, next_edge, far, next_far, ends):
    """Fill `next_far`, the switches that candidates lead to, and `ends`: [position in `order`] -> number of their list.

    It is NO_LIST if candidates are few or not consecutive edges. The leaves of a group have the same list.
    """
    last, number = -1, NO_LIST
    for i in range(next_first[reached]):
        next_far[i] = far[next_edge[i]]
    for position in range(reached):
        begin, end = next_first[position], next_first[position + 1]
        ends[position] = NO_LIST
        if end - begin < _FEW or next_edge[end - 1] - next_edge[begin] != end - begin - 1:
            continue
        is_equal = last >= 0 and next_first[last + 1] - next_first[last] == end - begin
        for i in range(end - begin if is_equal else 0):
            is_equal &= next_far[begin + i] == next_far[next_first[last] + i]
        number += not is_equal
        last, ends[position] = position, number


@inlined
def grow_least_sum(
    order, reached, next_first, next_edge, next_far, far, port, weight, previous, to, ends, sums, behind, via, row
):  # fmt: skip
    """Give every switch, from the destination outwards, the candidate with the least sum of weights on its path.

    Switches with the same list of candidates' ends share `sums`, the sums behind these: such a search vectorises.
    """
    behind[order[0]] = 0
    summed = NO_LIST
    for position in range(1, reached):
        switch = order[position]
        begin, end = next_first[position], next_first[position + 1]
        edge = previous_edge(next_edge, begin, end, port, previous[to, switch]) if len(previous) else NO_EDGE
        if edge == NO_EDGE:
            edge = next_edge[begin]
            if ends[position] == NO_LIST:
                least = behind[next_far[begin]] + weight[edge]
                for i in range(begin + 1, end):
                    total = behind[next_far[i]] + weight[next_edge[i]]
                    if total < least:
                        edge, least = next_edge[i], total
            else:
                if ends[position] != summed:
                    summed = ends[position]
                    for i in range(end - begin):
                        sums[i] = behind[next_far[begin + i]]
                edge += first_least(sums[: end - begin], weight[edge : edge + end - begin])
        behind[switch] = behind[far[edge]] + weight[edge]
        via[switch] = edge
        row[switch] = port[edge]


@inlined
def first_least(sums, weight):
    """Return the index of the first least `sums + weight`: the index is in the last bits of the number compared."""
    least = _LARGEST
    for i in range(len(sums)):
        least = min(least, ((sums[i] + weight[i]) << _PORT_BITS) + i)
    return least & (_MOST_PORTS - 1)


@inlined
def may_go(from_, to, home, through):
    """Return whether an edge is allowed: within a group, out of it towards `through`, and from there home."""
    return from_ == to or (from_ != home and to == (home if from_ == through else through))


@inlined
def next_hops_by_groups(first, far, group, target, through, distance, order, next_first, next_edge):
    """Fill in the next hops as `paths.shortest_next_hops` does, over the edges that `may_go` allows."""
    home = group[target]
    distance[:] = UNREACHED
    distance[target] = 0
    order[0] = target
    reached = 1
    n_expanded = 0
    while n_expanded < reached:
        switch = order[n_expanded]
        n_expanded += 1
        for neighbour in far[first[switch] : first[switch + 1]]:
            if distance[neighbour] == UNREACHED and may_go(group[neighbour], group[switch], home, through):
                distance[neighbour] = distance[switch] + 1
                order[reached] = neighbour
                reached += 1
    count = 0
    for index in range(reached):
        switch = order[index]
        next_first[index] = count
        for edge in range(first[switch], first[switch + 1]):
            neighbour = far[edge]
            if distance[neighbour] == distance[switch] - 1 and may_go(group[switch], group[neighbour], home, through):
                next_edge[count] = edge
                count += 1
    next_first[reached] = count
    return reached
