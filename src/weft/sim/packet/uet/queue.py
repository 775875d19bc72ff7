"""A switch queue of Ultra Ethernet: control packets first, marks when packets leave, and trimming when it is full.

    head -> control packets and trimmed headers -> data -> tail

A full queue trims the arriving packet or its last one, each half of the time (as NDP, Handley et al., SIGCOMM 2017):
always the arriving one would hit the same flows again and again. Without trimming it drops that packet.
"""

from __future__ import annotations

from weft.jit import handler
from weft.sim.congestion import MILLION
from weft.sim.layout.records import NONE, FlowControl
from weft.sim.packet.draws import draw_below
from weft.sim.packet.link import blocks_bytes, release
from weft.sim.packet.nic import free_packet
from weft.sim.packet.state import Carries
from weft.sim.packet.switch import add_load, check_credits_again, note_emptied
from weft.sim.packet.uet.records import LAST_HOP


@handler
def enqueue_uet(s, queue_index, packet_index):
    """Add a packet to an output queue; trim or drop one if it is full."""
    run = s.run[0]
    queue = s.queues[queue_index]
    is_data = s.packets[packet_index].carries == Carries.DATA
    if run.flow == FlowControl.TRIM and is_data:
        limit = s.drop_above[queue_index]
        if queue.bytes - s.express[queue_index].bytes + s.packets[packet_index].bytes > limit:
            if queue.bytes > s.express[queue_index].bytes and draw_below(s, 2):
                _change_places(s, queue_index, packet_index)
            if not run.trims:
                _lose(s, queue_index, packet_index)
                return
            _trim(s, queue_index, packet_index)
            is_data = False
    if is_data:
        _append(s, queue_index, packet_index)
    elif run.flow == FlowControl.TRIM and s.express[queue_index].bytes > 2 * s.drop_above[queue_index]:
        _lose(s, queue_index, packet_index)
    else:
        _insert(s, queue_index, packet_index)


@handler
def _append(s, queue_index, packet_index):
    """Add a data packet at the end."""
    queue = s.queues[queue_index]
    s.packets[packet_index].next = NONE
    if queue.head < 0:
        queue.head = packet_index
        check_credits_again(s, queue_index)
    else:
        s.packets[queue.tail].next = packet_index
    queue.tail = packet_index
    add_load(s, queue_index, s.packets[packet_index].bytes)


@handler
def _insert(s, queue_index, packet_index):
    """Add a control packet behind the others of its kind, before all data."""
    queue, express, packet = s.queues[queue_index], s.express[queue_index], s.packets[packet_index]
    if express.bytes == 0:
        packet.next = queue.head
        queue.head = packet_index
        check_credits_again(s, queue_index)
        if packet.next < 0:
            queue.tail = packet_index
    else:
        packet.next = s.packets[express.tail].next
        s.packets[express.tail].next = packet_index
        if queue.tail == express.tail:
            queue.tail = packet_index
    express.tail = packet_index
    express.bytes += packet.bytes
    add_load(s, queue_index, packet.bytes)


@handler
def _change_places(s, queue_index, packet_index):
    """Let the arriving packet take the place of the last one in the queue, which has its index from now on."""
    queue = s.queues[queue_index]
    arriving, last = s.packets[packet_index], s.packets[queue.tail]
    size_bytes = arriving.bytes - last.bytes
    queue.bytes += size_bytes
    s.loads[queue.port].bytes += size_bytes
    arriving.message, last.message = last.message, arriving.message
    arriving.psn, last.psn = last.psn, arriving.psn
    arriving.dlid, last.dlid = last.dlid, arriving.dlid
    arriving.bytes, last.bytes = last.bytes, arriving.bytes
    arriving.held_in, last.held_in = last.held_in, arriving.held_in
    arriving.length, last.length = last.length, arriving.length
    arriving.total, last.total = last.total, arriving.total
    arriving.sl, last.sl = last.sl, arriving.sl
    arriving.marked, last.marked = last.marked, arriving.marked
    arriving.again, last.again = last.again, arriving.again
    own, other = s.notes[packet_index], s.notes[queue.tail]
    own.bits, other.bits = other.bits, own.bits
    own.pull_bytes, other.pull_bytes = other.pull_bytes, own.pull_bytes


@handler
def _trim(s, queue_index, packet_index):
    """Leave only the header of a packet."""
    packet, note = s.packets[packet_index], s.notes[packet_index]
    trimmed_bytes = s.size_bytes[s.run[0].ack_size]
    release(s, packet.held_in, blocks_bytes(packet.bytes) - blocks_bytes(trimmed_bytes))
    packet.length, packet.bytes = s.run[0].ack_size, trimmed_bytes
    port = s.queues[queue_index].port
    packet.carries = Carries.HEADER
    if s.buffers[s.ports[port].peer].owner < 0:
        note.bits |= LAST_HOP
    s.plugs[port].trimmed += 1


@handler
def _lose(s, queue_index, packet_index):
    packet = s.packets[packet_index]
    if packet.held_in >= 0:  # not from this host
        release(s, packet.held_in, packet.bytes)
    s.plugs[s.queues[queue_index].port].dropped += 1
    free_packet(s, packet_index)


@handler
def dequeue_uet(s, queue_index):
    """Remove and return the first packet. Mark data by the length of the queue behind it (RED)."""
    queue, express = s.queues[queue_index], s.express[queue_index]
    packet_index = queue.head
    packet = s.packets[packet_index]
    queue.head = packet.next
    queue.bytes -= packet.bytes
    note_emptied(s, queue_index)
    if express.bytes > 0:
        express.bytes -= packet.bytes
    elif packet.held_in >= 0 and packet.marked == 0:
        low_bytes, high_bytes = s.marks[queue.port, 0], s.marks[queue.port, 1]
        if queue.bytes > low_bytes and (
            queue.bytes > high_bytes
            or draw_below(s, MILLION) * (high_bytes - low_bytes) < MILLION * (queue.bytes - low_bytes)
        ):
            packet.marked = 1
            s.plugs[queue.port].marked += 1
    return packet_index
