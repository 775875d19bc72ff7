"""Follow the flows of a traffic pattern over links, each identified by the port slot that sends into it.

packets  int64[packet, slot | DLID]: origin and destination
load     float64[slot] -> flows; fractions are of powers of two, so that sums are exact in any order
"""

from __future__ import annotations

import numpy as np

from weft.fabric.forwarding import ANY, Reason
from weft.fabric.kernels.forwarding import next_hop
from weft.jit import kernel

NO_CABLE = -1
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

    lft      uint8[switch, lid] -> port
    far      int32[switch, port] -> next switch; NO_CABLE, or for other ends NO_CABLE - 1 - slot
    senders  float64[switch] -> hosts on it
    host     [host] -> slot; leaf: its switch; lid: its first LID; paths: number of its LIDs
    load     float64[switch, port] -> flows; added to
    Return whether all arrive; if not, the load is incomplete.
    """
    n = len(far)
    amount, out = np.empty(n), np.empty(n, np.int64)
    after, waits, order = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for index in range(len(host)):
        for to in range(lid[index], lid[index] + paths[index]):
            waits[:] = 0
            for switch in range(n):
                out[switch] = min(np.int64(lft[switch, to]), far.shape[1] - 1)
                after[switch] = far[switch, out[switch]]
                if after[switch] >= 0:
                    waits[after[switch]] += 1
                amount[switch] = (senders[switch] - (switch == leaf[index])) / paths[index]
            seen, known = 0, 0
            for switch in range(n):
                if waits[switch] == 0:
                    order[known] = switch
                    known += 1
            while seen < known:
                switch = order[seen]
                seen += 1
                following = after[switch]
                load[switch, out[switch]] += amount[switch]
                if following >= 0:
                    amount[following] += amount[switch]
                    waits[following] -= 1
                    if waits[following] == 0:
                        order[known] = following
                        known += 1
                elif amount[switch] > 0 and following != NO_CABLE - 1 - host[index]:
                    return False
            if known < n:  # a loop
                return False
    return True
