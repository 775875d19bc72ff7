"""Follow paths through the forwarding tables, and write their records.

pairs     int64[pair, column] -> ends and limits of each path, see the columns below
wanted    int64[...] -> what the query asks of all of them, -1 where it asks nothing
a         what forwarding knows of the fabric
path_sl   uint8[switch, lid] -> SL, or empty where the routing needs no lanes
rate      uint8[slot] -> place of the link's rate among all rates, by Gbit/s: the SA's codes are not in that order
"""

from __future__ import annotations

import numpy as np

from weft.fabric.forwarding import ANY, Reason
from weft.fabric.kernels.forwarding import MOST_HOPS, next_hop
from weft.jit import inlined, kernel

SOURCE, DESTINATION, SLID, DLID, P_KEY, SL, MTU, RATE, LIFE, PREFERENCE = range(10)
COLUMNS = 10
WANT_SL, MTU_SELECTOR, WANT_MTU, RATE_SELECTOR, WANT_RATE, LIFE_SELECTOR, WANT_LIFE, REVERSIBLE = range(8)
WANTED = 8
_GOES_ON, _ARRIVED = int(Reason.GOES_ON), int(Reason.ARRIVED)
_EXACTLY = 0x80  # the selector, in the byte of what it is about


@kernel
def trace(a, begin, end, lid, sl, mtu, rate):
    """Return the least MTU and rate along the path to a LID; MTU 0 if packets do not arrive."""
    least_mtu, least_rate = mtu[begin], rate[begin]
    at, sends = begin, True
    for _ in range(MOST_HOPS):
        out, _vl, reason = next_hop(a, at, sends, lid, sl, ANY, 0)
        if reason == _ARRIVED:
            return (min(least_mtu, mtu[end]), min(least_rate, rate[end])) if out == end else (0, 0)
        if reason != _GOES_ON:
            return 0, 0
        at, sends = np.int64(a.peer[out]), False
        least_mtu = min(least_mtu, mtu[out], mtu[at])
        least_rate = min(least_rate, rate[out], rate[at])
    return 0, 0


@kernel
def fit(value, selector, limit):
    """Return the value that a path may use under a selector, as OpenSM does; -1 if it does not match."""
    if selector == 0:
        return value if value > limit else -1
    if selector == 1 and value >= limit:
        return limit - 1 if limit > 1 else -1
    if selector == 2:
        return limit if value >= limit else -1
    return value


@inlined
def level_of(a, begin, lid, path_sl):
    """Return the SL of the routing engine for the path from a port to a LID; -1 if there is none."""
    row = a.row[a.node[begin]]
    if row < 0 and a.peer[begin] >= 0:
        row = a.row[a.node[a.peer[begin]]]
    if row < 0 or lid >= path_sl.shape[1]:
        return -1
    return np.int64(path_sl[row, lid] & 15)


@kernel
def fill_paths(a, pairs, limits, path_sl, mtu, rate, rate_codes, usable, gids, rows):
    """Write records of the paths that exist to the front of `rows`, and of `pairs` their pairs; returns how many."""
    count = 0
    for i in range(len(pairs)):
        begin, end = pairs[i, SOURCE], pairs[i, DESTINATION]
        if not (usable[begin] and usable[end]):
            continue
        sl = pairs[i, SL]
        routed = level_of(a, begin, pairs[i, DLID], path_sl)
        if routed >= 0:
            sl = routed
        if limits[WANT_SL] >= 0 and limits[WANT_SL] != sl:
            continue
        least_mtu, least_rate, life, reversible = 0, 0, 0, False
        for back in range(2):
            if back:
                way_back = trace(a, end, begin, pairs[i, SLID], sl, mtu, rate)
            else:
                way_back = trace(a, begin, end, pairs[i, DLID], sl, mtu, rate)
            fits_mtu, fits_rate, fits_life = -1, -1, -1
            if way_back[0] > 0:
                fits_mtu = fit(min(way_back[0], pairs[i, MTU]), limits[MTU_SELECTOR], limits[WANT_MTU])
                fits_life = fit(0 if begin == end else pairs[i, LIFE], limits[LIFE_SELECTOR], limits[WANT_LIFE])
                fits_rate = min(way_back[1], pairs[i, RATE])
                if limits[RATE_SELECTOR] == 2 and fits_rate > limits[WANT_RATE]:
                    fits_rate = -1  # OpenSM lowers MTUs and life times to what is wanted exactly, but not rates
                else:
                    fits_rate = fit(fits_rate, limits[RATE_SELECTOR], limits[WANT_RATE])
            fits = fits_mtu > 0 and fits_rate > 0 and fits_life >= 0
            if back:  # on this SL the reply has to be a path that the routing engine proved
                reversible = fits and level_of(a, end, pairs[i, SLID], path_sl) == routed
            elif fits:
                least_mtu, least_rate, life = fits_mtu, fits_rate, fits_life
            else:
                break
        if least_mtu == 0 or (limits[REVERSIBLE] > 0 and not reversible):
            continue
        record = rows[count]
        record[:] = 0
        for byte in range(16):
            record[8 + byte] = gids[end, byte]
            record[24 + byte] = gids[begin, byte]
        record[40], record[41] = pairs[i, DLID] >> 8, pairs[i, DLID] & 255
        record[42], record[43] = pairs[i, SLID] >> 8, pairs[i, SLID] & 255
        record[49] = 0x80 if reversible else 0
        record[50], record[51] = pairs[i, P_KEY] >> 8, pairs[i, P_KEY] & 255
        record[53] = sl
        record[54] = _EXACTLY | least_mtu
        record[55] = _EXACTLY | rate_codes[least_rate]
        record[56] = _EXACTLY | life
        record[57] = pairs[i, PREFERENCE]
        pairs[count] = pairs[i]
        count += 1
    return count
