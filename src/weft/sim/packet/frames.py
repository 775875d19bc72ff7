"""Record the packets that arrive at captured ports; `capture` makes frames of them."""

from __future__ import annotations

from weft.jit import handler


@handler
def capture(s, buffer_index, packet_index):
    """Record a packet that arrives, with cut-through its first bytes."""
    run = s.run[0]
    packet = s.packets[packet_index]
    frame = s.frames[run.frames]
    run.frames += 1
    frame.time_ps = run.now_ps
    frame.buffer = buffer_index
    frame.message, frame.psn, frame.dlid, frame.bytes = packet.message, packet.psn, packet.dlid, packet.bytes
    frame.carries, frame.sl, frame.marked = packet.carries, packet.sl, packet.marked
