"""Follow the flows of a traffic pattern over links, each identified by the port slot that sends into it.

packets  int64[packet, slot | DLID]: origin and destination
load     float64[slot] -> flows; fractions are of powers of two, so that sums are exact in any order
"""

from __future__ import annotations

import numpy as np

from weft.fabric.forwarding import ANY, Reason
from weft.fabric.kernels.forwarding import next_hop
from weft.jit import inlined, kernel

NO_CABLE = -1
_LIDS = 64  # whose entries are read together
_GOES_ON, _ARRIVED = int(Reason.GOES_ON), int(Reason.ARRIVED)


@kernel
def follow(a, packets, amount, load, heaviest):
    """Add the `amount` of each packet to every link on its path; or, with `heaviest`, find the largest load there.

    Return the first packet that does not arrive, or -1.
    """
    for i in range(len(packets)):
        at, sends, reason = packets[i, 0], True, _GOES_ON
        for _ in range(len(a.lft) + 2):  # a packet that passes a switch twice loops forever
            out, _vl, reason = next_hop(a, at, sends, packets[i, 1], 0, ANY, 0)
            if reason != _GOES_ON:
                break
            if len(heaviest):
                heaviest[i] = max(heaviest[i], load[out])
            else:
                load[out] += amount[i]
            at, sends = np.int64(a.peer[out]), False
        if reason != _ARRIVED:
            return i
    return -1


@kernel
def add_trees(lft, far, senders, host, leaf, lid, paths, load):
    """Add the load of packets from the senders on all switches to each host; the paths to one LID form a tree.

    Switches pass their load on in the order of the tree to the first LID of a leaf. Trees to its other LIDs mostly have
    the same order; a load that comes to a switch that has passed on already is followed by itself.

    lft      [switch, lid] -> port
    far      int32[switch, port] -> next switch; NO_CABLE, or for other ends NO_CABLE - 1 - slot
    senders  float64[switch] -> hosts on it
    host     [host] -> slot; leaf: its switch; lid: its first LID; paths: number of its LIDs
    load     float64[switch, port] -> flows; added to
    Return whether all arrive; if not, the load is incomplete.
    """
    n, last = len(far), far.shape[1] - 1
    amount, order, place = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    routes = np.empty((_LIDS, n), lft.dtype)  # the entries of some LIDs: a cache line of each table
    read, ordered_for = -1, -1  # first of these LIDs; leaf of the order
    for index in range(len(host)):
        arrived = NO_CABLE - 1 - host[index]
        for to in range(lid[index], lid[index] + paths[index]):
            if to // _LIDS != read:
                read = to // _LIDS
                for switch in range(n):
                    some = lft[switch, read * _LIDS : (read + 1) * _LIDS]
                    for i in range(len(some)):
                        routes[i, switch] = some[i]
            route = routes[to % _LIDS]
            if leaf[index] != ordered_for:
                if not order_tree(route, far, last, order, place):
                    return False
                ordered_for = leaf[index]
            amount[:] = senders / paths[index]
            amount[leaf[index]] -= 1 / paths[index]
            for position in range(n):
                switch = order[position]
                flows = amount[switch]
                for _ in range(n + 1):  # once, unless the load goes back in the order
                    if flows == 0:
                        break
                    out = min(np.int64(route[switch]), last)
                    load[switch, out] += flows
                    following = np.int64(far[switch, out])
                    if following < 0:
                        if following != arrived:
                            return False
                        break
                    if place[following] > position:
                        amount[following] += flows
                        break
                    switch = following
                else:  # a loop
                    return False
    return True


@inlined
def order_tree(route, far, last, order, place):
    """Order the switches so that each comes before the next one on its path; return False if paths form a loop."""
    n = len(far)
    place[:] = 0  # first the number of switches before it that are not yet in order
    for switch in range(n):
        following = np.int64(far[switch, min(np.int64(route[switch]), last)])
        if following >= 0:
            place[following] += 1
    known = 0
    for switch in range(n):
        if place[switch] == 0:
            order[known] = switch
            known += 1
    for position in range(n):
        if position == known:
            return False
        switch = order[position]
        place[switch] = position
        following = np.int64(far[switch, min(np.int64(route[switch]), last)])
        if following >= 0:
            place[following] -= 1
            if place[following] == 0:
                order[known] = following
                known += 1
    return True
