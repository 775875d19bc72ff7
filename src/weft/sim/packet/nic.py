"""The sending side of an adapter: queue pairs take turns at the port, packet by packet; control packets go first.

A message is ready some time after its start (doorbell, work request, first bytes from memory). A queue pair starts no
message before `clock_ps`, which advances by the gap between messages or by the time to read one from memory. A packet
is
created when the port sends it.
"""

from __future__ import annotations

from weft.jit import handler, part
from weft.sim.layout.records import NONE, FlowControl
from weft.sim.packet.delay_lines import push, schedule
from weft.sim.packet.link import ask_uet, transmit
from weft.sim.packet.state import Carries, PacketEvent, QpState, UetAction
from weft.sim.packet.switch import check_credits_again, dequeue, enqueue, note_emptied, pick_queue


@part
def new_packet(s, message_index, psn, size, carries):
    """Allocate a packet from the pool; it enters the network when it is sent."""
    run = s.run[0]
    packet_index = run.free_packet
    packet = s.packets[packet_index]
    run.free_packet = packet.next
    run.free_packets -= 1
    run.alive += 1
    run.packets += 1
    message = s.messages[message_index]
    packet.message = message_index
    packet.psn = psn
    packet.dlid = message.dlid if carries == Carries.DATA else message.slid
    packet.length = size
    packet.bytes = s.size_bytes[size]
    packet.held_in = NONE
    packet.total = 0
    packet.carries = carries
    packet.sl = message.sl if carries == Carries.DATA else message.back_sl
    packet.marked = 0
    packet.again = 0
    if run.traced:
        start_trace(s, packet_index)
    return packet_index


@handler
def start_trace(s, packet_index):
    """Note the time of a packet, and clear its telemetry."""
    s.traces[packet_index].sent_ps = s.run[0].now_ps
    s.traces[packet_index].hops = 0


@part
def free_packet(s, packet_index):
    run = s.run[0]
    s.packets[packet_index].next = run.free_packet
    run.free_packet = packet_index
    run.free_packets += 1
    run.alive -= 1


@part
def send_next(s, p):
    """Send the next packet of the idle port p, of a switch or a host."""
    run = s.run[0]
    port = s.ports[p]
    if port.waiting > 0:
        if port.gated and s.hosts[-1 - s.plugs[p].owner].clock_ps > run.now_ps:
            if s.plugs[p].wakes == 0:
                s.plugs[p].wakes = 1
                schedule(s, s.hosts[-1 - s.plugs[p].owner].clock_ps, PacketEvent.PORT_READY, p, 0)
        else:
            queue_index = pick_queue(s, p)
            if queue_index >= 0:
                if s.queues[queue_index].head >= 0:
                    transmit(s, p, queue_index, dequeue(s, queue_index))
                else:
                    transmit(s, p, queue_index, _next_of_ring(s, queue_index))
            elif port.starved == 0:
                port.starved = 1
                s.plugs[p].wait_since_ps = run.now_ps


@part
def _next_of_ring(s, queue_index):
    """Create the next packet of the queue pair whose turn it is."""
    queue = s.queues[queue_index]
    qp_index = s.qps[queue.ring].next
    packet_index = ask_uet(s, UetAction.NEXT_PACKET, qp_index) if s.run[0].uet != 0 else _next_packet(s, qp_index)
    s.loads[queue.port].bytes += s.packets[packet_index].bytes
    _charge(s, qp_index, s.packets[packet_index].bytes)
    _take_turn(s, queue_index, qp_index)
    return packet_index


@part
def _next_packet(s, qp_index):
    """Create the next packet of a queue pair, in order."""
    qp = s.qps[qp_index]
    message_index = qp.unsent
    message = s.messages[message_index]
    size = message.full
    if message.sent == message.packets - 1:
        size = message.last
    elif message.sent == 0:
        size = message.first
    packet_index = new_packet(s, message_index, message.first_psn + message.sent, size, Carries.DATA)
    count_sent(s, qp_index)
    if message.branch != NONE:
        s.packets[packet_index].carries = Carries.SUMMAND
        if message.branch >= 0:
            s.packets[packet_index].carries = Carries.COPY
            s.packets[packet_index].psn = message.branch
    return packet_index


@part
def count_sent(s, qp_index):
    """Count the next packet of a queue pair as sent. The first one of a message takes the time to read it."""
    qp = s.qps[qp_index]
    message = s.messages[qp.unsent]
    if message.sent == 0:
        read_ps = qp.setup_ps + ((message.bytes * qp.ps_per_kib) >> 10)
        qp.clock_ps = max(qp.clock_ps, message.ready_ps) + max(qp.gap_ps, read_ps)
    message.sent += 1
    if message.sent == message.packets:
        qp.unsent = message.next
        qp.outstanding += 1


@part
def _charge(s, qp_index, size_bytes):
    """Charge the time of a packet to its host and its queue pair."""
    run = s.run[0]
    qp = s.qps[qp_index]
    host = s.hosts[qp.host]
    if host.ps_per_kib > 0:
        host.clock_ps = max(host.clock_ps, run.now_ps) + ((size_bytes * host.ps_per_kib) >> 10)
    if qp.pace_ps_per_kib > 0:
        pace_ps = max(qp.packet_ps, (size_bytes * qp.pace_ps_per_kib) >> 10)
        qp.paced_ps = max(qp.paced_ps, run.now_ps) + pace_ps
        qp.paced_bytes += size_bytes
    qp.in_flight += 1
    if run.losses and qp.acked and run.uet == 0:
        set_timer(s, qp_index, run.now_ps + run.timeout_ps)


@handler
def set_timer(s, qp_index, deadline_ps):
    """Set the deadline of a queue pair; an earlier TIMEOUT on the agenda is postponed, a later one replaced."""
    qp = s.qps[qp_index]
    qp.deadline_ps = deadline_ps
    if qp.timer_ps < 0 or deadline_ps < qp.timer_ps:
        qp.timer_ps = deadline_ps
        schedule(s, deadline_ps, PacketEvent.TIMEOUT, qp_index, 0)


@part
def may_send(s, qp_index):
    """Return whether a queue pair has packets and room in its windows."""
    qp = s.qps[qp_index]
    if s.run[0].uet != 0:
        return ask_uet(s, UetAction.MAY_SEND, qp_index) != 0
    if qp.unsent < 0:
        return False
    if qp.window > 0 and qp.outstanding >= qp.window:
        return False
    if qp.window_bytes > 0 and qp.in_flight * s.size_bytes[s.messages[qp.unsent].full] >= qp.window_bytes:
        return False
    return s.run[0].flow != FlowControl.DROP or qp.in_flight < qp.window_packets


@part
def soonest_ps(s, qp_index):
    """Return when the next packet of a queue pair can leave."""
    qp = s.qps[qp_index]
    if qp.unsent >= 0 and s.messages[qp.unsent].sent == 0:
        return max(qp.paced_ps, qp.clock_ps)
    return qp.paced_ps


@part
def _take_turn(s, queue_index, qp_index):
    """Move a queue pair to the end of the ring after its packet, or out of the ring."""
    run = s.run[0]
    queue = s.queues[queue_index]
    qp = s.qps[qp_index]
    more = may_send(s, qp_index)
    time_ps = soonest_ps(s, qp_index) if more else 0
    if more and time_ps <= run.now_ps:
        queue.ring = qp_index
    else:
        if queue.ring == qp_index:
            queue.ring = NONE
            note_emptied(s, queue_index)
        else:
            s.qps[queue.ring].next = qp.next
        qp.state = QpState.IDLE
        if more:
            qp.state = QpState.TIMER
            schedule(s, time_ps, PacketEvent.QP_READY, qp_index, 0)


@part
def wake_qp(s, qp_index):
    """Put an idle queue pair that may send into the ring or on the agenda. Return the port that may send."""
    run = s.run[0]
    qp = s.qps[qp_index]
    if qp.state == QpState.IDLE and may_send(s, qp_index):
        time_ps = soonest_ps(s, qp_index)
        if time_ps > run.now_ps:
            qp.state = QpState.TIMER
            schedule(s, time_ps, PacketEvent.QP_READY, qp_index, 0)
        else:
            qp.state = QpState.RING
            queue = s.queues[qp.queue]
            if queue.ring < 0:
                qp.next = qp_index
            else:
                qp.next = s.qps[queue.ring].next
                s.qps[queue.ring].next = qp_index
            queue.ring = qp_index
            s.ports[queue.port].waiting |= 1 << (qp.queue - (queue.port << run.vl_bits))
    check_credits_again(s, qp.queue)
    return s.queues[qp.queue].port


@part
def on_message_posted(s, message_index):
    """Start a message behind all that its queue pair has been given so far."""
    message = s.messages[message_index]
    qp = s.qps[message.qp]
    qp.posted_ps = max(qp.posted_ps, s.run[0].now_ps + message.lead_ps)
    schedule(s, qp.posted_ps, PacketEvent.READY, message_index, 0)


@part
def on_message_ready(s, message_index):
    """Queue a message whose work request has been read and whose first bytes are available."""
    message = s.messages[message_index]
    qp = s.qps[message.qp]
    message.ready_ps = s.run[0].now_ps
    message.first_psn = qp.given_psn
    qp.given_psn += message.packets
    message.next = NONE
    if qp.last >= 0:
        s.messages[qp.last].next = message_index
    qp.last = message_index
    if qp.unsent < 0:
        qp.unsent = message_index
    if qp.oldest < 0:
        qp.oldest = message_index
    if s.run[0].uet != 0:
        ask_uet(s, UetAction.POSTED, message.qp)
    return wake_qp(s, message.qp)


@part
def on_control(s, packet_index):
    """Queue a control packet of the adapter on the VL of its service level. Return the port."""
    packet = s.packets[packet_index]
    message = s.messages[packet.message]
    is_forward = packet.carries == Carries.DATA or packet.carries == Carries.HEADER
    p = message.src if is_forward else message.dst
    queue_index = (p << s.run[0].vl_bits) + s.host_vl[-1 - s.plugs[p].owner, packet.sl]
    enqueue(s, queue_index, packet_index)
    return p


@handler
def send_control(s, message_index, psn, carries):
    """Send a control packet back from the receiver of a message. Return its index."""
    packet_index = make_control(s, message_index, psn, carries)
    push(s, s.hosts[-1 - s.plugs[s.messages[message_index].dst].owner].ack_line, packet_index, 0)
    return packet_index


@handler
def make_control(s, message_index, psn, carries):
    """Return a control packet of the receiver of a message."""
    packet_index = new_packet(s, message_index, psn, s.run[0].ack_size, carries)
    message = s.messages[message_index]
    s.packets[packet_index].total = s.qps[message.qp].arrived & 0x7FFF
    s.packets[packet_index].again = 1 if message.received == message.packets else 0
    return packet_index
