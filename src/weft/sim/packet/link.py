"""A link: packets go out one after the other, credits or pause frames come back."""

from __future__ import annotations

from weft.jit import part
from weft.sim.packet.lanes import push, schedule
from weft.sim.packet.state import BLOCK_BYTES, NONE, PAUSED, Flow, Kind


@part
def blocks_bytes(size_bytes):
    """What a packet takes of a buffer: whole blocks."""
    return (size_bytes + (BLOCK_BYTES - 1)) & -BLOCK_BYTES


@part
def transmit(s, p, queue_index, packet_index):
    """Port p, which is free, sends a packet on the VL of this queue, which has the credits."""
    run = s.run[0]
    port = s.ports[p]
    packet = s.packets[packet_index]
    size_bytes = packet.bytes
    if run.flow == Flow.CREDITS:  # a pause gives or takes all at once
        s.queues[queue_index].credits -= blocks_bytes(size_bytes)
    port.sending = packet_index
    port.sending_from = packet.held_in
    port.sending_bytes = size_bytes
    port.busy = 1
    port.xmit_bytes += size_bytes
    port.xmit_packets += 1
    if port.starved:
        port.starved = 0
        port.wait_ps += run.now_ps - port.wait_since_ps
    packet.held_in = queue_index + (port.peer - p) * run.n_vls  # the same VL at the far end
    if port.cut_through:
        push(s, port.wire_lane, packet_index, 0)
    lane = s.serial_lane[port.rate, packet.length]
    if lane >= 0:
        push(s, lane, p, 0)
    else:
        schedule(s, run.now_ps + s.serial_ps[port.rate, packet.length], Kind.LINK_FREE, p, 0)


@part
def hold(s, queue_index, size_bytes):
    """A packet has come into the input buffer. Says whether it fitted."""
    run = s.run[0]
    queue = s.queues[queue_index]
    queue.held += blocks_bytes(size_bytes)
    if queue.held > queue.held_peak:
        queue.held_peak = queue.held
    if run.flow == Flow.PAUSE and queue.held > queue.xoff and queue.pausing == 0:
        queue.pausing = 1
        s.ports[queue.port].pauses += 1
        push(s, queue.credit_lane, queue.upstream, -1)
    if queue.held > queue.room:
        run.stop_a = queue_index
        return False
    return True


@part
def release(s, queue_index, size_bytes):
    """A packet has left the input buffer: its room is offered upstream."""
    run = s.run[0]
    queue = s.queues[queue_index]
    freed = blocks_bytes(size_bytes)
    queue.held -= freed
    if run.flow == Flow.CREDITS:
        push(s, queue.credit_lane, queue.upstream, freed)
    elif queue.pausing and queue.held <= queue.xoff >> 1:
        queue.pausing = 0
        push(s, queue.credit_lane, queue.upstream, -2)


@part
def on_credit(s, queue_index, freed):
    """Credits, or the word to pause (-1) or to go on (-2), have come from the far end. The port to try."""
    queue = s.queues[queue_index]
    if freed >= 0:
        queue.credits += freed
    elif freed == -1:
        queue.credits -= PAUSED
    else:
        queue.credits += PAUSED
    return queue.port if queue.head >= 0 or queue.ring >= 0 else NONE
