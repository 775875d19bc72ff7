"""Port groups, stored once per switch: a mask of ports in words of 64 bits."""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel
from weft.routing.kernels.paths import shortest_next_hops, up_down_next_hops


@kernel
def group_next_hops(first, middle, far, port, from_top, words):
    """Return masks, and int32[switch, target switch] -> row of the mask; with `from_top`, by the up/down rule."""
    n = len(first) - 1
    down, distance, order = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    next_first, next_edge = np.empty(n + 1, np.int32), np.empty(len(far), np.int32)
    masks, last, before = new_groups(n, words)
    group_of = np.full((n, n), -1, np.int32)
    count = 0
    for target in range(n):
        if len(from_top):
            reached = up_down_next_hops(
                first, middle, far, from_top, target, down, distance, order, next_first, next_edge
            )
        else:
            reached = shortest_next_hops(first, far, target, distance, order, next_first, next_edge)
        for position in range(1, reached):
            switch = order[position]
            edges = next_edge[next_first[position] : next_first[position + 1]]
            if count == len(masks):
                masks, before = grown(masks, before)
            group_of[switch, target], count = group_row(switch, edges, port, masks, last, before, count)
    return masks[:count], group_of


@kernel
def group_parallel(first, far, port, words):
    """Return masks of the links between the same two switches, and int32[switch, port] -> row of the mask."""
    n = len(first) - 1
    masks = np.zeros((len(far), words), np.uint64)
    group_of = np.full((n, 64 * words), -1, np.int32)
    row = np.full(n, -1, np.int32)  # [other switch] -> mask, for the current switch
    count = 0
    for switch in range(n):
        for edge in range(first[switch], first[switch + 1]):
            if row[far[edge]] == -1:
                row[far[edge]] = count
                count += 1
            set_port(masks, row[far[edge]], port[edge])
            group_of[switch, port[edge]] = row[far[edge]]
        for edge in range(first[switch], first[switch + 1]):
            row[far[edge]] = -1
    return masks[:count], group_of


@inlined
def new_groups(n, words):
    """Return empty masks; [switch] -> its newest group; [group] -> the previous one on the same switch."""
    return np.zeros((max(64, 4 * n), words), np.uint64), np.full(n, -1, np.int32), np.full(max(64, 4 * n), -1, np.int32)


@inlined
def grown(masks, before):
    return np.concatenate((masks, np.zeros_like(masks))), np.concatenate((before, np.full_like(before, -1)))


@inlined
def group_row(switch, edges, port, masks, last, before, count):
    """Return the group of a switch with exactly these ports, an old one or a new one at `count`; and the new count."""
    masks[count] = 0
    for edge in edges:
        set_port(masks, count, port[edge])
    row = last[switch]
    while row != -1:
        same = True
        for word in range(masks.shape[1]):
            same = same and masks[row, word] == masks[count, word]
        if same:
            return row, count
        row = before[row]
    before[count] = last[switch]
    last[switch] = count
    return count, count + 1


@inlined
def set_port(masks, row, port):
    masks[row, port // 64] |= np.uint64(1) << np.uint64(port % 64)
