"""Sort the edges of every switch: those up first, then those down."""

from __future__ import annotations

import numpy as np

from weft.jit import kernel


@kernel
def sort_edges(first, far, port, root):
    """The switches by falling height, where each one's edges down begin, and near, far, port of the edges sorted."""
    n = len(first) - 1
    hops = np.full(n, n, np.int32)
    hops[root] = 0
    reached = np.empty(n, np.int32)
    reached[0], count, taken = root, 1, 0
    while taken < count:
        here = reached[taken]
        taken += 1
        for edge in range(first[here], first[here + 1]):
            if hops[far[edge]] == n:
                hops[far[edge]] = hops[here] + 1
                reached[count] = far[edge]
                count += 1
    begin = np.zeros(n + 2, np.int32)  # [hops] -> where they begin in from_top
    for here in range(n):
        begin[hops[here] + 1] += 1
    for distance in range(n + 1):
        begin[distance + 1] += begin[distance]
    from_top, rank = np.empty(n, np.int32), np.empty(n, np.int32)
    for here in range(n):
        rank[here] = begin[hops[here]]
        from_top[rank[here]] = here
        begin[hops[here]] += 1
    middle = np.empty(n, np.int32)
    sorted_near, sorted_far, sorted_port = np.empty_like(far), np.empty_like(far), np.empty_like(port)
    for here in range(n):
        climbs = 0
        for edge in range(first[here], first[here + 1]):
            climbs += rank[far[edge]] < rank[here]
        up, down = first[here], first[here] + climbs
        middle[here] = down
        for edge in range(first[here], first[here + 1]):
            if rank[far[edge]] < rank[here]:
                place = up
                up += 1
            else:
                place = down
                down += 1
            sorted_near[place], sorted_far[place], sorted_port[place] = here, far[edge], port[edge]
    return from_top, middle, sorted_near, sorted_far, sorted_port
