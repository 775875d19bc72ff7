"""Next hops: for each destination switch, the edges that a packet may take from every other switch.

Two rules. *Shortest*: any edge to a switch one hop nearer. *Up/down*: edges have a direction, up towards the higher
switch, and a path goes up first and then only down, so that dependencies cannot form a cycle (Schroeder et al.,
"Autonet", 1991). Forwarding tables do not depend on the origin of a packet; so a switch that can reach the destination
by going down always goes down, and the others go up, by the shortest path.
"""

from __future__ import annotations

from weft.jit import kernel

UNREACHED = -1
FAR = 1 << 30


@kernel
def shortest_next_hops(first, far, target, distance, order, next_first, next_edge):
    """Fill `distance`, `order` (nearest first) and the candidates of each switch.

    Return the number of switches reached.
    """
    distance[:] = UNREACHED
    distance[target] = 0
    order[0] = target
    reached = 1
    n_expanded = 0
    while n_expanded < reached:
        switch = order[n_expanded]
        n_expanded += 1
        for edge in range(first[switch], first[switch + 1]):
            neighbour = far[edge]
            if distance[neighbour] == UNREACHED:
                distance[neighbour] = distance[switch] + 1
                order[reached] = neighbour
                reached += 1
    count = 0
    for index in range(reached):
        switch = order[index]
        next_first[index] = count
        for edge in range(first[switch], first[switch + 1]):
            if distance[far[edge]] == distance[switch] - 1:
                next_edge[count] = edge
                count += 1
    next_first[reached] = count
    return reached


@kernel
def up_down_next_hops(first, middle, far, from_top, target, down, distance, order, next_first, next_edge):
    """Fill in the next hops under the up/down rule: the edges of a switch before `middle` go up, the others down.

    `from_top` lists the switches so that every edge up leads to one listed before.
    """
    down[:] = UNREACHED
    down[target] = 0
    order[0] = target
    reached = 1
    n_expanded = 0
    while n_expanded < reached:  # switches that reach the target by going down only: climb from it
        switch = order[n_expanded]
        n_expanded += 1
        for edge in range(first[switch], middle[switch]):
            neighbour = far[edge]
            if down[neighbour] == UNREACHED:
                down[neighbour] = down[switch] + 1
                order[reached] = neighbour
                reached += 1
    falling = reached
    distance[:] = down
    count = 0
    for index in range(falling):
        switch = order[index]
        next_first[index] = count
        for edge in range(middle[switch], first[switch + 1]):
            if down[far[edge]] == down[switch] - 1 and down[switch] > 0:
                next_edge[count] = edge
                count += 1
    for switch in from_top:  # the others climb, to the nearest switch that can go down
        if down[switch] != UNREACHED:
            continue
        best, begin = FAR, count
        for edge in range(first[switch], middle[switch]):
            hops = distance[far[edge]]
            if hops <= best and hops != UNREACHED:
                if hops < best:  # nearer than all so far: discard those
                    best = hops
                    count = begin
                next_edge[count] = edge
                count += 1
        if best < FAR:
            distance[switch] = best + 1
            next_first[reached] = begin
            order[reached] = switch
            reached += 1
    next_first[reached] = count
    return reached
