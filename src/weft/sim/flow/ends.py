"""The heap of the flows under way, by their ends."""

from __future__ import annotations

from weft.jit import handler, part
from weft.sim.flow.idle import round_ps
from weft.sim.layout.records import NONE


@part
def set_end(s, index):
    """Set when a flow ends at its current rate, and move it to its position in `ends`."""
    run = s.run[0]
    flow = s.flows[index]
    flow.end_ps = _end_ps(flow)
    if flow.place < 0:
        flow.place = run.ends
        run.ends += 1
    _sift(s.ends, s.flows, run.ends, index)


@part
def _end_ps(flow):
    """Return when a flow ends at its current rate."""
    return flow.since_ps + max(round_ps(max(flow.left_bytes, 0.0) / flow.rate), 1)


@part
def remove_end(s, index):
    """Remove a flow from `ends`."""
    run = s.run[0]
    at = s.flows[index].place
    s.flows[index].place = NONE
    run.ends -= 1
    if at < run.ends:
        moved = s.ends[run.ends].flow
        s.flows[moved].place = at
        _sift(s.ends, s.flows, run.ends, moved)


@handler
def _sift(ends, flows, n, index):
    """Put a flow into its position in the heap of ends, up or down from its old place."""
    end_ps = flows[index].end_ps
    at = flows[index].place
    while at > 0 and ends[(at - 1) >> 1].time_ps > end_ps:
        ends[at] = ends[(at - 1) >> 1]
        flows[ends[at].flow].place = at
        at = (at - 1) >> 1
    child = 2 * at + 1
    while child < n:
        if child + 1 < n and ends[child + 1].time_ps < ends[child].time_ps:
            child += 1
        if ends[child].time_ps >= end_ps:
            break
        ends[at] = ends[child]
        flows[ends[at].flow].place = at
        at = child
        child = 2 * at + 1
    ends[at].time_ps, ends[at].flow = end_ps, index
    flows[index].place = at


@part
def apply_rate(s, index):
    """Put the new rate of a flow in force."""
    _change_rate(s, index)
    set_end(s, index)


@part
def _change_rate(s, index):
    run = s.run[0]
    flow = s.flows[index]
    flow.left_bytes -= flow.rate * (run.now_ps - flow.since_ps)
    flow.since_ps = run.now_ps
    flow.rate = flow.new_rate


@part
def apply_late(s, index):
    """Put the new rate of a flow in force, and leave the heap to `order_ends`."""
    _change_rate(s, index)
    s.flows[index].end_ps = _end_ps(s.flows[index])


@handler
def order_ends(s):
    """Make a heap of the ends of all flows, which are in any order."""
    n = s.run[0].ends
    for root in range((n >> 1) - 1, -1, -1):
        time_ps, flow = s.ends[root].time_ps, s.ends[root].flow
        at, child = root, 2 * root + 1
        while child < n:
            if child + 1 < n and s.ends[child + 1].time_ps < s.ends[child].time_ps:
                child += 1
            if s.ends[child].time_ps >= time_ps:
                break
            s.ends[at].time_ps, s.ends[at].flow = s.ends[child].time_ps, s.ends[child].flow
            at, child = child, 2 * child + 1
        s.ends[at].time_ps, s.ends[at].flow = time_ps, flow
    for at in range(n):
        s.flows[s.ends[at].flow].place = at
