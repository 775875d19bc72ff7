"""The loop: take the next event, do what it says, let the port that it concerns send."""

from __future__ import annotations

import math

from weft.jit import handler, lean_kernel, part, prefetch
from weft.sim.layout.records import NONE, Flow, Selection
from weft.sim.packet.delay_lines import (
    drop,
    first_key,
    head_key,
    in_one_piece,
    line_of,
    push,
    second_key,
    set_head,
    take_first,
)
from weft.sim.packet.link import hold, on_credit, release
from weft.sim.packet.multicast import on_copy_at_switch, on_copy_left
from weft.sim.packet.nic import new_packet, on_control, on_message_posted, on_message_ready, send_next, wake_qp
from weft.sim.packet.pacing import speed_up
from weft.sim.packet.receive import accept, on_packet_at_host
from weft.sim.packet.reliability import ASK, ASKS, GIVES_UP, on_lost, on_timeout
from weft.sim.packet.state import DELAY_LINE_BITS, EMPTY, Carries, Kind, QpState, Stop
from weft.sim.packet.switch import (
    DROPPED,
    NOWHERE,
    RANDOM_BITS,
    draw_random,
    enqueue,
    on_packet_at_switch,
    out_queue,
)

IN_A_ROW = 24  # events of one line before the pools are looked at again


@lean_kernel
def run_events(s, budget):
    """Handle events until about `budget` of them are done; says why it came back."""
    run = s.run[0]
    end = run.events + budget
    while run.events < end:
        if run.left == 0:
            return Stop.DONE
        if run.free_packets < run.room or run.free_chunks < run.room or len(s.agenda) - run.agenda < run.agenda_room:
            return Stop.ROOM
        key = first_key(s)
        time_ps = key >> DELAY_LINE_BITS
        odd = run.agenda > 0 and s.agenda[0].time_ps < time_ps
        if odd:
            time_ps = s.agenda[0].time_ps
        elif key == EMPTY:
            return Stop.STUCK if run.alive > 0 else Stop.DONE
        if time_ps > run.until_ps:
            return Stop.MOMENT
        if key == EMPTY and run.alive > 0 and _only_timers(s):
            return Stop.STUCK
        trouble = _take_from_agenda(s) if odd else _take_from_line(s, key)
        if trouble:
            return trouble
    return Stop.SLICE


@part
def _take_from_line(s, key):
    """Handle the events of one line, up to a few, until another line has an earlier one. 0, or why to stop."""
    run = s.run[0]
    line_index = line_of(key)
    kind = s.lines[line_index].kind
    run.rival = second_key(s.tree, line_index)
    run.now_ps = key >> DELAY_LINE_BITS
    begin, known = in_one_piece(s, line_index)
    end = min(known, begin + IN_A_ROW)
    at = begin
    trouble = 0
    while True:
        _look_ahead(s, kind, at, known - 1)
        p = _on_event(s, kind, s.events[at].a, s.events[at].b)
        if p < NONE:
            trouble = -p
        elif p >= 0 and s.ports[p].busy == 0:
            send_next(s, p)
        at += 1
        if at == end or trouble or run.left == 0:
            break
        time_ps = s.events[at].time_ps
        if (time_ps << DELAY_LINE_BITS) | line_index > run.rival:
            break
        if time_ps > run.now_ps:
            if time_ps > run.until_ps or (run.agenda > 0 and s.agenda[0].time_ps < time_ps):
                break
            run.now_ps = time_ps
    run.events += at - begin
    drop(s, line_index, at)
    set_head(s.tree, line_index, head_key(s, line_index))
    return trouble


@part
def _on_event(s, kind, a, b):
    """An event of a line. The port to try."""
    if kind == Kind.LINK_FREE:
        return _on_link_free(s, a, b)
    if kind == Kind.CREDIT:
        return on_credit(s, a, b)
    if kind == Kind.ARRIVAL:
        return _on_arrival(s, a, b)
    if kind == Kind.READY:
        return on_message_ready(s, a)
    return on_control(s, a)


@part
def _take_from_agenda(s):
    """Handle the first event of the agenda. 0, or why to stop."""
    s.run[0].now_ps = s.agenda[0].time_ps
    s.run[0].events += 1
    kind, a, b = take_first(s)
    p = _on_odd_event(s, kind, a, b)
    if p < NONE:
        return -p
    if p >= 0 and s.ports[p].busy == 0:
        send_next(s, p)
    return 0


@handler
def _only_timers(s):
    """Is all that will happen the clocks of queue pairs? Then packets that wait for room wait for ever."""
    if s.run[0].flow == Flow.DROP:
        return False
    for at in range(s.run[0].agenda):
        kind = s.agenda[at].kind
        if kind != Kind.TIMEOUT and kind != Kind.RATE:
            return False
    return True


@part
def _look_ahead(s, kind, at, last):
    """Fetch what the next events of the same line will touch: memory is slower than all the rest.

    An arrival needs its packet and its buffer to find the entry of the forwarding table, and that to find the port: one
    after the other is fetched, two events apart. Behind the last known event the last is fetched again.
    """
    if kind == Kind.ARRIVAL:
        sixth, fourth, second = s.events[min(at + 6, last)], s.events[min(at + 4, last)], s.events[min(at + 2, last)]
        prefetch(s.packets, sixth.a)
        prefetch(s.buffers, sixth.b)
        prefetch(s.lft, (s.buffers[fourth.b].owner, s.packets[fourth.a].dlid))
        buffer = s.buffers[second.b]
        if buffer.owner >= 0:
            found = s.lft[buffer.owner, s.packets[second.a].dlid]
            if s.run[0].selection == Selection.TABLE:
                prefetch(s.ports, buffer.first + found)
                if s.run[0].n_vls > 1:
                    prefetch(s.queues, out_queue(s, second.b, found, s.packets[second.a].sl))
            else:
                prefetch(s.choice_first, s.first_choice[buffer.owner] + found)
        else:
            prefetch(s.messages, s.packets[second.a].message)
    elif kind == Kind.LINK_FREE:
        p = s.events[min(at + 2, last)].a
        prefetch(s.ports, s.events[min(at + 4, last)].a)
        prefetch(s.buffers, s.ports[p].sending_from)
        if s.run[0].n_vls == 1:  # else it is not known which queue
            prefetch(s.packets, s.queues[p].head)
    elif kind == Kind.CREDIT:
        prefetch(s.queues, s.events[min(at + 4, last)].a)


@part
def _on_link_free(s, p, packet_index):
    """The last byte of a packet has left port p."""
    port = s.ports[p]
    port.busy = 0
    s.loads[p].bytes -= port.sending_bytes
    if port.cut_through == 0:
        push(s, port.wire_line, packet_index, s.packets[packet_index].held_in)
    if port.sending_from >= 0:
        release(s, port.sending_from, port.sending_bytes)
    elif port.sending_from < NONE:
        on_copy_left(s, port.sending_from)
    return p


@part
def _on_arrival(s, packet_index, queue_index):
    """A packet, or its head where the switch does not wait for the rest, is in an input buffer."""
    packet = s.packets[packet_index]
    if not hold(s, queue_index, packet.bytes):
        return -Stop.OVERFLOW
    buffer = s.buffers[queue_index]
    if buffer.errs:
        p = s.queues[queue_index].port
        s.plugs[p].clean_bytes -= packet.bytes
        if s.plugs[p].clean_bytes < 0:
            return _on_bit_error(s, p, packet_index)
    if buffer.owner < 0:
        return on_packet_at_host(s, -1 - buffer.owner, packet_index)
    found = on_packet_at_switch(s, queue_index, packet_index)
    if found == NOWHERE and packet.carries == Carries.COPY:
        return on_copy_at_switch(s, queue_index, packet_index)
    if found == NOWHERE:
        s.run[0].stop_a = s.queues[queue_index].port
        s.run[0].stop_b = packet_index
        return -Stop.NO_ROUTE
    if found == DROPPED:
        release(s, queue_index, packet.bytes)
        on_lost(s, packet_index)
        return NONE
    return found


@handler
def _on_bit_error(s, p, packet_index):
    """The checksum of a packet is wrong: the port drops it."""
    port = s.plugs[p]
    packet = s.packets[packet_index]
    port.corrupted += 1
    if packet.carries == Carries.COPY:
        s.branches[packet.psn].corrupted += 1
    port.clean_bytes = int(-math.log((draw_random(s) + 1) / (1 << RANDOM_BITS)) * port.bytes_per_error)
    release(s, packet.held_in, packet.bytes)
    on_lost(s, packet_index)
    return NONE


@handler
def _on_odd_event(s, kind, a, b):
    """An event of the agenda. The port to try."""
    run = s.run[0]
    p = NONE
    if kind == Kind.LINK_FREE:
        p = _on_link_free(s, a, b)
    elif kind == Kind.QP_READY:
        s.qps[a].state = QpState.IDLE
        p = wake_qp(s, a)
    elif kind == Kind.PORT_READY:
        s.plugs[a].wakes = 0
        p = a
    elif kind == Kind.READY:
        p = on_message_ready(s, a)
    elif kind == Kind.POSTED:
        on_message_posted(s, a)
    elif kind == Kind.TURN:
        enqueue(s, b, a)
        p = s.queues[b].port
    elif kind == Kind.ACCEPT:
        p = accept(s, a)
    elif kind == Kind.RATE:
        speed_up(s, a)
    else:
        p = on_timeout(s, a)
        if p == GIVES_UP:
            run.stop_a = a
            return -Stop.RETRIES
        if p == ASK:
            message_index = s.qps[a].oldest
            message = s.messages[message_index]
            packet_index = new_packet(
                s, message_index, message.first_psn + message.packets - 1, message.last, Carries.DATA
            )
            s.packets[packet_index].again = ASKS
            p = on_control(s, packet_index)
    return p
