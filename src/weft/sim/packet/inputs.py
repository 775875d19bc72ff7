"""Inputs with one read port: a packet leaves the buffer of a VL only when the one before it has left.

Such a switch is input-queued: a packet whose output is busy blocks those behind it, whose outputs may be idle (Karol,
Hluchyj and Morgan, "Input versus output queueing on a space-division packet switch", 1987). The packets behind the
first wait here and choose their output when they become first.
"""

from __future__ import annotations

from weft.jit import handler
from weft.sim.layout.records import NONE
from weft.sim.packet.nic import send_next
from weft.sim.packet.switch import on_packet_at_switch


@handler
def enter_input(s, buffer_index, packet_index):
    """Return whether an arriving packet is the first of its buffer; else queue it."""
    entry = s.inputs[buffer_index]
    if entry.taken == 0:
        entry.taken = 1
        return True
    s.packets[packet_index].next = NONE
    if entry.head < 0:
        entry.head = packet_index
    else:
        s.packets[entry.tail].next = packet_index
    entry.tail = packet_index
    return False


@handler
def read_next(s, buffer_index, p):
    """Read the next packet after one has left by port p; another idle port may send it at once."""
    entry = s.inputs[buffer_index]
    packet_index = entry.head
    if packet_index < 0:
        entry.taken = 0
        return
    entry.head = s.packets[packet_index].next
    out = on_packet_at_switch(s, buffer_index, packet_index)
    if out >= 0 and out != p and s.ports[out].busy == 0:
        send_next(s, out)
