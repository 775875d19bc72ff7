"""Max-min fair rates, solved again only where something changed.

A rate is max-min fair if it cannot grow without reducing one that is not larger (Bertsekas and Gallager, Data Networks,
6.5.2). The condition is local: every flow has a *bottleneck*, a full link on which no flow is faster. The solution
therefore
starts with the flows that begin and those whose bottleneck has lost or gained a flow. Their rates are filled together
while
all others keep theirs; then every flow that shares a link with them is tested, and those that fail are added, until
none
fails. Since every flow passed the test, the result is the max-min solution of the whole network.

Progressive filling: all open flows grow at one rate until a link is full; its flows are frozen and the others
continue. A
heap holds the rate at which each link would be full. Freezing flows elsewhere only raises that rate, so a link that
comes up
too early is put back.
"""

from __future__ import annotations

from weft.jit import lean_kernel, part
from weft.sim.layout.records import NONE

SLACK = 1e-9  # relative tolerance: closer rates and loads are equal
# rounds that add only flows that fail the test; after that, all flows that share a link with an open one
MAX_CAREFUL_ROUNDS = 40


@part
def link_up(s, flow):
    """Add a starting flow to the lists of its links."""
    s.flows[flow].linked = 1
    for node in range(s.node_first[flow], s.node_first[flow + 1]):
        link = s.classes[s.node_class[node]]
        s.node_prev[node] = NONE
        s.node_next[node] = link.head
        if link.head >= 0:
            s.node_prev[link.head] = node
        link.head = node
        link.flows += 1


@part
def unlink(s, flow):
    """Remove a flow that has ended from the lists of its links."""
    rate = s.flows[flow].rate
    hold_by(s, flow, NONE)
    s.flows[flow].linked = 0
    s.flows[flow].rate = 0
    for node in range(s.node_first[flow], s.node_first[flow + 1]):
        link = s.classes[s.node_class[node]]
        before, after = s.node_prev[node], s.node_next[node]
        if before >= 0:
            s.node_next[before] = after
        else:
            link.head = after
        if after >= 0:
            s.node_prev[after] = before
        link.flows -= 1
        link.load = link.load - rate * s.node_share[node] if link.flows > 0 else 0.0  # no rounding error remains


@part
def hold_by(s, flow, index):
    """Set the class that limits a flow; NONE: no class does."""
    before = s.flows[flow].bottleneck
    if before >= 0:
        s.classes[before].holds -= 1
    if index >= 0:
        s.classes[index].holds += 1
    s.flows[flow].bottleneck = index


@part
def choose(s, flow):
    """Open a flow's rate for this solution."""
    run = s.run[0]
    if s.flows[flow].chosen != run.solution:
        s.flows[flow].chosen = run.solution
        s.flows[flow].frozen = 0
        s.chosen[run.chosen] = flow
        run.chosen += 1


@part
def choose_held(s, flow):
    """Open the rates of all flows limited by a link of this flow."""
    for node in range(s.node_first[flow], s.node_first[flow + 1]):
        index = s.node_class[node]
        at = s.classes[index].head
        left = s.classes[index].holds  # most links limit no flow, and their lists are the long ones
        if s.classes[index].visited == s.run[0].solution:
            left = 0  # another flow of this moment has visited it
        s.classes[index].visited = s.run[0].solution
        while left > 0:
            if s.flows[s.node_flow[at]].bottleneck == index:
                choose(s, s.node_flow[at])
                left -= 1
            at = s.node_next[at]


@lean_kernel
def share_all(s):
    """Start all flows at once and set `new_rate` and `new_bottleneck`."""
    for flow in range(len(s.flows)):
        link_up(s, flow)
        choose(s, flow)
    solve(s)


@part
def solve(s):
    """Compute `new_rate` of the chosen flows and of those that must change with them."""
    s.run[0].solutions += 1
    for attempt in range(1 << 20):
        _open(s)
        _fill(s)
        if not _choose_more(s, attempt >= MAX_CAREFUL_ROUNDS):
            break


@part
def _open(s):
    """Compute the capacity for the chosen flows: that of their links less the rates of other flows."""
    run = s.run[0]
    for i in range(run.touched):
        s.classes[s.touched[i]].touched_in = 0
    run.touched = 0
    for i in range(run.chosen):
        index = s.chosen[i]
        flow = s.flows[index]
        flow.frozen = 0
        for node in range(s.node_first[index], s.node_first[index + 1]):
            link = s.classes[s.node_class[node]]
            if link.touched_in != run.solution:
                link.touched_in = run.solution
                link.residual = link.capacity - link.load
                link.weight = 0.0
                link.level = NONE
                link.open = link.chosen = 0
                s.touched[run.touched] = s.node_class[node]
                run.touched += 1
            link.residual += flow.rate * s.node_share[node]
            link.weight += s.node_share[node]
            link.open += 1
            link.chosen += 1
    run.levels = 0
    for i in range(run.touched):
        _push_level(s, s.touched[i])


@part
def _fill(s):
    """Freeze one link after the other, starting with the one that is full at the lowest rate."""
    run = s.run[0]
    left = run.chosen
    while left > 0:
        expected = s.levels[0].rate
        index = _pop_level(s)
        link = s.classes[index]
        if link.open > 0:
            rate = _level(link)
            if rate > expected and run.levels > 0 and rate > s.levels[0].rate:
                _push_level(s, index)
            else:
                left -= _freeze(s, index, rate)


@part
def _freeze(s, index, rate):
    """Freeze the open flows of a full link at their rate and return how many."""
    s.classes[index].level = rate
    frozen = 0
    at = s.classes[index].head
    while at >= 0:
        flow = s.flows[s.node_flow[at]]
        if flow.chosen == s.run[0].solution and flow.frozen == 0:
            flow.frozen = 1
            flow.new_rate = rate
            flow.new_bottleneck = index
            frozen += 1
            for node in range(s.node_first[s.node_flow[at]], s.node_first[s.node_flow[at] + 1]):
                other = s.classes[s.node_class[node]]
                other.residual -= rate * s.node_share[node]
                other.weight -= s.node_share[node]
                other.open -= 1
        at = s.node_next[at]
    return frozen


@part
def _choose_more(s, choose_all):
    """Choose the flows that share a link with a chosen one and have no bottleneck now. Return whether there are any."""
    run = s.run[0]
    before = run.chosen
    for i in range(run.touched):
        index = s.touched[i]
        link = s.classes[index]
        if link.flows > link.chosen:
            full = link.residual <= SLACK * link.capacity
            fastest = 0.0
            at = link.head
            while at >= 0:
                flow = s.flows[s.node_flow[at]]
                if flow.chosen == run.solution and flow.frozen:
                    fastest = max(fastest, flow.new_rate)
                at = s.node_next[at]
            at = link.head
            while at >= 0:
                flow = s.flows[s.node_flow[at]]
                if flow.chosen != run.solution:
                    unfair = link.level >= 0 and flow.rate > link.level * (1 + SLACK)
                    freed = flow.bottleneck == index and (not full or fastest > flow.rate * (1 + SLACK))
                    if unfair or freed or choose_all:
                        choose(s, s.node_flow[at])
                at = s.node_next[at]
    return run.chosen > before


@part
def _level(link):
    """Return the rate at which a link would be full."""
    return max(link.residual, 0.0) / link.weight


@part
def _push_level(s, index):
    run = s.run[0]
    rate = _level(s.classes[index])
    at = run.levels
    run.levels += 1
    while at > 0:
        above = (at - 1) >> 1
        if s.levels[above].rate <= rate:
            break
        s.levels[at] = s.levels[above]
        at = above
    s.levels[at].rate = rate
    s.levels[at].link = index


@part
def _pop_level(s):
    """Pop the link that is full at the lowest rate."""
    run = s.run[0]
    index = s.levels[0].link
    run.levels -= 1
    n = run.levels
    at = 0
    child = 1
    while child < n:
        if child + 1 < n and s.levels[child + 1].rate < s.levels[child].rate:
            child += 1
        if s.levels[child].rate >= s.levels[n].rate:
            break
        s.levels[at] = s.levels[child]
        at = child
        child = 2 * at + 1
    s.levels[at] = s.levels[n]
    return index
