"""The event loop: take the next event, handle it, and let the affected port send."""

from __future__ import annotations

import math

from weft.jit import handler, lean_kernel, part, prefetch
from weft.jit.bits import lowest_bit
from weft.jit.references import by_reference
from weft.sim.layout.records import NONE, FlowControl, Selection
from weft.sim.packet.delay_lines import (
    contiguous_events,
    drop,
    first_key,
    head_key,
    line_of,
    push,
    schedule,
    second_key,
    set_head,
    take_first,
)
from weft.sim.packet.draws import RANDOM_BITS, draw_random
from weft.sim.packet.frames import capture
from weft.sim.packet.inputs import enter_input, read_next
from weft.sim.packet.link import ask_uet, hold, on_credit, release
from weft.sim.packet.multicast import on_copy_at_switch, on_copy_left
from weft.sim.packet.nic import new_packet, on_control, on_message_posted, on_message_ready, send_next, wake_qp
from weft.sim.packet.pacing import speed_up
from weft.sim.packet.receive import accept, on_delayed_ack, on_packet_at_host, release_message
from weft.sim.packet.reduction import on_summand_at_switch
from weft.sim.packet.reliability import RETRIES_EXCEEDED, SEND_PROBE, on_lost, on_timeout
from weft.sim.packet.state import (
    CAPTURED,
    DELAY_LINE_BITS,
    EMPTY,
    LOSSY,
    ONE_READ,
    PROBE,
    Carries,
    PacketEvent,
    QpState,
    Stop,
    UetAction,
)
from weft.sim.packet.switch import (
    DROPPED,
    NO_PORT,
    enqueue,
    on_packet_at_switch,
    out_queue,
)

BATCH_EVENTS = 24  # events of one line between two checks of the pools


@lean_kernel
def run_events(s, budget):
    """Handle about `budget` events and return the reason for stopping."""
    s = by_reference(s)
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
        if key == EMPTY and run.alive > 0 and run.groups == 1 and only_timers(s):
            return Stop.STUCK
        trouble = _take_from_agenda(s) if odd else _take_from_line(s, key)
        if trouble:
            return trouble
    return Stop.SLICE


@part
def _take_from_line(s, key):
    """Handle a few events of one line, until another line has an earlier one. Return 0, or the reason for stopping."""
    run = s.run[0]
    line_index = line_of(key)
    kind = s.lines[line_index].kind
    run.rival = second_key(s.tree, line_index)
    run.now_ps = key >> DELAY_LINE_BITS
    begin, contiguous_end = contiguous_events(s, line_index)
    end = min(contiguous_end, begin + BATCH_EVENTS)
    at = begin
    trouble = 0
    while True:
        _prefetch(s, kind, at, contiguous_end - 1)
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
    """Handle an event of a line. Return the port that may send."""
    if kind == PacketEvent.LINK_FREE:
        return _on_link_free(s, a, b)
    if kind == PacketEvent.CREDIT:
        return on_credit(s, a, b)
    if kind == PacketEvent.ARRIVAL:
        return _on_arrival(s, a, b)
    if kind == PacketEvent.READY:
        return on_message_ready(s, a)
    if kind == PacketEvent.CONTROL:
        return on_control(s, a)
    if kind == PacketEvent.LOST:
        on_lost(s, a)
    else:
        release_message(s, a, b)
    return NONE


@part
def _take_from_agenda(s):
    """Handle the first event of the agenda. Return 0, or the reason for stopping."""
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
def only_timers(s):
    """Return whether only timers of queue pairs remain: then packets that wait for buffer space wait forever."""
    if s.run[0].flow == FlowControl.DROP or s.run[0].flow == FlowControl.TRIM:
        return False
    for at in range(s.run[0].agenda):
        kind = s.agenda[at].kind
        if kind != PacketEvent.TIMEOUT and kind != PacketEvent.RATE:
            return False
    return True


@part
def _prefetch(s, kind, at, last):
    """Prefetch the memory that the next events of the same line need, since memory latency dominates.

    An arrival needs its packet and its buffer to find the entry of the forwarding table, and that entry to find the
    port: each
    is fetched two events after the other. Beyond the last known event the last one is fetched again.
    """
    if kind == PacketEvent.ARRIVAL:
        sixth, fourth, second = s.events[min(at + 6, last)], s.events[min(at + 4, last)], s.events[min(at + 2, last)]
        vl_bits = s.run[0].vl_bits
        prefetch(s.packets, sixth.a)
        prefetch(s.buffers, sixth.b >> vl_bits)
        prefetch(s.lft, (s.buffers[fourth.b >> vl_bits].owner, s.packets[fourth.a].dlid))
        buffer = s.buffers[second.b >> vl_bits]
        if buffer.owner >= 0:
            number = s.lft[buffer.owner, s.packets[second.a].dlid]
            if s.run[0].selection <= Selection.DETOUR:
                out = (second.b >> vl_bits) - buffer.number + number
                prefetch(s.ports, out)
                if vl_bits > 0:
                    prefetch(s.queues, out_queue(s, buffer.owner, buffer.number, number, out, s.packets[second.a].sl))
            else:
                prefetch(s.choice_first, s.first_choice[buffer.owner] + number)
        else:
            prefetch(s.messages, s.packets[second.a].message)
    elif kind == PacketEvent.LINK_FREE:
        vl_bits = s.run[0].vl_bits
        port = s.ports[s.events[min(at + 3, last)].a]
        prefetch(s.ports, s.events[min(at + 6, last)].a)
        prefetch(s.buffers, port.sending_from >> vl_bits)
        if vl_bits > 0:
            prefetch(s.queues, _likely_next(s, s.events[min(at + 3, last)].a))
            prefetch(s.packets, s.queues[_likely_next(s, s.events[min(at + 1, last)].a)].head)
        else:
            prefetch(s.packets, s.queues[s.events[min(at + 3, last)].a].head)
    elif kind == PacketEvent.CREDIT:
        prefetch(s.queues, s.events[min(at + 6, last)].a)
        if s.run[0].vl_bits > 0:
            prefetch(s.ports, s.events[min(at + 6, last)].a >> s.run[0].vl_bits)
            prefetch(s.packets, s.queues[s.events[min(at + 2, last)].a].head)


@part
def _likely_next(s, p):
    """Return the queue from which port p will send if its arbiter takes VLs in turn."""
    port = s.ports[p]
    ready = port.waiting & ~port.blocked
    now = s.arbitration_vl[port.arbitration, 0, port.low_at]
    later = (ready >> now) >> 1
    vl = lowest_bit(ready) if later == 0 else now + 1 + lowest_bit(later)
    return (p << s.run[0].vl_bits) + (vl & (s.run[0].n_vls - 1))


@part
def _on_link_free(s, p, packet_index):
    """Free port p after the last byte of a packet has left."""
    port = s.ports[p]
    port.busy = 0
    s.loads[p].bytes -= port.sending_bytes
    if port.cut_through == 0:
        push(s, port.wire_line, packet_index, s.packets[packet_index].held_in)
    if port.sending_from >= 0:
        release(s, port.sending_from, port.sending_bytes)
        if s.run[0].one_read:
            read_next(s, port.sending_from, p)
    elif port.sending_from < NONE:
        on_copy_left(s, port.sending_from)
    return p


@part
def _on_arrival(s, packet_index, queue_index):
    """Handle a packet, or with cut-through its head, that has arrived in an input buffer."""
    packet = s.packets[packet_index]
    if not hold(s, queue_index, packet.bytes):
        return -Stop.OVERFLOW
    p = queue_index >> s.run[0].vl_bits
    buffer = s.buffers[p]
    if buffer.extra:
        if buffer.extra & CAPTURED:
            capture(s, queue_index, packet_index)
        if buffer.extra & LOSSY:
            if s.plugs[p].down:
                return _on_cut_cable(s, p, packet_index)
            s.plugs[p].clean_bytes -= packet.bytes
            if s.plugs[p].retry_ps > 0:
                return _on_retrying_link(s, queue_index, packet_index)
            if s.plugs[p].clean_bytes < 0:
                return _on_bit_error(s, p, packet_index)
        if buffer.extra & ONE_READ and not enter_input(s, queue_index, packet_index):
            return NONE
    return _on_packet(s, packet_index, queue_index)


@part
def _on_packet(s, packet_index, queue_index):
    """Handle an intact packet in an input buffer."""
    p = queue_index >> s.run[0].vl_bits
    packet, buffer = s.packets[packet_index], s.buffers[p]
    if buffer.owner < 0:
        return on_packet_at_host(s, -1 - buffer.owner, packet_index)
    out = on_packet_at_switch(s, queue_index, packet_index)
    if out == NO_PORT and packet.carries == Carries.COPY:
        return on_copy_at_switch(s, queue_index, packet_index)
    if out == NO_PORT and packet.carries == Carries.SUMMAND:
        return on_summand_at_switch(s, queue_index, packet_index)
    if out == NO_PORT:
        s.run[0].stop_a = p
        s.run[0].stop_b = packet_index
        return -Stop.NO_ROUTE
    if out == DROPPED:
        release(s, queue_index, packet.bytes)
        on_lost(s, packet_index)
        return NONE
    return out


@handler
def _on_cut_cable(s, p, packet_index):
    """Lose a packet that would have arrived at port p over a cable that is cut now: its sender discards it."""
    packet = s.packets[packet_index]
    s.plugs[s.plugs[p].peer].dropped += 1
    if packet.carries == Carries.COPY:
        s.branches[packet.psn].corrupted += 1
    release(s, packet.held_in, packet.bytes)
    on_lost(s, packet_index)
    return NONE


@handler
def _on_retrying_link(s, queue_index, packet_index):
    """Take a packet from a link that sends packets with bit errors again (link-level retry): those behind it wait.

    A retry takes a round trip of the link. The packets that the sender had sent meanwhile arrive after it, in order and
    at the rate of the link.
    """
    p = queue_index >> s.run[0].vl_bits
    plug = s.plugs[p]
    due_ps = max(s.run[0].now_ps, plug.next_ps)
    if plug.clean_bytes < 0:
        plug.corrupted += 1
        plug.clean_bytes = _draw_clean_bytes(s, p)
        due_ps += plug.retry_ps
    plug.next_ps = due_ps + s.serial_ps[s.buffers[p].rate, s.packets[packet_index].length]
    schedule(s, due_ps, PacketEvent.REPLAYED, packet_index, queue_index)
    return NONE


@part
def _draw_clean_bytes(s, p):
    """Return the bytes until the next bit error at port p."""
    return int(-math.log((draw_random(s) + 1) / (1 << RANDOM_BITS)) * s.plugs[p].bytes_per_error)


@handler
def _on_bit_error(s, p, packet_index):
    """Drop a packet with a wrong checksum."""
    port = s.plugs[p]
    packet = s.packets[packet_index]
    port.corrupted += 1
    if packet.carries == Carries.COPY:
        s.branches[packet.psn].corrupted += 1
    port.clean_bytes = _draw_clean_bytes(s, p)
    release(s, packet.held_in, packet.bytes)
    on_lost(s, packet_index)
    return NONE


@handler
def _on_odd_event(s, kind, a, b):
    """Handle an event of the agenda. Return the port that may send."""
    run = s.run[0]
    p = NONE
    if kind == PacketEvent.LINK_FREE:
        p = _on_link_free(s, a, b)
    elif kind == PacketEvent.QP_READY:
        s.qps[a].state = QpState.IDLE
        p = wake_qp(s, a)
    elif kind == PacketEvent.PORT_READY:
        s.plugs[a].wakes = 0
        p = a
    elif kind == PacketEvent.READY:
        p = on_message_ready(s, a)
    elif kind == PacketEvent.POSTED:
        on_message_posted(s, a)
    elif kind == PacketEvent.TURN:
        enqueue(s, b, a)
        p = s.queues[b].port
    elif kind == PacketEvent.ACCEPT:
        p = accept(s, a)
    elif kind == PacketEvent.RATE:
        speed_up(s, a)
    elif kind == PacketEvent.DELAYED_ACK:
        on_delayed_ack(s, a)
    elif kind == PacketEvent.CONTROL:
        p = on_control(s, a)
    elif kind == PacketEvent.REPLAYED:
        p = _on_packet(s, a, b)
    else:
        if kind == PacketEvent.UET_PROBE:
            p = ask_uet(s, UetAction.PROBE, a)
        elif kind == PacketEvent.PULL:
            p = ask_uet(s, UetAction.PULL, a)
        elif run.uet != 0:
            p = ask_uet(s, UetAction.TIMEOUT, a)
        else:
            p = on_timeout(s, a)
        if p == RETRIES_EXCEEDED:
            run.stop_a = a
            return -Stop.RETRIES
        if p == SEND_PROBE:
            message_index = s.qps[a].oldest
            message = s.messages[message_index]
            packet_index = new_packet(
                s, message_index, message.first_psn + message.packets - 1, message.last, Carries.DATA
            )
            s.packets[packet_index].again = PROBE
            p = on_control(s, packet_index)
    return p
