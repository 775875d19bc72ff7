"""The event loop: go to the next moment, end and start messages, solve the rates that change.

All events of one moment make one change of rates, since the steps of a collective start and end together. A queue pair
whose next message follows immediately keeps its rate, and nothing is solved. With many flows under way, the changes of
a short time make one: `batch`.
"""

from __future__ import annotations

from weft.jit import handler, lean_kernel, part, prefetch
from weft.jit.references import by_reference
from weft.sim.flow.batch import are_many, estimate_rates, may_wait, share_afresh
from weft.sim.flow.ends import apply_rate, remove_end, set_end
from weft.sim.flow.idle import idle_ps, round_ps, wire_bytes
from weft.sim.flow.share import hold_by, link_up, list_nodes, release, solve, touch_links, unlink
from weft.sim.flow.state import Agenda, FlowEvent, Link, Stop
from weft.sim.layout.records import NONE
from weft.sim.packet.delay_lines import schedule, take_first

NEVER_PS = 1 << 60


@lean_kernel
def run_moments(s, budget):
    """Advance by at most `budget` moments and return the reason for stopping."""
    s = by_reference(s)
    run = s.run[0]
    for _ in range(budget):
        if run.left == 0:
            return Stop.DONE
        now_ps = _next_ps(s)
        if now_ps > run.until_ps:
            return Stop.DONE if now_ps == NEVER_PS else Stop.MOMENT
        run.now_ps = now_ps
        while run.ends > 0 and s.ends[0].time_ps == now_ps:
            _on_end(s, s.ends[0].flow)
        while run.next_ready < len(s.ready) and s.ready_ps[run.next_ready] == now_ps:
            run.next_ready += 1
            _prefetch_ready(s)
            _on_ready(s, s.ready[run.next_ready - 1])
        while run.agenda > 0 and s.agenda[0].time_ps == now_ps:
            kind, a, _b = take_first(Agenda(s.run, s.agenda))
            if kind == FlowEvent.DELIVERED:
                _on_delivered(s, a)
            elif kind == FlowEvent.READY:
                _on_ready(s, a)
            elif kind == FlowEvent.POSTED:
                _on_posted(s, a)
            else:
                s.flows[a].wakes = 0
                _start_next(s, a)
        if run.changed > 0:
            _settle_changes(s)
    return Stop.SLICE


@part
def _prefetch_ready(s):
    """Prefetch the messages that become ready next, and their flows: these are in the cache only while under way."""
    run = s.run[0]
    last = len(s.ready) - 1
    prefetch(s.messages, s.ready[min(run.next_ready + 8, last)])
    index = s.messages[s.ready[min(run.next_ready + 4, last)]].qp
    prefetch(s.flows, index)
    prefetch(s.qps, index)
    prefetch(s.node_first, index)
    index = s.messages[s.ready[min(run.next_ready + 2, last)]].qp
    prefetch(s.node_class, s.node_first[index])
    prefetch(s.node_class, s.node_first[index + 1] - 1)


@part
def _next_ps(s):
    run = s.run[0]
    time_ps = run.due_ps if run.changed > 0 else NEVER_PS
    if run.ends > 0:
        time_ps = min(time_ps, s.ends[0].time_ps)
    if run.next_ready < len(s.ready):
        time_ps = min(time_ps, s.ready_ps[run.next_ready])
    if run.agenda > 0:
        time_ps = min(time_ps, s.agenda[0].time_ps)
    return time_ps


# -- messages ---------------------------------------------------------------------------------------------------------


@handler
def _on_ready(s, index):
    """Queue a message whose work request has been read and whose first bytes are available."""
    message = s.messages[index]
    qp = s.qps[message.qp]
    message.ready_ps = s.run[0].now_ps
    message.next = NONE
    if qp.last >= 0:
        s.messages[qp.last].next = index
    qp.last = index
    if qp.unsent < 0:
        qp.unsent = index
    if qp.oldest < 0:
        qp.oldest = index
    _start_next(s, message.qp)


@handler
def _start_next(s, index):
    """Start the next message of a queue pair, now or as soon as allowed."""
    run = s.run[0]
    flow = s.flows[index]
    qp = s.qps[index]
    if flow.message >= 0 or qp.unsent < 0 or flow.wakes:
        return
    time_ps = qp.clock_ps
    full = 0 < qp.window <= flow.started  # the message that frees the slot has ended, so its acknowledgement has a time
    if full:
        time_ps = max(time_ps, s.messages[qp.oldest].acked_ps)
    if time_ps > run.now_ps:
        flow.wakes = 1
        schedule(Agenda(s.run, s.agenda), time_ps, FlowEvent.WAKE, index, 0)
        return
    if full:
        qp.oldest = s.messages[qp.oldest].next
    message = s.messages[qp.unsent]
    read_ps = qp.setup_ps + ((message.bytes * qp.ps_per_kib) >> 10)
    qp.clock_ps = max(qp.clock_ps, message.ready_ps) + max(qp.gap_ps, read_ps)
    flow.message = qp.unsent
    flow.left_bytes = wire_bytes(s, flow.message)
    flow.since_ps = run.now_ps
    flow.started += 1
    qp.unsent = message.next
    s.started[run.started] = index
    run.started += 1
    _note_change(s, index)


@part
def _on_end(s, index):
    """Set the arrival time of a message whose last byte has left, and start the next one."""
    run = s.run[0]
    flow = s.flows[index]
    remove_end(s, index)
    message = s.messages[flow.message]
    sent_bytes = wire_bytes(s, flow.message)
    arrival_ps = run.now_ps + idle_ps(s, flow.message) - round_ps(sent_bytes / flow.alone)
    message.finish_ps = arrival_ps + flow.receive_ps
    if s.qps[index].acked:
        message.acked_ps = arrival_ps + flow.ack_ps
    flow.sent_bytes += int(sent_bytes)
    flow.sent_packets += message.packets
    run.left -= 1
    if s.successor_first[flow.message + 1] > s.successor_first[flow.message]:
        schedule(Agenda(s.run, s.agenda), arrival_ps, FlowEvent.DELIVERED, flow.message, 0)
    flow.message = NONE
    _note_change(s, index)
    _start_next(s, index)


@part
def _on_delivered(s, index):
    """Release the messages that waited for a delivered one."""
    message = s.messages[index]
    for at in range(s.successor_first[index], s.successor_first[index + 1]):
        following = s.messages[s.successors[at]]
        following.waits_for -= 1
        following.free_ps = max(following.free_ps, message.finish_ps)
        if following.waits_for == 0:
            following.start_ps = max(following.start_ps, following.free_ps + following.delay_ps)
            schedule(Agenda(s.run, s.agenda), following.start_ps, FlowEvent.POSTED, s.successors[at], 0)


@part
def _on_posted(s, index):
    """Start a message behind all that its queue pair has been given so far."""
    message = s.messages[index]
    qp = s.qps[message.qp]
    qp.posted_ps = max(qp.posted_ps, s.run[0].now_ps + message.lead_ps)
    schedule(Agenda(s.run, s.agenda), qp.posted_ps, FlowEvent.READY, index, 0)


# -- rates ------------------------------------------------------------------------------------------------------------


@part
def _note_change(s, index):
    run = s.run[0]
    if s.flows[index].changed == 0:
        s.flows[index].changed = 1
        s.changed[run.changed] = index
        run.changed += 1


@part
def _settle_changes(s):
    """Compute the rates after all events of this moment, or put it off."""
    run = s.run[0]
    waited = run.waiting
    if not waited:
        run.due_ps = run.now_ps + run.batch_ps
    run.waiting = may_wait(s)
    if run.waiting:
        estimate_rates(s)
    elif waited and are_many(s):
        share_afresh(s)
    else:
        _share_again(s)


@part
def _share_again(s):
    """Compute the rates that change by the events since the last solution."""
    run = s.run[0]
    run.started = 0
    run.solution += 1
    run.chosen = run.touched = 0
    for i in range(run.changed):
        index = s.changed[i]
        flow = s.flows[index]
        if flow.message < 0 and flow.linked:
            unlink(s, index)
        elif flow.message >= 0 and not flow.linked:
            flow.left_bytes -= flow.rate * (run.now_ps - flow.since_ps)  # at an estimated rate, if it has begun
            flow.since_ps, flow.rate = run.now_ps, 0
            link_up(s, index)
        elif flow.message < 0:  # it started and ended meanwhile
            flow.changed = 0
        elif flow.message >= 0:
            flow.changed = 0
            set_end(s, index)
    run.slots = NONE
    if run.unlisted:
        _list_all(s)
    for i in range(run.changed):
        flow = s.flows[s.changed[i]]
        if flow.changed:
            flow.changed = 0
            if flow.message >= 0:
                release(s, s.changed[i])
            else:
                touch_links(s, s.changed[i])
    run.changed = 0
    if run.levels > 0:
        solve(s)
        _put_in_force(s)


@handler
def _list_all(s):
    """Put the flows under way into the lists of their links, which solutions from scratch do without."""
    run = s.run[0]
    run.unlisted = 0
    for i in range(run.ends):
        if s.flows[s.ends[i].flow].linked == Link.COUNTED:
            list_nodes(s, s.ends[i].flow)


@part
def _put_in_force(s):
    """Apply the new rates and move the ends of the flows."""
    run = s.run[0]
    for i in range(run.touched):
        link = s.classes[s.touched[i]]
        link.load = link.capacity - link.residual
    for i in range(run.chosen):
        flow = s.flows[s.chosen[i]]
        if flow.new_rate != flow.rate or flow.new_bottleneck != flow.bottleneck:
            hold_by(s, s.chosen[i], flow.new_bottleneck)
        if flow.new_rate != flow.rate:
            apply_rate(s, s.chosen[i])
