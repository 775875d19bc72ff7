"""Walk every path that the tables describe: who arrives, in how many hops, over which lanes, waiting for whom.

A packet that holds a buffer of one channel (a directed link and virtual lane) and asks for one of the next makes the
second a dependency of the first. If dependencies close a circle, the packets in it can wait for each other for ever:
a credit loop (Dally and Seitz, "Deadlock-free message routing in multiprocessor interconnection networks", 1987).

For one destination and service level, where a packet goes depends on the switch, and which lane it takes on the port
that it came in by. So all paths that leave a switch on the same lane go on as one, and are walked once.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.tables import NO_ROUTE
from weft.jit import inlined, kernel

ARRIVED, NO_ENTRY, ASTRAY, DROPPED, LOOP = 0, 1, 2, 3, 4  # how a walk ends
DROP = 15  # an SL that maps to VL 15, the lane of management, is discarded


@inlined
def vl_of(sl2vl, first_pair, ports, switch, in_port, out_port, sl):
    """VL that a packet leaves by; the one lane if there is no table."""
    if len(sl2vl) == 0:
        return 0
    return np.int64(sl2vl[first_pair[switch] + in_port * ports[switch] + out_port, sl])


@kernel
def walk_all(
    edge_at, far, far_port, ports, source, source_port, weight, lid, at, out, own,
    routes, path_sl, reply_sls, sl2vl, first_pair, n_vls, depends, ends, hops, used, circle, waiting,
):  # fmt: skip
    """Walk from every source to every LID; returns source, destination and end of the first that failed, or -1s.

    With `reply_sls` the packets are replies: each goes on the SLs of the requests that it may answer.

    edge_at  int32[switch, port] -> edge, -1 where the port leads to no other switch
    weight   int64[source] -> how many ports it stands for; own: int32[destination] -> the source that it is among
    routes   uint8[lid, switch] -> out port; path_sl the same, or empty for SL 0
    reply_sls  uint16[switch, source] -> mask of the SLs on which requests come from there to this source, or empty
    depends  uint8[edge * n_vls, ...]: bit (port * n_vls + VL) is set where a channel waits for that one
    ends     int64[5]: pairs by how they end; hops int64[switch + 1]: those that arrive, by links between switches
    used     uint8[16]: VLs that a packet takes
    waiting  int32[channel of circle, 0 source | 1 destination] of a packet that holds it and waits for the next
    """
    n = len(edge_at)
    states = n * n_vls * (16 if len(path_sl) else 1)
    seen = np.full(states, -1, np.int32)  # last destination for which somebody left this switch on this lane
    end, steps = np.empty(states, np.int8), np.empty(states, np.int32)  # what became of them
    trail = np.empty(states, np.int32)
    place = np.full(len(far) * n_vls if len(circle) else 0, -1, np.int32)  # [channel] -> where in the circle
    for position in range(len(circle)):
        place[circle[position]] = position
    failed = (-1, -1, ARRIVED)
    for index in range(len(lid)):
        to = lid[index]
        for which in range(len(source)):
            pairs = weight[which] - (own[index] == which)
            if pairs == 0:
                continue
            sls = np.int64(1) << (path_sl[to, source[which]] if len(path_sl) else 0)
            if len(reply_sls):
                sls = reply_sls[at[index], which] & ~sls
            sl = -1
            while sls >> (sl + 1):
                sl += 1
                if not sls >> sl & 1:
                    continue
                here, in_port, before, walked, depth = np.int64(source[which]), np.int64(source_port[which]), -1, 0, 0
                while True:
                    port = np.int64(routes[to, here])
                    if port >= ports[here]:
                        finish = NO_ENTRY if port == NO_ROUTE else ASTRAY
                        break
                    vl = vl_of(sl2vl, first_pair, ports, here, in_port, port, sl)
                    if vl == DROP and port != 0:
                        finish = DROPPED
                        break
                    edge = np.int64(edge_at[here, port])
                    if edge < 0:
                        finish = ARRIVED if here == at[index] and port == out[index] else ASTRAY
                        used[vl] |= port != 0
                        break
                    if before >= 0:
                        bit = port * n_vls + vl
                        depends[before, bit >> 3] |= 1 << (bit & 7)
                        held = place[before] if len(circle) else -1
                        if held >= 0 and circle[(held + 1) % len(circle)] == edge * n_vls + vl and waiting[held, 0] < 0:
                            waiting[held, 0], waiting[held, 1] = which, index
                    state = (sl * n + here) * n_vls + vl
                    if seen[state] == index:
                        finish, depth = np.int64(end[state]), np.int64(steps[state])
                        break
                    seen[state] = index
                    end[state] = LOOP  # who comes here again before the end is known
                    used[vl] = 1
                    trail[walked] = state
                    walked += 1
                    before, here, in_port = edge * n_vls + vl, np.int64(far[edge]), np.int64(far_port[edge])
                for position in range(walked - 1, -1, -1):
                    depth += 1
                    end[trail[position]], steps[trail[position]] = finish, depth
                ends[finish] += pairs
                if finish == ARRIVED:
                    hops[depth] += pairs
                elif failed[0] < 0:
                    failed = (which, index, finish)
    return failed


@inlined
def next_waited_for(depends, edge_at, far, n_vls, channel, bit):
    """The first channel, from that bit on, that this one waits for, and the bit after it; -1 if there is none."""
    there = far[channel // n_vls]
    while bit < edge_at.shape[1] * n_vls:
        word = depends[channel, bit >> 3] >> (bit & 7)
        if word == 0:
            bit = (bit | 7) + 1
        elif word & 1:
            return np.int64(edge_at[there, bit // n_vls]) * n_vls + bit % n_vls, bit + 1
        else:
            bit += 1
    return np.int64(-1), bit


@kernel
def find_circle(depends, edge_at, far, n_vls):
    """The channels of one circle of dependencies, in order; empty if there is none. Depth first."""
    n = len(depends)
    unseen, is_open, done = 0, 1, 2
    state = np.zeros(n, np.int8)
    next_bit = np.zeros(n, np.int32)
    stack = np.empty(n, np.int32)
    for root in range(n):
        if state[root] != unseen:
            continue
        stack[0], state[root], top = root, is_open, 1
        while top:
            channel = np.int64(stack[top - 1])
            found, next_bit[channel] = next_waited_for(
                depends, edge_at, far, n_vls, channel, np.int64(next_bit[channel])
            )
            if found == -1:
                state[channel] = done
                top -= 1
            elif state[found] == is_open:
                begin = 0
                while stack[begin] != found:
                    begin += 1
                return stack[begin:top].copy()
            elif state[found] == unseen:
                state[found] = is_open
                stack[top] = found
                top += 1
    return stack[:0].copy()


@kernel
def shortest_circle(depends, edge_at, far, n_vls, circle):
    """A shortest one of the circles through any channel of this one. Breadth first from each."""
    seen = np.full(len(depends), -1, np.int32)
    came_from = np.empty(len(depends), np.int32)
    queue = np.empty(len(depends), np.int32)
    level = np.empty(len(depends), np.int32)
    best = circle
    for root in circle:
        queue[0], level[root], seen[root], head, tail = root, 1, root, 0, 1
        closed = False
        while head < tail and not closed and level[queue[head]] < len(best):
            channel = np.int64(queue[head])
            head += 1
            found, bit = next_waited_for(depends, edge_at, far, n_vls, channel, np.int64(0))
            while found >= 0:
                if found == root:
                    best = np.empty(level[channel], np.int32)
                    for position in range(len(best) - 1, -1, -1):
                        best[position] = channel
                        channel = np.int64(came_from[channel])
                    closed = True
                    break
                if seen[found] != root:
                    seen[found], came_from[found], level[found] = root, channel, level[channel] + 1
                    queue[tail] = found
                    tail += 1
                found, bit = next_waited_for(depends, edge_at, far, n_vls, channel, bit)
    return best
