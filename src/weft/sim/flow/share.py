"""Max-min fair rates, solved again only where something changed.

A rate is max-min fair if it cannot grow without reducing one that is not larger (Bertsekas and Gallager, Data Networks,
6.5.2). Each full link has a *level*, and a flow has the lowest level among its links: that link, its bottleneck,
*holds* the flow. A level depends only on lower ones:

    level = (capacity - rates of flows held elsewhere, at lower levels) / flows that are not

So a change spreads only upwards, from link to link along flows whose rate changes, and the links that it reaches are
settled once each, from the lowest level to the highest, as Dijkstra's algorithm settles nodes (with changes: Ramalingam
and Reps, An Incremental Algorithm for a Generalization of the Shortest-Path Problem, 1996):

- A *touched* link computes a new level. It treats the flows that it holds as open, and all other flows as fixed at
  their rates.
- If the new level is above the old one, its flows are *released* when the old level is reached: they are open on all
  of their links, which are touched.
- If it is below the rate of a fixed flow, that flow is open on this link too: a *guess*, undone if the level rises.
- The link with the lowest level freezes its open flows. Those whose rate has changed touch their other links.

A flow is frozen at most once in a solution. Freezing flows elsewhere only raises a level, so a link that comes up too
early in the heap is put back; a release lowers levels, and moves the link in the heap.

With a tolerance, rates that would change by a smaller part keep their value, so the change spreads less far. The sums
on a link are those of the rates in force: differences do not add up, but cause a change once they exceed the tolerance.
"""

from __future__ import annotations

from weft.jit import handler, lean_kernel, part
from weft.jit.references import by_reference
from weft.sim.flow.state import Link
from weft.sim.layout.records import NONE

INFINITE = 1e300


@part
def link_up(s, flow):
    """Add a starting flow to its links."""
    list_nodes(s, flow)
    for node in range(s.node_first[flow], s.node_first[flow + 1]):
        s.classes[s.node_class[node]].flows += 1


@part
def list_nodes(s, flow):
    """Add a flow to the lists of its links."""
    s.flows[flow].linked = Link.LISTED
    for node in range(s.node_first[flow], s.node_first[flow + 1]):
        link = s.classes[s.node_class[node]]
        s.node_prev[node] = NONE
        s.node_next[node] = link.head
        if link.head >= 0:
            s.node_prev[link.head] = node
        link.head = node


@part
def unlist_nodes(s, flow):
    """Remove a flow from the lists of its links."""
    for node in range(s.node_first[flow], s.node_first[flow + 1]):
        before, after = s.node_prev[node], s.node_next[node]
        if before >= 0:
            s.node_next[before] = after
        else:
            s.classes[s.node_class[node]].head = after
        if after >= 0:
            s.node_prev[after] = before


@part
def unlink(s, flow):
    """Remove a flow that has ended from its links."""
    rate = s.flows[flow].rate
    hold_by(s, flow, NONE)
    if s.flows[flow].linked == Link.LISTED:
        unlist_nodes(s, flow)
    s.flows[flow].linked = Link.NONE
    s.flows[flow].rate = 0
    for node in range(s.node_first[flow], s.node_first[flow + 1]):
        link = s.classes[s.node_class[node]]
        link.flows -= 1
        link.load = link.load - rate * s.node_share[node] if link.flows > 0 else 0.0  # no rounding error remains


@part
def hold_by(s, index, node):
    """Set the node of the link that holds a flow; NONE: no link does. Call it before the rate changes."""
    flow = s.flows[index]
    if flow.bottleneck >= 0:
        before = s.classes[s.node_class[flow.bottleneck]]
        before.holds -= 1
        before.held_share -= s.node_share[flow.bottleneck]
        before.held_load -= flow.rate * s.node_share[flow.bottleneck]
        if before.holds == 0:  # no rounding error remains
            before.held_share = before.held_load = 0.0
    if node >= 0:
        link = s.classes[s.node_class[node]]
        link.holds += 1
        link.held_share += s.node_share[node]
        link.held_load += flow.new_rate * s.node_share[node]
    flow.bottleneck = node


@lean_kernel
def share_all(s):
    """Start all flows at once and set `new_rate` and `new_bottleneck`."""
    s = by_reference(s)
    for flow in range(len(s.flows)):
        link_up(s, flow)
    for flow in range(len(s.flows)):
        release(s, flow)
    solve(s)


@handler
def touch_links(s, flow):
    """Compute the levels of the links of a flow that has ended."""
    for node in range(s.node_first[flow], s.node_first[flow + 1]):
        _touch(s, s.node_class[node])


@part
def _touch(s, index):
    """Compute the level of a link, once in a solution: the flows that it holds are open, the others fixed."""
    run = s.run[0]
    link = s.classes[index]
    if link.touched_in != run.solution:
        link.touched_in = run.solution
        link.residual = link.capacity - link.load + link.held_load
        link.weight = link.held_share
        link.open = link.holds
        link.final = link.guesses = 0
        link.released = link.done = 0
        link.key = INFINITE
        link.checked = link.level if link.holds > 0 else INFINITE  # no flow is faster than the flows that a link holds
        s.touched[run.touched] = index
        run.touched += 1
        _push(s, index)


@handler
def release(s, index):
    """Open a flow on all of its links."""
    run = s.run[0]
    flow = s.flows[index]
    flow.chosen = run.solution
    flow.frozen = 0
    s.chosen[run.chosen] = index
    run.chosen += 1
    for node in range(s.node_first[index], s.node_first[index + 1]):
        _touch(s, s.node_class[node])
        link = s.classes[s.node_class[node]]
        if s.node_guess[node] == run.solution:
            s.node_guess[node] = 0
            link.guesses -= 1
        elif flow.bottleneck != node:
            link.residual += flow.rate * s.node_share[node]
            link.weight += s.node_share[node]
            link.open += 1
            _push(s, s.node_class[node])


@handler
def solve(s):
    """Compute `new_rate` and `new_bottleneck` of the released flows and of all others that change with them."""
    run = s.run[0]
    run.solutions += 1
    while run.levels > 0:
        index = _pop(s)
        link = s.classes[index]
        rate = link.key
        link.key = INFINITE
        if link.open > 0:
            level = _level(link)
            if _rises(s, link, level):
                _release_held(s, index)
                _push(s, index)
            elif level > rate and run.levels > 0 and level > s.classes[s.levels[0]].key:
                _push(s, index)
            elif _needs_guesses(link, level):
                _guess(s, index)
                _push(s, index)
            else:
                _freeze(s, index, level)


@part
def _level(link):
    """Return the rate at which a link would be full."""
    return max(link.residual, 0.0) / link.weight if link.open > 0 else INFINITE


@part
def _needs_guesses(link, level):
    """Return whether a fixed flow may be faster than the level, or a guess slower."""
    if level < link.checked:
        return link.flows > link.open + link.final
    return level > link.checked and link.guesses > 0


@part
def _rises(s, link, level):
    """Return whether a link has a higher level than before, and still holds its flows."""
    return link.released == 0 and link.holds > 0 and level > link.level * (1 + s.run[0].tolerance)


@handler
def _release_held(s, index):
    """Release the flows that a link holds, except those that another link now holds at the same rate."""
    run = s.run[0]
    s.classes[index].released = 1
    at = s.classes[index].head
    while at >= 0:
        flow = s.node_flow[at]
        if s.flows[flow].chosen != run.solution and s.flows[flow].bottleneck == at:
            held_at = NONE
            for node in range(s.node_first[flow], s.node_first[flow + 1]):
                other = s.classes[s.node_class[node]]
                if other.touched_in == run.solution and other.done:
                    held_at = node
            if held_at >= 0:
                _settle(s, flow, s.flows[flow].rate, held_at)
            else:
                release(s, flow)
        at = s.node_next[at]


@handler
def _guess(s, index):
    """Open the fixed flows that are faster than the level of a link, and no others."""
    run = s.run[0]
    link = s.classes[index]
    level = _level(link)
    at = link.head
    while at >= 0:
        flow = s.flows[s.node_flow[at]]
        fixed = flow.chosen != run.solution and flow.bottleneck != at and s.node_guess[at] != run.solution
        if fixed and flow.rate > level * (1 + run.tolerance):
            s.node_guess[at] = run.solution
            link.residual += flow.rate * s.node_share[at]
            link.weight += s.node_share[at]
            link.open += 1
            link.guesses += 1
        at = s.node_next[at]
    before = NONE * 1.0
    while link.guesses > 0 and before != _level(link):
        before = _level(link)
        at = link.head
        while at >= 0:
            flow = s.flows[s.node_flow[at]]
            guessed = flow.chosen != run.solution and s.node_guess[at] == run.solution
            if guessed and flow.rate <= before * (1 + run.tolerance):
                s.node_guess[at] = 0
                link.residual -= flow.rate * s.node_share[at]
                link.weight -= s.node_share[at]
                link.open -= 1
                link.guesses -= 1
            at = s.node_next[at]
    link.checked = _level(link)


@handler
def _freeze(s, index, level):
    """Freeze the open flows of a full link at its level."""
    run = s.run[0]
    link = s.classes[index]
    link.done = 1
    if link.released or link.holds == 0 or abs(level - link.level) > run.tolerance * link.level:
        link.level = level
    at = link.head
    while at >= 0:
        flow = s.flows[s.node_flow[at]]
        if flow.chosen == run.solution:
            is_open = flow.frozen == 0
        else:
            is_open = flow.bottleneck == at or s.node_guess[at] == run.solution
        if is_open:
            _settle(s, s.node_flow[at], level, at)
        at = s.node_next[at]


@handler
def _settle(s, index, rate, held_at):
    """Set the rate of an open flow for good, and take it from its links."""
    run = s.run[0]
    flow = s.flows[index]
    released = flow.chosen == run.solution
    if abs(rate - flow.rate) <= run.tolerance * flow.rate:
        rate = flow.rate
    if not released:
        flow.chosen = run.solution
        s.chosen[run.chosen] = index
        run.chosen += 1
    flow.frozen = 1
    flow.new_rate = rate
    flow.new_bottleneck = held_at
    for node in range(s.node_first[index], s.node_first[index + 1]):
        link = s.classes[s.node_class[node]]
        if link.touched_in != run.solution:
            if rate == flow.rate and flow.bottleneck != node:
                continue
            _touch(s, s.node_class[node])
        link.final += 1
        if released or flow.bottleneck == node or s.node_guess[node] == run.solution:
            if s.node_guess[node] == run.solution:
                s.node_guess[node] = 0
                link.guesses -= 1
            link.residual -= rate * s.node_share[node]
            link.weight -= s.node_share[node]
            link.open -= 1
        else:
            link.residual += (flow.rate - rate) * s.node_share[node]


@part
def _push(s, index):
    """Put a link into the heap by its level, unless it is there with a lower one.

    A link that holds flows comes up at its old level at the latest, to release them.
    """
    run = s.run[0]
    link = s.classes[index]
    if link.done or link.open == 0:
        return
    rate = _level(link)
    if _rises(s, link, rate):
        rate = link.level
    if rate >= link.key:
        return
    link.key = rate
    at = link.place
    if at < 0:
        at = run.levels
        run.levels += 1
    while at > 0 and s.classes[s.levels[(at - 1) >> 1]].key > rate:
        s.levels[at] = s.levels[(at - 1) >> 1]
        s.classes[s.levels[at]].place = at
        at = (at - 1) >> 1
    s.levels[at] = index
    link.place = at


@part
def _pop(s):
    """Pop the link with the lowest level."""
    run = s.run[0]
    index = s.levels[0]
    s.classes[index].place = NONE
    run.levels -= 1
    n = run.levels
    if n == 0:
        return index
    moved = s.levels[n]
    rate = s.classes[moved].key
    at = 0
    child = 1
    while child < n:
        if child + 1 < n and s.classes[s.levels[child + 1]].key < s.classes[s.levels[child]].key:
            child += 1
        if s.classes[s.levels[child]].key >= rate:
            break
        s.levels[at] = s.levels[child]
        s.classes[s.levels[at]].place = at
        at = child
        child = 2 * at + 1
    s.levels[at] = moved
    s.classes[moved].place = at
    return index
