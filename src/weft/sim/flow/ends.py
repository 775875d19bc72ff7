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
    flow.end_ps = flow.since_ps + max(round_ps(max(flow.left_bytes, 0.0) / flow.rate), 1)
    if flow.place < 0:
        flow.place = run.ends
        run.ends += 1
    _sift(s.ends, s.flows, run.ends, index)


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
    run = s.run[0]
    flow = s.flows[index]
    flow.left_bytes -= flow.rate * (run.now_ps - flow.since_ps)
    flow.since_ps = run.now_ps
    flow.rate = flow.new_rate
    set_end(s, index)
