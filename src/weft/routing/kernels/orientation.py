"""Sort the edges of every switch: edges up first, then edges down."""

from __future__ import annotations

import numpy as np

from weft.jit import kernel


@kernel
def sort_edges(first, far, port, back, root):
    """Return the switches from highest to lowest, the first edge down of each, and the columns of sorted edges."""
    n = len(first) - 1
    hops = np.full(n, n, np.int32)
    hops[root] = 0
    reached = np.empty(n, np.int32)
    reached[0], count, n_expanded = root, 1, 0
    while n_expanded < count:
        switch = reached[n_expanded]
        n_expanded += 1
        for edge in range(first[switch], first[switch + 1]):
            if hops[far[edge]] == n:
                hops[far[edge]] = hops[switch] + 1
                reached[count] = far[edge]
                count += 1
    begin = np.zeros(n + 2, np.int32)  # [hops] -> index of the first in from_top
    for switch in range(n):
        begin[hops[switch] + 1] += 1
    for distance in range(n + 1):
        begin[distance + 1] += begin[distance]
    from_top, rank = np.empty(n, np.int32), np.empty(n, np.int32)
    for switch in range(n):
        rank[switch] = begin[hops[switch]]
        from_top[rank[switch]] = switch
        begin[hops[switch]] += 1
    middle = np.empty(n, np.int32)
    near, sorted_far = np.empty_like(far), np.empty_like(far)
    sorted_port, far_port = np.empty_like(port), np.empty_like(port)
    for switch in range(n):
        climbs = 0
        for edge in range(first[switch], first[switch + 1]):
            climbs += rank[far[edge]] < rank[switch]
        up, down = first[switch], first[switch] + climbs
        middle[switch] = down
        for edge in range(first[switch], first[switch + 1]):
            if rank[far[edge]] < rank[switch]:
                place = up
                up += 1
            else:
                place = down
                down += 1
            near[place], sorted_far[place] = switch, far[edge]
            sorted_port[place], far_port[place] = port[edge], port[back[edge]]
    return from_top, middle, near, sorted_far, sorted_port, far_port
