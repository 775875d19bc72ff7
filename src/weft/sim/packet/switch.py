"""A switch: choice of port and VL, and arbitration.

Packets wait in output queues by VL in the order of arrival, while the input buffer holds their bytes. With equal
buffers at all
inputs that order is fair: each input gets a share of a full port in proportion to its buffer.
"""

from __future__ import annotations

import numpy as np

from weft.jit import ask, handler, part
from weft.jit.bits import lowest_bit
from weft.sim.congestion import MILLION
from weft.sim.layout.records import NONE, FlowControl, Selection
from weft.sim.packet.delay_lines import schedule
from weft.sim.packet.detours import begin_next_part
from weft.sim.packet.draws import draw_below
from weft.sim.packet.link import ask_uet, blocks_bytes, next_bytes, transmit
from weft.sim.packet.policies.adaptive import choose as adaptive
from weft.sim.packet.policies.ecmp import choose as ecmp
from weft.sim.packet.policies.spray import choose as spray
from weft.sim.packet.state import Carries, PacketEvent, UetAction

NO_PORT, DROPPED = -2, -3  # returned instead of a port
# Policies compiled into this kernel, since every packet calls them; `run.policy` is an index here, or an address.
OWN_POLICIES = (None, adaptive, ecmp, spray)
_ADAPTIVE, _ECMP, _SPRAY = 1, 2, 3
ENTROPY_STEP = 1_000_003  # between the hashed numbers of two entropies of one flow


@part
def pick_port(s, switch, first, packet_index):
    """Pick the port by the forwarding table, or from the group of ports to the same destination."""
    packet = s.packets[packet_index]
    entry = np.int32(s.lft[switch, packet.dlid])
    if s.run[0].selection <= Selection.DETOUR:
        return entry
    choice = s.first_choice[switch] + entry
    begin = s.choice_first[choice]
    n = s.choice_first[choice + 1] - begin
    if n == 1:
        return s.choice_ports[begin]
    return _pick_of_group(s, switch, first, begin, n, packet_index)


@part
def _pick_of_group(s, switch, first, begin, n, packet_index):
    run = s.run[0]
    if run.selection == Selection.BY_FLOW:
        flow = np.int64(s.qps[s.messages[s.packets[packet_index].message].qp].flow)
        if run.uet != 0:
            flow += np.int64(s.packets[packet_index].total) * ENTROPY_STEP
        number = hash_flow(flow, switch)
    else:
        number = draw_below(s, n)
    loads, ports = s.loads[first:], s.choice_ports[begin : begin + n]
    if run.policy == _ADAPTIVE:
        return ports[adaptive(loads, ports, number)]
    if run.policy == _ECMP:
        return ports[ecmp(loads, ports, number)]
    if run.policy == _SPRAY:
        return ports[spray(loads, ports, number)]
    return ports[_call_policy(s, loads, ports, number)]


@handler
def _call_policy(s, loads, ports, number):
    """Call a plugin's policy."""
    return ask(s.run[0].policy, loads, ports, number)


@part
def hash_flow(flow, switch):
    mixed = (np.int64(flow) * 31 + switch + 1) * 48_271 % 2_147_483_647
    mixed = (mixed ^ (mixed >> 13)) * 69_621 % 2_147_483_647
    return mixed ^ (mixed >> 11)


@part
def enqueue(s, queue_index, packet_index):
    """Add a packet to an output queue."""
    run = s.run[0]
    queue = s.queues[queue_index]
    packet = s.packets[packet_index]
    if run.uet != 0 and not _is_plain(s, queue_index, packet_index, packet.bytes):
        ask_uet(s, UetAction.ENQUEUE, (np.int64(queue_index) << 32) + packet_index)
        return
    packet.next = NONE
    if queue.head < 0:
        queue.head = packet_index
        check_credits_again(s, queue_index)
    else:
        s.packets[queue.tail].next = packet_index
    queue.tail = packet_index
    add_load(s, queue_index, packet.bytes)
    if run.mark_least_bytes > 0 and queue.bytes > run.mark_least_bytes and packet.marked == 0:
        _mark(s, queue_index, packet_index)


@part
def _is_plain(s, queue_index, packet_index, more_bytes):
    """Return whether a packet of Ultra Ethernet is data in a queue too short to mark, to trim or to drop it."""
    is_data = s.packets[packet_index].carries == Carries.DATA
    return is_data and s.queues[queue_index].bytes + more_bytes <= s.run[0].plain_bytes


@part
def add_load(s, queue_index, size_bytes):
    """Count the bytes of a packet in its queue, and let the arbiter see it."""
    queue = s.queues[queue_index]
    queue.bytes += size_bytes
    s.ports[queue.port].waiting |= 1 << (queue_index - (queue.port << s.run[0].vl_bits))
    load = s.loads[queue.port]
    load.bytes += size_bytes
    load.peak_bytes = max(load.peak_bytes, load.bytes)


@handler
def _mark(s, queue_index, packet_index):
    """Mark a packet: FECN at the root of congestion, where the queue is long although the port may send; ECN as RED
    does.
    """
    run = s.run[0]
    queue = s.queues[queue_index]
    packet = s.packets[packet_index]
    low_bytes, high_bytes, share_ppm, smallest_bytes = s.marks[queue.port]
    if packet.carries != Carries.DATA or packet.bytes < smallest_bytes or queue.bytes <= low_bytes:
        return
    if run.flow == FlowControl.CREDITS:
        if queue.credits < blocks_bytes(packet.bytes):
            return  # a victim: the root of the congestion is downstream
    elif queue.bytes < high_bytes:
        share_ppm = share_ppm * (queue.bytes - low_bytes) // (high_bytes - low_bytes)
    else:
        share_ppm = MILLION
    if draw_below(s, MILLION) >= share_ppm:
        return
    packet.marked = 1
    s.plugs[queue.port].marked += 1


@part
def dequeue(s, queue_index):
    """Remove and return the first packet."""
    queue = s.queues[queue_index]
    if s.run[0].uet != 0 and not _is_plain(s, queue_index, queue.head, 0):
        return ask_uet(s, UetAction.DEQUEUE, queue_index)
    packet_index = queue.head
    packet = s.packets[packet_index]
    queue.head = packet.next
    queue.bytes -= packet.bytes
    note_emptied(s, queue_index)
    return packet_index


@part
def note_emptied(s, queue_index):
    """Clear the waiting bit of a VL if its queue is empty."""
    queue = s.queues[queue_index]
    if queue.head < 0 and queue.ring < 0:
        s.ports[queue.port].waiting &= ~(1 << (queue_index - (queue.port << s.run[0].vl_bits)))


@part
def pick_vl(s, p, needed):
    """Return the VL that the arbiter of port p lets send, or NONE: high priority first, up to its limit.

    With `needed`, one VL waits, and has credits for the first packet, which needs so many bytes. InfiniBand
    Architecture Specification, "VL arbitration and prioritization".
    """
    port = s.ports[p]
    if s.in_turns[port.arbitration]:
        return _pick_in_turn(s, p, needed)
    if s.arbitration_weight[port.arbitration, 1, 0] > 0:
        high = _pick_from_table(s, p, 1, needed)
        limit = s.high_limit_bytes[port.arbitration]
        if high >= 0 and (limit < 0 or port.high_spent_bytes <= limit):
            _spend(s, p, 1, high, needed)
            return high
        low = _pick_from_table(s, p, 0, needed)
        if low >= 0:
            port.high_spent_bytes = 0
            _spend(s, p, 0, low, needed)
        elif high >= 0:
            _spend(s, p, 1, high, needed)
            return high
        return low
    low = _pick_from_table(s, p, 0, needed)
    if low >= 0:
        _spend(s, p, 0, low, needed)
    return low


@part
def _pick_in_turn(s, p, needed):
    """Return what `pick_vl` returns for tables with one entry for each VL, in order, all of low priority."""
    port = s.ports[p]
    ready = port.waiting & ~port.blocked
    at = np.int64(port.low_at)
    while ready:
        later = (ready >> at) >> 1
        vl, left = lowest_bit(ready), np.int64(0)
        if port.low_left > 0 and (ready >> at) & 1:
            vl, left = at, np.int64(port.low_left)
        elif later:
            vl = at + 1 + lowest_bit(later)
        queue_index = (p << s.run[0].vl_bits) + vl
        if needed > 0 or may_go(s, p, queue_index):
            if left == 0:
                left = np.int64(s.arbitration_weight[port.arbitration, 0, vl])
            if needed == 0:
                needed = next_bytes(s, queue_index)
            port.low_at, port.low_left = vl, left - needed // 64
            return vl
        ready &= ~(1 << vl)
    return NONE


@part
def _pick_from_table(s, p, side, needed):
    """Return the first VL after the arbiter's position that has a packet and credits, and move the arbiter there."""
    port = s.ports[p]
    vls = s.arbitration_vl[port.arbitration, side]
    weights = s.arbitration_weight[port.arbitration, side]
    at = port.high_at if side == 1 else port.low_at
    left = port.high_left if side == 1 else port.low_left
    ready = port.waiting & ~port.blocked
    start, round_ = at, False
    while ready:
        vl = vls[at]
        if left > 0 and (ready >> vl) & 1:
            if needed > 0 or may_go(s, p, (p << s.run[0].vl_bits) + vl):
                _set_position(s, p, side, at, left)
                return vl
            ready &= ~(1 << vl)
        if round_:  # all others, and this one with its full weight
            return NONE
        at += 1
        if at == len(weights) or weights[at] == 0:
            at = 0
        left = weights[at]
        if left == 0:
            return NONE  # an empty table
        round_ = at == start
    return NONE


@part
def may_go(s, p, queue_index):
    """Return whether the first packet of a queue has credits; if not, record since when."""
    if next_bytes(s, queue_index) <= s.queues[queue_index].credits:
        return True
    port = s.ports[p]
    bit = 1 << (queue_index - (p << s.run[0].vl_bits))
    if port.blocked & bit == 0:
        port.blocked |= bit
        s.stuck_ps[queue_index] = s.run[0].now_ps
    return False


@part
def check_credits_again(s, queue_index):
    """Let the arbiter look at a queue whose next packet may have changed."""
    queue = s.queues[queue_index]
    s.ports[queue.port].blocked &= ~(1 << (queue_index - (queue.port << s.run[0].vl_bits)))


@part
def _spend(s, p, side, vl, needed):
    """Charge the chosen packet's blocks to the weight of its entry."""
    if needed == 0:
        needed = next_bytes(s, (p << s.run[0].vl_bits) + vl)
    port = s.ports[p]
    blocks = needed // 64
    if side == 1:
        port.high_left -= blocks
        port.high_spent_bytes = min(port.high_spent_bytes + needed, 1 << 30)
    else:
        port.low_left -= blocks


@part
def _set_position(s, p, side, at, left):
    port = s.ports[p]
    if side == 1:
        port.high_at, port.high_left = at, left
    else:
        port.low_at, port.low_left = at, left


@part
def pick_queue(s, p):
    """Return the queue of port p that may send now, or NONE."""
    n_vls = s.run[0].n_vls
    if n_vls > 1:
        vl = pick_vl(s, p, 0)
        return NONE if vl < 0 else (p << s.run[0].vl_bits) + vl
    return p if may_go(s, p, p) else NONE


@part
def out_queue(s, switch, in_number, number, out, sl):
    """Return the output queue at port `out` for a packet by the numbers of both ports and SL, with several VLs."""
    row = 0
    if len(s.sl2vl) > 1:
        row = s.pair_row[s.first_pair[switch] + in_number * s.slots[switch] + number]
    return (out << s.run[0].vl_bits) + s.sl2vl[row, sl]


@handler
def _is_full(s, queue_index, size_bytes):
    """Return whether a drop-tail queue is full. The limit varies at random by up to an eighth, as in a shared buffer:
    otherwise a flow in phase with the line never loses a packet, and another one loses all (Floyd and Jacobson, Traffic
    Phase Effects, 1991).
    """
    limit = s.drop_above[queue_index]
    over_bytes = s.queues[queue_index].bytes + size_bytes - limit
    return over_bytes > -(limit >> 3) and over_bytes > -draw_below(s, limit >> 3)


@part
def on_packet_at_switch(s, in_queue_index, packet_index):
    """Route an arriving packet: return the port that may send, NO_PORT or DROPPED."""
    run = s.run[0]
    in_port = in_queue_index >> run.vl_bits
    buffer = s.buffers[in_port]
    packet = s.packets[packet_index]
    switch, in_number = buffer.owner, np.int64(buffer.number)
    first = in_port - in_number
    if run.selection == Selection.DETOUR and begin_next_part(s, in_queue_index, packet_index):
        in_number = 0  # the port of the switch itself
    number = pick_port(s, switch, first, packet_index)
    out = first + number
    if number == run.no_route or s.ports[out].peer < 0:
        return NO_PORT
    queue_index = out if run.n_vls == 1 else out_queue(s, switch, in_number, number, out, packet.sl)
    return forward(s, in_queue_index, queue_index, out, packet_index)


@part
def forward(s, in_queue_index, queue_index, out, packet_index):
    """Send or queue an arriving packet at an output port: return the port that may send, NONE or DROPPED."""
    run = s.run[0]
    buffer = s.buffers[in_queue_index >> run.vl_bits]
    packet = s.packets[packet_index]
    if run.flow == FlowControl.DROP and _is_full(s, queue_index, packet.bytes):
        s.plugs[out].dropped += 1
        return DROPPED
    if buffer.rate != s.ports[out].rate and buffer.cut_in:
        late_ps = s.serial_ps[buffer.rate, packet.length] - s.serial_ps[s.ports[out].rate, packet.length]
        if late_ps > 0:  # it would leave faster than it arrives
            schedule(s, run.now_ps + late_ps, PacketEvent.TURN, packet_index, queue_index)
            return NONE
    if _can_send_now(s, out, queue_index, packet.bytes):
        load = s.loads[out]
        load.bytes += packet.bytes
        if run.n_vls > 1:
            load.peak_bytes = max(load.peak_bytes, load.bytes)
            s.ports[out].waiting = 1 << (queue_index - (out << run.vl_bits))
            pick_vl(s, out, blocks_bytes(packet.bytes))
            s.ports[out].waiting = 0
        transmit(s, out, queue_index, packet_index)
        return NONE
    enqueue(s, queue_index, packet_index)
    return out


@part
def _can_send_now(s, p, queue_index, size_bytes):
    """Return whether the port is idle, nothing waits before the packet, there are credits, and it is not marked."""
    port = s.ports[p]
    if port.busy or port.waiting or s.queues[queue_index].credits < blocks_bytes(size_bytes):
        return False
    return s.run[0].n_vls == 1 or s.run[0].mark_least_bytes == 0 or size_bytes <= s.run[0].mark_least_bytes
