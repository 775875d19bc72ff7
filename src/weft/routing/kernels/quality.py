"""Follow the flows of a traffic pattern over links, each identified by the port slot that sends into it.

packets  int64[packet, slot | DLID]: origin and destination
load     float64[slot] -> flows; fractions are of powers of two, so that sums are exact in any order
"""

from __future__ import annotations

import numpy as np

from weft.fabric.forwarding import ANY, Reason
from weft.fabric.kernels.forwarding import next_hop
from weft.jit import kernel

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
