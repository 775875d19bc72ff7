"""Policies that spread destinations over links: the choice among the allowed next hops.

*Least loaded*: each switch takes the allowed port with the fewest pairs of hosts so far.

*Trunks*: each destination gets one trunk, built from its switch outwards over the least used links; all other paths
join it as
soon as an allowed edge leads there. In a regular fat tree that is destination-modulo routing (Zahavi, "D-Mod-K
routing providing
non-blocking traffic for shift permutations on real life fat trees", 2010): all traffic to a host comes down one path,
which it
shares with as few other hosts as the tree permits. In an irregular one it remains a single path, and the counters
balance the
rest.
"""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel
from weft.routing.kernels.paths import UNREACHED, shortest_next_hops, up_down_next_hops

NO_EDGE = -1


@kernel
def route_least_loaded(first, middle, far, port, from_top, lid, at, out, is_host, hosts, previous, column):
    """Fill `column`, uint8[lid, switch] -> port: by the up/down rule if `from_top` is not empty, else by shortest
    paths.

    previous  in the shape of `column`, or empty: ports to keep where they are still allowed
    Return the index of the first destination that not every switch reaches, or -1.
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
            switch = order[position]
            begin, end = next_first[position], next_first[position + 1]
            edge = next_edge[begin]
            if end > begin + 1:
                edge = previous_edge(next_edge, begin, end, port, previous[to, switch]) if len(previous) else NO_EDGE
                if edge == NO_EDGE:
                    edge = least_loaded(next_edge, begin, end, load)
            via[switch] = edge
            column[to, switch] = port[edge]
        if is_host[index]:
            store_and_count(column[to], order, reached, far, port, via, hosts, passing, load)
    return -1


@kernel
def route_by_trunks(first, middle, far, port, from_top, lid, at, out, near, far_port, is_host, hosts, column):
    """Fill `column` by the up/down rule, with a trunk for each destination. Return as above."""
    n = len(first) - 1
    down, distance, order = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    next_first, next_edge = np.empty(n + 1, np.int32), np.empty(len(far), np.int32)
    into_first, into_edge = np.empty(n + 1, np.int32), np.empty(len(far), np.int32)
    passed = np.empty(n, np.bool_)  # [switch] -> others pass through it
    load = np.zeros(len(far), np.int64)  # [edge] -> pairs of hosts that use it
    via, passing = np.empty(n, np.int32), np.zeros(n, np.int64)
    trunks = np.zeros(n, np.int64)  # [switch] -> trunks through it
    joined = np.full(n, -1, np.int32)  # [switch] -> last destination whose trunk goes through it
    offered = np.full(n, -1, np.int32)  # [switch] -> last destination to whose trunk `via` is an edge
    trunk_edge = np.empty(n, np.int32)  # [height]
    open_positions = np.empty(n, np.int32)  # in `order`, of the switches with a choice, or that others pass
    end_positions = np.empty(n, np.int32)  # in `order`, of those with a choice that no others pass
    reached = n_open = n_ends = 0
    width = one = two = np.int64(0)  # of a choice, and the two candidates of this turn
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
        if not is_host[index]:  # a switch: little traffic, any allowed path will do
            for position in range(1, reached):
                begin, end = next_first[position], next_first[position + 1]
                column[to, order[position]] = port[next_edge[begin + index % (end - begin)]]
            continue
        if n_open == n_ends == 0:
            turn_around(next_edge[: next_first[reached]], near, far, into_first, into_edge, passed)
            for position in range(1, reached):
                switch = order[position]
                via[switch] = next_edge[next_first[position]]
                has_choice = next_first[position + 1] > next_first[position] + 1
                if passed[switch] and (has_choice or down[switch] == UNREACHED):
                    open_positions[n_open] = position
                    n_open += 1
                elif has_choice:
                    end_positions[n_ends] = position
                    n_ends += 1
        switch, height = target, 0
        while True:  # grow the trunk: prefer paths down, then the least used link, then the least used switch
            best, best_climbs = -1, False
            for position in range(into_first[switch], into_first[switch + 1]):
                edge = into_edge[position]
                neighbour = near[edge]
                if not passed[neighbour]:
                    break  # nor are the ones after it: they cannot extend a trunk
                climbs = down[neighbour] == UNREACHED
                if best == -1 or climbs < best_climbs:
                    best, best_climbs = edge, climbs
                elif climbs == best_climbs and (
                    load[edge] < load[best] or (load[edge] == load[best] and trunks[neighbour] < trunks[near[best]])
                ):
                    best = edge
            if best == -1:
                break
            trunk_edge[height] = best
            height += 1
            switch = near[best]
        top = (height + 1) // 2  # half of the longest path that comes by it: beyond, paths climb
        for height in range(1, top + 1):
            edge = trunk_edge[height - 1]
            switch = near[edge]
            via[switch] = edge
            joined[switch] = index
            trunks[switch] += 1
            offer(switch, index, far_port[edge], into_first, into_edge, near, port, load, via, joined, offered)
        width = 0
        for number in range(n_open):  # the others join it where they can
            position = open_positions[number]
            switch = order[position]
            if joined[switch] == index:
                continue
            if offered[switch] == index:
                if top < distance[switch] < 2 * top:  # on the other side, as high as this part of the trunk
                    entry = far_port[trunk_edge[2 * top - distance[switch] - 1]]
                    offer(switch, index, entry, into_first, into_edge, near, port, load, via, joined, offered)
            elif hosts[switch]:
                via[switch] = least_loaded(next_edge, next_first[position], next_first[position + 1], load)
            else:  # the less loaded of two, others each turn: nearly as even as comparing all, and faster
                begin, end = np.int64(next_first[position]), np.int64(next_first[position + 1])
                if end - begin != width:  # most are equal, and division is slow
                    width = end - begin
                    one, two = index % width, (index * 7 + 3) % width
                first_edge, second_edge = next_edge[begin + one], next_edge[begin + two]
                via[switch] = second_edge if load[second_edge] < load[first_edge] else first_edge
        for number in range(n_ends):
            position = end_positions[number]
            if offered[order[position]] != index:
                via[order[position]] = least_loaded(next_edge, next_first[position], next_first[position + 1], load)
        store_and_count(column[to], order, reached, far, port, via, hosts, passing, load)
    return -1


@inlined
def offer(switch, index, entry, into_first, into_edge, near, port, load, via, joined, offered):
    """Offer the neighbours of a switch the way to the trunk.

    Each prefers to leave by the port number `entry`, by which the trunk is left at the same height: then hosts of a
    leaf that send to the hosts of another one use different ports, as the trunks of these do. Among others it takes
    the least loaded edge.
    """
    for position in range(into_first[switch], into_first[switch + 1]):
        edge = into_edge[position]
        neighbour = near[edge]
        if joined[neighbour] == index:
            continue
        if offered[neighbour] == index:
            best = via[neighbour]
            gain = np.int64(port[edge] == entry) - np.int64(port[best] == entry)  # interpreted, bool has no minus
            if gain < 0 or (gain == 0 and load[edge] >= load[best]):
                continue
        offered[neighbour] = index
        via[neighbour] = edge


@inlined
def turn_around(edges, near, far, into_first, into_edge, passed):
    """Group the edges by the switch that they enter; edges from switches that others pass come first."""
    into_first[:] = 0
    for edge in edges:
        into_first[far[edge]] += 1
    total = 0
    for switch in range(len(passed)):
        passed[switch] = into_first[switch] > 0
        total += into_first[switch]
        into_first[switch] = total  # the end of its list, which is filled backwards
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
def store_and_count(row, order, reached, far, port, via, hosts, passing, load):
    """Store the chosen ports and add the load of all hosts to the destination, from the farthest switch inwards."""
    for position in range(reached - 1, 0, -1):
        switch = order[position]
        edge = via[switch]
        row[switch] = port[edge]
        crossing = passing[switch] + hosts[switch]
        passing[switch] = 0
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
def previous_edge(edges, begin, end, port, previous_port):
    """Return the edge that leaves by the previous port if it is still allowed, else NO_EDGE."""
    guess = min(begin + previous_port - port[edges[begin]], end - 1)  # ports mostly follow each other
    while guess > begin and port[edges[guess]] > previous_port:
        guess -= 1
    if guess >= begin and port[edges[guess]] == previous_port:
        return edges[guess]
    for position in range(begin, end):
        if port[edges[position]] == previous_port:
            return edges[position]
    return NO_EDGE
