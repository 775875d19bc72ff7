"""Next hops: for each destination switch, the edges that a packet may take from every other switch.

Two rules. *Shortest*: any edge to a switch one hop nearer. *Up/down*: edges have a direction, up towards the switch of
greater height, and a path goes up first and then only down, so that no dependency can close a circle (Schroeder et al.,
"Autonet", 1991). Forwarding tables cannot see where a packet came from; so a switch from which the destination can be
reached by going down goes down, always, and the others go up, by the shortest way.
"""

from __future__ import annotations

from weft.jit import kernel

UNREACHED = -1
FAR = 1 << 30


@kernel
def shortest_next_hops(first, far, target, distance, order, next_first, next_edge):
    """Fill `distance`, `order` (nearest first) and the candidates of each switch; returns how many were reached."""
    distance[:] = UNREACHED
    distance[target] = 0
    order[0] = target
    reached = 1
    taken = 0
    while taken < reached:
        here = order[taken]
        taken += 1
        for edge in range(first[here], first[here + 1]):
            there = far[edge]
            if distance[there] == UNREACHED:
                distance[there] = distance[here] + 1
                order[reached] = there
                reached += 1
    found = 0
    for index in range(reached):
        here = order[index]
        next_first[index] = found
        for edge in range(first[here], first[here + 1]):
            if distance[far[edge]] == distance[here] - 1:
                next_edge[found] = edge
                found += 1
    next_first[reached] = found
    return reached


@kernel
def up_down_next_hops(first, middle, far, from_top, target, down, distance, order, next_first, next_edge):
    """The same under the up/down rule: the edges of a switch up to `middle` go up, the others down.

    `from_top` lists the switches so that every edge up leads to one listed before.
    """
    down[:] = UNREACHED
    down[target] = 0
    order[0] = target
    reached = 1
    taken = 0
    while taken < reached:  # who reaches the target by going down alone: climb from it
        here = order[taken]
        taken += 1
        for edge in range(first[here], middle[here]):
            there = far[edge]
            if down[there] == UNREACHED:
                down[there] = down[here] + 1
                order[reached] = there
                reached += 1
    falling = reached
    distance[:] = down
    found = 0
    for index in range(falling):
        here = order[index]
        next_first[index] = found
        for edge in range(middle[here], first[here + 1]):
            if down[far[edge]] == down[here] - 1 and down[here] > 0:
                next_edge[found] = edge
                found += 1
    for here in from_top:  # the others climb, to the nearest from which it goes down
        if down[here] != UNREACHED:
            continue
        best, begin = FAR, found
        for edge in range(first[here], middle[here]):
            there = distance[far[edge]]
            if there <= best and there != UNREACHED:
                if there < best:  # nearer than all so far: forget those
                    best = there
                    found = begin
                next_edge[found] = edge
                found += 1
        if best < FAR:
            distance[here] = best + 1
            next_first[reached] = begin
            order[reached] = here
            reached += 1
    next_first[reached] = found
    return reached
