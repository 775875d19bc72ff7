"""Distribute paths over layers, in each of which the channel dependencies form no cycle.

Dependency e -> f (a packet that holds channel e requests channel f) has number `base[e] + f - first[far[e]]`. A layer
keeps its
channels in a topological order. A new dependency that points back is searched from both of its ends at once; if the two
searches meet there is a cycle, otherwise the channels of the shorter search move past the other end (the idea, and
faster
variants: Haeupler, Kavitha, Mathew, Sen and Tarjan, "Incremental cycle detection, topological ordering, and strong
component
maintenance", 2012).
"""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel

NO_EDGE = -1


@kernel
def find_edges(first, port, lid, at, lft, via):
    """Fill via[destination, switch] with the edge that the forwarding tables take, NO_EDGE at the destination."""
    most_ports = 1 + port.max() if len(port) else 0
    for switch in range(len(first) - 1):
        edge_at = np.full(most_ports, NO_EDGE, np.int32)
        for edge in range(first[switch], first[switch + 1]):
            edge_at[port[edge]] = edge
        for index in range(len(lid)):
            via[index, switch] = NO_EDGE if at[index] == switch else edge_at[lft[switch, lid[index]]]


@kernel
def path_hops(far, via, first_to, hops):
    """Fill hops[source, destination switch] with the length of the longest path between two switches."""
    for target in range(len(hops)):
        for source in range(len(hops)):
            for index in range(first_to[target], first_to[target + 1]):
                count, at = 0, source
                while via[index, at] != NO_EDGE:
                    count, at = count + 1, far[via[index, at]]
                hops[source, target] = max(hops[source, target], count)


@kernel
def fill_layer(first, near, far, back, base, via, first_to, first_switch, second_switch, both, layer, current):
    """Keep the pairs of layer `current` that form no cycle in it; move the others to the next layer and count them.

    first_switch, second_switch  int32[pair] -> its two switches, in the order in which pairs are tried
    both         bool[pair] -> the paths of both directions, or only those from the first to the second
    first_to     int64[switch + 1] -> first of the destinations on that switch
    layer        uint8[source switch, destination switch]
    """
    n = len(far)
    # channels in order; [edge] -> its position
    order, place = np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32)
    ahead, behind = np.empty(n, np.int32), np.empty(n, np.int32)  # stacks of the two searches
    met_ahead, met_behind = np.zeros(n, np.int32), np.zeros(n, np.int32)  # [edge] -> last search that reached it
    present, refused = np.zeros(base[-1], np.bool_), np.zeros(base[-1], np.bool_)  # [dependency]
    added = np.empty(base[-1], np.int64)
    search = left = 0
    for pair in range(len(first_switch)):
        if layer[first_switch[pair], second_switch[pair]] != current:
            continue
        fits, count = True, 0
        for attempt in range(4):  # each direction; first the cheap test for a refused dependency
            if attempt % 2 and not both[pair]:
                continue
            source, target = (
                (second_switch[pair], first_switch[pair]) if attempt % 2 else (first_switch[pair], second_switch[pair])
            )
            for index in range(first_to[target], first_to[target + 1]):
                path_edges = via[index]
                edge = path_edges[source]
                onward = path_edges[far[edge]] if fits else NO_EDGE
                while onward != NO_EDGE and fits:
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
                        elif count == 0:  # else it may fit once the dependencies of this pair are removed again
                            refused[number] = True
                    edge = onward
                    onward = path_edges[far[edge]]
        if not fits:
            for number in added[:count]:
                present[number] = False
            layer[first_switch[pair], second_switch[pair]] = current + 1
            if both[pair]:
                layer[second_switch[pair], first_switch[pair]] = current + 1
            left += 1
    return left


@kernel
def make_room(
    first, near, far, back, base, present, order, place, edge, onward, ahead, behind, met_ahead, met_behind, search
):  # fmt: skip
    """Reorder the channels so that `edge` comes before `onward`. Return False if that is impossible."""
    begin, end = place[onward], place[edge]
    if begin > end:
        return True
    ahead[0], behind[0] = onward, edge
    met_ahead[onward] = met_behind[edge] = search
    to_see_ahead = to_see_behind = 1
    while to_see_ahead and to_see_behind:
        to_see_ahead -= 1
        channel = ahead[to_see_ahead]
        start = first[far[channel]]
        for following in range(start, first[far[channel] + 1]):
            if (
                place[following] <= end
                and met_ahead[following] != search
                and present[base[channel] + following - start]
            ):
                if met_behind[following] == search:
                    return False
                met_ahead[following] = search
                ahead[to_see_ahead] = following
                to_see_ahead += 1
        to_see_behind -= 1
        channel = behind[to_see_behind]
        start = first[near[channel]]
        for following in back[start : first[near[channel] + 1]]:
            if (
                place[following] >= begin
                and met_behind[following] != search
                and present[base[following] + channel - start]
            ):
                if met_ahead[following] == search:
                    return False
                met_behind[following] = search
                behind[to_see_behind] = following
                to_see_behind += 1
    if to_see_ahead == 0:
        move_past(order, place, begin, end + 1, 1, met_ahead, search, ahead)
    else:
        move_past(order, place, end, begin - 1, -1, met_behind, search, behind)
    return True


@inlined
def move_past(order, place, begin, end, step, met, search, moving):
    """Move the channels that the search reached, in their order, to the far end of this range."""
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
