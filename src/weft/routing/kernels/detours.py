"""Channel dependencies of paths in several parts, each on lanes of its own."""

from __future__ import annotations

import numpy as np

from weft.jit import inlined, kernel


@kernel
def find_starts(routes, path_sl, sl2vl, first_pair, lids, edge_at, vls):
    """Return bool[switch, port * vls + VL]: whether a packet of the switch itself leaves by this port on this lane."""
    starts = np.zeros((len(edge_at), edge_at.shape[1] * vls), np.bool_)
    for lid in lids:
        for switch in range(len(edge_at)):
            port = np.int64(routes[lid, switch])
            if port < edge_at.shape[1] and edge_at[switch, port] >= 0:
                sl = path_sl[lid, switch] if len(path_sl) else 0
                vl = np.int64(sl2vl[first_pair[switch] + port, sl]) if len(sl2vl) else 0
                if vl < vls:
                    starts[switch, port * vls + vl] = True
    return starts


@inlined
def set_dependency(depends, channel, bit):
    depends[channel, bit >> 3] |= 1 << (bit & 7)


@kernel
def add_parts(depends, starts, edge_at, far, vls, part_lanes, n_lanes):
    """Return the dependencies as in `walk`, where each part of a path uses the lanes from `part_lanes[part]` on.

    A part follows the dependencies of the tables. A packet at the end of a channel may begin the next part, with any
    path that starts at this switch.
    """
    width = edge_at.shape[1] * vls
    parts = np.zeros((len(far) * n_lanes, (edge_at.shape[1] * n_lanes + 7) // 8), np.uint8)
    for channel in range(len(depends)):
        edge, vl = channel // vls, channel % vls
        for bit in range(width):
            port, next_vl = bit // vls, bit % vls
            waits = depends[channel, bit >> 3] >> (bit & 7) & 1
            for part in range(len(part_lanes)):
                own = edge * n_lanes + part_lanes[part] + vl
                if waits:
                    set_dependency(parts, own, port * n_lanes + part_lanes[part] + next_vl)
                if part + 1 < len(part_lanes) and starts[far[edge], bit]:
                    set_dependency(parts, own, port * n_lanes + part_lanes[part + 1] + next_vl)
    return parts
