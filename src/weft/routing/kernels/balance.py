"""Which of the allowed next hops to take: the policies that spread destinations over links.

*Least loaded*: each switch takes, of its allowed ports, the one that the fewest pairs of hosts talk over so far.

*Trunks*: each destination gets one trunk, grown from its switch outwards over the least used links; everybody else
joins it as soon as an allowed edge leads there. In a regular fat tree that is destination-modulo routing (Zahavi,
"D-Mod-K routing providing non-blocking traffic for shift permutations on real life fat trees", 2010): all traffic to a
host comes down one path, which it shares with as few other hosts as the tree permits. In an irregular one it stays a
path, and the counters even out what the cabling does not.
"""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel
from weft.routing.kernels.paths import UNREACHED, shortest_next_hops, up_down_next_hops

NOT_KEPT = -1


@kernel
def route_least_loaded(first, middle, far, port, from_top, lid, at, out, is_host, hosts, previous, column):
    """Fill `column`, uint8[lid, switch] -> port: by the up/down rule if there is a `from_top`, else by shortest paths.

    previous  of the shape of `column`, or empty: ports to keep where they are still allowed
    Returns the index of the first destination that not every switch reaches, or -1.
    """
    n = len(first) - 1
    down, distance, order = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    next_first, next_edge = np.empty(n + 1, np.int32), np.empty(len(far), np.int32)
    load, via, passing = np.zeros(len(far), np.int64), np.empty(n, np.int32), np.zeros(n, np.int64)
    reached = 0
    for index in range(len(lid)):
        target = at[index]
        if index == 0 or at[index - 1] != target:
            if len(from_top):
                reached = up_down_next_hops(
                    first, middle, far, from_top, target, down, distance, order, next_first, next_edge
                )
            else:
                reached = shortest_next_hops(first, far, target, distance, order, next_first, next_edge)
            if reached < n:
                return index
        to = lid[index]
        column[to, target] = out[index]
        for position in range(1, reached):
            here = order[position]
            begin, end = next_first[position], next_first[position + 1]
            edge = next_edge[begin]
            if end > begin + 1:
                edge = kept(next_edge, begin, end, port, previous[to, here]) if len(previous) else NOT_KEPT
                if edge == NOT_KEPT:
                    edge = least_loaded(next_edge, begin, end, load)
            via[here] = edge
            column[to, here] = port[edge]
        if is_host[index]:
            settle(column[to], order, reached, far, port, via, hosts, passing, load)
    return -1


@kernel
def route_by_trunks(first, middle, far, port, from_top, lid, at, out, near, is_host, hosts, column):
    """Fill `column` by the up/down rule, a trunk for each destination; returns as above."""
    n = len(first) - 1
    down, distance, order = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    next_first, next_edge = np.empty(n + 1, np.int32), np.empty(len(far), np.int32)
    into_first, into_edge = np.empty(n + 1, np.int32), np.empty(len(far), np.int32)
    passed = np.empty(n, np.bool_)  # [switch] -> do others pass through it?
    load = np.zeros(len(far), np.int64)  # [edge] -> pairs of hosts that talk over it
    via, passing = np.empty(n, np.int32), np.zeros(n, np.int64)
    trunks = np.zeros(n, np.int64)  # [switch] -> trunks through it
    joined = np.full(n, -1, np.int32)  # [switch] -> last destination whose trunk goes through it
    offered = np.full(n, -1, np.int32)  # [switch] -> last destination to whose trunk `via` is an edge
    open_positions = np.empty(n, np.int32)  # in `order`, of the switches that have a choice, or pass one on
    end_positions = np.empty(n, np.int32)  # of those that have a choice and nobody behind them
    reached = n_open = n_ends = 0
    for index in range(len(lid)):
        target, to = at[index], lid[index]
        if index == 0 or at[index - 1] != target:
            reached = up_down_next_hops(
                first, middle, far, from_top, target, down, distance, order, next_first, next_edge
            )
            if reached < n:
                return index
            n_open = n_ends = 0
        column[to, target] = out[index]
        if not is_host[index]:  # a switch: hardly any traffic, any allowed way will do
            for position in range(1, reached):
                begin, end = next_first[position], next_first[position + 1]
                column[to, order[position]] = port[next_edge[begin + index % (end - begin)]]
            continue
        if n_open == n_ends == 0:
            turn_around(next_edge[: next_first[reached]], near, far, into_first, into_edge, passed)
            for position in range(1, reached):
                here = order[position]
                via[here] = next_edge[next_first[position]]
                has_choice = next_first[position + 1] > next_first[position] + 1
                if passed[here] and (has_choice or down[here] == UNREACHED):
                    open_positions[n_open] = position
                    n_open += 1
                elif has_choice:
                    end_positions[n_ends] = position
                    n_ends += 1
        here = target
        while True:  # grow the trunk: downwards ways first, of those the least used, of those through the least used
            best, best_climbs = -1, False
            for position in range(into_first[here], into_first[here + 1]):
                edge = into_edge[position]
                there = near[edge]
                if not passed[there]:
                    break  # nor the ones after it: no use for a trunk
                climbs = down[there] == UNREACHED
                if best == -1 or climbs < best_climbs:
                    best, best_climbs = edge, climbs
                elif climbs == best_climbs and (
                    load[edge] < load[best] or (load[edge] == load[best] and trunks[there] < trunks[near[best]])
                ):
                    best = edge
            if best == -1:
                break
            here = near[best]
            via[here] = best
            joined[here] = index
            trunks[here] += 1
            offer(here, index, into_first, into_edge, near, load, via, joined, offered)
        for which in range(n_open):  # the others join it where they can
            position = open_positions[which]
            here = order[position]
            if joined[here] == index:
                continue
            if offered[here] == index:
                if down[here] == UNREACHED:
                    offer(here, index, into_first, into_edge, near, load, via, joined, offered)
            elif hosts[here]:
                via[here] = least_loaded(next_edge, next_first[position], next_first[position + 1], load)
            else:
                via[here] = less_loaded_of_two(next_edge, next_first[position], next_first[position + 1], load, index)
        for which in range(n_ends):
            position = end_positions[which]
            if offered[order[position]] != index:
                via[order[position]] = least_loaded(next_edge, next_first[position], next_first[position + 1], load)
        settle(column[to], order, reached, far, port, via, hosts, passing, load)
    return -1


@inlined
def offer(here, index, into_first, into_edge, near, load, via, joined, offered):
    """Tell the neighbours behind `here` that it leads to the trunk; each keeps the least loaded way it hears of."""
    for position in range(into_first[here], into_first[here + 1]):
        edge = into_edge[position]
        there = near[edge]
        if joined[there] != index and (offered[there] != index or load[edge] < load[via[there]]):
            offered[there] = index
            via[there] = edge


@inlined
def turn_around(edges, near, far, into_first, into_edge, passed):
    """The same edges by the switch that they enter; those from switches that others pass through stand first."""
    into_first[:] = 0
    for edge in edges:
        into_first[far[edge]] += 1
    total = 0
    for switch in range(len(passed)):
        passed[switch] = into_first[switch] > 0
        total += into_first[switch]
        into_first[switch] = total  # the end of its list, which is filled from there
    into_first[len(passed)] = total
    for edge in edges:
        if not passed[near[edge]]:
            into_first[far[edge]] -= 1
            into_edge[into_first[far[edge]]] = edge
    for edge in edges:
        if passed[near[edge]]:
            into_first[far[edge]] -= 1
            into_edge[into_first[far[edge]]] = edge


@inlined
def settle(row, order, reached, far, port, via, hosts, passing, load):
    """Write down the ways chosen, and count: every host sends to the destination, from the farthest switch inwards."""
    for position in range(reached - 1, 0, -1):
        here = order[position]
        edge = via[here]
        row[here] = port[edge]
        crossing = passing[here] + hosts[here]
        passing[here] = 0
        if crossing:
            load[edge] += crossing
            passing[far[edge]] += crossing
    passing[order[0]] = 0


@inlined
def least_loaded(edges, begin, end, load):
    best = edges[begin]
    for position in range(begin + 1, end):
        if load[edges[position]] < load[best]:
            best = edges[position]
    return best


@inlined
def less_loaded_of_two(edges, begin, end, load, turn):
    """Two of them, other ones each turn; the better: nearly as even as looking at all, and much faster."""
    one = edges[begin + turn % (end - begin)]
    other = edges[begin + (turn * 7 + 3) % (end - begin)]
    return other if load[other] < load[one] else one


@inlined
def kept(edges, begin, end, port, wanted):
    """The edge that leaves by the port that was used before, if it is still allowed, else NOT_KEPT."""
    for position in range(begin, end):
        if port[edges[position]] == wanted:
            return edges[position]
    return NOT_KEPT
