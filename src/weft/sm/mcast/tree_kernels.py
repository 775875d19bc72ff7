"""Compute multicast trees with kernels: the parent of each switch, and the tree of each root."""

from __future__ import annotations

import numpy as np

from weft.jit import kernel

NOWHERE = 0x3FFF  # hops to a switch that cannot be climbed to


@kernel
def climb_from(first, far, rank, usable, sources):
    """Return int16[source, switch] -> hops of the shortest way up, NOWHERE if there is none."""
    n = len(first) - 1
    hops = np.full((len(sources), n), NOWHERE, np.int16)
    queue = np.empty(n, np.int32)
    for index in range(len(sources)):
        row = hops[index]
        queue[0], count, head = sources[index], 1, 0
        row[sources[index]] = 0
        while head < count:
            switch = queue[head]
            head += 1
            for edge in range(first[switch], first[switch + 1]):
                neighbor = far[edge]
                if rank[neighbor] < rank[switch] and usable[neighbor] and row[neighbor] == NOWHERE:
                    row[neighbor] = row[switch] + 1
                    queue[count] = neighbor
                    count += 1
    return hops


@kernel
def _pick_root(climbs, source, begin, end, choice, total):
    """Return the switch above all sources with the fewest hops in total, -1 for none; rotate among equals."""
    total[:] = 0
    for place in range(begin, end):
        for switch in range(len(total)):
            total[switch] += climbs[source[place], switch]
    best = total.min()
    if best >= NOWHERE:
        return -1
    turn = choice % (total == best).sum()
    for switch in range(len(total)):
        if total[switch] == best:
            if turn == 0:
                return switch
            turn -= 1
    return -1


@kernel
def _fall(first, far, rank, usable, root, choice, came_by, queue):
    """Search breadth first from the root downwards: [switch] -> the edge by which it is reached, -1 for none."""
    came_by[:] = -1
    queue[0], count, head = root, 1, 0
    while head < count:
        switch = queue[head]
        head += 1
        edges = first[switch + 1] - first[switch]
        for step in range(edges):
            edge = first[switch] + (step + choice) % edges  # parallel links take turns
            neighbor = far[edge]
            if rank[neighbor] > rank[switch] and usable[neighbor] and came_by[neighbor] < 0:
                came_by[neighbor] = edge
                queue[count] = neighbor
                count += 1


@kernel
def grow_trees(first, far, port, back, rank, usable, climbs, begin, switches, source, columns, mft):
    """Set the bits of ports between switches; a group whose switches have no common one above them gets none."""
    n = len(first) - 1
    total = np.empty(n, np.int64)
    came_by, queue = np.empty(n, np.int32), np.empty(n, np.int32)
    for group in range(len(columns)):
        if begin[group + 1] - begin[group] < 2:
            continue
        column = columns[group]
        root = _pick_root(climbs, source, begin[group], begin[group + 1], column, total)
        if root < 0:
            continue
        _fall(first, far, rank, usable, root, column, came_by, queue)
        for place in range(begin[group], begin[group + 1]):
            switch = switches[place]
            while switch != root and came_by[switch] >= 0:
                edge = came_by[switch]
                came_by[switch] = -1  # the rest of its way is in the tree now
                up = port[back[edge]]
                mft[switch, column, up // 16] |= np.uint16(1 << up % 16)
                switch = far[back[edge]]
                mft[switch, column, port[edge] // 16] |= np.uint16(1 << port[edge] % 16)
    return mft
