"""Find parallel edges of a graph: the classes whose removal reveals the factors of a Cartesian product.

        a --- w          Two edges at a switch v are in different factors if a and b are not connected and exactly one
        |     |          other corner w closes them to a square. Then va and bw are parallel, and vb and aw. In all
        v --- b          other cases va and vb are in one factor. (A diagonal vw makes two triangles: all one factor.)

Imrich and Zerovnik, "Factoring Cartesian-product graphs", 1994, after Feder, "Product graph representations", 1992.
It examines
only neighbours of neighbours, so its time is proportional to the switches, where distances would take their square.
"""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel
from weft.routing.kernels.balance import NO_EDGE, previous_edge

ROW, RING, FULL = 0, 1, 2  # kinds of factor
ON, BACK = 0, 1  # directions along a row or a ring


@inlined
def root_of(parent, item):
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


@inlined
def join(parent, first, second):
    a, b = root_of(parent, first), root_of(parent, second)
    parent[max(a, b)] = min(a, b)


@kernel
def parallel_classes(first, far, back):
    """Return the lowest edge of each edge's class. The edges of a switch are sorted by the switches they lead to."""
    parent = np.arange(len(far))
    beside_a = np.full(len(first), -1, np.int64)  # [switch] -> last edge va whose a it is a neighbour of
    for v in range(len(first) - 1):
        for va in range(first[v], first[v + 1]):
            join(parent, va, back[va])
            a = far[va]
            beside_a[far[first[a] : first[a + 1]]] = va
            for vb in range(va + 1, first[v + 1]):
                b = far[vb]
                corners, bw = 0, -1
                if beside_a[b] != va:
                    for edge in range(first[b], first[b + 1]):
                        if beside_a[far[edge]] == va and far[edge] != v:
                            corners += 1
                            bw = edge
                if corners == 1:
                    join(parent, va, bw)  # aw is joined with vb when w is visited, which meets a before b too
                else:
                    join(parent, va, vb)
    for edge in range(len(parent)):
        parent[edge] = root_of(parent, edge)
    return parent


@kernel
def components_without(first, far, edge_class, removed_class):
    """Return the component of each switch without the edges of one class, numbered in the order of the switches."""
    number = np.full(len(first) - 1, -1, np.int32)
    stack = np.empty(len(first), np.int32)
    n_components = 0
    for begin in range(len(number)):
        if number[begin] >= 0:
            continue
        stack[0], top = begin, 1
        number[begin] = n_components
        while top:
            top -= 1
            switch = stack[top]
            for edge in range(first[switch], first[switch + 1]):
                if edge_class[edge] != removed_class and number[far[edge]] < 0:
                    number[far[edge]] = n_components
                    stack[top] = far[edge]
                    top += 1
        n_components += 1
    return number


@kernel
def route_by_dimensions(
    kind, size, place, first_step, step, first_link, links, port, lid, at, out, is_host, previous, column, path_sl
):  # fmt: skip
    """Fill `column` and, unless it is empty, `path_sl`, both uint8[lid, switch].

    Bit i of the service level tells whether the path crosses the dateline of ring i.

    kind, size  [dimension]; place: [switch, dimension] -> coordinate
    step        [switch, first_step[dimension] + direction] -> edge
    """
    turn = np.zeros(len(first_link), np.int64)  # [edge] -> host LIDs over it, assigned to its links in turn
    for index in range(len(lid)):
        target, to = at[index], lid[index]
        column[to, target] = out[index]
        for switch in range(len(place)):
            if switch == target:
                continue
            edge, sl, ring = -1, 0, 0
            for d in range(len(kind)):
                from_, goal = place[switch, d], place[target, d]
                if from_ != goal:
                    way = direction_along(kind[d], size[d], place[switch], place[target], d)
                    if edge < 0:
                        edge = step[switch, first_step[d] + way]
                    if kind[d] == RING and (way == ON) == (goal < from_):
                        sl |= 1 << ring
                ring += kind[d] == RING
            begin, end = first_link[edge], first_link[edge + 1]
            link = previous_edge(links, begin, end, port, previous[to, switch]) if len(previous) else NO_EDGE
            if link == NO_EDGE:
                link = links[begin + turn[edge] % (end - begin)]
            turn[edge] += is_host[index]
            column[to, switch] = port[link]
            if len(path_sl):
                path_sl[to, switch] = sl


@inlined
def direction_along(kind, size, source, target, d):
    """Return the next coordinate in a full mesh; in a row or a ring the direction.

    If both directions of a ring are equally short, half of the pairs cross the dateline: by the parity of the lower of
    the two coordinates, and of the coordinates in later dimensions. That is the same from either end, and at all
    switches on the path.
    """
    if kind == FULL:
        return target[d]
    if kind == ROW:
        return ON if source[d] < target[d] else BACK
    on = (target[d] - source[d]) % size
    if 2 * on == size:
        crosses = (min(source[d], target[d]) + source[d + 1 :].sum() + target[d + 1 :].sum()) % 2 == 1
        return ON if (source[d] < target[d]) != crosses else BACK
    return ON if 2 * on < size else BACK
