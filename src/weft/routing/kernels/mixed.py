"""Channel dependencies of packets while each switch has its old or its new forwarding entry."""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel
from weft.routing.kernels.walk import DROP, vl_of


@inlined
def next_channel(edge_at, ports, table, sl2vl, first_pair, n_vls, to, switch, in_port, sl):
    """Return the port and the VL by which a packet leaves for another switch; -1 and 0 if it does not."""
    port = np.int64(table[to, switch])
    if port >= ports[switch] or edge_at[switch, port] < 0:
        return np.int64(-1), np.int64(0)
    vl = np.int64(vl_of(sl2vl, first_pair, ports, switch, in_port, port, sl))
    if vl == DROP:
        return np.int64(-1), np.int64(0)
    return port, vl


@kernel
def add_mixed(
    edge_at, far, far_port, ports, source, source_port, lid, old, new, old_sl, new_sl, sl2vl, first_pair, n_vls,
    depends,
):  # fmt: skip
    """Set the bits of all dependencies that packets to these LIDs can have, as `walk.walk_all` has them.

    old, new        uint8[lid, switch] -> output port
    old_sl, new_sl  uint8[lid, switch] -> service level of the path from there; empty if all have SL 0
    """
    seen = np.full(len(far) * n_vls, -1, np.int64)  # [channel] -> last turn in which a packet was in it
    stack = np.empty(len(far) * n_vls, np.int32)
    levels = 16 if len(old_sl) else 1
    for index in range(len(lid)):
        to = np.int64(lid[index])
        for sl in range(levels):
            turn = index * levels + sl
            top = 0
            for source_index in range(len(source)):
                switch = np.int64(source[source_index])
                if levels > 1 and old_sl[to, switch] != sl and new_sl[to, switch] != sl:
                    continue
                for which in range(2):
                    port, vl = next_channel(
                        edge_at, ports, new if which else old, sl2vl, first_pair, n_vls, to, switch,
                        np.int64(source_port[source_index]), sl,
                    )  # fmt: skip
                    channel = np.int64(edge_at[switch, port]) * n_vls + vl
                    if port >= 0 and seen[channel] != turn:
                        seen[channel], stack[top] = turn, channel
                        top += 1
            while top:
                top -= 1
                held = np.int64(stack[top])
                switch = np.int64(far[held // n_vls])
                for which in range(2):
                    port, vl = next_channel(
                        edge_at, ports, new if which else old, sl2vl, first_pair, n_vls, to, switch,
                        np.int64(far_port[held // n_vls]), sl,
                    )  # fmt: skip
                    if port < 0:
                        continue
                    bit = port * n_vls + vl
                    depends[held, bit >> 3] |= 1 << (bit & 7)
                    channel = np.int64(edge_at[switch, port]) * n_vls + vl
                    if seen[channel] != turn:
                        seen[channel], stack[top] = turn, channel
                        top += 1
