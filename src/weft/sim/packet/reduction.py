"""Reduction in switches (SHARP): a switch adds the packets of its children and sends one up; the root's goes back down.

Packet k of all members meets at each switch of the tree. A summand that is not the last frees its buffer at once; the
last one continues upwards, and at the root it becomes the result, which is copied down the tree as a multicast packet.
Adding takes no time beyond that of forwarding, and a switch has room for all sums that are under way.
"""

from __future__ import annotations

from weft.jit import handler
from weft.sim.layout.records import NONE
from weft.sim.packet.link import release
from weft.sim.packet.multicast import on_copy_at_switch
from weft.sim.packet.nic import free_packet, send_next
from weft.sim.packet.state import Carries
from weft.sim.packet.switch import forward


@handler
def on_summand_at_switch(s, in_queue_index, packet_index):
    """Add an arriving packet. Return NONE: no port is left to try."""
    packet = s.packets[packet_index]
    message = s.messages[packet.message]
    reduction = s.reductions[-2 - message.branch]
    vertex = s.vertices[s.vertex_of_switch[reduction.tree, s.buffers[in_queue_index >> s.run[0].vl_bits].owner]]
    at = reduction.sums + vertex.number * reduction.packets + packet.psn - message.first_psn
    s.sums[at] += 1
    if s.sums[at] < vertex.children:
        release(s, in_queue_index, packet.bytes)
        free_packet(s, packet_index)
        return NONE
    if vertex.queue < 0:
        packet.carries = Carries.COPY
        packet.psn = vertex.branch
        return on_copy_at_switch(s, in_queue_index, packet_index)
    out = s.queues[vertex.queue].port
    p = forward(s, in_queue_index, vertex.queue, out, packet_index)
    if p >= 0 and s.ports[p].busy == 0:
        send_next(s, p)
    return NONE
