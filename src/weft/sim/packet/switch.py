"""A switch: which port, which VL, and who goes next.

Packets wait in output queues by VL, in the order in which they came, while the input buffer holds their bytes. With
equal buffers at all inputs that order is fair between inputs: each gets as much of a full port as it has buffer.
"""

from __future__ import annotations

import numpy as np

from weft.jit import ask, handler, part
from weft.sim.layout.records import NONE, Flow, Selection
from weft.sim.packet.delay_lines import schedule
from weft.sim.packet.link import blocks_bytes, transmit
from weft.sim.packet.policies.adaptive import choose as adaptive
from weft.sim.packet.policies.ecmp import choose as ecmp
from weft.sim.packet.policies.spray import choose as spray
from weft.sim.packet.state import Carries, Kind

NO_ROUTE = 255
RANDOM_BITS = 31  # a linear congruential generator that fits in int64: the same compiled and interpreted
NOWHERE, DROPPED = -2, -3  # instead of a port
# Policies that this kernel has in it, as every packet asks; `run.policy` is a place here, or an address.
OWN_POLICIES = (None, adaptive, ecmp, spray)
_ADAPTIVE, _ECMP, _SPRAY = 1, 2, 3


@part
def draw_random(s):
    """31 bits of chance, of which the upper ones are good."""
    run = s.run[0]
    run.random = (run.random * 1_103_515_245 + 12_345) & ((1 << RANDOM_BITS) - 1)
    return run.random


@part
def draw_below(s, n):
    """A number from 0 to n - 1, without a division."""
    return ((draw_random(s) >> 8) * n) >> (RANDOM_BITS - 8)


@part
def pick_port(s, switch, first, packet_index):
    """Port number by the forwarding table, or out of the group that leads to the same place."""
    packet = s.packets[packet_index]
    found = np.int32(s.lft[switch, packet.dlid])
    if s.run[0].selection == Selection.TABLE:
        return found
    choice = s.first_choice[switch] + found
    begin = s.choice_first[choice]
    n = s.choice_first[choice + 1] - begin
    if n == 1:
        return s.choice_ports[begin]
    return _pick_of_group(s, switch, first, begin, n, packet_index)


@part
def _pick_of_group(s, switch, first, begin, n, packet_index):
    run = s.run[0]
    if run.selection == Selection.BY_FLOW:
        number = hash_flow(s.qps[s.messages[s.packets[packet_index].message].qp].flow, switch)
    else:
        number = draw_below(s, n)
    loads, ports = s.loads[first:], s.choice_ports[begin : begin + n]
    if run.policy == _ADAPTIVE:
        return ports[adaptive(loads, ports, number)]
    if run.policy == _ECMP:
        return ports[ecmp(loads, ports, number)]
    if run.policy == _SPRAY:
        return ports[spray(loads, ports, number)]
    return ports[_ask_policy(s, loads, ports, number)]


@handler
def _ask_policy(s, loads, ports, number):
    """One that is not weft's own."""
    return ask(s.run[0].policy, loads, ports, number)


@part
def hash_flow(flow, switch):
    mixed = (np.int64(flow) * 31 + switch + 1) * 48_271 % 2_147_483_647
    mixed = (mixed ^ (mixed >> 13)) * 69_621 % 2_147_483_647
    return mixed ^ (mixed >> 11)


@part
def enqueue(s, queue_index, packet_index):
    """A packet waits to leave by this queue, or leaves at once."""
    run = s.run[0]
    queue = s.queues[queue_index]
    packet = s.packets[packet_index]
    packet.next = NONE
    if queue.head < 0:
        queue.head = packet_index
    else:
        s.packets[queue.tail].next = packet_index
    queue.tail = packet_index
    queue.bytes += packet.bytes
    s.ports[queue.port].waiting |= 1 << (queue_index - queue.port * run.n_vls)
    load = s.loads[queue.port]
    load.bytes += packet.bytes
    load.peak_bytes = max(load.peak_bytes, load.bytes)
    if run.mark_least_bytes > 0 and queue.bytes > run.mark_least_bytes and packet.marked == 0:
        _mark(s, queue_index, packet_index)


@handler
def _mark(s, queue_index, packet_index):
    """FECN where the congestion is: the queue is long although the port may send. ECN as RED does, by chance."""
    run = s.run[0]
    queue = s.queues[queue_index]
    packet = s.packets[packet_index]
    low_bytes, high_bytes, percent, smallest_bytes = s.marks[queue.port]
    if packet.carries != Carries.DATA or packet.bytes < smallest_bytes or queue.bytes <= low_bytes:
        return
    if run.flow == Flow.CREDITS:
        if queue.credits < blocks_bytes(packet.bytes):
            return  # a victim: the root is further down
    elif queue.bytes < high_bytes:
        percent = percent * (queue.bytes - low_bytes) // (high_bytes - low_bytes)
    if draw_below(s, 100) >= percent:
        return
    packet.marked = 1
    s.plugs[queue.port].marked += 1


@part
def dequeue(s, queue_index):
    """Take the first packet out."""
    queue = s.queues[queue_index]
    packet_index = queue.head
    packet = s.packets[packet_index]
    queue.head = packet.next
    queue.bytes -= packet.bytes
    note_emptied(s, queue_index)
    return packet_index


@part
def note_emptied(s, queue_index):
    """Something has left this queue: if it was the last, nothing waits on this VL."""
    queue = s.queues[queue_index]
    if queue.head < 0 and queue.ring < 0:
        s.ports[queue.port].waiting &= ~(1 << (queue_index - queue.port * s.run[0].n_vls))


@part
def next_bytes(s, queue_index):
    """What the next packet of this queue takes of a buffer; 0 if there is none."""
    queue = s.queues[queue_index]
    if queue.head >= 0:
        return blocks_bytes(s.packets[queue.head].bytes)
    if queue.ring >= 0:
        message = s.messages[s.qps[s.qps[queue.ring].next].unsent]
        if message.sent == message.packets - 1:
            return blocks_bytes(s.size_bytes[message.last])
        if message.sent == 0:
            return blocks_bytes(s.size_bytes[message.first])
        return blocks_bytes(s.size_bytes[message.full])
    return 0


@part
def pick_vl(s, p):
    """The VL that the arbiter of port p lets send, NONE if none can: high priority first, up to its limit.

    InfiniBand Architecture Specification, "VL arbitration and prioritization".
    """
    high = _pick_from_table(s, p, 1)
    port = s.plugs[p]
    limit = s.high_limit_bytes[port.arbitration]
    if high >= 0 and (limit < 0 or port.high_spent_bytes <= limit):
        _spend(s, p, 1, high)
        return high
    low = _pick_from_table(s, p, 0)
    if low >= 0:
        port.high_spent_bytes = 0
        _spend(s, p, 0, low)
        return low
    if high >= 0:
        _spend(s, p, 1, high)
    return high


@part
def _pick_from_table(s, p, side):
    """The first VL from where the arbiter stands that has a packet and credits; the arbiter moves there."""
    port = s.plugs[p]
    vls = s.arbitration_vl[port.arbitration, side]
    weights = s.arbitration_weight[port.arbitration, side]
    at = port.high_at if side == 1 else port.low_at
    left = port.high_left if side == 1 else port.low_left
    n_vls, waiting = s.run[0].n_vls, s.ports[p].waiting
    start, round_ = at, False
    while True:
        if left > 0 and (waiting >> vls[at]) & 1 and may_go(s, p, p * n_vls + vls[at]):
            _stand(s, p, side, at, left)
            return vls[at]
        if round_:  # all others, and this one with its whole weight
            return NONE
        at += 1
        if at == len(weights) or weights[at] == 0:
            at = 0
        left = weights[at]
        if left == 0:
            return NONE  # an empty table
        round_ = at == start


@part
def may_go(s, p, queue_index):
    """Has the first packet of a queue that has one its credits? If not, since now it has not."""
    if next_bytes(s, queue_index) <= s.queues[queue_index].credits:
        return True
    port = s.ports[p]
    vl = queue_index - p * s.run[0].n_vls
    if (port.blocked >> vl) & 1 == 0:
        port.blocked |= 1 << vl
        s.stuck_ps[queue_index] = s.run[0].now_ps
    return False


@part
def _spend(s, p, side, vl):
    """The chosen packet takes its blocks from the weight of the entry."""
    needed = next_bytes(s, p * s.run[0].n_vls + vl)
    port = s.plugs[p]
    blocks = needed // 64
    if side == 1:
        port.high_left -= blocks
        port.high_spent_bytes = min(port.high_spent_bytes + needed, 1 << 30)
    else:
        port.low_left -= blocks


@part
def _stand(s, p, side, at, left):
    port = s.plugs[p]
    if side == 1:
        port.high_at, port.high_left = at, left
    else:
        port.low_at, port.low_left = at, left


@part
def pick_queue(s, p):
    """The queue of port p that may send now, NONE if none can."""
    n_vls = s.run[0].n_vls
    if n_vls > 1:
        vl = pick_vl(s, p)
        return NONE if vl < 0 else p * n_vls + vl
    return p if may_go(s, p, p) else NONE


@part
def out_queue(s, in_queue_index, number, sl):
    """Where there are several VLs: the queue of the port of this number, for what came in there on this level."""
    came = s.buffers[in_queue_index]
    n_vls = s.run[0].n_vls
    row = s.first_pair[came.owner] + came.number * s.slots[came.owner] + number
    return (came.first + number) * n_vls + s.sl2vl[s.pair_row[row], sl]


@handler
def _is_full(s, queue_index, size_bytes):
    """Drop-tail whose end moves a little, as in a buffer that others share: else a flow in step with the line never
    loses a packet, and one that is not loses all (Floyd and Jacobson, Traffic Phase Effects, 1991)."""
    limit = s.drop_above[queue_index]
    over_bytes = s.queues[queue_index].bytes + size_bytes - limit
    return over_bytes > -(limit >> 3) and over_bytes > -draw_below(s, limit >> 3)


@part
def on_packet_at_switch(s, in_queue_index, packet_index):
    """Route a packet that has come in: the port to try, or why there is none."""
    run = s.run[0]
    came = s.buffers[in_queue_index]
    packet = s.packets[packet_index]
    switch, first = came.owner, came.first
    number = pick_port(s, switch, first, packet_index)
    out = first + number
    if number == NO_ROUTE or s.ports[out].peer < 0:
        return NOWHERE
    queue_index = out if run.n_vls == 1 else out_queue(s, in_queue_index, number, packet.sl)
    return go_on(s, in_queue_index, queue_index, out, packet_index)


@part
def go_on(s, in_queue_index, queue_index, out, packet_index):
    """A packet that has come in leaves by this queue of a port, or waits there: the port to try, or why none is."""
    run = s.run[0]
    came = s.buffers[in_queue_index]
    packet = s.packets[packet_index]
    if run.flow == Flow.DROP and _is_full(s, queue_index, packet.bytes):
        s.plugs[out].dropped += 1
        return DROPPED
    if came.rate != s.ports[out].rate and came.cut_in:
        late_ps = s.serial_ps[came.rate, packet.length] - s.serial_ps[s.ports[out].rate, packet.length]
        if late_ps > 0:  # it would leave faster than it comes
            schedule(s, run.now_ps + late_ps, Kind.TURN, packet_index, queue_index)
            return NONE
    if run.n_vls == 1 and _goes_at_once(s, out, packet.bytes):
        s.loads[out].bytes += packet.bytes
        transmit(s, out, out, packet_index)
        return NONE
    enqueue(s, queue_index, packet_index)
    return out


@part
def _goes_at_once(s, p, size_bytes):
    """Nothing is before it, and there are credits."""
    port = s.ports[p]
    return port.busy == 0 and port.waiting == 0 and s.queues[p].credits >= blocks_bytes(size_bytes)
