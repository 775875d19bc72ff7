"""Multicast: each switch copies a packet to all ports of its group.

The ports are known before the run: `trees` follows `weft.fabric.forwarding` and builds a tree of branches. The packet
that
came in stays behind and holds the input buffer; its copies have -2 - (its index) as theirs. When the last byte of the
last
copy has left, the buffer is freed.
"""

from __future__ import annotations

from weft.jit import handler
from weft.sim.layout.records import NONE
from weft.sim.packet.link import release
from weft.sim.packet.nic import free_packet, send_next
from weft.sim.packet.receive import count_copy
from weft.sim.packet.switch import forward

HELD_BY_PACKET = -2  # and less


@handler
def on_copy_at_switch(s, in_queue_index, packet_index):
    """Copy a packet to all its branches and let idle ports send. Return NONE: no port is left to try."""
    packet = s.packets[packet_index]
    branch = s.branches[packet.psn]
    count_copy(s, packet_index)
    packet.total = branch.end - branch.first
    if packet.total == 0:
        release(s, in_queue_index, packet.bytes)
        free_packet(s, packet_index)
    for branch_index in range(branch.first, branch.end):
        queue_index = s.branches[branch_index].queue
        out = s.queues[queue_index].port
        p = forward(s, in_queue_index, queue_index, out, _copy(s, packet_index, branch_index))
        if p >= 0 and s.ports[p].busy == 0:
            send_next(s, p)
    return NONE


@handler
def _copy(s, packet_index, branch_index):
    run = s.run[0]
    copy_index = run.free_packet
    run.free_packet = s.packets[copy_index].next
    run.free_packets -= 1
    run.alive += 1
    s.packets[copy_index] = s.packets[packet_index]
    copy = s.packets[copy_index]
    copy.psn = branch_index
    copy.held_in = HELD_BY_PACKET - packet_index
    copy.total = 0
    return copy_index


@handler
def on_copy_left(s, held_in):
    """Free the input buffer if the last byte of the last copy has left the switch."""
    packet_index = HELD_BY_PACKET - held_in
    packet = s.packets[packet_index]
    packet.total -= 1
    if packet.total == 0:
        release(s, packet.held_in, packet.bytes)
        free_packet(s, packet_index)
