"""Hand-offs of KV caches on the wire: weighted max-min fair rates over the links of their routes.

A hand-off of x bytes/s from one replica to another puts `share` · x on each link class of its route: the GPUs of both
replicas send over their own adapters at the same time. Rates are solved again whenever a hand-off starts or ends.

Other traffic (jobs of other tenants, exchanges of steps) are flows that never end: they have rows of their own in the
table of routes, and take their share while hand-offs are under way. A job may have 40,000 rows: each link has a list of
those that use it, and a solution ends when all hand-offs have a rate.
"""

from __future__ import annotations

from weft.inference.serving.clock import set_load
from weft.inference.serving.state import NEVER_S
from weft.jit import handler, part

_LEAST_BYTES = 1e-3  # less is rounding


@part
def _pair(s, index):
    """Return the row of the route of a request's hand-off in the present phase."""
    request, ranks = s.requests[index], s.ranks[s.run[0].phase]
    pair = request.source * len(s.replicas) + request.replica
    return s.route_row[s.run[0].phase] + pair * ranks + index % ranks


@part
def _first_other(s):
    """Return the row of the first flow of other traffic in the present phase."""
    phase = s.run[0].phase
    return s.route_row[phase] + len(s.replicas) * len(s.replicas) * s.ranks[phase]


@part
def can_send(s, source, target):
    """Return whether the fabric has a route between two replicas now."""
    phase = s.run[0].phase
    return s.route_cap[s.route_row[phase] + (source * len(s.replicas) + target) * s.ranks[phase]] > 0


@handler
def advance(s):
    """Count the bytes that hand-offs have sent since their rates were solved."""
    run = s.run[0]
    for i in range(run.flows):
        s.flow_left[i] = max(0.0, s.flow_left[i] - s.flow_rate[i] * (run.now_s - run.wire_s))
    run.wire_s = run.now_s


@handler
def add_flow(s, index, size_bytes):
    """Start to send bytes of a request's KV cache."""
    run = s.run[0]
    advance(s)
    at = run.flows
    s.flow_request[at], s.flow_left[at] = index, max(size_bytes, _LEAST_BYTES)
    s.requests[index].flow = at
    run.flows += 1
    solve(s)


@handler
def remove_flow(s, index):
    """Remove a request's hand-off; the caller solves the rates."""
    run = s.run[0]
    at = s.requests[index].flow
    run.flows -= 1
    s.flow_request[at], s.flow_left[at] = s.flow_request[run.flows], s.flow_left[run.flows]
    s.flow_rate[at] = s.flow_rate[run.flows]
    s.requests[s.flow_request[at]].flow = at
    s.requests[index].flow = -1


@handler
def solve(s):
    """Solve the rates of hand-offs by filling all flows equally until a link is full, and find the next end."""
    run = s.run[0]
    first, at, end = _first_other(s), s.other_first[run.phase], s.other_first[run.phase + 1]
    left, links = run.flows, _open_links(s, end - at)
    while left > 0:
        level = NEVER_S
        for i in range(run.flows):
            if not s.flow_fixed[i]:
                level = min(level, s.route_cap[_pair(s, s.flow_request[i])])
        while at < end and s.other_fixed[s.by_limit[at]]:
            at += 1
        if at < end:
            level = min(level, s.route_cap[first + s.by_limit[at]])
        links = _keep_open(s, links)
        for k in range(links):
            level = min(level, s.level[s.open_link[k]])
        if level == NEVER_S:
            break
        most = level * (1 + 1e-12)
        for i in range(run.flows):
            if not s.flow_fixed[i] and s.route_cap[_pair(s, s.flow_request[i])] <= most:
                _fix(s, i, level)
                left -= 1
        while at < end and s.route_cap[first + s.by_limit[at]] <= most:
            _fix_other(s, first, s.by_limit[at], level)
            at += 1
        for k in range(links):
            link = s.open_link[k]
            if s.level[link] <= most:
                for j in range(s.link_first[link], s.link_first[link + 1]):
                    _fix_other(s, first, s.link_other[j], level)
        for i in range(run.flows):
            if not s.flow_fixed[i] and _lowest(s, i) <= most:
                _fix(s, i, level)
                left -= 1
    run.wire_end_s = NEVER_S
    for i in range(run.flows):
        if s.flow_rate[i] > 0:
            run.wire_end_s = min(run.wire_end_s, run.now_s + s.flow_left[i] / s.flow_rate[i])
    if s.exchange_row[run.phase] >= 0:
        _load_exchanges(s)


@handler
def _load_exchanges(s):
    """Set the load of hand-offs on the exchanges of each replica, by the link that slows them most.

    There they get what hand-offs leave, or their fair share if that is more.
    """
    phase = s.run[0].phase
    sent_byte_s, weight = s.residual, s.weight
    sent_byte_s[:] = 0
    weight[:] = 0
    for i in range(s.run[0].flows):
        row = _pair(s, s.flow_request[i])
        for j in range(s.route_first[row], s.route_first[row + 1]):
            sent_byte_s[s.route_class[j]] += s.flow_rate[i] * s.route_share[j]
            weight[s.route_class[j]] += s.route_share[j]
    for replica in range(len(s.replicas)):
        load, row = 0.0, s.exchange_row[phase] + replica
        for j in range(s.exchange_first[row], s.exchange_first[row + 1]):
            link = s.exchange_class[j]
            if weight[link] > 0:
                alone_byte_s, least = s.exchange_byte_s[j], s.exchange_least[phase]
                if least == 0:
                    least = s.exchange_weight[j] / (s.exchange_weight[j] + weight[link])
                byte_s = max(alone_byte_s - sent_byte_s[link], alone_byte_s * least)
                load = max(load, alone_byte_s / (s.exchange_slack[j] * byte_s) - 1)
        set_load(s, replica, load)


@part
def _open_links(s, others):
    """Set up the links of hand-offs under way, and return their number.

    Links without a hand-off never fill up: others send no more than without hand-offs.
    """
    s.open_flows[:] = 0
    s.other_fixed[:others] = 0
    links = 0
    for i in range(s.run[0].flows):
        s.flow_fixed[i], s.flow_rate[i] = 0, 0.0
        row = _pair(s, s.flow_request[i])
        for j in range(s.route_first[row], s.route_first[row + 1]):
            link = s.route_class[j]
            if not s.open_flows[link]:
                s.open_flows[link] = s.link_first[link + 1] - s.link_first[link]
                s.residual[link], s.weight[link] = s.capacity[link], s.other_weight[link]
                s.open_link[links] = link
                links += 1
            s.open_flows[link] += 1
            s.weight[link] += s.route_share[j]
    return links


@part
def _keep_open(s, links):
    """Set the rate at which each link is full, and return the number of links with a flow that has no rate yet."""
    kept = 0
    for k in range(links):
        link = s.open_link[k]
        if s.open_flows[link]:
            s.level[link] = max(s.residual[link], 0.0) / s.weight[link]
            s.open_link[kept] = link
            kept += 1
    return kept


@part
def _lowest(s, i):
    """Return the rate at which the first link of a hand-off is full."""
    row, lowest = _pair(s, s.flow_request[i]), NEVER_S
    for j in range(s.route_first[row], s.route_first[row + 1]):
        lowest = min(lowest, s.level[s.route_class[j]])
    return lowest


@part
def _fix(s, i, level):
    """Give a hand-off its rate."""
    s.flow_fixed[i], s.flow_rate[i] = 1, level
    _take(s, _pair(s, s.flow_request[i]), level)


@part
def _fix_other(s, first, other, level):
    """Give a flow of other traffic its rate, if it has none."""
    if not s.other_fixed[other]:
        s.other_fixed[other] = 1
        _take(s, first + other, level)


@part
def _take(s, row, level):
    """Take a rate from the links of a flow."""
    for j in range(s.route_first[row], s.route_first[row + 1]):
        link = s.route_class[j]
        if s.open_flows[link]:
            s.open_flows[link] -= 1
            s.residual[link] -= level * s.route_share[j]
            s.weight[link] -= s.route_share[j]
