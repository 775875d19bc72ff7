"""Walk every path of the tables: whether it arrives, its hops, its lanes, and its channel dependencies.

A packet that holds a buffer of one channel (a directed link and virtual lane) and requests one of the next makes the
second a dependency of the first. If dependencies form a cycle, its packets can wait for each other forever: a credit
loop (Dally and Seitz, "Deadlock-free message routing in multiprocessor interconnection networks", 1987).

For one destination and service level, the route of a packet depends on the switch, and its lane on the input port. So
all paths that leave a switch on the same lane continue as one, and are walked once.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.tables import NO_ROUTE, WIDE_NO_ROUTE
from weft.jit import inlined, kernel

ARRIVED, NO_ENTRY, ASTRAY, DROPPED, LOOP = 0, 1, 2, 3, 4  # results of a walk
DROP = 15  # an SL that maps to VL 15, the management lane, is discarded


@inlined
def vl_of(sl2vl, first_pair, ports, switch, in_port, out_port, sl):
    """Return the VL by which a packet leaves; 0 without a table."""
    if len(sl2vl) == 0:
        return 0
    return np.int64(sl2vl[first_pair[switch] + in_port * ports[switch] + out_port, sl])


@kernel
def walk_all(
    edge_at, far, far_port, ports, source, source_port, weight, lid, at, out, own,
    routes, path_sl, reply_sls, sl2vl, first_pair, n_vls, depends, ends, hops, used, cycle, waiting,
):  # fmt: skip
    """Walk from every source to every LID. Return source, destination and end of the first failure, or -1s.

    With `reply_sls` the packets are replies: each uses the SLs of the requests that it may answer.

    edge_at  int32[switch, port] -> edge, -1 if the port leads to no other switch
    weight   int64[source] -> number of its ports; own: int32[destination] -> the source that contains it
    routes   [lid, switch] -> output port; path_sl uint8, the same, or empty for SL 0
    reply_sls  uint16[switch, source] -> mask of the SLs of requests from the switch to this source, or empty
    depends  uint8[edge * n_vls, ...]: bit (port * n_vls + VL) is set if a channel waits for that one
    ends     int64[5]: pairs by result; hops int64[switch + 1]: pairs that arrive, by links between switches
    used     uint8[16]: VLs in use
    waiting  int32[channel of cycle, 0 source | 1 destination] of a packet that holds it and waits for the next
    """
    n = len(edge_at)
    states = n * n_vls * (16 if len(path_sl) else 1)
    visited = np.full(states, -1, np.int32)  # last destination for which a path left this switch on this lane
    end, steps = np.empty(states, np.int8), np.empty(states, np.int32)  # result of that path
    trail = np.empty(states, np.int32)
    place = np.full(len(far) * n_vls if len(cycle) else 0, -1, np.int32)  # [channel] -> position in the cycle
    for position in range(len(cycle)):
        place[cycle[position]] = position
    failed = (-1, -1, ARRIVED)
    no_route = NO_ROUTE if routes.itemsize == 1 else WIDE_NO_ROUTE
    for index in range(len(lid)):
        to = lid[index]
        for source_index in range(len(source)):
            pairs = weight[source_index] - (own[index] == source_index)
            if pairs == 0:
                continue
            sls = np.int64(1) << (path_sl[to, source[source_index]] if len(path_sl) else 0)
            if len(reply_sls):
                sls = reply_sls[at[index], source_index] & ~sls
            sl = -1
            while sls >> (sl + 1):
                sl += 1
                if not sls >> sl & 1:
                    continue
                switch, in_port, before, walked, depth = (
                    np.int64(source[source_index]),
                    np.int64(source_port[source_index]),
                    -1,
                    0,
                    0,
                )
                while True:
                    port = np.int64(routes[to, switch])
                    if port >= ports[switch]:
                        finish = NO_ENTRY if port == no_route else ASTRAY
                        break
                    vl = vl_of(sl2vl, first_pair, ports, switch, in_port, port, sl)
                    if vl == DROP and port != 0:
                        finish = DROPPED
                        break
                    edge = np.int64(edge_at[switch, port])
                    if edge < 0:
                        finish = ARRIVED if switch == at[index] and port == out[index] else ASTRAY
                        used[vl] |= port != 0
                        break
                    if before >= 0:
                        bit = port * n_vls + vl
                        depends[before, bit >> 3] |= 1 << (bit & 7)
                        held = place[before] if len(cycle) else -1
                        if held >= 0 and cycle[(held + 1) % len(cycle)] == edge * n_vls + vl and waiting[held, 0] < 0:
                            waiting[held, 0], waiting[held, 1] = source_index, index
                    state = (sl * n + switch) * n_vls + vl
                    if visited[state] == index:
                        finish, depth = np.int64(end[state]), np.int64(steps[state])
                        break
                    visited[state] = index
                    end[state] = LOOP  # returned if the path comes here again before its end is known
                    used[vl] = 1
                    trail[walked] = state
                    walked += 1
                    before, switch, in_port = edge * n_vls + vl, np.int64(far[edge]), np.int64(far_port[edge])
                for position in range(walked - 1, -1, -1):
                    depth += 1
                    end[trail[position]], steps[trail[position]] = finish, depth
                ends[finish] += pairs
                if finish == ARRIVED:
                    hops[depth] += pairs
                elif failed[0] < 0:
                    failed = (source_index, index, finish)
    return failed


@inlined
def next_waited_for(depends, edge_at, far, n_vls, channel, bit):
    """Return the first channel from that bit on that this one waits for, or -1, and the bit after it."""
    switch = far[channel // n_vls]
    while bit < edge_at.shape[1] * n_vls:
        word = depends[channel, bit >> 3] >> (bit & 7)
        if word == 0:
            bit = (bit | 7) + 1
        elif word & 1:
            return np.int64(edge_at[switch, bit // n_vls]) * n_vls + bit % n_vls, bit + 1
        else:
            bit += 1
    return np.int64(-1), bit


@kernel
def find_cycle(depends, edge_at, far, n_vls):
    """Return the channels of one cycle of dependencies in order, by depth-first search; empty if there is none."""
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
            following, next_bit[channel] = next_waited_for(
                depends, edge_at, far, n_vls, channel, np.int64(next_bit[channel])
            )
            if following == -1:
                state[channel] = done
                top -= 1
            elif state[following] == is_open:
                begin = 0
                while stack[begin] != following:
                    begin += 1
                return stack[begin:top].copy()
            elif state[following] == unseen:
                state[following] = is_open
                stack[top] = following
                top += 1
    return stack[:0].copy()


@kernel
def find_reached(depends, edge_at, far, n_vls, begin):
    """Return bool[channel]: those that packets in the channels `begin` may wait for in the end, and these."""
    reached = np.zeros(len(depends), np.bool_)
    stack = np.empty(len(depends), np.int32)
    top = 0
    for channel in begin:
        reached[channel] = True
        stack[top] = channel
        top += 1
    while top:
        top -= 1
        channel = np.int64(stack[top])
        following, bit = next_waited_for(depends, edge_at, far, n_vls, channel, np.int64(0))
        while following != -1:
            if not reached[following]:
                reached[following] = True
                stack[top] = following
                top += 1
            following, bit = next_waited_for(depends, edge_at, far, n_vls, channel, np.int64(bit))
    return reached


@kernel
def shortest_cycle(depends, edge_at, far, n_vls, cycle):
    """Return a shortest cycle through any channel of this one, by breadth-first search from each."""
    visited_from = np.full(len(depends), -1, np.int32)
    came_from = np.empty(len(depends), np.int32)
    queue = np.empty(len(depends), np.int32)
    level = np.empty(len(depends), np.int32)
    best = cycle
    for root in cycle:
        queue[0], level[root], visited_from[root], head, tail = root, 1, root, 0, 1
        closed = False
        while head < tail and not closed and level[queue[head]] < len(best):
            channel = np.int64(queue[head])
            head += 1
            following, bit = next_waited_for(depends, edge_at, far, n_vls, channel, np.int64(0))
            while following >= 0:
                if following == root:
                    best = np.empty(level[channel], np.int32)
                    for position in range(len(best) - 1, -1, -1):
                        best[position] = channel
                        channel = np.int64(came_from[channel])
                    closed = True
                    break
                if visited_from[following] != root:
                    visited_from[following], came_from[following], level[following] = root, channel, level[channel] + 1
                    queue[tail] = following
                    tail += 1
                following, bit = next_waited_for(depends, edge_at, far, n_vls, channel, bit)
    return best
