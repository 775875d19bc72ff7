"""Reliable connections: acknowledge, detect losses, retransmit.

InfiniBand and RoCE detect a gap in the sequence numbers and go back N. With reordering (adaptive routing, spraying)
and in
TCP, which acknowledges selectively, only lost packets are sent again. Those queue pairs keep two lists: `lost`,
packets lost
in the network and not yet detected, and `again`, packets to retransmit. With reordering a gap proves nothing, so
there, and
when the last packets are lost, only the timeout detects the loss.

RC retransmits after its timeout and gives up after seven retries. TCP, as in Linux, sends one probe after two jiffies
(tail
loss probe, RFC 8985); if that brings no acknowledgement either, or if only one packet was in flight, the retransmission
timeout of 200 ms follows, and doubles each time.
"""

from __future__ import annotations

from weft.jit import call, handler
from weft.sim.layout.records import NONE, FlowControl
from weft.sim.packet.delay_lines import push
from weft.sim.packet.nic import free_packet, on_control, set_timer, start_trace, wake_qp
from weft.sim.packet.state import PROBE, Carries, QpState
from weft.sim.packet.switch import note_emptied

RETRIES = 7  # the maximum of the 3-bit retry_cnt
TCP_RETRIES = 15  # Linux: tcp_retries2
TCP_TIMEOUT_PS = 200_000_000_000  # Linux: TCP_RTO_MIN; round trips in a data centre are far shorter
SEND_BUFFER_BYTES = 4 << 20  # Linux: maximum of tcp_wmem, which bounds the bytes in flight
DUPLICATES = 3  # TCP: this many later packets prove a loss (RFC 5681)
RETRIES_EXCEEDED, SEND_PROBE = -2, -3  # returned instead of a port


@handler
def on_lost(s, packet_index):
    """Record a packet that the network lost; the queue pair has not detected it yet."""
    packet = s.packets[packet_index]
    qp_index = s.messages[packet.message].qp
    qp = s.qps[qp_index]
    run = s.run[0]
    is_kept = packet.carries == Carries.DATA and qp.acked and not qp.ordered and packet.again != PROBE and run.uet == 0
    group = s.port_group[s.messages[packet.message].src]
    if is_kept and group != run.group:
        push(s, run.lost_line + group, packet_index, 0)
        return
    free_packet(s, packet_index)
    if is_kept:  # out of the pool
        run.free_packet = packet.next
        run.free_packets -= 1
        # A retransmitted packet counts as lost only when a packet sent after it has arrived.
        packet.held_in = packet.psn if packet.again == 0 else sent_psn(s, qp_index)
        packet.next = NONE
        if qp.lost < 0:
            qp.lost = packet_index
        else:
            s.packets[qp.lost_tail].next = packet_index
        qp.lost_tail = packet_index


@handler
def sent_psn(s, qp_index):
    """Return the sequence number of the next new packet."""
    qp = s.qps[qp_index]
    if qp.unsent < 0:
        return qp.given_psn
    return s.messages[qp.unsent].first_psn + s.messages[qp.unsent].sent


@handler
def detect_losses(s, qp_index, before_psn):
    """Schedule packets lost before a sequence number for retransmission, and cut the window once for all of them."""
    run = s.run[0]
    qp = s.qps[qp_index]
    if run.flow == FlowControl.DROP:
        if qp.backoff > 0:  # a probe was acknowledged, and all others left before it (RACK, RFC 8985)
            before_psn = sent_psn(s, qp_index) + 1
        elif qp.acked_psn > qp.recover_psn:  # in recovery one later packet suffices
            before_psn -= DUPLICATES
    before = NONE  # previous packet in the list
    packet_index = qp.lost
    while packet_index >= 0:
        packet = s.packets[packet_index]
        following = packet.next
        if packet.held_in < before_psn:
            _unlink_lost(s, qp_index, before, packet_index)
            packet.next = NONE
            if qp.again < 0:
                qp.again = packet_index
            else:
                s.packets[qp.again_tail].next = packet_index
            qp.again_tail = packet_index
            qp.in_flight -= 1
            if run.flow == FlowControl.DROP and packet.psn >= qp.recover_psn:
                _cut_window(s, qp_index, run.on_loss)
        else:
            before = packet_index
        packet_index = following


@handler
def _unlink_lost(s, qp_index, before, packet_index):
    """Remove a packet from the list of lost packets, in which it follows `before`."""
    qp = s.qps[qp_index]
    following = s.packets[packet_index].next
    if before < 0:
        qp.lost = following
    else:
        s.packets[before].next = following
    if following < 0:
        qp.lost_tail = before


@handler
def _cut_window(s, qp_index, hook):
    qp = s.qps[qp_index]
    call(hook, qp, s.run[0].now_ps, s.control_table)
    qp.recover_psn = sent_psn(s, qp_index)


@handler
def resend(s, qp_index):
    """Retransmit the packets known to be lost; in TCP as far as the window allows."""
    run = s.run[0]
    qp = s.qps[qp_index]
    while qp.again >= 0 and (run.flow != FlowControl.DROP or qp.in_flight < qp.window_packets):
        packet_index = qp.again
        qp.again = s.packets[packet_index].next
        qp.in_flight += 1
        _send_copy(s, packet_index)


@handler
def _send_copy(s, packet_index):
    run = s.run[0]
    packet = s.packets[packet_index]
    packet.held_in = NONE
    packet.dlid, packet.sl = s.messages[packet.message].dlid, s.messages[packet.message].sl  # not those of a detour
    packet.marked = 0
    packet.again = 1
    if run.traced:
        start_trace(s, packet_index)
    run.alive += 1
    run.packets += 1
    s.messages[packet.message].retransmitted += 1
    on_control(s, packet_index)


@handler
def on_acked(s, message_index):
    """Handle the acknowledgement of a message and, in order, of all before it. Return the port that may send."""
    message = s.messages[message_index]
    qp = s.qps[message.qp]
    if message.acked_ps < 0:
        if qp.ordered:
            while qp.oldest >= 0 and s.messages[qp.oldest].first_psn <= message.first_psn:
                complete_message(s, qp.oldest)
                qp.oldest = s.messages[qp.oldest].next
        else:
            complete_message(s, message_index)
            while qp.oldest >= 0 and s.messages[qp.oldest].acked_ps >= 0:
                qp.oldest = s.messages[qp.oldest].next
    restart_timer(s, message.qp)
    return wake_qp(s, message.qp)


@handler
def count_acked(s, qp_index, total):
    """Take the packets that have arrived, `total` modulo 2^15, out of those in flight. Return how many are new."""
    qp = s.qps[qp_index]
    arrived = (total - qp.counted) & 0x7FFF
    if arrived >= 0x4000:  # a later acknowledgement has overtaken this one
        return 0
    qp.counted = total
    qp.in_flight = max(qp.in_flight - arrived, 0)
    return arrived


@handler
def on_tcp_ack(s, qp_index, psn, total):
    """Handle a TCP acknowledgement: `total` packets have arrived, modulo 2^15, the last being `psn`.

    Return the port.
    """
    run = s.run[0]
    qp = s.qps[qp_index]
    in_flight = qp.in_flight
    arrived = count_acked(s, qp_index, total)
    qp.in_flight = in_flight  # as `on_ack` expects it
    qp.acked_psn = max(qp.acked_psn, psn + 1)
    if qp.window_packets < qp.threshold or qp.acked_psn > qp.recover_psn:
        qp.newly_acked = arrived
        call(run.on_ack, qp, run.now_ps, s.control_table)
        most = SEND_BUFFER_BYTES // s.size_bytes[s.messages[qp.last].full]
        qp.window_packets = min(qp.window_packets, max(most, 2))
    qp.in_flight = max(qp.in_flight - arrived, 0)
    while qp.oldest >= 0 and _oldest_arrived(s, qp_index):
        complete_message(s, qp.oldest)
        qp.oldest = s.messages[qp.oldest].next
    detect_losses(s, qp_index, qp.acked_psn)
    restart_timer(s, qp_index)
    resend(s, qp_index)
    return wake_qp(s, qp_index)


@handler
def _oldest_arrived(s, qp_index):
    """Return whether the oldest message has arrived; its own acknowledgement may have been lost."""
    qp = s.qps[qp_index]
    oldest = s.messages[qp.oldest]
    return oldest.received == oldest.packets and oldest.first_psn + oldest.packets <= qp.acked_psn


@handler
def restart_timer(s, qp_index):
    """Restart the timeout after a sign of life from the other end."""
    set_timer(s, qp_index, s.run[0].now_ps + s.run[0].timeout_ps)
    s.qps[qp_index].backoff = 0


@handler
def complete_message(s, message_index):
    """Complete a message at its sender."""
    message = s.messages[message_index]
    qp = s.qps[message.qp]
    run = s.run[0]
    if message.acked_ps >= 0:
        return
    message.acked_ps = run.now_ps
    run.left -= 1
    if qp.ordered:
        qp.acked_psn = max(qp.acked_psn, message.first_psn + message.packets)
    if message.sent == message.packets:
        qp.outstanding -= 1
    else:  # a pending retransmission is not needed any more
        message.retransmitted -= message.packets - message.sent
        message.sent = message.packets
        if qp.unsent == message_index:
            qp.unsent = message.next
            if qp.unsent < 0 and qp.state == QpState.RING:
                leave_ring(s, message.qp)


@handler
def leave_ring(s, qp_index):
    """Remove a queue pair with nothing left to send from the ring."""
    qp = s.qps[qp_index]
    queue = s.queues[qp.queue]
    before = queue.ring
    while s.qps[before].next != qp_index:
        before = s.qps[before].next
    s.qps[before].next = qp.next
    if queue.ring == qp_index:
        queue.ring = NONE if before == qp_index else before
    qp.state = QpState.IDLE
    note_emptied(s, qp.queue)


@handler
def on_nak(s, qp_index, psn):
    """Handle a NAK: all packets before this one have arrived; go back to it. Return the port that may send."""
    qp = s.qps[qp_index]
    while qp.oldest >= 0 and s.messages[qp.oldest].first_psn + s.messages[qp.oldest].packets <= psn:
        complete_message(s, qp.oldest)
        qp.oldest = s.messages[qp.oldest].next
    restart_timer(s, qp_index)
    _go_back(s, qp_index, psn)
    return wake_qp(s, qp_index)


@handler
def _go_back(s, qp_index, psn):
    """Send this packet next, and then all that follow."""
    qp = s.qps[qp_index]
    qp.in_flight = 0
    qp.acked_psn = max(qp.acked_psn, psn)
    message_index = qp.oldest
    rewound = False
    while message_index >= 0 and s.messages[message_index].sent > 0:
        message = s.messages[message_index]
        if message.first_psn + message.packets > psn:
            sent = max(0, psn - message.first_psn)
            if sent < message.sent:
                if message.sent == message.packets:
                    qp.outstanding -= 1
                message.retransmitted += message.sent - sent
                message.sent = sent
                if not rewound:
                    qp.unsent = message_index
                rewound = True
        message_index = message.next


@handler
def on_timeout(s, qp_index):
    """Handle a timeout.

    Return the port that may send, RETRIES_EXCEEDED, or SEND_PROBE if only an acknowledgement is missing.
    """
    run = s.run[0]
    qp = s.qps[qp_index]
    if run.now_ps != qp.timer_ps:  # it was replaced by another one
        return NONE
    qp.timer_ps = NONE
    if qp.oldest < 0 or s.messages[qp.oldest].sent == 0:
        return NONE
    if run.now_ps < qp.deadline_ps:
        set_timer(s, qp_index, qp.deadline_ps)
        return NONE
    qp.backoff += 1
    if qp.backoff > (TCP_RETRIES if run.flow == FlowControl.DROP else RETRIES):
        return RETRIES_EXCEEDED
    wait_ps = run.timeout_ps
    if run.flow == FlowControl.DROP:
        wait_ps = TCP_TIMEOUT_PS << min(int(qp.backoff) - 1, 9)
    set_timer(s, qp_index, run.now_ps + wait_ps)
    if qp.ordered:
        _go_back(s, qp_index, qp.acked_psn)
        return wake_qp(s, qp_index)
    if run.flow == FlowControl.DROP:
        _time_out_tcp(s, qp_index)
    else:
        detect_losses(s, qp_index, sent_psn(s, qp_index) + 1)
    arrived = _may_have_arrived(s, qp_index)
    resend(s, qp_index)
    return SEND_PROBE if arrived else wake_qp(s, qp_index)


@handler
def _may_have_arrived(s, qp_index):
    """Return whether the oldest message is sent and no packet of it is known to be lost: a probe brings its ACK.

    A sender of TCP is modelled as if it knew.
    """
    qp = s.qps[qp_index]
    oldest = s.messages[qp.oldest]
    if s.run[0].flow == FlowControl.DROP:
        return oldest.received == oldest.packets
    if oldest.sent < oldest.packets:
        return False
    packet_index = qp.again
    while packet_index >= 0:
        if s.packets[packet_index].message == qp.oldest:
            return False
        packet_index = s.packets[packet_index].next
    return True


@handler
def _time_out_tcp(s, qp_index):
    """Probe with the last missing packet, unless only one was in flight; after that, slow start from one packet."""
    qp = s.qps[qp_index]
    if qp.backoff > 1:
        _cut_window(s, qp_index, s.run[0].on_timeout)
        detect_losses(s, qp_index, qp.recover_psn + 1)
        qp.in_flight = 0
    elif qp.lost >= 0 and qp.in_flight > 1:
        before = NONE
        packet_index = qp.lost
        while s.packets[packet_index].next >= 0:
            before = packet_index
            packet_index = s.packets[packet_index].next
        _unlink_lost(s, qp_index, before, packet_index)
        if s.packets[packet_index].psn >= qp.recover_psn:
            _cut_window(s, qp_index, s.run[0].on_loss)
        _send_copy(s, packet_index)
