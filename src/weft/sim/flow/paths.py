"""The links of a flow, and the share of the flow on each.

With the forwarding table or ECMP a flow has one path. Adaptive routing and spraying spread it: each port of a group
forwards an equal part of the flow at its switch, so a flow over 32 spines is 1/32 on each. ECMP uses the hash of the
packet
engine, so both take the same path with the same seed.
"""

from __future__ import annotations

from weft.fabric.kernels.forwarding import MOST_HOPS
from weft.fabric.tables import NO_ROUTE, WIDE_NO_ROUTE
from weft.jit import lean_kernel, part
from weft.sim.layout.records import NONE, Selection
from weft.sim.packet.switch import hash_flow

LOST = -1  # returned instead of a number of links: there is no route


@part
def _choices(n, switch, lid, hashed):
    """Return the index of the first candidate port (NONE: use the forwarding table) and the number of candidates."""
    if n.selection == Selection.TABLE:
        return NONE, 1
    group = n.group[switch, lid]
    if group < 0:
        return NONE, 1
    begin = n.group_first[group]
    ports = n.group_first[group + 1] - begin
    if n.selection == Selection.BY_FLOW:
        return begin + hash_flow(hashed, switch) % ports, 1
    return begin, ports


@part
def _port(n, switch, lid, at):
    """Return the port at an index in a group; NONE if it has no route or no peer."""
    number = n.lft[switch, lid] if at < 0 else n.group_ports[at]
    if number == (NO_ROUTE if n.lft.itemsize == 1 else WIDE_NO_ROUTE):
        return NONE
    port = n.first[switch] + number
    return port if n.peer[port] >= 0 else NONE


@part
def _add(n, count, link, share):
    """Add a share to a link, and list the link once."""
    if n.share[link] == 0:
        n.links[count] = link
        count += 1
    n.share[link] += share
    return count


@part
def spread(n, src, dst, lid, hashed):
    """List the links between two ports in `links` and their parts of the flow in `share`; return the count, or LOST.

    `mass` holds the part of the flow at each switch after so many hops. The caller resets `share` to 0.
    """
    count = _add(n, 0, src, 1.0)
    waiting = 0
    if n.peer[src] != dst:
        n.front[0, 0] = n.owner[n.peer[src]]
        n.mass[0, n.front[0, 0]] = 1.0
        waiting = 1
    for hop in range(MOST_HOPS):
        now, after = hop & 1, 1 - (hop & 1)
        onward = 0
        for i in range(waiting):
            switch = n.front[now, i]
            at, ports = _choices(n, switch, lid, hashed)
            each = n.mass[now, switch] / ports
            n.mass[now, switch] = 0
            for j in range(ports):
                port = _port(n, switch, lid, at + j)
                if port < 0:
                    return LOST
                count = _add(n, count, port, each)
                come = n.peer[port]
                if come != dst:
                    to = n.owner[come]
                    if to < 0:
                        return LOST
                    if n.mass[after, to] == 0:
                        n.front[after, onward] = to
                        onward += 1
                    n.mass[after, to] += each
        waiting = onward
        if waiting == 0:
            return count
    return LOST


@part
def _links(n, flow):
    """List all links of a flow: those of its path, and those that model memories and processors."""
    count = spread(n, n.src[flow], n.dst[flow], n.dlid[flow], n.hashed[flow])
    if count >= 0:
        for i in range(n.extra.shape[1]):
            if n.extra[flow, i] >= 0:
                count = _add(n, count, n.extra[flow, i], 1.0)
    return count


@part
def _clear(n, count):
    for i in range(count):
        n.share[n.links[i]] = 0


@lean_kernel
def sign_links(n, salt, signs):
    """Give each link a sum that only links with the same flows and shares have. Return a flow without a route, or NONE.

    Every link adds in the order of flows, so equal links get equal floats.
    """
    for flow in range(len(n.src)):
        count = _links(n, flow)
        if count < 0:
            return flow
        for i in range(count):
            link = n.links[i]
            signs[link, 0] += salt[flow, 0] * n.share[link]
            signs[link, 1] += salt[flow, 1] * n.share[link]
        _clear(n, count)
    return NONE


@lean_kernel
def list_nodes(n, class_of, last_flow, node_first, node_class, node_share, fill):
    """List the classes of each flow, each once, with its share.

    Without `fill`, only the index where each flow begins.
    """
    at = 0
    for flow in range(len(n.src)):
        node_first[flow] = at
        count = _links(n, flow)
        for i in range(count):
            link = n.links[i]
            link_class = class_of[link]
            if last_flow[link_class] != flow:
                last_flow[link_class] = flow
                if fill:
                    node_class[at] = link_class
                    node_share[at] = n.share[link]
                at += 1
        _clear(n, count)
    node_first[len(n.src)] = at


@lean_kernel
def list_hops(n, src, dst, lid, hop_first, hop_port, fill):
    """List the ports of one path of each flow; with several paths, the first port of each group."""
    at = 0
    for flow in range(len(src)):
        hop_first[flow] = at
        port = src[flow]
        for _ in range(MOST_HOPS):
            if fill:
                hop_port[at] = port
            at += 1
            come = n.peer[port]
            if come == dst[flow]:
                break
            switch = n.owner[come]
            begin, _ports = _choices(n, switch, lid[flow], n.hashed[flow])
            port = _port(n, switch, lid[flow], begin)
    hop_first[len(src)] = at


@lean_kernel
def add_use(n, src, dst, lid, sent_bytes, sent_packets, xmit_bytes, xmit_packets):
    """Count the bytes and packets of each flow at every port of its path."""
    for flow in range(len(src)):
        if sent_packets[flow] > 0:
            count = spread(n, src[flow], dst[flow], lid[flow], n.hashed[flow])
            for i in range(count):
                port = n.links[i]
                xmit_bytes[port] += sent_bytes[flow] * n.share[port]
                xmit_packets[port] += sent_packets[flow] * n.share[port]
            _clear(n, count)
