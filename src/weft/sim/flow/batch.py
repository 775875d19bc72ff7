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

import numpy as np

from weft.jit import handler, part, prefetch
from weft.sim.flow.ends import apply_late, order_ends, set_end
from weft.sim.flow.share import INFINITE, unlist_nodes
from weft.sim.flow.state import Link
from weft.sim.layout.records import NONE

LEAST_FLOWS = 256  # with fewer under way, every moment has its own solution
PART = 4  # more changes than this part of them do not wait
AHEAD = 8  # slots whose flows are prefetched
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
    run.solution += 1
    run.solutions += 1
    run.touched = 0
    _list_open(s)
    n_open, n_links = run.slots, run.touched
    for slot in range(n_open):
        s.chosen[slot] = slot
    while n_open > 0:
        n_links = _divide(s, n_open, n_links)
        n_open = _close(s, n_open)
    _put_all_in_force(s)
    order_ends(s)


@part
def _list_open(s):
    """Open all flows under way and their links. Flows of the last solution keep their order, new ones follow."""
    run = s.run[0]
    run.unlisted = 1
    if run.slots < 0:
        run.slots = s.open_first[0] = 0
        for i in range(run.ends):
            if s.flows[s.ends[i].flow].linked != Link.NONE:
                _append(s, s.ends[i].flow)
        for i in range(run.changed):
            index = s.changed[i]
            if s.flows[index].message < 0 and s.flows[index].linked != Link.NONE:
                for node in range(s.node_first[index], s.node_first[index + 1]):
                    _empty(s.classes[s.node_class[node]])
                _leave(s, index)
    n, run.slots = run.slots, 0
    at = 0
    for slot in range(n):
        index = s.open_flow[slot]
        prefetch(s.flows, s.open_flow[min(slot + AHEAD, n - 1)])
        begin, end = s.open_first[slot], s.open_first[slot + 1]
        if s.flows[index].message >= 0:
            s.open_flow[run.slots], s.open_node[run.slots] = index, s.open_node[slot]
            for entry in range(begin, end):
                s.open_link[at], s.open_share[at] = s.open_link[entry], s.open_share[entry]
                _open(s, at)
                at += 1
            run.slots += 1
            s.open_first[run.slots] = at
        else:
            for entry in range(begin, end):
                _empty(s.classes[s.open_link[entry]])
            _leave(s, index)
    for i in range(run.changed):
        flow = s.flows[s.changed[i]]
        flow.changed = 0
        if flow.message >= 0 and flow.linked == Link.NONE:
            flow.linked = Link.COUNTED
            _append(s, s.changed[i])
            for entry in range(s.open_first[run.slots - 1], s.open_first[run.slots]):
                _open(s, entry)
    run.changed = 0


@part
def _append(s, index):
    """Copy the links of a flow to the next slot."""
    run = s.run[0]
    at = s.open_first[run.slots]
    s.open_flow[run.slots], s.open_node[run.slots] = index, s.node_first[index]
    for node in range(s.node_first[index], s.node_first[index + 1]):
        s.open_link[at], s.open_share[at] = s.node_class[node], s.node_share[node]
        at += 1
    run.slots += 1
    s.open_first[run.slots] = at


@part
def _open(s, entry):
    """Open a flow at one of its links."""
    run = s.run[0]
    index = s.open_link[entry]
    portion = s.parts[index]
    if portion.solution != run.solution:
        portion.solution = run.solution
        portion.left, portion.weight, portion.open = s.classes[index].capacity, 0, 0
        s.touched[run.touched] = s.levels[run.touched] = index
        run.touched += 1
    portion.weight += s.open_share[entry]
    portion.open += 1


@part
def _leave(s, index):
    """Remove a flow that has ended from its links, whose sums are computed again."""
    flow = s.flows[index]
    if flow.linked == Link.LISTED:
        unlist_nodes(s, index)
    flow.linked, flow.bottleneck, flow.rate = Link.NONE, NONE, 0


@part
def _empty(link):
    """Set the sums of a link to those without flows."""
    link.load = link.held_share = link.held_load = 0.0
    link.flows = link.holds = 0


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
        slot = s.chosen[i]
        # Unsigned, like `open_link`: numba adds the length to negative indices, which is half of the work here.
        begin, end = np.uint64(s.open_first[slot]), np.uint64(s.open_first[slot + 1])
        rate, held = INFINITE, begin
        for entry in range(begin, end):
            level = s.part_rate[s.open_link[entry]]
            if level < rate:
                rate, held = level, entry
        s.open_rate[slot], s.open_held[slot] = rate, held
        for entry in range(begin, end):
            link = s.open_link[entry]
            s.part_least[link] = min(s.part_least[link], rate)
    return kept


@handler
def _close(s, n_open):
    """Close the flows of the links whose flows all take the link's own part. Return the number of open flows."""
    kept = 0
    least_part = 1 - s.run[0].tolerance
    for i in range(n_open):
        slot = s.chosen[i]
        rate = s.open_rate[slot]
        if s.part_least[s.open_link[s.open_held[slot]]] < rate * least_part:
            s.chosen[kept] = slot
            kept += 1
        else:
            for entry in range(s.open_first[slot], s.open_first[slot + 1]):
                portion = s.parts[s.open_link[entry]]
                portion.left -= rate * s.open_share[entry]
                portion.weight -= s.open_share[entry]
                portion.open -= 1
    return kept


@handler
def _put_all_in_force(s):
    """Write the rates and the loads of links as `share` has them; a rate that hardly changes stays."""
    run = s.run[0]
    for i in range(run.touched):
        _empty(s.classes[s.touched[i]])
    for slot in range(run.slots):
        index = s.open_flow[slot]
        prefetch(s.flows, s.open_flow[min(slot + AHEAD, run.slots - 1)])
        flow = s.flows[index]
        rate, held = s.open_rate[slot], s.open_held[slot]
        keeps = abs(rate - flow.rate) <= run.tolerance * flow.rate
        flow.new_rate = flow.rate if keeps else rate
        flow.bottleneck = s.open_node[slot] + held - s.open_first[slot]
        for entry in range(s.open_first[slot], s.open_first[slot + 1]):
            link = s.classes[s.open_link[entry]]
            link.load += flow.new_rate * s.open_share[entry]
            link.flows += 1
        link = s.classes[s.open_link[held]]
        link.level = rate
        link.holds += 1
        link.held_share += s.open_share[held]
        link.held_load += flow.new_rate * s.open_share[held]
        if not keeps:
            apply_late(s, index)
        s.ends[slot].time_ps, s.ends[slot].flow = flow.end_ps, index
