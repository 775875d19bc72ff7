"""Paths into layers: each goes where its channel dependencies close no circle.

Dependency e -> f (a packet that holds channel e asks for channel f) has number `base[e] + f - first[far[e]]`. A layer
keeps its channels in an order in which every dependency points ahead. A new one that points back is looked at from both
of its ends at once; if the two searches meet there is a circle, else what the shorter one saw moves past the other end
(Haeupler, Kavitha, Mathew, Sen and Tarjan, "Incremental cycle detection, topological ordering, and strong component
maintenance", 2012, has the idea and faster ways).
"""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel

NOWHERE = -1


@kernel
def find_edges(first, port, lid, at, lft, via):
    """Fill via[destination, switch] with the edge that the forwarding tables take, NOWHERE at the destination."""
    for switch in range(len(first) - 1):
        edge_at = np.full(256, NOWHERE, np.int32)
        for edge in range(first[switch], first[switch + 1]):
            edge_at[port[edge]] = edge
        for index in range(len(lid)):
            via[index, switch] = NOWHERE if at[index] == switch else edge_at[lft[switch, lid[index]]]


@kernel
def path_hops(far, via, first_to, hops):
    """Fill hops[source, destination switch] with the links of the longest path between two switches."""
    for there in range(len(hops)):
        for here in range(len(hops)):
            for index in range(first_to[there], first_to[there + 1]):
                count, at = 0, here
                while via[index, at] != NOWHERE:
                    count, at = count + 1, far[via[index, at]]
                hops[here, there] = max(hops[here, there], count)


@kernel
def fill_layer(first, near, far, back, base, via, first_to, one, other, both, layer, current):
    """Keep those pairs of layer `current` that close no circle in it; send the others to the next and count them.

    one, other  int32[pair] -> its two switches, in the order in which pairs are tried
    both        bool[pair] -> the paths of both directions, or only those from `one` to `other`
    first_to    int64[switch + 1] -> first of the destinations on that switch
    layer       uint8[source switch, destination switch]
    """
    n = len(far)
    order, place = np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32)  # the channels; [edge] -> its place there
    ahead, behind = np.empty(n, np.int32), np.empty(n, np.int32)  # stacks of the two searches
    met_ahead, met_behind = np.zeros(n, np.int32), np.zeros(n, np.int32)  # [edge] -> last search that saw it
    present, refused = np.zeros(base[-1], np.bool_), np.zeros(base[-1], np.bool_)  # [dependency]
    added = np.empty(base[-1], np.int64)
    search = left = 0
    for pair in range(len(one)):
        if layer[one[pair], other[pair]] != current:
            continue
        fits, count = True, 0
        for attempt in range(4):  # each direction, first whether a refused dependency is among them: that is cheap
            if attempt % 2 and not both[pair]:
                continue
            source, target = (other[pair], one[pair]) if attempt % 2 else (one[pair], other[pair])
            for index in range(first_to[target], first_to[target + 1]):
                way = via[index]
                edge = way[source]
                onward = way[far[edge]] if fits else NOWHERE
                while onward != NOWHERE and fits:
                    number = base[edge] + onward - first[far[edge]]
                    if attempt < 2:
                        fits = not refused[number]
                    elif not present[number]:
                        search += 1
                        fits = make_room(
                            first, near, far, back, base, present, order, place, edge, onward,
                            ahead, behind, met_ahead, met_behind, search,
                        )  # fmt: skip
                        if fits:
                            present[number] = True
                            added[count] = number
                            count += 1
                        elif count == 0:  # else it may fit once the dependencies of this very pair are gone again
                            refused[number] = True
                    edge = onward
                    onward = way[far[edge]]
        if not fits:
            for number in added[:count]:
                present[number] = False
            layer[one[pair], other[pair]] = current + 1
            if both[pair]:
                layer[other[pair], one[pair]] = current + 1
            left += 1
    return left


@kernel
def make_room(
    first, near, far, back, base, present, order, place, edge, onward, ahead, behind, met_ahead, met_behind, search
):  # fmt: skip
    """Reorder the channels so that `edge` stands before `onward`; False if that cannot be."""
    begin, end = place[onward], place[edge]
    if begin > end:
        return True
    ahead[0], behind[0] = onward, edge
    met_ahead[onward] = met_behind[edge] = search
    to_see_ahead = to_see_behind = 1
    while to_see_ahead and to_see_behind:
        to_see_ahead -= 1
        here = ahead[to_see_ahead]
        start = first[far[here]]
        for there in range(start, first[far[here] + 1]):
            if place[there] <= end and met_ahead[there] != search and present[base[here] + there - start]:
                if met_behind[there] == search:
                    return False
                met_ahead[there] = search
                ahead[to_see_ahead] = there
                to_see_ahead += 1
        to_see_behind -= 1
        here = behind[to_see_behind]
        start = first[near[here]]
        for there in back[start : first[near[here] + 1]]:
            if place[there] >= begin and met_behind[there] != search and present[base[there] + here - start]:
                if met_ahead[there] == search:
                    return False
                met_behind[there] = search
                behind[to_see_behind] = there
                to_see_behind += 1
    if to_see_ahead == 0:
        move_past(order, place, begin, end + 1, 1, met_ahead, search, ahead)
    else:
        move_past(order, place, end, begin - 1, -1, met_behind, search, behind)
    return True


@inlined
def move_past(order, place, begin, end, step, met, search, moving):
    """Send what the search met, in its order, to the far end of this stretch of the order."""
    position, count = begin, 0
    for at in range(begin, end, step):
        channel = order[at]
        if met[channel] == search:
            moving[count] = channel
            count += 1
        else:
            order[position], place[channel] = channel, position
            position += step
    for channel in moving[:count]:
        order[position], place[channel] = channel, position
        position += step
