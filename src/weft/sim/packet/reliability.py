"""Reliable connections: acknowledge, notice a loss, send again.

InfiniBand and RoCE see a gap in the sequence numbers and go back N. Where packets may overtake each other (adaptive
routing, spraying) and in TCP, which acknowledges selectively, only what was lost is sent again: those queue pairs keep
the lost packets in a list. A queue pair that hears nothing sends again after the timeout, and gives up after seven.
"""

from __future__ import annotations

from weft.jit import handler
from weft.sim.packet.lanes import schedule
from weft.sim.packet.nic import free_packet, on_control, wake_qp
from weft.sim.packet.state import NONE, Carries, Control, Kind

RETRIES = 7  # what the 3 bits of retry_cnt can say
DUPLICATES = 3  # TCP: so many later packets mean that one is lost


@handler
def on_lost(s, packet_index):
    """The network lost a packet. Only the simulator knows; the queue pair will notice."""
    packet = s.packets[packet_index]
    qp = s.qps[s.messages[packet.message].qp]
    free_packet(s, packet_index)
    if packet.carries == Carries.DATA and qp.acked and not qp.ordered and packet.again != 2:  # questions: ask anew
        run = s.run[0]  # out of the pool again: it waits here
        run.free_packet = packet.next
        run.free_packets -= 1
        packet.next = qp.lost
        qp.lost = packet_index


@handler
def send_lost(s, qp_index, before_psn):
    """Send again what was lost before this sequence number. How many."""
    run = s.run[0]
    qp = s.qps[qp_index]
    packet_index = qp.lost
    qp.lost = NONE
    count = 0
    while packet_index >= 0:
        packet = s.packets[packet_index]
        following = packet.next
        if packet.psn < before_psn:
            packet.held_in = NONE
            packet.marked = 0
            packet.again = 1
            run.alive += 1
            run.packets += 1
            s.messages[packet.message].retransmitted += 1
            on_control(s, packet_index)
            count += 1
        else:
            packet.next = qp.lost
            qp.lost = packet_index
        packet_index = following
    return count


@handler
def on_acked(s, message_index):
    """The sender learns that a message has arrived, and with it, in order, all before. The port to try."""
    message = s.messages[message_index]
    qp = s.qps[message.qp]
    if message.acked_ps < 0:
        if qp.ordered:
            while qp.oldest >= 0 and s.messages[qp.oldest].first_psn <= message.first_psn:
                _settle(s, qp.oldest)
                qp.oldest = s.messages[qp.oldest].next
        else:
            _settle(s, message_index)
            while qp.oldest >= 0 and s.messages[qp.oldest].acked_ps >= 0:
                qp.oldest = s.messages[qp.oldest].next
    qp.deadline_ps = s.run[0].now_ps + s.run[0].timeout_ps
    qp.backoff = 0
    return wake_qp(s, message.qp)


@handler
def _settle(s, message_index):
    message = s.messages[message_index]
    qp = s.qps[message.qp]
    run = s.run[0]
    message.acked_ps = run.now_ps
    run.left -= 1
    qp.acked_psn = max(qp.acked_psn, message.first_psn + message.packets)
    if message.sent == message.packets:
        qp.outstanding -= 1
    else:  # it was to be sent again, in vain
        message.sent = message.packets
        if qp.unsent == message_index:
            qp.unsent = message.next


@handler
def on_nak(s, qp_index, psn):
    """The receiver misses this packet: all before it has arrived; go back to it. The port to try."""
    qp = s.qps[qp_index]
    while qp.oldest >= 0 and s.messages[qp.oldest].first_psn + s.messages[qp.oldest].packets <= psn:
        _settle(s, qp.oldest)
        qp.oldest = s.messages[qp.oldest].next
    qp.backoff = 0
    _go_back(s, qp_index, psn)
    return wake_qp(s, qp_index)


@handler
def _go_back(s, qp_index, psn):
    """The next packet to send is this one, and then all that follow."""
    qp = s.qps[qp_index]
    qp.acked_psn = max(qp.acked_psn, psn)
    message_index = qp.oldest
    found = False
    while message_index >= 0:
        message = s.messages[message_index]
        if message.first_psn + message.packets > psn and message.sent > 0:
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
    """Nothing was heard for long. The port to try, or -2 when the queue pair gives up."""
    run = s.run[0]
    qp = s.qps[qp_index]
    qp.timer = 0
    if qp.oldest < 0 or s.messages[qp.oldest].sent == 0:
        return NONE
    qp.timer = 1
    if run.now_ps < qp.deadline_ps:
        schedule(s, qp.deadline_ps, Kind.TIMEOUT, qp_index, 0)
        return NONE
    qp.backoff += 1
    if qp.backoff > RETRIES:
        return -2
    qp.deadline_ps = run.now_ps + (
        run.timeout_ps << min(qp.backoff, 6) if run.control == Control.TCP else run.timeout_ps
    )
    schedule(s, qp.deadline_ps, Kind.TIMEOUT, qp_index, 0)
    if qp.ordered:
        _go_back(s, qp_index, qp.acked_psn)
    else:
        if run.control == Control.TCP:
            qp.threshold = max(qp.window_packets / 2, 2.0)
            qp.window_packets = 1.0
            qp.in_flight = 0
        lost = send_lost(s, qp_index, qp.given_psn)
        if run.control == Control.TCP:
            qp.in_flight = lost
        oldest = s.messages[qp.oldest]
        if oldest.received == oldest.packets:  # its acknowledgement was lost: ask for it again
            return -3
    return wake_qp(s, qp_index)
