"""Which edges of a graph are parallel: the classes whose removal lays the factors of a Cartesian product bare.

        a --- w          Two edges at a switch v point along different factors if a and b are not joined and exactly one
        |     |          other corner w closes them to a square. Then va and bw are parallel, and vb and aw. In all
        v --- b          other cases va and vb lie in one factor. (A diagonal vw makes two triangles: all one factor.)

Imrich and Zerovnik, "Factoring Cartesian-product graphs", 1994, after Feder, "Product graph representations", 1992. It
looks at neighbours of neighbours alone, so it takes time in proportion to the switches, where distances would take
their square.
"""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel
from weft.routing.kernels.balance import NOT_KEPT, kept

ROW, RING, FULL = 0, 1, 2  # what a factor is
ON, BACK = 0, 1  # ways along a row or a ring


@inlined
def root_of(parent, item):
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


@inlined
def join(parent, one, other):
    a, b = root_of(parent, one), root_of(parent, other)
    parent[max(a, b)] = min(a, b)


@kernel
def parallel_classes(first, far, back):
    """[edge] -> the lowest edge of its class. A switch has its edges in the order of the switches they lead to."""
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
                    join(parent, va, bw)  # and aw with vb when it is the turn of w: it sees a before b too
                else:
                    join(parent, va, vb)
    for edge in range(len(parent)):
        parent[edge] = root_of(parent, edge)
    return parent


@kernel
def components_without(first, far, edge_class, which):
    """[switch] -> its component when the edges of one class are gone, numbered in the order of the switches."""
    number = np.full(len(first) - 1, -1, np.int32)
    stack = np.empty(len(first), np.int32)
    found = 0
    for begin in range(len(number)):
        if number[begin] >= 0:
            continue
        stack[0], top = begin, 1
        number[begin] = found
        while top:
            top -= 1
            here = stack[top]
            for edge in range(first[here], first[here + 1]):
                if edge_class[edge] != which and number[far[edge]] < 0:
                    number[far[edge]] = found
                    stack[top] = far[edge]
                    top += 1
        found += 1
    return number


@kernel
def route_by_dimensions(
    kind, size, place, first_step, step, first_link, links, port, lid, at, out, is_host, previous, column, path_sl
):  # fmt: skip
    """Fill `column` and, unless it is empty, `path_sl`, both uint8[lid, switch].

    Bit i of the service level says whether the path crosses the dateline of ring i.

    kind, size  [dimension]; place: [switch, dimension] -> coordinate
    step        [switch, first_step[dimension] + way] -> edge
    """
    turn = np.zeros(len(first_link), np.int64)  # [edge] -> host LIDs that go over it, dealt out to its links in turn
    for index in range(len(lid)):
        target, to = at[index], lid[index]
        column[to, target] = out[index]
        for here in range(len(place)):
            if here == target:
                continue
            edge, sl, ring = -1, 0, 0
            for d in range(len(kind)):
                from_, goal = place[here, d], place[target, d]
                if from_ != goal:
                    way = direction_along(kind[d], size[d], place[here], place[target], d)
                    if edge < 0:
                        edge = step[here, first_step[d] + way]
                    if kind[d] == RING and (way == ON) == (goal < from_):
                        sl |= 1 << ring
                ring += kind[d] == RING
            begin, end = first_link[edge], first_link[edge + 1]
            link = kept(links, begin, end, port, previous[to, here]) if len(previous) else NOT_KEPT
            if link == NOT_KEPT:
                link = links[begin + turn[edge] % (end - begin)]
            turn[edge] += is_host[index]
            column[to, here] = port[link]
            if len(path_sl):
                path_sl[to, here] = sl


@inlined
def direction_along(kind, size, here, target, d):
    """The coordinate to go to in a full mesh; in a row or a ring which way round.

    Where both ways round are as short, half of the pairs cross the dateline: by the parity of the lower of the two
    places, and of the places in later dimensions. That is the same from either end, and at all switches on the way.
    """
    if kind == FULL:
        return target[d]
    if kind == ROW:
        return ON if here[d] < target[d] else BACK
    on = (target[d] - here[d]) % size
    if 2 * on == size:
        crosses = (min(here[d], target[d]) + here[d + 1 :].sum() + target[d + 1 :].sum()) % 2 == 1
        return ON if (here[d] < target[d]) != crosses else BACK
    return ON if 2 * on < size else BACK
