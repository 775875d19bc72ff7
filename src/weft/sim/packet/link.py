"""A link: packets leave one after the other, credits or pause frames come back."""

from __future__ import annotations

import numpy as np

from weft.jit import call_kernel, handler, part
from weft.sim.layout.records import BLOCK_BYTES, NONE, FlowControl
from weft.sim.packet.delay_lines import push, schedule
from weft.sim.packet.state import MOST_HOPS, PAUSED, UET_ACTIONS, Carries, PacketEvent


@part
def ask_uet(s, action, index):
    """Let the rules of Ultra Ethernet handle something: `weft.sim.packet.uet.rules`. They are a kernel of their own."""
    return call_kernel(s.run[0].uet, s, np.int64(index) * UET_ACTIONS + action)


@part
def blocks_bytes(size_bytes):
    """Return the buffer space of a packet, in whole blocks."""
    return (size_bytes + (BLOCK_BYTES - 1)) & -BLOCK_BYTES


@part
def transmit(s, p, queue_index, packet_index):
    """Send a packet from the idle port p on the VL of a queue that has credits."""
    run = s.run[0]
    port = s.ports[p]
    packet = s.packets[packet_index]
    size_bytes = packet.bytes
    if run.flow == FlowControl.CREDITS:  # a pause frame changes all credits at once
        s.queues[queue_index].credits -= blocks_bytes(size_bytes)
    if run.traced and packet.held_in >= 0:
        _record_hop(s, p, packet_index)
    port.sending_from = packet.held_in
    port.sending_bytes = size_bytes
    port.busy = 1
    port.xmit_bytes += size_bytes
    port.xmit_packets += 1
    port.blocked &= ~(1 << (queue_index - (p << run.vl_bits)))
    if port.starved:
        port.starved = 0
        s.plugs[p].wait_ps += run.now_ps - s.plugs[p].wait_since_ps
    far_queue = queue_index + ((port.peer - p) << run.vl_bits)  # the same VL at the far end
    packet.held_in = far_queue
    if port.cut_through:
        push(s, port.wire_line, packet_index, far_queue)
    line = s.serial_line[port.rate, packet.length]
    if line >= 0:
        push(s, line, p, packet_index)
    else:
        schedule(s, run.now_ps + s.serial_ps[port.rate, packet.length], PacketEvent.LINK_FREE, p, packet_index)


@handler
def _record_hop(s, p, packet_index):
    """Add the telemetry of a switch port to a data packet that it begins to send."""
    packet = s.packets[packet_index]
    trace = s.traces[packet_index]
    if packet.carries != Carries.DATA or trace.hops == MOST_HOPS:
        return
    port = s.ports[p]
    hop = s.hops[packet_index, trace.hops]
    hop.queue_bytes = s.loads[p].bytes - packet.bytes
    hop.sent_bytes = port.xmit_bytes
    hop.rate_gbit_s = packet.bytes * 8_000 / s.serial_ps[port.rate, packet.length]
    hop.time_ps = s.run[0].now_ps
    hop.port = p
    trace.hops += 1


@part
def hold(s, buffer_index, size_bytes):
    """Add an arriving packet to the input buffer. Return whether it fitted."""
    run = s.run[0]
    p, vl = split(s, buffer_index)
    buffer = s.buffers[p]
    held = s.held[p, vl] + blocks_bytes(size_bytes)
    s.held[p, vl] = held
    if held > buffer.held_peak:
        buffer.held_peak = held
    if run.flow == FlowControl.PAUSE and held > s.pause_above[buffer_index] and (buffer.pausing >> vl) & 1 == 0:
        buffer.pausing |= 1 << vl
        s.plugs[p].pauses += 1
        push(s, buffer.credit_line, (buffer.peer << run.vl_bits) + vl, -1)
    if held > buffer.room:
        run.stop_a = buffer_index
        return False
    return True


@part
def release(s, buffer_index, size_bytes):
    """Free the buffer space of a packet that has left, and return credits upstream."""
    run = s.run[0]
    p, vl = split(s, buffer_index)
    buffer = s.buffers[p]
    freed = blocks_bytes(size_bytes)
    s.held[p, vl] -= freed
    upstream = (buffer.peer << run.vl_bits) + vl
    if run.flow == FlowControl.CREDITS:
        push(s, buffer.credit_line, upstream, freed)
    elif (buffer.pausing >> vl) & 1 and s.held[p, vl] <= s.pause_above[buffer_index] >> 1:
        buffer.pausing &= ~(1 << vl)
        push(s, buffer.credit_line, upstream, -2)


@part
def split(s, queue_index):
    """Return the port and the VL of a queue or an input buffer."""
    run = s.run[0]
    return queue_index >> run.vl_bits, queue_index & (run.n_vls - 1)


@part
def next_bytes(s, queue_index):
    """Return the buffer space that the next packet of this queue needs; 0 if there is none."""
    queue = s.queues[queue_index]
    if queue.head >= 0:
        return blocks_bytes(s.packets[queue.head].bytes)
    if queue.ring >= 0:
        if s.run[0].uet != 0:  # any packet may be next
            return blocks_bytes(s.size_bytes[-1])
        message = s.messages[s.qps[s.qps[queue.ring].next].unsent]
        if message.sent == message.packets - 1:
            return blocks_bytes(s.size_bytes[message.last])
        if message.sent == 0:
            return blocks_bytes(s.size_bytes[message.first])
        return blocks_bytes(s.size_bytes[message.full])
    return 0


@part
def on_credit(s, queue_index, freed):
    """Add credits, pause (-1) or resume (-2) from the far end. Return the port if it waits for them."""
    queue = s.queues[queue_index]
    if freed >= 0:
        queue.credits += freed
    elif freed == -1:
        queue.credits -= PAUSED
    else:
        queue.credits += PAUSED
    port = s.ports[queue.port]
    bit = 1 << (queue_index - (queue.port << s.run[0].vl_bits))
    if port.blocked & bit:
        if next_bytes(s, queue_index) <= queue.credits:
            port.blocked &= ~bit
        else:
            s.stuck_ps[queue_index] = s.run[0].now_ps
    return queue.port if port.starved else NONE
