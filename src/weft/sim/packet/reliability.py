"""Reliable connections: acknowledge, notice a loss, send again.

InfiniBand and RoCE see a gap in the sequence numbers and go back N. Where packets may overtake each other (adaptive
routing, spraying) and in TCP, which acknowledges selectively, only what was lost is sent again. Those queue pairs keep
two lists: `lost`, what the network lost and the sender does not know, and `again`, what it will send again. A gap says
nothing where packets overtake, so there, and when the last packets are lost, only the timeout tells.

RC hears nothing for its timeout, sends again, and gives up after seven times. TCP as in Linux sends one probe after
two jiffies (tail loss probe, RFC 8985); if that tells nothing either, or if it had one packet in flight, the
retransmission timeout of 200 ms comes, and doubles each time.
"""

from __future__ import annotations

from weft.jit import call, handler
from weft.sim.layout.records import NONE, Flow
from weft.sim.packet.nic import free_packet, on_control, set_timer, wake_qp
from weft.sim.packet.state import Carries, QpState
from weft.sim.packet.switch import note_emptied

RETRIES = 7  # what the 3 bits of retry_cnt can say
TCP_RETRIES = 15  # Linux: tcp_retries2
TCP_TIMEOUT_PS = 200_000_000_000  # Linux: TCP_RTO_MIN; round trips in a data centre are far below
SEND_BUFFER_BYTES = 4 << 20  # Linux: the most of tcp_wmem, so the most that is in flight
DUPLICATES = 3  # TCP: so many later packets mean that one is lost (RFC 5681)
ASKS = 2  # `again` of a packet that asks whether its message has arrived
GIVES_UP, ASK = -2, -3  # instead of a port


@handler
def on_lost(s, packet_index):
    """The network lost a packet. Only the simulator knows; the queue pair will notice."""
    packet = s.packets[packet_index]
    qp_index = s.messages[packet.message].qp
    qp = s.qps[qp_index]
    free_packet(s, packet_index)
    if packet.carries == Carries.DATA and qp.acked and not qp.ordered and packet.again != ASKS:
        run = s.run[0]  # out of the pool again: it waits here
        run.free_packet = packet.next
        run.free_packets -= 1
        # What was sent again can be missed only when something sent later than that has arrived.
        packet.held_in = packet.psn if packet.again == 0 else _sent_psn(s, qp_index)
        packet.next = NONE
        if qp.lost < 0:
            qp.lost = packet_index
        else:
            s.packets[qp.lost_tail].next = packet_index
        qp.lost_tail = packet_index


@handler
def _sent_psn(s, qp_index):
    """The sequence number of the next new packet."""
    qp = s.qps[qp_index]
    if qp.unsent < 0:
        return qp.given_psn
    return s.messages[qp.unsent].first_psn + s.messages[qp.unsent].sent


@handler
def notice(s, qp_index, before_psn):
    """What was lost before this sequence number will be sent again; the window is cut once for all that was in it."""
    run = s.run[0]
    qp = s.qps[qp_index]
    if run.flow == Flow.DROP:
        if qp.backoff > 0:  # a probe was answered, and all the others left before it (RACK, RFC 8985)
            before_psn = _sent_psn(s, qp_index) + 1
        elif qp.acked_psn > qp.recover_psn:  # in recovery one later packet is enough
            before_psn -= DUPLICATES
    before = NONE  # in the list
    packet_index = qp.lost
    while packet_index >= 0:
        packet = s.packets[packet_index]
        following = packet.next
        if packet.held_in < before_psn:
            _take_out(s, qp_index, before, packet_index)
            packet.next = NONE
            if qp.again < 0:
                qp.again = packet_index
            else:
                s.packets[qp.again_tail].next = packet_index
            qp.again_tail = packet_index
            if run.flow == Flow.DROP:
                qp.in_flight -= 1
                if packet.psn >= qp.recover_psn:
                    _cut_window(s, qp_index, run.on_loss)
        else:
            before = packet_index
        packet_index = following


@handler
def _take_out(s, qp_index, before, packet_index):
    """Out of the list of the lost, where it comes after `before`."""
    qp = s.qps[qp_index]
    following = s.packets[packet_index].next
    if before < 0:
        qp.lost = following
    else:
        s.packets[before].next = following
    if following < 0:
        qp.lost_tail = before


@handler
def _cut_window(s, qp_index, how):
    qp = s.qps[qp_index]
    call(how, qp, s.run[0].now_ps, s.control_table)
    qp.recover_psn = _sent_psn(s, qp_index)


@handler
def resend(s, qp_index):
    """Send again what is known to be lost, in TCP as far as the window goes."""
    run = s.run[0]
    qp = s.qps[qp_index]
    while qp.again >= 0 and (run.flow != Flow.DROP or qp.in_flight < qp.window_packets):
        packet_index = qp.again
        qp.again = s.packets[packet_index].next
        qp.in_flight += 1
        _send_copy(s, packet_index)


@handler
def _send_copy(s, packet_index):
    run = s.run[0]
    packet = s.packets[packet_index]
    packet.held_in = NONE
    packet.marked = 0
    packet.again = 1
    run.alive += 1
    run.packets += 1
    s.messages[packet.message].retransmitted += 1
    on_control(s, packet_index)


@handler
def on_acked(s, message_index):
    """The sender learns that a message has arrived, and with it, in order, all before. The port to try."""
    message = s.messages[message_index]
    qp = s.qps[message.qp]
    if message.acked_ps < 0:
        if qp.ordered:
            while qp.oldest >= 0 and s.messages[qp.oldest].first_psn <= message.first_psn:
                settle(s, qp.oldest)
                qp.oldest = s.messages[qp.oldest].next
        else:
            settle(s, message_index)
            while qp.oldest >= 0 and s.messages[qp.oldest].acked_ps >= 0:
                qp.oldest = s.messages[qp.oldest].next
    hear(s, message.qp)
    return wake_qp(s, message.qp)


@handler
def on_tcp_ack(s, qp_index, psn, total):
    """In all `total` packets have arrived, modulo 2^15, the last of them this one. The port to try."""
    run = s.run[0]
    qp = s.qps[qp_index]
    arrived = (total - qp.counted) & 0x7FFF
    if arrived < 0x4000:  # else a later acknowledgement has overtaken this one
        qp.counted = total
    else:
        arrived = 0
    qp.acked_psn = max(qp.acked_psn, psn + 1)
    if qp.window_packets < qp.threshold or qp.acked_psn > qp.recover_psn:
        qp.newly_acked = arrived
        call(run.on_ack, qp, run.now_ps, s.control_table)
        most = SEND_BUFFER_BYTES // s.size_bytes[s.messages[qp.last].full]
        qp.window_packets = min(qp.window_packets, max(most, 2))
    qp.in_flight = max(qp.in_flight - arrived, 0)
    while qp.oldest >= 0 and _has_come(s, qp_index):
        settle(s, qp.oldest)
        qp.oldest = s.messages[qp.oldest].next
    notice(s, qp_index, qp.acked_psn)
    hear(s, qp_index)
    resend(s, qp_index)
    return wake_qp(s, qp_index)


@handler
def _has_come(s, qp_index):
    """Acknowledgements are for all before: that of the oldest message may have been lost."""
    qp = s.qps[qp_index]
    oldest = s.messages[qp.oldest]
    return oldest.received == oldest.packets and oldest.first_psn + oldest.packets <= qp.acked_psn


@handler
def hear(s, qp_index):
    """The other end lives: wait for the whole timeout again."""
    set_timer(s, qp_index, s.run[0].now_ps + s.run[0].timeout_ps)
    s.qps[qp_index].backoff = 0


@handler
def settle(s, message_index):
    """The sender knows that this message has arrived."""
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
    else:  # it was to be sent again, which is not needed any more
        message.retransmitted -= message.packets - message.sent
        message.sent = message.packets
        if qp.unsent == message_index:
            qp.unsent = message.next
            if qp.unsent < 0 and qp.state == QpState.RING:
                _leave_ring(s, message.qp)


@handler
def _leave_ring(s, qp_index):
    """A queue pair that waits for its turn has nothing to send any more."""
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
    """The receiver misses this packet: all before it has arrived; go back to it. The port to try."""
    qp = s.qps[qp_index]
    while qp.oldest >= 0 and s.messages[qp.oldest].first_psn + s.messages[qp.oldest].packets <= psn:
        settle(s, qp.oldest)
        qp.oldest = s.messages[qp.oldest].next
    hear(s, qp_index)
    _go_back(s, qp_index, psn)
    return wake_qp(s, qp_index)


@handler
def _go_back(s, qp_index, psn):
    """The next packet to send is this one, and then all that follow."""
    qp = s.qps[qp_index]
    qp.acked_psn = max(qp.acked_psn, psn)
    message_index = qp.oldest
    found = False
    while message_index >= 0 and s.messages[message_index].sent > 0:
        message = s.messages[message_index]
        if message.first_psn + message.packets > psn:
            sent = max(0, psn - message.first_psn)
            if sent < message.sent:
                if message.sent == message.packets:
                    qp.outstanding -= 1
                message.retransmitted += message.sent - sent
                message.sent = sent
                if not found:
                    qp.unsent = message_index
                found = True
        message_index = message.next


@handler
def on_timeout(s, qp_index):
    """Nothing was heard for long. The port to try; GIVES_UP; or ASK, when only the acknowledgement can be missing."""
    run = s.run[0]
    qp = s.qps[qp_index]
    if run.now_ps != qp.timer_ps:  # another was set in its place
        return NONE
    qp.timer_ps = NONE
    if qp.oldest < 0 or s.messages[qp.oldest].sent == 0:
        return NONE
    if run.now_ps < qp.deadline_ps:
        set_timer(s, qp_index, qp.deadline_ps)
        return NONE
    qp.backoff += 1
    if qp.backoff > (TCP_RETRIES if run.flow == Flow.DROP else RETRIES):
        return GIVES_UP
    wait_ps = run.timeout_ps
    if run.flow == Flow.DROP:
        wait_ps = TCP_TIMEOUT_PS << min(int(qp.backoff) - 1, 9)
    set_timer(s, qp_index, run.now_ps + wait_ps)
    if qp.ordered:
        _go_back(s, qp_index, qp.acked_psn)
        return wake_qp(s, qp_index)
    if run.flow == Flow.DROP:
        _time_out_tcp(s, qp_index)
    else:
        notice(s, qp_index, _sent_psn(s, qp_index) + 1)
    resend(s, qp_index)
    oldest = s.messages[qp.oldest]
    if oldest.received == oldest.packets:
        return ASK
    return wake_qp(s, qp_index)


@handler
def _time_out_tcp(s, qp_index):
    """First a probe, the last packet that is missing, unless one packet was all; then slow start from one packet."""
    qp = s.qps[qp_index]
    if qp.backoff > 1:
        _cut_window(s, qp_index, s.run[0].on_timeout)
        notice(s, qp_index, qp.recover_psn + 1)
        qp.in_flight = 0
    elif qp.lost >= 0 and qp.in_flight > 1:
        before = NONE
        packet_index = qp.lost
        while s.packets[packet_index].next >= 0:
            before = packet_index
            packet_index = s.packets[packet_index].next
        _take_out(s, qp_index, before, packet_index)
        if s.packets[packet_index].psn >= qp.recover_psn:
            _cut_window(s, qp_index, s.run[0].on_loss)
        _send_copy(s, packet_index)
