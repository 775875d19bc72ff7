"""Hand-offs of KV caches on the wire: weighted max-min fair rates over the links of their routes.

A hand-off of x bytes/s from one replica to another puts `share` · x on each link class of its route: the GPUs of both
replicas send over their own adapters at the same time. Rates are solved again whenever a hand-off starts or ends.

Other traffic (jobs of other tenants, exchanges of steps) are flows that never end: they come after the hand-offs in the
list of flows, have rows of their own in the table of routes, and take their share while hand-offs are under way.
"""

from __future__ import annotations

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
def _row(s, i):
    """Return the row of the route of a flow: a hand-off, or one of the others."""
    flows = s.run[0].flows
    if i < flows:
        return _pair(s, s.flow_request[i])
    n, phase = len(s.replicas), s.run[0].phase
    return s.route_row[phase] + n * n * s.ranks[phase] + i - flows


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
    """Solve the rates of all flows by filling all equally until a link is full, and find the next end."""
    run = s.run[0]
    total = run.flows + s.others[run.phase] if run.flows else 0
    fixed = _open_classes(s, total)
    while fixed < total:
        level = NEVER_S
        for i in range(total):
            if not s.flow_fixed[i]:
                level = min(level, _limit(s, i))
        if level == NEVER_S:
            break
        for i in range(total):
            if not s.flow_fixed[i] and _limit(s, i) <= level * (1 + 1e-12):
                s.flow_fixed[i] = 2
        for i in range(total):
            if s.flow_fixed[i] == 2:
                _fix(s, i, level)
                fixed += 1
    run.wire_end_s = NEVER_S
    for i in range(run.flows):
        if s.flow_rate[i] > 0:
            run.wire_end_s = min(run.wire_end_s, run.now_s + s.flow_left[i] / s.flow_rate[i])


@part
def _open_classes(s, total):
    """Set up the links of hand-offs under way, and return the number of other flows that use none of them.

    Links without a hand-off never fill up: others send no more than without hand-offs.
    """
    flows = s.run[0].flows
    for i in range(total):
        row = _row(s, i)
        s.flow_fixed[i], s.flow_rate[i] = 0, 0.0
        for j in range(s.route_first[row], s.route_first[row + 1]):
            s.is_open[s.route_class[j]] = 0
    for i in range(flows):
        row = _row(s, i)
        for j in range(s.route_first[row], s.route_first[row + 1]):
            link = s.route_class[j]
            s.is_open[link], s.residual[link], s.weight[link] = 1, s.capacity[link], 0.0
    left_out = 0
    for i in range(total):
        row, meets = _row(s, i), i < flows
        for j in range(s.route_first[row], s.route_first[row + 1]):
            link = s.route_class[j]
            if s.is_open[link]:
                meets = True
                s.weight[link] += s.route_share[j]
        if not meets:
            s.flow_fixed[i] = 1
            left_out += 1
    return left_out


@part
def _limit(s, i):
    """Return the rate at which the first link of a flow is full, or its own limit."""
    row = _row(s, i)
    limit = s.route_cap[row]
    for j in range(s.route_first[row], s.route_first[row + 1]):
        link = s.route_class[j]
        if not s.is_open[link]:
            continue
        limit = min(limit, max(s.residual[link], 0.0) / s.weight[link])
    return limit


@part
def _fix(s, i, level):
    """Give a flow its rate and take it from its links."""
    row = _row(s, i)
    s.flow_fixed[i], s.flow_rate[i] = 1, level
    for j in range(s.route_first[row], s.route_first[row + 1]):
        link = s.route_class[j]
        if not s.is_open[link]:
            continue
        s.residual[link] -= level * s.route_share[j]
        s.weight[link] -= s.route_share[j]
