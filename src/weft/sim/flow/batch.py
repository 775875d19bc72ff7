"""Many changes at once: the rates of all flows from scratch, in passes over compact lists.

With hundreds of flows under way, a message that starts or ends changes dozens of rates a little. Then changes wait for
others, at most as long as a packet takes on the fastest cable, since packets share a cable no finer; a message that
starts meanwhile has an estimated rate. One solution follows for all of them. Changes that are many among the flows
under way do not wait.

The solution is the same max-min fair one as in `share`. In each pass a link divides the capacity that is left among its
open flows, and a flow takes the least of its links' parts. A link whose flows all take its own part is their
bottleneck, and they are done. The flows at the smallest part of all always are, so each pass closes some; mostly it is
a third of them.
"""

from __future__ import annotations

from weft.jit import handler, part
from weft.sim.flow.ends import apply_rate, set_end
from weft.sim.flow.share import INFINITE, link_up, unlink

LEAST_FLOWS = 256  # with fewer under way, every moment has its own solution
PART = 4  # more changes than this part of them do not wait
FRESH_PART = 16  # fewer changes than this part of them are solved as in `share`


@part
def may_wait(s):
    """Return whether the changes so far may wait for others."""
    run = s.run[0]
    return run.ends >= LEAST_FLOWS and run.changed * PART < run.ends and run.now_ps < run.due_ps


@part
def are_many(s):
    """Return whether the changes are so many that a solution from scratch takes less time."""
    return s.run[0].changed * FRESH_PART >= s.run[0].ends


@handler
def estimate_rates(s):
    """Let the messages begin that have started since the last call, at an estimated rate."""
    run = s.run[0]
    for i in range(run.started):
        index = s.started[i]
        flow = s.flows[index]
        if flow.message >= 0 and flow.place < 0:
            if not flow.linked:
                flow.rate = _estimate(s, index)
            set_end(s, index)
    run.started = 0


@part
def _estimate(s, index):
    """Return the rate that a flow would have if the others did not share more than its own links."""
    rate = INFINITE
    for node in range(s.node_first[index], s.node_first[index + 1]):
        link = s.classes[s.node_class[node]]
        share = s.node_share[node]
        level = (link.capacity - link.load + link.held_load) / (link.held_share + share)
        rate = min(rate, max(level, link.capacity / ((link.flows + 1) * share)))
    return rate


@handler
def share_afresh(s):
    """Compute the rates of all flows under way, and put them in force."""
    run = s.run[0]
    estimate_rates(s)
    for i in range(run.changed):
        index = s.changed[i]
        flow = s.flows[index]
        flow.changed = 0
        if flow.message < 0 and flow.linked:
            unlink(s, index)
        elif flow.message >= 0 and not flow.linked:
            link_up(s, index)
    run.changed = 0
    run.solution += 1
    run.solutions += 1
    _list_open(s)
    n_open, n_links = run.ends, run.touched
    while n_open > 0:
        n_links = _divide(s, n_open, n_links)
        n_open = _close(s, n_open)
    _put_all_in_force(s)


@handler
def _list_open(s):
    """List all flows under way and their links in order, and open them."""
    run = s.run[0]
    run.touched = 0
    at = 0
    for i in range(run.ends):
        index = s.ends[i].flow
        s.chosen[i] = i
        s.open_first[i] = at
        for node in range(s.node_first[index], s.node_first[index + 1]):
            link = s.node_class[node]
            portion = s.parts[link]
            if portion.solution != run.solution:
                portion.solution = run.solution
                portion.left, portion.weight, portion.open = s.classes[link].capacity, 0, 0
                s.touched[run.touched] = s.levels[run.touched] = link
                run.touched += 1
            portion.weight += s.node_share[node]
            portion.open += 1
            s.open_link[at] = link
            s.open_share[at] = s.node_share[node]
            at += 1
    s.open_first[run.ends] = at


@handler
def _divide(s, n_open, n_links):
    """Compute the part of each open flow at every link, and the least one of each flow; at links, of all its flows.

    Return the number of links with open flows, which are the first ones in `levels`.
    """
    kept = 0
    for i in range(n_links):
        link = s.levels[i]
        portion = s.parts[link]
        if portion.open > 0:
            s.part_rate[link] = max(portion.left, 0.0) / portion.weight
            s.part_least[link] = INFINITE
            s.levels[kept] = link
            kept += 1
    for i in range(n_open):
        flow = s.chosen[i]
        rate = INFINITE
        for at in range(s.open_first[flow], s.open_first[flow + 1]):
            if s.part_rate[s.open_link[at]] < rate:
                rate = s.part_rate[s.open_link[at]]
                s.open_held[flow] = at
        s.open_rate[flow] = rate
        for at in range(s.open_first[flow], s.open_first[flow + 1]):
            s.part_least[s.open_link[at]] = min(s.part_least[s.open_link[at]], rate)
    return kept


@handler
def _close(s, n_open):
    """Close the flows of the links whose flows all take the link's own part. Return the number of open flows."""
    kept = 0
    least_part = 1 - s.run[0].tolerance
    for i in range(n_open):
        flow = s.chosen[i]
        rate = s.open_rate[flow]
        if s.part_least[s.open_link[s.open_held[flow]]] < rate * least_part:
            s.chosen[kept] = flow
            kept += 1
        else:
            for at in range(s.open_first[flow], s.open_first[flow + 1]):
                portion = s.parts[s.open_link[at]]
                portion.left -= rate * s.open_share[at]
                portion.weight -= s.open_share[at]
                portion.open -= 1
    return kept


@handler
def _put_all_in_force(s):
    """Write the rates and the loads of links as `share` has them; a rate that hardly changes stays."""
    run = s.run[0]
    for i in range(run.touched):
        link = s.classes[s.touched[i]]
        link.load = link.held_share = link.held_load = 0.0
        link.holds = 0
    for i in range(run.ends):
        s.chosen[i] = s.ends[i].flow
    for i in range(run.ends):
        index = s.chosen[i]
        flow = s.flows[index]
        rate = s.open_rate[i]
        flow.bottleneck = s.node_first[index] + s.open_held[i] - s.open_first[i]
        s.classes[s.node_class[flow.bottleneck]].level = rate
        keeps = abs(rate - flow.rate) <= run.tolerance * flow.rate
        flow.new_rate = flow.rate if keeps else rate
        for at in range(s.open_first[i], s.open_first[i + 1]):
            s.classes[s.open_link[at]].load += flow.new_rate * s.open_share[at]
        link = s.classes[s.node_class[flow.bottleneck]]
        link.holds += 1
        link.held_share += s.node_share[flow.bottleneck]
        link.held_load += flow.new_rate * s.node_share[flow.bottleneck]
        if not keeps:
            apply_rate(s, index)
